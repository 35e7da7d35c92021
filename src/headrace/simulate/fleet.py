"""A fleet of GPUs as its scrapes: a seed in, scrapes out, in the order in which they arrive.

Owns hosts, their clocks and what happens to messages on their way. Reads no clock: time is the
fleet's own. The same settings give the same scrapes, to the bit.
"""

from __future__ import annotations

import heapq
import uuid
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

from headrace.collect import Reading
from headrace.collect.instants import format_instant
from headrace.simulate import published
from headrace.simulate.faults import Fault, Kind, Planner
from headrace.simulate.gpu import Gpu
from headrace.simulate.jobs import Scheduler
from headrace.simulate.published import GPUS_PER_HOST, HOUR_US

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from headrace.simulate.loads import Activity
    from headrace.simulate.trace import Sample

_NAMESPACE: Final = uuid.UUID("0d5a9c2c-52b0-5a0e-8e2c-2f6f2a3a9c11")
_JITTER_US: Final = 40_000
"""How far a scrape is off its time, either way."""

_ON_THE_WAY_US: Final = (2_000, 400_000)
_SECOND_US: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Settings:
    """What a fleet is made from.

    Attributes:
        gpus: how many.
        start_us: first instant, in microseconds since the epoch.
        duration_us: how long.
        interval_us: between scrapes of a GPU.
        seed: of every draw.
        kinds: of faults.
        faults_per_kind: how many of each.
    """

    gpus: int
    start_us: int
    duration_us: int
    interval_us: int = 15 * _SECOND_US
    seed: int = 0
    kinds: frozenset[Kind] = frozenset(Kind)
    faults_per_kind: int = 3

    @property
    def end_us(self) -> int:
        """The instant before which the last scrape is."""
        return self.start_us + self.duration_us


@dataclass(slots=True)
class Scrape:
    """All values of one GPU at one instant, as one message would carry them.

    Attributes:
        host: name of the machine.
        uuid: of the GPU.
        device: such as `nvidia0`.
        labels: as those of a `Reading`; shared, never changed in place.
        event_us: when it was scraped.
        arrival_us: when it was collected, by the fleet's time.
        metrics: text by field.
    """

    host: str
    uuid: str
    device: str
    labels: Mapping[str, str]
    event_us: int
    arrival_us: int
    metrics: dict[str, str]

    def readings(self) -> Iterator[Reading]:
        """One for each value."""
        at_us = self.event_us
        timestamp = format_instant(at_us)
        for metric, raw in self.metrics.items():
            yield Reading(
                timestamp, at_us, metric, self.uuid, self.device, self.host, raw, self.labels
            )


class Fleet:
    """The fleet of some settings.

    Args:
        settings: what it is made from.
        pools: samples of real loads, of `trace.pools`.

    Raises:
        InputError: its faults do not fit into it.
    """

    def __init__(self, settings: Settings, pools: Mapping[str, tuple[Sample, ...]]) -> None:
        self.settings = settings
        self._pools = pools
        rng = self._random("plan")
        start_us, end_us = settings.start_us, settings.end_us
        self._schedule = Scheduler(rng, settings.gpus, start_us, end_us)
        planner = Planner(rng, self._schedule, start_us, end_us)
        self.faults: list[Fault] = planner.plan(settings.kinds, settings.faults_per_kind)

    def truth(self) -> Iterator[str]:
        """A JSON object for each fault and GPU, in the order of their start."""
        for fault in self.faults:
            for gpu in fault.gpus:
                yield fault.line(self.host(gpu), self.uuid(gpu))

    def host(self, gpu: int) -> str:
        """Name of the host of a GPU."""
        return f"gpu-node-{gpu // GPUS_PER_HOST + 1:04d}"

    def uuid(self, gpu: int) -> str:
        """UUID of a GPU."""
        return _uuid(self.settings.seed, gpu)

    def scrapes(self) -> Iterator[Scrape]:
        """All scrapes as they arrive; late ones behind others, repeated ones twice."""
        rng = self._random("network")
        waiting: list[tuple[int, int, Scrape]] = []  # a heap by arrival
        for number, scrape in enumerate(self._scraped()):
            while waiting and waiting[0][0] <= scrape.arrival_us:
                yield heapq.heappop(waiting)[2]
            chance = rng.random()
            if chance < published.LATE_SHARE:
                late = published.LATE_SECONDS
                scrape.arrival_us += round(rng.uniform(late.low, late.high) * _SECOND_US)
                heapq.heappush(waiting, (scrape.arrival_us, number, scrape))
                continue
            yield scrape
            if chance > 1.0 - published.REPEATED_SHARE:
                heapq.heappush(waiting, (scrape.arrival_us + _SECOND_US, number, scrape))
        while waiting:
            yield heapq.heappop(waiting)[2]

    def _scraped(self) -> Iterator[Scrape]:
        """Scrapes by host and instant, none on its way yet."""
        settings, rng = self.settings, self._random("clocks")
        hosts = self._hosts(rng)
        exporters = {gpus[0][0]: _Exporter(rng, settings.interval_us) for _, gpus in hosts}
        for tick_us in range(settings.start_us, settings.end_us, settings.interval_us):
            for offset_us, gpus in hosts:
                at_us = tick_us + offset_us + rng.randint(0, 2 * _JITTER_US)
                arrival_us = at_us + rng.randint(*_ON_THE_WAY_US)
                if at_us >= settings.end_us or exporters[gpus[0][0]].misses(tick_us):
                    continue
                for index, gpu in gpus:
                    seen = gpu.scraped(at_us, tick_us)
                    if seen is not None:
                        yield Scrape(
                            self.host(index), self.uuid(index), gpu.device_name, seen.labels,
                            at_us, arrival_us, seen.metrics,
                        )  # fmt: skip

    def _hosts(self, rng: Random) -> list[tuple[int, list[tuple[int, Gpu]]]]:
        """`(offset in the interval, GPUs with their index)` of each host, by offset."""
        settings = self.settings
        activities: WeakValueDictionary[int, Activity] = WeakValueDictionary()
        faults: dict[int, list[Fault]] = {}
        for fault in self.faults:
            for index in fault.gpus:
                faults.setdefault(index, []).append(fault)
        hosts = []
        for first in range(0, settings.gpus, GPUS_PER_HOST):
            slowdown = rng.choice(published.SLOWDOWN_CELSIUS)
            warm = published.WARM_CELSIUS
            is_warm = rng.random() < published.WARM_HOST_SHARE
            warmth = rng.uniform(warm.low, warm.high) if is_warm else 0.0
            members = []
            for index in range(first, min(first + GPUS_PER_HOST, settings.gpus)):
                gpu = Gpu(
                    self._random(f"gpu/{index}"), self._pools, (slowdown, warmth), index - first,
                    self._schedule.segments[index], faults.get(index, []), activities,
                    lambda number: self._random(f"job/{number}"),
                )  # fmt: skip
                members.append((index, gpu))
            hosts.append((rng.randrange(max(settings.interval_us - 2 * _JITTER_US, 1)), members))
        hosts.sort(key=lambda host: (host[0], host[1][0][0]))
        return hosts

    def _random(self, name: str) -> Random:
        """A stream of its own: what one part draws changes no other."""
        return Random(f"{self.settings.seed}/{name}")  # noqa: S311 (nothing secret)


class _Exporter:
    """Scrapes of one host that find nothing, without a fault."""

    __slots__ = ("_away_until_us", "_interval_us", "_rng")

    def __init__(self, rng: Random, interval_us: int) -> None:
        self._rng = rng
        self._interval_us = interval_us
        self._away_until_us = 0

    def misses(self, tick_us: int) -> bool:
        """Whether the scrape of this round finds nothing."""
        rng = self._rng
        if rng.random() < published.RESTARTS_PER_HOUR * self._interval_us / HOUR_US:
            scrapes = rng.randint(*published.RESTART_SCRAPES)
            self._away_until_us = tick_us + scrapes * self._interval_us
        return tick_us < self._away_until_us or rng.random() < published.MISSED_SHARE


@lru_cache(maxsize=16_384)
def _uuid(seed: int, gpu: int) -> str:
    return f"GPU-{uuid.uuid5(_NAMESPACE, f'{seed}/{gpu}')}"


assert HOUR_US == 3_600 * _SECOND_US
