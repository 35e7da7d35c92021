"""Streams with records in them: payloads of some size, and the telemetry of a simulated fleet."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import as_file, files
from itertools import islice
from typing import TYPE_CHECKING, Final

from headrace.client.admin import Admin
from headrace.client.producer import Producer
from headrace.collect import CsvFile, wide
from headrace.native import Payloads
from headrace.simulate import Fleet, Settings, pools
from headrace.simulate import messages as messages_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.simulate import Scrape

START_US: Final = int(datetime(2026, 1, 5, tzinfo=UTC).timestamp()) * 1_000_000
FLEET_US: Final = 86_400_000_000
"""How long a fleet lives: longer than anybody measures."""

CHUNK: Final = 1_000
"""Records between two looks whether there is room."""


@dataclass(frozen=True, slots=True)
class Filled:
    """A stream, and what is in it."""

    stream: str
    messages: int
    readings: int


def fleet(gpus: int, scrape_s: float, start_us: int = START_US) -> Fleet:
    """GPUs without faults, the same ones each time."""
    with as_file(files("headrace") / "data" / "h200-1hz.csv.gz") as trace:
        samples = pools(CsvFile(trace))
    settings = Settings(gpus, start_us, FLEET_US, round(scrape_s * 1e6), kinds=frozenset())
    return Fleet(settings, samples)


def gpus_for(rate: float, scrape_s: float) -> int:
    """How many GPUs give about so many readings a second."""
    scrapes = list(islice(fleet(64, scrape_s).scrapes(), 64))
    of_one = sum(len(scrape.metrics) for scrape in scrapes) / len(scrapes)
    return max(round(rate * scrape_s / of_one), 1)


async def records(servers: str, stream: str, count: int, size: int, partitions: int) -> Filled:
    """A stream of records of `size` bytes, dealt out over its partitions.

    Raises:
        ClientError: the broker refuses.
    """
    async with Admin(servers) as admin:
        await admin.create_topic(stream, partitions=partitions)
    payloads = Payloads(stream, 0, size)
    async with Producer(servers) as producer:
        for begun in range(0, count, CHUNK):
            await producer.ready()
            for value in payloads.take(min(CHUNK, count - begun)):
                producer.send_nowait(stream, value, partition=begun // CHUNK % partitions)
    return Filled(stream, count, 0)


async def telemetry(
    servers: str,
    stream: str,
    scrapes: Iterable[Scrape],
    partitions: int,
    *,
    readings: int = 0,
    messages: int = 0,
) -> Filled:
    """A stream of wide messages, each GPU in one partition; at least so many of both.

    Raises:
        ClientError: the broker refuses.
    """
    async with Admin(servers) as admin:
        await admin.create_topic(stream, partitions=partitions)
    sent = held = 0
    async with Producer(servers) as producer:
        for message in messages_of(scrapes, wide):
            await producer.ready()
            producer.send_nowait(stream, message.payload, key=message.topic.encode())
            sent, held = sent + 1, held + message.readings
            if held >= readings and sent >= messages:
                break
    return Filled(stream, sent, held)
