"""Kafka requests and responses of the data path: one class each, for all its versions.

Those about groups stand in `groups`, those of admin clients in `admin`; the same holds there.

Owns: the fields, their types, and the versions that carry them. Both directions use it, the door
as a broker and the client as a client. Must not know: how a request is answered.
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
    NullableString,
    Records,
    String,
    message,
    since,
)

NO_PRODUCER_ID = -1
"""What a producer without idempotence carries as its producer id."""


# --- ApiVersions (18) --------------------------------------------------------------------------


@message
class ApiVersionsRequest:
    """Which requests does this broker take? The only flexible one here (version 3)."""

    client_software_name: Annotated[String, since(3)] = ""
    client_software_version: Annotated[String, since(3)] = ""


@message
class ApiVersionRange:
    """The versions of one request, both ends included."""

    api_key: Int16
    min_version: Int16
    max_version: Int16


@message
class ApiVersionsResponse:
    """The requests and their versions."""

    error_code: Int16 = 0
    api_keys: list[ApiVersionRange]
    throttle_time_ms: Annotated[Int32, since(1)] = 0


# --- Metadata (3) ------------------------------------------------------------------------------


@message
class MetadataRequestTopic:
    """A topic asked for by name."""

    name: String


@message
class MetadataRequest:
    """Brokers and topics; `topics` None asks for all (in version 0 an empty list does)."""

    topics: list[MetadataRequestTopic] | None
    allow_auto_topic_creation: Annotated[Bool, since(4)] = True
    include_cluster_authorized_operations: Annotated[Bool, since(8)] = False
    include_topic_authorized_operations: Annotated[Bool, since(8)] = False


@message
class MetadataBroker:
    """Where a node is reached."""

    node_id: Int32
    host: String
    port: Int32
    rack: Annotated[NullableString, since(1)] = None


@message
class MetadataPartition:
    """Who leads a partition."""

    error_code: Int16 = 0
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Annotated[Int32, since(7)] = -1
    replica_nodes: list[Int32]
    isr_nodes: list[Int32]
    offline_replicas: Annotated[list[Int32], since(5)] = field(default_factory=list)


@message
class MetadataTopic:
    """A topic, or why there is none."""

    error_code: Int16 = 0
    name: String
    is_internal: Annotated[Bool, since(1)] = False
    partitions: list[MetadataPartition]
    topic_authorized_operations: Annotated[Int32, since(8)] = -(2**31)


@message
class MetadataResponse:
    """The brokers, and the topics asked for."""

    throttle_time_ms: Annotated[Int32, since(3)] = 0
    brokers: list[MetadataBroker]
    cluster_id: Annotated[NullableString, since(2)] = None
    controller_id: Annotated[Int32, since(1)] = -1
    topics: list[MetadataTopic]
    cluster_authorized_operations: Annotated[Int32, since(8)] = -(2**31)


# --- Produce (0) -------------------------------------------------------------------------------


@message
class ProducePartition:
    """Record batches for one partition."""

    index: Int32
    records: Records


@message
class ProduceTopic:
    """Record batches for one topic."""

    name: String
    partitions: list[ProducePartition]


@message
class ProduceRequest:
    """Append; `acks` is 0 (no response), 1 or -1 (all)."""

    transactional_id: Annotated[NullableString, since(3)] = None
    acks: Int16
    timeout_ms: Int32
    topics: list[ProduceTopic]


@message
class ProducePartitionResponse:
    """Where the batch stands, or why it does not."""

    index: Int32
    error_code: Int16 = 0
    base_offset: Int64 = -1
    log_append_time_ms: Annotated[Int64, since(2)] = -1
    log_start_offset: Annotated[Int64, since(5)] = -1


@message
class ProduceTopicResponse:
    """The answers for one topic."""

    name: String
    partitions: list[ProducePartitionResponse]


@message
class ProduceResponse:
    """The answers for all topics."""

    topics: list[ProduceTopicResponse]
    throttle_time_ms: Annotated[Int32, since(1)] = 0


# --- Fetch (1) ---------------------------------------------------------------------------------


@message
class FetchPartition:
    """Read one partition from `fetch_offset` on."""

    partition: Int32
    current_leader_epoch: Annotated[Int32, since(9)] = -1
    fetch_offset: Int64
    log_start_offset: Annotated[Int64, since(5)] = -1
    partition_max_bytes: Int32


@message
class FetchTopic:
    """Read partitions of one topic."""

    topic: String
    partitions: list[FetchPartition]


@message
class ForgottenTopic:
    """Partitions that leave a fetch session."""

    topic: String
    partitions: list[Int32]


@message
class FetchRequest:
    """Read; waits up to `max_wait_ms` for `min_bytes`."""

    replica_id: Int32 = -1
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Annotated[Int32, since(3)] = 2**31 - 1
    isolation_level: Annotated[Int8, since(4)] = 0
    session_id: Annotated[Int32, since(7)] = 0
    session_epoch: Annotated[Int32, since(7)] = -1
    topics: list[FetchTopic]
    forgotten_topics_data: Annotated[list[ForgottenTopic], since(7)] = field(default_factory=list)
    rack_id: Annotated[String, since(11)] = ""


@message
class AbortedTransaction:
    """A producer's transaction that was rolled back, from `first_offset` on."""

    producer_id: Int64
    first_offset: Int64


@message
class FetchPartitionResponse:
    """Whole record batches, or why there are none."""

    partition_index: Int32
    error_code: Int16 = 0
    high_watermark: Int64 = -1
    last_stable_offset: Annotated[Int64, since(4)] = -1
    log_start_offset: Annotated[Int64, since(5)] = -1
    aborted_transactions: Annotated[list[AbortedTransaction] | None, since(4)] = None
    preferred_read_replica: Annotated[Int32, since(11)] = -1
    records: Records = None


@message
class FetchTopicResponse:
    """What was read of one topic."""

    topic: String
    partitions: list[FetchPartitionResponse]


@message
class FetchResponse:
    """What was read; `session_id` 0 says that no session was made."""

    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Annotated[Int16, since(7)] = 0
    session_id: Annotated[Int32, since(7)] = 0
    topics: list[FetchTopicResponse]


# --- ListOffsets (2) ---------------------------------------------------------------------------

LATEST_TIMESTAMP = -1
"""ListOffsets: the offset after the last record."""
EARLIEST_TIMESTAMP = -2
"""ListOffsets: the first offset that is still kept."""


@message
class ListOffsetsPartition:
    """The first offset at or after `timestamp` (ms), or LATEST or EARLIEST."""

    partition_index: Int32
    current_leader_epoch: Annotated[Int32, since(4)] = -1
    timestamp: Int64


@message
class ListOffsetsTopic:
    """Offsets of one topic."""

    name: String
    partitions: list[ListOffsetsPartition]


@message
class ListOffsetsRequest:
    """Offsets by time."""

    replica_id: Int32 = -1
    isolation_level: Annotated[Int8, since(2)] = 0
    topics: list[ListOffsetsTopic]


@message
class ListOffsetsPartitionResponse:
    """An offset and its record's timestamp (-1 where the question was no time)."""

    partition_index: Int32
    error_code: Int16 = 0
    timestamp: Int64 = -1
    offset: Int64 = -1
    leader_epoch: Annotated[Int32, since(4)] = -1


@message
class ListOffsetsTopicResponse:
    """Offsets of one topic."""

    name: String
    partitions: list[ListOffsetsPartitionResponse]


@message
class ListOffsetsResponse:
    """Offsets by time."""

    throttle_time_ms: Annotated[Int32, since(2)] = 0
    topics: list[ListOffsetsTopicResponse]


# --- OffsetForLeaderEpoch (23) -----------------------------------------------------------------


@message
class EpochPartition:
    """Where did the records of `leader_epoch` end?"""

    partition: Int32
    current_leader_epoch: Annotated[Int32, since(2)] = -1
    leader_epoch: Int32


@message
class EpochTopic:
    """Partitions of one topic."""

    topic: String
    partitions: list[EpochPartition]


@message
class OffsetForLeaderEpochRequest:
    """Does the log still hold what a client has read? -1 as `replica_id` is a consumer."""

    replica_id: Annotated[Int32, since(3)] = -1
    topics: list[EpochTopic]


@message
class EpochPartitionResponse:
    """The last epoch that is not after the one asked for, and where it ends; -1 for none."""

    error_code: Int16 = 0
    partition: Int32
    leader_epoch: Annotated[Int32, since(1)] = -1
    end_offset: Int64 = -1


@message
class EpochTopicResponse:
    """Partitions of one topic."""

    topic: String
    partitions: list[EpochPartitionResponse]


@message
class OffsetForLeaderEpochResponse:
    """Ends of epochs."""

    throttle_time_ms: Annotated[Int32, since(2)] = 0
    topics: list[EpochTopicResponse]


# --- InitProducerId (22) -----------------------------------------------------------------------


@message
class InitProducerIdRequest:
    """A producer asks for an id, so that its repeats can be told."""

    transactional_id: NullableString = None
    transaction_timeout_ms: Int32 = 0


@message
class InitProducerIdResponse:
    """The id and epoch to write under."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = NO_PRODUCER_ID
    producer_epoch: Int16 = -1
