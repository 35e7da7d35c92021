"""One group's machine: every state meets every event, and what follows is this table."""

import pytest

from groupworld import (
    NEWS,
    REBALANCE_MS,
    SAID,
    SESSION_MS,
    World,
    beat,
    commit,
    completing,
    delete,
    empty,
    first,
    heartbeat,
    ids,
    leave,
    preparing,
    settle,
    stable,
    storing,
    ticket,
)
from headrace.kernel.groups.events import (
    Append,
    Forgotten,
    Identity,
    Join,
    Refused,
    Stored,
    codes_of,
)
from headrace.kernel.groups.generation import TRANSITIONS
from headrace.wire.kafka.errors import ErrorCode

WAITS, GONE = "waits", "gone"

STATES = {
    "empty": empty,
    "first": first,
    "completing": completing,
    "storing": storing,
    "stable": stable,
    "preparing": preparing,
}

EVENTS = {
    "a new member": lambda world: world.join(),
    "the leader joins": lambda world: world.join(world.leader or "m9"),
    "a follower joins": lambda world: world.join(world.static or "m9", "i"),
    "a follower joins with news": lambda world: world.join(world.static or "m9", "i", NEWS),
    "the static one is back": lambda world: world.join("", "i"),
    "the static one is back with news": lambda world: world.join("", "i", NEWS),
    "a stranger's protocol": lambda world: world.join(protocols=("other",)),
    "the leader syncs": lambda world: world.sync(world.leader, None, {}),
    "a follower syncs": lambda world: world.sync(world.static, "i"),
    "the leader is alive": heartbeat,
    "the leader commits": commit,
    "the leader leaves": leave,
    "the group is deleted": delete,
}

UNKNOWN, REBALANCE, DIFFERS, IN_USE = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    ErrorCode.NON_EMPTY_GROUP,
)
E, P, C, S = "Empty", "PreparingRebalance", "CompletingRebalance", "Stable"

# What becomes of the request (a code, or that it waits), and the state after it.
TABLE = {
    #                                    empty                 first               completing
    #                                    storing               stable              preparing
    "a new member": [(WAITS, P), (WAITS, P), (WAITS, P), (WAITS, P), (WAITS, P), (WAITS, P)],
    "the leader joins": [
        (UNKNOWN, GONE), (WAITS, P), (0, C), (0, C), (WAITS, P), (WAITS, P)
    ],
    "a follower joins": [
        (UNKNOWN, GONE), (WAITS, P), (0, C), (0, C), (0, S), (WAITS, P)
    ],
    "a follower joins with news": [
        (UNKNOWN, GONE), (WAITS, P), (WAITS, P), (WAITS, P), (WAITS, P), (WAITS, P)
    ],
    "the static one is back": [
        (WAITS, P), (WAITS, P), (WAITS, P), (WAITS, P), (WAITS, S), (WAITS, P)
    ],
    "the static one is back with news": [
        (WAITS, P), (WAITS, P), (WAITS, P), (WAITS, P), (WAITS, P), (WAITS, P)
    ],
    "a stranger's protocol": [
        (WAITS, P), (DIFFERS, P), (DIFFERS, C), (DIFFERS, C), (DIFFERS, S), (DIFFERS, P)
    ],
    "the leader syncs": [
        (UNKNOWN, GONE), (ErrorCode.ILLEGAL_GENERATION, P), (WAITS, C), (WAITS, C), (0, S),
        (REBALANCE, P),
    ],
    "a follower syncs": [
        (UNKNOWN, GONE), (ErrorCode.ILLEGAL_GENERATION, P), (WAITS, C), (WAITS, C), (0, S),
        (REBALANCE, P),
    ],
    "the leader is alive": [
        (UNKNOWN, GONE), (ErrorCode.ILLEGAL_GENERATION, P), (0, C), (0, C), (0, S), (REBALANCE, P)
    ],
    "the leader commits": [
        (WAITS, E), (ErrorCode.ILLEGAL_GENERATION, P), (REBALANCE, C), (REBALANCE, C), (WAITS, S),
        (WAITS, P),
    ],
    "the leader leaves": [(UNKNOWN, GONE), (0, P), (0, P), (0, P), (0, P), (0, P)],
    "the group is deleted": [
        (ErrorCode.GROUP_ID_NOT_FOUND, GONE), (IN_USE, P), (IN_USE, C), (IN_USE, C), (IN_USE, S),
        (IN_USE, P),
    ],
}  # fmt: skip


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("state", STATES)
def test_every_state_meets_every_event(state, event):
    outcome, after = TABLE[event][list(STATES).index(state)]
    world = STATES[state]()
    asked, _ = EVENTS[event](world)
    found = world.answers().get(asked)
    assert outcome == WAITS if found is None else codes_of(found) == [outcome]
    described = world.groups.describe("g").state
    if not (outcome == WAITS and after == E):  # a commit is not a group yet
        assert described == ("Dead" if after == GONE else after)
    settle(world)


def test_the_table_of_transitions_has_every_state_and_leads_to_all():
    assert {state for targets in TRANSITIONS.values() for state in targets} == set(TRANSITIONS)


@pytest.mark.parametrize("state", [name for name in STATES if name not in {"empty", "stable"}])
def test_whoever_waits_may_be_forgotten_at_any_moment(state):
    world = STATES[state]()
    for waiting in sorted(world.open):
        world.open.discard(waiting)
        world.tell(Forgotten(waiting, "g"))
    settle(world)


@pytest.mark.parametrize("code", [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR])
def test_an_assignment_that_the_disk_refuses_is_told_to_nobody(code):
    world = storing()
    follower, _ = world.sync("m2", "i")
    world.tell(Refused(ticket(world), "g", code))
    assert world.answers()[follower].code is code
    assert world.groups.describe("g").state == P
    assert [member.assignment for member in world.groups.describe("g").members] == [b"", b""]
    settle(world)


def test_a_static_member_hears_of_its_new_id_when_that_is_durable():
    world = stable()
    back, effects = world.join("", "i")
    assert [type(effect) for effect in effects] == [Append]
    world.tell(Stored(back, "g"))
    joined = world.answers()[back]
    assert (joined.code, joined.generation, joined.members) == (0, 1, ())
    assert world.sync(joined.member, "i")[1][0].outcome.assignment == b"two"


def test_a_static_member_that_is_back_while_a_rebalance_begins_takes_part():
    world = stable()
    back, _ = world.join("", "i")
    world.join()
    world.tell(Stored(back, "g"))
    assert back in world.open
    world.join("m1")
    assert world.answers()[back].generation == 2


def test_a_member_that_never_asks_what_it_reads_is_out():
    world = storing()
    world.tell(Stored(ticket(world), "g"))
    for _ in range(4):
        world.later(SESSION_MS // 2)
        assert beat(world, "m1") in {0, REBALANCE}
        beat(world, "m2", "i")
    assert ids(world) == ["m1"], "though it is alive"


def test_the_leader_is_told_of_static_members_first():
    world = first()
    world.join()
    world.later(1000)
    world.later(1000)
    told = [each.members for each in world.answers().values() if each.members]
    assert [[who.instance for who, _ in members] for members in told] == [["i", None, None]]


def test_a_leader_that_never_shares_out_is_out():
    world = completing()
    world.sync("m2", "i")
    for _ in range(4):
        world.later(SESSION_MS // 2)
        beat(world, "m1")
    assert ids(world) == ["m2"]


def test_a_static_member_that_is_away_keeps_its_part_through_a_rebalance():
    world = stable()
    world.join("m1")  # the leader asks for a generation, and the static member is silent
    world.groups._groups["g"].members["m2"].session_ms = 10 * REBALANCE_MS
    beat(world, "m2", "i")
    world.later(REBALANCE_MS)
    world.generation = 2
    world.sync("m1", None, {"m1": b"", "m2": b"all"})
    world.tell(Stored(ticket(world), "g"))
    for _ in range(5):
        world.later(SESSION_MS // 2)
        beat(world, "m1")
    assert ids(world) == ["m1", "m2"]
    assert world.sync("m2", "i")[1][0].outcome.assignment == b"all"


def test_a_group_whose_static_members_are_all_away_waits_for_them():
    world = stable()
    world.groups._groups["g"].members["m2"].session_ms = 10 * REBALANCE_MS
    beat(world, "m2", "i")
    leave(world)
    world.later(REBALANCE_MS)
    world.later(REBALANCE_MS)
    described = world.groups.describe("g")
    assert (described.state, described.generation, ids(world)) == (P, 1, ["m2"])
    back, _ = world.join("", "i")
    assert world.answers()[back].generation == 2


def test_who_hangs_up_before_it_knows_its_id_is_waited_for_no_more():
    world = preparing()
    (waiting,) = (each.join for each in world.groups.describe("g").members if each.join)
    world.open.discard(waiting)
    world.tell(Forgotten(waiting, "g"))
    assert ids(world) == ["m1", "m2"]


def test_who_was_given_an_id_is_waited_for():
    world = stable()
    event = Join(
        next(world.tickets), "g", Identity(), "c", "h", SESSION_MS, REBALANCE_MS, "consumer",
        (("range", SAID),), "new", must_know_id=True,
    )  # fmt: skip
    world.tell(event)
    one, _ = world.join("m1")
    two, _ = world.join("m2", "i")
    assert {one, two} <= world.open
    three, _ = world.join("new")
    answers = world.answers()
    assert {answers[each].generation for each in (one, two, three)} == {2}


def test_a_first_generation_waits_on_while_it_grows_and_no_longer_than_a_rebalance():
    world = World()
    world.join()
    for _ in range(REBALANCE_MS // 1000 - 1):
        world.join()
        world.later(1000)
        assert world.groups.describe("g").state == P
    world.later(1000)
    assert world.groups.describe("g").state == C
    assert len({each.generation for each in world.answers().values()}) == 1
