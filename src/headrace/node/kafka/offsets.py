"""ListOffsets and OffsetForLeaderEpoch: where a log begins, ends, and holds a time or an epoch.

A node that stands alone has led from the first record on: there is one epoch, and its end is the
end of the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import HeadraceError
from headrace.node.kafka.fetch import LEADER_EPOCH
from headrace.node.kafka.pace import paced
from headrace.wire.kafka.errors import ErrorCode
from headrace.wire.kafka.messages import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    EpochPartitionResponse,
    EpochTopicResponse,
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    OffsetForLeaderEpochResponse,
)

if TYPE_CHECKING:
    from headrace.node.kafka.connection import KafkaConnection
    from headrace.node.kafka.door import KafkaDoor
    from headrace.wire.kafka.frames import Request
    from headrace.wire.kafka.messages import (
        EpochPartition,
        ListOffsetsPartition,
        ListOffsetsRequest,
        OffsetForLeaderEpochRequest,
    )


async def list_offsets(
    door: KafkaDoor, _: KafkaConnection, request: Request
) -> ListOffsetsResponse:
    """Answers for each partition on its own; one that is named again is not looked up again."""
    body: ListOffsetsRequest = request.body
    seen: set[tuple[str, int]] = set()
    topics = []
    async for topic in paced(body.topics):
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


async def for_leader_epoch(
    door: KafkaDoor, _: KafkaConnection, request: Request
) -> OffsetForLeaderEpochResponse:
    """Where epochs end: consumers ask before they read on, to find that a log was cut (KIP-320)."""
    body: OffsetForLeaderEpochRequest = request.body
    return OffsetForLeaderEpochResponse(
        topics=[
            EpochTopicResponse(
                topic=topic.topic,
                partitions=[_epoch(door, topic.topic, asked) for asked in topic.partitions],
            )
            async for topic in paced(body.topics)
        ]
    )


def _epoch(door: KafkaDoor, stream: str, asked: EpochPartition) -> EpochPartitionResponse:
    answer = EpochPartitionResponse(partition=asked.partition)
    try:
        end_offset = door.broker.partition(stream, asked.partition).high_watermark
        if asked.current_leader_epoch > LEADER_EPOCH:
            answer.error_code = ErrorCode.UNKNOWN_LEADER_EPOCH
        elif asked.leader_epoch == LEADER_EPOCH:
            answer.leader_epoch, answer.end_offset = LEADER_EPOCH, end_offset
    except HeadraceError as error:
        answer.error_code = ErrorCode.of(error.kafka_code)
    return answer
