"""Where a subscription to a stream begins, as the user properties of its SUBSCRIBE say. Pure.

Owns the properties and what they come to, given what each partition holds, and how far behind a
position is. Must not know packets.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from headrace.errors import InvalidStartError
from headrace.text import nearest, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

OFFSET: Final = "stream-offset"
"""`earliest`, `latest`, `PARTITION:OFFSET` (repeated), or `OFFSET` of a stream of one partition."""

TIME: Final = "stream-time"
"""RFC 3339, or milliseconds since 1970: the first record at or after it."""

OURS: Final = "stream-"
"""No other property may begin so: a name that is misspelt would read from somewhere else."""

_DIGITS_MAX: Final = 18
"""Of a number: it fits in 64 bits with its sign."""


class Base(StrEnum):
    """Where partitions begin that have no offset of their own."""

    EARLIEST = "earliest"
    LATEST = "latest"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Start:
    """What a client asks for.

    Attributes:
        base: of partitions without an offset of their own.
        time_ms: with `Base.TIME`.
        offsets: by partition.
        offset: of the only partition.
        is_asked: whether it asks for anything.
    """

    base: Base = Base.LATEST
    time_ms: int = 0
    offsets: Mapping[int, int] = field(default_factory=dict)
    offset: int | None = None
    is_asked: bool = False


def parse(properties: Iterable[tuple[str, str]]) -> Start:
    """Reads the user properties of a SUBSCRIBE; those of others are none of ours.

    Raises:
        InvalidStartError: one of ours says nothing, or two say different things.
    """
    bases: list[tuple[Base, int]] = []
    offsets: dict[int, int] = {}
    alone: list[int] = []
    for name, value in properties:
        if name == TIME:
            bases.append((Base.TIME, _time_ms(value)))
        elif name == OFFSET:
            if value in (Base.EARLIEST, Base.LATEST):
                bases.append((Base(value), 0))
                continue
            partition, offset = _offset(value)
            if partition is None:
                alone.append(offset)
            elif partition in offsets:
                raise InvalidStartError(f"partition {partition} is named twice")
            else:
                offsets[partition] = offset
        elif name.startswith(OURS):
            raise InvalidStartError(
                f"no property is named {shown(name)}; {nearest(name, (OFFSET, TIME))}"
            )
    if len(bases) > 1 or len(alone) > 1 or (alone and (bases or offsets)):
        raise InvalidStartError("that is more than one place to begin at")
    base, time_ms = bases[0] if bases else (Base.LATEST, 0)
    return Start(
        base, time_ms, offsets, alone[0] if alone else None, bool(bases or offsets or alone)
    )


def place(
    start: Start, bounds: Sequence[tuple[int, int]], found: Sequence[int | None] = ()
) -> list[int]:
    """The offset of each partition to begin at.

    `bounds` are the first offset of each that is kept and the one behind the last; `found`, with
    `Base.TIME`, the first record of each at or after the time, or None.

    Raises:
        InvalidStartError: there is no such place.
    """
    offsets = dict(start.offsets)
    if start.offset is not None:
        if len(bounds) != 1:
            raise InvalidStartError(
                f"there are {len(bounds)} partitions; say an offset as PARTITION:OFFSET"
            )
        offsets[0] = start.offset
    for partition, offset in offsets.items():
        if partition >= len(bounds):
            raise InvalidStartError(
                f"there is no partition {partition}; there are 0 to {len(bounds) - 1}"
            )
        first, end = bounds[partition]
        if not first <= offset <= end:
            raise InvalidStartError(
                f"partition {partition} can be read from offset {first} to {end}, "
                f"not from {offset}; or from earliest, latest"
            )
    match start.base:
        case Base.EARLIEST:
            positions = [first for first, _ in bounds]
        case Base.LATEST:
            positions = [end for _, end in bounds]
        case Base.TIME:
            # A record may have been let go of since it was found.
            positions = [
                end if at is None else min(max(at, first), end)
                for (first, end), at in zip(bounds, found, strict=True)
            ]
    for partition, offset in offsets.items():
        positions[partition] = offset
    return positions


def lag(position: int, start: int, end: int) -> int:
    """Records behind a position that are kept: what retention has let go is waited for by nobody.

    `start` is the first offset that is kept, `end` the one behind the last.
    """
    return max(end - max(position, start), 0)


def _offset(value: str) -> tuple[int | None, int]:
    partition, colon, offset = value.rpartition(":")
    if not (_is_number(offset) and (_is_number(partition) if colon else True)):
        raise InvalidStartError(
            f"an offset is earliest, latest, or PARTITION:OFFSET as in 0:1542; got {shown(value)}"
        )
    return (int(partition) if colon else None), int(offset)


def _time_ms(value: str) -> int:
    if _is_number(value):
        return int(value)
    try:
        instant = datetime.fromisoformat(value)
    except ValueError:
        instant = None
    if instant is None or instant.tzinfo is None:
        raise InvalidStartError(
            f"a time is RFC 3339 as in 2026-11-28T10:00:00Z, or milliseconds since 1970; "
            f"got {shown(value)}"
        )
    return max(int(instant.timestamp() * 1000), 0)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX
