"""FindCoordinator, OffsetCommit, OffsetFetch, OffsetDelete: how far groups have read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.errors import HeadraceError, UnknownStreamError
from headrace.kernel.groups.events import (
    Codes,
    Commit,
    Committed,
    DeleteOffsets,
    Identity,
    Place,
)
from headrace.node.kafka.coordinator import code_of
from headrace.node.kafka.pace import paced
from headrace.node.kafka.topics import NODE_ID
from headrace.wire.kafka.errors import ErrorCode
from headrace.wire.kafka.groups import (
    FindCoordinatorResponse,
    OffsetCommitPartitionResponse,
    OffsetCommitResponse,
    OffsetCommitTopicResponse,
    OffsetFetchPartitionResponse,
    OffsetFetchResponse,
    OffsetFetchTopicResponse,
)
from headrace.wire.kafka.members import (
    OffsetDeletePartitionResponse,
    OffsetDeleteResponse,
    OffsetDeleteTopicResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headrace.model import StreamId
    from headrace.node.broker import Broker
    from headrace.node.kafka.connection import KafkaConnection
    from headrace.node.kafka.door import KafkaDoor
    from headrace.wire.kafka.frames import Request
    from headrace.wire.kafka.groups import OffsetCommitRequest, OffsetFetchRequest
    from headrace.wire.kafka.members import OffsetDeleteRequest

GROUP: Final = 0
"""FindCoordinator: the key is a group, not a transactional id."""

OF_GROUPS: Final = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.NON_EMPTY_GROUP})
"""What OffsetDelete says of the whole group, and not of its places."""


async def find_coordinator(
    door: KafkaDoor, connection: KafkaConnection, request: Request
) -> FindCoordinatorResponse:
    """This node keeps every group; transactional ids are not served."""
    if request.body.key_type != GROUP:
        return FindCoordinatorResponse(
            error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            error_message="transactions are not served",
        )
    host, port = door.address(connection)
    return FindCoordinatorResponse(node_id=NODE_ID, host=host, port=port)


async def commit(
    door: KafkaDoor, connection: KafkaConnection, request: Request
) -> OffsetCommitResponse:
    """Answers once the offsets are durable."""
    body: OffsetCommitRequest = request.body
    wall_ms = door.broker.clock.wall_ms()
    codes: dict[Place, ErrorCode] = {}
    offsets: dict[Place, Committed] = {}
    streams: dict[str, StreamId] = {}
    async for topic in paced(body.topics):
        for each in topic.partitions:
            place = Place(topic.name, each.partition_index)
            stream = _stream_of(door.broker, place)
            if stream is not None:
                streams.setdefault(place.stream, stream)
                offsets[place] = Committed(
                    each.committed_offset,
                    each.committed_leader_epoch,
                    each.committed_metadata or "",
                    wall_ms,
                )
            else:
                codes[place] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    # Others had turns meanwhile, and may have deleted a stream.
    gone = {name for name, stream in streams.items() if not door.broker.serves(name, stream)}
    for place in [place for place in offsets if place.stream in gone] if gone else ():
        del offsets[place]
        codes[place] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    who, owner = Identity(body.member_id, body.group_instance_id or None), connection.owner
    codes |= await _ended(
        door, lambda ticket: Commit(ticket, body.group_id, who, body.generation_id, offsets, owner)
    )
    return OffsetCommitResponse(
        topics=[
            OffsetCommitTopicResponse(
                name=topic.name,
                partitions=[
                    OffsetCommitPartitionResponse(
                        partition_index=each.partition_index,
                        error_code=codes[Place(topic.name, each.partition_index)],
                    )
                    for each in topic.partitions
                ],
            )
            async for topic in paced(body.topics)
        ]
    )


async def fetch(door: KafkaDoor, _: KafkaConnection, request: Request) -> OffsetFetchResponse:
    """What a group has committed, for the partitions named or for all."""
    body: OffsetFetchRequest = request.body
    known = door.coordinator.groups.offsets(body.group_id)
    if body.topics is None:
        wanted = sorted(known)
    else:
        asked = (Place(topic.name, i) for topic in body.topics for i in topic.partition_indexes)
        # Each once: it may come with 4 KiB of text.
        wanted = list({place: None async for place in paced(asked)})
    topics: dict[str, list[OffsetFetchPartitionResponse]] = {}
    async for place in paced(wanted):
        answer = OffsetFetchPartitionResponse(partition_index=place.partition)
        committed = known.get(place)
        if committed is not None:
            answer.committed_offset = committed.offset
            answer.committed_leader_epoch = committed.leader_epoch
            answer.metadata = committed.metadata
        topics.setdefault(place.stream, []).append(answer)
    return OffsetFetchResponse(
        topics=[
            OffsetFetchTopicResponse(name=name, partitions=p)
            async for name, p in paced(topics.items())
        ]
    )


async def delete(door: KafkaDoor, _: KafkaConnection, request: Request) -> OffsetDeleteResponse:
    """Answers once the offsets are forgotten for good."""
    body: OffsetDeleteRequest = request.body
    asked = [
        Place(topic.name, each.partition_index)
        async for topic in paced(body.topics)
        for each in topic.partitions
    ]
    known = [place async for place in paced(asked) if _stream_of(door.broker, place) is not None]
    places = frozenset(known)
    codes = dict.fromkeys(asked, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    codes |= await _ended(door, lambda ticket: DeleteOffsets(ticket, body.group_id, places))
    whole = next((codes[place] for place in places if codes[place] in OF_GROUPS), ErrorCode.NONE)
    if whole:
        return OffsetDeleteResponse(error_code=whole, topics=[])
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteTopicResponse(
                name=topic.name,
                partitions=[
                    OffsetDeletePartitionResponse(
                        partition_index=each.partition_index,
                        error_code=codes[Place(topic.name, each.partition_index)],
                    )
                    for each in topic.partitions
                ],
            )
            async for topic in paced(body.topics)
        ]
    )


async def _ended(
    door: KafkaDoor, request: Callable[[int], Commit | DeleteOffsets]
) -> Mapping[Place, ErrorCode]:
    """How a request about places ends, for each of them."""
    try:
        outcome = await door.coordinator.ask(request)
    except HeadraceError as error:
        event = request(0)
        places = event.offsets if isinstance(event, Commit) else event.places
        return dict.fromkeys(places, code_of(error))
    assert isinstance(outcome, Codes)
    return outcome.codes


def _stream_of(broker: Broker, place: Place) -> StreamId | None:
    """The stream of a place that there is."""
    try:
        return broker.partition(*place).stream.definition.id
    except UnknownStreamError:
        return None
