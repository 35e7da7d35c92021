"""Producers: as fast as it goes, or on a schedule. Each runs in a process of its own.

Owns: which partition gets what, when a round of it is over, what was acknowledged. A record counts
as acknowledged once its client has said nothing against it and everything was flushed.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from headrace.bench.kafka.clients import confluent_producer, own_producer
from headrace.bench.kafka.load import Schedule
from headrace.client.producer import Producer
from headrace.native import Payloads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headrace.bench.kafka.load import Load
    from headrace.client.login import Login

CHUNK: Final = 500
"""Records to one partition before the next one's turn; without keys."""

TICK_SECONDS: Final = 0.0005
"""Between two looks at the schedule."""

FLUSH_SECONDS: Final = 60.0
"""After that what is under way counts as not acknowledged."""


def now_us() -> int:
    """The clock that all processes of this machine share (CLOCK_MONOTONIC)."""
    return time.monotonic_ns() // 1000


@dataclass(frozen=True, slots=True)
class SendJob:
    """What one producer does.

    Attributes:
        index: its number among the producers.
        rate: of this one; None for as fast as it goes.
    """

    servers: str
    login: Login | None
    client: str
    topic: str
    load: Load
    index: int
    rate: float | None = None


@dataclass(slots=True)
class Sent:
    """What became of it.

    Attributes:
        sent, failed: by partition, or key, over the whole run.
        measured: records that were sent in the measured time, and not refused.
        began_us: when that began.
        seconds: from then to the acknowledgement of the last.
        trouble: the first error, in words.
    """

    sent: list[int]
    failed: list[int]
    measured: int = 0
    began_us: int = 0
    seconds: float = 0.0
    trouble: str | None = None

    @property
    def acknowledged(self) -> list[int]:
        """By partition, or key."""
        return [sent - failed for sent, failed in zip(self.sent, self.failed, strict=True)]

    def fails(self, lane: int, why: object, records: int = 1) -> None:
        """Some records were not acknowledged."""
        self.failed[lane] += records
        self.trouble = self.trouble or str(why)


_Turn: TypeAlias = tuple[int, list[bytes]]
"""A partition, or a key, and what it gets next."""


class _Turns:
    """Payloads for one partition, or key, after the other."""

    def __init__(self, job: SendJob, sent: Sent) -> None:
        load, first = job.load, job.index * job.load.lanes
        lanes = range(load.lanes)
        self._flows = [Payloads(job.topic, first + lane, load.payload) for lane in lanes]
        self._is_keyed = load.keys > 0
        self._sent = sent
        self._turn = 0

    def take(self, count: int, due_us: int = 0, step_us: float = 0.0) -> list[_Turn]:
        """The next records: all to one partition, or one to each key."""
        if not self._is_keyed:
            return [self._next(count, due_us, step_us)]
        return [self._next(1, due_us + int(step_us * nth), 0.0) for nth in range(count)]

    def _next(self, count: int, due_us: int, step_us: float) -> _Turn:
        lane = self._turn % len(self._flows)
        self._turn += 1
        self._sent.sent[lane] += count
        return lane, self._flows[lane].take(count, due_us, step_us)


def send(job: SendJob, ready: Callable[[], int]) -> Sent:
    """Does the job; `ready` says that all is connected, and gives the time to begin."""
    if job.client == "confluent":
        return _Confluent(job).send(ready)
    return asyncio.run(_Own(job).send(ready))


class _Sender:
    def __init__(self, job: SendJob) -> None:
        self.job = job
        count = job.load.lanes
        self.sent = Sent([0] * count, [0] * count)
        self.turns = _Turns(job, self.sent)
        self._keys = [b"%d" % key for key in range(job.load.keys)]

    def _begins(self) -> None:
        self._before = sum(self.sent.acknowledged)
        self.sent.began_us = now_us()

    def _ends(self) -> Sent:
        self.sent.seconds = (now_us() - self.sent.began_us) / 1e6
        self.sent.measured = sum(self.sent.acknowledged) - self._before
        return self.sent

    def _chunks(self, seconds: float, records: int | None = None) -> Iterator[list[_Turn]]:
        """What is sent as fast as it goes: so many records, or for so long."""
        end, sent = time.perf_counter() + seconds, 0
        while sent < records if records is not None else time.perf_counter() < end:
            count = CHUNK if records is None else min(CHUNK, records - sent)
            sent += count
            yield self.turns.take(count)


class _Confluent(_Sender):
    """`confluent_kafka.Producer`, which tells of what has failed only."""

    def __init__(self, job: SendJob) -> None:
        import confluent_kafka  # noqa: PLC0415 - it may be missing

        super().__init__(job)
        settings = confluent_producer(job.servers, job.login, job.load)
        self._producer: Any = confluent_kafka.Producer(settings | {"on_delivery": self._told})

    def _told(self, error: object, message: Any) -> None:  # noqa: ANN401
        if error is not None:
            self.sent.fails(int(message.key()) if self._keys else message.partition(), error)

    def send(self, ready: Callable[[], int]) -> Sent:
        load = self.job.load
        self._producer.list_topics(self.job.topic, timeout=30)
        start_us = ready()
        _sleep_until(start_us)
        if self.job.rate is not None:
            schedule = Schedule(start_us, self.job.rate)
            self._begins()
            self._keep_to(schedule, start_us + int((load.warm_up + load.duration) * 1e6))
        else:
            if load.records is None:
                self._rush(load.warm_up)
                self._flush()
            self._begins()
            self._rush(load.duration, load.share(self.job.index))
        self._flush()
        return self._ends()

    def _rush(self, seconds: float, records: int | None = None) -> None:
        for turns in self._chunks(seconds, records):
            self._hand_over(turns)

    def _keep_to(self, schedule: Schedule, end_us: int) -> None:
        sent, total = 0, schedule.due(end_us)
        while sent < total:  # all of them, however late
            count = min(schedule.due(now_us()), total) - sent
            if count > 0:
                self._hand_over(self.turns.take(count, schedule.at_us(sent), schedule.step_us))
                sent += count
            self._producer.poll(0)
            time.sleep(TICK_SECONDS)

    def _hand_over(self, turns: list[_Turn]) -> None:
        produce, topic, keys = self._producer.produce, self.job.topic, self._keys
        for lane, values in turns:
            where = {"key": keys[lane]} if keys else {"partition": lane}
            for value in values:
                try:
                    produce(topic, value, **where)
                except BufferError:
                    while True:
                        self._producer.poll(0.01)
                        try:
                            produce(topic, value, **where)
                            break
                        except BufferError:
                            continue
        self._producer.poll(0)

    def _flush(self) -> None:
        if left := self._producer.flush(FLUSH_SECONDS):
            self.sent.fails(0, f"{left} records were not acknowledged in time", left)


class _Own(_Sender):
    """`headrace.Producer`, of which every record is asked what became of it."""

    def __init__(self, job: SendJob) -> None:
        super().__init__(job)
        settings = own_producer(job.login, job.load)
        self._producer = Producer(job.servers, **settings)
        self._under_way: deque[tuple[int, list[Any]]] = deque()

    async def send(self, ready: Callable[[], int]) -> Sent:
        load = self.job.load
        async with self._producer as producer:
            await producer.partitions_for(self.job.topic)
            start_us = ready()
            _sleep_until(start_us)
            if self.job.rate is not None:
                schedule = Schedule(start_us, self.job.rate)
                self._begins()
                await self._keep_to(schedule, start_us + int((load.warm_up + load.duration) * 1e6))
            else:
                if load.records is None:
                    await self._rush(load.warm_up)
                    await self._flush()
                self._begins()
                await self._rush(load.duration, load.share(self.job.index))
            await self._flush()
            return self._ends()

    async def _rush(self, seconds: float, records: int | None = None) -> None:
        for turns in self._chunks(seconds, records):
            await self._producer.ready()
            self._hand_over(turns)
            await asyncio.sleep(0)
            self._look()

    async def _keep_to(self, schedule: Schedule, end_us: int) -> None:
        sent, total = 0, schedule.due(end_us)
        while sent < total:  # all of them, however late
            count = min(schedule.due(now_us()), total) - sent
            if count > 0:
                await self._producer.ready()
                self._hand_over(self.turns.take(count, schedule.at_us(sent), schedule.step_us))
                sent += count
            self._look()
            await asyncio.sleep(TICK_SECONDS)

    def _hand_over(self, turns: list[_Turn]) -> None:
        send, topic = self._producer.send_nowait, self.job.topic
        is_free = self._keys or self.job.load.partitions == 1
        for lane, values in turns:
            key, partition = self._keys[lane] if self._keys else None, None if is_free else lane
            sent = [send(topic, value, key=key, partition=partition) for value in values]
            self._under_way.append((lane, sent))

    def _look(self) -> None:
        while self._under_way and self._under_way[0][1][-1].done():
            lane, deliveries = self._under_way.popleft()
            for delivery in deliveries:
                if (error := delivery.exception()) is not None:
                    self.sent.fails(lane, error)

    async def _flush(self) -> None:
        await self._producer.flush()
        self._look()


def _sleep_until(start_us: int) -> None:
    time.sleep(max(start_us - now_us(), 0) / 1e6)
