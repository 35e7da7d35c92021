"""DescribeCluster and DescribeLogDirs: the node itself, and what its disk holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import UnknownStreamError
from headrace.node.kafka.topics import NODE_ID
from headrace.wire.kafka.admin import (
    BROKERS,
    ClusterBroker,
    DescribeClusterResponse,
    DescribeLogDirsResponse,
    LogDir,
    LogDirPartition,
    LogDirTopic,
)
from headrace.wire.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.node.kafka.connection import KafkaConnection
    from headrace.node.kafka.door import KafkaDoor
    from headrace.wire.kafka.admin import DescribeClusterRequest, DescribeLogDirsRequest
    from headrace.wire.kafka.frames import Request


async def describe(
    door: KafkaDoor, connection: KafkaConnection, request: Request
) -> DescribeClusterResponse:
    """This node, where the client reached it."""
    body: DescribeClusterRequest = request.body
    host, port = door.address(connection)
    answer = DescribeClusterResponse(
        endpoint_type=body.endpoint_type,
        cluster_id=door.settings.cluster_id,
        controller_id=NODE_ID,
        brokers=[ClusterBroker(broker_id=NODE_ID, host=host, port=port)],
    )
    if body.endpoint_type != BROKERS:
        answer.error_code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        answer.error_message = "there are no controllers beside the brokers; ask for brokers"
        answer.brokers = []
    return answer


async def log_dirs(
    door: KafkaDoor, _: KafkaConnection, request: Request
) -> DescribeLogDirsResponse:
    """The data folder, with the bytes of partitions; what is not there is left out, as in Kafka."""
    body: DescribeLogDirsRequest = request.body
    broker = door.broker
    asked: dict[str, Iterable[int]]
    if body.topics is None:
        asked = {each.name: range(each.partitions) for each in broker.catalog.streams()}
    else:
        asked = {each.topic: each.partitions for each in body.topics}
    topics = []
    for name, indexes in asked.items():
        partitions = []
        for index in dict.fromkeys(indexes):
            try:
                size_bytes = broker.partition(name, index).size_bytes
            except UnknownStreamError:
                continue
            partitions.append(LogDirPartition(partition_index=index, partition_size=size_bytes))
        if partitions:
            topics.append(LogDirTopic(name=name, partitions=partitions))
    return DescribeLogDirsResponse(results=[LogDir(log_dir=door.settings.log_dir, topics=topics)])
