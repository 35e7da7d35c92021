"""One group's machine: every state meets every event, and what follows is this table."""

from itertools import count

import pytest

from headrace import limits
from headrace.kernel.groups.coordinator import Groups
from headrace.kernel.groups.events import (
    Answer,
    Append,
    Commit,
    Committed,
    DeleteGroup,
    Forgotten,
    GroupSettings,
    Heartbeat,
    Identity,
    Join,
    Leave,
    Now,
    Opened,
    Place,
    Refused,
    Replayed,
    Stored,
    Sync,
    Tick,
    codes_of,
)
from headrace.kernel.groups.group import TRANSITIONS, Group
from headrace.wire.kafka.codec import encode
from headrace.wire.kafka.errors import ErrorCode
from headrace.wire.kafka.members import ConsumerSubscription

SAID = encode(ConsumerSubscription(version=0, topics=["s"]))
NEWS = encode(ConsumerSubscription(version=0, topics=["s", "t"]))
SESSION_MS, REBALANCE_MS = 10_000, 20_000
WAITS, GONE = "waits", "gone"


class World:
    """A group with a leader L and a static member S, as far as a state has them."""

    def __init__(self):
        self.groups = Groups(GroupSettings(initial_delay_ms=1000))
        self.tickets, self.ids = count(1), count(1)
        self.now_ms = 0
        self.effects = []
        self.open = set()  # tickets without an answer
        self.leader, self.static, self.generation = "", "", -1

    def tell(self, event):
        if not isinstance(event, Tick | Stored | Refused | Forgotten):
            self.open.add(event.ticket)
        found = self.groups.handle(event, Now(self.now_ms, self.now_ms))
        for effect in found:
            if isinstance(effect, Answer):
                self.open.remove(effect.ticket)
        self.effects += found
        return found

    def join(self, member="", instance=None, said=SAID, protocols=("range",)):
        event = Join(
            ticket=next(self.tickets),
            group="g",
            who=Identity(member, instance),
            client_id="c",
            host="h",
            session_ms=SESSION_MS,
            rebalance_ms=REBALANCE_MS,
            protocol_type="consumer",
            protocols=tuple((name, said) for name in protocols),
            fresh_id=f"m{next(self.ids)}",
        )
        return event.ticket, self.tell(event)

    def sync(self, member, instance=None, assignments=None):
        who = Identity(member, instance)
        event = Sync(next(self.tickets), "g", who, self.generation, assignments or {})
        return event.ticket, self.tell(event)

    def later(self, ms):
        self.now_ms += ms
        return self.tell(Tick())

    def answers(self):
        return {e.ticket: e.outcome for e in self.effects if isinstance(e, Answer)}


def empty():
    return World()


def first():
    world = World()
    world.join()
    world.join(instance="i")
    world.leader, world.static = "m1", "m2"
    return world


def completing():
    world = first()
    world.later(1000)
    world.later(1000)
    world.generation = 1
    return world


def storing():
    world = completing()
    world.sync("m1", None, {"m1": b"one", "m2": b"two"})
    return world


def stable():
    world = storing()
    world.tell(Stored(ticket(world), "g"))
    world.sync("m2", "i")
    return world


def preparing():
    world = stable()
    world.join()  # m3, which waits
    return world


def ticket(world):
    """Of what was appended last."""
    return next(e.ticket for e in reversed(world.effects) if isinstance(e, Append))


def heartbeat(world):
    event = Heartbeat(next(world.tickets), "g", Identity(world.leader), world.generation)
    return event.ticket, world.tell(event)


def commit(world):
    event = Commit(
        next(world.tickets),
        "g",
        Identity(world.leader),
        world.generation,
        {Place("s", 0): Committed(1)},
    )
    return event.ticket, world.tell(event)


def leave(world):
    event = Leave(next(world.tickets), "g", (Identity(world.leader),))
    return event.ticket, world.tell(event)


def delete(world):
    event = DeleteGroup(next(world.tickets), "g")
    return event.ticket, world.tell(event)


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


def settle(world):
    """However it goes on, it comes to rest, and every ticket is answered."""
    landed = 0
    for _ in range(60):
        appends = [effect for effect in world.effects if isinstance(effect, Append)]
        for append in appends[landed:]:
            if append.ticket is not None:
                world.tell(Stored(append.ticket, append.group))
        landed = len(appends)
        due = world.groups.next_ms()
        if due is None:
            break
        world.now_ms = max(world.now_ms, due)
        world.tell(Tick())
    assert world.open == set()
    assert world.groups.describe("g").state in {"Empty", "Dead"}


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


def beat(world, member, instance=None):
    who = Identity(member, instance)
    event = Heartbeat(next(world.tickets), "g", who, world.generation)
    world.tell(event)
    return world.answers()[event.ticket]


def ids(world):
    return [each.id for each in world.groups.describe("g").members]


def test_a_member_that_never_asks_what_it_reads_is_out():
    world = storing()
    world.tell(Stored(ticket(world), "g"))
    for _ in range(4):
        world.later(SESSION_MS // 2)
        assert beat(world, "m1") in {0, REBALANCE}
        beat(world, "m2", "i")
    assert ids(world) == ["m1"], "though it is alive"


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


# --- offsets and members -------------------------------------------------------------------------

HERE, ELSEWHERE = Place("s", 0), Place("elsewhere", 0)


def committed(world, place, who=Identity(), generation=-1):  # noqa: B008 - a value
    event = Commit(next(world.tickets), "g", who, generation, {place: Committed(1, commit_ms=0)})
    world.tell(event)
    return event.ticket


def test_what_is_committed_on_the_way_is_deleted_with_its_group():
    world = World()
    world.tell(Stored(committed(world, HERE), "g"))
    on_its_way = committed(world, ELSEWHERE)
    _, (append,) = delete(world)
    world.tell(Stored(on_its_way, "g"))
    world.tell(Stored(append.ticket, "g"))
    records = [each for e in world.effects if isinstance(e, Append) for each in e.records]
    again = Groups(GroupSettings())
    for record in records:
        again.handle(Replayed(record), Now(0, 0))
    assert again.offsets("g") == world.groups.offsets("g") == {}


def test_offsets_that_nobody_reads_any_more_go_and_those_on_their_way_do_not():
    world = stable()
    for place in (HERE, ELSEWHERE):
        world.tell(Stored(committed(world, place, Identity("m1"), 1), "g"))
    groups, month_ms = world.groups, 30 * limits.DAY_MS
    on_its_way = committed(world, ELSEWHERE, Identity("m1"), 1)
    assert groups._expire("g", Now(0, month_ms)) == []
    world.tell(Stored(on_its_way, "g"))
    (append,) = groups._expire("g", Now(0, month_ms))
    assert append.ticket is None
    assert list(groups.offsets("g")) == [HERE]


def test_what_a_group_assigns_has_a_bound():
    world = completing()
    leader, _ = world.sync("m1", None, {"m1": b"x" * limits.GROUP_RECORD_BYTES_MAX})
    assert world.answers()[leader].code is ErrorCode.UNKNOWN_SERVER_ERROR
    settle(world)


def test_groups_have_a_bound(monkeypatch):
    monkeypatch.setattr(limits, "GROUPS_MAX", 0)
    world = World()
    asked, _ = world.join()
    assert world.answers()[asked].code is ErrorCode.POLICY_VIOLATION
    monkeypatch.setattr(limits, "GROUPS_MAX", 1)
    monkeypatch.setattr(limits, "GROUPS_BYTES_MAX", 1)
    world.join()
    asked, _ = world.join()
    assert world.answers()[asked].code is ErrorCode.POLICY_VIOLATION


def test_bytes_that_are_held_are_let_go_with_the_members():
    world = preparing()
    group: Group = world.groups._groups["g"]
    assert world.groups._held_bytes == group.held_bytes > 0
    settle(world)
    assert world.groups._held_bytes == 0
    assert group.members.record_bytes == group.members.held_bytes == 0
    assert not group.members._votes


def test_the_last_member_s_group_is_read_back_as_it_was():
    world = stable()
    world.sync("m1")
    records = [each for e in world.effects if isinstance(e, Append) for each in e.records]
    again = Groups(GroupSettings())
    for record in records:
        again.handle(Replayed(record), Now(0, 0))
    again.handle(Opened(), Now(0, 0))
    before, after = world.groups.describe("g"), again.describe("g")
    assert [(m.id, m.instance, m.assignment) for m in after.members] == [
        ("m1", None, b"one"), ("m2", "i", b"two")
    ]  # fmt: skip
    assert (after.state, after.generation, after.protocol) == (
        before.state, before.generation, before.protocol
    )  # fmt: skip
    assert list(again.records("g")) == list(world.groups.records("g"))
    assert again.next_ms() == SESSION_MS


def test_a_group_that_cannot_be_forgotten_lives_on():
    world = stable()
    for member in ("m1", "m2"):
        world.tell(Leave(next(world.tickets), "g", (Identity(member),)))
    asked, effects = delete(world)
    assert isinstance(effects[0], Append)
    assert world.groups.describe("g").state == "Dead"
    refused, _ = world.join()
    assert world.answers()[refused].code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.tell(Refused(asked, "g", ErrorCode.COORDINATOR_NOT_AVAILABLE))
    assert world.groups.describe("g").state == "Empty"
    assert world.join()[0] in world.open
