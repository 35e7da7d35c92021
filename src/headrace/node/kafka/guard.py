"""What a Kafka client may do: asked of every request before its handler.

Topics of a request that a client may not touch are taken out of it, answered for each partition
with TOPIC_AUTHORIZATION_FAILED whether or not there are such, and the handler sees the rest. Who
asks for all hears of those that it may describe. A request for a group that a client may not use is
refused whole; of one that names several, those are taken out and answered so. Whatever changes
streams, or deletes groups, needs the role `admin`. A user that has gone loses the
connection with the next request.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headrace.kernel.catalog import is_internal
from headrace.native import Principal
from headrace.node.kafka import acls
from headrace.node.kafka.configs import TOPIC
from headrace.node.kafka.connection import HangUp
from headrace.node.kafka.groups import GROUP
from headrace.node.kafka.pace import paced
from headrace.wire.kafka import admin, apis, members
from headrace.wire.kafka import groups as g
from headrace.wire.kafka import messages as m
from headrace.wire.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.node.access import Gate
    from headrace.node.kafka.connection import KafkaConnection
    from headrace.wire.kafka.frames import Request

DENIED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP_DENIED: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED

BEFORE_ALL: Final = frozenset({apis.API_VERSIONS, apis.SASL_HANDSHAKE, apis.SASL_AUTHENTICATE})
"""What a client may ask that nobody knows yet."""


class Caller(NamedTuple):
    """Who sends a request, and from where."""

    principal: Principal
    is_admin: bool


class _Topics(NamedTuple):
    """Where a request names streams, and how one of them is refused in the response."""

    action: str
    name: str
    refuse: Callable[[Any], Any]
    field: str = "topics"


class _Group(NamedTuple):
    """Where a request names a group, and the response that refuses it."""

    action: str
    name: str
    refuse: Callable[[Any], Any]


def caller(gate: Gate, connection: KafkaConnection, request: Request) -> Caller | None:
    """Who sends a request; None where everybody may do everything, or nobody is known yet.

    Raises:
        HangUp: somebody must be, and is not.
    """
    if gate.is_open or request.api in BEFORE_ALL:
        return None
    host, name = connection.host, connection.proof.username
    user = None if name is None else gate.get(name)
    if user is not None:
        return Caller(gate.principal(user, host), user.is_admin)
    certified = gate.certified(connection.identity, host) if name is None else None
    if certified is not None:
        return Caller(certified, is_admin=False)
    if name is None and gate.settings.anonymous:
        return Caller(Principal(host=host), is_admin=False)
    gate.refused["kafka", "anonymous"] += 1
    raise HangUp("unauthenticated", "it must authenticate first (SASL PLAIN or SCRAM)")


def is_nobody(gate: Gate, connection: KafkaConnection, request: Request) -> bool:
    """Whether a request comes from nobody that is known yet: one to log in, or to be refused."""
    if gate.is_open or connection.proof.username or connection.identity:
        return False
    return request.api in BEFORE_ALL or not gate.settings.anonymous


def refusal(gate: Gate, by: Caller, request: Request) -> object | None:
    """The response to a request that its sender may not make at all; None for any other."""
    if request.api in OF_NODE and not by.is_admin:
        return OF_NODE[request.api](request.body)
    group = _GROUPS.get(request.api)
    if group is None or getattr(request.body, "key_type", GROUP) != GROUP:
        return None
    if may_group(gate, by, request, group.action, getattr(request.body, group.name)):
        return None
    refused: object = group.refuse(request.body)
    return refused


async def narrowed(gate: Gate, by: Caller, request: Request) -> tuple[Request, list[Any]]:
    """The request without what its sender may not do, and the parts of the response for that."""
    if request.api in _OF_ADMINS and not by.is_admin:
        field, refuse = _OF_ADMINS[request.api]
        refused = [refuse(each) async for each in paced(getattr(request.body, field))]
        return request._replace(body=replace(request.body, **{field: []})), refused
    if request.api is apis.METADATA and not by.is_admin:
        request = request._replace(body=replace(request.body, allow_auto_topic_creation=False))
    if request.api in GROUP_LISTS:
        return await _narrowed_groups(gate, by, request)
    topics = _TOPICS.get(request.api)
    if topics is None or (asked := getattr(request.body, topics.field)) is None:
        return request, []
    allowed, refused = [], []
    async for topic in paced(asked):
        is_stream = getattr(topic, "resource_type", TOPIC) == TOPIC
        if not is_stream or may(gate, by, request, topics.action, getattr(topic, topics.name)):
            allowed.append(topic)
        else:
            refused.append(topics.refuse(topic))
    if not refused:
        return request, []
    return request._replace(body=replace(request.body, **{topics.field: allowed})), refused


async def widened(
    gate: Gate,
    by: Caller,
    request: Request,
    body: Any,  # noqa: ANN401
    refused: Sequence[Any],
) -> object:
    """The response to `request` with what was refused, and without what its sender may not see.

    Raises:
        HangUp: a producer that expects no answer hears of it in no other way.
    """
    if refused and body is None:
        raise HangUp("unauthorized", "it produced without acks to where it may not")
    if request.api in _LISTS:
        body.topics = [
            topic
            async for topic in paced(body.topics)
            if may(gate, by, request, "describe", topic.name)
        ]
    if request.api is apis.LIST_GROUPS:
        body.groups = [
            group
            async for group in paced(body.groups)
            if may_group(gate, by, request, "describe", group.group_id)
        ]
    if refused:
        lists = ("responses", "results", "topics", "groups")
        name = next(name for name in lists if hasattr(body, name))
        getattr(body, name).extend(refused)
    return body


async def _narrowed_groups(gate: Gate, by: Caller, request: Request) -> tuple[Request, list[Any]]:
    """As `narrowed`, of a request that names groups; who may not change streams deletes none."""
    field, action, refuse = GROUP_LISTS[request.api]
    allowed: list[str] = []
    refused: list[str] = []
    async for name in paced(dict.fromkeys(getattr(request.body, field))):
        is_allowed = by.is_admin if action is None else may_group(gate, by, request, action, name)
        (allowed if is_allowed else refused).append(name)
    body = replace(request.body, **{field: allowed})
    return request._replace(body=body), [refuse(name) for name in refused]


def may_group(gate: Gate, by: Caller, request: Request, action: str, group: str) -> bool:
    """Whether who sends a request may do this to a group."""
    return gate.rules.check_group(by.principal, request.client_id or "", action, group)[0]


def may(gate: Gate, by: Caller, request: Request, action: str, stream: str) -> bool:
    """Whether who sends a request may do this to a stream.

    The node's own hold what rules keep from others: messages of every topic, members of groups.
    """
    if is_internal(stream) and not by.is_admin:
        return False
    return gate.rules.check(by.principal, request.client_id or "", action, stream)[0]


def _produce(topic: m.ProduceTopic) -> m.ProduceTopicResponse:
    partitions = [
        m.ProducePartitionResponse(index=each.index, error_code=DENIED) for each in topic.partitions
    ]
    return m.ProduceTopicResponse(name=topic.name, partitions=partitions)


def _fetch(topic: m.FetchTopic) -> m.FetchTopicResponse:
    partitions = [
        m.FetchPartitionResponse(partition_index=each.partition, error_code=DENIED, records=b"")
        for each in topic.partitions
    ]
    return m.FetchTopicResponse(topic=topic.topic, partitions=partitions)


def _list_offsets(topic: m.ListOffsetsTopic) -> m.ListOffsetsTopicResponse:
    partitions = [
        m.ListOffsetsPartitionResponse(partition_index=each.partition_index, error_code=DENIED)
        for each in topic.partitions
    ]
    return m.ListOffsetsTopicResponse(name=topic.name, partitions=partitions)


def _epochs(topic: m.EpochTopic) -> m.EpochTopicResponse:
    partitions = [
        m.EpochPartitionResponse(partition=each.partition, error_code=DENIED)
        for each in topic.partitions
    ]
    return m.EpochTopicResponse(topic=topic.topic, partitions=partitions)


def _commit(topic: g.OffsetCommitTopic, code: ErrorCode = DENIED) -> g.OffsetCommitTopicResponse:
    partitions = [
        g.OffsetCommitPartitionResponse(partition_index=each.partition_index, error_code=code)
        for each in topic.partitions
    ]
    return g.OffsetCommitTopicResponse(name=topic.name, partitions=partitions)


def _committed(topic: g.OffsetFetchTopic, code: ErrorCode = DENIED) -> g.OffsetFetchTopicResponse:
    partitions = [
        g.OffsetFetchPartitionResponse(partition_index=index, error_code=code)
        for index in topic.partition_indexes
    ]
    return g.OffsetFetchTopicResponse(name=topic.name, partitions=partitions)


def _forgotten(topic: members.OffsetDeleteTopic) -> members.OffsetDeleteTopicResponse:
    partitions = [
        members.OffsetDeletePartitionResponse(
            partition_index=each.partition_index, error_code=DENIED
        )
        for each in topic.partitions
    ]
    return members.OffsetDeleteTopicResponse(name=topic.name, partitions=partitions)


_LISTS: Final = frozenset({apis.METADATA, apis.OFFSET_FETCH})
"""Requests that ask for all streams where they name none that is left."""

_TOPICS: Final = {
    apis.PRODUCE: _Topics("write", "name", _produce),
    apis.FETCH: _Topics("read", "topic", _fetch),
    apis.LIST_OFFSETS: _Topics("describe", "name", _list_offsets),
    apis.OFFSET_FOR_LEADER_EPOCH: _Topics("describe", "topic", _epochs),
    apis.METADATA: _Topics(
        "describe",
        "name",
        lambda topic: m.MetadataTopic(error_code=DENIED, name=topic.name, partitions=[]),
    ),
    apis.OFFSET_COMMIT: _Topics("read", "name", _commit),
    apis.OFFSET_FETCH: _Topics("describe", "name", _committed),
    apis.OFFSET_DELETE: _Topics("read", "name", _forgotten),
    apis.DESCRIBE_CONFIGS: _Topics(
        "describe",
        "resource_name",
        lambda each: admin.DescribeConfigsResult(
            resource_type=each.resource_type, resource_name=each.resource_name, error_code=DENIED
        ),
        field="resources",
    ),
}
"""What each request needs, as Kafka's `KafkaApis` asks its authorizer."""

_GROUPS: Final = {
    apis.FIND_COORDINATOR: _Group(
        "describe",
        "key",
        lambda _: g.FindCoordinatorResponse(error_code=GROUP_DENIED, node_id=-1, host="", port=-1),
    ),
    apis.OFFSET_COMMIT: _Group(
        "read",
        "group_id",
        lambda body: g.OffsetCommitResponse(
            topics=[_commit(topic, GROUP_DENIED) for topic in body.topics]
        ),
    ),
    apis.OFFSET_FETCH: _Group(
        "describe",
        "group_id",
        lambda body: g.OffsetFetchResponse(
            topics=[_committed(topic, GROUP_DENIED) for topic in body.topics or ()],
            error_code=GROUP_DENIED,
        ),
    ),
    apis.OFFSET_DELETE: _Group(
        "read",
        "group_id",
        lambda _: members.OffsetDeleteResponse(error_code=GROUP_DENIED, topics=[]),
    ),
    apis.JOIN_GROUP: _Group(
        "read",
        "group_id",
        lambda body: members.JoinGroupResponse(
            error_code=GROUP_DENIED, member_id=body.member_id, members=[]
        ),
    ),
    apis.SYNC_GROUP: _Group(
        "read", "group_id", lambda _: members.SyncGroupResponse(error_code=GROUP_DENIED)
    ),
    apis.HEARTBEAT: _Group(
        "read", "group_id", lambda _: members.HeartbeatResponse(error_code=GROUP_DENIED)
    ),
    apis.LEAVE_GROUP: _Group(
        "read", "group_id", lambda _: members.LeaveGroupResponse(error_code=GROUP_DENIED)
    ),
}

GROUP_LISTS: Final[dict[Any, tuple[str, str | None, Callable[[str], Any]]]] = {
    apis.DESCRIBE_GROUPS: (
        "groups",
        "describe",
        lambda name: members.DescribedGroup(group_id=name, error_code=GROUP_DENIED, members=[]),
    ),
    apis.DELETE_GROUPS: (
        "groups_names",
        None,
        lambda name: members.DeletedGroup(group_id=name, error_code=GROUP_DENIED),
    ),
}
"""Where a request names several groups: the field, what it needs, how one is refused."""

_OF_ADMINS: Final[dict[Any, tuple[str, Callable[[Any], Any]]]] = {
    apis.CREATE_TOPICS: (
        "topics",
        lambda each: admin.CreateTopicResult(name=each.name, error_code=DENIED),
    ),
    apis.CREATE_PARTITIONS: (
        "topics",
        lambda each: admin.CreatePartitionsResult(name=each.name, error_code=DENIED),
    ),
    apis.DELETE_TOPICS: (
        "topic_names",
        lambda name: admin.DeleteTopicResult(name=name, error_code=DENIED),
    ),
    apis.DELETE_RECORDS: (
        "topics",
        lambda topic: admin.DeleteRecordsTopicResult(
            name=topic.name,
            partitions=[
                admin.DeleteRecordsPartitionResult(
                    partition_index=each.partition_index, error_code=DENIED
                )
                for each in topic.partitions
            ],
        ),
    ),
    **dict.fromkeys(
        (apis.ALTER_CONFIGS, apis.INCREMENTAL_ALTER_CONFIGS),
        (
            "resources",
            lambda each: admin.AlterConfigsResult(
                resource_type=each.resource_type,
                resource_name=each.resource_name,
                error_code=DENIED,
            ),
        ),
    ),
}
"""Requests that change streams: what they name, and how that is refused."""

OF_NODE: Final[dict[Any, Callable[[Any], object]]] = {
    apis.DESCRIBE_ACLS: lambda body: acls.describe_refused(body, acls.DENIED),
    apis.CREATE_ACLS: lambda body: acls.create_refused(body, acls.DENIED),
    apis.DELETE_ACLS: lambda body: acls.delete_refused(body, acls.DENIED),
    # With nothing in it, which these versions take for CLUSTER_AUTHORIZATION_FAILED.
    apis.DESCRIBE_LOG_DIRS: lambda _: admin.DescribeLogDirsResponse(results=[]),
}
"""Requests about the node itself, for admins alone, and how each is refused whole."""
