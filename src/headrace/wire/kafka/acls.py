"""Requests about ACLs: who may do what, as Kafka's clients see and change it.

Owns and must not know what `headrace.wire.kafka.messages` does, of which this is a part.
Source: the message definitions of the Kafka protocol guide.
"""

from typing import Annotated

from headrace.wire.kafka.codec import (
    Int8,
    Int16,
    Int32,
    Message,
    NullableString,
    String,
    message,
    since,
)

LITERAL = 3
"""`pattern_type`: the name itself. Version 0 knows no other."""


@message
class AclFilter:
    """Some ACLs; None, and 1 of each number, stand for any."""

    resource_type: Int8
    resource_name: NullableString
    pattern_type: Annotated[Int8, since(1)] = LITERAL
    principal: NullableString
    host: NullableString
    operation: Int8
    permission_type: Int8


# --- DescribeAcls (29) -------------------------------------------------------------------------


@message
class DescribeAclsRequest(AclFilter):
    """Which ACLs are there?"""


@message
class AclDescription:
    """One of them, of the resource that it stands below."""

    principal: String
    host: String
    operation: Int8
    permission_type: Int8


@message
class AclResource:
    """The ACLs of one resource."""

    resource_type: Int8
    resource_name: String
    pattern_type: Annotated[Int8, since(1)] = LITERAL
    acls: list[AclDescription]


@message
class DescribeAclsResponse:
    """ACLs by resource."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Message = None
    resources: list[AclResource]


# --- CreateAcls (30) ---------------------------------------------------------------------------


@message
class AclCreation:
    """An ACL to be added."""

    resource_type: Int8
    resource_name: String
    pattern_type: Annotated[Int8, since(1)] = LITERAL
    principal: String
    host: String
    operation: Int8
    permission_type: Int8


@message
class CreateAclsRequest:
    """Add ACLs; one that is there already stays."""

    creations: list[AclCreation]


@message
class AclCreationResult:
    """Added, or why not."""

    error_code: Int16 = 0
    error_message: Message = None


@message
class CreateAclsResponse:
    """The answer for each ACL, in the order of the request."""

    throttle_time_ms: Int32 = 0
    results: list[AclCreationResult]


# --- DeleteAcls (31) ---------------------------------------------------------------------------


@message
class DeleteAclsRequest:
    """Remove what filters are about."""

    filters: list[AclFilter]


@message
class DeletedAcl:
    """An ACL that is gone."""

    error_code: Int16 = 0
    error_message: Message = None
    resource_type: Int8
    resource_name: String
    pattern_type: Annotated[Int8, since(1)] = LITERAL
    principal: String
    host: String
    operation: Int8
    permission_type: Int8


@message
class DeleteAclsFilterResult:
    """What a filter has removed."""

    error_code: Int16 = 0
    error_message: Message = None
    matching_acls: list[DeletedAcl]


@message
class DeleteAclsResponse:
    """The answer for each filter, in the order of the request."""

    throttle_time_ms: Int32 = 0
    filter_results: list[DeleteAclsFilterResult]
