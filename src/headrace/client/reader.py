"""The moving part of a consumer: connections that fetch, and what must be asked for it.

Owns: fetches under way, timers, who leads what, where to begin. Moves what the fetcher says and
tells it what came of it. Must not know groups, or what a program is given. Lives in one event loop.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from headrace.client.errors import (
    ClientError,
    ConnectionLostError,
    OffsetOutOfRangeError,
    check,
)
from headrace.client.fetcher import Fetcher
from headrace.client.offsets import committed, offsets_by_time
from headrace.client.records import TopicPartition
from headrace.wire.kafka.apis import FETCH
from headrace.wire.kafka.errors import ErrorCode
from headrace.wire.kafka.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

if TYPE_CHECKING:
    from headrace.client.cluster import Cluster
    from headrace.client.config import ConsumerConfig
    from headrace.client.connection import Connection
    from headrace.client.fetcher import Fetch
    from headrace.model import Address

RESETS: Final = {"earliest": EARLIEST_TIMESTAMP, "latest": LATEST_TIMESTAMP}


class Reader:
    """Keeps a fetcher supplied.

    Args:
        config: of the consumer.
        asking: connections for questions.
        fetching: connections for fetches, which questions do not wait behind.

    Attributes:
        fetcher: what is read.
        changed: set whenever there may be something new for the program.
        failure: an error of no partition in particular, to be told once.
    """

    def __init__(self, config: ConsumerConfig, asking: Cluster, fetching: Cluster) -> None:
        self.config = config
        self.fetcher = Fetcher(config)
        self.changed = asyncio.Event()
        self.failure: ClientError | None = None
        self._cluster = asking
        self._fetching = fetching
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._connecting: set[Address] = set()
        self._learning = self._locating = self._is_pumping = self._is_closed = False
        self._wake: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begins, in the running loop."""
        self._loop = asyncio.get_running_loop()
        self.pump_soon()

    async def close(self) -> None:
        """Ends what is under way."""
        self._is_closed = True
        if self._wake is not None:
            self._wake.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def pump_soon(self) -> None:
        """Does what is to be done, once in this turn of the loop."""
        if self._loop is not None and not self._is_pumping:
            self._is_pumping = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        assert self._loop is not None
        self._is_pumping = False
        if self._is_closed:
            return
        drained = self.fetcher.drain(self._loop.time(), self._fetching.connected)
        for fetch in drained.fetches:
            self._send(fetch)
        for address in drained.connect - self._connecting:
            self._connecting.add(address)
            self.begin(self._connect(address))
        if self.fetcher.wanted and not self._learning:
            self._learning = True
            self.begin(self._learn())
        if self.fetcher.lost and not self._locating:
            self._locating = True
            self.begin(self._locate())
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None
        if drained.wake_at is not None:
            self._wake = self._loop.call_at(drained.wake_at, self.pump_soon)

    def begin(self, work: Any) -> None:  # noqa: ANN401 - a coroutine
        """Does something beside, until it is done or the reader ends."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.result()  # a bug is told by the loop
        self.pump_soon()

    def _send(self, fetch: Fetch) -> None:
        assert self._loop is not None
        connection = self._fetching.ready(fetch.address)
        try:
            if connection is None:
                raise ConnectionLostError(f"{fetch.address} hung up")
            answer = connection.send(FETCH, fetch.request)
        except ClientError as error:
            self.fetcher.lost_fetch(fetch, error, self._loop.time())
            self.changed.set()
        else:
            self.begin(self._answer(fetch, connection, answer))

    async def _answer(
        self, fetch: Fetch, connection: Connection, answer: asyncio.Future[Any]
    ) -> None:
        assert self._loop is not None
        silence_ms = self.config.request_timeout_ms + self.config.fetch_max_wait_ms
        try:
            response = await connection.within(silence_ms / 1000, FETCH, answer)
            check(response.error_code, "fetch")
        except ClientError as error:
            self.fetcher.lost_fetch(fetch, error, self._loop.time())
        else:
            answers = {
                TopicPartition(topic.topic, each.partition_index): each
                for topic in response.topics
                for each in topic.partitions
            }
            self.fetcher.fetched(fetch, answers, self._loop.time())
        self.changed.set()

    async def _connect(self, address: Address) -> None:
        assert self._loop is not None
        try:
            await self._fetching.connection(address)
        except ClientError as error:
            if error.retriable:
                self.fetcher.unreached(address, self._loop.time())
            else:
                self.fail(error)
        finally:
            self._connecting.discard(address)

    def fail(self, error: ClientError) -> None:
        """Has the program told of an error with its next call."""
        self.failure = error
        self.changed.set()

    async def _learn(self) -> None:
        """Asks who leads what is read."""
        try:
            wanted, self.fetcher.wanted = list(self.fetcher.wanted), set()
            found = await self._cluster.persist(
                "metadata", lambda: self._cluster.topics(wanted, create=False)
            )
            for topic in found:
                places = [p for p in self.fetcher.places if p.topic == topic.name]
                led = self._cluster.led(topic)
                self.fetcher.learn({place: led.get(place.partition) for place in places})
                for place in places:
                    if led.get(place.partition) is None:
                        self._unled(place, topic.error_code, known=place.partition in led)
        except ClientError as error:
            self.fail(error)
        finally:
            self._learning = False

    def _unled(self, place: TopicPartition, code: int, *, known: bool) -> None:
        assert self._loop is not None
        missing = ErrorCode.LEADER_NOT_AVAILABLE if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        self.fetcher.unled(place, code or missing, self._loop.time())
        self.changed.set()

    async def _locate(self) -> None:
        """Finds where to begin: what the group has committed, else `auto_offset_reset`."""
        try:
            await self._cluster.persist("positions", self._locate_once)
        except ClientError as error:
            for place in self.fetcher.lost:
                self.fetcher.fail(place, error)
        finally:
            self._locating = False
            self.changed.set()

    async def _locate_once(self) -> None:
        lost = self.fetcher.lost
        fresh = [place for place in lost if not self.fetcher.part(place).is_out_of_range]
        found: dict[TopicPartition, int] = {}
        if self.config.group_id is not None and fresh:
            kept = await committed(self._cluster, self.config.group_id, fresh)
            found = {place: each.offset for place, each in kept.items()}
        rest = [place for place in lost if place not in found]
        if rest and self.config.auto_offset_reset == "none":
            for place in rest:
                what = f"{place}: nothing is committed, and auto_offset_reset is none"
                error = OffsetOutOfRangeError(what, ErrorCode.OFFSET_OUT_OF_RANGE)
                self.fetcher.fail(place, error)
        elif rest:
            time = RESETS[self.config.auto_offset_reset]
            answers = await offsets_by_time(self._cluster, dict.fromkeys(rest, time))
            found.update((place, each.offset) for place, each in answers.items())
        still = set(self.fetcher.lost)
        for place, offset in found.items():
            if place in still:
                self.fetcher.seek(place, offset)
