"""What a log keeps no longer, when its active segment is closed, when it is compacted. Pure.

Whole segments go, oldest first, as Kafka's do (`UnifiedLog.deleteOldSegments`): an expired one only
with all before it, and the active one only where everything is expired; it is closed first then.
Who has read what does not count, but for queues: what a group of one has not settled stays, with
all behind it.

A segment is as old as its newest record. Clients choose timestamps, and one from the future would
keep its segment for ever: none counts as later than the moment when the next segment began, for
then it had been written, nor as later than now. So that this moment comes, a segment to which
nothing more is written is closed at the age at which an append would have closed it.

The node's clock may have been ahead, too. No segment began later than one after it, and an active
one that seems to begin later than now is closed: when the next began tells it from then on.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from headrace.settings import UNLIMITED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.settings import Settings

TIME: Final = "time"
SIZE: Final = "size"
RECORDS: Final = "records"
SETTLED: Final = "settled"


# ruff: noqa: D102 - `headrace.native.Segment` says what each means
class Segment(Protocol):
    """What is asked of a segment."""

    @property
    def base_offset(self) -> int: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def max_timestamp_ms(self) -> int | None: ...
    @property
    def created_ms(self) -> int | None: ...
    @property
    def clean(self) -> bool: ...
    @property
    def horizon_ms(self) -> int | None: ...


class Trim(NamedTuple):
    """The log begins at `offset` from now on, for `time`, `size` or `records`, or as `settled`."""

    offset: int
    reason: str


class Owed(NamedTuple):
    """What a queue asks of a log.

    Attributes:
        offset: of the first record that some group has not settled.
        settled_go: whether closed segments before that go at once; else retention lets them go.
    """

    offset: int
    settled_go: bool


@dataclass(frozen=True, slots=True)
class Upkeep:
    """What is done to a log now, in this order.

    Attributes:
        roll: whether the active segment is closed.
        trims: one for each run of segments that go for the same reason, offsets ascending.
    """

    roll: bool
    trims: tuple[Trim, ...]


def upkeep(
    segments: Sequence[Segment],
    start_offset: int,
    settings: Settings,
    wall_ms: int,
    owed: Owed | None = None,
) -> Upkeep:
    """What retention asks for at `wall_ms`.

    Args:
        segments: of one log, oldest first, the last of them active.
        start_offset: where the log begins, which may be inside of the first.
        settings: of its stream.
        wall_ms: milliseconds since 1970 UTC.
        owed: where the stream is a queue.
    """
    active = segments[-1]
    expired = _expired(segments, start_offset, settings, wall_ms) if settings.deletes else []
    if owed is not None:
        settled = sum(segment.next_offset <= owed.offset for segment in segments)
        closed = min(settled, len(segments) - 1)
        expired = [SETTLED] * closed if owed.settled_go else expired[:settled]
    trims: list[Trim] = []
    for segment, reason in zip(segments, expired, strict=False):
        if trims and trims[-1].reason == reason:
            trims.pop()
        if segment.next_offset > start_offset:
            trims.append(Trim(segment.next_offset, reason))
    age_ms = 0 if active.created_ms is None else wall_ms - active.created_ms
    aged = age_ms < 0 or age_ms >= settings.roll_ms
    written = active.next_offset > active.base_offset
    return Upkeep(
        roll=written and (aged or len(expired) == len(segments)),
        trims=tuple(trims),
    )


def _expired(
    segments: Sequence[Segment], start_offset: int, settings: Settings, wall_ms: int
) -> list[str]:
    """Why each of the first segments goes; the others stay."""
    sizes = [segment.bytes for segment in segments]
    counts = [segment.next_offset - max(segment.base_offset, start_offset) for segment in segments]
    spare_bytes = _beyond(sizes, settings.retention_bytes)
    spare_records = _beyond(counts, settings.retention_records)
    reasons: list[str] = []
    for newest_ms, size, count in zip(newest(segments, wall_ms), sizes, counts, strict=True):
        if size == 0:
            break  # active, and nothing was written to it
        if UNLIMITED != settings.retention_ms < wall_ms - newest_ms:
            reasons.append(TIME)
        elif size <= spare_bytes:
            reasons.append(SIZE)
        elif count <= spare_records:
            reasons.append(RECORDS)
        else:
            break
        spare_bytes -= size
        spare_records -= count
    return reasons


def _beyond(amounts: Sequence[int], kept: int) -> int:
    """How much there is beyond what must be kept, below 0 where nothing is."""
    return -1 if kept == UNLIMITED else sum(amounts) - kept


def newest(segments: Sequence[Segment], wall_ms: int) -> list[int]:
    """When the newest record of each segment was written, as far as is known, in wall clock ms."""
    ended = [*_began(segments, wall_ms)[1:], wall_ms]
    stamps = (segment.max_timestamp_ms for segment in segments)
    # Records without a timestamp count as written when their segment ended.
    return [
        ended_ms if stamp is None or stamp < 0 else min(stamp, ended_ms)
        for stamp, ended_ms in zip(stamps, ended, strict=True)
    ]


def _began(segments: Sequence[Segment], wall_ms: int) -> list[int]:
    """When each segment began at the latest."""
    stamps = (
        wall_ms if each.created_ms is None else each.created_ms for each in reversed(segments)
    )
    return list(accumulate(stamps, min, initial=wall_ms))[:0:-1]


class Dirt(NamedTuple):
    """How much of a log has not been compacted, of what may be.

    Attributes:
        ratio: bytes that have not, of all that have been or could be now; 0 to 1.
        due: whether the log's settings ask for a compaction now.
    """

    ratio: float
    due: bool


def dirt(segments: Sequence[Segment], settings: Settings, wall_ms: int) -> Dirt:
    """What compaction would find at `wall_ms`, and whether it is due.

    It is where more than `min.cleanable.dirty.ratio` of the log is dirty, where a dirty record is
    older than `max.compaction.lag.ms` (Kafka's `LogCleanerManager.grabFilthiestCompactedLog`), and
    where tombstones that a compaction has met are older than twice `delete.retention.ms`: Kafka's
    wait for new records to come, and a log to which nothing is written keeps them for ever.
    """
    clean = sum(segment.bytes for segment in segments if segment.clean)
    dirty = 0
    overdue = False
    times = zip(newest(segments, wall_ms), _began(segments, wall_ms), strict=True)
    for segment, (newest_ms, began_ms) in zip(segments[:-1], times, strict=False):
        if newest_ms > wall_ms - settings.min_compaction_lag_ms:
            break  # what follows is younger still, or waits for this one
        if not segment.clean:
            dirty += segment.bytes
            oldest_ms = newest_ms if segment.created_ms is None else began_ms
            overdue |= wall_ms - oldest_ms > settings.max_compaction_lag_ms
    ratio = dirty / (clean + dirty) if dirty else 0.0
    spent_ms = wall_ms - settings.delete_retention_ms
    tombstones = any(
        segment.horizon_ms is not None and segment.horizon_ms <= spent_ms for segment in segments
    )
    return Dirt(ratio, ratio > settings.min_cleanable_dirty_ratio or overdue or tombstones)
