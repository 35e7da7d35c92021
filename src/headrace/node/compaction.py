"""Compactions: one at a time, on a thread of its own, of the log that needs it most.

Performs what `kernel.retention` decides. A failure is told of once for each partition, counted,
and tried again at a later round; it never stops the node. Must not know a file.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from headrace.errors import HeadraceError
from headrace.kernel import retention
from headrace.ports import Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from headrace.native import Segment
    from headrace.node.partition import Partition
    from headrace.ports import Clock, Store

    State = tuple[tuple[int, bool, int | None], ...]

log = logging.getLogger(__name__)

NEVER: Final[State] = ()


class Compactions:
    """The compactions of one node.

    Attributes:
        ended: called when one has ended, for there may be another.
        bytes_per_second: read and written by the next ones, at most.
    """

    def __init__(self, store: Store, clock: Clock, bytes_per_second: int) -> None:
        self._store = store
        self._clock = clock
        self.bytes_per_second = bytes_per_second
        self.ended: Callable[[], None] = lambda: None
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self._ratios: dict[Partition, float] = {}
        self._tried: dict[Partition, State] = {}
        self._failing: set[Partition] = set()
        self._done = 0
        self._failures = 0
        self._removed_records = 0
        self._bytes = {"read": 0, "written": 0}

    def forget(self) -> None:
        """Tries again what could not be done, and what found nothing to do."""
        self._tried.clear()

    def begin(self, partitions: Iterable[Partition]) -> None:
        """Begins the compaction that is most due, unless one is under way."""
        if self._stopping or (self._task is not None and not self._task.done()):
            return
        compacted = [each for each in partitions if each.stream.settings.compacts]
        ratios = {}
        due = []
        for partition in compacted:
            segments = partition.segments
            settings = partition.stream.settings
            ratios[partition], is_due = retention.dirt(segments, settings, self._clock.wall_ms())
            if is_due and self._tried.get(partition, NEVER) != _state(segments):
                due.append(partition)
        self._ratios = ratios
        self._tried = {each: self._tried[each] for each in compacted if each in self._tried}
        self._failing.intersection_update(compacted)
        if due:
            dirtiest = max(due, key=ratios.__getitem__)
            self._task = asyncio.create_task(self._compact(dirtiest), name="compaction")

    def stop(self) -> None:
        """Begins no more; closing the store ends the one that is under way."""
        self._stopping = True

    async def quiet(self) -> None:
        """Waits for the one that is under way."""
        if self._task is not None:
            await asyncio.wait([self._task])

    def samples(self) -> Iterator[Sample]:
        """Counters and gauges."""
        yield Sample("log_compactions_total", self._done, "Compactions that ended well.")
        yield Sample("log_compaction_failures_total", self._failures, "Compactions that failed.")
        yield Sample(
            "log_compacted_records_total", self._removed_records, "Records that compaction let go."
        )
        for kind, count in self._bytes.items():
            label = (("kind", kind),)
            yield Sample("log_compaction_bytes_total", count, "Bytes of compactions.", label)
        for partition, ratio in self._ratios.items():
            place = partition.stream.definition.name, str(partition.index)
            labels = (("stream", place[0]), ("partition", place[1]))
            yield Sample("log_dirty_ratio", ratio, "Part of a log not compacted.", labels)

    async def _compact(self, partition: Partition) -> None:
        place = {"stream": partition.stream.definition.name, "partition": partition.index}
        settings = partition.stream.settings
        try:
            did = await asyncio.to_thread(
                self._store.compact,
                partition.log,
                wall_ms=self._clock.wall_ms(),
                delete_retention_ms=settings.delete_retention_ms,
                min_lag_ms=settings.min_compaction_lag_ms,
                span_ms=settings.segment_ms if settings.deletes else None,
                bytes_per_second=self.bytes_per_second,
            )
            self._tried[partition] = _state(partition.segments)
        except (HeadraceError, ValueError) as error:
            if self._stopping or not partition.is_served:  # closed, or deleted meanwhile
                return
            self._failures += 1
            self._tried[partition] = _state(partition.segments)
            if partition not in self._failing:
                self._failing.add(partition)
                log.error("compaction failed, and will be tried again: %s", error, extra=place)  # noqa: TRY400 - what the disk says is all there is
        else:
            self._failing.discard(partition)
            self._done += 1
            self._removed_records += did.removed_records
            self._bytes["read"] += did.read_bytes
            self._bytes["written"] += did.written_bytes
            log.info(
                "compacted up to offset %d: %d records kept, %d removed",
                did.clean_to, did.kept_records, did.removed_records, extra=place,
            )  # fmt: skip
        self.ended()


def _state(segments: Iterable[Segment]) -> State:
    """What tells whether a compaction could find more to do than the last one did."""
    return tuple((each.base_offset, each.clean, each.horizon_ms) for each in segments)
