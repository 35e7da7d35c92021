"""Stretches of event time: which a micro-batch touches, and where files are cut.

A pure part. All times are microseconds since the epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace import job_limits

if TYPE_CHECKING:
    from collections.abc import Iterable

Span = tuple[int, int]
"""`[start, end)` in microseconds since the epoch."""


def merged(spans: Iterable[Span]) -> list[Span]:
    """The stretches that `spans` cover, in order, at most `job_limits.PIPELINE_SPANS_MAX`.

    Where there are more, those with the shortest gap between them are joined, and the gap comes
    along.
    """
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    while len(found) > job_limits.PIPELINE_SPANS_MAX:
        at = min(range(1, len(found)), key=lambda at: found[at][0] - found[at - 1][1])
        found[at - 1 : at + 1] = [(found[at - 1][0], found[at][1])]
    return found


def touched(starts: Iterable[int], interval_us: int, lookback_us: int) -> list[Span]:
    """The stretches of time whose intervals change when those at `starts` get new readings.

    A new reading changes its own interval, and the growth of the next scrape's, which may be the
    look-back later.
    """
    reach = interval_us + lookback_us + (-lookback_us) % interval_us
    return merged((start, start + reach) for start in starts)


def within(column: str, spans: Iterable[Span]) -> str:
    """SQL: whether the instant `column` lies in one of `spans`."""
    return " OR ".join(
        f"(epoch_us({column}) >= {start} AND epoch_us({column}) < {end})" for start, end in spans
    )
