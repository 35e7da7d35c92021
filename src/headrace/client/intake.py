"""Records that a producer takes in: room for them, their partition, the batch that they join.

Owns: batches that still take records, records of streams whose partitions are not known yet, how
much is held. Must not know: what becomes of a batch (`headrace.client.accumulator`), futures (a
`waiter` is handed back as it came), clocks: `now` is in seconds of whoever asks.
"""

from __future__ import annotations

from collections import defaultdict
from operator import index
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headrace.client.errors import BufferFullError, ClientError, error_of
from headrace.client.lanes import Batch, Failed, Headers, Lane, Outcome, Record, Waiters
from headrace.client.partitioners import Sticky, partitioner
from headrace.wire.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from headrace.client.config import ProducerConfig
    from headrace.model import Address
    from headrace.native import Delivery

RECORD_OVERHEAD_BYTES: Final = 21
"""Of a record beside key, value and headers: lengths and deltas at their longest
(`DefaultRecord.MAX_RECORD_OVERHEAD`)."""


class Homeless(NamedTuple):
    """A record of a stream whose partitions are not known yet."""

    record: Record
    partition: int | None
    waiter: Any
    size_bytes: int
    born: float


class Intake:
    """What a producer takes in.

    Args:
        config: of the producer.
        waiters: makes what stands for the records of a batch.

    Attributes:
        buffered_bytes: estimated, of all records.
        wanted: streams whose partitions are to be asked for.
        is_stirred: there may be something to send that was not before.
    """

    def __init__(self, config: ProducerConfig, waiters: Callable[[], Waiters]) -> None:
        self._config = config
        self._waiters = waiters
        self._batch_bytes = config.batch_size
        self._buffer_bytes = config.buffer_memory
        self._record_bytes_max = config.max_request_size
        self._partition = partitioner(config.partitioner)
        self._lanes: dict[str, list[Lane]] = {}
        self._keyless: dict[str, Lane] = {}  # where the next record without a key goes
        self._active: dict[Lane, None] = {}  # those with batches that are not under way
        self._homeless: dict[str, list[Homeless]] = {}
        self._asks: defaultdict[str, int] = defaultdict(int)
        self._orders = 0
        self._outstanding: dict[int, int] = {}  # batches of each order, oldest first
        self.buffered_bytes = 0
        self.wanted: set[str] = set()
        self.is_stirred = False

    def append(
        self, stream: str, partition: int | None, record: Record, waiter: object, now: float
    ) -> Delivery[Any] | None:
        """Takes a record in; what stands for it, or None while its stream is not known.

        `waiter` is told, too, unless it is None; it must be there where the stream is not known.

        Raises:
            BufferFullError: there is no room; it comes back as batches are stored.
            RequestError: the record is larger than any may be.
            ValueError: the stream has no such partition.
        """
        key, value, headers, timestamp_ms = record
        size = RECORD_OVERHEAD_BYTES
        if value is not None:
            size += len(value)
        if key is not None:
            size += len(key)
        if headers:
            size += _bytes_of(headers)
        if self.buffered_bytes + size > self._buffer_bytes or size > self._record_bytes_max:
            raise self._refused(size)
        lane = self._keyless.get(stream) if key is None and partition is None else None
        if lane is None:
            lane = self._lane(stream, partition, key)
        self.buffered_bytes += size
        if lane is None:
            homeless = Homeless(record, partition, waiter, size, now)
            self._homeless.setdefault(stream, []).append(homeless)
            self.wanted.add(stream)
            self.is_stirred = True
            return None
        batch = lane.open
        if batch is None or batch.size_bytes + size > self._batch_bytes:
            batch = self._opened(lane, now)
        batch.size_bytes += size
        if waiter is not None:
            batch.waiters[len(batch.records)] = waiter
        return batch.records.push(batch.waiters, key, value, headers, timestamp_ms)

    def _join(self, lane: Lane, homeless: Homeless) -> None:
        """Takes a record in whose stream was not known before."""
        batch = lane.open
        if batch is None or batch.size_bytes + homeless.size_bytes > self._batch_bytes:
            batch = self._opened(lane, homeless.born)
        batch.size_bytes += homeless.size_bytes
        batch.waiters[len(batch.records)] = homeless.waiter
        batch.records.push(batch.waiters, *homeless.record)

    def _lane(self, stream: str, partition: int | None, key: bytes | None) -> Lane | None:
        """Where a record goes; None while the stream's partitions are not known."""
        lanes = self._lanes.get(stream)
        if lanes is None:
            return None
        is_chosen = partition is None
        if partition is None:
            partition = index(self._partition(stream, key, len(lanes)))
        if not 0 <= partition < len(lanes):
            raise ValueError(f"{stream} has partitions 0 to {len(lanes) - 1}, not {partition}")
        if is_chosen and key is None and isinstance(self._partition, Sticky):
            self._keyless[stream] = lanes[partition]
        return lanes[partition]

    def _refused(self, size: int) -> ClientError:
        for name in ("max_request_size", "buffer_memory"):
            if size > getattr(self._config, name):
                what = f"a record of {size} bytes, more than {name}"
                return error_of(ErrorCode.MESSAGE_TOO_LARGE, what)
        return BufferFullError(
            f"{self.buffered_bytes} bytes of records wait to be acknowledged, and buffer_memory is "
            f"{self._config.buffer_memory}; await ready() or send()"
        )

    def _opened(self, lane: Lane, now: float) -> Batch:
        """A new batch, behind the others of its lane."""
        if lane.open is not None:
            self._closed(lane)
        self._orders += 1
        self._outstanding[self._orders] = 1
        batch = lane.open = Batch(lane, self._orders, now, self._waiters())
        lane.queue.append(batch)
        self._active[lane] = None
        self.is_stirred = True
        return batch

    def _closed(self, lane: Lane) -> None:
        self._keyless.pop(lane.stream, None)
        if isinstance(self._partition, Sticky):
            self._partition.closed(lane.stream)

    def learn(self, stream: str, leaders: Sequence[Address | None]) -> list[Outcome]:
        """The partitions of a stream, each with its leader, where it has one now."""
        self.wanted.discard(stream)
        self._asks.pop(stream, None)
        self._keyless.pop(stream, None)
        lanes = self._lanes.setdefault(stream, [])
        for partition in range(len(lanes), len(leaders)):
            lanes.append(Lane(stream, partition))
        for lane, leader in zip(lanes, leaders, strict=False):
            lane.leader = leader
        outcomes: list[Outcome] = []
        for each in self._homeless.pop(stream, ()):
            try:
                home = self._lane(stream, each.partition, each.record[0])
            except Exception as error:  # noqa: BLE001 - of the program's partitioner, or as of `append`
                outcomes += self._evict([each], error)
            else:
                assert home is not None, "its stream is known"
                self._join(home, each)
        return outcomes

    def _evict(self, homeless: list[Homeless], error: Exception) -> list[Outcome]:
        self.buffered_bytes -= sum(each.size_bytes for each in homeless)
        return [Failed([each.waiter for each in homeless], error)] if homeless else []

    @property
    def streams(self) -> Collection[str]:
        """Streams whose partitions are known."""
        return self._lanes.keys()

    def partitions(self, stream: str) -> int | None:
        """How many partitions a stream has, where that is known."""
        lanes = self._lanes.get(stream)
        return None if lanes is None else len(lanes)

    @property
    def has_homeless(self) -> bool:
        """Whether records wait for their stream's partitions."""
        return bool(self._homeless)

    @property
    def last_order(self) -> int:
        """Of the batches so far."""
        return self._orders

    def is_done_to(self, order: int) -> bool:
        """Whether all batches up to `order` are stored or failed."""
        return next(iter(self._outstanding), order + 1) > order


def _bytes_of(headers: Headers) -> int:
    return sum(10 + len(name) + len(value or b"") for name, value in headers)
