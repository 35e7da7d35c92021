"""What members of groups can cost a node, and what no member may be."""

import itertools
import tracemalloc

import pytest

from groupworld import (
    REBALANCE_MS,
    SAID,
    SESSION_MS,
    World,
    beat,
    completing,
    ids,
    leave,
    preparing,
    settle,
    stable,
    ticket,
)
from headrace import limits
from headrace.kernel.groups.events import (
    Commit,
    Committed,
    Identity,
    Join,
    Leave,
    Place,
    Stored,
    Sync,
)
from headrace.kernel.groups.offsets import Offsets
from headrace.kernel.groups.owners import NOBODY
from headrace.wire.kafka.errors import ErrorCode


def ask(
    world, member="", instance=None, *, group="g", more=(), name="c", kind="consumer",
    must_know_id=False, owner="",
):  # fmt: skip
    """A client asks to join: its outcome; None while it waits."""
    event = Join(
        ticket=next(world.tickets),
        group=group,
        who=Identity(member, instance),
        client_id=name,
        host="h",
        session_ms=SESSION_MS,
        rebalance_ms=REBALANCE_MS,
        protocol_type=kind,
        protocols=(("range", SAID), *more),
        fresh_id=f"m{next(world.ids)}",
        must_know_id=must_know_id,
        owner=owner,
    )
    world.tell(event)
    return world.answers().get(event.ticket)


def test_an_id_that_was_given_out_is_no_static_member_s():
    world = stable()
    given = ask(world, must_know_id=True).member
    assert ask(world, given, "i").code is ErrorCode.UNKNOWN_MEMBER_ID, "who is i is a member"
    assert ask(world, given, "j").code is ErrorCode.UNKNOWN_MEMBER_ID
    assert ids(world) == ["m1", "m2"]
    settle(world)


def test_all_that_a_member_says_has_a_bound_and_how_many_ways_it_knows():
    world = World()
    given = [ask(world, must_know_id=True).member for _ in range(2)]
    many = tuple((str(i), b"") for i in range(limits.GROUP_PROTOCOLS_MAX))
    assert ask(world, given[0], more=many).code is ErrorCode.POLICY_VIOLATION
    large = tuple((str(i), bytes(limits.GROUP_RECORD_BYTES_MAX // 2)) for i in range(6))
    assert ask(world, given[0], more=large) is None, "a record takes one of these"
    assert ask(world, given[1], more=large).code is ErrorCode.POLICY_VIOLATION
    assert world.groups._held_bytes.total < limits.GROUP_HELD_BYTES_MAX
    settle(world)


@pytest.mark.parametrize("letter", ["x", "\N{WATER WAVE}"])
def test_names_of_members_count_by_their_letters(letter):
    world = World()
    name = letter * 10_000
    assert ask(world, instance=name, name=name) is None
    (member,) = world.groups.describe("g").members
    assert member.record_bytes > 2 * len(name.encode())
    assert world.groups._held_bytes.total > 2 * len(name) * len("\N{WATER WAVE}".encode())
    world.later(1000)
    world.later(1000)
    assert ask(world, instance=name, name="c").generation == 2, "it is back under another name"
    assert world.groups._held_bytes.total < 5 * len(name)
    settle(world)
    assert world.groups._held_bytes.total == 0


def test_what_the_members_of_a_group_are_is_said_in_a_few_letters():
    world = World()
    kind = "x" * limits.GROUP_ID_BYTES_MAX
    assert ask(world, kind=kind + "x").code is ErrorCode.POLICY_VIOLATION
    assert world.groups.describe("g").state == "Dead"
    assert ask(world, kind=kind) is None
    assert world.groups.protocol_type("g") == kind
    settle(world)


def test_who_has_an_id_does_not_pass_the_bound_of_all_groups(monkeypatch):
    world = World()
    given = ask(world, must_know_id=True).member
    monkeypatch.setattr(limits, "GROUPS_BYTES_MAX", 4096)
    large = (("roundrobin", bytes(8192)),)
    assert ask(world, given, more=large).code is ErrorCode.POLICY_VIOLATION
    assert ask(world, given) is None
    assert ask(world, given, more=large).code is ErrorCode.POLICY_VIOLATION
    settle(world)


def test_what_is_assigned_does_not_pass_the_bound_of_all_groups(monkeypatch):
    world = completing()
    monkeypatch.setattr(limits, "GROUPS_BYTES_MAX", 8192)
    leader, _ = world.sync("m1", None, {"m1": bytes(8192)})
    assert world.answers()[leader].code is ErrorCode.UNKNOWN_SERVER_ERROR
    settle(world)


def test_names_of_groups_that_come_and_go_leave_nothing_behind():
    world = World()
    for number in range(5000):
        group = f"g{number}"
        given = ask(world, group=group, must_know_id=True).member
        world.tell(Leave(next(world.tickets), group, (Identity(given),)))
    assert not world.groups._armed
    assert len(world.groups._alarms) < 2000


def test_a_group_whose_static_members_are_away_looks_at_no_clock_meanwhile():
    world = stable()
    group = world.groups._groups["g"]
    for member in group.members:
        member.rebalance_ms, member.session_ms = 1, 100 * SESSION_MS
    beat(world, "m2", "i")
    leave(world)
    world.later(1)
    moment = world.now_ms + 50 * SESSION_MS
    assert group.next_ms() > moment, "its session ends, and nothing happens before"
    # One of two that were away does not wait for the other longer than a rebalance lasts.
    world = stable()
    world.join("", "j")
    world.join("m1")
    world.join("m2", "i")
    world.generation = 2
    world.sync("m1", None, {})
    world.tell(Stored(ticket(world), "g"))
    group = world.groups._groups["g"]
    for member in group.members:
        member.session_ms = 100 * SESSION_MS
    beat(world, "m2", "i")
    world.tell(Sync(next(world.tickets), "g", Identity("m3", "j"), 2, {}))
    leave(world)
    world.later(REBALANCE_MS)
    world.later(REBALANCE_MS)
    back, _ = world.join("", "j")
    assert back in world.open
    world.later(REBALANCE_MS)
    assert world.answers()[back].generation == 3


def test_leaving_looks_at_each_who_leaves_once(monkeypatch):
    world = World()
    given = [ask(world, must_know_id=True).member for _ in range(300)]
    for member in given:
        ask(world, member)
    compared = []
    kind = type(next(iter(world.groups.describe("g").members)))
    monkeypatch.setattr(kind, "__eq__", lambda *both: compared.append(both) or both[0] is both[1])
    asked = Leave(next(world.tickets), "g", tuple(map(Identity, given + given)))
    world.tell(asked)
    codes = [code for _, code in world.answers()[asked.ticket].codes]
    assert codes == [ErrorCode.NONE] * 300 + [ErrorCode.UNKNOWN_MEMBER_ID] * 300
    assert not compared


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
    group = world.groups._groups["g"]
    assert world.groups._held_bytes.total == group.held_bytes > 0
    settle(world)
    assert world.groups._held_bytes.total == 0
    assert group.members.record_bytes == group.members.held_bytes == 0
    assert not group.members._votes


def test_texts_beside_offsets_have_a_bound_for_all_groups_together(monkeypatch):
    monkeypatch.setattr(limits, "OFFSETS_METADATA_BYTES_MAX", 100)
    offsets = Offsets()
    tickets = itertools.count(1)

    def commit(group, text, partition=0):
        place = Place("s", partition)
        ticket = next(tickets)
        event = Commit(ticket, group, Identity(), -1, {place: Committed(1, metadata=text)})
        *_, last = [*offsets.commit(event, NOBODY), *offsets.stored(ticket)]
        return last.outcome.codes[place]

    assert commit("a", "x" * 60) is ErrorCode.NONE
    assert commit("b", "x" * 41) is ErrorCode.POLICY_VIOLATION
    assert commit("b", "") is ErrorCode.NONE
    assert commit("a", "x" * 50) is ErrorCode.NONE, "less than it was"
    assert commit("b", "x" * 50) is ErrorCode.NONE
    assert commit("a", "x" * 51) is ErrorCode.POLICY_VIOLATION
    offsets.forget_group("b")
    assert commit("a", "x" * 100) is ErrorCode.NONE
    offsets.put("a", Place("s", 0), None)
    assert commit("c", "\N{WATER WAVE}" * 25) is ErrorCode.NONE
    assert commit("c", "x", 1) is ErrorCode.POLICY_VIOLATION


@pytest.mark.parametrize(("name_chars", "said_bytes"), [(2, 0), (10, 10), (60, 100)])
def test_ways_to_share_out_take_no_more_memory_than_is_counted(name_chars, said_bytes):
    """Each is known to one member, as where somebody wants to take much with few words."""
    world = World()
    tracemalloc.start()
    try:
        ask(world)
        before = tracemalloc.get_traced_memory()[0] - world.groups._groups["g"].held_bytes
        for member in range(100):
            ways = [f"{member}-{way}".ljust(name_chars) for way in range(50)]
            ask(world, more=[(name, bytes(said_bytes + 1)) for name in ways])
        taken_bytes = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert 0.4 < taken_bytes / world.groups._groups["g"].held_bytes < 1
