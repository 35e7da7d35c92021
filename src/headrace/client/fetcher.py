"""What a consumer reads: positions, what is fetched, what waits to be handed out. A machine.

Owns: where each partition is read on, which fetch may be under way, how much is kept, in what order
partitions give. Must not know: sockets, groups, clocks: `now` is in seconds of whoever asks.

Invariants:

- what is handed out of a partition begins at its position, which moves past it at once;
- a fetch that was overtaken by a seek, or by the partition going, changes nothing;
- of one broker one fetch is under way, and beside it one for what the program waits for in vain,
  which is not in the first: it may wait for records of others, or have been overtaken;
- a partition is fetched only while it holds no more than `max_partition_fetch_bytes`, which is what
  one answer has of it, and all of them hold less than `queued_max_bytes`; or while the program
  waits for it in vain, for what is paused, or not asked for, must not starve the others;
- partitions give in turn.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace.client.errors import ClientError, OffsetOutOfRangeError, error_of, fetch_error
from headrace.errors import CorruptRecordError, NativeError
from headrace.native import RecordColumns, batch_headers, decode_records
from headrace.wire.kafka.errors import ErrorCode
from headrace.wire.kafka.messages import FetchPartition, FetchRequest, FetchTopic

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from headrace.client.config import ConsumerConfig
    from headrace.client.records import TopicPartition
    from headrace.model import Address
    from headrace.wire.kafka.messages import FetchPartitionResponse

END: Final = 2**62
"""Above every offset."""

RECORDS_MAX: Final = 2**31 - 1

FETCHES_MAX: Final = 2
"""Under way to one broker."""

Error = ClientError | NativeError
"""What a program is told of a partition: a broker refuses, or what it keeps is damaged."""


@dataclass(slots=True)
class Chunk:
    """Records that were fetched together; those before `at` are handed out.

    Attributes:
        size_bytes: as fetched.
    """

    columns: RecordColumns
    size_bytes: int
    at: int = 0


class Slice(NamedTuple):
    """Records of one partition to hand out: rows `start` to before `stop` of `columns`."""

    place: TopicPartition
    columns: RecordColumns
    start: int
    stop: int


@dataclass(eq=False, slots=True)
class Part:
    """A partition that is read.

    Attributes:
        position: offset of the next record to hand out; None until it is known.
        next_fetch: offset of the next record to fetch.
        is_out_of_range: a broker refused the position; what a group has committed is no better.
        version: grows with each seek, so that fetches from before are told.
        is_under_way: a fetch is.
        blocked_until: nothing is fetched before.
        error: to be told to the program, once.
        missing: why it cannot be read now, as long as brokers say that it is not there.
        chunks: what was fetched and not handed out, oldest first.
    """

    place: TopicPartition
    position: int | None = None
    next_fetch: int = 0
    is_out_of_range: bool = False
    version: int = 0
    leader: Address | None = None
    is_paused: bool = False
    is_under_way: bool = False
    blocked_until: float = 0.0
    failures: int = 0
    high_watermark: int | None = None
    error: Error | None = None
    missing: ClientError | None = None
    chunks: deque[Chunk] = field(default_factory=deque)

    @property
    def held_bytes(self) -> int:
        """Fetched and not handed out."""
        return sum(chunk.size_bytes for chunk in self.chunks)


class Fetch(NamedTuple):
    """A fetch to be sent; it comes back by `fetched` or `lost`."""

    address: Address
    request: FetchRequest
    asked: dict[TopicPartition, tuple[Part, int]]


class Drained(NamedTuple):
    """What is to be done now; `wake_at` is when to look again, if nothing happens before."""

    fetches: list[Fetch]
    connect: set[Address]
    wake_at: float | None


class Fetcher:
    """The partitions that a consumer reads, in the order in which they give next."""

    def __init__(self, config: ConsumerConfig) -> None:
        self._config = config
        self._parts: dict[TopicPartition, Part] = {}
        self._busy: Counter[Address] = Counter()
        self._blocked: dict[Address, float] = {}
        self._in_vain: Collection[TopicPartition] | None = ()
        self.wanted: set[str] = set()

    # --- what is read ---------------------------------------------------------------------------

    def assign(self, places: Collection[TopicPartition]) -> None:
        """Reads these and no others; of those that stay all stays."""
        self._parts = {
            place: self._parts.get(place) or Part(place) for place in dict.fromkeys(places)
        }

    @property
    def places(self) -> list[TopicPartition]:
        """What is read."""
        return list(self._parts)

    def part(self, place: TopicPartition) -> Part:
        """One of them.

        Raises:
            ValueError: it is not read.
        """
        part = self._parts.get(place)
        if part is None:
            raise ValueError(f"{place} is not assigned to this consumer")
        return part

    def seek(self, place: TopicPartition, offset: int | None) -> None:
        """Reads on at `offset`; None asks where to begin.

        Raises:
            ValueError: the partition is not read, or the offset is negative.
        """
        if offset is not None and offset < 0:
            raise ValueError(f"{place}: an offset is 0 or more; got {offset}")
        part = self.part(place)
        part.version += 1
        part.is_under_way = False
        part.position, part.next_fetch = offset, offset or 0
        part.is_out_of_range = False
        part.error = None
        part.chunks.clear()

    def lost(self, now: float) -> dict[TopicPartition, int]:
        """Partitions of which nobody has said where to begin, with the version that is lost."""
        return {
            place: part.version
            for place, part in self._parts.items()
            if part.position is None and part.error is None and now >= part.blocked_until
        }

    def begin(self, place: TopicPartition, version: int, where: int | Error) -> None:
        """Where a partition begins that was `lost` in this version, or why nobody knows.

        What was asked before a seek changes nothing after it (KAFKA-7703).
        """
        part = self._parts.get(place)
        if part is None or part.version != version or part.position is not None:
            return
        if isinstance(where, int):
            self.seek(place, where)
        else:
            part.error = where

    def learn(self, leaders: Mapping[TopicPartition, Address | None]) -> None:
        """Who leads partitions."""
        for place, leader in leaders.items():
            part = self._parts.get(place)
            if part is not None:
                part.leader = leader
                part.missing = None if leader is not None else part.missing

    def unled(self, place: TopicPartition, error: ClientError, now: float) -> None:
        """Nobody leads a partition, or it cannot be read: it is left alone for a while."""
        part = self._parts.get(place)
        if part is None:
            return
        part.leader = None
        part.failures += 1
        wait_s = self._config.backoff_s(part.failures)
        if not error.retriable:
            part.missing = error
            wait_s = self._config.retry_backoff_max_ms / 1000
        part.blocked_until = now + wait_s

    @property
    def has_errors(self) -> bool:
        """Whether one is to be told."""
        return any(part.error is not None for part in self._parts.values())

    # --- fetching -------------------------------------------------------------------------------

    def drain(self, now: float, ready: Collection[Address]) -> Drained:
        """Fetches to be sent now to the brokers that are connected."""
        room = self._config.queued_max_bytes - sum(p.held_bytes for p in self._parts.values())
        by_leader: dict[Address, list[Part]] = {}
        for part in self._parts.values():
            is_missed = self._is_missed(part)
            if (room > 0 or is_missed) and self._is_due(part, now):
                if part.leader is None:
                    self.wanted.add(part.place.topic)
                elif self._busy[part.leader] < (FETCHES_MAX if is_missed else 1):
                    by_leader.setdefault(part.leader, []).append(part)
        fetches, connect = [], set()
        for address, parts in by_leader.items():
            if now < self._blocked.get(address, now):
                continue
            if address not in ready:
                connect.add(address)
                continue
            fetches.append(self._fetch(address, parts, room))
        return Drained(fetches, connect, min(self._wakes(now), default=None))

    def _is_due(self, part: Part, now: float) -> bool:
        return (
            part.position is not None
            and not (part.is_paused or part.is_under_way or part.error)
            and now >= part.blocked_until
            and part.held_bytes <= self._config.max_partition_fetch_bytes
        )

    def _is_missed(self, part: Part) -> bool:
        """Whether the program waits for this one, and nothing of it is there."""
        return not part.chunks and (self._in_vain is None or part.place in self._in_vain)

    def _wakes(self, now: float) -> Iterator[float]:
        yield from (part.blocked_until for part in self._parts.values() if part.blocked_until > now)
        yield from (until for until in self._blocked.values() if until > now)

    def _fetch(self, address: Address, parts: list[Part], room: int) -> Fetch:
        config = self._config
        topics: dict[str, list[FetchPartition]] = {}
        for part in parts:
            part.is_under_way = True
            asked = FetchPartition(
                partition=part.place.partition,
                fetch_offset=part.next_fetch,
                partition_max_bytes=config.max_partition_fetch_bytes,
            )
            topics.setdefault(part.place.topic, []).append(asked)
        self._busy[address] += 1
        request = FetchRequest(
            max_wait_ms=config.fetch_max_wait_ms,
            isolation_level=config.isolation,
            min_bytes=config.fetch_min_bytes,
            max_bytes=min(config.fetch_max_bytes, max(room, config.max_partition_fetch_bytes)),
            topics=[FetchTopic(topic=name, partitions=asked) for name, asked in topics.items()],
        )
        return Fetch(address, request, {part.place: (part, part.version) for part in parts})

    def fetched(
        self,
        fetch: Fetch,
        answers: Mapping[TopicPartition, FetchPartitionResponse],
        now: float,
    ) -> None:
        """A broker has answered a fetch, for each partition."""
        self._ended(fetch)
        for place, (part, version) in fetch.asked.items():
            answer = answers.get(place)
            if part.version != version or self._parts.get(place) is not part:
                continue
            if answer is None:
                self._failed(part, error_of(ErrorCode.UNKNOWN_SERVER_ERROR, f"fetch {place}"), now)
            elif answer.error_code:
                error = fetch_error(answer.error_code, str(place), part.next_fetch)
                self._failed(part, error, now)
            elif answer.aborted_transactions and self._config.isolation:
                what = f"fetch {place} at {part.next_fetch}: records of aborted transactions"
                part.error = error_of(ErrorCode.UNSUPPORTED_VERSION, what)
            else:
                part.failures = 0
                part.high_watermark = answer.high_watermark
                if answer.records:
                    self._take_in(part, answer.records)

    def _take_in(self, part: Part, records: bytes) -> None:
        try:
            columns = _decoded(records, part.next_fetch)
        except NativeError as error:
            part.error = type(error)(f"{part.place} at {part.next_fetch}: {error}")
            return
        if columns.next_offset == part.next_fetch:
            part.error = CorruptRecordError(
                f"{part.place} at {part.next_fetch}: the broker sent no whole batch"
            )
            return
        part.next_fetch = columns.next_offset
        if columns.records:
            part.chunks.append(Chunk(columns, len(records)))
        elif not part.chunks:  # nothing but control batches, or what compaction took
            part.position = part.next_fetch

    def _failed(self, part: Part, error: ClientError, now: float) -> None:
        if isinstance(error, OffsetOutOfRangeError):
            if part.chunks:  # what is there is handed out first
                part.blocked_until = now + self._config.retry_backoff_ms / 1000
            elif self._config.auto_offset_reset == "none":
                part.error = error
            else:
                self.seek(part.place, None)
                part.is_out_of_range = True
            return
        moved = error.retriable or error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not moved:
            part.error = error
            return
        part.failures += 1
        part.leader = None
        self.wanted.add(part.place.topic)
        part.blocked_until = now + self._config.backoff_s(part.failures)

    def lost_fetch(self, fetch: Fetch, error: ClientError, now: float) -> None:
        """A fetch has no answer, and will have none."""
        self._ended(fetch)
        for place, (part, version) in fetch.asked.items():
            if part.version == version and self._parts.get(place) is part:
                self._failed(part, error, now)

    def unreached(self, address: Address, now: float) -> None:
        """A broker was not reached: it is left in peace for a while, and leaders are asked for."""
        self._blocked[address] = now + self._config.backoff_s(3)
        self.wanted.update(p.place.topic for p in self._parts.values() if p.leader == address)

    def _ended(self, fetch: Fetch) -> None:
        self._busy[fetch.address] -= 1
        for part, version in fetch.asked.values():
            if part.version == version:
                part.is_under_way = False

    # --- handing out ----------------------------------------------------------------------------

    def take(
        self, records_max: int, among: Collection[TopicPartition] | None = None
    ) -> Slice | Error | None:
        """Records of the next partition that has some, at most `records_max`; or its error.

        Args:
            records_max: 1 or more.
            among: takes of these only.

        Returns:
            None where nothing is there. An error is told once; the partition is read on after it.
        """
        self._in_vain = ()
        for place, part in self._parts.items():
            if part.is_paused or (among is not None and place not in among):
                continue
            if part.chunks:
                self._parts[place] = self._parts.pop(place)
                return self._slice(part, records_max)
            if part.error is not None:
                error, part.error = part.error, None
                return error
        self._in_vain = among
        return None

    def _slice(self, part: Part, records_max: int) -> Slice:
        chunk = part.chunks[0]
        start = chunk.at
        stop = chunk.at = min(chunk.columns.records, start + records_max)
        if stop == chunk.columns.records:
            part.chunks.popleft()
            part.position = chunk.columns.next_offset
            if not part.chunks:
                part.position = part.next_fetch
        else:
            ((part.position, *_),) = chunk.columns.rows(stop, stop + 1)
        return Slice(part.place, chunk.columns, start, stop)

    def positions(self) -> dict[TopicPartition, int]:
        """Of each partition where that is known."""
        return {
            place: part.position for place, part in self._parts.items() if part.position is not None
        }


def _decoded(records: bytes, start: int) -> RecordColumns:
    """All whole batches; where one is damaged those before it.

    Raises:
        NativeError: the first one is damaged.
    """
    try:
        return decode_records(records, start, END, RECORDS_MAX)
    except NativeError:
        rows, end = batch_headers(records)
        end = next((row[0] for row in rows if not row[-1]), end)
        if not end:
            raise
        return decode_records(records[:end], start, END, RECORDS_MAX)
