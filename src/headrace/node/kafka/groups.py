"""FindCoordinator, OffsetCommit, OffsetFetch: what groups have read, kept in `__offsets`.

`OffsetStore` performs what the machine `kernel.groups` says: it appends records to the group's
partition of the internal stream and hands their outcome back; `KeyedStream` makes them last. The
partition follows from the group's name, so the order of its commits is the order of the log.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from headrace import limits, native
from headrace.errors import HeadraceError, UnknownStreamError
from headrace.kernel.groups import (
    Answer,
    Append,
    Commit,
    Committed,
    Groups,
    Place,
    Refused,
    Replayed,
    Stored,
    StreamDeleted,
)
from headrace.node.kafka.topics import NODE_ID
from headrace.node.keyed import KeyedStream, OfTable
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

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from headrace.kernel.groups import Effect, Event
    from headrace.kernel.keyed import Record
    from headrace.node.broker import Broker
    from headrace.node.kafka.connection import KafkaConnection
    from headrace.node.kafka.door import KafkaDoor
    from headrace.wire.kafka.frames import Request
    from headrace.wire.kafka.groups import OffsetCommitRequest, OffsetFetchRequest

STREAM: Final = "__offsets"
SETTINGS: Final = {"cleanup.policy": "compact", "fsync": "commit"}

CODES: Final = {
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}
"""What clients know of a commit for what the internal stream says: to any code of an append they
give up (Kafka's `GroupMetadataManager`). COORDINATOR_NOT_AVAILABLE for all others."""

GROUP: Final = 0
"""FindCoordinator: the key is a group, not a transactional id."""


class OffsetStore:
    """The machine of committed offsets, and the internal stream that makes it last."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._groups = Groups()
        self._ticket = 0
        self._answers: dict[int, asyncio.Future[Mapping[Place, ErrorCode]]] = {}
        self._stream = KeyedStream(
            broker, STREAM, limits.OFFSETS_PARTITIONS, SETTINGS, OfTable(self)
        )
        broker.deleted.append(self._stream_deleted)

    @property
    def count(self) -> int:
        """Committed offsets of all groups together."""
        return self._groups.count

    def offsets(self, group: str) -> Mapping[Place, Committed]:
        """What a group has committed."""
        return self._groups.offsets(group)

    @property
    def replayed(self) -> Mapping[str, int]:
        """Records that the start has read, by where they were: `state` or `log`."""
        return self._stream.replayed

    async def open(self) -> None:
        """Reads the internal stream back, and forgets what streams that are gone have left.

        Raises:
            HeadraceError: it cannot be read.
        """
        await self._stream.replay()
        for stream in self._groups.streams:
            if stream not in self._broker.catalog:
                self._stream_deleted(stream)

    def replay(self, record: Record) -> None:
        """Takes a record back in."""
        self._groups.handle(Replayed(record))

    def records(self, index: int) -> Iterator[Record]:
        """What the groups of one partition have committed."""
        return self._groups.records(lambda group: _partition_of(group) == index)

    async def commit(
        self, group: str, generation: int, offsets: Mapping[Place, Committed]
    ) -> Mapping[Place, ErrorCode]:
        """Keeps offsets; the codes come once what is accepted is durable.

        Raises:
            HeadraceError: the internal stream cannot be created.
        """
        await self._stream.create()
        self._ticket += 1
        answer: asyncio.Future[Mapping[Place, ErrorCode]] = (
            asyncio.get_running_loop().create_future()
        )
        self._answers[self._ticket] = answer
        self._handle(Commit(self._ticket, group, generation, offsets))
        return await answer

    def _stream_deleted(self, stream: str) -> None:
        self._handle(StreamDeleted(stream))

    def _handle(self, event: Event) -> None:
        for effect in self._groups.handle(event):
            self._perform(effect)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Append(ticket, group, records):
                self._append(ticket, group, records)
            case Answer(ticket, codes):
                answer = self._answers.pop(ticket)
                if not answer.done():  # its client went away
                    answer.set_result(codes)

    def _append(self, ticket: int | None, group: str, records: list[Record]) -> None:
        ended = partial(self._appended, ticket)
        try:
            self._stream.append(_partition_of(group), records, ended)
        except HeadraceError as error:
            ended(error)

    def _appended(self, ticket: int | None, error: HeadraceError | None) -> None:
        if ticket is None:
            return
        if error is None:
            self._handle(Stored(ticket))
        else:
            self._handle(Refused(ticket, _code_of(error)))


def _code_of(error: HeadraceError) -> ErrorCode:
    return CODES.get(ErrorCode.of(error.kafka_code), ErrorCode.COORDINATOR_NOT_AVAILABLE)


def _partition_of(group: str) -> int:
    return native.murmur2(group.encode()) % limits.OFFSETS_PARTITIONS


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


async def commit(door: KafkaDoor, _: KafkaConnection, request: Request) -> OffsetCommitResponse:
    """Answers once the offsets are durable."""
    body: OffsetCommitRequest = request.body
    wall_ms = door.broker.clock.wall_ms()
    codes: dict[Place, ErrorCode] = {}
    offsets: dict[Place, Committed] = {}
    for topic in body.topics:
        for each in topic.partitions:
            place = Place(topic.name, each.partition_index)
            if _exists(door.broker, place):
                offsets[place] = Committed(
                    each.committed_offset,
                    each.committed_leader_epoch,
                    each.committed_metadata or "",
                    wall_ms,
                )
            else:
                codes[place] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        codes |= await door.offsets.commit(body.group_id, body.generation_id, offsets)
    except HeadraceError as error:
        codes |= dict.fromkeys(offsets, _code_of(error))
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
            for topic in body.topics
        ]
    )


async def fetch(door: KafkaDoor, _: KafkaConnection, request: Request) -> OffsetFetchResponse:
    """What a group has committed, for the partitions named or for all."""
    body: OffsetFetchRequest = request.body
    known = door.offsets.offsets(body.group_id)
    if body.topics is None:
        wanted = sorted(known)
    else:
        wanted = [Place(topic.name, i) for topic in body.topics for i in topic.partition_indexes]
    topics: dict[str, list[OffsetFetchPartitionResponse]] = {}
    for place in wanted:
        answer = OffsetFetchPartitionResponse(partition_index=place.partition)
        committed = known.get(place)
        if committed is not None:
            answer.committed_offset = committed.offset
            answer.committed_leader_epoch = committed.leader_epoch
            answer.metadata = committed.metadata
        topics.setdefault(place.stream, []).append(answer)
    return OffsetFetchResponse(
        topics=[OffsetFetchTopicResponse(name=name, partitions=p) for name, p in topics.items()]
    )


def _exists(broker: Broker, place: Place) -> bool:
    try:
        broker.partition(*place)
    except UnknownStreamError:
        return False
    return True
