"""Records on their way to a broker: batches, their order, their repeats. A machine without I/O.

Owns: when a batch is ready, which may be under way together, sequence numbers, what is repeated and
when, what fails. Must not know: which batch a record joins (`headrace.client.intake`), sockets,
futures (`Waiters` are handed back as they came), clocks: `now` is in seconds of whoever asks.

Invariants of a lane, which is one partition:

- its batches are sent in the order of their records, and never to two brokers at a time;
- after a failure nothing is sent until all that was under way has been answered; what failed goes
  first then, in its order;
- with idempotence its batches under way carry consecutive sequence numbers, the first of which is
  the one that the broker waits for. A lane takes a new producer id only when nothing of it is under
  way, and what may have been stored under the old one is failed, not repeated: there are no
  duplicates, and no gaps without an error.

Source: Kafka protocol guide, "Produce"; KIP-98 and KIP-360 for sequences.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from headrace.client.errors import ClientError, DeadlineError, UnknownStreamError, error_of
from headrace.client.intake import Intake
from headrace.client.lanes import (
    Batch,
    Drained,
    Failed,
    Lane,
    Outcome,
    Request,
    Stored,
    Waiters,
)
from headrace.wire.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from headrace.client.config import ProducerConfig
    from headrace.model import Address
    from headrace.wire.kafka.messages import ProducePartitionResponse

UNKNOWN_STREAM_ASKS_MAX: Final = 5
"""Times that metadata is asked for a stream that the brokers do not know: where they create streams
on demand the first answers say so, too."""

_LOST_IDENTITY: Final = frozenset({ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH})

_TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})

_MOVED: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
"""After these the leader is asked for."""

_MAY_BE_STORED: Final = frozenset(
    {
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
"""What a broker may answer after its append, too. What follows such a batch must not take its
sequence numbers: it would be told for a repeat, and not be stored."""


class Accumulator(Intake):
    """What a producer has taken in and not yet seen stored.

    Args:
        config: of the producer.
        jitter: draws from 0 to 1.
        waiters: makes what stands for the records of a batch.

    Attributes:
        flushing: how many wait until all is sent; what lingers is sent at once meanwhile.
    """

    def __init__(
        self,
        config: ProducerConfig,
        jitter: Callable[[], float],
        waiters: Callable[[], Waiters] = Waiters,
    ) -> None:
        super().__init__(config, waiters)
        self._jitter = jitter
        self._linger_s = config.linger_ms / 1000
        self._delivery_s = config.delivery_timeout_ms / 1000
        self._under_way: defaultdict[Address, int] = defaultdict(int)
        self._blocked: dict[Address, float] = {}  # brokers that were not reached
        self._misses: Counter[Address] = Counter()
        self._producer: tuple[int, int] | None = None
        self.flushing = 0

    # --- what is not there ----------------------------------------------------------------------

    def unknown(self, stream: str, code: int) -> list[Outcome]:
        """The brokers do not know a stream, or do not say who leads it.

        One that may come to be is asked for some times more.
        """
        error = error_of(code, f"stream {stream}")
        self._asks[stream] += 1
        may_come = error.retriable or isinstance(error, UnknownStreamError)
        is_patient = error.retriable or self._asks[stream] < UNKNOWN_STREAM_ASKS_MAX
        if may_come and is_patient:
            return []
        self.wanted.discard(stream)
        self._asks.pop(stream, None)
        lanes = [lane for lane in self._active if lane.stream == stream]
        outcomes = [self._failed(batch, error) for lane in lanes for batch in self._cleared(lane)]
        self._keyless.pop(stream, None)
        for lane in self._lanes.pop(stream, []):
            # Should it be there again, its numbers would begin anew.
            if lane.producer == self._producer:
                self._producer = None
        return outcomes + self._evict(self._homeless.pop(stream, []), error)

    def identify(self, producer_id: int, epoch: int) -> None:
        """The id that lanes take for their next batches."""
        self._producer = producer_id, epoch

    def give_up(self, error: ClientError) -> list[Outcome]:
        """Nothing can be sent, for good: all that is not under way fails."""
        outcomes: list[Outcome] = []
        for lane in list(self._active):
            outcomes += [self._failed(batch, error) for batch in self._cleared(lane)]
        for stream in list(self._homeless):
            outcomes += self._evict(self._homeless.pop(stream), error)
        self.wanted.clear()
        return outcomes

    def _cleared(self, lane: Lane) -> list[Batch]:
        self._active.pop(lane, None)
        batches = [*lane.repeats, *lane.queue]
        if lane.repeats:
            lane.is_stale = lane.is_draining = True
        lane.repeats.clear()
        lane.queue.clear()
        lane.open = None
        self._drained(lane)
        return batches

    @property
    def wants_producer(self) -> bool:
        """Whether a producer id is to be asked for."""
        return self._config.is_idempotent and self._producer is None

    # --- what goes out --------------------------------------------------------------------------

    def drain(self, now: float, ready: Collection[Address]) -> Drained:
        """What is to be sent now to the brokers that are connected."""
        requests: list[Request] = []
        connect: set[Address] = set()
        while found := self._pass(now, ready, connect):
            requests += found
        wake_at = min(self._wakes(now), default=None)
        return Drained(requests, connect, wake_at)

    def _pass(self, now: float, ready: Collection[Address], connect: set[Address]) -> list[Request]:
        """At most one request for each broker; lanes that gave a batch stand behind the others."""
        found: dict[Address, tuple[Request, int]] = {}
        for lane in list(self._active):
            batch = self._ready(lane, now)
            if batch is None or (address := self._address(lane, now)) is None:
                continue
            if address not in ready:
                connect.add(address)
                continue
            request, size = found.get(address, (Request(address, []), 0))
            if not request.batches and self._is_full(address):
                continue
            if request.batches and size + batch.size_bytes > self._config.max_request_size:
                continue
            if self._config.is_idempotent and not lane.number(batch, self._producer):
                continue
            self._take(lane, address)
            request.batches.append(batch)
            found[address] = request, size + batch.size_bytes
        for address in found:
            self._under_way[address] += 1
        return [request for request, _ in found.values()]

    def _is_full(self, address: Address) -> bool:
        most = self._config.max_in_flight_requests_per_connection
        return self._under_way[address] >= most

    def _ready(self, lane: Lane, now: float) -> Batch | None:
        """The batch that a lane sends next, if it may now."""
        if lane.is_draining or now < lane.blocked_until:
            return None
        if lane.repeats:
            return lane.repeats[0]
        queue = lane.queue
        if len(queue) > 1 or self.flushing or not self._linger_s:
            return queue[0]
        batch = queue[0]
        is_due = now >= batch.born + self._linger_s
        return batch if is_due or batch.size_bytes >= self._batch_bytes else None

    def _address(self, lane: Lane, now: float) -> Address | None:
        """Where a lane's next batch may go now."""
        if lane.leader is None:
            self.wanted.add(lane.stream)
            return None
        if lane.under_way and lane.at != lane.leader:
            return None
        return None if now < self._blocked.get(lane.leader, now) else lane.leader

    def _take(self, lane: Lane, address: Address) -> None:
        batch = lane.take(address)
        if batch is lane.open:
            lane.open = None
            self._closed(lane)
        del self._active[lane]
        if lane.first is not None:
            self._active[lane] = None

    def _wakes(self, now: float) -> Iterator[float]:
        """Times at which something is due of what waits for nothing else."""
        for lane in self._active:
            first = lane.first
            assert first is not None, "it is active"
            yield first.born + self._delivery_s
            if lane.blocked_until > now:
                yield lane.blocked_until
            elif not lane.repeats and (due := first.born + self._linger_s) > now:
                yield due
        yield from (until for until in self._blocked.values() if until > now)
        for homeless in self._homeless.values():
            yield homeless[0].born + self._config.max_block_ms / 1000

    # --- what comes back ------------------------------------------------------------------------

    def answered(
        self, request: Request, answers: dict[tuple[str, int], ProducePartitionResponse], now: float
    ) -> list[Outcome]:
        """A broker has answered a request, for each partition."""
        self._misses.pop(request.address, None)
        self._under_way[request.address] -= 1
        outcomes: list[Outcome] = []
        for batch in request.batches:
            lane = batch.lane
            answer = answers.get((lane.stream, lane.partition))
            code = ErrorCode.UNKNOWN_SERVER_ERROR if answer is None else answer.error_code
            lane.under_way -= 1
            if answer is not None and code in {ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER}:
                outcomes.append(self._stored(batch, answer.base_offset, answer.log_append_time_ms))
            else:
                error = error_of(code, f"produce to {lane.stream}/{lane.partition}")
                outcomes += self._refused_by(batch, error, now)
            outcomes += self._drained(lane)
        return outcomes

    def sent(self, request: Request) -> list[Outcome]:
        """A request that nobody answers (`acks` 0) was written."""
        self._under_way[request.address] -= 1
        for batch in request.batches:
            batch.lane.under_way -= 1
        return [self._stored(batch, -1, -1) for batch in request.batches]

    def lost(self, request: Request, error: ClientError, now: float) -> list[Outcome]:
        """A request has no answer, and will have none."""
        self._under_way[request.address] -= 1
        outcomes: list[Outcome] = []
        for batch in request.batches:
            batch.lane.under_way -= 1
            batch.is_doubtful = True
            outcomes += self._refused_by(batch, error, now)
            outcomes += self._drained(batch.lane)
        return outcomes

    def unreached(self, address: Address, now: float) -> None:
        """A broker was not reached: it is left in peace for a while, and leaders are asked for."""
        self._misses[address] += 1
        self._blocked[address] = now + self._backoff_s(self._misses[address])
        for lane in self._active:
            if lane.leader == address:
                self.wanted.add(lane.stream)

    def expire(self, now: float) -> list[Outcome]:
        """Gives up what has waited for too long."""
        outcomes: list[Outcome] = []
        for lane in list(self._active):
            while (batch := lane.first) is not None and now >= batch.born + self._delivery_s:
                outcomes += self._expired(batch)
            if lane.first is None:
                self._active.pop(lane, None)
        block_s = self._config.max_block_ms / 1000
        for stream, homeless in list(self._homeless.items()):
            if now >= homeless[0].born + block_s:
                what = f"stream {stream} was not found within max_block_ms"
                error = DeadlineError(f"{what}, {block_s:g} s")
                outcomes += self._evict(self._homeless.pop(stream), error)
                self.wanted.discard(stream)
        return outcomes

    def _expired(self, batch: Batch) -> list[Outcome]:
        lane = batch.lane
        lane.remove(batch)
        why = f": {batch.error}" if batch.error else ""
        error = DeadlineError(
            f"produce to {lane.stream}/{lane.partition}: not stored within delivery_timeout_ms, "
            f"{self._delivery_s:g} s{why}"
        )
        error.__cause__ = batch.error
        outcomes: list[Outcome] = [self._lost_for_good(batch, error)]
        return outcomes + self._drained(lane)

    def _stored(self, batch: Batch, base_offset: int, timestamp_ms: int) -> Stored:
        if batch.sequence >= 0:
            batch.lane.expected = batch.after
        self._done(batch)
        return Stored(batch, base_offset, timestamp_ms)

    def _refused_by(self, batch: Batch, error: ClientError, now: float) -> list[Outcome]:
        """What follows from an error: the batch is repeated, split, or given up."""
        lane = batch.lane
        code = error.code
        batch.error = error
        if code in _MOVED:
            lane.leader = None
            self.wanted.add(lane.stream)
        if code in _MAY_BE_STORED:
            batch.is_doubtful = True
        if code in _TOO_LARGE and len(batch.records) > 1:
            self._outstanding[batch.order] += 1
            self._repeat(lane, *batch.halves())
            return []
        is_first = batch.sequence == lane.expected
        if code in _LOST_IDENTITY or (code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and is_first):
            lane.is_stale = True
            self._repeat(lane, batch)
            return self._tired(lane, batch)
        if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:  # one before it has failed
            self._repeat(lane, batch)
            return []
        if not (error.retriable or code in _MOVED):
            return [self._lost_for_good(batch, error)]
        lane.blocked_until = now + self._backoff_s(batch.attempts)
        self._repeat(lane, batch)
        return self._tired(lane, batch)

    def _tired(self, lane: Lane, batch: Batch) -> list[Outcome]:
        """Gives up a batch that was repeated as often as it may be."""
        if batch.attempts <= self._config.retries:
            return []
        lane.repeats.remove(batch)
        assert batch.error is not None
        return [self._lost_for_good(batch, batch.error)]

    def _repeat(self, lane: Lane, *batches: Batch) -> None:
        lane.repeat(*batches)
        self._active[lane] = None

    def _lost_for_good(self, batch: Batch, error: ClientError) -> Failed:
        """Gives a batch up. Where it may be stored nobody can number what follows it."""
        lane = batch.lane
        if batch.sequence >= 0:
            lane.is_stale = lane.is_stale or batch.is_doubtful
            lane.is_draining = True
        return self._failed(batch, error)

    def _drained(self, lane: Lane) -> list[Outcome]:
        """After each answer: once none is under way, what is repeated gets its numbers anew."""
        if lane.under_way or not lane.is_draining:
            return []
        lane.is_draining = False
        if not self._config.is_idempotent:
            return []
        if not lane.is_stale:
            lane.renumber()
            return []
        if self._producer == lane.producer:
            self._producer = None
        outcomes: list[Outcome] = []
        for batch in lane.forget_producer():
            assert batch.error is not None, "an error brought the doubt"
            outcomes.append(self._failed(batch, batch.error))
        if lane.first is None:
            self._active.pop(lane, None)
        return outcomes

    def _failed(self, batch: Batch, error: ClientError) -> Failed:
        self._done(batch)
        return Failed(list(batch.waiters.values()), error, batch)

    def _done(self, batch: Batch) -> None:
        self.buffered_bytes -= batch.size_bytes
        self._outstanding[batch.order] -= 1
        if not self._outstanding[batch.order]:
            del self._outstanding[batch.order]

    def _backoff_s(self, attempts: int) -> float:
        return self._config.backoff_s(attempts) * (0.8 + 0.4 * self._jitter())
