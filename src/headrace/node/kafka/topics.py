"""Metadata, CreateTopics, CreatePartitions, DeleteTopics: streams as Kafka's clients see them."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Protocol

from headrace import limits
from headrace.errors import HeadraceError, InvalidStreamError, StreamExistsError
from headrace.kernel.catalog import Change, check_name, is_internal
from headrace.node.kafka.fetch import LEADER_EPOCH
from headrace.node.kafka.pace import paced
from headrace.text import shown
from headrace.wire.kafka.admin import (
    CreatePartitionsResponse,
    CreatePartitionsResult,
    CreateTopicResult,
    CreateTopicsResponse,
    DeleteTopicResult,
    DeleteTopicsResponse,
)
from headrace.wire.kafka.codec import Kept
from headrace.wire.kafka.errors import ErrorCode
from headrace.wire.kafka.messages import (
    MetadataBroker,
    MetadataPartition,
    MetadataResponse,
    MetadataTopic,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.model import StreamDefinition
    from headrace.node.kafka.connection import KafkaConnection
    from headrace.node.kafka.door import KafkaDoor
    from headrace.settings import Value
    from headrace.wire.kafka.admin import (
        CreatePartitionsRequest,
        CreatePartitionsTopic,
        CreateTopic,
        CreateTopicsRequest,
    )
    from headrace.wire.kafka.frames import Request
    from headrace.wire.kafka.messages import MetadataRequest

NODE_ID: Final = 1
"""The broker id of a node that stands alone."""

DEFAULT: Final = -1
"""CreateTopics: the broker chooses."""


async def metadata(
    door: KafkaDoor, connection: KafkaConnection, request: Request
) -> MetadataResponse:
    """This node, and the streams asked for; may create those that are missing."""
    body: MetadataRequest = request.body
    everything = body.topics is None or (request.version == 0 and not body.topics)
    if everything:
        streams = door.broker.catalog.streams()
        topics = [_topic(definition) async for definition in paced(streams)]
    else:
        create = body.allow_auto_topic_creation and door.settings.auto_create_streams
        names = dict.fromkeys(topic.name for topic in body.topics or ())
        topics = [await _named(door, name, create=create) async for name in paced(names)]
    host, port = door.address(connection)
    return MetadataResponse(
        brokers=[MetadataBroker(node_id=NODE_ID, host=host, port=port)],
        cluster_id=door.settings.cluster_id,
        controller_id=NODE_ID,
        topics=topics,
    )


async def _named(door: KafkaDoor, name: str, *, create: bool) -> MetadataTopic:
    catalog = door.broker.catalog
    try:
        if name not in catalog:
            check_name(name)
            if create:
                with suppress(StreamExistsError):  # another connection asked for it, too
                    change = Change(partitions=door.settings.num_partitions)
                    await door.broker.create_stream(name, change)
        return _topic(catalog.get(name))
    except HeadraceError as error:
        return MetadataTopic(error_code=ErrorCode.of(error.kafka_code), name=name, partitions=[])


def _topic(definition: StreamDefinition) -> MetadataTopic:
    return MetadataTopic(
        name=definition.name,
        is_internal=is_internal(definition.name),
        partitions=_partitions(definition.partitions),
    )


@lru_cache(maxsize=limits.KAFKA_METADATA_KEPT)
def _partitions(count: int) -> Kept[MetadataPartition]:
    """So many partitions of any stream: this node leads them all."""
    return Kept(
        MetadataPartition(
            partition_index=index,
            leader_id=NODE_ID,
            leader_epoch=LEADER_EPOCH,
            replica_nodes=[NODE_ID],
            isr_nodes=[NODE_ID],
        )
        for index in range(count)
    )


async def create(door: KafkaDoor, _: KafkaConnection, request: Request) -> CreateTopicsResponse:
    """Creates each topic on its own; one that fails does not hinder the others."""
    body: CreateTopicsRequest = request.body
    times = Counter(topic.name for topic in body.topics)
    topics = []
    async for topic in paced(body.topics):
        result = CreateTopicResult(name=topic.name)
        if times[topic.name] > 1:
            result.error_code = ErrorCode.INVALID_REQUEST
            result.error_message = "the request names this topic more than once"
        else:
            await _create(door, topic, result, validate_only=body.validate_only)
        topics.append(result)
    return CreateTopicsResponse(topics=topics)


async def _create(
    door: KafkaDoor, topic: CreateTopic, result: CreateTopicResult, *, validate_only: bool
) -> None:
    if topic.replication_factor not in {1, DEFAULT}:
        result.error_code = ErrorCode.INVALID_REPLICATION_FACTOR
        result.error_message = (
            f"replication factor {topic.replication_factor} needs a cluster; one node keeps 1"
        )
        return
    if topic.assignments and not _is_local(topic):
        result.error_code = ErrorCode.INVALID_REPLICA_ASSIGNMENT
        result.error_message = f"every partition from 0 on must be assigned to [{NODE_ID}]"
        return
    partitions = len(topic.assignments) or topic.num_partitions
    if partitions == DEFAULT:
        partitions = door.settings.num_partitions
    try:
        change = Change(partitions=partitions, settings=values_of(topic.configs))
        if validate_only:
            door.broker.catalog.create(topic.name, change, door.broker.clock.wall_ms())
        else:
            await door.broker.create_stream(topic.name, change)
    except HeadraceError as error:
        result.error_code, result.error_message = ErrorCode.of(error.kafka_code), str(error)


class Config(Protocol):
    """A setting that a request names."""

    name: str
    value: str | None


def values_of(configs: Iterable[Config]) -> dict[str, Value]:
    """The settings of a request, each with its value.

    Raises:
        InvalidStreamError: one is named twice, or has none.
    """
    values: dict[str, Value] = {}
    for config in configs:
        if config.name in values:
            raise refused(f"the request names {shown(config.name)} more than once")
        if config.value is None:
            raise refused(f"setting {shown(config.name)} has no value")
        values[config.name] = config.value
    return values


def refused(message: str) -> InvalidStreamError:
    """What the protocol does not allow to be asked."""
    return InvalidStreamError(message, ErrorCode.INVALID_REQUEST)


def _is_local(topic: CreateTopic) -> bool:
    """Whether partitions placed by hand are all here, and none is left out."""
    placed = {each.partition_index: each.broker_ids for each in topic.assignments}
    return placed == {index: [NODE_ID] for index in range(len(topic.assignments))}


async def create_partitions(
    door: KafkaDoor, _: KafkaConnection, request: Request
) -> CreatePartitionsResponse:
    """Lets each topic grow on its own; what it holds stays where it is."""
    body: CreatePartitionsRequest = request.body
    times = Counter(topic.name for topic in body.topics)
    results = []
    async for topic in paced(body.topics):
        result = CreatePartitionsResult(name=topic.name)
        try:
            if times[topic.name] > 1:
                raise refused("the request names this topic more than once")
            await _grow(door, topic, validate_only=body.validate_only)
        except HeadraceError as error:
            result.error_code, result.error_message = ErrorCode.of(error.kafka_code), str(error)
        results.append(result)
    return CreatePartitionsResponse(results=results)


async def _grow(door: KafkaDoor, topic: CreatePartitionsTopic, *, validate_only: bool) -> None:
    held = door.broker.catalog.get(topic.name).partitions
    change = Change(partitions=topic.count)
    if topic.count == held:  # which changes nothing, and is refused as Kafka does
        raise InvalidStreamError(
            f"topic {shown(topic.name)} has {held} partitions already",
            ErrorCode.INVALID_PARTITIONS,
        )
    door.broker.catalog.alter(topic.name, change)
    wanted = [[NODE_ID]] * (topic.count - held)
    if topic.assignments is not None and [e.broker_ids for e in topic.assignments] != wanted:
        raise InvalidStreamError(
            f"each of the {len(wanted)} new partitions must be assigned to [{NODE_ID}]",
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        )
    if not validate_only:
        await door.broker.alter_stream(topic.name, change)


async def delete(door: KafkaDoor, _: KafkaConnection, request: Request) -> DeleteTopicsResponse:
    """Deletes each topic on its own, with all that it holds."""
    responses = []
    async for name in paced(dict.fromkeys(request.body.topic_names)):
        result = DeleteTopicResult(name=name)
        try:
            if is_internal(name):
                result.error_code = ErrorCode.INVALID_TOPIC_EXCEPTION
            else:
                await door.broker.delete_stream(name)
        except HeadraceError as error:
            result.error_code = ErrorCode.of(error.kafka_code)
        responses.append(result)
    return DeleteTopicsResponse(responses=responses)
