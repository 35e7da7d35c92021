"""Keyed state in an internal compacted stream: a start reads a kept state and a tail, not history.

`KeyedStream` appends records, says when they are durable, and from time to time keeps beside each
partition what its records have come to. A state that is damaged or of no use is told of; then the
log serves, which compaction leaves whole. Must not know what keys mean.
Invariant: a state holds exactly the records below its offset, all of them durable.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from headrace import native
from headrace.errors import HeadraceError
from headrace.kernel import keyed
from headrace.kernel.keyed import Progress, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from headrace.node.broker import Broker
    from headrace.node.partition import Partition
    from headrace.settings import Value

log = logging.getLogger(__name__)

REPLAY_BYTES: Final = 1 << 20
"""Read at a time while a node starts."""


class Keyed(Protocol):
    """What the records come to."""

    async def take_state(self, state: bytes) -> int:
        """Takes a kept state in; how many records it holds."""
        ...

    def take_log(self, batches: bytes, start: int, end: int) -> tuple[int, int]:
        """Takes records of the log in, in its order, those in `[start, end)` at least.

        How many, and the offset after them.
        """
        ...

    async def states(self, indices: Sequence[int]) -> list[tuple[bytes, int]]:
        """What each of these partitions comes to, and how many records that is.

        It may hold some of what is appended meanwhile, which a start reads again behind it.
        """
        ...


class Table(Protocol):
    """What the records come to, one by one."""

    def replay(self, record: Record) -> None:
        """Takes a record in: one of a kept state, or of the log, in its order."""
        ...

    def records(self, index: int) -> Iterable[Record]:
        """What partition `index` comes to now; may be gone through later, on another thread."""
        ...


class OfTable:
    """The state of a table (`Keyed`)."""

    def __init__(self, table: Table) -> None:
        self._table = table

    async def take_state(self, state: bytes) -> int:
        """Takes a kept state in."""
        return self._replay(keyed.unpack(state))

    def take_log(self, batches: bytes, start: int, end: int) -> tuple[int, int]:
        """Takes records of the log in."""
        columns = native.decode_records(batches, start, end, len(batches))
        return self._replay(keyed.records_of(columns)), columns.next_offset

    def _replay(self, records: Iterable[Record]) -> int:
        count = 0
        for record in records:
            self._table.replay(record)
            count += 1
        return count

    async def states(self, indices: Sequence[int]) -> list[tuple[bytes, int]]:
        """What the partitions come to at the moment of the call."""
        tables = [list(self._table.records(index)) for index in indices]
        return [(await asyncio.to_thread(keyed.pack, each), len(each)) for each in tables]


class KeyedStream:
    """One internal stream, and the state that it keeps.

    Attributes:
        replayed: records that the start has read, by where they were: `state` or `log`.
    """

    def __init__(
        self,
        broker: Broker,
        name: str,
        partitions: int,
        settings: Mapping[str, Value],
        state: Keyed,
    ) -> None:
        self._broker = broker
        self._name = name
        self._settings = settings
        self._state = state
        self._progress = [Progress() for _ in range(partitions)]
        self._keeping: asyncio.Task[None] | None = None
        self.replayed: Counter[str] = Counter()
        broker.keepers.append(self)

    async def create(self) -> None:
        """Sees to it that the stream is there.

        Raises:
            HeadraceError: it cannot be created.
        """
        await self._broker.ensure_internal(self._name, len(self._progress), self._settings)

    async def replay(self) -> None:
        """Reads it all back.

        Raises:
            HeadraceError: it cannot be read.
        """
        if self._name not in self._broker.catalog:
            return
        for partition, progress in zip(self._partitions(), self._progress, strict=True):
            offset, state, ignored = await self._broker.load_state(partition)
            for why in ignored:
                log.warning("a kept state is not used: %s", why)
            progress.records = await self._state.take_state(state)
            progress.kept = offset
            self.replayed["log"] += await self._replay_log(partition, offset)
            progress.applied = partition.high_watermark
            self.replayed["state"] += progress.records

    async def _replay_log(self, partition: Partition, start: int) -> int:
        """How many records the log holds from `start` on."""
        offset, end, count = max(start, partition.start_offset), partition.high_watermark, 0
        while offset < end:
            batches = await partition.read(offset, REPLAY_BYTES)
            records, offset = self._state.take_log(batches, offset, end)
            count += records
            await asyncio.sleep(0)  # the HTTP door is open already, and answers meanwhile
        return count

    def append(
        self, index: int, records: list[Record], ended: Callable[[HeadraceError | None], None]
    ) -> None:
        """Appends records to a partition; `ended` hears once whether they are durable.

        Raises:
            HeadraceError: nothing is appended, and `ended` not called.
        """
        wall_ms = self._broker.clock.wall_ms()
        batch = keyed.batch_of(records, wall_ms)
        future = self._broker.partition(self._name, index).append(batch, wall_ms)
        future.add_done_callback(partial(self._appended, index, len(records), ended))

    def _appended(
        self,
        index: int,
        count: int,
        ended: Callable[[HeadraceError | None], None],
        future: asyncio.Future[int],
    ) -> None:
        error = future.exception()
        assert error is None or isinstance(error, HeadraceError)
        ended(error)
        if error is None:
            self.advanced(index, future.result() + count)

    def advanced(self, index: int, applied: int) -> None:
        """The state holds the records of a partition below this offset."""
        progress = self._progress[index]
        progress.applied = applied
        idle = self._keeping is None or self._keeping.done()
        if idle and progress.is_due(self._broker.clock.wall_ms()):
            self._keeping = asyncio.create_task(self.tend(), name=f"keep {self._name}")

    async def tend(self) -> None:
        """Keeps what is due."""
        for index, progress in enumerate(self._progress):
            if progress.is_due(self._broker.clock.wall_ms()):
                await self._keep([index])

    async def close(self) -> None:
        """Keeps all of it, at the end: the next start reads no log."""
        if self._keeping is not None:
            await asyncio.wait([self._keeping])
        changed = [
            n for n, progress in enumerate(self._progress) if progress.applied > progress.kept
        ]
        if changed:
            await self._keep(changed)

    async def _keep(self, indices: Sequence[int]) -> None:
        for progress in (self._progress[index] for index in indices):
            progress.tried = progress.applied
            progress.kept_ms = self._broker.clock.wall_ms()
        applied = [self._progress[index].applied for index in indices]
        states = await self._state.states(indices)
        for index, offset, (state, records) in zip(indices, applied, states, strict=True):
            try:
                await self._broker.save_state(self._partitions()[index], offset, state)
            except HeadraceError as error:
                log.warning(
                    "the state was not kept, so that a start would read more: %s", error,
                    extra={"stream": self._name, "partition": index},
                )  # fmt: skip
            else:
                progress = self._progress[index]
                progress.kept, progress.records = offset, records

    def _partitions(self) -> list[Partition]:
        return self._broker.partitions(self._name)
