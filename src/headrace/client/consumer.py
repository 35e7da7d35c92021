"""`headrace.Consumer`: records out of streams, asynchronously.

Owns: what a program is given and what of that is done, subscriptions, commits. Must not know how
records come (`headrace.client.reader`), or where a group's members are (`headrace.client.group`).
Lives in one event loop.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Self

from headrace.client.cluster import Cluster
from headrace.client.config import ConsumerConfig
from headrace.client.errors import (
    ClientError,
)
from headrace.client.fetcher import Slice
from headrace.client.offsets import commit, committed, offsets_by_time
from headrace.client.reader import Reader
from headrace.client.records import (
    OffsetAndMetadata,
    OffsetAndTimestamp,
    Record,
    TopicPartition,
    record_of,
)
from headrace.client.subscription import RebalanceListener, Subscription
from headrace.wire.kafka.errors import ErrorCode
from headrace.wire.kafka.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa


MOVED_ON: Final = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)
"""A group has gone on without a commit."""


class Consumer:
    """Reads streams: record by record, in lists, or as Arrow batches.

    Use it in `async with`, which connects and, at the end, commits and leaves::

        async with headrace.Consumer("127.0.0.1:9092", "readings", group_id="plot") as consumer:
            async for record in consumer:
                print(record.key, record.value)

    Args:
        bootstrap_servers: `HOST:PORT`, separated by commas; one that lives is enough.
        topics: streams to `subscribe` to.
        **settings: fields of `ConsumerConfig`.

    Raises:
        ConfigError: a setting is unknown or out of range.
        ValueError: `bootstrap_servers` is malformed.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] | None = None,
        topics: str | Iterable[str] = (),
        **settings: Any,  # noqa: ANN401 - their types are those of the configuration
    ) -> None:
        self.config = config = ConsumerConfig.of(bootstrap_servers, settings)
        self._cluster = self._connections()
        self._fetching = self._connections()
        self._reader = Reader(config, self._cluster, self._fetching)
        self._fetcher = self._reader.fetcher
        self._loop: asyncio.AbstractEventLoop | None = None
        self._rows: deque[Record] = deque()  # of one partition, to be handed out one by one
        self._before: dict[TopicPartition, int] = {}  # positions before what was handed out last
        self._kept: dict[TopicPartition, int] = {}  # what it has committed by itself
        self._commit_at = float("inf")
        self._subscription = Subscription(
            config, self._cluster, self._connections, self, self._reader
        )
        self._is_closed = False
        if topics:
            self.subscribe(topics)

    def _connections(self) -> Cluster:
        return Cluster(self.config)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self._close(is_last_done=kind is None)

    async def start(self) -> None:
        """Reaches the cluster.

        Raises:
            ClientError: no broker is reached within `default_api_timeout_ms`, or one refuses.
        """
        assert self._loop is None, "a consumer is started once"
        self._loop = asyncio.get_running_loop()
        if self._commits:
            self._commit_at = self._now() + self.config.auto_commit_interval_ms / 1000
        try:
            await self._cluster.persist("metadata", lambda: self._cluster.topics([], create=False))
        except BaseException:
            await self._cluster.close()
            raise
        self._reader.start()

    async def close(self) -> None:
        """Commits what was handed out, where `enable_auto_commit`, leaves, and ends."""
        await self._close(is_last_done=True)

    async def _close(self, *, is_last_done: bool) -> None:
        if self._loop is None or self._is_closed:
            return
        self._is_closed = True
        try:
            if self._commits:
                done = self._positions() | ({} if is_last_done else self._before)
                await self._commit_done(done)
        finally:
            try:
                await self._subscription.close()
            finally:
                await self._reader.close()
                await asyncio.gather(self._cluster.close(), self._fetching.close())

    # --- what is read ---------------------------------------------------------------------------

    def subscribe(
        self,
        topics: str | Iterable[str] = (),
        *,
        pattern: str | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Reads streams, and their new partitions as they come.

        With a `group_id` the members of that group share the partitions out; without one all are
        read.

        Args:
            topics: one or more streams.
            pattern: instead, a regular expression that the whole name must match.
            listener: is told of partitions that come and go.

        Raises:
            ValueError: neither is given, or both.
        """
        names = [topics] if isinstance(topics, str) else list(topics)
        if bool(names) == (pattern is not None):
            raise ValueError("subscribe needs streams, or a pattern")
        self._subscription.set(names, None if pattern is None else re.compile(pattern), listener)
        self._reader.changed.set()

    def unsubscribe(self) -> None:
        """Reads nothing any more, and leaves the group."""
        self._subscription.clear()
        self.read(())

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Reads these partitions and no others, whatever a group does; leaves it."""
        self.unsubscribe()
        self.read([TopicPartition(*each) for each in partitions])

    def assignment(self) -> set[TopicPartition]:
        """Partitions that are read."""
        return set(self._fetcher.places)

    def read(self, places: Collection[TopicPartition]) -> None:
        """What the subscription says (`assign` is for programs)."""
        self._fetcher.assign(places)
        if self._rows and self._rows[0].place not in places:
            self._rows.clear()
        self._before = {p: offset for p, offset in self._before.items() if p in places}
        self._kept = {p: offset for p, offset in self._kept.items() if p in places}
        self._reader.pump_soon()

    def pause(self, *partitions: TopicPartition) -> None:
        """Hands out nothing of these until `resume`; positions stay.

        Raises:
            ValueError: one is not read.
        """
        for place in partitions:
            self._fetcher.part(place).is_paused = True
            self._unread(place)

    def resume(self, *partitions: TopicPartition) -> None:
        """Goes on with these.

        Raises:
            ValueError: one is not read.
        """
        for place in partitions:
            self._fetcher.part(place).is_paused = False
        self._reader.pump_soon()
        self._reader.changed.set()

    def paused(self) -> set[TopicPartition]:
        """Partitions that are paused."""
        return {p for p in self._fetcher.places if self._fetcher.part(p).is_paused}

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Reads on at `offset`, 0 or more.

        Raises:
            ValueError: the partition is not read, or the offset is negative.
        """
        self._fetcher.seek(partition, offset)
        if self._rows and self._rows[0].place == partition:
            self._rows.clear()
        self._before.pop(partition, None)
        self._reader.pump_soon()

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Reads these, or all, from the first record that is kept.

        Raises:
            ValueError: one is not read.
            ClientError: the brokers are not reached, or refuse.
        """
        for place, offset in (await self.beginning_offsets(self._or_all(partitions))).items():
            self.seek(place, offset)

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Reads these, or all, from the next record on.

        Raises:
            ValueError: one is not read.
            ClientError: the brokers are not reached, or refuse.
        """
        for place, offset in (await self.end_offsets(self._or_all(partitions))).items():
            self.seek(place, offset)

    def _or_all(self, partitions: Collection[TopicPartition]) -> Collection[TopicPartition]:
        return partitions or self._fetcher.places

    def _unread(self, place: TopicPartition) -> None:
        """Records that wait to be handed out one by one are taken back."""
        if self._rows and self._rows[0].place == place:
            self._fetcher.seek(place, self._rows[0].offset)
            self._rows.clear()

    # --- records --------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Record:
        return await self.getone()

    async def getone(self) -> Record:
        """The next record; waits for one.

        Raises:
            OffsetOutOfRangeError: with `auto_offset_reset` none, there is nowhere to begin.
            ClientError: a broker refuses for good.
            CorruptRecordError: what a broker sent is damaged; `seek` beyond it to go on.
            Exception: what a deserializer raised; the record stays the next one until a `seek`.
        """
        while (record := self.next_held()) is None:
            self._before = {}  # who asks again is done with what it had
            if self._rows:
                with self._waiting():
                    await self._keep_up()
                continue
            found = await self._take(self.config.max_poll_records, None, None)
            assert found is not None, "it waits for ever"
            self._rows.extend(self._records(found))
        return record

    def next_held(self) -> Record | None:
        """The next record, where it needs nobody to wait: what `getone` would give next."""
        if not self._rows or self._is_closed or self._is_due():
            return None
        record = self._rows.popleft()
        self._before = {record.place: record.offset}
        return record

    async def getmany(
        self,
        *partitions: TopicPartition,
        timeout_ms: int | None = None,
        max_records: int | None = None,
    ) -> dict[TopicPartition, list[Record]]:
        """Records by partition, in order; waits for the first.

        Args:
            *partitions: takes of these only; none stands for all.
            timeout_ms: how long it waits; None waits for ever.
            max_records: 1 or more; None takes `max_poll_records`.

        Raises:
            ClientError, CorruptRecordError, what a deserializer raises: as `getone`; only where
                there are no records before.
        """
        room = self._at_most(max_records)
        among = partitions or None
        self._give_back()
        many: dict[TopicPartition, list[Record]] = {}
        found = await self._take(room, among, timeout_ms)
        while found is not None:
            try:
                records = self._records(found)
            except Exception:
                if many:  # the call for what comes next tells it
                    break
                raise
            self._before.setdefault(found.place, records[0].offset)
            many.setdefault(found.place, []).extend(records)
            room -= len(records)
            more = (
                self._fetcher.take(room, among) if room and not self._fetcher.has_errors else None
            )
            found = more if isinstance(more, Slice) else None
        self._reader.pump_soon()
        return many

    async def get_arrow(
        self,
        *partitions: TopicPartition,
        timeout_ms: int | None = None,
        max_records: int | None = None,
    ) -> pa.RecordBatch | None:
        """Records of one partition as Arrow; no Python object is made for any of them.

        Columns: `key` and `value` (binary), `topic`, `partition`, `offset`, `timestamp`
        (microseconds, UTC), `headers` (list of `key`, `value`). Deserializers are not asked.

        Args:
            *partitions: takes of these only; none stands for all.
            timeout_ms: how long it waits for the first; None waits for ever.
            max_records: 1 or more; None takes what was fetched together.

        Returns:
            None where nothing came in time.

        Raises:
            ClientError, CorruptRecordError: as `getone`.
            ImportError: pyarrow is not installed (`pip install headrace[spark]` has it).
        """
        from headrace.client.arrow import record_batch  # noqa: PLC0415 - pyarrow is optional

        most = 2**31 - 1 if max_records is None else self._at_most(max_records)
        self._give_back()
        found = await self._take(most, partitions or None, timeout_ms)
        if found is None:
            return None
        whole = record_batch(found.columns, *found.place)
        rows = whole.slice(found.start, found.stop - found.start)
        self._before[found.place] = rows["offset"][0].as_py()
        return rows

    def _at_most(self, max_records: int | None) -> int:
        if max_records is None:
            return self.config.max_poll_records
        if max_records < 1:
            raise ValueError(f"max_records must be 1 or more; got {max_records}")
        return max_records

    def _give_back(self) -> None:
        """What was handed out before is done, and what waits one by one is not lost."""
        self._before = {}
        if self._rows:
            self._unread(self._rows[0].place)

    def _records(self, found: Slice) -> list[Record]:
        """Those before the first that a deserializer refuses, which is the next to be read."""
        stream, partition = found.place
        of_key, of_value = self.config.key_deserializer, self.config.value_deserializer
        records: list[Record] = []
        for offset, timestamp, raw_key, raw_value, headers in found.columns.rows(
            found.start, found.stop
        ):
            try:
                key = raw_key if of_key is None else of_key(raw_key)
                value = raw_value if of_value is None else of_value(raw_value)
            except Exception as error:
                self._fetcher.seek(found.place, offset)
                if records:
                    break
                error.add_note(f"{found.place} at {offset}: seek beyond it to go on")
                raise
            records.append(record_of((stream, partition, offset, timestamp, key, value, headers)))
        return records

    async def _take(
        self, most: int, among: Collection[TopicPartition] | None, timeout_ms: int | None
    ) -> Slice | None:
        with self._waiting():
            until = None if timeout_ms is None else self._now() + timeout_ms / 1000
            try:
                async with asyncio.timeout_at(until):
                    return await self._wait(most, among)
            except TimeoutError:
                return None

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        if self._loop is None or self._is_closed:
            raise RuntimeError("the consumer is not open; use it in `async with`")
        with self._subscription.waiting():
            yield

    async def _wait(self, most: int, among: Collection[TopicPartition] | None) -> Slice:
        """May be cancelled wherever it waits: nothing is lost by it."""
        while True:
            self._reader.changed.clear()
            await self._keep_up()
            found = self._fetcher.take(most, among)
            self._reader.pump_soon()
            if isinstance(found, Slice):
                return found
            if found is not None:
                raise found
            if self._reader.failure is not None:
                failure, self._reader.failure = self._reader.failure, None
                raise failure
            with suppress(TimeoutError):
                async with asyncio.timeout_at(min(self._commit_at, self._subscription.due_at)):
                    await self._reader.changed.wait()

    def _now(self) -> float:
        assert self._loop is not None
        return self._loop.time()

    def _is_due(self) -> bool:
        """Whether something is to be done before the next record; to ask is a sign of life."""
        now = self._now()
        return self._subscription.is_due(now) or now >= self._commit_at

    async def _keep_up(self) -> None:
        """What is due between two calls for records: the subscription, and commits."""
        now = self._now()
        await self._subscription.keep_up(now)
        if self._commits and now >= self._commit_at:
            self._commit_at = float("inf")  # until this one has ended
            self._reader.begin(self._commit_done(self._positions()))

    @property
    def _commits(self) -> bool:
        """Whether it commits by itself."""
        return self.config.enable_auto_commit and self.config.group_id is not None

    async def done(self, places: Collection[TopicPartition]) -> None:
        """Commits what was handed out of partitions that go to others."""
        if self._commits:
            await self._commit_done({p: o for p, o in self._positions().items() if p in places})

    # --- offsets --------------------------------------------------------------------------------

    async def position(self, partition: TopicPartition) -> int:
        """Offset of the next record that is handed out.

        Raises:
            ValueError: the partition is not read.
            ClientError: nobody can say.
        """
        while (offset := self._positions().get(partition)) is None:
            self._fetcher.part(partition)
            self._reader.changed.clear()
            self._reader.pump_soon()
            await self._reader.changed.wait()
            if self._reader.failure is not None:
                raise self._reader.failure
            error = self._fetcher.part(partition).error
            if error is not None:
                raise error
        return offset

    def _positions(self) -> dict[TopicPartition, int]:
        positions = self._fetcher.positions()
        if self._rows:
            positions[self._rows[0].place] = self._rows[0].offset
        return positions

    def highwater(self, partition: TopicPartition) -> int | None:
        """Offset after the last committed record, as the last fetch said; None before one.

        Raises:
            ValueError: the partition is not read.
        """
        return self._fetcher.part(partition).high_watermark

    async def commit(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None
    ) -> None:
        """Keeps how far the group has read; on return it is durable.

        Args:
            offsets: of the next records; None stands for all that was handed out.

        Raises:
            ValueError: the consumer has no `group_id`.
            ClientError: it was refused, or the brokers are not reached.
        """
        wanted = self._positions() if offsets is None else offsets
        self._kept.clear()
        await self._commit(
            {
                TopicPartition(*place): OffsetAndMetadata(each) if isinstance(each, int) else each
                for place, each in wanted.items()
            }
        )

    async def _commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        group = self._group()
        if offsets:
            await self._cluster.persist(
                f"commit of {group}",
                lambda: commit(self._cluster, group, offsets, self._subscription.identity),
            )

    async def _commit_done(self, positions: Mapping[TopicPartition, int]) -> None:
        """Commits by itself; what fails for good is told by the next call for records."""
        news = {p: o for p, o in positions.items() if o != self._kept.get(p)}
        try:
            await self._commit({p: OffsetAndMetadata(o) for p, o in news.items()})
            self._kept |= news
        except ClientError as error:
            if error.code in MOVED_ON:  # whoever has the partitions now reads them again
                log.info("%s", error)
            elif self._is_closed:
                raise
            else:
                self._reader.fail(error)
        finally:
            self._commit_at = self._now() + self.config.auto_commit_interval_ms / 1000

    def _group(self) -> str:
        if self.config.group_id is None:
            raise ValueError("the consumer has no group_id to commit for")
        return self.config.group_id

    async def committed(
        self, *partitions: TopicPartition
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """How far the group has read these, or all that are read; those without are left out.

        Raises:
            ValueError: the consumer has no `group_id`.
            ClientError: the brokers are not reached, or refuse.
        """
        group, places = self._group(), self._or_all(partitions)
        return await self._cluster.persist(
            f"offsets of {group}", lambda: committed(self._cluster, group, places)
        )

    async def offsets_for_times(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after a time, in ms since 1970; None where all are older.

        Raises:
            UnknownStreamError: there is no such stream or partition.
            ClientError: the brokers are not reached, or refuse.
        """
        found = await self._ask_offsets(times)
        return {
            place: None if each.offset < 0 else OffsetAndTimestamp(each.offset, each.timestamp)
            for place, each in found.items()
        }

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Offset of the first record that is kept.

        Raises:
            ClientError: as `offsets_for_times`.
        """
        found = await self._ask_offsets(dict.fromkeys(partitions, EARLIEST_TIMESTAMP))
        return {place: each.offset for place, each in found.items()}

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Offset after the last committed record.

        Raises:
            ClientError: as `offsets_for_times`.
        """
        found = await self._ask_offsets(dict.fromkeys(partitions, LATEST_TIMESTAMP))
        return {place: each.offset for place, each in found.items()}

    async def _ask_offsets(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, Any]:
        wanted = {TopicPartition(*place): time for place, time in times.items()}
        return await self._cluster.persist(
            "offsets", lambda: offsets_by_time(self._cluster, wanted)
        )
