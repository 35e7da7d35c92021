"""Housekeeping: retention and compaction, asked for at intervals and whenever settings change.

Performs what `kernel.retention` decides. A partition whose turn fails is told of once, counted,
and tried again next time: housekeeping never stops the node. Must not know a file.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from headrace import limits
from headrace.errors import HeadraceError
from headrace.kernel import retention
from headrace.ports import Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headrace.kernel.retention import Owed
    from headrace.node.broker import Broker
    from headrace.node.compaction import Compactions
    from headrace.node.partition import Partition

log = logging.getLogger(__name__)


class Housekeeping:
    """Keeps the logs of one node as their streams' settings say.

    After `stop` and the end of the store, `compactions` is to be waited for.
    """

    def __init__(
        self,
        broker: Broker,
        compactions: Compactions,
        owed: Callable[[Partition], Owed | None],
        check_ms: int,
    ) -> None:
        """`owed` says what a queue owes of a partition."""
        self._broker = broker
        self._compactions = compactions
        self._owed = owed
        self._check_ms = check_ms
        self._due = asyncio.Event()
        self._failing: set[Partition] = set()
        self._failures = 0
        self._stopping = False
        self._task: asyncio.Task[None] | None = None
        compactions.ended = self._due.set
        broker.altered.append(self._again)

    def _again(self) -> None:
        self._compactions.forget()
        self._due.set()

    def set_interval(self, check_ms: int) -> None:
        """Looks at once, and then at another interval."""
        self._check_ms = check_ms
        self._again()

    def start(self) -> None:
        """Begins the rounds; the first comes soon, but not before the node has settled."""
        self._task = asyncio.create_task(self._run(), name="housekeeping")
        self._task.add_done_callback(_told)

    def end(self) -> None:
        """Begins nothing more."""
        self._stopping = True
        self._compactions.stop()
        self._due.set()

    async def stop(self) -> None:
        """Ends the rounds; what the store is doing for one of them ends first."""
        self.end()
        if self._task is not None:
            await asyncio.wait([self._task])

    def samples(self) -> Iterator[Sample]:
        """Counters and gauges."""
        yield Sample(
            "log_housekeeping_failures_total", self._failures, "Partitions' turns that failed."
        )
        yield Sample(
            "log_housekeeping_failing", len(self._failing), "Partitions whose last turn failed."
        )

    async def _run(self) -> None:
        await self._wait(min(self._check_ms, limits.RETENTION_FIRST_MS))
        while not self._stopping:
            await self._round()
            await self._wait(self._check_ms)

    async def _wait(self, wait_ms: int) -> None:
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await self._due.wait()
        except TimeoutError:
            self._compactions.forget()
        self._due.clear()

    async def _round(self) -> None:
        partitions = list(self._broker.runner.partitions.values())
        self._failing.intersection_update(partitions)
        for partition in partitions:
            if self._stopping:
                return
            try:
                await self._tend(partition)
            except HeadraceError as error:
                self._tell(partition, error)
            else:
                self._failing.discard(partition)
            await asyncio.sleep(0)
        self._compactions.begin(self._broker.runner.partitions.values())
        for keeper in self._broker.keepers:
            await keeper.tend()

    async def _tend(self, partition: Partition) -> None:
        wall_ms = self._broker.clock.wall_ms()
        partition.forget_silent(wall_ms)
        # What is owed is asked for first: what is settled meanwhile may stay until the next round.
        owed = self._owed(partition)
        upkeep = retention.upkeep(
            partition.segments, partition.start_offset, partition.stream.settings, wall_ms, owed
        )
        if upkeep.roll:
            partition.roll(wall_ms)
        for trim in upkeep.trims:
            await self._broker.trim(partition, trim.offset, trim.reason, has_rolled=upkeep.roll)
            log.info(
                "records before offset %d are let go: %s", trim.offset, trim.reason,
                extra=_place(partition),
            )  # fmt: skip

    def _tell(self, partition: Partition, error: Exception) -> None:
        if not partition.is_served:  # deleted meanwhile
            return
        self._failures += 1
        if partition not in self._failing:
            self._failing.add(partition)
            log.error(
                "housekeeping failed, and will be tried again: %s", error, extra=_place(partition)
            )


def _place(partition: Partition) -> dict[str, object]:
    return {"stream": partition.stream.definition.name, "partition": partition.index}


def _told(task: asyncio.Task[None]) -> None:
    if (error := task.exception()) is not None:
        log.error("housekeeping has ended, a fault of the node", exc_info=error)
