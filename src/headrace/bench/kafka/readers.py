"""Consumers: of what is stored, as fast as it goes, or of what comes, as it comes.

Each runs in a process of its own, and judges what it reads.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headrace.bench.kafka.clients import of_confluent
from headrace.bench.kafka.senders import now_us
from headrace.client.consumer import Consumer
from headrace.client.records import TopicPartition
from headrace.native import RecordJudge

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.bench.kafka.load import Load
    from headrace.client.login import Login

MANY: Final = 10_000
"""Records of one call."""

GRACE_SECONDS: Final = 0.3
"""Of silence when all has come: what was stored twice comes after that."""

WAIT_SECONDS: Final = 0.05
"""Of one call that finds nothing."""


@dataclass(frozen=True, slots=True)
class ReadJob:
    """What one reader does.

    Attributes:
        api: `consume` (confluent-kafka), `getmany` or `get_arrow` (headrace).
        partitions: that it reads.
    """

    servers: str
    login: Login | None
    api: str
    topic: str
    load: Load
    partitions: range


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is to come: records by flow."""

    acknowledged: list[int]
    sent: list[int]

    def of(self, partitions: range, load: Load) -> Outlook:
        """What comes to a reader of these."""
        if len(partitions) == load.partitions:
            return self

        def those(counts: list[int]) -> list[int]:
            return [n if flow % load.lanes in partitions else 0 for flow, n in enumerate(counts)]

        return Outlook(those(self.acknowledged), those(self.sent))


@dataclass(frozen=True, slots=True)
class Got:
    """What was read: counts of the judge, and how fast it came.

    Attributes:
        seconds: from the first records to the last.
        measured: those after the first.
        until_us: when the last came, by the clock of senders.
        by_second: what came in each whole second since the first.
    """

    counts: dict[str, Any]
    measured: int
    seconds: float
    until_us: int
    by_second: list[int]


class _Reading:
    """One run: what has come, and whether it is over."""

    def __init__(self, job: ReadJob, outlook: Callable[[], Outlook | None]) -> None:
        self.job = job
        self.judge: RecordJudge
        self._outlook = outlook
        self._known: Outlook | None = None
        self._silent_since = self._last = 0.0
        self._first: tuple[float, int] | None = None
        self._by_second: list[int] = []

    def begin(self, start_us: int) -> RecordJudge:
        """The judge, which times what is due after the warm-up."""
        load = self.job.load
        measured_us = start_us + int(load.warm_up * 1e6)
        until_us = measured_us + int(load.duration * 1e6)
        self.judge = RecordJudge(self.job.topic, load.flows, load.payload, (measured_us, until_us))
        self._silent_since = self._last = time.monotonic()
        return self.judge

    def goes_on(self) -> bool:
        """Whether something is still to come."""
        now = time.monotonic()
        if self._known is None and (known := self._outlook()) is not None:
            self._known, self._silent_since = known, now
        if self._known is None:
            return True
        all_came = self.judge.distinct >= sum(self._known.acknowledged)
        silence = GRACE_SECONDS if all_came else self.job.load.drain
        return now - self._silent_since < silence

    def came(self) -> None:
        """The judge has got something."""
        self._silent_since = self._last = time.monotonic()
        if self._first is None:
            self._first = self._last, self.judge.received
        second, counts = int(self._last - self._first[0]), self._by_second
        counts += [0] * (second + 1 - len(counts))
        counts[second] = self.judge.received - sum(counts[:second])

    def result(self) -> Got:
        assert self._known is not None, "it is over"
        counts = self.judge.read(self._known.acknowledged, self._known.sent)
        began, before = self._first or (self._last, 0)
        until_us = int(self._last * 1e6)
        received = counts["received"] - before
        return Got(counts, received, self._last - began, until_us, self._by_second[:-1])


def read(job: ReadJob, ready: Callable[[], int], outlook: Callable[[], Outlook | None]) -> Got:
    """Does the job from the beginning of the topic until all of the outlook has come.

    `ready` says that all is connected, and gives the time when senders begin; `outlook` is
    asked now and then until it gives one.
    """
    reading = _Reading(job, outlook)
    if job.api == "consume":
        return _confluent(reading, ready)
    return asyncio.run(_own(reading, ready))


def _confluent(reading: _Reading, ready: Callable[[], int]) -> Got:
    import confluent_kafka  # noqa: PLC0415 - it may be missing

    job = reading.job
    settings = of_confluent(job.servers, job.login)
    settings |= {"group.id": "headrace-bench", "enable.auto.commit": False}
    consumer = confluent_kafka.Consumer(settings)
    try:
        consumer.list_topics(job.topic, timeout=30)
        consumer.assign([confluent_kafka.TopicPartition(job.topic, p, 0) for p in job.partitions])
        judge = reading.begin(ready())
        while reading.goes_on():
            first = consumer.poll(WAIT_SECONDS)
            if first is None:
                continue
            messages = [first, *consumer.consume(MANY, timeout=0)]
            values = [each.value() or b"" for each in messages if each.error() is None]
            judge.take(values, now_us())
            if values:
                reading.came()
    finally:
        consumer.close()
    return reading.result()


async def _own(reading: _Reading, ready: Callable[[], int]) -> Got:
    job, size = reading.job, reading.job.load.payload
    wait_ms = round(WAIT_SECONDS * 1000)
    settings: dict[str, Any] = {"login": job.login, "auto_offset_reset": "earliest"}
    async with Consumer(job.servers, enable_auto_commit=False, **settings) as consumer:
        consumer.assign([TopicPartition(job.topic, p) for p in job.partitions])
        judge = reading.begin(ready())
        while reading.goes_on():
            if job.api == "get_arrow":
                rows = await consumer.get_arrow(timeout_ms=wait_ms)
                if rows is None:
                    continue
                column = rows.column(1)
                data = column.buffers()[2].slice(column.offset * size, len(column) * size)
                judge.take_joined(memoryview(data).cast("B"), now_us())
            else:
                many = await consumer.getmany(timeout_ms=wait_ms, max_records=MANY)
                if not many:
                    continue
                for records in many.values():
                    judge.take([record.value or b"" for record in records], now_us())
            reading.came()
    return reading.result()
