"""The log of MQTT sessions: the internal stream `__mqtt`, which the switchboard fills and reads.

Owns the way there and back. What records mean, when they are due, and what of the log may go, is
the switchboard's.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from headrace import limits
from headrace.errors import HeadraceError, StartError, StorageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.native import Switchboard
    from headrace.node.broker import Broker
    from headrace.node.partition import Partition
    from headrace.settings import Value

log = logging.getLogger(__name__)

STREAM: Final = "__mqtt"
SETTINGS: Final[Mapping[str, Value]] = {
    "cleanup.policy": "delete",
    "fsync": "commit",
    "retention.bytes": -1,
    "retention.ms": -1,
}
"""Only checkpoints let records go."""

CHECKPOINT: Final = "checkpoint"
"""Why records are let go, in the metrics."""


class SessionLog:
    """The log of sessions of one node (a `node.broker.Keeper`)."""

    def __init__(self, broker: Broker, switchboard: Switchboard) -> None:
        self._broker = broker
        self._switchboard = switchboard
        self._partitions: list[Partition] = []
        self._trims: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Sees to it that the stream is there, and gives the switchboard what it holds.

        Raises:
            StartError: it cannot be read.
            HeadraceError: it cannot be created, or the disk refused.
        """
        broker, clock = self._broker, self._broker.clock
        self._switchboard.keep_sessions(limits.SESSION_PARTITIONS, limits.SESSION_CHECKPOINT_BYTES)
        await broker.ensure_internal(STREAM, limits.SESSION_PARTITIONS, SETTINGS)
        self._partitions = broker.partitions(STREAM)
        began_ms = clock.mono_ms()
        try:
            for partition in self._partitions:
                await self._restore(partition)
        except ValueError as error:
            raise StartError(
                f"the sessions of MQTT clients cannot be read: {error}; headrace log verify tells "
                f"more, and mqtt.persistence = false starts without them"
            ) from None
        self._switchboard.restored(*clock.now())
        broker.runner.persist = self._persist
        broker.runner.wake()
        broker.keepers.append(self)
        statistics = self._switchboard.statistics()
        if statistics["mqtt_sessions"]:
            log.info(
                "%d MQTT sessions restored in %d ms, for which %d messages wait",
                statistics["mqtt_sessions"], clock.mono_ms() - began_ms,
                statistics["mqtt_stored_messages"],
            )  # fmt: skip

    async def _restore(self, partition: Partition) -> None:
        partition.unkept_bytes = 0  # its records are no publishes of a source
        offset, end = partition.bounds
        while offset < end:
            batches = await partition.read(offset, limits.SESSION_READ_BYTES)
            offset = self._switchboard.restore(partition.index, batches)
            await asyncio.sleep(0)  # the HTTP door is open already, and answers meanwhile

    def _persist(self, mono_ms: int, wall_ms: int) -> None:
        """Appends what the switchboard gives out, and lets go of what it needs no more."""
        switchboard, runner = self._switchboard, self._broker.runner
        if (trim := switchboard.persist(mono_ms, wall_ms)) is not None:
            self._let_go(*trim)
        while (append := switchboard.session_append()) is not None:
            index, batch, ticket, begins = append
            partition = self._partitions[index]
            if begins:
                with suppress(StorageError):  # the append says so, too
                    partition.roll(wall_ms)
            offset = runner.append_own(partition, batch, ticket, mono_ms, wall_ms)
            partition.unkept_bytes = 0
            if begins and offset is not None:
                switchboard.session_appended(ticket, offset)

    def _let_go(self, index: int, offset: int) -> None:
        task = asyncio.create_task(
            self._trim(self._partitions[index], offset), name="trim sessions"
        )
        self._trims.add(task)
        task.add_done_callback(self._trims.discard)

    async def _trim(self, partition: Partition, offset: int) -> None:
        try:
            await self._broker.trim(partition, offset, CHECKPOINT, has_sources=False)
        except HeadraceError as error:  # the next checkpoint tries again
            log.warning(
                "the log of sessions was not shortened: %s", error,
                extra={"stream": STREAM, "partition": partition.index},
            )  # fmt: skip

    async def tend(self) -> None:
        """Nothing is due at intervals."""

    async def close(self) -> None:
        """Waits for what is being let go."""
        if self._trims:
            await asyncio.wait(self._trims)
