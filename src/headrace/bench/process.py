"""What a server's process takes, read from /proc (proc(5)), and what this one may open."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from headrace.adapters.machine import raise_descriptor_limit
from headrace.errors import InputError

OTHER_DESCRIPTORS: Final = 100
"""What this process has open beside connections."""


def need_connections(count: int) -> None:
    """Lets this process have so many.

    Raises:
        InputError: it may not.
    """
    allowed = raise_descriptor_limit()
    if count + OTHER_DESCRIPTORS > allowed:
        raise InputError(
            f"{count:,} connections need {count + OTHER_DESCRIPTORS:,} open files, and "
            f"{allowed:,} are allowed; raise that (ulimit -n)"
        )


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
            why = error.strerror if isinstance(error, PermissionError) else "there is none here"
            raise InputError(
                f"process {pid}: {why}; --pid is the number of the server's process on this machine"
            ) from None
        ticks = sum(map(int, times))
        return cls(ticks / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE"))
