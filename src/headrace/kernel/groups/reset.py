"""Where a group is sent to read on from. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Aim(StrEnum):
    """Ways to name an offset; each but the first two goes with a number."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    TIMESTAMP = "timestamp"
    SHIFT = "shift"


@dataclass(frozen=True, slots=True)
class Target:
    """Where to: an offset, a time in milliseconds since 1970, or a number of records to go by."""

    aim: Aim
    value: int = 0


def landing(
    target: Target, *, committed: int | None, start: int, end: int, found: int | None
) -> int | None:
    """The offset that a partition is read on from; None leaves it as it is.

    `committed` is where the group stands there, `[start, end]` what may be read, `found` the first
    record at or after the target's time. Only a shift needs a group that stands somewhere.
    """
    match target.aim:
        case Aim.EARLIEST:
            wanted = start
        case Aim.LATEST:
            wanted = end
        case Aim.OFFSET:
            wanted = target.value
        case Aim.TIMESTAMP:
            wanted = end if found is None else found
        case Aim.SHIFT:
            if committed is None:
                return None
            wanted = committed + target.value
    return min(max(wanted, start), end)
