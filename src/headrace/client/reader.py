"""The moving part of a consumer: connections that fetch, and what must be asked for it.

Owns: fetches under way, timers, who leads what, where to begin. Moves what the fetcher says and
tells it what came of it. Must not know groups, or what a program is given. Lives in one event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headrace.client.errors import (
    ClientError,
    ConnectionLostError,
    OffsetOutOfRangeError,
    check,
    error_of,
)
from headrace.client.fetcher import Fetcher
from headrace.client.offsets import Refused, ask_offsets, committed
from headrace.client.pump import Pump, now_s
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
    from headrace.wire.kafka.messages import MetadataTopic

LEADERLESS: Final = ErrorCode.LEADER_NOT_AVAILABLE
FAILURES_MAX: Final = 100
"""That wait for a program to ask for records; older ones are not told."""

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
        failures: errors of no partition in particular, to be told once each, oldest first.
        on_missing: what is done where a stream, or a partition of it, is not there.
        pump: what keeps it moving.
    """

    def __init__(self, config: ConsumerConfig, asking: Cluster, fetching: Cluster) -> None:
        self.config = config
        self.fetcher = Fetcher(config)
        self.changed = asyncio.Event()
        self.failures: deque[ClientError] = deque(maxlen=FAILURES_MAX)
        self.on_missing = self.tell_once
        self._told: set[str] = set()  # what is missing
        self._cluster = asking
        self._fetching = fetching
        self.pump = Pump(self._turn)

    def _turn(self, now: float) -> float | None:
        drained = self.fetcher.drain(now, self._fetching.connected)
        for fetch in drained.fetches:
            self._send(fetch, now)
        for address in drained.connect:
            self.pump.begin_alone(address, partial(self._connect, address))
        if self.fetcher.wanted:
            self.pump.begin_alone("leaders", self._learn)
        if self.fetcher.lost(now):
            self.pump.begin_alone("positions", self._locate)
        return drained.wake_at

    def _send(self, fetch: Fetch, now: float) -> None:
        connection = self._fetching.ready(fetch.address)
        try:
            if connection is None:
                raise ConnectionLostError(f"{fetch.address} hung up")
            answer = connection.send(FETCH, fetch.request)
        except ClientError as error:
            self.fetcher.lost_fetch(fetch, error, now)
            self.changed.set()
        else:
            self.pump.begin(self._answer(fetch, connection, answer))

    async def _answer(
        self, fetch: Fetch, connection: Connection, answer: asyncio.Future[Any]
    ) -> None:
        silence_ms = self.config.request_timeout_ms + self.config.fetch_max_wait_ms
        try:
            response = await connection.within(silence_ms / 1000, FETCH, answer)
            check(response.error_code, "fetch")
        except ClientError as error:
            self.fetcher.lost_fetch(fetch, error, now_s())
        else:
            answers = {
                TopicPartition(topic.topic, each.partition_index): each
                for topic in response.topics
                for each in topic.partitions
            }
            self.fetcher.fetched(fetch, answers, now_s())
            self.pump.now()  # the next is under way while the program works on what came
        self.changed.set()

    async def _connect(self, address: Address) -> None:
        try:
            await self._fetching.connection(address)
        except ClientError as error:
            if error.retriable:
                self.fetcher.unreached(address, now_s())
            else:
                self.fail(error)

    def fail(self, error: ClientError) -> None:
        """Has the program told of an error with its next call."""
        self.failures.append(error)
        self.changed.set()

    def tell_once(self, what: str, error: ClientError) -> None:
        """Has the program told that something is not there: once, until it is."""
        if what not in self._told:
            self._told.add(what)
            self.fail(error)

    def found(self, what: str) -> None:
        """It is there; should it go, the program is told again."""
        self._told.discard(what)

    async def _learn(self) -> None:
        """Asks who leads what is read."""
        try:
            wanted, self.fetcher.wanted = list(self.fetcher.wanted), set()
            found = await self._cluster.persist(
                "metadata", lambda: self._cluster.topics(wanted, create=False)
            )
            for topic in found:
                self._led(topic)
        except ClientError as error:
            self.fail(error)

    def _led(self, topic: MetadataTopic) -> None:
        led = self._cluster.led(topic)
        places = [place for place in self.fetcher.places if place.topic == topic.name]
        self.fetcher.learn({place: led.get(place.partition) for place in places})
        if not topic.error_code:
            self.found(topic.name)
        for place in places:
            if led.get(place.partition) is not None:
                self.found(str(place))
            elif topic.error_code:
                self._miss(place, topic.name, error_of(topic.error_code, f"stream {topic.name}"))
            else:
                is_known = place.partition in led
                code = LEADERLESS if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                self._miss(place, str(place), error_of(code, f"stream {place}"))

    def _miss(self, place: TopicPartition, what: str, error: ClientError) -> None:
        self.fetcher.unled(place, error, now_s())
        if not error.retriable:
            self.on_missing(what, error)
        self.changed.set()

    async def _locate(self) -> None:
        """Finds where to begin: what the group has committed, else `auto_offset_reset`."""
        try:
            await self._cluster.persist("positions", self._locate_once)
        except ClientError as error:
            for place, version in self.fetcher.lost(now_s()).items():
                self.fetcher.begin(place, version, error)
        finally:
            self.changed.set()

    async def _locate_once(self) -> None:
        lost = self.fetcher.lost(now_s())
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
                self.fetcher.begin(place, lost[place], error)
        elif rest:
            time = RESETS[self.config.auto_offset_reset]
            answers = await ask_offsets(
                self._cluster, dict.fromkeys(rest, time), self.config.isolation
            )
            for place, answer in answers.items():
                if isinstance(answer, Refused):
                    self._miss(place, answer.what, answer.error)
                else:
                    found[place] = answer.offset
        for place, offset in found.items():
            self.fetcher.begin(place, lost[place], offset)
