"""Stretches of event time: which a micro-batch touches, and where files are cut.

A pure part. All times are microseconds since the epoch.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headrace import job_limits

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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


def aligned(spans: Iterable[Span], step_us: int) -> list[Span]:
    """`spans` out to multiples of `step_us`."""
    return merged((start - start % step_us, end + (-end) % step_us) for start, end in spans)


def touched(starts: Iterable[int], interval_us: int, staleness_us: int) -> list[Span]:
    """The stretches of time whose intervals change when those at `starts` get new readings.

    A new reading changes its own interval, and the growth of the next scrape's, which may be the
    staleness later.
    """
    reach = interval_us + staleness_us + (-staleness_us) % interval_us
    return merged((start, start + reach) for start in starts)


def lie_within(instants: pa.ChunkedArray, spans: Sequence[Span]) -> pa.ChunkedArray:
    """Which of `instants` lie in one of `spans`, of which there is one at least."""
    return overlap(instants, instants, [(start, end - 1) for start, end in spans])


def overlap(begin: pa.ChunkedArray, end: pa.ChunkedArray, spans: Sequence[Span]) -> pa.ChunkedArray:
    """Which stretches from `begin` to `end` touch one of `spans`; there must be one at least."""
    first, last = pc.cast(begin, pa.int64()), pc.cast(end, pa.int64())
    touching = [
        pc.and_(pc.less_equal(first, stop), pc.greater_equal(last, start)) for start, stop in spans
    ]
    return reduce(pc.or_, touching)
