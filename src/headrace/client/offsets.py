"""Questions about offsets that every client asks: of streams by time, and of groups.

Owns: requests and answers, each a single attempt; who asks retries (`Cluster.persist`). Must not
know who is a member of what.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from headrace.client.errors import RequestError, UnknownStreamError, check, error_of
from headrace.client.records import OffsetAndMetadata, TopicPartition
from headrace.wire.kafka.apis import LIST_OFFSETS, OFFSET_COMMIT, OFFSET_DELETE, OFFSET_FETCH
from headrace.wire.kafka.errors import ErrorCode
from headrace.wire.kafka.groups import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
    OffsetFetchRequest,
    OffsetFetchTopic,
)
from headrace.wire.kafka.members import (
    OffsetDeletePartition,
    OffsetDeleteRequest,
    OffsetDeleteTopic,
)
from headrace.wire.kafka.messages import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from headrace.client.cluster import Cluster
    from headrace.model import Address


class Identity(NamedTuple):
    """Who commits: a member in its generation, or nobody in particular."""

    generation: int = -1
    member: str = ""
    instance: str | None = None


ANYBODY = Identity()


class Refused(NamedTuple):
    """Instead of an offset: what is not there or cannot be asked, a stream or a partition."""

    what: str
    error: RequestError


async def ask_offsets(
    cluster: Cluster, times: Mapping[TopicPartition, int], isolation: int = 0
) -> dict[TopicPartition, ListOffsetsPartitionResponse | Refused]:
    """The first offset at or after a time (ms), or LATEST or EARLIEST, of each partition.

    What is wrong with one partition is its answer, and does not hinder the others.

    Raises:
        ClientError: the brokers are not reached, or refuse.
    """
    by_stream: defaultdict[str, set[int]] = defaultdict(set)
    for stream, partition in times:
        by_stream[stream].add(partition)
    found: dict[TopicPartition, ListOffsetsPartitionResponse | Refused] = {}
    by_leader: defaultdict[Address, dict[TopicPartition, int]] = defaultdict(dict)
    for stream, partitions in by_stream.items():
        places = [TopicPartition(stream, each) for each in partitions]
        try:
            leaders = await cluster.leaders_of(stream, partitions)
        except RequestError as error:
            found |= dict.fromkeys(places, Refused(stream, error))
            continue
        for place in places:
            leader = leaders.get(place.partition)
            if leader is None:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                found[place] = Refused(str(place), error_of(code, f"stream {place}"))
            else:
                by_leader[leader][place] = times[place]
    for leader, asked in by_leader.items():
        found |= await _ask_offsets_at(cluster, leader, asked, isolation)
    return found


async def _ask_offsets_at(
    cluster: Cluster, leader: Address, times: Mapping[TopicPartition, int], isolation: int
) -> dict[TopicPartition, ListOffsetsPartitionResponse | Refused]:
    topics: defaultdict[str, list[ListOffsetsPartition]] = defaultdict(list)
    for (stream, partition), time in times.items():
        topics[stream].append(ListOffsetsPartition(partition_index=partition, timestamp=time))
    request = ListOffsetsRequest(
        isolation_level=isolation,
        topics=[ListOffsetsTopic(name=name, partitions=parts) for name, parts in topics.items()],
    )
    response = await cluster.ask_at(leader, LIST_OFFSETS, request)
    found: dict[TopicPartition, ListOffsetsPartitionResponse | Refused] = {}
    for topic in response.topics:
        for answer in topic.partitions:
            place = TopicPartition(topic.name, answer.partition_index)
            if answer.error_code:
                cluster.forget()  # it may be led elsewhere by now, or gone
                error = error_of(answer.error_code, f"offsets of {place}")
                found[place] = Refused(topic.name, error)
            else:
                found[place] = answer
    return found


async def offsets_by_time(
    cluster: Cluster, times: Mapping[TopicPartition, int], isolation: int = 0
) -> dict[TopicPartition, ListOffsetsPartitionResponse]:
    """As `ask_offsets`, of all or none.

    Raises:
        UnknownStreamError: there is no such stream or partition.
        ClientError: the brokers are not reached, or refuse.
    """
    found = {}
    for place, answer in (await ask_offsets(cluster, times, isolation)).items():
        if isinstance(answer, Refused):
            raise answer.error
        found[place] = answer
    return found


async def commit(
    cluster: Cluster,
    group: str,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    by: Identity = ANYBODY,
) -> None:
    """Keeps how far `group` has read; on return it is durable.

    Raises:
        UnknownStreamError: a stream is not there; all others have been kept.
        RequestError: a partition was refused; others may have been kept.
        ClientError: the brokers are not reached.
    """
    topics: defaultdict[str, list[OffsetCommitPartition]] = defaultdict(list)
    for (stream, partition), (offset, metadata) in sorted(offsets.items()):
        topics[stream].append(
            OffsetCommitPartition(
                partition_index=partition, committed_offset=offset, committed_metadata=metadata
            )
        )
    request = OffsetCommitRequest(
        group_id=group,
        generation_id=by.generation,
        member_id=by.member,
        group_instance_id=by.instance,
        topics=[OffsetCommitTopic(name=name, partitions=parts) for name, parts in topics.items()],
    )
    coordinator = await cluster.coordinator(group)
    answer = await cluster.ask_at(coordinator, OFFSET_COMMIT, request)
    errors = [
        error_of(each.error_code, f"commit of {group} for {topic.name}/{each.partition_index}")
        for topic in answer.topics
        for each in topic.partitions
        if each.error_code
    ]
    if errors:  # a stream that has gone is told where nothing else is wrong
        raise min(errors, key=lambda error: isinstance(error, UnknownStreamError))


async def committed(
    cluster: Cluster, group: str, places: Collection[TopicPartition] | None = None
) -> dict[TopicPartition, OffsetAndMetadata]:
    """How far `group` has read: of `places`, or of all that it has committed.

    Raises:
        RequestError: the group's coordinator refuses.
        ClientError: the brokers are not reached.
    """
    asked: list[OffsetFetchTopic] | None = None
    if places is not None:
        topics: defaultdict[str, list[int]] = defaultdict(list)
        for stream, partition in places:
            topics[stream].append(partition)
        asked = [OffsetFetchTopic(name=name, partition_indexes=p) for name, p in topics.items()]
    coordinator = await cluster.coordinator(group)
    request = OffsetFetchRequest(group_id=group, topics=asked)
    response = await cluster.ask_at(coordinator, OFFSET_FETCH, request)
    check(response.error_code, f"offsets of {group}")
    found = {}
    for topic in response.topics:
        for each in topic.partitions:
            place = TopicPartition(topic.name, each.partition_index)
            if each.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                check(each.error_code, f"offsets of {group} for {place}")
            if each.committed_offset >= 0:
                found[place] = OffsetAndMetadata(each.committed_offset, each.metadata or "")
    return found


async def forget(cluster: Cluster, group: str, places: Iterable[TopicPartition]) -> None:
    """Has `group` forget how far it has read these; one that knows nothing more is gone.

    Raises:
        RequestError: its members read one of them now, or the coordinator refuses.
        ClientError: the brokers are not reached.
    """
    topics: defaultdict[str, list[OffsetDeletePartition]] = defaultdict(list)
    for topic, partition in places:
        topics[topic].append(OffsetDeletePartition(partition_index=partition))
    request = OffsetDeleteRequest(
        group_id=group,
        topics=[OffsetDeleteTopic(name=name, partitions=at) for name, at in topics.items()],
    )
    coordinator = await cluster.coordinator(group)
    answer = await cluster.ask_at(coordinator, OFFSET_DELETE, request)
    check(answer.error_code, f"offsets of {group}")
    for found in answer.topics:
        for each in found.partitions:
            place = TopicPartition(found.name, each.partition_index)
            check(each.error_code, f"offset of {group} for {place}")
