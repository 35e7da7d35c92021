"""InitProducerId: ids that are never given twice, whatever happens to the node.

Ids are claimed in blocks, each by one record in the internal stream `__producers`, and the offset
of that record is the number of the block. The log already counts durably and without repeats, so
nothing is read back at a start: the first id after it comes from a new block.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from headrace import limits, native
from headrace.errors import HeadraceError
from headrace.wire.kafka.errors import ErrorCode
from headrace.wire.kafka.messages import InitProducerIdResponse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.node.broker import Broker
    from headrace.node.kafka.connection import KafkaConnection
    from headrace.node.kafka.door import KafkaDoor
    from headrace.settings import Value
    from headrace.wire.kafka.frames import Request

STREAM: Final = "__producers"
SETTINGS: Final[Mapping[str, Value]] = {
    "cleanup.policy": "delete",
    "retention.records": 1,
    "fsync": "commit",
}
"""What was claimed is never read: only how far the offsets have come counts, which stays."""


class ProducerIds:
    """Draws producer ids."""

    __slots__ = ("_broker", "_claiming", "_left")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._claiming = asyncio.Lock()
        self._left = range(0)

    async def draw(self) -> int:
        """A producer id, >= 0, that was never drawn before in this data folder.

        Raises:
            HeadraceError: a block could not be claimed.
        """
        async with self._claiming:
            if not self._left:
                self._left = await self._claim()
            producer_id, self._left = self._left[0], self._left[1:]
        return producer_id

    async def _claim(self) -> range:
        await self._broker.ensure_internal(STREAM, 1, SETTINGS)
        wall_ms = self._broker.clock.wall_ms()
        batch = native.build_batch([(None, None, [], wall_ms)])
        block = await self._broker.partition(STREAM, 0).append(batch, wall_ms)
        return range(block * limits.PRODUCER_ID_BLOCK, (block + 1) * limits.PRODUCER_ID_BLOCK)


async def init_producer_id(
    door: KafkaDoor, _: KafkaConnection, request: Request
) -> InitProducerIdResponse:
    """Draws an id for an idempotent producer; transactions are not served."""
    if request.body.transactional_id is not None:
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return InitProducerIdResponse(error_code=code)
    try:
        producer_id = await door.producers.draw()
    except HeadraceError:  # clients try again on this one, as when Kafka has no block to give
        return InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
