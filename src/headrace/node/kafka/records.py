"""DeleteRecords: partitions that begin later from now on.

Of a queue nothing is deleted, for each message is owed: who wants it gone purges it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from headrace.errors import HeadraceError
from headrace.kernel.catalog import is_internal
from headrace.node.kafka.pace import paced
from headrace.wire.kafka.admin import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from headrace.wire.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.node.kafka.connection import KafkaConnection
    from headrace.node.kafka.door import KafkaDoor
    from headrace.wire.kafka.admin import DeleteRecordsPartition, DeleteRecordsRequest
    from headrace.wire.kafka.frames import Request

log = logging.getLogger(__name__)

REASON: Final = "request"
"""Label of what clients have deleted."""

ALL: Final = -1
"""Offset that stands for the high watermark."""


async def delete(door: KafkaDoor, _: KafkaConnection, request: Request) -> DeleteRecordsResponse:
    """Trims each partition on its own; on return a trim survives power loss."""
    body: DeleteRecordsRequest = request.body
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[await _delete(door, topic.name, each) for each in topic.partitions],
            )
            async for topic in paced(body.topics)
        ]
    )


async def _delete(
    door: KafkaDoor, stream: str, asked: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
    result = DeleteRecordsPartitionResult(partition_index=asked.partition_index)
    try:
        partition = door.broker.partition(stream, asked.partition_index)
        offset = partition.high_watermark if asked.offset == ALL else asked.offset
        if is_internal(stream):
            result.error_code = ErrorCode.INVALID_TOPIC_EXCEPTION
        elif not partition.stream.settings.deletes:  # as Kafka answers for compacted topics
            result.error_code = ErrorCode.POLICY_VIOLATION
        elif partition.stream.definition.queue is not None:
            result.error_code = ErrorCode.POLICY_VIOLATION
            # The answer has no place for words.
            log.warning(
                "DeleteRecords was refused, for the stream is a queue, which owes each message; "
                "headrace queues purge %s lets go of them", stream, extra={"stream": stream},
            )  # fmt: skip
        elif not 0 <= offset <= partition.high_watermark:
            result.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        else:
            await door.broker.trim(partition, offset, REASON)
            result.low_watermark = partition.start_offset
    except HeadraceError as error:
        result.error_code = ErrorCode.of(error.kafka_code)
    return result
