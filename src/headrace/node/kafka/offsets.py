"""ListOffsets: the first offset, the one after the last, or the first at or after a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import HeadraceError
from headrace.node.kafka.fetch import LEADER_EPOCH
from headrace.wire.kafka.errors import ErrorCode
from headrace.wire.kafka.messages import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

if TYPE_CHECKING:
    from headrace.node.kafka.connection import KafkaConnection
    from headrace.node.kafka.door import KafkaDoor
    from headrace.wire.kafka.frames import Request
    from headrace.wire.kafka.messages import ListOffsetsPartition, ListOffsetsRequest


async def list_offsets(
    door: KafkaDoor, _: KafkaConnection, request: Request
) -> ListOffsetsResponse:
    """Answers for each partition on its own; one that is named again is not looked up again."""
    body: ListOffsetsRequest = request.body
    seen: set[tuple[str, int]] = set()
    topics = []
    for topic in body.topics:
        partitions = [await _answer(door, topic.name, asked, seen) for asked in topic.partitions]
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
    return ListOffsetsResponse(topics=topics)


async def _answer(
    door: KafkaDoor, stream: str, asked: ListOffsetsPartition, seen: set[tuple[str, int]]
) -> ListOffsetsPartitionResponse:
    answer = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
    place = (stream, asked.partition_index)
    if place in seen:
        answer.error_code = ErrorCode.INVALID_REQUEST
        return answer
    seen.add(place)
    try:
        partition = door.broker.partition(stream, asked.partition_index)
        if asked.current_leader_epoch > LEADER_EPOCH:
            answer.error_code = ErrorCode.UNKNOWN_LEADER_EPOCH
        elif asked.timestamp == LATEST_TIMESTAMP:
            answer.offset = partition.high_watermark
        elif asked.timestamp == EARLIEST_TIMESTAMP:
            answer.offset = partition.start_offset
        elif asked.timestamp < 0:
            answer.error_code = ErrorCode.INVALID_REQUEST
        else:
            found = await partition.offset_for_time(asked.timestamp)
            if found is not None:
                answer.offset, answer.timestamp = found
    except HeadraceError as error:
        answer.error_code = ErrorCode.of(error.kafka_code)
    if answer.offset >= 0:
        answer.leader_epoch = LEADER_EPOCH
    return answer
