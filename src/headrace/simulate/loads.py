"""How busy a job is, moment by moment: the same for all of its GPUs.

Owns pauses between steps and the bursts of inference. Time is the fleet's; asked about times that
rise.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace.simulate import trace
from headrace.simulate.jobs import Load
from headrace.simulate.published import MINUTE_US

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

    from headrace.simulate.jobs import Job

POOLS: Final[Mapping[Load, str]] = {
    Load.TRAINING: trace.TRAINING,
    Load.DENSE: trace.DENSE,
    Load.MEMORY: trace.MEMORY,
    Load.DOUBLE: trace.DOUBLE,
    Load.INFERENCE: trace.TRAINING,
    Load.DECODING: trace.MEMORY,
}
"""Load to the part of the trace that it looks like while it is busy."""

_BUSY_US: Final = (4 * MINUTE_US, 50 * MINUTE_US)
_PAUSE_US: Final = (MINUTE_US // 4, 4 * MINUTE_US)
"""Checkpoints, evaluations, waits for data."""

_LONG_PAUSE_SHARE: Final = 0.05
_LONG_PAUSE_US: Final = (6 * MINUTE_US, 11 * MINUTE_US)
"""A restart from a checkpoint."""


class _Demand(NamedTuple):
    """How much of its GPUs a service needs."""

    mean: float
    deviation: float
    low: float
    high: float


_DEMANDS: Final = {
    Load.INFERENCE: _Demand(0.5, 0.22, 0.07, 0.97),
    Load.DECODING: _Demand(0.42, 0.08, 0.25, 0.6),
}
_DEMAND_MEMORY_US: Final = MINUTE_US
"""Requests come in bursts of about a minute. Tokens of language models are decoded by small
kernels without a pause: GPU_UTIL is full, and multiprocessors and power are not."""


class Activity:
    """One job while it runs.

    Attributes:
        pool: the part of the trace that it looks like.
        always: a kernel of it always runs, so that GPU_UTIL is full.
    """

    __slots__ = (
        "__weakref__", "_at_us", "_busy", "_demand", "_level", "_rng", "_steady", "_until_us",
        "always", "pool",
    )  # fmt: skip

    def __init__(self, job: Job, rng: Random) -> None:
        self.pool = POOLS[job.load]
        self.always = job.load is Load.DECODING
        self._demand = _DEMANDS.get(job.load)
        self._level = self._demand.mean if self._demand else 1.0
        self._steady = job.steady
        self._rng = rng
        self._at_us = self._until_us = 0
        self._busy = False

    def busy(self, at_us: int) -> float:
        """How much of the time the job is at work around `at_us`, from 0 to 1."""
        if self._demand is not None:
            return self._demanded(self._demand, at_us)
        if self._steady:
            return 1.0
        while at_us >= self._until_us:
            self._busy = not self._busy
            self._until_us = max(self._until_us, at_us) + self._span()
        return 1.0 if self._busy else 0.0

    def _span(self) -> int:
        rng = self._rng
        if self._busy:
            return rng.randint(*_BUSY_US)
        return rng.randint(*(_LONG_PAUSE_US if rng.random() < _LONG_PAUSE_SHARE else _PAUSE_US))

    def _demanded(self, demand: _Demand, at_us: int) -> float:
        if at_us > self._at_us:
            kept = math.exp((self._at_us - at_us) / _DEMAND_MEMORY_US) if self._at_us else 0.0
            self._at_us = at_us
            noise = self._rng.gauss(0.0, demand.deviation) * math.sqrt(1.0 - kept * kept)
            self._level = demand.mean + kept * (self._level - demand.mean) + noise
        return min(max(self._level, demand.low), demand.high)
