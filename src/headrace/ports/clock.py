"""Time, as a port: a node never asks the machine for it."""

from typing import Protocol


class Clock(Protocol):
    """Two readings, both in whole milliseconds."""

    def mono_ms(self) -> int:
        """Never runs backwards; its zero means nothing."""
        ...

    def wall_ms(self) -> int:
        """Since 1970-01-01T00:00:00Z; may jump either way."""
        ...
