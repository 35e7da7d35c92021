"""Measurements, as a port: what a node counts, before anything decides how it is exported."""

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
    help: str
    labels: tuple[tuple[str, str], ...] = ()


class Histogram(NamedTuple):
    """A distribution.

    Attributes:
        name: without the `headrace_` prefix.
        help: one sentence.
        buckets: `(upper bound, values up to it)`, ascending, the last bound `+Inf`.
        sum: of all values, in base units.
        labels: names and values.
    """

    name: str
    help: str
    buckets: tuple[tuple[str, float], ...]
    sum: float
    labels: tuple[tuple[str, str], ...] = ()
