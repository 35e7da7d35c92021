"""Keeps the last sequence of each source of messages beside the logs (`node.broker.Keeper`).

A start reads the records behind what is kept. A clean one reads none; one after a crash reads a
bounded number of bytes, for the store goes over what is new before there is too much of it. Only
the store may then say what is durable: the switchboard knows of messages on their way as well.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from headrace import limits
from headrace.errors import StorageCorruptError, UnavailableError
from headrace.node.disk import on_disk

if TYPE_CHECKING:
    from headrace.native import Switchboard
    from headrace.node.partition import Partition
    from headrace.node.runner import Runner
    from headrace.ports import Store

log = logging.getLogger(__name__)


class SourceKeeper:
    """The sources of all partitions of one node."""

    def __init__(self, runner: Runner, store: Store, switchboard: Switchboard) -> None:
        self._runner = runner
        self._store = store
        self._switchboard = switchboard
        self._keeping: asyncio.Task[None] | None = None
        self._refreshing = asyncio.Lock()
        runner.on_grown = self.grown

    def grown(self) -> None:
        """Looks, beside the loop's other work, whether something is due."""
        if self._keeping is None or self._keeping.done():
            self._keeping = asyncio.create_task(self.tend(), name="keep sources")

    async def tend(self) -> None:
        """Goes over the longest tails where all together have become long."""
        tails = [(each.unkept_bytes, each) for each in self._runner.partitions.values()]
        unkept = sum(tail for tail, _ in tails)
        if unkept < limits.UNKEPT_BYTES_MAX:
            return
        for tail, partition in sorted(tails, key=lambda each: each[0], reverse=True):
            if unkept < limits.UNKEPT_BYTES_MAX / 2:
                return
            await self._try(partition)
            unkept -= tail

    async def close(self) -> None:
        """Keeps what the switchboard knows: nothing is on its way any more."""
        if self._keeping is not None:
            await asyncio.wait([self._keeping])
        for (stream, index), partition in self._runner.partitions.items():
            if partition.unkept_bytes:
                sources = self._switchboard.sources(stream, index)
                try:
                    await on_disk(self._store.save_sources, partition.log, sources)
                except UnavailableError as error:
                    _tell(partition, error)

    async def keep(self, partition: Partition, *, around_damage: bool = False) -> None:
        """Keeps the sources of one partition now; those of damaged records only where it says so.

        Raises:
            UnavailableError: the disk refused.
            ValueError: the partition was deleted meanwhile.
        """
        async with self._refreshing:
            durable_bytes = partition.unkept_bytes - partition.queued_bytes
            if partition.unkept_bytes:
                await on_disk(
                    self._store.refresh_sources, partition.log, around_damage=around_damage
                )
                partition.unkept_bytes -= durable_bytes

    async def let_go(self, partition: Partition) -> None:
        """As `keep`, but damage among the records does not hold up that they go.

        Else retention would stop there for ever. What a source has sent last is then not known
        after a crash: what it sends again may be stored again, which is better than a full disk.
        """
        try:
            await self.keep(partition)
        except UnavailableError as error:
            if not isinstance(error.__cause__, StorageCorruptError):
                raise
            _tell(partition, error)
            await self.keep(partition, around_damage=True)

    async def _try(self, partition: Partition) -> None:
        try:
            await self.keep(partition)
        except ValueError:
            pass  # it was deleted meanwhile
        except UnavailableError as error:
            _tell(partition, error)


def _tell(partition: Partition, error: UnavailableError) -> None:
    log.warning(
        "the sources of messages were not kept, so that a start would read more, and not know "
        "those whose records are gone: %s", error,
        extra={"stream": partition.stream.definition.name, "partition": partition.index},
    )  # fmt: skip
