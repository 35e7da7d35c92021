"""Time, as a port: a node never asks the machine for it."""

from typing import Protocol


class Clock(Protocol):
    """A monotonic and a wall clock."""

    def mono_ms(self) -> int:
        """Milliseconds, never backwards; its zero means nothing."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970-01-01T00:00:00Z; may jump either way."""
        ...

    def now(self) -> tuple[int, int]:
        """`mono_ms` and `wall_ms` by one call: each event of a connection asks for both."""
        ...
