"""What runs where and when: jobs on the GPUs of a fleet, drawn before the first reading.

Owns the schedule. A job has one pod for each of its hosts, `job-K-R`; between jobs a GPU belongs
to nobody for some minutes. How a load looks in readings is not known here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from itertools import count
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace.simulate.published import FRAMEBUFFER_MIB, GPUS_PER_HOST, HOUR_US, MINUTE_US

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from random import Random


class Load(StrEnum):
    """What a job does with its GPUs."""

    TRAINING = "training"
    DENSE = "dense"
    MEMORY = "memory"
    DOUBLE = "double"
    INFERENCE = "inference"
    DECODING = "decoding"


NAMESPACES: Final = ("research", "language", "vision", "recommendation", "serving")

_CELL_HOSTS: Final = (1, 1, 2, 2, 4)
_SPLITS: Final = ((8,), (8,), (4, 4), (4, 2, 2), (2, 2, 2, 2), (4, 2, 1, 1), (1,) * 8)
_LARGE: Final = (*[Load.TRAINING] * 6, *[Load.DENSE] * 3, Load.INFERENCE)
_SMALL: Final = (
    *[Load.INFERENCE] * 4, *[Load.DECODING] * 2, *[Load.TRAINING] * 2, Load.DENSE, Load.MEMORY,
    Load.DOUBLE,
)  # fmt: skip
_WIDE_JOB_SHARE: Final = 0.3
_DRAINED_SHARE: Final = 0.04
_VACANT_SHARE: Final = 0.08
_ROUND_US: Final = (40 * MINUTE_US, 5 * HOUR_US)
_VACANCY_US: Final = (3 * MINUTE_US, 14 * MINUTE_US)
_EARLY_END_US: Final = 10 * MINUTE_US


@dataclass(frozen=True, slots=True)
class Job:
    """One job.

    Attributes:
        number: K of its pods.
        namespace: of its pods.
        load: what it does.
        framebuffer_mib: memory that it takes on each of its GPUs.
        steady: it has no pauses between steps.
    """

    number: int
    namespace: str
    load: Load
    framebuffer_mib: int
    steady: bool = False


class Segment(NamedTuple):
    """A GPU belongs to a job from `start_us` until before `end_us`."""

    start_us: int
    end_us: int
    job: Job
    pod: str


class Scheduler:
    """Draws the jobs of a fleet.

    Args:
        rng: all draws come from it.
        gpus: how many there are; hosts hold eight, the last one what is left.
        start_us: first instant.
        end_us: last instant.
    """

    def __init__(self, rng: Random, gpus: int, start_us: int, end_us: int) -> None:
        self._rng = rng
        self._numbers = count(1)
        self._start_us = start_us
        self._end_us = end_us
        self.segments: list[list[Segment]] = [[] for _ in range(gpus)]
        self._background()

    def job(self, load: Load, *, steady: bool = False) -> Job:
        """A new job."""
        rng = self._rng
        framebuffer = round(rng.uniform(0.2, 0.93) * FRAMEBUFFER_MIB)
        return Job(next(self._numbers), rng.choice(NAMESPACES), load, framebuffer, steady)

    def place(self, job: Job, gpus: Sequence[int], start_us: int, end_us: int) -> None:
        """Gives `gpus` to `job` for a time, whatever else they would do."""
        for replica, host in enumerate(sorted({gpu // GPUS_PER_HOST for gpu in gpus})):
            mine = [gpu for gpu in gpus if gpu // GPUS_PER_HOST == host]
            segment = Segment(start_us, end_us, job, f"job-{job.number}-{replica}")
            for gpu in mine:
                kept = [part for old in self.segments[gpu] for part in _cut(old, start_us, end_us)]
                self.segments[gpu] = sorted([*kept, segment])

    def _background(self) -> None:
        rng, gpus, first = self._rng, len(self.segments), 0
        while first < gpus:
            end = min(first + GPUS_PER_HOST * rng.choice(_CELL_HOSTS), gpus)
            at_us = self._start_us - rng.randint(0, _ROUND_US[0])
            while at_us < self._end_us:
                end_us = at_us + rng.randint(*_ROUND_US)
                self._round(range(first, end), at_us, end_us)
                at_us = end_us + rng.randint(*_VACANCY_US)
            first = end

    def _round(self, gpus: range, start_us: int, end_us: int) -> None:
        """Jobs of one cell of hosts until they have all ended."""
        rng = self._rng
        if len(gpus) > GPUS_PER_HOST and rng.random() < _WIDE_JOB_SHARE:
            self._add(self.job(rng.choice(_LARGE)), gpus, start_us, end_us)
            return
        for part in self._parts(gpus):
            if rng.random() < _VACANT_SHARE:
                continue
            job = self.job(rng.choice(_LARGE if len(part) >= 4 else _SMALL))
            self._add(job, part, start_us, end_us - rng.randint(0, _EARLY_END_US))

    def _parts(self, gpus: range) -> Iterator[range]:
        for first in range(gpus.start, gpus.stop, GPUS_PER_HOST):
            if self._rng.random() < _DRAINED_SHARE:
                continue  # the host is drained: its GPUs are there, and nobody's
            at, stop = first, min(first + GPUS_PER_HOST, gpus.stop)
            for size in self._rng.choice(_SPLITS):
                if at < stop:
                    yield range(at, min(at + size, stop))
                at += size

    def _add(self, job: Job, gpus: range, start_us: int, end_us: int) -> None:
        base = gpus.start // GPUS_PER_HOST
        for gpu in gpus:
            pod = f"job-{job.number}-{gpu // GPUS_PER_HOST - base}"
            self.segments[gpu].append(Segment(start_us, end_us, job, pod))


def _cut(segment: Segment, start_us: int, end_us: int) -> Iterator[Segment]:
    """What is left of a segment outside a span."""
    if segment.start_us < start_us:
        yield segment._replace(end_us=min(segment.end_us, start_us))
    if segment.end_us > end_us:
        yield segment._replace(start_us=max(segment.start_us, end_us))
