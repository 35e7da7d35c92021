"""What lasts of a group, and what is forgotten: offsets, members, the group itself."""

from groupworld import SESSION_MS, World, delete, stable
from headrace import limits
from headrace.kernel.groups.coordinator import Groups
from headrace.kernel.groups.events import (
    Append,
    Commit,
    Committed,
    GroupSettings,
    Identity,
    Leave,
    Now,
    Opened,
    Place,
    Refused,
    Replayed,
    Stored,
)
from headrace.wire.kafka.errors import ErrorCode

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
