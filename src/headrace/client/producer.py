"""`headrace.Producer`: records into streams, asynchronously.

Owns: futures of records, connections, timers; moves what the accumulator says and tells it what
came of it. Must not know which batch a record is in, or what follows from an error. Lives in one
event loop.
"""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeVar

from headrace.client.accumulator import Accumulator
from headrace.client.cluster import Cluster
from headrace.client.config import ProducerConfig
from headrace.client.errors import BufferFullError, ClientError, ConnectionLostError, check
from headrace.client.lanes import Failed
from headrace.wire.kafka.apis import INIT_PRODUCER_ID, PRODUCE
from headrace.wire.kafka.messages import (
    InitProducerIdRequest,
    ProducePartition,
    ProduceRequest,
    ProduceTopic,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence

    from headrace.client.connection import Connection
    from headrace.client.lanes import Headers, Outcome, Request, Stored
    from headrace.model import Address

T = TypeVar("T")

READY_SHARE: Final = 2
"""`ready` waits while more than this part of `buffer_memory` is in use: what is sent then leaves in
large batches, and is never refused."""


class RecordMetadata(NamedTuple):
    """Where a record is.

    Attributes:
        topic: its stream.
        partition: 0 or more.
        offset: 0 or more; -1 with `acks` 0, where nobody says it.
        timestamp: milliseconds since 1970: its own, or that of its append where the stream has
            `message.timestamp.type` LogAppendTime.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int


_metadata = partial(tuple.__new__, RecordMetadata)
"""As `RecordMetadata` of four values, for every record: the class itself takes twice as long."""


class Producer:
    """Sends records to streams, in batches, and tells when each is stored.

    Use it in `async with`, which connects and, at the end, waits for what is under way::

        async with headrace.Producer("127.0.0.1:9092") as producer:
            await producer.send("readings", b"21.5", key=b"room-7")

    Args:
        bootstrap_servers: `HOST:PORT`, separated by commas; one that lives is enough.
        **settings: fields of `ProducerConfig`.

    Raises:
        ConfigError: a setting is unknown or out of range.
        ValueError: `bootstrap_servers` is malformed.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] | None = None,
        **settings: Any,  # noqa: ANN401 - their types are those of the configuration
    ) -> None:
        self.config = config = ProducerConfig.of(bootstrap_servers, settings)
        self._serializes = bool(config.key_serializer or config.value_serializer)
        self._accumulator = Accumulator(config, random.random)
        self._cluster = Cluster(config)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._connecting: set[Address] = set()
        self._learning = False
        self._identifying = False
        self._is_pumping = False
        self._wake: asyncio.TimerHandle | None = None
        self._refresh: asyncio.TimerHandle | None = None
        self._waiting: set[asyncio.Future[None]] = set()
        self._crowd = asyncio.Lock()  # of those who found no room
        self._is_closed = False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Reaches the cluster, and gets a producer id where there is to be one.

        Raises:
            ClientError: no broker is reached within `default_api_timeout_ms`, or one refuses.
        """
        assert self._loop is None, "a producer is started once"
        self._loop = asyncio.get_running_loop()
        try:
            if self.config.is_idempotent:
                await self._cluster.persist("producer id", self._identify)
            else:
                await self._cluster.persist(
                    "metadata", lambda: self._cluster.topics([], create=False)
                )
        except BaseException:
            await self._cluster.close()
            raise
        self._refresh_later()

    # --- sending --------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        value: Any = None,  # noqa: ANN401 - what the serializer takes
        *,
        key: Any = None,  # noqa: ANN401
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> RecordMetadata:
        """Sends a record and waits until it is acknowledged.

        Waits for room first, where there is none, for `max_block_ms` at most.

        Args:
            topic: the stream.
            value: bytes, or what `value_serializer` takes; None is a tombstone where the stream is
                compacted.
            key: bytes, or what `key_serializer` takes; records of one key keep their order.
            partition: 0 or more; None leaves the choice to the partitioner.
            timestamp_ms: milliseconds since 1970; None is now.
            headers: pairs of a name and bytes or None.

        Raises:
            ClientError: it was not stored, or nobody can say: `DeadlineError` after
                `delivery_timeout_ms`, `RequestError` where a broker refused it.
            TypeError: key, value or a header is of another type.
            ValueError: the stream has no such partition.
        """
        sent = partial(
            self.send_nowait, topic, value, key=key, partition=partition,
            timestamp_ms=timestamp_ms, headers=headers,
        )  # fmt: skip
        try:
            future = sent()
        except BufferFullError:
            future = await self._with_room(topic, sent)
        return await future

    async def _with_room(self, topic: str, sent: Callable[[], T]) -> T:
        """What `sent` gives once there is room; who came first gets it first.

        Raises:
            BufferFullError: there was none within `max_block_ms`.
        """
        async with self._blocking(topic), self._crowd:
            while True:
                with suppress(BufferFullError):
                    return sent()
                await self._change()

    def send_nowait(
        self,
        topic: str,
        value: Any = None,  # noqa: ANN401
        *,
        key: Any = None,  # noqa: ANN401
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> asyncio.Future[RecordMetadata]:
        """Takes a record in and returns a future of where it is; arguments as of `send`.

        To cancel the future does not take the record back.

        Raises:
            BufferFullError: as much waits as may (`buffer_memory`); `await ready()` between records
                leaves room.
            RequestError: the record is larger than `max_request_size`.
            TypeError, ValueError: as `send`.
        """
        loop = self._loop
        if loop is None or self._is_closed:
            raise RuntimeError("the producer is not open; use it in `async with`")
        if self._serializes:
            key, value = self._serialized(key, value)
        if (value is not None and type(value) is not bytes) or (
            key is not None and type(key) is not bytes
        ):
            key, value = _as_bytes("key", key), _as_bytes("value", value)
        if timestamp_ms is None:
            timestamp_ms = time.time_ns() // 1_000_000
        record = (key, value, _checked(headers) if headers else (), timestamp_ms)
        future: asyncio.Future[RecordMetadata] = asyncio.Future(loop=loop)
        if self._accumulator.append(topic, partition, record, future, loop.time()):
            self._pump_soon()
        return future

    def _serialized(self, key: object, value: object) -> tuple[bytes | None, bytes | None]:
        of_key, of_value = self.config.key_serializer, self.config.value_serializer
        if of_key is not None:
            key = of_key(key)
        if of_value is not None:
            value = of_value(value)
        return _as_bytes("key", key), _as_bytes("value", value)

    async def send_batch(
        self,
        topic: str,
        values: Iterable[Any],
        *,
        keys: Iterable[Any] | None = None,
        partition: int | None = None,
    ) -> list[RecordMetadata]:
        """Sends many records and waits until all are acknowledged: where they are, in their order.

        Args:
            topic: the stream.
            values: one each, as of `send`.
            keys: as many; None gives none.
            partition: as of `send`, for all.

        Raises:
            ClientError: one was not stored; the first such error. Others may be.
            TypeError, ValueError: as `send`; ValueError also where there are more keys or fewer.
        """
        values = list(values)
        many = [None] * len(values) if keys is None else list(keys)
        futures = []
        for key, value in zip(many, values, strict=True):
            await self.ready()
            futures.append(self.send_nowait(topic, value, key=key, partition=partition))
        try:
            return await asyncio.gather(*futures)
        finally:
            for future in futures:  # one error is told, the others are seen
                if future.done() and not future.cancelled():
                    future.exception()

    async def ready(self) -> None:
        """Waits while half of `buffer_memory` is in use.

        Raises:
            ClientError: nothing has become free within `max_block_ms`.
        """
        if self._accumulator.buffered_bytes * READY_SHARE > self.config.buffer_memory:
            async with self._blocking("ready"):
                while self._accumulator.buffered_bytes * READY_SHARE > self.config.buffer_memory:
                    await self._change()

    @asynccontextmanager
    async def _blocking(self, what: str) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self.config.max_block_ms / 1000):
                yield
        except TimeoutError:
            raise BufferFullError(
                f"{what}: no room within max_block_ms, {self.config.max_block_ms / 1000:g} s"
            ) from None

    async def flush(self) -> None:
        """Sends what lingers, and waits until all records so far are stored or have failed.

        Whether they failed is what their futures say.
        """
        accumulator = self._accumulator
        accumulator.flushing += 1
        try:
            self._pump_soon()
            while accumulator.has_homeless:
                await self._change()
            order = accumulator.last_order
            while not accumulator.is_done_to(order):
                await self._change()
        finally:
            accumulator.flushing -= 1

    async def partitions_for(self, topic: str) -> int:
        """How many partitions a stream has.

        Raises:
            UnknownStreamError: there is no such stream.
            ClientError: no broker is reached.
        """
        known = self._accumulator.partitions(topic)
        if known is not None:
            return known

        async def attempt() -> int:
            (found,) = await self._cluster.topics([topic], create=True)
            check(found.error_code, f"stream {topic}")
            self._settle(self._accumulator.learn(topic, list(self._cluster.led(found).values())))
            return len(found.partitions)

        return await self._cluster.persist(f"stream {topic}", attempt)

    async def close(self) -> None:
        """Waits for what is under way, at most `delivery_timeout_ms`, and ends; twice is once."""
        if self._loop is None or self._is_closed:
            return
        try:
            await self.flush()
        finally:
            self._is_closed = True
            for timer in (self._wake, self._refresh):
                if timer is not None:
                    timer.cancel()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._settle(self._accumulator.give_up(_closed()))
            await self._cluster.close()

    # --- moving ---------------------------------------------------------------------------------

    def _pump_soon(self) -> None:
        """Once in this turn of the loop, after what it still brings."""
        if not self._is_pumping:
            assert self._loop is not None
            self._is_pumping = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        assert self._loop is not None
        self._is_pumping = False
        if self._is_closed:
            return
        now = self._loop.time()
        self._settle(self._accumulator.expire(now))
        drained = self._accumulator.drain(now, self._cluster.connected)
        for request in drained.requests:
            self._send(request)
        for address in drained.connect - self._connecting:
            self._begin(self._connect(address))
            self._connecting.add(address)
        if self._accumulator.wanted and not self._learning:
            self._learning = True
            self._begin(self._learn())
        if self._accumulator.wants_producer and not self._identifying:
            self._identifying = True
            self._begin(self._reidentify())
        self._wake_at(drained.wake_at)

    def _wake_at(self, when: float | None) -> None:
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None
        if when is not None:
            assert self._loop is not None
            self._wake = self._loop.call_at(when, self._pump_soon)

    def _begin(self, work: Any) -> None:  # noqa: ANN401 - a coroutine
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.result()  # a bug is told by the loop
        self._pump_soon()

    def _send(self, request: Request) -> None:
        assert self._loop is not None
        connection = self._cluster.ready(request.address)
        body = self._body(request)
        try:
            if connection is None:
                raise ConnectionLostError(f"{request.address} hung up")
            if self.config.required_acks == 0:
                connection.tell(PRODUCE, body)
                self._settle(self._accumulator.sent(request))
            else:
                answer = connection.send(PRODUCE, body)
                self._begin(self._answer(request, connection, answer))
        except ClientError as error:
            self._settle(self._accumulator.lost(request, error, self._loop.time()))

    def _body(self, request: Request) -> ProduceRequest:
        topics: dict[str, list[ProducePartition]] = {}
        for batch in request.batches:
            part = ProducePartition(
                index=batch.lane.partition, records=batch.encoded(self.config.compression_type)
            )
            topics.setdefault(batch.lane.stream, []).append(part)
        return ProduceRequest(
            acks=self.config.required_acks,
            timeout_ms=self.config.request_timeout_ms,
            topics=[ProduceTopic(name=name, partitions=parts) for name, parts in topics.items()],
        )

    async def _answer(
        self, request: Request, connection: Connection, answer: asyncio.Future[Any]
    ) -> None:
        assert self._loop is not None
        try:
            response = await connection.within(
                self.config.request_timeout_ms / 1000, PRODUCE, answer
            )
        except ClientError as error:
            self._settle(self._accumulator.lost(request, error, self._loop.time()))
            return
        except asyncio.CancelledError:  # of a close that does not wait; it fails what comes back
            self._settle(self._accumulator.lost(request, _closed(), self._loop.time()))
            raise
        answers = {
            (topic.name, each.index): each for topic in response.topics for each in topic.partitions
        }
        self._settle(self._accumulator.answered(request, answers, self._loop.time()))

    async def _connect(self, address: Address) -> None:
        assert self._loop is not None
        try:
            await self._cluster.connection(address)
        except ClientError as error:
            if error.retriable:
                self._accumulator.unreached(address, self._loop.time())
            else:
                self._settle(self._accumulator.give_up(error))
        finally:
            self._connecting.discard(address)

    async def _learn(self) -> None:
        """Asks for the partitions of streams until all that are wanted are known."""
        asked = 0
        try:
            while self._accumulator.wanted:
                await asyncio.sleep(self.config.backoff_s(asked) if asked else 0)
                asked += 1
                wanted = list(self._accumulator.wanted)
                try:
                    found = await self._cluster.topics(wanted, create=True)
                except ClientError as error:
                    if not error.retriable:
                        self._settle(self._accumulator.give_up(error))
                    continue
                for topic in found:
                    if topic.error_code:
                        code = topic.error_code
                        self._settle(self._accumulator.unknown(topic.name, code))
                    else:
                        leaders = list(self._cluster.led(topic).values())
                        self._settle(self._accumulator.learn(topic.name, leaders))
                self._pump_soon()
        finally:
            self._learning = False

    async def _reidentify(self) -> None:
        asked = 0
        try:
            while self._accumulator.wants_producer:
                await asyncio.sleep(self.config.backoff_s(asked) if asked else 0)
                asked += 1
                try:
                    await self._identify()
                except ClientError as error:
                    if not error.retriable:
                        self._settle(self._accumulator.give_up(error))
                        return
        finally:
            self._identifying = False

    async def _identify(self) -> None:
        answer = await self._cluster.ask(INIT_PRODUCER_ID, InitProducerIdRequest())
        check(answer.error_code, "producer id")
        self._accumulator.identify(answer.producer_id, answer.producer_epoch)

    def _refresh_later(self) -> None:
        assert self._loop is not None
        delay_s = self.config.metadata_max_age_ms / 1000
        self._refresh = self._loop.call_later(delay_s, self._refresh_now)

    def _refresh_now(self) -> None:
        self._accumulator.wanted.update(self._accumulator.streams)
        self._pump_soon()
        self._refresh_later()

    # --- telling --------------------------------------------------------------------------------

    def _settle(self, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            if isinstance(outcome, Failed):
                for future in outcome.waiters:
                    if not future.done():
                        future.set_exception(outcome.error)
            else:
                _tell(outcome)
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)
        self._waiting.clear()

    async def _change(self) -> None:
        """Waits until something has come back."""
        assert self._loop is not None
        waiting: asyncio.Future[None] = self._loop.create_future()
        self._waiting.add(waiting)
        await waiting


def _closed() -> ClientError:
    return ConnectionLostError("the producer was closed")


def _tell(stored: Stored) -> None:
    batch = stored.batch
    stream, partition = batch.lane.stream, batch.lane.partition
    offset, appended_ms = stored.base_offset, stored.timestamp_ms
    step = 0 if offset < 0 else 1
    for future, record in zip(batch.waiters, batch.records, strict=True):
        if not future.done():
            timestamp = record[3] if appended_ms < 0 else appended_ms
            future.set_result(_metadata((stream, partition, offset, timestamp)))
        offset += step


def _as_bytes(what: str, value: object) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise TypeError(
        f"{what} must be bytes; got {type(value).__name__}; {what}_serializer makes bytes of it"
    )


def _checked(headers: Headers) -> Headers:
    for name, value in headers:
        if type(name) is not str or not (value is None or type(value) is bytes):
            raise TypeError(
                f"a header must be text and bytes or None; got {name!r}: {value!r:.100}"
            )
    return tuple(headers)
