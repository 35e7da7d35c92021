"""How old records are when they are in `readings`, while a fleet publishes over MQTT.

A record's age counts from `ingest_time`, which is when the fleet's schedule has it published: a
publisher that falls behind hides nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import signal
import threading
import time
from bisect import bisect_right
from typing import TYPE_CHECKING, Final, Self

from headrace.bench.kafka.probes import quantiles_ms
from headrace.bench.spark import fill
from headrace.bench.spark.command import END_SECONDS, pipeline
from headrace.bench.spark.load import AGE_P50_MS, Load, Row
from headrace.client.admin import Admin
from headrace.client.consumer import Consumer
from headrace.client.records import TopicPartition
from headrace.collect import Origin, Publisher, wide
from headrace.collect.instants import parse_instant
from headrace.errors import HeadraceError, UnavailableError
from headrace.pipeline import tables
from headrace.simulate import in_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from multiprocessing.connection import Connection
    from pathlib import Path

    from headrace.bench.spark.command import Pipeline, Seen
    from headrace.model import Address

STREAM: Final = "gpu-telemetry"
"""With which a node begins, bound to what a fleet publishes."""

LEAD_SECONDS: Final = 3.0
"""From the start of a publisher to its first scrape: it makes its fleet, and connects."""

DRAIN_SECONDS: Final = 60.0
"""Until all that was published is in the tables."""

WAIT_MS: Final = 100
ENOUGH: Final = 0.95
"""Of the rate that was asked for; beneath, the row says so."""


def age_rows(servers: str, mqtt: Address, load: Load, folder: Path) -> list[Row]:
    """Ages in `readings`, beside those at a consumer of the same stream.

    Raises:
        UnavailableError: the pipeline or the publisher fails, or does not keep up.
    """
    with (
        Fleet(mqtt, load) as fleet,
        Reader(servers) as reader,
        pipeline(
            folder / "live", servers, load, "--stream", STREAM, "--every", load.every
        ) as running,
    ):
        seen, window = _followed(running, fleet, load)
        found = _ages(running.tables, seen, window)
    read = [at - ingest for ingest, at in reader.read if window[0] <= ingest < window[1]]
    ours, theirs = quantiles_ms(found), quantiles_ms(read)
    rate = len(found) / load.duration
    note = f"{rate:,.0f} readings/s"
    if rate < ENOUGH * load.rate:
        note += f" of {load.rate:,.0f} asked for"
    words = "at headrace.Consumer, a message"
    name = "age in readings, {}".format
    return [
        Row(name("p50"), "ms", ours["p50_ms"], words, theirs["p50_ms"], AGE_P50_MS, note=note),
        Row(name("p99"), "ms", ours["p99_ms"], words, theirs["p99_ms"], note=note),
    ]


def _followed(
    running: Pipeline, fleet: Fleet, load: Load
) -> tuple[list[Seen], tuple[float, float]]:
    """All versions until everything is in the tables, and the time whose records count."""
    seen: list[Seen] = []
    begin = end = drained_by = float("inf")
    published = 0
    for each in running.versions():
        now = time.time()
        if each is not None:
            seen.append(each)
            if begin == float("inf") and each.manifest.totals.rows:
                begin = now + load.warm_up
                end = begin + load.duration
        if not published and (now >= end or fleet.is_over):
            published = fleet.stop()
            drained_by = time.time() + DRAIN_SECONDS
        if published and seen[-1].manifest.totals.messages >= published:
            return seen, (begin, end)
        if now > drained_by:
            held = seen[-1].manifest.totals.messages
            raise UnavailableError(
                f"the pipeline does not keep up with {load.rate:,.0f} readings a second: {held:,} "
                f"of {published:,} messages are in the tables; give a lower --rate"
            )
    raise UnavailableError("the pipeline has ended before its time")


def committed_at(seen: Sequence[Seen]) -> Callable[[int, int], float]:
    """When the version was seen that the message at a partition and offset came with."""
    ends: dict[int, tuple[list[int], list[float]]] = {}
    for each in seen:
        for partition, end in each.manifest.offsets.get(STREAM, {}).items():
            offsets, times = ends.setdefault(int(partition), ([], []))
            if not offsets or end > offsets[-1]:
                offsets.append(end)
                times.append(each.at)

    def at(partition: int, offset: int) -> float:
        offsets, times = ends[partition]
        return times[bisect_right(offsets, offset)]

    return at


def _ages(place: Path, seen: Sequence[Seen], window: tuple[float, float]) -> list[float]:
    """Seconds from `ingest_time` to the version that a reading came with."""
    at = committed_at(seen)
    rows = tables.open_arrow(place, "readings").to_table(["partition", "offset", "ingest_time"])
    columns = (
        rows["partition"].to_pylist(),
        rows["offset"].to_pylist(),
        rows["ingest_time"].cast("int64").to_pylist(),
    )
    return [
        at(partition, offset) - ingest_us / 1e6
        for partition, offset, ingest_us in zip(*columns, strict=True)
        if window[0] <= ingest_us / 1e6 < window[1]
    ]


class Fleet:
    """A process in which a fleet publishes at its own pace."""

    def __init__(self, broker: Address, load: Load) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._pipe, theirs = spawn.Pipe()
        self._process = spawn.Process(target=_publish, args=(broker, load, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.join(END_SECONDS)
        self._process.kill()
        self._process.join()

    @property
    def is_over(self) -> bool:
        """Whether it has ended by itself."""
        return not self._process.is_alive()

    def stop(self) -> int:
        """Ends it; the messages that were acknowledged.

        Raises:
            UnavailableError: it has failed.
        """
        self._process.terminate()
        told: int | str = "it has ended"
        with contextlib.suppress(EOFError):
            told = self._pipe.recv() if self._pipe.poll(END_SECONDS) else "it does not end"
        if isinstance(told, str):
            raise UnavailableError(f"the fleet does not publish: {told}")
        return told


def _publish(broker: Address, load: Load, pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # its parent ends it
    publisher = Publisher(broker, Origin("headrace-bench", time.time_ns()))
    signal.signal(signal.SIGTERM, lambda *_: publisher.stop())
    gpus = fill.gpus_for(load.rate, load.scrape_s)
    start_us = round((time.time() + LEAD_SECONDS) * 1e6)
    fleet = fill.fleet(gpus, load.scrape_s, start_us)
    due = in_time(fleet.scrapes(), wide, start_us, 1.0, lambda: time.time() - start_us / 1e6)
    try:
        pipe.send(publisher.run(due).messages)
    except HeadraceError as error:
        pipe.send(str(error))


class Reader:
    """A thread that reads the stream from its end on, and notes when what came.

    Attributes:
        read: of each message its `ingest_time` and when it was read, in seconds since 1970.
    """

    def __init__(self, servers: str) -> None:
        self.read: list[tuple[float, float]] = []
        self._servers = servers
        self._over = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    async def _run(self) -> None:
        with contextlib.suppress(HeadraceError):  # what it has not read, no baseline has
            await self._read_on()

    async def _read_on(self) -> None:
        async with Admin(self._servers) as admin:
            partitions = (await admin.topics())[STREAM]
        async with Consumer(self._servers, auto_offset_reset="latest") as consumer:
            consumer.assign([TopicPartition(STREAM, p) for p in range(partitions)])
            while not self._over.is_set():
                came = await consumer.getmany(timeout_ms=WAIT_MS)
                at = time.time()
                for values in came.values():
                    self.read += ((ingest, at) for ingest in _ingest(each.value for each in values))


def _ingest(values: Iterator[bytes | None]) -> Iterator[float]:
    for value in values:
        told = parse_instant(json.loads(value or b"{}").get("ingest_time", ""))
        if told is not None:
            yield told / 1e6
