"""DescribeAcls, CreateAcls, DeleteAcls: access rules as Kafka's clients see and change them.

What an ACL may say is decided in `headrace.kernel.acls`. The rules of the configuration are not
among them: they stand in their file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.errors import HeadraceError
from headrace.kernel.acls import Acl, Filter, checked, checked_filter
from headrace.wire.kafka.acls import (
    AclCreationResult,
    AclDescription,
    AclResource,
    CreateAclsResponse,
    DeleteAclsFilterResult,
    DeleteAclsResponse,
    DeletedAcl,
    DescribeAclsResponse,
)
from headrace.wire.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.node.kafka.connection import KafkaConnection
    from headrace.node.kafka.door import KafkaDoor
    from headrace.wire.kafka.acls import AclCreation, AclFilter
    from headrace.wire.kafka.frames import Request

OPEN: Final = {
    "error_code": ErrorCode.SECURITY_DISABLED,
    "error_message": "everybody may do everything here; add a user first: headrace users add NAME "
    "--role admin",
}
"""What ACLs would restrict nobody from."""

DENIED: Final = {
    "error_code": ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    "error_message": "ACLs are seen and changed by users with the role admin",
}


def describe_refused(_: object, why: dict[str, Any]) -> DescribeAclsResponse:
    """The response that tells of none."""
    return DescribeAclsResponse(**why, resources=[])


def create_refused(body: Any, why: dict[str, Any]) -> CreateAclsResponse:  # noqa: ANN401
    """The response that refuses all."""
    return CreateAclsResponse(results=[AclCreationResult(**why) for _ in body.creations])


def delete_refused(body: Any, why: dict[str, Any]) -> DeleteAclsResponse:  # noqa: ANN401
    """The response that refuses all."""
    return DeleteAclsResponse(
        filter_results=[DeleteAclsFilterResult(**why, matching_acls=[]) for _ in body.filters]
    )


async def describe(door: KafkaDoor, _: KafkaConnection, request: Request) -> DescribeAclsResponse:
    """The ACLs that a filter is about, by resource."""
    if door.gate.is_open:
        return describe_refused(request.body, OPEN)
    try:
        wanted = _filter(request.body)
    except HeadraceError as error:
        return describe_refused(request.body, _told(error))
    resources: dict[tuple[int, int, str], list[AclDescription]] = {}
    for acl in door.gate.acls:
        if wanted.is_about(acl):
            described = AclDescription(
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            resources.setdefault((acl.resource, acl.pattern, acl.name), []).append(described)
    return DescribeAclsResponse(
        resources=[
            AclResource(resource_type=kind, resource_name=name, pattern_type=pattern, acls=acls)
            for (kind, pattern, name), acls in resources.items()
        ]
    )


async def create(door: KafkaDoor, _: KafkaConnection, request: Request) -> CreateAclsResponse:
    """Adds what rules can say; one that is refused does not hinder the others."""
    creations: list[AclCreation] = request.body.creations
    if door.gate.is_open:
        return create_refused(request.body, OPEN)
    results, made = [], []
    for each in creations:
        try:
            acl = checked(
                each.resource_type,
                each.pattern_type,
                each.resource_name,
                each.principal,
                each.host,
                each.operation,
                each.permission_type,
            )
        except HeadraceError as error:
            results.append(AclCreationResult(**_told(error)))
        else:
            made.append(acl)
            results.append(AclCreationResult())
    try:
        await door.gate.change_acls(lambda acls: acls | set(made))
    except HeadraceError as error:
        return create_refused(request.body, _told(error))
    return CreateAclsResponse(results=results)


async def delete(door: KafkaDoor, _: KafkaConnection, request: Request) -> DeleteAclsResponse:
    """Removes what filters are about; an ACL that several are about is told of by each."""
    if door.gate.is_open:
        return delete_refused(request.body, OPEN)
    try:
        filters = [_filter(each) for each in request.body.filters]
        before = await door.gate.change_acls(
            lambda acls: {acl for acl in acls if not any(each.is_about(acl) for each in filters)}
        )
    except HeadraceError as error:
        return delete_refused(request.body, _told(error))
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(
                matching_acls=[_deleted(acl) for acl in before if each.is_about(acl)]
            )
            for each in filters
        ]
    )


def _filter(asked: AclFilter) -> Filter:
    return checked_filter(
        Filter(
            asked.resource_type,
            asked.pattern_type,
            asked.resource_name,
            asked.principal,
            asked.host,
            asked.operation,
            asked.permission_type,
        )
    )


def _deleted(acl: Acl) -> DeletedAcl:
    return DeletedAcl(
        resource_type=acl.resource,
        resource_name=acl.name,
        pattern_type=acl.pattern,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def _told(error: HeadraceError) -> dict[str, Any]:
    return {"error_code": ErrorCode.of(error.kafka_code), "error_message": str(error)}
