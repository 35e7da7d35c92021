"""A consumer's membership in virtual time: alone, and against the broker's own machine."""

import pytest

from headrace.client.assignors import ASSIGNORS, Having, assigned, assignment_of, said
from headrace.client.config import ConsumerConfig
from headrace.client.errors import ConnectionLostError
from headrace.client.membership import Membership
from headrace.client.membership_events import (
    Answered,
    Close,
    Count,
    Counted,
    Done,
    Failed,
    Find,
    Found,
    Gave,
    Get,
    Give,
    Subscribed,
    Tell,
    Tick,
)
from headrace.client.records import TopicPartition
from headrace.wire.kafka import members as m
from headrace.wire.kafka.errors import ErrorCode
from memberlife import Life

A, B = TopicPartition("s", 0), TopicPartition("s", 1)


def member(strategy="range", **settings):
    return Membership(
        ConsumerConfig(group_id="g", partition_assignment_strategy=[strategy], **settings)
    )


def joined(membership, places=(A, B), leads=False, generation=1, now=0.0):
    """Takes a member all the way in; the effects of its last answer."""
    effects = membership.handle(Subscribed({"s": 2}), now)
    if effects == [Find()]:
        effects = membership.handle(Found(), now)
    return sync(membership, effects, places, leads, generation, now)


def sync(membership, effects, places, leads=False, generation=1, now=0.0):
    (join,) = effects
    assert isinstance(join.body, m.JoinGroupRequest)
    strategy = join.body.protocols[0].name
    metadata = said(strategy, ["s"], Having(), Having())
    response = m.JoinGroupResponse(
        generation_id=generation,
        protocol_name=strategy,
        leader="me" if leads else "other",
        member_id="me",
        members=[m.JoinGroupMember(member_id="me", metadata=metadata)] if leads else [],
    )
    effects = membership.handle(Answered(response), now)
    if leads:
        assert effects == [Count(["s"])]
        effects = membership.handle(Counted({"s": 2}), now)
    (asked,) = effects
    assert isinstance(asked.body, m.SyncGroupRequest)
    if leads:
        (share,) = asked.body.assignments
        assert assigned(share.assignment) == [A, B]
    response = m.SyncGroupResponse(assignment=assignment_of(places))
    return membership.handle(Answered(response), now)


def beat(membership, code=0, now=3.0):
    """The next heartbeat and what follows from its answer."""
    (sent,) = membership.handle(Tick(0.0), now)
    assert isinstance(sent.body, m.HeartbeatRequest)
    return membership.handle(Answered(m.HeartbeatResponse(error_code=code)), now)


def test_a_member_joins_syncs_and_beats():
    membership = member()
    assert membership.handle(Tick(0.0), 0.0) == [], "nothing is subscribed to"
    assert membership.handle(Subscribed({"s": 2}), 0.0) == [Find()]
    (asked,) = membership.handle(Found(), 0.0)
    assert (asked.body.member_id, asked.body.session_timeout_ms) == ("", 45_000)
    required = m.JoinGroupResponse(
        error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="me", members=[]
    )
    (again,) = membership.handle(Answered(required), 0.0)
    assert again.body.member_id == "me"
    (got,) = sync(membership, [again], [A, B], leads=True)
    assert isinstance(got, Get)
    assert (got.places, got.identity) == ([A, B], (1, "me", None))
    assert membership.handle(Tick(0.0), 2.9) == []
    assert beat(membership) == []
    assert membership.handle(Tick(0.0), 4.0) == []


def test_an_eager_member_gives_everything_up_before_it_joins_again():
    membership = member()
    joined(membership)
    (give,) = beat(membership, ErrorCode.REBALANCE_IN_PROGRESS)
    assert (give.places, give.is_lost, give.identity.generation) == ([A, B], False, 1)
    assert beat(membership, ErrorCode.REBALANCE_IN_PROGRESS, 6.0) == [], "beats while it waits"
    assert membership.handle(Gave(give.number - 1), 6.0) == []
    (got,) = sync(membership, membership.handle(Gave(give.number), 6.0), [A], generation=2)
    assert got.places == [A]


def test_a_member_that_takes_long_to_give_up_is_still_heard():
    membership = member(session_timeout_ms=6_000)
    joined(membership)
    (give,) = beat(membership, ErrorCode.REBALANCE_IN_PROGRESS)
    for now in (6.0, 9.0, 12.0):
        assert beat(membership, ErrorCode.REBALANCE_IN_PROGRESS, now) == []
    (join,) = membership.handle(Gave(give.number), 12.0)
    assert join.body.member_id == "me"


def test_a_cooperative_member_keeps_and_gives_up_what_others_get():
    membership = member("cooperative-sticky")
    joined(membership)
    join = beat(membership, ErrorCode.REBALANCE_IN_PROGRESS)
    give, got = sync(membership, join, [A], generation=2)
    assert isinstance(give, Give)
    assert (give.places, give.identity.generation, got.places) == ([B], 2, [A])
    assert beat(membership, ErrorCode.REBALANCE_IN_PROGRESS, 6.0) == [], "B is not given up yet"
    (got,) = sync(membership, membership.handle(Gave(give.number), 6.0), [A], generation=3)
    assert got.places == [A]


def test_a_cooperative_static_member_that_comes_back_ends_the_generation_that_it_owes_an_end():
    membership = member("cooperative-sticky", group_instance_id="i", session_timeout_ms=6000)
    joined(membership)
    join = beat(membership, ErrorCode.REBALANCE_IN_PROGRESS)
    sync(membership, join, [A], generation=2, now=3.0)
    (give,) = membership.handle(Tick(0.0), 10.0)  # not heard for a session
    assert give.is_lost
    join = membership.handle(Gave(give.number), 10.0)
    (got,) = sync(membership, join, [A], generation=2, now=10.0)  # no rebalance: it is known
    assert got.places == [A]
    (join,) = membership.handle(Tick(0.0), 10.1)
    assert isinstance(join.body, m.JoinGroupRequest), "B belongs to nobody until somebody joins"


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
def test_a_fenced_member_has_lost_what_it_had(code):
    membership = member()
    joined(membership)
    (give,) = beat(membership, code)
    assert (give.places, give.is_lost, give.identity.generation) == ([A, B], True, -1)
    (join,) = membership.handle(Gave(give.number), 3.0)
    kept = "me" if code is ErrorCode.ILLEGAL_GENERATION else ""
    assert join.body.member_id == kept


def test_a_program_that_is_stuck_leaves():
    membership = member()
    joined(membership)
    give, leave = membership.handle(Tick(300.0), 1.0)
    assert (give.is_lost, leave.body.member_id) == (True, "me")
    membership.handle(Answered(m.LeaveGroupResponse()), 1.0)
    assert membership.handle(Tick(400.0), 101.0) == []
    (join,) = membership.handle(Gave(give.number), 500.0)
    assert join.body.member_id == ""


def test_a_member_that_is_not_heard_for_a_session_has_lost_what_it_had():
    membership = member(retry_backoff_ms=1)
    joined(membership)
    membership.handle(Tick(0.0), 3.0)
    assert membership.handle(Failed(ConnectionLostError("gone")), 3.0) == []
    assert membership.handle(Tick(0.0), 40.0) == [Find()]
    membership.handle(Failed(ConnectionLostError("gone")), 44.0)
    (give, *_) = membership.handle(Tick(0.0), 45.0)
    assert give.is_lost


def test_a_refusal_is_told_and_tried_again_when_the_program_asks():
    membership = member()
    membership.handle(Subscribed({"s": 2}), 0.0)
    membership.handle(Found(), 0.0)
    denied = m.JoinGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, members=[])
    give, told = membership.handle(Answered(denied), 0.0)
    assert isinstance(told, Tell)
    assert told.error.code is ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert membership.handle(Tick(0.0), 50.0) == []
    assert len(membership.handle(Gave(give.number), 50.0)) == 1


def test_lost_connections_are_followed_by_a_pause_and_a_new_question():
    membership = member(retry_backoff_ms=100)
    membership.handle(Subscribed({"s": 2}), 0.0)
    membership.handle(Found(), 0.0)
    membership.handle(Failed(ConnectionLostError("gone")), 0.0)
    assert membership.handle(Tick(0.0), 0.05) == []
    assert membership.wake_at(0.05) == 0.1
    assert membership.handle(Tick(0.0), 0.1) == [Find()]


def test_the_leader_has_new_partitions_shared_out():
    membership = member()
    joined(membership, leads=True)
    (give,) = membership.handle(Subscribed({"s": 3}), 1.0)
    assert give.places == [A, B]
    follower = member()
    joined(follower)
    assert follower.handle(Subscribed({"s": 3}), 1.0) == []
    (give,) = follower.handle(Subscribed({"s": 3, "t": 1}), 1.0)
    assert give.places == [A, B], "other streams are its own affair"


def test_goodbye():
    membership = member()
    joined(membership)
    (leave,) = membership.handle(Close(), 1.0)
    assert leave.body.members == [m.LeaveGroupMember(member_id="me")]
    assert membership.handle(Answered(m.LeaveGroupResponse()), 1.0) == [Done()]
    static = member(group_instance_id="i")
    joined(static)
    assert static.handle(Close(), 1.0) == [Done()]
    assert member().handle(Close(), 0.0) == [Done()]


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 40, 10))
@pytest.mark.parametrize("strategy", ASSIGNORS)
def test_groups_of_orderly_programs_never_read_a_partition_twice(strategy, first):
    for seed in range(first, first + 10):
        try:
            Life(seed, strategy, is_calm=True).run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 40, 10))
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_groups_that_lose_answers_and_members_come_to_rest(strategy, first):
    for seed in range(first, first + 10):
        try:
            Life(seed, strategy, is_calm=False).run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
