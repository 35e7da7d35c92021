"""What a producer holds of one partition: batches, and where each of them stands.

Owns the shapes that `accumulator` works on. Must not know what is done with them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from headrace.native import BatchBuilder

if TYPE_CHECKING:
    from headrace.client.errors import ClientError
    from headrace.model import Address

NO_PRODUCER: Final = (-1, -1)
"""Id and epoch of a lane that has none yet."""

SEQUENCES: Final = 2**31
"""Sequence numbers begin again at 0 after the last of them."""

Headers = Sequence[tuple[str, bytes | None]]
Record = tuple[bytes | None, bytes | None, Headers, int]
"""Key, value, headers, timestamp in ms."""


class Waiters(dict[int, Any]):
    """Who waits for records of a batch, by their numbers in it."""

    __slots__ = ()

    def split(self, at: int) -> Self:
        """Keeps the records before `at`; those of the others."""
        second = type(self)({index - at: self[index] for index in self if index >= at})
        for index in second:
            del self[index + at]
        return second


@dataclass(eq=False, slots=True)
class Batch:
    """Records that are sent together.

    Attributes:
        lane: their partition.
        order: counts the batches of a producer.
        part: which part of that batch, where it had to be split: (0,) is before (1,).
        born: when its first record came.
        waiters: stands for its records before those who sent them.
        size_bytes: of the records, estimated.
        sequence: of the first record; -1 without idempotence, and until it is sent.
        attempts: how often it was sent.
        is_doubtful: it may have been stored although no answer said so.
        error: why it is not there yet.
    """

    lane: Lane
    order: int
    born: float
    waiters: Waiters = field(default_factory=Waiters)
    records: BatchBuilder = field(default_factory=BatchBuilder)
    size_bytes: int = 0
    sequence: int = -1
    attempts: int = 0
    is_doubtful: bool = False
    error: ClientError | None = None
    part: tuple[int, ...] = ()

    @property
    def after(self) -> int:
        """The sequence number that follows its records."""
        return (self.sequence + len(self.records)) % SEQUENCES

    def halves(self) -> tuple[Batch, Batch]:
        """Itself with the first half of its records, and one of the same order with the others."""
        middle = len(self.records) // 2
        share = self.size_bytes * middle // len(self.records)
        second = Batch(
            self.lane,
            self.order,
            self.born,
            self.waiters.split(middle),
            self.records.split(middle),
            self.size_bytes - share,
            self.sequence if self.sequence < 0 else (self.sequence + middle) % SEQUENCES,
            self.attempts,
            self.is_doubtful,
            self.error,
            (*self.part, 1),
        )
        self.part = (*self.part, 0)
        self.size_bytes = share
        return self, second

    def encoded(self, codec: str) -> bytes:
        """The record batch, with who wrote it."""
        return self.records.encode(codec, (*self.lane.producer, self.sequence))


@dataclass(eq=False, slots=True)
class Lane:
    """One partition of a stream, as a producer sees it.

    Attributes:
        leader: the broker that takes its records, as far as is known.
        queue: batches that were not sent.
        open: the last of them, where it may still take records.
        repeats: batches to send again, in their order; before those of `queue`.
        under_way: batches that were sent and not answered.
        at: the broker that these were sent to.
        is_draining: nothing is sent until all under way is answered.
        blocked_until: nothing is sent before.
        producer: id and epoch that its batches carry.
        is_stale: that id is of no more use.
        expected: the sequence number that the broker waits for.
        sequence: of the next record that was never sent.
    """

    stream: str
    partition: int
    leader: Address | None = None
    queue: deque[Batch] = field(default_factory=deque)
    open: Batch | None = None
    repeats: list[Batch] = field(default_factory=list)
    under_way: int = 0
    at: Address | None = None
    is_draining: bool = False
    blocked_until: float = 0.0
    producer: tuple[int, int] = NO_PRODUCER
    is_stale: bool = False
    expected: int = 0
    sequence: int = 0

    @property
    def first(self) -> Batch | None:
        """What is sent next, if there is anything."""
        if self.repeats:
            return self.repeats[0]
        return self.queue[0] if self.queue else None

    def number(self, batch: Batch, producer: tuple[int, int] | None) -> bool:
        """Gives a batch that was never sent its sequence number; False without a producer id."""
        if batch.sequence >= 0:
            return True
        if self.producer == NO_PRODUCER:
            if producer is None:
                return False
            self.producer = producer
            self.expected = self.sequence = 0
        batch.sequence = self.sequence
        self.sequence = batch.after
        return True

    def take(self, address: Address) -> Batch:
        """Its first batch, to be sent to `address`."""
        batch = self.repeats.pop(0) if self.repeats else self.queue.popleft()
        self.under_way += 1
        self.at = address
        batch.attempts += 1
        return batch

    def remove(self, batch: Batch) -> None:
        """Its first batch is given up."""
        if self.repeats:
            self.repeats.remove(batch)
        else:
            self.queue.remove(batch)
            if batch is self.open:
                self.open = None

    def repeat(self, *batches: Batch) -> None:
        """These go before what was never sent, once nothing is under way."""
        self.is_draining = True
        self.repeats += batches
        self.repeats.sort(key=lambda each: (each.order, each.part))

    def renumber(self) -> None:
        """What is repeated follows what the broker has."""
        self.sequence = self.expected
        for batch in self.repeats:
            batch.sequence = self.sequence
            self.sequence = batch.after

    def forget_producer(self) -> list[Batch]:
        """Begins anew without an id: what may be stored already is taken out of the repeats.

        Under a new id a repeat of it would not be told.
        """
        self.producer, self.is_stale = NO_PRODUCER, False
        doubtful = [batch for batch in self.repeats if batch.is_doubtful]
        self.repeats = [batch for batch in self.repeats if not batch.is_doubtful]
        for batch in self.repeats:
            batch.sequence = -1
        return doubtful


class Request(NamedTuple):
    """Batches for one broker, at most one for each partition."""

    address: Address
    batches: list[Batch]


class Drained(NamedTuple):
    """What is to be done now.

    Attributes:
        requests: to be sent, in this order; each comes back by `answered` or `lost`.
        connect: brokers that there is something for, and no connection.
        wake_at: when to look again, if nothing happens before; None for not at all.
    """

    requests: list[Request]
    connect: set[Address]
    wake_at: float | None


class Stored(NamedTuple):
    """A batch is where it belongs; `base_offset` is -1 where nobody said it (`acks` 0).

    `timestamp_ms` is the time of the append, where the stream has those; else -1.
    """

    batch: Batch
    base_offset: int
    timestamp_ms: int


class Failed(NamedTuple):
    """Records that are given up: of a batch, or, without one, of a stream that is not known."""

    waiters: list[Any]
    error: Exception
    batch: Batch | None = None


Outcome = Stored | Failed
