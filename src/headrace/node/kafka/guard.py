"""What a Kafka client may do: asked of every request before its handler.

Topics of a request that a client may not touch are taken out of it, answered for each partition
with TOPIC_AUTHORIZATION_FAILED, and the handler sees the rest. Whatever changes streams needs the
role `admin`. A user that has gone loses the connection with the next request.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headrace.native import Principal
from headrace.node.kafka.connection import HangUp
from headrace.wire.kafka import admin, apis
from headrace.wire.kafka import groups as g
from headrace.wire.kafka import messages as m
from headrace.wire.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.node.access import Gate
    from headrace.node.kafka.connection import KafkaConnection
    from headrace.wire.kafka.frames import Request

DENIED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED

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


def narrowed(gate: Gate, by: Caller, request: Request) -> tuple[Request, list[Any]]:
    """The request without what its sender may not do, and the parts of the response for that."""
    if request.api in _OF_ADMINS and not by.is_admin:
        field, refuse = _OF_ADMINS[request.api]
        refused = [refuse(each) for each in getattr(request.body, field)]
        return request._replace(body=replace(request.body, **{field: []})), refused
    if request.api is apis.METADATA and not by.is_admin:
        request = request._replace(body=replace(request.body, allow_auto_topic_creation=False))
    topics = _TOPICS.get(request.api)
    asked = getattr(request.body, "topics", None)
    if topics is None or asked is None:
        return request, []

    def may(topic: object) -> bool:
        stream = getattr(topic, topics.name)
        return gate.rules.check(by.principal, request.client_id or "", topics.action, stream)[0]

    allowed, refused = [], []
    for topic in asked:
        if may(topic):
            allowed.append(topic)
        else:
            refused.append(topics.refuse(topic))
    return request._replace(body=replace(request.body, topics=allowed)), refused


def widened(body: Any, refused: Sequence[Any]) -> object:  # noqa: ANN401
    """The response with what was refused.

    Raises:
        HangUp: a producer that expects no answer hears of it in no other way.
    """
    if not refused:
        return body
    if body is None:
        raise HangUp("unauthorized", "it produced without acks to where it may not")
    name = "responses" if hasattr(body, "responses") else "topics"
    getattr(body, name).extend(refused)
    return body


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


def _commit(topic: g.OffsetCommitTopic) -> g.OffsetCommitTopicResponse:
    partitions = [
        g.OffsetCommitPartitionResponse(partition_index=each.partition_index, error_code=DENIED)
        for each in topic.partitions
    ]
    return g.OffsetCommitTopicResponse(name=topic.name, partitions=partitions)


_TOPICS: Final = {
    apis.PRODUCE: _Topics("write", "name", _produce),
    apis.FETCH: _Topics("read", "topic", _fetch),
    apis.LIST_OFFSETS: _Topics("read", "name", _list_offsets),
    apis.OFFSET_COMMIT: _Topics("read", "name", _commit),
}

_OF_ADMINS: Final[dict[Any, tuple[str, Callable[[Any], Any]]]] = {
    apis.CREATE_TOPICS: (
        "topics",
        lambda each: admin.CreateTopicResult(name=each.name, error_code=DENIED),
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
