"""Lives of a producer in virtual time: brokers that refuse, forget, and leave answers out."""

import random

from headrace.client.accumulator import Accumulator
from headrace.client.config import ProducerConfig
from headrace.client.errors import ConnectionLostError
from headrace.client.lanes import Failed
from headrace.model import Address
from headrace.native import batch_headers, decode_records
from headrace.wire.kafka.errors import ErrorCode
from headrace.wire.kafka.messages import ProducePartitionResponse

ONE, TWO = Address("one", 1), Address("two", 2)
LOST = ConnectionLostError("gone")

STEPS, QUIET = 400, 300
"""Steps of a life; from QUIET on all that is asked is answered."""


def add(accumulator, value, partition=0, now=0.0, stream="s", key=None):
    """Appends a record whose waiter is its value."""
    accumulator.append(stream, partition, (key, value, (), 0), value, now)


def values_of(batch):
    """Of the records of a batch, in their order."""
    return [row[3] for row in decode_records(batch.encoded("none"), 0, 2**62, 10**6).rows()]


class Broker:
    """What brokers promise of idempotent producers; two partitions."""

    def __init__(self, rng):
        self.rng = rng
        self.logs = {0: [], 1: []}
        self.windows = {}
        self.forgotten = set()  # partition and producer; it says so for good

    def append(self, batch):
        """Error code and base offset."""
        place, log = batch.lane.partition, self.logs[batch.lane.partition]
        encoded = batch.encoded("none")
        ((_, _, _, count, _, _, (producer, epoch, sequence), _, _),), _ = batch_headers(encoded)
        who = place, producer, epoch
        if who in self.forgotten:
            return ErrorCode.UNKNOWN_PRODUCER_ID, -1
        window = self.windows.setdefault(who, [])
        for first, size, base in window[-5:]:
            if (first, size) == (sequence, count):
                return 0, base
        expected = window[-1][0] + window[-1][1] if window else 0
        code = self.fault(count)
        if sequence != expected:
            code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        elif code == ErrorCode.UNKNOWN_PRODUCER_ID:
            self.forgotten.add(who)
        if code:
            return code, -1
        window.append((sequence, count, len(log)))
        log += [value for _, _, _, value, _ in decode_records(encoded, 0, 2**62, 10**6).rows()]
        return 0, len(log) - count

    def fault(self, count):
        faults = [
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.INVALID_RECORD,
            ErrorCode.UNKNOWN_PRODUCER_ID,
            ErrorCode.MESSAGE_TOO_LARGE if count > 1 else ErrorCode.NOT_ENOUGH_REPLICAS,
        ]
        return self.rng.choice(faults) if self.rng.random() < 0.06 else 0


class Life:
    """One producer, two brokers.

    Attributes:
        outcomes: of each record its partition and offset, or None where it was given up.
        sent: records of each partition, in their order.
    """

    def __init__(self, seed):
        self.rng = rng = random.Random(seed)
        config = ProducerConfig(
            batch_size=rng.choice([1, 60, 400]),
            linger_ms=rng.choice([0, 5]),
            delivery_timeout_ms=rng.choice([31_000, 120_000]),
            max_in_flight_requests_per_connection=rng.choice([1, 3, 5]),
        )
        self.accumulator = Accumulator(config, rng.random)
        self.accumulator.learn("s", [ONE, TWO])
        self.broker = Broker(rng)
        self.wire = {ONE: [], TWO: []}
        self.now, self.ids, self.number = 0.0, 0, 0
        self.outcomes, self.sent = {}, {0: [], 1: []}

    def run(self):
        for step in range(STEPS):
            is_quiet = step >= QUIET
            self.now += 5.0 if is_quiet else self.rng.choice([0.0, 0.001, 0.2])
            if not is_quiet:
                self.produce()
            self.move()
            for address in self.wire:
                if not is_quiet and self.rng.random() < 0.03:
                    self.hang_up(address)
                while self.wire[address] and (is_quiet or self.rng.random() < 0.6):
                    self.answer(self.wire[address].pop(0))

    def produce(self):
        for _ in range(self.rng.randrange(4)):
            value, partition = b"%d" % self.number, self.rng.randrange(2)
            self.number += 1
            add(self.accumulator, value, partition, self.now)
            self.sent[partition].append(value)

    def move(self):
        self.settle(self.accumulator.expire(self.now))
        if self.accumulator.wants_producer:
            self.ids += 1
            self.accumulator.identify(self.ids, 0)
        if self.accumulator.wanted:
            self.settle(self.accumulator.learn("s", self.rng.sample([ONE, TWO], 2)))
        for request in self.accumulator.drain(self.now, {ONE, TWO}).requests:
            self.wire[request.address].append(request)

    def hang_up(self, address):
        """A connection breaks: some requests reached the broker, and none is answered."""
        requests, self.wire[address] = self.wire[address], []
        for request in requests[: self.rng.randrange(len(requests) + 1)]:
            for batch in request.batches:
                self.broker.append(batch)
        for request in requests:
            self.settle(self.accumulator.lost(request, LOST, self.now))
        self.accumulator.unreached(address, self.now)
        if self.rng.random() < 0.2:  # for longer than anything may take
            self.now += 121.0

    def answer(self, request):
        answers = {}
        for batch in request.batches:
            code, base = self.broker.append(batch)
            index = batch.lane.partition
            answers["s", index] = ProducePartitionResponse(
                index=index, error_code=code, base_offset=base
            )
        self.settle(self.accumulator.answered(request, answers, self.now))

    def settle(self, outcomes):
        for each in outcomes:
            if isinstance(each, Failed):
                self.outcomes.update((waiter, None) for waiter in each.waiters)
            else:
                for offset, waiter in each.batch.waiters.items():
                    place = each.batch.lane.partition, each.base_offset + offset
                    self.outcomes[waiter] = place
