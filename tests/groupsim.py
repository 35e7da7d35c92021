"""Lives of one consumer group in virtual time.

Consumers join, leave, crash, stand still, come back as the static members that they were, and lose
responses, eager and cooperative ones; the broker dies with what was not durable and replays the
rest. Everything comes from one seed. Must not know how the machine decides: it knows only what
clients and the disk are told.
"""

import heapq
import random
from dataclasses import dataclass, field
from itertools import count

from grouppromises import RECORDS, BrokenError, Promises, partitions_of
from headrace.kernel.groups.coordinator import Groups
from headrace.kernel.groups.events import (
    Append,
    Commit,
    Committed,
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
)
from headrace.wire.kafka.codec import encode
from headrace.wire.kafka.errors import ErrorCode
from headrace.wire.kafka.members import (
    ConsumerAssignment,
    ConsumerSubscription,
    TopicPartitions,
    consumers,
)

GROUP, STREAM = "g", "s"
CHAOS_MS, HEALED_MS = 90_000, 180_000
AGAIN = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.REBALANCE_IN_PROGRESS,
}
LOST = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION}


@dataclass(eq=False)
class Consumer:
    """A process that reads as members of groups do."""

    number: int
    instance: str | None
    session_ms: int
    rebalance_ms: int
    protocols: tuple[str, ...]
    member: str = ""
    generation: int = -1
    positions: dict[int, int] = field(default_factory=dict)
    alive: bool = True
    asleep_ms: int = 0
    asked: int | None = None  # the request that it waits for
    joined: bool = False  # it has asked what it may read

    @property
    def who(self):
        return Identity(self.member, self.instance)

    def __repr__(self):
        return f"consumer {self.number} ({self.instance or self.member})"


class Simulation:
    """One life. `machine` makes the broker's machine, so that faults can be planted."""

    def __init__(self, seed, machine=Groups):
        self.random = random.Random(seed)
        self.machine = machine
        self.settings = GroupSettings(initial_delay_ms=self.random.choice([0, 300, 3000]))
        self.partitions = self.random.randint(1, 12)
        self.cooperative = self.random.random() < 0.5
        self.now_ms = 0
        self.heap, self.order = [], count()
        self.tickets, self.numbers, self.ids = count(1), count(1), count(1)
        self.consumers = []
        self.log = []  # durable records
        self.disk = []  # appended, in their order
        self.disk_ms = 0
        self.waiting = {}  # ticket: consumer and what to do with the answer
        self.broker_life = 0
        self.healed = False
        self.promises = Promises(self.partitions)
        self.begin()

    # The world.

    def at(self, delay_ms, act):
        heapq.heappush(self.heap, (self.now_ms + delay_ms, next(self.order), act))

    def chance(self, probability):
        return not self.healed and self.random.random() < probability

    def run(self):
        for _ in range(self.random.randint(1, 7)):
            self.at(self.random.randint(0, 3000), self.start)
        self.at(1000, self.chaos)
        self.at(CHAOS_MS, self.heal)
        while self.heap and self.now_ms < CHAOS_MS + HEALED_MS:
            moment, _, act = heapq.heappop(self.heap)
            self.now_ms = max(self.now_ms, moment)
            act()
        self.judge()
        return self

    def judge(self):
        alive = {each.member for each in self.consumers if each.alive}
        self.promises.ended(self.groups.describe(GROUP), alive)
        again = self.machine(self.settings)
        for record in self.log:
            again.handle(Replayed(record), self.now)
        self.promises.lasts(self.groups, again, GROUP)

    def start(self, instance=None):
        if instance is None and self.random.random() < 0.4:
            instance = f"i{self.random.randint(1, 4)}"
        protocols = self.random.choice([("sticky", "range"), ("range", "sticky")])
        session_ms = self.random.choice([6000, 6000, 10_000])
        consumer = Consumer(
            next(self.numbers), instance, session_ms, self.random.choice([6000, 15_000]), protocols
        )
        self.consumers.append(consumer)
        self.join(consumer)
        self.at(500, lambda: self.live(consumer))

    def chaos(self):
        if self.healed:
            return
        alive = [each for each in self.consumers if each.alive]
        what = self.random.random()
        if what < 0.25 and len(alive) < 8:
            self.start()
        elif what < 0.40 and alive:
            self.end(self.random.choice(alive), leaves=True)
        elif what < 0.55 and alive:
            consumer = self.random.choice(alive)
            self.end(consumer, leaves=False)
            if consumer.instance:
                delay_ms = self.random.choice([10, 1000, 20_000])
                self.at(delay_ms, lambda: self.healed or self.start(consumer.instance))
        elif what < 0.70 and alive:
            consumer = self.random.choice(alive)
            consumer.asleep_ms = self.now_ms + self.random.choice([500, 5000, 25_000])
        elif what < 0.82:
            self.die()
        self.at(self.random.randint(200, 6000), self.chaos)

    def heal(self):
        self.healed = True
        if not any(each.alive for each in self.consumers):
            self.start()

    def end(self, consumer, *, leaves):
        consumer.alive = False
        if leaves and consumer.member and consumer.instance is None:
            ticket = next(self.tickets)
            event = Leave(ticket, GROUP, (Identity(consumer.member),))
            self.at(self.random.randint(1, 50), lambda: self.tell(event))
        if consumer.asked is not None and not self.chance(0.3):  # its connection is reset
            self.forget(consumer.asked)

    # The broker.

    def begin(self):
        self.groups = self.machine(self.settings)
        for record in self.log:
            self.groups.handle(Replayed(record), self.now)
        self.perform(self.groups.handle(Opened(), self.now))

    @property
    def now(self):
        return Now(self.now_ms + 1_000_000 * self.broker_life, self.now_ms)

    def die(self):
        """Of what is on its way to the disk a beginning has arrived, and nobody hears of it."""
        self.promises.counts["restarts"] += 1
        for append, _ in self.disk[: self.random.randint(0, len(self.disk))]:
            self.durable(append)
        self.disk.clear()
        self.broker_life += 1
        waiting, self.waiting = self.waiting, {}
        self.begin()
        for consumer, ticket, _, again in waiting.values():
            if consumer.asked == ticket:
                consumer.asked = None
                self.at(self.random.randint(10, 1000), again)

    def tell(self, event):
        effects = self.groups.handle(event, self.now)
        if isinstance(event, Commit) and any(isinstance(effect, Append) for effect in effects):
            self.promises.taken(self.waiting[event.ticket][0], event)
        self.perform(effects)

    def perform(self, effects):
        for effect in effects:
            if isinstance(effect, Append):
                self.disk_ms = max(self.disk_ms, self.now_ms) + self.random.randint(0, 300)
                life = self.broker_life
                self.disk.append((effect, life))
                self.at(self.disk_ms - self.now_ms, lambda life=life: self.landed(life))
            else:
                self.answered(effect)
        moment = self.groups.next_ms()
        if moment is not None:
            delay_ms = max(moment - self.now.mono_ms, 0)
            life = self.broker_life
            self.at(delay_ms, lambda: self.ring(life, moment))

    def ring(self, life, moment):
        if life == self.broker_life and self.groups.next_ms() == moment:
            self.perform(self.groups.handle(Tick(), self.now))

    def landed(self, life):
        if life != self.broker_life or not self.disk:
            return
        append, _ = self.disk.pop(0)
        if append.ticket is not None and self.chance(0.03):
            event = Refused(append.ticket, append.group, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        else:
            self.durable(append)
            event = Stored(append.ticket or 0, append.group)
        self.perform(self.groups.handle(event, self.now))
        self.promises.kept(self.groups.offsets(GROUP))

    def durable(self, append):
        self.log += append.records

    def forget(self, ticket):
        if self.waiting.pop(ticket, None) is not None:
            self.tell(Forgotten(ticket, GROUP))

    # Requests of consumers, one at a time each.

    def ask(self, consumer, event, then, again):
        """Sends a request; `then` gets the answer, `again` is for when none comes."""
        ticket = event.ticket
        consumer.asked = ticket

        def arrive():
            if consumer.asked == ticket:
                self.waiting[ticket] = (consumer, ticket, then, again)
                self.tell(event)

        def expire():
            if consumer.alive and consumer.asked == ticket:
                consumer.asked = None
                self.forget(ticket)
                again()

        self.at(self.random.randint(1, 40), arrive)
        wait_ms = consumer.rebalance_ms + 5000 if isinstance(event, Join) else 5000
        self.at(wait_ms, expire)

    def answered(self, answer):
        waiting = self.waiting.pop(answer.ticket, None)
        if waiting is None:
            return
        consumer, ticket, then, _ = waiting
        self.promises.told(consumer, answer.outcome)
        if self.chance(0.02):
            return  # the response is lost; it times out

        def deliver():
            if consumer.alive and consumer.asked == ticket:
                consumer.asked = None
                then(answer.outcome)

        self.at(self.random.randint(1, 40), deliver)

    # What a consumer does.

    def join(self, consumer):
        if not consumer.alive:
            return
        if not self.cooperative:
            consumer.joined, consumer.positions = False, {}
        said = encode(
            ConsumerSubscription(
                version=2,
                topics=[STREAM],
                owned_partitions=[
                    TopicPartitions(topic=STREAM, partitions=sorted(consumer.positions))
                ],
                generation_id=consumer.generation,
            ),
            2,
        )
        event = Join(
            ticket=next(self.tickets),
            group=GROUP,
            who=consumer.who,
            client_id="c",
            host="h",
            session_ms=consumer.session_ms,
            rebalance_ms=consumer.rebalance_ms,
            protocol_type="consumer",
            protocols=tuple((name, said) for name in consumer.protocols),
            fresh_id=f"m{next(self.ids)}",
            must_know_id=consumer.instance is None and not consumer.member and self.modern,
        )
        self.ask(
            consumer,
            event,
            lambda outcome: self.has_joined(consumer, outcome),
            lambda: self.join(consumer),
        )

    @property
    def modern(self):
        return self.random.random() < 0.8

    def has_joined(self, consumer, outcome):
        code = outcome.code
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            consumer.member = outcome.member
            self.join(consumer)
        elif code is ErrorCode.NONE:
            consumer.member, consumer.generation = outcome.member, outcome.generation
            self.sync(consumer, outcome)
        else:
            self.failed(consumer, code)

    def sync(self, consumer, joined):
        shared = {}
        if joined.leader == joined.member and joined.members:
            share = self.share_on if self.cooperative else self.share_anew
            shared = share({who.member: said for who, said in joined.members})
        assignments = {member: told(partitions) for member, partitions in shared.items()}
        event = Sync(next(self.tickets), GROUP, consumer.who, joined.generation, assignments)
        self.ask(
            consumer,
            event,
            lambda outcome: self.has_synced(consumer, outcome),
            lambda: self.sync(consumer, joined) if consumer.alive else None,
        )

    def share_anew(self, said):
        """Eagerly: everybody has let go of everything."""
        members = sorted(said)
        self.random.shuffle(members)
        return {
            member: list(range(index, self.partitions, len(members)))
            for index, member in enumerate(members)
        }

    def share_on(self, said):
        """Cooperatively: whoever has too many lets go first, and what is free is given away."""
        claims = {}
        for member in sorted(said):
            words = consumers(ConsumerSubscription, said[member])
            for index in owned(words):
                if index not in claims or claims[index][0] < words.generation_id:
                    claims[index] = words.generation_id, member
        shared = {member: [] for member in sorted(said)}
        most = -(-self.partitions // len(shared))
        for index, (_, member) in sorted(claims.items()):
            if len(shared[member]) < most:
                shared[member].append(index)
        for index in set(range(self.partitions)) - claims.keys():
            min(shared.values(), key=len).append(index)
        return shared

    def has_synced(self, consumer, outcome):
        if outcome.code is not ErrorCode.NONE:
            self.failed(consumer, outcome.code)
            return
        offsets = self.groups.offsets(GROUP)  # as OffsetFetch would say
        reads = partitions_of(outcome.assignment)
        had = consumer.positions
        consumer.positions = {
            index: had.get(index, offsets.get(Place(STREAM, index), Committed(0)).offset)
            for index in reads
        }
        consumer.joined = True
        if had.keys() - set(reads):  # what it let go, others can have
            self.join(consumer)

    def failed(self, consumer, code):
        if code is ErrorCode.FENCED_INSTANCE_ID:
            consumer.alive = False
            return
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            consumer.member = ""
        if code in LOST:
            self.promises.counts["fenced"] += 1
            consumer.positions = {}
        elif code not in AGAIN:
            raise BrokenError(f"{consumer} was told {code.name}")
        self.at(self.random.randint(10, 200), lambda: self.join(consumer))

    def live(self, consumer):
        """Reads, commits, shows itself."""
        if not consumer.alive:
            return
        self.at(self.random.randint(500, 1500), lambda: self.live(consumer))
        if consumer.asleep_ms > self.now_ms or not consumer.joined:
            return
        for partition, position in consumer.positions.items():
            read = min(self.random.randint(0, 6), RECORDS - position)
            consumer.positions[partition] = position + read
            self.promises.read(consumer, partition, position, read)
        if consumer.asked is None:
            if self.random.random() < 0.5 and consumer.positions:
                self.commit(consumer, lambda: None)
            else:
                self.beat(consumer)

    def beat(self, consumer):
        event = Heartbeat(next(self.tickets), GROUP, consumer.who, consumer.generation)

        def then(code):
            if code is ErrorCode.REBALANCE_IN_PROGRESS:
                self.commit(consumer, lambda: self.join(consumer))
            elif code is not ErrorCode.NONE:
                self.failed(consumer, code)

        self.ask(consumer, event, then, lambda: None)

    def commit(self, consumer, after):
        offsets = {
            Place(STREAM, index): Committed(position)
            for index, position in consumer.positions.items()
        }
        event = Commit(next(self.tickets), GROUP, consumer.who, consumer.generation, offsets)

        def then(outcome):
            codes = set(outcome.codes.values()) - {ErrorCode.NONE}
            if codes & (LOST | {ErrorCode.FENCED_INSTANCE_ID}):
                self.failed(consumer, codes.pop())
            elif ErrorCode.REBALANCE_IN_PROGRESS in codes:
                self.join(consumer)
            else:
                after()

        if offsets:
            self.ask(consumer, event, then, after)
        else:
            after()


def owned(words):
    return [index for each in words.owned_partitions for index in each.partitions]


def told(partitions):
    """An assignment."""
    assigned = [TopicPartitions(topic=STREAM, partitions=sorted(partitions))]
    return encode(ConsumerAssignment(assigned_partitions=assigned))
