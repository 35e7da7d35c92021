"""Producers: as fast as it goes, or on a schedule. Each runs in a process of its own.

Owns: which partition gets what, when a round of it is over, what was acknowledged. A record counts
as acknowledged once its client has said nothing against it and everything was flushed.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headrace.bench.kafka.clients import confluent_producer, own_producer
from headrace.bench.kafka.load import Schedule
from headrace.client.producer import Producer
from headrace.native import Payloads

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.bench.kafka.load import Load
    from headrace.client.login import Login

CHUNK: Final = 500
"""Records to one partition before the next one's turn."""

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
        sent, failed: by partition, over the whole run.
        measured: records that were sent in the measured time, and not refused.
        seconds: from the first of these to the acknowledgement of the last.
        trouble: the first error, in words.
    """

    sent: list[int]
    failed: list[int]
    measured: int = 0
    seconds: float = 0.0
    trouble: str | None = None

    @property
    def acknowledged(self) -> list[int]:
        """By partition."""
        return [sent - failed for sent, failed in zip(self.sent, self.failed, strict=True)]

    def fails(self, partition: int, why: object, records: int = 1) -> None:
        """Some records were not acknowledged."""
        self.failed[partition] += records
        self.trouble = self.trouble or str(why)


class _Turns:
    """Payloads for one partition after the other."""

    def __init__(self, job: SendJob, sent: Sent) -> None:
        first = job.index * job.load.partitions
        self._flows = [
            Payloads(job.topic, first + partition, job.load.payload)
            for partition in range(job.load.partitions)
        ]
        self._sent = sent
        self._turn = 0

    def take(self, count: int, due_us: int = 0, step_us: float = 0.0) -> tuple[int, list[bytes]]:
        """A partition, and what it gets next."""
        partition = self._turn % len(self._flows)
        self._turn += 1
        self._sent.sent[partition] += count
        return partition, self._flows[partition].take(count, due_us, step_us)


def send(job: SendJob, ready: Callable[[], int]) -> Sent:
    """Does the job; `ready` says that all is connected, and gives the time to begin."""
    if job.client == "confluent":
        return _Confluent(job).send(ready)
    return asyncio.run(_Own(job).send(ready))


class _Sender:
    def __init__(self, job: SendJob) -> None:
        self.job = job
        count = job.load.partitions
        self.sent = Sent([0] * count, [0] * count)
        self.turns = _Turns(job, self.sent)

    def _begins(self) -> None:
        self._before = sum(self.sent.acknowledged)
        self._started = time.perf_counter()

    def _ends(self) -> Sent:
        self.sent.seconds = time.perf_counter() - self._started
        self.sent.measured = sum(self.sent.acknowledged) - self._before
        return self.sent


class _Confluent(_Sender):
    """`confluent_kafka.Producer`, which tells of what has failed only."""

    def __init__(self, job: SendJob) -> None:
        import confluent_kafka  # noqa: PLC0415 - it may be missing

        super().__init__(job)
        settings = confluent_producer(job.servers, job.login, job.load)
        self._producer: Any = confluent_kafka.Producer(settings | {"on_delivery": self._told})

    def _told(self, error: object, message: Any) -> None:  # noqa: ANN401
        if error is not None:
            self.sent.fails(message.partition(), error)

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
            self._rush(load.warm_up)
            self._flush()
            self._begins()
            self._rush(load.duration)
        self._flush()
        return self._ends()

    def _rush(self, seconds: float) -> None:
        end = time.perf_counter() + seconds
        while True:
            self._hand_over(*self.turns.take(CHUNK))
            if time.perf_counter() >= end:
                return

    def _keep_to(self, schedule: Schedule, end_us: int) -> None:
        sent, total = 0, schedule.due(end_us)
        while sent < total:  # all of them, however late
            count = min(schedule.due(now_us()), total) - sent
            if count > 0:
                self._hand_over(*self.turns.take(count, schedule.at_us(sent), schedule.step_us))
                sent += count
            self._producer.poll(0)
            time.sleep(TICK_SECONDS)

    def _hand_over(self, partition: int, values: list[bytes]) -> None:
        produce, topic = self._producer.produce, self.job.topic
        for value in values:
            try:
                produce(topic, value, partition=partition)
            except BufferError:
                while True:
                    self._producer.poll(0.01)
                    try:
                        produce(topic, value, partition=partition)
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
                await self._rush(load.warm_up)
                await self._flush()
                self._begins()
                await self._rush(load.duration)
            await self._flush()
            return self._ends()

    async def _rush(self, seconds: float) -> None:
        end = time.perf_counter() + seconds
        while True:
            await self._producer.ready()
            self._hand_over(*self.turns.take(CHUNK))
            await asyncio.sleep(0)
            self._look()
            if time.perf_counter() >= end:
                return

    async def _keep_to(self, schedule: Schedule, end_us: int) -> None:
        sent, total = 0, schedule.due(end_us)
        while sent < total:  # all of them, however late
            count = min(schedule.due(now_us()), total) - sent
            if count > 0:
                await self._producer.ready()
                self._hand_over(*self.turns.take(count, schedule.at_us(sent), schedule.step_us))
                sent += count
            self._look()
            await asyncio.sleep(TICK_SECONDS)

    def _hand_over(self, partition: int, values: list[bytes]) -> None:
        send, topic = self._producer.send_nowait, self.job.topic
        chosen = None if self.job.load.partitions == 1 else partition
        self._under_way.append((partition, [send(topic, v, partition=chosen) for v in values]))

    def _look(self) -> None:
        while self._under_way and self._under_way[0][1][-1].done():
            partition, deliveries = self._under_way.popleft()
            for delivery in deliveries:
                if (error := delivery.exception()) is not None:
                    self.sent.fails(partition, error)

    async def _flush(self) -> None:
        await self._producer.flush()
        self._look()


def _sleep_until(start_us: int) -> None:
    time.sleep(max(start_us - now_us(), 0) / 1e6)
