"""Requests of the members of groups, and of those who look at groups: translated, never decided.

A member that joins waits for the others, and with it the requests behind it on its connection, as
Kafka's clients expect; all other connections go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import uuid4

from headrace import limits
from headrace.errors import HeadraceError
from headrace.kernel.groups.events import (
    DeleteGroup,
    Heartbeat,
    Identity,
    Join,
    Joined,
    Leave,
    Left,
    Sync,
    Synced,
)
from headrace.kernel.groups.generation import State
from headrace.node.kafka.coordinator import code_of
from headrace.node.kafka.pace import paced
from headrace.wire.kafka import members as m
from headrace.wire.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.node.kafka.connection import KafkaConnection
    from headrace.node.kafka.door import KafkaDoor
    from headrace.wire.kafka.frames import Request

ID_REQUIRED_SINCE: Final = 4
"""JoinGroup: from this version on a client without an id gets one before it counts (KIP-394)."""

MEMBERS_SINCE: Final = 3
"""LeaveGroup: from this version on several members may leave."""

CLIENT_ID_CHARS: Final = 100
"""Of a client's own name, at the beginning of the member id that it gets."""


async def join(
    door: KafkaDoor, connection: KafkaConnection, request: Request
) -> m.JoinGroupResponse:
    """Answers when the next generation begins."""
    body: m.JoinGroupRequest = request.body
    who = _identity(body.member_id, body.group_instance_id)
    client_id = request.client_id or ""
    named = who.instance or client_id
    rebalance_ms = body.rebalance_timeout_ms
    try:
        outcome = await door.coordinator.ask(
            lambda ticket: Join(
                ticket=ticket,
                group=body.group_id,
                who=who,
                client_id=client_id,
                host=connection.host or "",
                session_ms=body.session_timeout_ms,
                rebalance_ms=body.session_timeout_ms if rebalance_ms < 0 else rebalance_ms,
                protocol_type=body.protocol_type,
                protocols=tuple((each.name, each.metadata) for each in body.protocols),
                fresh_id=f"{named[:CLIENT_ID_CHARS]}-{uuid4()}",
                must_know_id=request.version >= ID_REQUIRED_SINCE and who.instance is None,
                owner=connection.owner,
            ),
            connection.let_go,
        )
    except HeadraceError as error:
        outcome = Joined(code_of(error), body.member_id)
    assert isinstance(outcome, Joined)
    return m.JoinGroupResponse(
        error_code=outcome.code,
        generation_id=outcome.generation,
        protocol_name=outcome.protocol,
        leader=outcome.leader,
        member_id=outcome.member,
        members=[
            m.JoinGroupMember(
                member_id=each.member, group_instance_id=each.instance, metadata=metadata
            )
            for each, metadata in outcome.members
        ],
    )


async def sync(
    door: KafkaDoor, connection: KafkaConnection, request: Request
) -> m.SyncGroupResponse:
    """Answers when the assignments are durable."""
    body: m.SyncGroupRequest = request.body
    who = _identity(body.member_id, body.group_instance_id)
    assignments = {each.member_id: each.assignment for each in body.assignments}

    def kept() -> None:
        assignments.clear()  # of who does not lead nobody wants them
        body.assignments.clear()
        connection.let_go()

    try:
        outcome = await door.coordinator.ask(
            lambda ticket: Sync(ticket, body.group_id, who, body.generation_id, assignments), kept
        )
    except HeadraceError as error:
        outcome = Synced(code_of(error))
    assert isinstance(outcome, Synced)
    return m.SyncGroupResponse(error_code=outcome.code, assignment=outcome.assignment)


async def heartbeat(door: KafkaDoor, _: KafkaConnection, request: Request) -> m.HeartbeatResponse:
    """A member is alive."""
    body: m.HeartbeatRequest = request.body
    who = _identity(body.member_id, body.group_instance_id)
    try:
        code = await door.coordinator.ask(
            lambda ticket: Heartbeat(ticket, body.group_id, who, body.generation_id)
        )
    except HeadraceError as error:
        code = code_of(error)
    assert isinstance(code, ErrorCode)
    return m.HeartbeatResponse(error_code=code)


async def leave(door: KafkaDoor, _: KafkaConnection, request: Request) -> m.LeaveGroupResponse:
    """Members leave; older versions know of one, and have no error of its own."""
    body: m.LeaveGroupRequest = request.body
    several = request.version >= MEMBERS_SINCE
    asked = body.members if several else [m.LeaveGroupMember(member_id=body.member_id)]
    if len(asked) > max(limits.GROUP_SIZE_MAX, door.settings.groups.size_max):
        return m.LeaveGroupResponse(error_code=ErrorCode.INVALID_REQUEST)
    who = tuple(_identity(each.member_id, each.group_instance_id) for each in asked)
    try:
        outcome = await door.coordinator.ask(lambda ticket: Leave(ticket, body.group_id, who))
    except HeadraceError as error:
        return m.LeaveGroupResponse(error_code=code_of(error))
    assert isinstance(outcome, Left)
    if not several:
        return m.LeaveGroupResponse(error_code=outcome.codes[0][1])
    return m.LeaveGroupResponse(
        members=[
            m.LeaveGroupMemberResponse(
                member_id=each.member, group_instance_id=each.instance, error_code=code
            )
            for each, code in outcome.codes
        ]
    )


async def list_all(door: KafkaDoor, _: KafkaConnection, __: Request) -> m.ListGroupsResponse:
    """Every group."""
    groups = door.coordinator.groups
    return m.ListGroupsResponse(
        groups=[
            m.ListedGroup(group_id=name, protocol_type=groups.protocol_type(name))
            async for name in paced(list(groups.names))
        ]
    )


async def describe(
    door: KafkaDoor, _: KafkaConnection, request: Request
) -> m.DescribeGroupsResponse:
    """Groups and their members, each once: it may take a MiB, and its name a few bytes."""
    body: m.DescribeGroupsRequest = request.body
    names = dict.fromkeys(body.groups)
    return m.DescribeGroupsResponse(groups=[_described(door, name) async for name in paced(names)])


async def delete(door: KafkaDoor, _: KafkaConnection, request: Request) -> m.DeleteGroupsResponse:
    """Answers once the groups are forgotten for good."""
    body: m.DeleteGroupsRequest = request.body
    return m.DeleteGroupsResponse(
        results=[
            m.DeletedGroup(group_id=name, error_code=await _delete(door, name))
            async for name in paced(dict.fromkeys(body.groups_names))
        ]
    )


async def _delete(door: KafkaDoor, name: str) -> ErrorCode:
    try:
        code = await door.coordinator.ask(lambda ticket: DeleteGroup(ticket, name))
    except HeadraceError as error:
        code = code_of(error)
    assert isinstance(code, ErrorCode)
    return code


def _described(door: KafkaDoor, name: str) -> m.DescribedGroup:
    group = door.coordinator.groups.describe(name)
    is_stable = group.state is State.STABLE
    return m.DescribedGroup(
        group_id=name,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol if is_stable else "",
        members=[
            m.DescribedMember(
                member_id=each.id,
                group_instance_id=each.instance,
                client_id=each.client_id,
                client_host=f"/{each.host}",  # as Java writes addresses, and tools read them
                member_metadata=each.metadata(group.protocol) if is_stable else b"",
                member_assignment=each.assignment if is_stable else b"",
            )
            for each in group.members
        ],
    )


def _identity(member_id: str, instance: str | None) -> Identity:
    return Identity(member_id, instance or None)
