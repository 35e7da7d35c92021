"""Kafka requests about consumer groups: who keeps their offsets, and which those are.

Owns and must not know what `headrace.wire.kafka.messages` does, of which this is a part.
Source: the message definitions of the Kafka protocol guide.
"""

from typing import Annotated

from headrace.wire.kafka.codec import (
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

# --- FindCoordinator (10) ----------------------------------------------------------------------


@message
class FindCoordinatorRequest:
    """Who keeps this group (key type 0) or transactional id (1)?"""

    key: String
    key_type: Annotated[Int8, since(1)] = 0


@message
class FindCoordinatorResponse:
    """The node that keeps it."""

    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Int16 = 0
    error_message: Annotated[Message, since(1)] = None
    node_id: Int32 = -1
    host: String = ""
    port: Int32 = -1


# --- OffsetCommit (8) --------------------------------------------------------------------------


@message
class OffsetCommitPartition:
    """How far a group has read one partition."""

    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Annotated[Int32, since(6)] = -1
    commit_timestamp: Annotated[Int64, between(1, 1)] = -1
    committed_metadata: NullableString = None


@message
class OffsetCommitTopic:
    """How far a group has read one topic."""

    name: String
    partitions: list[OffsetCommitPartition]


@message
class OffsetCommitRequest:
    """Keep how far a group has read; generation -1 is a group without members."""

    group_id: String
    generation_id: Annotated[Int32, since(1)] = -1
    member_id: Annotated[String, since(1)] = ""
    group_instance_id: Annotated[NullableString, since(7)] = None
    retention_time_ms: Annotated[Int64, between(2, 4)] = -1
    topics: list[OffsetCommitTopic]


@message
class OffsetCommitPartitionResponse:
    """Kept, or why not."""

    partition_index: Int32
    error_code: Int16 = 0


@message
class OffsetCommitTopicResponse:
    """The answers for one topic."""

    name: String
    partitions: list[OffsetCommitPartitionResponse]


@message
class OffsetCommitResponse:
    """The answers for all topics."""

    throttle_time_ms: Annotated[Int32, since(3)] = 0
    topics: list[OffsetCommitTopicResponse]


# --- OffsetFetch (9) ---------------------------------------------------------------------------


@message
class OffsetFetchTopic:
    """Partitions of one topic."""

    name: String
    partition_indexes: list[Int32]


@message
class OffsetFetchRequest:
    """How far has a group read? `topics` None asks for all (from version 2 on)."""

    group_id: String
    topics: list[OffsetFetchTopic] | None


@message
class OffsetFetchPartitionResponse:
    """How far a group has read one partition; -1 where nothing was committed."""

    partition_index: Int32
    committed_offset: Int64 = -1
    committed_leader_epoch: Annotated[Int32, since(5)] = -1
    metadata: NullableString = ""
    error_code: Int16 = 0


@message
class OffsetFetchTopicResponse:
    """How far a group has read one topic."""

    name: String
    partitions: list[OffsetFetchPartitionResponse]


@message
class OffsetFetchResponse:
    """How far a group has read."""

    throttle_time_ms: Annotated[Int32, since(3)] = 0
    topics: list[OffsetFetchTopicResponse]
    error_code: Annotated[Int16, since(2)] = 0


# --- what the internal stream of committed offsets holds -----------------------------------------


OFFSET_KEY_VERSION = 1
"""Tells keys of committed offsets (1) from those of groups' members (2)."""


@message
class OffsetKey:
    """Key of a committed offset's record, in Kafka's own layout."""

    version: Int16 = OFFSET_KEY_VERSION
    group: String
    topic: String
    partition: Int32


@message
class OffsetValue:
    """Value of a committed offset's record, in Kafka's own layout (version 3)."""

    version: Int16 = 3
    offset: Int64
    leader_epoch: Int32 = -1
    metadata: String = ""
    commit_timestamp: Int64
