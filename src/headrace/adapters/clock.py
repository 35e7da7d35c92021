"""The machine's clocks."""

import time


class SystemClock:
    """`ports.Clock` of the machine."""

    __slots__ = ()

    def mono_ms(self) -> int:
        """Milliseconds on the monotonic clock."""
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        """Milliseconds since 1970-01-01T00:00:00Z."""
        return time.time_ns() // 1_000_000

    def now(self) -> tuple[int, int]:
        """Both, in this order."""
        return time.monotonic_ns() // 1_000_000, time.time_ns() // 1_000_000
