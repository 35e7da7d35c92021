"""Readings of a GPU put together by windows of time. Pure.

A window begins at a multiple of its length since the epoch, and is what lies in it: the mean, the
least, greatest and last value, and how many scrapes. In numpy, for a month of one metric is 172,800
rows, of which DuckDB takes three times as long to make 720.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from headrace.dcgm.fields import Keep

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.dcgm.fields import Field

_Whole = np.ndarray[Any, np.dtype[np.int64]]
_Real = np.ndarray[Any, np.dtype[np.float64]]

_NO_ROWS: Final = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Points:
    """Values at times, in any order.

    Attributes:
        time: microseconds.
        metric: places in `names`.
        value: NaN where there is none.
        high: greatest value that `value` stands for.
        weight: scrapes that it stands for.
        names: of metrics, sorted.
    """

    time: _Whole
    metric: _Whole
    value: _Real
    high: _Real
    weight: _Whole
    names: Sequence[str]


def of_readings(rows: pa.Table) -> Points:
    """Points of `event_time` (microseconds), `metric` (a dictionary) and `value`."""
    column = rows.unify_dictionaries()["metric"].combine_chunks()
    texts = column.dictionary.to_pylist()
    names = sorted(texts)
    places = np.array([names.index(text) for text in texts], np.int64)
    value = _real(rows, "value")
    metric = places[column.indices.to_numpy(zero_copy_only=False)] if texts else _NO_ROWS
    weight = np.ones(rows.num_rows, np.int64)
    return Points(_whole(rows, "event_time"), metric, value, value, weight, names)


def of_intervals(rows: pa.Table, field: Field) -> Points:
    """Points of one field in rows of `gpu_intervals`."""
    value = _real(rows, field.columns[Keep.MEAN])
    high = _real(rows, field.columns[Keep.MAX]) if Keep.MAX in field.columns else value
    weight = _whole(rows, "samples")
    if field.profiling:
        weight = weight - _whole(rows, "profiling_gaps")
    metric = np.zeros(rows.num_rows, np.int64)
    return Points(_whole(rows, "interval_start"), metric, value, high, weight, [field.name])


def windows(
    points: Points, window_us: int, after: tuple[int, str], before_us: int, count: int
) -> Iterator[dict[str, Any]]:
    """The first `count` windows by start and metric, which begin after `after`."""
    start = points.time - points.time % window_us
    keep = ~np.isnan(points.value) & (points.weight > 0) & (start < before_us)
    keep &= start >= after[0]
    places: Any = np.flatnonzero(keep)
    if len(points.names) > 1 or (points.time[1:] < points.time[:-1]).any():
        order = np.lexsort((points.time[places], points.metric[places], start[places]))
        places = places[order]
    elif len(places) == len(start):
        places = slice(None)  # all of them, in order: a view is enough
    start, metric, weight = start[places], points.metric[places], points.weight[places]
    value, high = points.value[places], points.high[places]
    if not len(start):
        return
    begins = np.flatnonzero(np.diff(start, prepend=-1) | np.diff(metric, prepend=-1))
    ends = np.append(begins[1:], len(start)) - 1
    samples = np.add.reduceat(weight, begins)
    columns = zip(
        start[begins].tolist(),
        metric[begins].tolist(),
        _mean(value, weight, begins, samples).tolist(),
        np.minimum.reduceat(value, begins).tolist(),
        np.maximum.reduceat(high, begins).tolist(),
        value[ends].tolist(),
        samples.tolist(),
        strict=True,
    )
    for begin, place, avg, low, greatest, last, scrapes in columns:
        name = points.names[place]
        if (begin, name) <= after:
            continue
        if not count:
            return
        count -= 1
        yield {
            "start": begin, "metric": name, "avg": avg, "min": low, "max": greatest,
            "last": last, "samples": scrapes,
        }  # fmt: skip


def _mean(value: _Real, weight: _Whole, begins: _Whole, samples: _Whole) -> _Real:
    """Means of what begins there; of numbers whose sum is beyond a double, too."""
    with np.errstate(over="ignore"):
        found: _Real = np.add.reduceat(value * weight, begins) / samples
    if not np.isfinite(found).all():
        share = value * (weight / np.repeat(samples, np.diff(begins, append=len(value))))
        found = np.add.reduceat(share, begins)
    return found


def _real(rows: pa.Table, name: str) -> _Real:
    """A column of numbers; NaN where it is null."""
    found: _Real = rows[name].to_numpy()
    return found.astype(np.float64, copy=False)


def _whole(rows: pa.Table, name: str) -> _Whole:
    """A column of counts; 0 where it is null."""
    found: _Whole = pa.compute.fill_null(rows[name], 0).to_numpy()
    return found
