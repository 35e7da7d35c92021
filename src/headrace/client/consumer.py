"""`headrace.Consumer`: records out of streams, asynchronously.

Owns: what a program may call, and what each call waits for. Must not know how records come
(`headrace.client.reader`), what of them is done (`headrace.client.handed`), or where a group's
members are (`headrace.client.group`). Lives in one event loop.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Self

from headrace.client.commits import Commits
from headrace.client.config import ConsumerConfig
from headrace.client.errors import ClientError
from headrace.client.fetcher import Slice
from headrace.client.partitions import Partitions
from headrace.client.pump import now_s
from headrace.client.records import place_of
from headrace.client.subscription import RebalanceListener, Subscription

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from headrace.client.records import OffsetAndMetadata, Record, TopicPartition


class Consumer(Partitions):
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
        config = ConsumerConfig.of(bootstrap_servers, settings)
        super().__init__(config)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._subscription = Subscription(
            config, self._cluster, self._connections, self, self._reader
        )
        self._commits = Commits(config, self._cluster, lambda: self._subscription.identity)
        self._is_closed = False
        if topics:
            self.subscribe(topics)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self._close(is_last_done=kind is None)

    async def start(self) -> None:
        """Reaches the cluster.

        Raises:
            ClientError: no broker is reached within `default_api_timeout_ms`, or one refuses.
            RuntimeError: it was started before.
        """
        if self._loop is not None:
            raise RuntimeError("a consumer is started once; make another one")
        self._loop = asyncio.get_running_loop()
        self._commits.later()
        try:
            await self._cluster.persist("metadata", lambda: self._cluster.topics([], create=False))
        except BaseException:
            await self._cluster.close()
            raise
        self._reader.pump.start()

    async def close(self) -> None:
        """Commits what was handed out, where `enable_auto_commit`, leaves, and ends."""
        await self._close(is_last_done=True)

    async def _close(self, *, is_last_done: bool) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self._loop is None:
            await self._cluster.close()
            return
        try:
            if self._commits.is_automatic:
                done = self._handed.positions() | ({} if is_last_done else self._handed.before)
                await self._commits.commit_done(done)
        finally:
            try:
                await self._subscription.close()
            finally:
                await self._reader.pump.close()
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
            ValueError: neither is given, or both; or the pattern is no regular expression.
            TypeError: a stream's name is no text, or the listener is no `RebalanceListener`.
        """
        names = [topics] if isinstance(topics, str) else list(topics)
        if bool(names) == (pattern is not None):
            raise ValueError("subscribe needs streams, or a pattern")
        for name in names:
            if not isinstance(name, str):
                raise TypeError(f"a stream's name is text; got {name!r}")
        if not isinstance(listener, RebalanceListener | None):
            raise TypeError(f"a listener is a headrace.RebalanceListener; got {listener!r}")
        try:
            matches = None if pattern is None else re.compile(pattern)
        except re.error as error:
            raise ValueError(f"pattern {pattern!r} is no regular expression: {error}") from None
        self._subscription.set(names, matches, listener)
        self._reader.changed.set()

    def unsubscribe(self) -> None:
        """Reads nothing any more, and leaves the group."""
        self._subscription.clear()
        self.read(())

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Reads these partitions and no others, whatever a group does; leaves it.

        Those that were read before are read on where they were.

        Raises:
            TypeError: one is no `TopicPartition`.
        """
        places = [place_of(each) for each in partitions]
        self._subscription.clear()
        self.read(places)

    def read(self, places: Collection[TopicPartition]) -> None:
        """What the subscription says (`assign` is for programs)."""
        super().read(places)
        self._commits.only(places)

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
            CorruptMessageError: what a broker keeps is damaged; `seek` beyond it to go on.
            CorruptRecordError: what a broker sent is damaged; as before.
            Exception: what a deserializer raised; the record stays the next one until a `seek`.
        """
        while (record := self.next_held()) is None:
            self._handed.before = {}  # who asks again is done with what it had
            if self._handed.rows:
                with self._waiting():
                    await self._keep_up()
                continue
            found = await self._take(self.config.max_poll_records, None, None)
            assert found is not None, "it waits for ever"
            self._handed.hold(found)
        return record

    def next_held(self) -> Record | None:
        """The next record, where it needs nobody to wait: what `getone` would give next."""
        if not self._handed.rows or self._is_closed or self._is_due():
            return None
        return self._handed.next()

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
                records = self._handed.records(found)
            except Exception:
                if many:  # the call for what comes next tells it
                    break
                raise
            self._handed.before.setdefault(found.place, records[0].offset)
            many.setdefault(found.place, []).extend(records)
            room -= len(records)
            more = (
                self._fetcher.take(room, among) if room and not self._fetcher.has_errors else None
            )
            found = more if isinstance(more, Slice) else None
        self._reader.pump.soon()
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
        self._handed.before[found.place] = rows["offset"][0].as_py()
        return rows

    def _at_most(self, max_records: int | None) -> int:
        if max_records is None:
            return self.config.max_poll_records
        if max_records < 1:
            raise ValueError(f"max_records must be 1 or more; got {max_records}")
        return max_records

    def _give_back(self) -> None:
        """What was handed out before is done, and what waits one by one is not lost."""
        self._handed.before = {}
        self._handed.take_back()

    async def _take(
        self, most: int, among: Collection[TopicPartition] | None, timeout_ms: int | None
    ) -> Slice | None:
        with self._waiting():
            until = None if timeout_ms is None else now_s() + timeout_ms / 1000
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
            if self._reader.failures:
                raise self._reader.failures.popleft()
            found = self._fetcher.take(most, among)
            self._reader.pump.soon()
            if isinstance(found, Slice):
                return found
            if found is not None:
                raise found
            with suppress(TimeoutError):
                async with asyncio.timeout_at(min(self._commits.due_at, self._subscription.due_at)):
                    await self._reader.changed.wait()

    def _is_due(self) -> bool:
        """Whether something is to be done before the next record; to ask is a sign of life."""
        assert self._loop is not None
        now = self._loop.time()  # a blocking client asks in its program's thread
        return self._subscription.is_due(now) or now >= self._commits.due_at

    async def _keep_up(self) -> None:
        """What is due between two calls for records: the subscription, and commits."""
        now = now_s()
        await self._subscription.keep_up(now)
        if now >= self._commits.due_at:
            self._commits.due_at = float("inf")  # until this one has ended
            self._reader.pump.begin(self._commit_done(self._handed.positions()))

    async def done(self, places: Collection[TopicPartition]) -> None:
        """Commits what was handed out of partitions that go to others."""
        if self._commits.is_automatic:
            positions = self._handed.positions()
            await self._commit_done({p: o for p, o in positions.items() if p in places})

    async def _commit_done(self, positions: Mapping[TopicPartition, int]) -> None:
        """What fails for good is told by the next call for records."""
        try:
            await self._commits.commit_done(positions)
        except ClientError as error:
            self._reader.fail(error)

    # --- offsets --------------------------------------------------------------------------------

    async def commit(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None
    ) -> None:
        """Keeps how far the group has read; on return it is durable.

        Args:
            offsets: of the next records; None stands for all that was handed out.

        Raises:
            ValueError: the consumer has no `group_id`, or an offset is negative.
            TypeError: a partition or an offset is none.
            ClientError: it was refused, or the brokers are not reached.
        """
        await self._commits.commit(self._handed.positions() if offsets is None else offsets)

    async def committed(
        self, *partitions: TopicPartition
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """How far the group has read these, or all that are read; those without are left out.

        Raises:
            ValueError: the consumer has no `group_id`.
            ClientError: the brokers are not reached, or refuse.
        """
        return await self._commits.committed(self._or_all(partitions))
