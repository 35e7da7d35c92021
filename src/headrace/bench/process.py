"""What a server's process takes, read from /proc (proc(5))."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from headrace.errors import InputError


@dataclass(frozen=True, slots=True)
class Usage:
    """A process at one moment.

    Attributes:
        cpu_seconds: user and system time of all its threads so far.
        resident_bytes: memory that it holds.
    """

    cpu_seconds: float
    resident_bytes: int

    @classmethod
    def of(cls, pid: int) -> Self:
        """Of a process of this machine.

        Raises:
            InputError: there is none, or this is no Linux.
        """
        folder = Path("/proc") / str(pid)
        try:
            # The name, in parentheses, may hold anything; times are fields 14 and 15.
            times = (folder / "stat").read_text().rpartition(")")[2].split()[11:13]
            pages = int((folder / "statm").read_text().split()[1])
        except OSError as error:
            raise InputError(f"process {pid}: {error.strerror}; is the server running?") from None
        ticks = sum(map(int, times))
        return cls(ticks / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE"))
