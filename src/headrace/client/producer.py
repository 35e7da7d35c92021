"""`headrace.Producer`: records into streams, asynchronously.

Owns: what a program may hand in, futures of records, who waits for room. Must not know which batch
a record is in, or how that is sent (`headrace.client.sender`). Lives in one event loop.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from operator import index
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from headrace.client.accumulator import Accumulator
from headrace.client.cluster import Cluster
from headrace.client.config import ProducerConfig
from headrace.client.deliveries import Deliveries
from headrace.client.errors import BufferFullError, check
from headrace.client.sender import Sender

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence

    from headrace.client.lanes import Headers
    from headrace.client.records import RecordMetadata
    from headrace.native import Delivery

T = TypeVar("T")

READY_SHARE: Final = 2
"""`ready` waits while more than this part of `buffer_memory` is in use: what is sent then leaves in
large batches, and is never refused."""

STREAM_NAME_LENGTH_MAX: Final = 249
"""Kafka's (`Topic.MAX_NAME_LENGTH`): a longer name is none that a broker knows."""


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
        self._accumulator = Accumulator(config, random.random, Deliveries)
        self._cluster = Cluster(config)
        self._sender = Sender(config, self._accumulator, self._cluster)
        self._pump_soon = self._sender.pump.soon
        self._loop: asyncio.AbstractEventLoop | None = None
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
            RuntimeError: it was started before.
        """
        if self._loop is not None:
            raise RuntimeError("a producer is started once; make another one")
        self._loop = asyncio.get_running_loop()
        try:
            if self.config.is_idempotent:
                await self._cluster.persist("producer id", self._sender.identify)
            else:
                await self._cluster.persist(
                    "metadata", lambda: self._cluster.topics([], create=False)
                )
        except BaseException:
            await self._cluster.close()
            raise
        self._sender.start()

    # --- sending --------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        value: Any = None,  # noqa: ANN401 - what the serializer takes
        *,
        key: Any = None,  # noqa: ANN401
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | Mapping[str, bytes | None] = (),
    ) -> RecordMetadata:
        """Sends a record and waits until it is acknowledged.

        Waits for room first, where there is none, for `max_block_ms` at most.

        Args:
            topic: the stream.
            value: bytes, or what `value_serializer` takes; None is a tombstone where the stream is
                compacted.
            key: bytes, or what `key_serializer` takes; records of one key keep their order.
            partition: 0 or more; None leaves the choice to the partitioner.
            timestamp_ms: milliseconds since 1970, 0 or more; None is now.
            headers: pairs of a name and bytes or None, or a dict of them.

        Raises:
            ClientError: it was not stored, or nobody can say: `DeadlineError` after
                `delivery_timeout_ms`, `RequestError` where a broker refused it.
            TypeError: an argument is of another type.
            ValueError: the stream has no such partition, the time is before 1970, or no stream can
                have that name.
            Exception: what a serializer or a partitioner of the program raises.
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
                await self._sender.change()

    def send_nowait(
        self,
        topic: str,
        value: Any = None,  # noqa: ANN401
        *,
        key: Any = None,  # noqa: ANN401
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | Mapping[str, bytes | None] = (),
    ) -> Delivery[RecordMetadata] | asyncio.Future[RecordMetadata]:
        """Takes a record in and returns a future of where it is; arguments as of `send`.

        It is a `Delivery`, which is awaited and asked like an `asyncio.Future` and costs less. To
        cancel it does not take the record back.

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
        if partition is not None:
            partition = _counted("partition", partition)
        if timestamp_ms is None:
            timestamp_ms = time.time_ns() // 1_000_000
        else:
            timestamp_ms = _counted("timestamp_ms", timestamp_ms)
        record = (key, value, _checked(headers) if headers else (), timestamp_ms)
        accumulator = self._accumulator
        future: asyncio.Future[RecordMetadata] | None = None
        if topic not in accumulator.streams:
            _check_name(topic)
            future = loop.create_future()
        delivery = accumulator.append(topic, partition, record, future, loop.time())
        if accumulator.is_stirred:
            accumulator.is_stirred = False
            self._pump_soon()
        if delivery is None:
            assert future is not None, "its stream is not known"
            return future
        return delivery

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
        if len(many) != len(values):
            raise ValueError(f"there must be a key for each value; got {len(many)}, {len(values)}")
        futures = []
        for key, value in zip(many, values, strict=True):
            await self.ready()
            futures.append(self.send_nowait(topic, value, key=key, partition=partition))
        found: list[RecordMetadata] = []
        first: Exception | None = None
        for future in futures:
            try:  # those of one batch are done together
                found.append(future.result() if future.done() else await future)
            except Exception as error:  # noqa: BLE001 - the first is told, the others are seen
                first = first or error
        if first is not None:
            raise first
        return found

    async def ready(self) -> None:
        """Waits while half of `buffer_memory` is in use.

        Raises:
            ClientError: nothing has become free within `max_block_ms`.
        """
        if self._accumulator.buffered_bytes * READY_SHARE > self.config.buffer_memory:
            async with self._blocking("ready"):
                while self._accumulator.buffered_bytes * READY_SHARE > self.config.buffer_memory:
                    await self._sender.change()

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
                await self._sender.change()
            order = accumulator.last_order
            while not accumulator.is_done_to(order):
                await self._sender.change()
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
            leaders = list(self._cluster.led(found).values())
            self._sender.settle(self._accumulator.learn(topic, leaders))
            return len(found.partitions)

        return await self._cluster.persist(f"stream {topic}", attempt)

    async def close(self) -> None:
        """Waits for what is under way, at most `delivery_timeout_ms`, and ends; twice is once."""
        if self._is_closed:
            return
        try:
            if self._loop is not None:
                await self.flush()
        finally:
            self._is_closed = True
            await self._sender.close()
            await self._cluster.close()


def _as_bytes(what: str, value: object) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise TypeError(
        f"{what} must be bytes; got {type(value).__name__}; {what}_serializer makes bytes of it"
    )


def _checked(headers: Headers | Mapping[str, bytes | None]) -> Headers:
    pairs = tuple(headers.items() if isinstance(headers, Mapping) else headers)
    for pair in pairs:
        if type(pair) is not tuple or [type(each) for each in pair] not in HEADER_TYPES:
            raise TypeError(f"a header must be a pair of text and bytes or None; got {pair!r:.100}")
        pair[0].encode()  # what is no text is refused here, before anything is taken in
    return pairs


HEADER_TYPES: Final = ([str, bytes], [str, type(None)])


def _counted(what: str, number: int) -> int:
    try:
        number = index(number)
    except TypeError:
        raise TypeError(f"{what} must be a whole number; got {number!r:.100}") from None
    if not 0 <= number < 2**63:
        raise ValueError(f"{what} must be 0 or more, in 63 bits; got {number}")
    return number


def _check_name(topic: str) -> None:
    if not isinstance(topic, str):
        raise TypeError(f"a stream's name is text; got {topic!r:.100}")
    if len(topic) > STREAM_NAME_LENGTH_MAX or not topic.isprintable():
        raise ValueError(f"no stream can have the name {topic!r:.100}")
