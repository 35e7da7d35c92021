"""What the process itself is seen to do: its threads, and how late its event loop comes to things.

CPU, memory and descriptors are `prometheus_client`'s (`adapters.metrics`).
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace import limits
from headrace.ports import Histogram, Sample

if TYPE_CHECKING:
    from collections.abc import Iterator

THREADS: Final = Path("/proc/self/task")

BOUNDS_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""A loop that is well comes within the first; what a client notices begins at the fifth or so."""


def samples() -> Iterator[Sample]:
    """Gauges of the process."""
    threads = sum(1 for _ in THREADS.iterdir())
    yield Sample("process_threads", threads, "Threads of the process.")


class Durations:
    """Seconds that something took, counted by `BOUNDS_SECONDS`."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS_SECONDS) + 1)
        self.sum = 0.0

    def add(self, seconds: float) -> None:
        """One more."""
        self._counts[bisect_left(BOUNDS_SECONDS, seconds)] += 1
        self.sum += seconds

    @property
    def buckets(self) -> tuple[tuple[str, float], ...]:
        """As a histogram has them."""
        bounds = [*(str(bound) for bound in BOUNDS_SECONDS), "+Inf"]
        counts = accumulate(self._counts)
        return tuple((bound, float(count)) for bound, count in zip(bounds, counts, strict=True))


class LoopLag:
    """How late the event loop is, looked at each `limits.LOOP_LAG_SECONDS`."""

    def __init__(self) -> None:
        self._seen = Durations()
        self._loop = asyncio.get_running_loop()
        self._due = 0.0
        self._timer = self._arm()

    def _arm(self) -> asyncio.TimerHandle:
        self._due = self._loop.time() + limits.LOOP_LAG_SECONDS
        return self._loop.call_at(self._due, self._look)

    def _look(self) -> None:
        self._seen.add(max(self._loop.time() - self._due, 0.0))
        self._timer = self._arm()

    def stop(self) -> None:
        """Looks no more."""
        self._timer.cancel()

    def histograms(self) -> Iterator[Histogram]:
        """What was seen."""
        yield Histogram(
            "loop_lag_seconds",
            "How late the event loop came to a timer, which everything else then was too.",
            self._seen.buckets,
            self._seen.sum,
        )
