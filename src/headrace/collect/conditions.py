"""What is wrong for a while: said when it begins, changes and ends, and not each time it is seen.

A machine without I/O or clock: what was seen goes in with its time, a line comes out or none.
Something that comes and goes is said to have ended only after it was well for longer and longer,
so that an exporter that fails every second time does not fill a log.
"""

from __future__ import annotations

from typing import Final

_WELL_MAX: Final = 64
"""Times in a row after which something is well again, however often it came back before."""


class Condition:
    """One thing that can be wrong; each is seen again at each round.

    Attributes:
        times: how often it was seen since it began.
    """

    __slots__ = ("_began_before", "_begun", "_kinds", "_needed", "_well", "times")

    def __init__(self) -> None:
        self._kinds: set[str] = set()
        self._begun = 0.0
        self._began_before = False
        self._well = 0
        self._needed = 1
        self.times = 0

    def seen(self, kind: str, now: float) -> bool:
        """It is wrong at `now`, in seconds, in this way; whether that is to be said.

        Each way is, once.
        """
        if not self._kinds:
            self._begun, self.times = now, 0
            if self._began_before and self._well < _WELL_MAX:  # it came back
                self._needed = min(self._needed * 2, _WELL_MAX)
            else:
                self._needed = 1
            self._began_before = True
        is_new = kind not in self._kinds
        self._kinds.add(kind)
        self._well = 0
        self.times += 1
        return is_new

    def absent(self, now: float) -> float | None:
        """It is not wrong at `now`; where that is to be said, for how many seconds it was."""
        self._well = min(self._well + 1, _WELL_MAX)
        if not self._kinds or self._well < self._needed:
            return None
        self._kinds.clear()
        return now - self._begun
