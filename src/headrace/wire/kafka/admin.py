"""Requests of Kafka's admin clients: topics, their settings, records, the node and its disk.

Owns and must not know what `headrace.wire.kafka.messages` does, of which this is a part.
Source: the message definitions of the Kafka protocol guide.
"""

from dataclasses import field
from typing import Annotated

from headrace.wire.kafka.codec import (
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    NullableString,
    String,
    between,
    message,
    since,
)

# --- CreateTopics (19) -------------------------------------------------------------------------


@message
class CreateTopicAssignment:
    """A partition placed by hand."""

    partition_index: Int32
    broker_ids: list[Int32]


@message
class CreateTopicConfig:
    """One setting of the new topic."""

    name: String
    value: NullableString


@message
class CreateTopic:
    """A topic to create; -1 partitions or replicas leave the choice to the broker."""

    name: String
    num_partitions: Int32 = -1
    replication_factor: Int16 = -1
    assignments: list[CreateTopicAssignment] = field(default_factory=list)
    configs: list[CreateTopicConfig] = field(default_factory=list)


@message
class CreateTopicsRequest:
    """Create topics, or only say whether it would work."""

    topics: list[CreateTopic]
    timeout_ms: Int32
    validate_only: Annotated[Bool, since(1)] = False


@message
class CreateTopicResult:
    """Created, or why not."""

    name: String
    error_code: Int16 = 0
    error_message: Annotated[Message, since(1)] = None


@message
class CreateTopicsResponse:
    """The answer for each topic."""

    throttle_time_ms: Annotated[Int32, since(2)] = 0
    topics: list[CreateTopicResult]


# --- DeleteTopics (20) -------------------------------------------------------------------------


@message
class DeleteTopicsRequest:
    """Delete topics and all they hold."""

    topic_names: list[String]
    timeout_ms: Int32


@message
class DeleteTopicResult:
    """Deleted, or why not."""

    name: String
    error_code: Int16 = 0


@message
class DeleteTopicsResponse:
    """The answer for each topic."""

    throttle_time_ms: Annotated[Int32, since(1)] = 0
    responses: list[DeleteTopicResult]


# --- DescribeConfigs (32) ----------------------------------------------------------------------


@message
class DescribeConfigsResource:
    """Whose settings; `configuration_keys` None asks for all."""

    resource_type: Int8
    resource_name: String
    configuration_keys: list[String] | None = None


@message
class DescribeConfigsRequest:
    """What is set, and where each value comes from."""

    resources: list[DescribeConfigsResource]
    include_synonyms: Annotated[Bool, since(1)] = False
    include_documentation: Annotated[Bool, since(3)] = False


@message
class ConfigSynonym:
    """One of the places that a value may come from, the first wins."""

    name: String
    value: NullableString
    source: Int8


@message
class ConfigEntry:
    """One setting."""

    name: String
    value: NullableString
    read_only: Bool = False
    is_default: Annotated[Bool, between(0, 0)] = False
    config_source: Annotated[Int8, since(1)] = -1
    is_sensitive: Bool = False
    synonyms: Annotated[list[ConfigSynonym], since(1)] = field(default_factory=list)
    config_type: Annotated[Int8, since(3)] = 0
    documentation: Annotated[NullableString, since(3)] = None


@message
class DescribeConfigsResult:
    """The settings of one resource, or why there are none."""

    error_code: Int16 = 0
    error_message: Message = None
    resource_type: Int8
    resource_name: String
    configs: list[ConfigEntry] = field(default_factory=list)


@message
class DescribeConfigsResponse:
    """The settings of all resources."""

    throttle_time_ms: Int32 = 0
    results: list[DescribeConfigsResult]


# --- AlterConfigs (33) and IncrementalAlterConfigs (44) ------------------------------------------


@message
class AlterableConfig:
    """One setting; None takes it back to its default."""

    name: String
    value: NullableString


@message
class AlterConfigsResource:
    """All that is set from now on; whatever is not named goes back to its default."""

    resource_type: Int8
    resource_name: String
    configs: list[AlterableConfig]


@message
class AlterConfigsRequest:
    """Replace the settings of each resource, or only say whether it would work."""

    resources: list[AlterConfigsResource]
    validate_only: Bool = False


@message
class AlterConfigsResult:
    """Changed, or why not."""

    error_code: Int16 = 0
    error_message: Message = None
    resource_type: Int8
    resource_name: String


@message
class AlterConfigsResponse:
    """The answer for each resource."""

    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResult]


@message
class IncrementalConfig:
    """One change: set (0), delete (1), append to a list (2), subtract from it (3)."""

    name: String
    config_operation: Int8
    value: NullableString


@message
class IncrementalResource:
    """The changes of one resource; what is not named stays."""

    resource_type: Int8
    resource_name: String
    configs: list[IncrementalConfig]


@message
class IncrementalAlterConfigsRequest:
    """Change some settings of each resource, or only say whether it would work."""

    resources: list[IncrementalResource]
    validate_only: Bool = False


# --- DeleteRecords (21) ------------------------------------------------------------------------


@message
class DeleteRecordsPartition:
    """Delete what is before `offset`; -1 deletes all."""

    partition_index: Int32
    offset: Int64


@message
class DeleteRecordsTopic:
    """Partitions of one topic."""

    name: String
    partitions: list[DeleteRecordsPartition]


@message
class DeleteRecordsRequest:
    """Let partitions begin later."""

    topics: list[DeleteRecordsTopic]
    timeout_ms: Int32


@message
class DeleteRecordsPartitionResult:
    """Where the partition begins now, or why it could not be done."""

    partition_index: Int32
    low_watermark: Int64 = -1
    error_code: Int16 = 0


@message
class DeleteRecordsTopicResult:
    """Partitions of one topic."""

    name: String
    partitions: list[DeleteRecordsPartitionResult]


@message
class DeleteRecordsResponse:
    """The answer for each partition."""

    throttle_time_ms: Int32 = 0
    topics: list[DeleteRecordsTopicResult]


# --- CreatePartitions (37) ---------------------------------------------------------------------


@message
class CreatePartitionsAssignment:
    """One new partition placed by hand."""

    broker_ids: list[Int32]


@message
class CreatePartitionsTopic:
    """A topic that gets more partitions: `count` is how many it has in the end."""

    name: String
    count: Int32
    assignments: list[CreatePartitionsAssignment] | None = None


@message
class CreatePartitionsRequest:
    """Let topics grow, or only say whether it would work."""

    topics: list[CreatePartitionsTopic]
    timeout_ms: Int32
    validate_only: Bool = False


@message
class CreatePartitionsResult:
    """Grown, or why not."""

    name: String
    error_code: Int16 = 0
    error_message: Message = None


@message
class CreatePartitionsResponse:
    """The answer for each topic."""

    throttle_time_ms: Int32 = 0
    results: list[CreatePartitionsResult]


# --- DescribeLogDirs (35) ----------------------------------------------------------------------


@message
class LogDirsTopic:
    """Partitions of one topic."""

    topic: String
    partitions: list[Int32]


@message
class DescribeLogDirsRequest:
    """How much do partitions hold? `topics` None asks for all."""

    topics: list[LogDirsTopic] | None


@message
class LogDirPartition:
    """What a partition has on the disk."""

    partition_index: Int32
    partition_size: Int64
    offset_lag: Int64 = 0
    is_future_key: Bool = False


@message
class LogDirTopic:
    """Partitions of one topic."""

    name: String
    partitions: list[LogDirPartition]


@message
class LogDir:
    """One folder of a node."""

    error_code: Int16 = 0
    log_dir: String
    topics: list[LogDirTopic]


@message
class DescribeLogDirsResponse:
    """The folders of the node; none where the client may not ask."""

    throttle_time_ms: Int32 = 0
    results: list[LogDir]


# --- DescribeCluster (60) ----------------------------------------------------------------------

BROKERS = 1
"""DescribeCluster: nodes that serve clients, and not those that only agree on metadata."""


@message
class DescribeClusterRequest:
    """Which nodes are there? Has no version without tagged fields."""

    include_cluster_authorized_operations: Bool = False
    endpoint_type: Annotated[Int8, since(1)] = BROKERS


@message
class ClusterBroker:
    """Where a node is reached."""

    broker_id: Int32
    host: String
    port: Int32
    rack: NullableString = None


@message
class DescribeClusterResponse:
    """The nodes, and which of them manages the others."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Message = None
    endpoint_type: Annotated[Int8, since(1)] = BROKERS
    cluster_id: String
    controller_id: Int32 = -1
    brokers: list[ClusterBroker]
    cluster_authorized_operations: Int32 = -(2**31)
