"""Lives of a group in virtual time: the client's machine of a member against the broker's.

Programs are slow, stand still, end and begin; answers get lost. Everything comes from one seed.
"""

import heapq
import random
from itertools import count

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
from headrace.kernel.groups.coordinator import Groups
from headrace.kernel.groups.events import (
    Append,
    Forgotten,
    GroupSettings,
    Heartbeat,
    Identity,
    Join,
    Leave,
    Now,
    Opened,
    Stored,
    Sync,
)
from headrace.kernel.groups.events import Tick as BrokerTick
from headrace.wire.kafka import members as m
from headrace.wire.kafka.errors import ErrorCode

GROUP = "g"
CHAOS_S, HEALED_S = 60.0, 60.0
LOST = ConnectionLostError("gone")


class Program:
    """A process with one member of the group: what it holds, and how it follows its member."""

    def __init__(self, life, number, strategies, topics, instance=None):
        self.life, self.number, self.topics = life, number, topics
        self.instance = instance
        self.config = ConsumerConfig(
            group_id=GROUP,
            group_instance_id=instance,
            partition_assignment_strategy=strategies,
            session_timeout_ms=6000,
            heartbeat_interval_ms=1000,
            max_poll_interval_ms=10_000,
        )
        self.member = Membership(self.config)
        self.steps = []
        self.held, self.generation = set(), -1
        self.busy_since = None
        self.asked = None
        self.alive = True
        self.told = []

    def begin(self):
        self.subscribe()
        self.poll()
        self.tick()

    def subscribe(self):
        counts = {t: self.life.counts[t] for t in self.topics}
        self.handle(Subscribed(counts))

    def handle(self, event):
        for effect in self.member.handle(event, self.life.now):
            self.perform(effect)

    def perform(self, effect):
        later = self.life.random.uniform(0.001, 0.05)
        match effect:
            case Find():
                self.life.at(later, lambda: self.handle(Found()))
            case Count(topics):
                counts = {t: self.life.counts[t] for t in topics}
                self.life.at(later, lambda: self.handle(Counted(counts)))
            case Give() | Get():
                self.steps.append(effect)
            case Tell(error):
                self.told.append(error)
            case Done():
                self.alive = False
            case _:
                self.life.ask(self, effect)

    def tick(self):
        if self.alive:
            busy = 0.0 if self.busy_since is None else self.life.now - self.busy_since
            self.handle(Tick(busy))
            self.life.at(max(self.member.wake_at(self.life.now) - self.life.now, 0.01), self.tick)

    def poll(self):
        """The program asks for records: it does what its member said meanwhile."""
        if not self.alive:
            return
        self.busy_since = None
        while self.steps:
            self.follow(self.steps.pop(0))
        self.life.judge(self)
        pause = self.life.random.choice([0.01, 0.2, 1.0])
        if self.life.chance(0.01):
            pause = self.life.random.choice([4.0, 15.0])  # the longer one is too long
        self.busy_since = self.life.now
        self.life.at(pause, self.poll)

    def follow(self, step):
        if isinstance(step, Give):
            self.held -= set(step.places)
            self.handle(Gave(step.number))
            return
        self.held, self.generation = set(step.places), step.identity.generation

    def end(self, *, leaves):
        if leaves:
            self.held = set()
            if self.asked is not None:
                self.life.forget(self)
            self.handle(Close())
        self.alive = False
        self.held = set()


class Life:
    """A group with one stream or two, of up to six programs."""

    def __init__(self, seed, strategy, *, is_calm):
        self.random = random.Random(seed)
        self.is_calm, self.healed = is_calm, False
        self.strategies = [strategy] if self.random.random() < 0.7 else [strategy, "roundrobin"]
        if strategy == "cooperative-sticky":
            self.strategies = [strategy]
        self.counts = {"s": self.random.randint(1, 8), "t": self.random.randint(1, 3)}
        self.groups = Groups(GroupSettings(initial_delay_ms=self.random.choice([0, 100])))
        self.now, self.heap, self.order = 0.0, [], count()
        self.tickets, self.numbers = count(1), count(1)
        self.waiting = {}
        self.programs = []
        self.overlaps = 0
        self.tell(Opened())

    def at(self, delay_s, act):
        heapq.heappush(self.heap, (self.now + delay_s, next(self.order), act))

    def chance(self, share):
        return not (self.is_calm or self.healed) and self.random.random() < share

    def run(self):
        for _ in range(self.random.randint(1, 4)):
            self.at(self.random.uniform(0, 2), self.start)
        self.at(3.0, self.change)
        self.at(CHAOS_S, self.heal)
        while self.heap and self.now < CHAOS_S + HEALED_S:
            self.now, _, act = heapq.heappop(self.heap)
            act()
        self.judge_the_end()

    def start(self):
        topics = self.random.choice([["s"], ["s", "t"]])
        instance = f"i{next(self.numbers)}" if self.random.random() < 0.2 else None
        program = Program(self, next(self.numbers), self.strategies, topics, instance)
        self.programs.append(program)
        program.begin()

    def change(self):
        if self.healed:
            return
        alive = [p for p in self.programs if p.alive]
        what = self.random.random()
        if what < 0.4 and len(alive) < 6:
            self.start()
        elif what < 0.6 and len(alive) > 1:
            self.random.choice(alive).end(leaves=self.is_calm or self.random.random() < 0.5)
        elif what < 0.7:
            self.counts["s"] += 1
            for program in alive:
                self.at(self.random.uniform(0, 1), program.subscribe)
        self.at(self.random.uniform(1, 6), self.change)

    def heal(self):
        self.healed = True
        self.start()

    # The broker, and the way there and back.

    def ask(self, program, asked):
        ticket = next(self.tickets)
        event = self.event(ticket, asked)
        program.asked = ticket
        self.waiting[ticket] = program, asked
        if self.chance(0.03):
            self.at(self.random.uniform(0, 1), lambda: self.lose(ticket))
        self.at(self.random.uniform(0.001, 0.05), lambda: self.tell(event))

    def event(self, ticket, asked):
        body = asked.body
        who = Identity(getattr(body, "member_id", ""), getattr(body, "group_instance_id", None))
        match body:
            case m.JoinGroupRequest():
                protocols = tuple((each.name, each.metadata) for each in body.protocols)
                return Join(
                    ticket, GROUP, who, "c", "h", body.session_timeout_ms,
                    body.rebalance_timeout_ms, m.CONSUMER, protocols, f"m{ticket}",
                    must_know_id=who.instance is None,
                )  # fmt: skip
            case m.SyncGroupRequest():
                shares = {each.member_id: each.assignment for each in body.assignments}
                return Sync(ticket, GROUP, who, body.generation_id, shares)
            case m.HeartbeatRequest():
                return Heartbeat(ticket, GROUP, who, body.generation_id)
        return Leave(ticket, GROUP, (Identity(body.member_id),))

    def lose(self, ticket):
        """The connection breaks."""
        if ticket in self.waiting:
            program, _ = self.waiting.pop(ticket)
            self.tell(Forgotten(ticket, GROUP))
            if program.asked == ticket:
                program.asked = None
                program.handle(Failed(LOST))

    def forget(self, program):
        self.waiting.pop(program.asked, None)
        self.tell(Forgotten(program.asked, GROUP))
        program.asked = None

    def tell(self, event):
        moment = Now(int(self.now * 1000), int(self.now * 1000))
        for effect in self.groups.handle(event, moment):
            if isinstance(effect, Append):
                if effect.ticket is not None:
                    stored = Stored(effect.ticket, GROUP)
                    self.at(0.005, lambda stored=stored: self.tell(stored))
            else:
                self.answered(effect)
        due = self.groups.next_ms()
        if due is not None:
            self.at(max(due / 1000 - self.now, 0.001), lambda: self.ring(due))

    def ring(self, due):
        if self.groups.next_ms() == due:
            self.tell(BrokerTick())

    def answered(self, answer):
        if answer.ticket not in self.waiting:
            return
        program, asked = self.waiting.pop(answer.ticket)
        response = response_to(asked.body, answer.outcome)

        def deliver():
            if program.asked == answer.ticket and program.alive:
                program.asked = None
                program.handle(Answered(response))

        self.at(self.random.uniform(0.001, 0.05), deliver)

    # What must hold.

    def judge(self, program):
        """Two hold one partition only where the group has gone on without one of them."""
        for other in self.programs:
            if other is program or not other.alive:
                continue
            shared = other.held & program.held
            assert not (shared and self.is_calm), (shared, other.number, program.number)
            self.overlaps += bool(shared)
            assert not shared or other.generation != program.generation, "two in one generation"

    def judge_the_end(self):
        alive = [p for p in self.programs if p.alive]
        held = sorted(place for p in alive for place in p.held)
        wanted = {topic for p in alive for topic in p.topics}
        assert held == sorted((t, n) for t in wanted for n in range(self.counts[t])), "all, once"
        assert not any(p.told for p in self.programs), [p.told for p in self.programs]


def response_to(body, outcome):
    """As the door puts it."""
    match body:
        case m.JoinGroupRequest():
            return m.JoinGroupResponse(
                error_code=outcome.code,
                generation_id=outcome.generation,
                protocol_name=outcome.protocol,
                leader=outcome.leader,
                member_id=outcome.member,
                members=[
                    m.JoinGroupMember(
                        member_id=who.member, group_instance_id=who.instance, metadata=said
                    )
                    for who, said in outcome.members
                ],
            )
        case m.SyncGroupRequest():
            return m.SyncGroupResponse(error_code=outcome.code, assignment=outcome.assignment)
        case m.HeartbeatRequest():
            assert isinstance(outcome, ErrorCode)
            return m.HeartbeatResponse(error_code=outcome)
    return m.LeaveGroupResponse(error_code=outcome.codes[0][1])
