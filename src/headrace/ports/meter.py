"""Measurements, as a port: what a node counts, before anything decides how it is exported."""

from bisect import bisect_left
from typing import NamedTuple


class Sample(NamedTuple):
    """One counter or gauge.

    Attributes:
        name: without the `headrace_` prefix; a counter ends in `_total`.
        value: in base units.
        help: one sentence.
        labels: names and values.
    """

    name: str
    value: float
    help: str = ""
    labels: tuple[tuple[str, str], ...] = ()


class Histogram:
    """Durations counted into fixed buckets; `observe` costs one bisection."""

    __slots__ = ("bounds", "counts", "help", "name", "sum")

    def __init__(self, name: str, bounds: tuple[float, ...], text: str) -> None:
        """Starts empty; `bounds` ascend, in seconds, and an unbounded last bucket is added."""
        self.name = name
        self.help = text
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        """Counts one duration."""
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.sum += seconds
