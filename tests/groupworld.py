"""One group in virtual time, in each state that it can be in. Must not know what is right."""

from itertools import count

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
    Place,
    Refused,
    Replayed,
    Stored,
    Sync,
    Tick,
)
from headrace.kernel.groups.owners import NOBODY
from headrace.wire.kafka.codec import encode
from headrace.wire.kafka.members import ConsumerSubscription

SAID = encode(ConsumerSubscription(version=0, topics=["s"]))
NEWS = encode(ConsumerSubscription(version=0, topics=["s", "t"]))
NOW = Now(0, 0)
SESSION_MS, REBALANCE_MS = 10_000, 20_000


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


def commit_alone(groups, ticket, group, offsets, generation=-1, owner=NOBODY):
    """A commit of who is no member, while the clock stands."""
    return groups.handle(Commit(ticket, group, Identity(), generation, offsets, owner), NOW)


def replayed(records):
    """A machine that has read `records` back."""
    groups = Groups()
    for record in records:
        assert groups.handle(Replayed(record), NOW) == []
    return groups


def leave(world):
    event = Leave(next(world.tickets), "g", (Identity(world.leader),))
    return event.ticket, world.tell(event)


def delete(world):
    event = DeleteGroup(next(world.tickets), "g")
    return event.ticket, world.tell(event)


def beat(world, member, instance=None):
    who = Identity(member, instance)
    event = Heartbeat(next(world.tickets), "g", who, world.generation)
    world.tell(event)
    return world.answers()[event.ticket]


def ids(world):
    return [each.id for each in world.groups.describe("g").members]


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
