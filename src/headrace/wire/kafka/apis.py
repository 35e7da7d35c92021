"""The requests that headrace speaks, and their versions, in one table.

Owns: key, name, classes and versions of each. Must not know: how a request is answered.
"""

from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from headrace.wire.kafka import acls, admin, groups, members, sasl
from headrace.wire.kafka import messages as m
from headrace.wire.kafka.codec import Codec, codec_of

Q = TypeVar("Q")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Api(Generic[Q, R]):
    """One request and its response, in the versions `first` to `last`."""

    key: int
    name: str
    request: type[Q]
    response: type[R]
    first: int
    last: int
    flexible_since: int | None = None

    def flexible(self, version: int) -> bool:
        """Whether `version` has compact forms and tagged fields."""
        return self.flexible_since is not None and version >= self.flexible_since

    def tagged_header(self, version: int) -> bool:
        """Whether the header of the response has tagged fields.

        That of ApiVersions has none in any version, so that a client of any age can read which
        versions there are (KIP-511).
        """
        return self.flexible(version) and self.key != 18

    def request_codec(self, version: int) -> Codec:
        """How the request's body is laid out in `version`."""
        return codec_of(self.request, version, flexible=self.flexible(version))

    def response_codec(self, version: int) -> Codec:
        """How the response's body is laid out in `version`."""
        return codec_of(self.response, version, flexible=self.flexible(version))


# Produce begins at 0, for librdkafka 2.0 sends data uncompressed to a broker that names a higher
# minimum; the door answers versions below 3 with an error. All but ApiVersions and DescribeCluster,
# which has no others, end below their flexible versions, which spares tagged fields.
PRODUCE: Final = Api(0, "Produce", m.ProduceRequest, m.ProduceResponse, 0, 7)
FETCH: Final = Api(1, "Fetch", m.FetchRequest, m.FetchResponse, 4, 11)
LIST_OFFSETS: Final = Api(2, "ListOffsets", m.ListOffsetsRequest, m.ListOffsetsResponse, 1, 4)
METADATA: Final = Api(3, "Metadata", m.MetadataRequest, m.MetadataResponse, 0, 8)
OFFSET_COMMIT: Final = Api(
    8, "OffsetCommit", groups.OffsetCommitRequest, groups.OffsetCommitResponse, 1, 7
)
OFFSET_FETCH: Final = Api(
    9, "OffsetFetch", groups.OffsetFetchRequest, groups.OffsetFetchResponse, 1, 5
)
FIND_COORDINATOR: Final = Api(
    10, "FindCoordinator", groups.FindCoordinatorRequest, groups.FindCoordinatorResponse, 0, 2
)
API_VERSIONS: Final = Api(
    18, "ApiVersions", m.ApiVersionsRequest, m.ApiVersionsResponse, 0, 3, flexible_since=3
)
# Version 0 is for librdkafka, which looks for it and sends 1: its messages would have no frames.
SASL_HANDSHAKE: Final = Api(
    17, "SaslHandshake", sasl.SaslHandshakeRequest, sasl.SaslHandshakeResponse, 0, 1
)
SASL_AUTHENTICATE: Final = Api(
    36, "SaslAuthenticate", sasl.SaslAuthenticateRequest, sasl.SaslAuthenticateResponse, 0, 1
)
CREATE_TOPICS: Final = Api(
    19, "CreateTopics", admin.CreateTopicsRequest, admin.CreateTopicsResponse, 0, 4
)
DELETE_TOPICS: Final = Api(
    20, "DeleteTopics", admin.DeleteTopicsRequest, admin.DeleteTopicsResponse, 0, 3
)
INIT_PRODUCER_ID: Final = Api(
    22, "InitProducerId", m.InitProducerIdRequest, m.InitProducerIdResponse, 0, 1
)
DELETE_RECORDS: Final = Api(
    21, "DeleteRecords", admin.DeleteRecordsRequest, admin.DeleteRecordsResponse, 0, 1
)
DESCRIBE_CONFIGS: Final = Api(
    32, "DescribeConfigs", admin.DescribeConfigsRequest, admin.DescribeConfigsResponse, 0, 3
)
ALTER_CONFIGS: Final = Api(
    33, "AlterConfigs", admin.AlterConfigsRequest, admin.AlterConfigsResponse, 0, 1
)
INCREMENTAL_ALTER_CONFIGS: Final = Api(
    44,
    "IncrementalAlterConfigs",
    admin.IncrementalAlterConfigsRequest,
    admin.AlterConfigsResponse,
    0,
    0,
)
OFFSET_FOR_LEADER_EPOCH: Final = Api(
    23,
    "OffsetForLeaderEpoch",
    m.OffsetForLeaderEpochRequest,
    m.OffsetForLeaderEpochResponse,
    0,
    3,
)
DESCRIBE_ACLS: Final = Api(
    29, "DescribeAcls", acls.DescribeAclsRequest, acls.DescribeAclsResponse, 0, 1
)
CREATE_ACLS: Final = Api(30, "CreateAcls", acls.CreateAclsRequest, acls.CreateAclsResponse, 0, 1)
DELETE_ACLS: Final = Api(31, "DeleteAcls", acls.DeleteAclsRequest, acls.DeleteAclsResponse, 0, 1)
DESCRIBE_LOG_DIRS: Final = Api(
    35, "DescribeLogDirs", admin.DescribeLogDirsRequest, admin.DescribeLogDirsResponse, 0, 1
)
CREATE_PARTITIONS: Final = Api(
    37, "CreatePartitions", admin.CreatePartitionsRequest, admin.CreatePartitionsResponse, 0, 1
)
DESCRIBE_CLUSTER: Final = Api(
    60,
    "DescribeCluster",
    admin.DescribeClusterRequest,
    admin.DescribeClusterResponse,
    0,
    1,
    flexible_since=0,
)
JOIN_GROUP: Final = Api(11, "JoinGroup", members.JoinGroupRequest, members.JoinGroupResponse, 0, 5)
HEARTBEAT: Final = Api(12, "Heartbeat", members.HeartbeatRequest, members.HeartbeatResponse, 0, 3)
LEAVE_GROUP: Final = Api(
    13, "LeaveGroup", members.LeaveGroupRequest, members.LeaveGroupResponse, 0, 3
)
SYNC_GROUP: Final = Api(14, "SyncGroup", members.SyncGroupRequest, members.SyncGroupResponse, 0, 3)
DESCRIBE_GROUPS: Final = Api(
    15, "DescribeGroups", members.DescribeGroupsRequest, members.DescribeGroupsResponse, 0, 4
)
LIST_GROUPS: Final = Api(
    16, "ListGroups", members.ListGroupsRequest, members.ListGroupsResponse, 0, 2
)
DELETE_GROUPS: Final = Api(
    42, "DeleteGroups", members.DeleteGroupsRequest, members.DeleteGroupsResponse, 0, 1
)
OFFSET_DELETE: Final = Api(
    47, "OffsetDelete", members.OffsetDeleteRequest, members.OffsetDeleteResponse, 0, 0
)

APIS: Final[dict[int, Api[Any, Any]]] = {
    api.key: api
    for api in (
        PRODUCE,
        FETCH,
        LIST_OFFSETS,
        METADATA,
        OFFSET_COMMIT,
        OFFSET_FETCH,
        FIND_COORDINATOR,
        JOIN_GROUP,
        HEARTBEAT,
        LEAVE_GROUP,
        SYNC_GROUP,
        DESCRIBE_GROUPS,
        LIST_GROUPS,
        API_VERSIONS,
        SASL_HANDSHAKE,
        SASL_AUTHENTICATE,
        CREATE_TOPICS,
        DELETE_TOPICS,
        DELETE_RECORDS,
        INIT_PRODUCER_ID,
        OFFSET_FOR_LEADER_EPOCH,
        DESCRIBE_ACLS,
        CREATE_ACLS,
        DELETE_ACLS,
        DESCRIBE_CONFIGS,
        ALTER_CONFIGS,
        DESCRIBE_LOG_DIRS,
        CREATE_PARTITIONS,
        DELETE_GROUPS,
        INCREMENTAL_ALTER_CONFIGS,
        OFFSET_DELETE,
        DESCRIBE_CLUSTER,
    )
}
