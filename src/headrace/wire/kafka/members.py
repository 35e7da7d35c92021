"""Kafka requests about the members of consumer groups, and what members tell each other.

Owns and must not know what `headrace.wire.kafka.messages` does, of which this is a part.
Source: the message definitions of the Kafka protocol guide.
"""

from dataclasses import field
from typing import Annotated, Final, TypeVar

from headrace.errors import MalformedError
from headrace.wire.kafka.codec import (
    Bool,
    Bytes,
    Int16,
    Int32,
    Int64,
    NullableString,
    Records,
    String,
    between,
    decode,
    message,
    since,
)

T = TypeVar("T")

# --- JoinGroup (11) ----------------------------------------------------------------------------


@message
class JoinGroupProtocol:
    """A way to share partitions out that a member knows, and what it says of itself there."""

    name: String
    metadata: Bytes


@message
class JoinGroupRequest:
    """Become a member, or take part in the next generation; answered when that begins."""

    group_id: String
    session_timeout_ms: Int32
    rebalance_timeout_ms: Annotated[Int32, since(1)] = -1
    member_id: String
    group_instance_id: Annotated[NullableString, since(5)] = None
    protocol_type: String
    protocols: list[JoinGroupProtocol]


@message
class JoinGroupMember:
    """A member, as the leader sees it."""

    member_id: String
    group_instance_id: Annotated[NullableString, since(5)] = None
    metadata: Bytes


@message
class JoinGroupResponse:
    """The generation; only its leader is told of the members."""

    throttle_time_ms: Annotated[Int32, since(2)] = 0
    error_code: Int16 = 0
    generation_id: Int32 = -1
    protocol_name: String = ""
    leader: String = ""
    member_id: String = ""
    members: list[JoinGroupMember]


# --- SyncGroup (14) ----------------------------------------------------------------------------


@message
class SyncGroupAssignment:
    """What one member gets."""

    member_id: String
    assignment: Bytes


@message
class SyncGroupRequest:
    """Ask for an assignment; the leader brings those of all."""

    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: Annotated[NullableString, since(3)] = None
    assignments: list[SyncGroupAssignment]


@message
class SyncGroupResponse:
    """What the member gets."""

    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Int16 = 0
    assignment: Bytes = b""


# --- Heartbeat (12) ----------------------------------------------------------------------------


@message
class HeartbeatRequest:
    """The member is alive."""

    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: Annotated[NullableString, since(3)] = None


@message
class HeartbeatResponse:
    """It still belongs to the group, or what else it must do."""

    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Int16 = 0


# --- LeaveGroup (13) ---------------------------------------------------------------------------


@message
class LeaveGroupMember:
    """Who leaves: a static member by its instance id alone, others by their member id."""

    member_id: String
    group_instance_id: NullableString = None


@message
class LeaveGroupRequest:
    """One member leaves (to version 2), or several do."""

    group_id: String
    member_id: Annotated[String, between(0, 2)] = ""
    members: Annotated[list[LeaveGroupMember], since(3)] = field(default_factory=list)


@message
class LeaveGroupMemberResponse:
    """Gone, or why not."""

    member_id: String
    group_instance_id: NullableString = None
    error_code: Int16 = 0


@message
class LeaveGroupResponse:
    """The answers for all who leave."""

    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Int16 = 0
    members: Annotated[list[LeaveGroupMemberResponse], since(3)] = field(default_factory=list)


# --- ListGroups (16) ---------------------------------------------------------------------------


@message
class ListGroupsRequest:
    """Which groups are there?"""


@message
class ListedGroup:
    """A group; its protocol type is empty where it has only offsets."""

    group_id: String
    protocol_type: String = ""


@message
class ListGroupsResponse:
    """The groups."""

    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Int16 = 0
    groups: list[ListedGroup]


# --- DescribeGroups (15) -----------------------------------------------------------------------

NOT_ASKED: Final = -(2**31)
"""`authorized_operations` where nobody asked for them."""


@message
class DescribeGroupsRequest:
    """What is known of these groups?"""

    groups: list[String]
    include_authorized_operations: Annotated[Bool, since(3)] = False


@message
class DescribedMember:
    """A member; metadata and assignment are those of the generation that holds."""

    member_id: String
    group_instance_id: Annotated[NullableString, since(4)] = None
    client_id: String
    client_host: String
    member_metadata: Bytes = b""
    member_assignment: Bytes = b""


@message
class DescribedGroup:
    """A group; one that is not there is Dead."""

    error_code: Int16 = 0
    group_id: String
    group_state: String = ""
    protocol_type: String = ""
    protocol_data: String = ""
    members: list[DescribedMember]
    authorized_operations: Annotated[Int32, since(3)] = NOT_ASKED


@message
class DescribeGroupsResponse:
    """What is known of them."""

    throttle_time_ms: Annotated[Int32, since(1)] = 0
    groups: list[DescribedGroup]


# --- DeleteGroups (42) -------------------------------------------------------------------------


@message
class DeleteGroupsRequest:
    """Forget these groups and what they have committed."""

    groups_names: list[String]


@message
class DeletedGroup:
    """Forgotten, or why not."""

    group_id: String
    error_code: Int16 = 0


@message
class DeleteGroupsResponse:
    """The answers for all groups."""

    throttle_time_ms: Int32 = 0
    results: list[DeletedGroup]


# --- OffsetDelete (47) -------------------------------------------------------------------------


@message
class OffsetDeletePartition:
    """One partition."""

    partition_index: Int32


@message
class OffsetDeleteTopic:
    """Partitions of one topic."""

    name: String
    partitions: list[OffsetDeletePartition]


@message
class OffsetDeleteRequest:
    """Forget how far a group has read these."""

    group_id: String
    topics: list[OffsetDeleteTopic]


@message
class OffsetDeletePartitionResponse:
    """Forgotten, or why not."""

    partition_index: Int32
    error_code: Int16 = 0


@message
class OffsetDeleteTopicResponse:
    """The answers for one topic."""

    name: String
    partitions: list[OffsetDeletePartitionResponse]


@message
class OffsetDeleteResponse:
    """The answers for all topics."""

    error_code: Int16 = 0
    throttle_time_ms: Int32 = 0
    topics: list[OffsetDeleteTopicResponse]


# --- what consumers say to each other through their group ----------------------------------------

CONSUMER: Final = "consumer"
"""The protocol type under which metadata and assignments are these; a broker ships the bytes."""


@message
class TopicPartitions:
    """Partitions of one topic."""

    topic: String
    partitions: list[Int32]


CONSUMER_VERSION_MAX: Final = 3
"""Of both; later ones only add fields at their ends, so they are read as this one."""


@message
class ConsumerSubscription:
    """The metadata of a member: what it wants to read, and what it reads already."""

    version: Int16 = 1
    topics: list[String]
    user_data: Records = None
    owned_partitions: Annotated[list[TopicPartitions], since(1)] = field(default_factory=list)
    generation_id: Annotated[Int32, since(2)] = -1
    rack_id: Annotated[NullableString, since(3)] = None


@message
class ConsumerAssignment:
    """What a member may read."""

    version: Int16 = 1
    assigned_partitions: list[TopicPartitions]
    user_data: Records = None


def consumers(message: type[T], data: bytes) -> T:
    """Reads a `ConsumerSubscription` or `ConsumerAssignment` of whatever version.

    Raises:
        MalformedError: it is none.
    """
    version = int.from_bytes(data[:2], "big", signed=True)
    if version < 0:
        raise MalformedError(f"version {version} of what consumers say to each other")
    return decode(message, data, min(version, CONSUMER_VERSION_MAX))


# --- what the internal stream of committed offsets holds of groups -------------------------------

GROUP_KEY_VERSION: Final = 2
GROUP_VALUE_VERSION: Final = 3


@message
class GroupKey:
    """Key of a group's record, in Kafka's own layout."""

    version: Int16 = GROUP_KEY_VERSION
    group: String


@message
class GroupValueMember:
    """A member, with what it told of itself under the protocol chosen, and what it got."""

    member_id: String
    group_instance_id: Annotated[NullableString, since(3)] = None
    client_id: String
    client_host: String
    rebalance_timeout_ms: Annotated[Int32, since(1)] = -1
    session_timeout_ms: Int32
    subscription: Bytes
    assignment: Bytes


@message
class GroupValue:
    """Value of a group's record, in Kafka's own layout: one generation."""

    version: Int16 = GROUP_VALUE_VERSION
    protocol_type: String
    generation: Int32
    protocol: NullableString = None
    leader: NullableString = None
    current_state_timestamp: Annotated[Int64, since(2)] = -1
    members: list[GroupValueMember]
