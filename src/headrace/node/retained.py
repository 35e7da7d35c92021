"""Retained messages of MQTT, kept in the internal stream `__retained`.

The switchboard decides what is retained and appends the records; this reads them back at a start,
in chunks, and has their state kept beside the log (`node.keyed`). Must not know what a record
says. Invariant: no client connects before everything is read back.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from headrace import limits
from headrace.errors import StorageCorruptError
from headrace.kernel import keyed
from headrace.native import CorruptRecordError, UnsupportedRecordError
from headrace.node.keyed import KeyedStream
from headrace.ports import Sample

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from headrace.native import Switchboard
    from headrace.node.broker import Broker
    from headrace.node.partition import Partition
    from headrace.settings import Value

log = logging.getLogger(__name__)

STREAM: Final = "__retained"
SETTINGS: Final[Mapping[str, Value]] = {
    "cleanup.policy": "compact",
    "fsync": "commit",
    "segment.bytes": limits.RETAINED_SEGMENT_BYTES,
    "max.message.bytes": limits.MESSAGE_BYTES_CEILING,
}


class RetainedStore:
    """The internal stream that makes retained messages last."""

    def __init__(self, broker: Broker, switchboard: Switchboard) -> None:
        self._broker = broker
        self._switchboard = switchboard
        self._stream = KeyedStream(broker, STREAM, limits.RETAINED_PARTITIONS, SETTINGS, self)
        self._ignored = 0

    async def open(self) -> None:
        """Reads it all back; from then on what is retained lasts.

        Raises:
            HeadraceError: it cannot be read, or not be created.
        """
        await self._stream.create()
        self._switchboard.keep_retained(self._broker.catalog.get(STREAM).id)
        await self._stream.replay()
        if self._ignored:
            log.warning("records that are no retained message are ignored: %d", self._ignored)
        for index, partition in enumerate(self._broker.partitions(STREAM)):
            partition.watch(partial(self._advanced, index, partition))

    def _advanced(self, index: int, partition: Partition) -> None:
        self._stream.advanced(index, partition.told_offset)

    async def take_state(self, state: bytes) -> int:
        """Takes a kept state in (`Keyed`)."""
        count = 0
        for batch in keyed.batches_of(state):
            count += self._restore(batch)[0]
            await asyncio.sleep(0)
        return count

    def take_log(self, batches: bytes, start: int, end: int) -> tuple[int, int]:
        """Takes records of the log in (`Keyed`)."""
        del start, end  # nothing is appended yet
        return self._restore(batches)

    def _restore(self, batches: bytes) -> tuple[int, int]:
        clock = self._broker.clock
        try:
            records, ignored, next_offset = self._switchboard.restore_retained(
                batches, *clock.now()
            )
        except (CorruptRecordError, UnsupportedRecordError) as error:
            raise StorageCorruptError(
                f"stream {STREAM!r} is damaged ({error}); see: headrace log verify"
            ) from None
        self._ignored += ignored
        return records, next_offset

    async def states(self, indices: Sequence[int]) -> list[tuple[bytes, int]]:
        """What is retained of partitions, found in one walk over all topics (`Keyed`)."""
        clock, names = self._broker.clock, limits.RETAINED_PAGE_NAMES
        batches, counts = [bytearray() for _ in indices], [0] * len(indices)
        start: str | None = ""
        while start is not None:
            parts, start = self._switchboard.retained_state(
                list(indices), start, names, *clock.now()
            )
            for at, (batch, records) in enumerate(parts):
                batches[at] += batch
                counts[at] += records
            await asyncio.sleep(0)
        return [(bytes(each), count) for each, count in zip(batches, counts, strict=True)]

    def samples(self) -> Iterator[Sample]:
        """What the start has read."""
        for place in ("state", "log"):
            yield Sample(
                "mqtt_retained_replayed",
                self._stream.replayed[place],
                "Records of retained messages read at the start.",
                (("from", place),),
            )
