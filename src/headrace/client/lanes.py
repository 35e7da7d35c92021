"""What a producer holds of one partition: batches, and where each of them stands.

Owns the shapes that `accumulator` works on. Must not know what is done with them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headrace import native

if TYPE_CHECKING:
    from headrace.client.errors import ClientError
    from headrace.model import Address

NO_PRODUCER: Final = (-1, -1)
"""Id and epoch of a lane that has none yet."""

SEQUENCES: Final = 2**31
"""Sequence numbers begin again at 0 after the last of them."""

Headers = Sequence[tuple[str, bytes | None]]
Record = tuple[bytes | None, bytes | None, Headers, int]
"""Key, value, headers, timestamp in ms: as `native.build_batch` takes it."""


@dataclass(eq=False, slots=True)
class Batch:
    """Records that are sent together.

    Attributes:
        lane: their partition.
        order: counts the batches of a producer.
        born: when its first record came.
        waiters: of each record, in their order.
        size_bytes: of the records, estimated.
        sequence: of the first record; -1 without idempotence, and until it is sent.
        attempts: how often it was sent.
        is_doubtful: it may have been stored although no answer said so.
        error: why it is not there yet.
    """

    lane: Lane
    order: int
    born: float
    records: list[Record] = field(default_factory=list)
    waiters: list[Any] = field(default_factory=list)
    size_bytes: int = 0
    sequence: int = -1
    attempts: int = 0
    is_doubtful: bool = False
    error: ClientError | None = None

    @property
    def after(self) -> int:
        """The sequence number that follows its records."""
        return (self.sequence + len(self.records)) % SEQUENCES

    def encoded(self, codec: str) -> bytes:
        """The record batch, with who wrote it."""
        producer = (*self.lane.producer, self.sequence)
        return native.build_batch(self.records, codec, producer=producer)


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
    """Records that are given up: of a batch, or of a stream that is not known."""

    waiters: list[Any]
    error: ClientError


Outcome = Stored | Failed
