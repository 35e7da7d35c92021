"""`headrace.Admin`: streams, their settings and records, groups and their offsets.

Owns: what an operator's program asks, one question a method. Must not know how a broker answers.
Works against headrace and against Apache Kafka 2.4 and later.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from headrace.client.assignors import assigned
from headrace.client.cluster import Cluster
from headrace.client.config import AdminConfig
from headrace.client.errors import check
from headrace.client.offsets import commit, committed, forget, offsets_by_time
from headrace.client.records import OffsetAndMetadata, TopicPartition, kept_offsets, place_of
from headrace.errors import MalformedError
from headrace.wire.kafka import admin as a
from headrace.wire.kafka import apis
from headrace.wire.kafka import members as m
from headrace.wire.kafka.errors import ErrorCode
from headrace.wire.kafka.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headrace.model import Address
    from headrace.wire.kafka.apis import Api
    from headrace.wire.kafka.messages import MetadataTopic

CHOICE_OF_BROKER: Final = -1
"""Partitions or replicas of a stream: as many as the brokers make by themselves."""

TOPIC: Final = 2
"""Whose settings: a stream's (`ConfigResource.Type`)."""

_KEPT: Final = (
    "nothing is deleted of a stream that is compacted, or a queue, which owes what is there; "
    "headrace queues purge lets go of that"
)
"""What the answer to a deletion of records has no place for."""

SET: Final = 0
DELETE: Final = 1
"""What is done with a setting (`AlterConfigOp.OpType`)."""


class PartitionDescription(NamedTuple):
    """One partition: who leads it (None: nobody now), who keeps it, who is up to date."""

    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class TopicDescription(NamedTuple):
    """A stream and its partitions."""

    topic: str
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]


class Config(NamedTuple):
    """One setting of a stream: its value, whether it was set there, and whether it can be."""

    value: str | None
    is_default: bool
    is_read_only: bool


class MemberDescription(NamedTuple):
    """A member of a group, and what it reads."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]


class GroupDescription(NamedTuple):
    """A group: `Empty`, `PreparingRebalance`, `CompletingRebalance`, `Stable` or `Dead`."""

    group: str
    state: str
    protocol: str
    members: tuple[MemberDescription, ...]


class Admin:
    """Looks at and changes what brokers keep.

    Use it in `async with`::

        async with headrace.Admin("127.0.0.1:9092") as admin:
            await admin.create_topic("readings", partitions=12)

    Every call retries what a retry can mend until `default_api_timeout_ms`, and raises ClientError
    with `.code` and `.retriable` where a broker refuses.

    An argument that its field of the protocol cannot hold raises ValueError, and nothing is sent.

    Args:
        bootstrap_servers: `HOST:PORT`, separated by commas; one that lives is enough.
        **settings: fields of `AdminConfig`.

    Raises:
        ConfigError: a setting is unknown or out of range.
        ValueError: `bootstrap_servers` is malformed.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] | None = None,
        **settings: Any,  # noqa: ANN401 - their types are those of the configuration
    ) -> None:
        self.config = config = AdminConfig.of(bootstrap_servers, settings)
        self._cluster = Cluster(config)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Reaches the cluster.

        Raises:
            ClientError: no broker is reached within `default_api_timeout_ms`, or one refuses.
        """
        try:
            await self._cluster.persist("metadata", lambda: self._cluster.topics([], create=False))
        except BaseException:
            await self._cluster.close()
            raise

    async def close(self) -> None:
        """Ends every connection."""
        await self._cluster.close()

    # --- streams --------------------------------------------------------------------------------

    async def topics(self, *, internal: bool = False) -> dict[str, int]:
        """Streams and their numbers of partitions, by name; internal ones on demand."""

        async def attempt() -> dict[str, int]:
            found = await self._cluster.topics(None, create=False)
            return {
                topic.name: len(topic.partitions)
                for topic in sorted(found, key=lambda topic: topic.name)
                if internal or not topic.is_internal
            }

        return await self._cluster.persist("topics", attempt)

    async def describe_topic(self, topic: str) -> TopicDescription:
        """One stream.

        Raises:
            UnknownStreamError: there is no such stream.
        """

        async def attempt() -> TopicDescription:
            (found,) = await self._cluster.topics([topic], create=False)
            check(found.error_code, f"stream {topic}")
            return _described(found)

        return await self._cluster.persist(f"stream {topic}", attempt)

    async def create_topic(
        self,
        topic: str,
        *,
        partitions: int = CHOICE_OF_BROKER,
        replication_factor: int = CHOICE_OF_BROKER,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Makes a stream; on return it is there.

        Args:
            topic: its name.
            partitions: 1 or more; -1 leaves it to the broker.
            replication_factor: the same.
            configs: settings by Kafka's names, such as `{"retention.ms": "86400000"}`.
            validate_only: only says whether it would work.

        Raises:
            RequestError: such as TOPIC_ALREADY_EXISTS.
            TypeError: an argument is of another type; ValueError: it does not fit a request.
        """
        made = a.CreateTopic(
            name=topic,
            num_partitions=partitions,
            replication_factor=replication_factor,
            configs=[a.CreateTopicConfig(name=n, value=v) for n, v in (configs or {}).items()],
        )
        request = a.CreateTopicsRequest(
            topics=[made], timeout_ms=self._timeout_ms, validate_only=validate_only
        )
        await self._change(f"create {topic}", apis.CREATE_TOPICS, request, "topics")

    async def delete_topic(self, topic: str) -> None:
        """Removes a stream and all that it holds.

        Raises:
            UnknownStreamError: there is no such stream.
        """
        request = a.DeleteTopicsRequest(topic_names=[topic], timeout_ms=self._timeout_ms)
        await self._change(f"delete {topic}", apis.DELETE_TOPICS, request, "responses")

    async def create_partitions(self, topic: str, total: int) -> None:
        """Lets a stream grow to `total` partitions; records stay where they are.

        Raises:
            RequestError: INVALID_PARTITIONS where it has as many or more.
        """
        asked = a.CreatePartitionsTopic(name=topic, count=total)
        request = a.CreatePartitionsRequest(topics=[asked], timeout_ms=self._timeout_ms)
        await self._change(f"partitions of {topic}", apis.CREATE_PARTITIONS, request, "results")

    async def configs(self, topic: str) -> dict[str, Config]:
        """The settings of a stream, by Kafka's names.

        Raises:
            UnknownStreamError: there is no such stream.
        """
        asked = a.DescribeConfigsResource(resource_type=TOPIC, resource_name=topic)
        request = a.DescribeConfigsRequest(resources=[asked])

        async def attempt() -> dict[str, Config]:
            answer = await self._cluster.ask(apis.DESCRIBE_CONFIGS, request)
            (result,) = answer.results
            check(result.error_code, f"configs of {topic}", result.error_message)
            return {
                each.name: Config(
                    each.value,
                    each.is_default or each.config_source not in {-1, SOURCE_TOPIC},
                    each.read_only,
                )
                for each in result.configs
            }

        return await self._cluster.persist(f"configs of {topic}", attempt)

    async def alter_configs(self, topic: str, changes: Mapping[str, str | None]) -> None:
        """Changes some settings of a stream; None takes one back to its default.

        Raises:
            RequestError: such as INVALID_CONFIG; nothing is changed then.
        """
        resource = a.IncrementalResource(
            resource_type=TOPIC,
            resource_name=topic,
            configs=[
                a.IncrementalConfig(
                    name=name, config_operation=DELETE if value is None else SET, value=value
                )
                for name, value in changes.items()
            ],
        )
        request = a.IncrementalAlterConfigsRequest(resources=[resource])
        await self._change(
            f"configs of {topic}", apis.INCREMENTAL_ALTER_CONFIGS, request, "responses"
        )

    async def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Deletes what is before an offset of each partition; -1 deletes all.

        Returns:
            Where each partition begins now.

        Raises:
            RequestError: such as OFFSET_OUT_OF_RANGE, or POLICY_VIOLATION of a stream that is
                compacted or a queue (`headrace queues purge` empties one); other partitions may
                have been cut.
        """

        async def attempt() -> dict[TopicPartition, int]:
            by_leader: defaultdict[Address, list[TopicPartition]] = defaultdict(list)
            for place in before:
                by_leader[await self._cluster.leader(*place)].append(place)
            begins = {}
            for leader, places in by_leader.items():
                request = self._deletion({place: before[place] for place in places})
                answer = await self._cluster.ask_at(leader, apis.DELETE_RECORDS, request)
                for topic in answer.topics:
                    for each in topic.partitions:
                        place = TopicPartition(topic.name, each.partition_index)
                        why = _KEPT if each.error_code == ErrorCode.POLICY_VIOLATION else None
                        check(each.error_code, f"records of {place}", why)
                        begins[place] = each.low_watermark
            return begins

        return await self._cluster.persist("delete records", attempt)

    def _deletion(self, before: Mapping[TopicPartition, int]) -> a.DeleteRecordsRequest:
        topics: defaultdict[str, list[a.DeleteRecordsPartition]] = defaultdict(list)
        for (topic, partition), offset in before.items():
            part = a.DeleteRecordsPartition(partition_index=partition, offset=offset)
            topics[topic].append(part)
        asked = [a.DeleteRecordsTopic(name=name, partitions=each) for name, each in topics.items()]
        return a.DeleteRecordsRequest(topics=asked, timeout_ms=self._timeout_ms)

    # --- groups ---------------------------------------------------------------------------------

    async def groups(self) -> dict[str, str]:
        """Groups and their protocol types; empty where one has only offsets."""

        async def attempt() -> dict[str, str]:
            found: dict[str, str] = {}
            for address in await self._cluster.all_brokers():
                answer = await self._cluster.ask_at(
                    address, apis.LIST_GROUPS, m.ListGroupsRequest()
                )
                check(answer.error_code, "groups")
                found.update((each.group_id, each.protocol_type) for each in answer.groups)
            return dict(sorted(found.items()))

        return await self._cluster.persist("groups", attempt)

    async def describe_group(self, group: str) -> GroupDescription:
        """A group and its members; one that is not there is `Dead`."""

        async def attempt() -> GroupDescription:
            request = m.DescribeGroupsRequest(groups=[group])
            answer = await self._ask_coordinator(group, apis.DESCRIBE_GROUPS, request)
            (found,) = answer.groups
            check(found.error_code, f"group {group}")
            members = tuple(_member(each) for each in found.members)
            return GroupDescription(group, found.group_state, found.protocol_data, members)

        return await self._cluster.persist(f"group {group}", attempt)

    async def delete_group(self, group: str) -> None:
        """Forgets a group without members, and what it has committed.

        Raises:
            RequestError: NON_EMPTY_GROUP or GROUP_ID_NOT_FOUND.
        """

        async def attempt() -> None:
            request = m.DeleteGroupsRequest(groups_names=[group])
            answer = await self._ask_coordinator(group, apis.DELETE_GROUPS, request)
            check(answer.results[0].error_code, f"delete group {group}")

        await self._cluster.persist(f"delete group {group}", attempt)

    async def group_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """How far a group has read: of these, or of all that it has committed."""
        places = None if partitions is None else [place_of(each) for each in partitions]
        return await self._cluster.persist(
            f"offsets of {group}", lambda: committed(self._cluster, group, places)
        )

    async def alter_group_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int | OffsetAndMetadata]
    ) -> None:
        """Has a group without members go on elsewhere.

        Raises:
            RequestError: it has members, or a partition is unknown.
            ValueError: an offset is negative.
        """
        wanted = kept_offsets(offsets)
        await self._cluster.persist(
            f"offsets of {group}", lambda: commit(self._cluster, group, wanted)
        )

    async def reset_group_offsets(
        self, group: str, topics: str | Iterable[str | TopicPartition], to: str | int
    ) -> dict[TopicPartition, int]:
        """Has a group without members go on at the beginning, the end, or a time of streams.

        Args:
            group: its name.
            topics: streams, whose partitions are all reset, or some of their partitions.
            to: `earliest`, `latest`, or milliseconds since 1970: the first record from then on, the
                end where there is none.

        Returns:
            Where it goes on.

        Raises:
            ValueError: `to` is something else.
            RequestError: the group has members, or a stream is unknown.
        """
        named = {"earliest": EARLIEST_TIMESTAMP, "latest": LATEST_TIMESTAMP}
        time = named.get(to) if isinstance(to, str) else to
        if type(time) is not int or (time < 0 and time is to):
            raise ValueError(f"to must be earliest, latest or a time in ms; got {to!r}")
        places: list[TopicPartition] = []
        for topic in [topics] if isinstance(topics, str) else topics:
            if isinstance(topic, str):
                parts = (await self.describe_topic(topic)).partitions
                places += [TopicPartition(topic, each.partition) for each in parts]
            else:
                places.append(place_of(topic))

        async def attempt() -> dict[TopicPartition, int]:
            found = await offsets_by_time(self._cluster, dict.fromkeys(places, time))
            offsets = {place: each.offset for place, each in found.items()}
            late = [place for place, offset in offsets.items() if offset < 0]
            if late:
                ends = await offsets_by_time(self._cluster, dict.fromkeys(late, LATEST_TIMESTAMP))
                offsets.update((place, each.offset) for place, each in ends.items())
            return offsets

        offsets = await self._cluster.persist(f"offsets of {group}", attempt)
        await self.alter_group_offsets(group, offsets)
        return offsets

    async def delete_group_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Has a group forget how far it has read these.

        Raises:
            RequestError: GROUP_SUBSCRIBED_TO_TOPIC where its members read them now.
        """
        places = [place_of(each) for each in partitions]
        await self._cluster.persist(
            f"offsets of {group}", lambda: forget(self._cluster, group, places)
        )

    # --- asking ---------------------------------------------------------------------------------

    @property
    def _timeout_ms(self) -> int:
        return self.config.request_timeout_ms

    async def _change(self, what: str, api: Api[Any, Any], request: object, field: str) -> None:
        """Asks the controller for one change."""

        async def attempt() -> None:
            controller = await self._cluster.find_controller()
            answer = await self._cluster.ask_at(controller, api, request)
            (result,) = getattr(answer, field)
            check(result.error_code, what, getattr(result, "error_message", None))

        await self._cluster.persist(what, attempt)

    async def _ask_coordinator(self, group: str, api: Api[Any, Any], request: object) -> Any:  # noqa: ANN401
        coordinator = await self._cluster.coordinator(group)
        return await self._cluster.ask_at(coordinator, api, request)


SOURCE_TOPIC: Final = 1
"""A value that was set for the stream itself (`DescribeConfigsResponse.ConfigSource`)."""


def _described(topic: MetadataTopic) -> TopicDescription:
    parts = sorted(topic.partitions, key=lambda each: each.partition_index)
    return TopicDescription(
        topic.name,
        topic.is_internal,
        tuple(
            PartitionDescription(
                each.partition_index,
                each.leader_id if each.leader_id >= 0 else None,
                tuple(each.replica_nodes),
                tuple(each.isr_nodes),
            )
            for each in parts
        ),
    )


def _member(each: m.DescribedMember) -> MemberDescription:
    try:
        places = tuple(sorted(assigned(each.member_assignment)))
    except MalformedError:  # of members that are no consumers
        places = ()
    return MemberDescription(
        each.member_id,
        each.group_instance_id,
        each.client_id,
        each.client_host.removeprefix("/"),
        places,
    )
