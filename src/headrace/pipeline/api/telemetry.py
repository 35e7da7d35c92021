"""Telemetry of one GPU: its readings, and what windows of time make of them.

Owns which table answers, how far files are read for a page, and where the next one begins. Pages
are in the order of time, then metric. Readings of one metric and time, of which only a conflict has
several, are on one page.
"""

from __future__ import annotations

from bisect import bisect_left
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace import job_limits
from headrace.dcgm.fields import BY_NAME, Keep
from headrace.pipeline import duck
from headrace.pipeline.api.files import plain
from headrace.pipeline.api.windows import of_intervals, of_readings, windows
from headrace.pipeline.schemas import GPU_INTERVALS, READINGS
from headrace.spark.errors import SparkSideError
from headrace.spark.session import core_count

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.dcgm.fields import Field
    from headrace.pipeline.api.asked import Cursor, TelemetryAsked
    from headrace.pipeline.api.files import Files
    from headrace.pipeline.api.snapshot import Gpu, Snapshot
    from headrace.pipeline.manifest import TableFile

NEVER_US: Final = 1 << 62
"""After every time there is, and before it with a minus."""

_AT_ONCE: Final = (2, 4, 8, 16, 32, 64, 128, 256)
"""Files that are read before it is looked whether they are enough: a page near its beginning needs
one or two, and the longest as many as there are."""

assert sum(_AT_ONCE) == job_limits.API_FILES_MAX

_CONFLICTS_MAX: Final = 1_000
"""Readings of one metric and time that a page is lengthened by."""

_READING: Final = ("event_time", "metric", "value", "value_long", "conflict", "namespace", "pod")


class WindowError(SparkSideError):
    """A window takes more files than one answer reads."""

    http_status: ClassVar[int] = 400


@dataclass(frozen=True, slots=True)
class Page:
    """Rows of an answer.

    Attributes:
        rows: as they are told, but for times, which are microseconds.
        following: where the next page begins; None after the last.
        source: the table.
    """

    rows: list[dict[str, Any]]
    following: Cursor | None
    source: str


@dataclass(frozen=True, slots=True)
class _Source:
    """Where rows of one GPU come from.

    Attributes:
        table: its name.
        time: its column of time.
        columns: those that are read.
        metric: one metric, or None for all.
        field: of the column of intervals; None of readings.
    """

    table: str
    time: str
    columns: tuple[str, ...]
    metric: str | None
    field: Field | None = None


class Telemetry:
    """Answers about single GPUs."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._cores = core_count()
        self._pool = ThreadPoolExecutor(self._cores, "read")

    def close(self) -> None:
        """Ends its threads."""
        self._pool.shutdown()

    def page(self, snapshot: Snapshot, gpu: Gpu, asked: TelemetryAsked) -> Page:
        """One page.

        Raises:
            FileNotFoundError: the snapshot is older than its files are kept.
            WindowError: the window is too long for files as they are.
        """
        field = None if asked.metric_name is None else BY_NAME.get(asked.metric_name)
        metric = asked.metric_name if field is None else field.name
        begin_us = -NEVER_US if asked.start_time is None else asked.start_time
        if asked.next is not None:
            begin_us = max(begin_us, asked.next[0])
        time_us = (begin_us, NEVER_US if asked.end_time is None else asked.end_time)
        if asked.window is None:
            return self._readings(snapshot, gpu, metric, time_us, asked)
        step_us = round(snapshot.manifest.interval_seconds * 1e6)
        by_interval = asked.source == "auto" and _fits(asked.window, step_us)
        if by_interval and field is not None and Keep.MEAN in field.columns:
            return self._windows(snapshot, gpu, _intervals(field), time_us, asked)
        columns = ("event_time", "metric", "value")
        source = _Source(READINGS, "event_time", columns, metric)
        return self._windows(snapshot, gpu, source, time_us, asked)

    def metrics(self, snapshot: Snapshot, gpu: Gpu) -> list[dict[str, Any]]:
        """The metrics that a GPU has reported lately, each with its last value."""
        since_us = gpu.last_us - job_limits.API_RECENT_SECONDS * 1_000_000
        columns = ("event_time", "metric", "value", "value_long")
        source = _Source(READINGS, "event_time", columns, None)
        files = snapshot.files(READINGS, gpu.bucket, since_us, NEVER_US)
        rows = self._read(gpu, source, files, (since_us, NEVER_US))
        if not rows:
            return []
        last = duck.query(
            """SELECT metric, max(event_time) AS last_us, arg_max(value, event_time) AS value,
                arg_max(value_long, event_time) AS value_long
            FROM rows GROUP BY metric ORDER BY metric""",
            rows=plain(pa.concat_tables(rows)),
        )
        return [
            {
                "metric_name": row["metric"],
                "unit": _unit(row["metric"]),
                "last_time": row["last_us"],
                "last_value": _value(row),
            }
            for row in last.to_pylist()
        ]

    def may_have(self, snapshot: Snapshot, gpu: Gpu, metric: str) -> bool:
        """Whether a GPU has ever reported a metric, as far as one answer reads files."""
        source = _Source(READINGS, "event_time", ("metric",), metric)
        ever = (-NEVER_US, NEVER_US)
        newest_first = snapshot.files(READINGS, gpu.bucket, *ever)[::-1]
        done = 0
        for count in _AT_ONCE:
            found = self._read(gpu, source, newest_first[done : done + count], ever)
            if any(rows.num_rows for rows in found):
                return True
            done += count
        return done < len(newest_first)

    def _readings(
        self, snapshot: Snapshot, gpu: Gpu, metric: str | None, time_us: tuple[int, int],
        asked: TelemetryAsked,
    ) -> Page:  # fmt: skip
        source = _Source(READINGS, "event_time", _READING, metric)

        def is_enough(found: Sequence[pa.Table], horizon_us: int) -> bool:
            before = [pc.sum(pc.less(each["event_time"], horizon_us)).as_py() for each in found]
            return sum(each or 0 for each in before) > asked.limit

        found, _, horizon_us = self._gathered(snapshot, gpu, source, time_us, is_enough)
        if not found:
            return Page([], None, READINGS)
        rows = plain(_earliest(found, horizon_us, asked))
        order = [(name, "ascending") for name in ("event_time", "metric", "value")]
        first = rows.sort_by(order).slice(0, asked.limit + _CONFLICTS_MAX).to_pylist()
        kept, following = _cut(first, asked.limit, ("event_time", "metric"))
        if following is None and horizon_us < NEVER_US:
            following = (horizon_us, "")
        return Page([_reading(row) for row in kept], following, READINGS)

    def _windows(
        self, snapshot: Snapshot, gpu: Gpu, source: _Source, time_us: tuple[int, int],
        asked: TelemetryAsked,
    ) -> Page:  # fmt: skip
        window_us = asked.window
        assert window_us is not None, "asked for"

        def is_enough(found: Sequence[pa.Table], horizon_us: int) -> bool:
            if (horizon_us - time_us[0]) // window_us <= asked.limit:
                return False
            begun: set[int] = {
                start
                for each in found
                for start in pc.unique(pc.divide(each[source.time], window_us)).to_pylist()
            }
            return sum(1 for each in begun if (each + 1) * window_us <= horizon_us) > asked.limit

        page_us = (asked.limit + 2) * window_us
        found, first_us, horizon_us = self._gathered(
            snapshot, gpu, source, time_us, is_enough, page_us
        )
        whole_us = horizon_us - horizon_us % window_us
        if horizon_us < NEVER_US and whole_us <= first_us:
            raise WindowError(
                f"a window of {window_us // 1_000_000} s lies in more files than one answer reads "
                f"({job_limits.API_FILES_MAX}): ask for a shorter one"
            )
        if not found:
            return Page([], None, source.table)
        rows = pa.concat_tables(found)
        points = of_readings(rows) if source.field is None else of_intervals(rows, source.field)
        after = (-NEVER_US, "") if asked.next is None else asked.next
        first = list(windows(points, window_us, after, whole_us, asked.limit + 1))
        kept, following = _cut(first, asked.limit, ("start", "metric"))
        if following is None and horizon_us < NEVER_US:
            following = (whole_us, "")
        return Page([_window(row, window_us) for row in kept], following, source.table)

    def _gathered(
        self, snapshot: Snapshot, gpu: Gpu, source: _Source, time_us: tuple[int, int],
        is_enough: Callable[[Sequence[pa.Table], int], bool], page_us: int = 0,
    ) -> tuple[list[pa.Table], int, int]:  # fmt: skip
        """Rows of the first files that are enough; from when on, and before when, none is missing.

        However many files there are for one instant, they are read: a page must go on. Those of
        the first `page_us` are read at once, as no fewer can be enough.
        """
        files = snapshot.files(source.table, gpu.bucket, time_us[0], time_us[1] + 1)
        times = [-NEVER_US if file.min_time_us is None else file.min_time_us for file in files]
        first_us = max(time_us[0], times[0] if times else time_us[0])
        found: list[pa.Table] = []
        done = 0
        at_least = min(bisect_left(times, first_us + page_us), job_limits.API_FILES_MAX)
        for count in chain([at_least], _AT_ONCE, repeat(_AT_ONCE[-1])):
            found += self._read(gpu, source, files[done : done + count], time_us)
            done += count
            if done >= len(files):
                break
            is_bound = done >= job_limits.API_FILES_MAX and times[done] > first_us
            if is_bound or is_enough(found, times[done]):
                return found, first_us, times[done]
        return found, first_us, NEVER_US

    def _read(
        self, gpu: Gpu, source: _Source, files: Sequence[TableFile], time_us: tuple[int, int]
    ) -> list[pa.Table]:
        uuid, gpu_i_id = gpu.id
        wanted: dict[str, tuple[Any, Any]] = {
            "uuid": (uuid, uuid),
            "gpu_i_id": (gpu_i_id, gpu_i_id),
            source.time: time_us,
        }
        if source.metric is not None and source.table == READINGS:
            wanted["metric"] = (source.metric, source.metric)

        def read(some: Sequence[TableFile]) -> list[pa.Table]:
            return [self._files.read(file, source.columns, wanted, source.time) for file in some]

        # To each thread its share at once: they wait for each other less.
        shares = [files[first :: self._cores] for first in range(min(self._cores, len(files)))]
        if len(shares) <= 1:
            return read(files)
        done = list(self._pool.map(read, shares))
        return [done[at % self._cores][at // self._cores] for at in range(len(files))]


def _earliest(found: Sequence[pa.Table], horizon_us: int, asked: TelemetryAsked) -> pa.Table:
    """Rows after the page before, and no fewer than this one has: those up to some time."""
    rows = pa.concat_tables(found)
    rows = rows.filter(pc.less(rows["event_time"], horizon_us))
    if asked.next is not None:
        at_us, metric = asked.next
        is_same = pc.equal(rows["event_time"], at_us)
        if pc.any(is_same).as_py():
            is_before = pc.less_equal(rows["metric"].cast(pa.string()), metric)
            rows = rows.filter(pc.invert(pc.and_(is_same, is_before)))
    wanted = asked.limit + _CONFLICTS_MAX
    if rows.num_rows <= wanted:
        return rows
    times = rows["event_time"].to_numpy()
    return rows.filter(pc.less_equal(rows["event_time"], np.partition(times, wanted)[wanted]))


def _fits(window_us: int, step_us: int) -> bool:
    """Whether windows are made of whole intervals."""
    return 0 < step_us <= window_us and window_us % step_us == 0


def _intervals(field: Field) -> _Source:
    columns = ["interval_start", "samples", field.columns[Keep.MEAN]]
    if Keep.MAX in field.columns:
        columns.append(field.columns[Keep.MAX])
    if field.profiling:
        columns.append("profiling_gaps")
    return _Source(GPU_INTERVALS, "interval_start", tuple(columns), field.name, field)


def _cut(
    rows: list[dict[str, Any]], limit: int, key: tuple[str, str]
) -> tuple[list[dict[str, Any]], Cursor | None]:
    """The rows of a page, and where the next one begins if there are more.

    What has one key stays together: the page ends before it, or after it where it began with it.
    """
    if len(rows) <= limit:
        return rows, None

    def of(row: dict[str, Any]) -> Cursor:
        return row[key[0]], row[key[1]]

    parted = of(rows[limit])
    kept = limit
    while kept and of(rows[kept - 1]) == parted:
        kept -= 1
    if not kept:
        while kept < len(rows) and of(rows[kept]) == parted:
            kept += 1
    return rows[:kept], of(rows[kept - 1])


def _reading(row: dict[str, Any]) -> dict[str, Any]:
    told = {
        "timestamp": row["event_time"],
        "metric_name": row["metric"],
        "value": _value(row),
        "unit": _unit(row["metric"]),
        "namespace": row["namespace"] or "",
        "pod": row["pod"] or "",
    }
    return told | {"conflict": True} if row["conflict"] else told


def _window(row: dict[str, Any], window_us: int) -> dict[str, Any]:
    return {
        "start": row["start"],
        "end": row["start"] + window_us,
        "metric_name": row["metric"],
        "unit": _unit(row["metric"]),
        **{name: row[name] for name in ("avg", "min", "max", "last", "samples")},
    }


def _value(row: dict[str, Any]) -> float | int:
    """A counter is exact as an integer."""
    exact = row["value_long"]
    value: float | int = row["value"] if exact is None else exact
    return value


def _unit(metric: str) -> str:
    field = BY_NAME.get(metric)
    return "" if field is None else field.unit
