"""How busy a job is, moment by moment: the same for all of its GPUs.

Owns pauses between steps and the bursts of inference. Time is the fleet's; asked about times that
rise.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

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
}
"""Load to the part of the trace that it looks like while it is busy."""

_BUSY_US: Final = (4 * MINUTE_US, 50 * MINUTE_US)
_PAUSE_US: Final = (MINUTE_US // 4, 4 * MINUTE_US)
"""Checkpoints, evaluations, waits for data."""

_DEMAND_MEAN: Final = 0.5
_DEMAND_DEVIATION: Final = 0.22
_DEMAND_BOUNDS: Final = (0.07, 0.97)
_DEMAND_MEMORY_US: Final = MINUTE_US
"""Requests to a service: bursts of about a minute around a mean."""


class Activity:
    """One job while it runs."""

    __slots__ = ("__weakref__", "_at_us", "_busy", "_demand", "_job", "_rng", "_until_us", "pool")

    def __init__(self, job: Job, rng: Random) -> None:
        self.pool = POOLS[job.load]
        self._job = job
        self._rng = rng
        self._at_us = self._until_us = 0
        self._busy = False
        self._demand = _DEMAND_MEAN

    def busy(self, at_us: int) -> float:
        """How much of the time the job is at work around `at_us`, from 0 to 1."""
        if self._job.load is Load.INFERENCE:
            return self._demanded(at_us)
        if self._job.steady:
            return 1.0
        while at_us >= self._until_us:
            self._busy = not self._busy
            span = self._rng.randint(*(_BUSY_US if self._busy else _PAUSE_US))
            self._until_us = max(self._until_us, at_us) + span
        return 1.0 if self._busy else 0.0

    def _demanded(self, at_us: int) -> float:
        if at_us > self._at_us:
            kept = math.exp((self._at_us - at_us) / _DEMAND_MEMORY_US) if self._at_us else 0.0
            self._at_us = at_us
            noise = self._rng.gauss(0.0, _DEMAND_DEVIATION) * math.sqrt(1.0 - kept * kept)
            self._demand = _DEMAND_MEAN + kept * (self._demand - _DEMAND_MEAN) + noise
        low, high = _DEMAND_BOUNDS
        return min(max(self._demand, low), high)
