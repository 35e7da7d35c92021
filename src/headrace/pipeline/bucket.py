"""What one task makes of the readings of its bucket: the files of all tables.

A bucket is a fixed share of the GPUs, so that all that is to be known of a GPU is in the files of
one bucket. Owns which files a task reads, and what it writes. A file has a name that no other
attempt uses: what a task that failed, or ran twice, has written is in no manifest.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace import job_limits
from headrace.dcgm.fields import PROFILING_PREFIX
from headrace.pipeline import duck, tables
from headrace.pipeline.intervals import LOOKBACK_SECONDS, NEEDED, intervals
from headrace.pipeline.rollups import (
    COLUMNS,
    FROM_INTERVALS,
    HOUR_US,
    JOB_GAP_US,
    JOB_KEY,
    MINUTE_US,
    hours,
    jobs,
    minutes,
)
from headrace.pipeline.schemas import (
    DUPLICATES,
    GPU_HOURS,
    GPU_INTERVALS,
    GPU_MINUTES,
    JOBS,
    QUARANTINE,
    READINGS,
    arrow_schema,
)
from headrace.pipeline.settle import COMMITTED, settle
from headrace.pipeline.spans import Span, aligned, lie_within, merged, overlap, touched

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headrace.pipeline.manifest import TableFile

CHUNK_INTERVALS: Final = 6
"""Intervals in one file of `gpu_intervals`, which is rewritten whole when one of them changes."""

_MINUTES_CHUNK_US: Final = 10 * MINUTE_US
_HOURS_CHUNK_US: Final = 24 * HOUR_US
_LOOKBACK_US: Final = LOOKBACK_SECONDS * 1_000_000
_ROW_GROUP: Final = 20_000
"""Rows that a reader of one GPU and metric must look at, at least."""


@dataclass(frozen=True, slots=True)
class Task:
    """What a task is told.

    Attributes:
        tables_dir: folder of the tables.
        batch: number of the micro-batch.
        interval_us: length of an interval of `gpu_intervals` in microseconds.
        watermark_seconds: how far behind the newest event time a reading is still in time.
        newest_us: newest event time before this micro-batch, by stream and partition.
        prices: of an hour of a GPU, by model; `default` is that of any other model.
        energy_price: of a kilowatt hour.
        files: live files before this micro-batch, by bucket.
    """

    tables_dir: str
    batch: int
    interval_us: int
    watermark_seconds: float
    newest_us: Mapping[str, Mapping[str, int]]
    prices: Mapping[str, float]
    energy_price: float
    files: Mapping[int, Sequence[TableFile]]


@dataclass(slots=True)
class Outcome:
    """What a task has done.

    Attributes:
        readings: readings of the micro-batch in this bucket.
        messages: messages whose first reading is in this bucket.
        reasons: quarantined readings by reason.
        offsets: per stream and partition the offset after the last message seen.
        newest_us: per stream and partition the newest event time of a usable reading.
        added: files that it wrote.
        replaced: paths of files that those stand for.
    """

    readings: int = 0
    messages: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    offsets: dict[str, dict[str, int]] = field(default_factory=dict)
    newest_us: dict[str, dict[str, int]] = field(default_factory=dict)
    added: list[TableFile] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)


class Bucket:
    """One bucket in one micro-batch.

    Args:
        task: what the task is told.
        number: of the bucket.
    """

    def __init__(self, task: Task, number: int) -> None:
        self._task = task
        self._number = number
        self._root = Path(task.tables_dir)
        self._before = task.files.get(number, ())
        self._token = uuid4().hex[:12]
        self._outcome = Outcome()

    def write(self, readings: pa.Table) -> Outcome:
        """Brings `readings` (`dcgm.readings.SCHEMA`) into files."""
        starts = self._look(readings)
        settled = self._settled(readings, starts)
        rows = {
            table: settled.filter(pc.equal(settled["ends"], table))
            for table in (READINGS, QUARANTINE, DUPLICATES)
        }
        counted = pc.value_counts(rows[QUARANTINE]["reason"]).to_pylist()
        self._outcome.reasons = {count["values"]: count["counts"] for count in counted}
        for table, found in rows.items():
            self._add(table, found.sort_by(_ORDER))
        if starts:
            spans = touched(starts, self._task.interval_us, _LOOKBACK_US)
            self._write_intervals(rows, spans)
            self._write_rollups(spans)
        return self._outcome

    def _look(self, readings: pa.Table) -> list[int]:
        """Counts the readings by partition; the intervals in which they lie.

        Quarantined ones matter there as gaps of profiling alone; to take all is simpler.
        """
        step = str(self._task.interval_us)
        found = duck.query(_LOOK.replace("$step", step), readings=readings).to_pylist()
        outcome = self._outcome
        for row in found:
            partition = str(row["partition"])
            outcome.readings += row["readings"]
            outcome.messages += row["messages"]
            outcome.offsets.setdefault(row["topic"], {})[partition] = row["next_offset"]
            if row["newest_us"] is not None:
                outcome.newest_us.setdefault(row["topic"], {})[partition] = row["newest_us"]
        return sorted({start for row in found for start in row["starts"] or ()})

    def _settled(self, readings: pa.Table, starts: Iterable[int]) -> pa.Table:
        step = self._task.interval_us
        spans = merged((start, start + step) for start in starts)
        columns = COMMITTED.names
        earlier = [COMMITTED.empty_table()]
        for file in self._overlapping((READINGS, QUARANTINE), spans):
            names = [name for name in columns if name != "value" or file.table == READINGS]
            rows = self._read(file, names).filter(pc.is_valid(pc.field("uuid")))
            if file.table == QUARANTINE:
                rows = rows.append_column("value", pa.nulls(rows.num_rows, pa.float64()))
            earlier.append(rows.select(columns))
        return settle(
            readings, pa.concat_tables(earlier), self._task.newest_us, self._task.watermark_seconds
        )

    def _write_intervals(self, new: Mapping[str, pa.Table], spans: Sequence[Span]) -> None:
        """Recomputes the intervals in `spans`, and rewrites the chunks that hold them."""
        needed = [(start - _LOOKBACK_US, end) for start, end in spans]
        rows = {}
        for table, columns in ((READINGS, NEEDED), (QUARANTINE, _GAP_COLUMNS)):
            files = self._overlapping((table,), needed)
            parts = [new[table].select(columns), *(self._read(file, columns) for file in files)]
            found = pa.concat_tables(parts)
            rows[table] = found.filter(lie_within(found["event_time"], needed))
        profiled = pc.starts_with(rows[QUARANTINE]["metric"], PROFILING_PREFIX)
        nans = pc.equal(rows[QUARANTINE]["reason"], "not_a_number")
        rows[QUARANTINE] = rows[QUARANTINE].filter(pc.and_(profiled, nans))
        step = self._task.interval_us
        fresh = intervals(rows[READINGS], rows[QUARANTINE], step)
        self._rewrite(GPU_INTERVALS, fresh, "interval_start", spans, step * CHUNK_INTERVALS)

    def _write_rollups(self, spans: Sequence[Span]) -> None:
        """Makes the minutes, hours and jobs anew whose intervals have changed."""
        task = self._task
        spans = aligned(spans, MINUTE_US)
        rows = self._live(GPU_INTERVALS, FROM_INTERVALS, "interval_start", spans)
        fresh = minutes(rows, task.prices, task.energy_price)
        self._rewrite(GPU_MINUTES, fresh, "start", spans, _MINUTES_CHUNK_US)
        spans = aligned(spans, HOUR_US)
        fresh = hours(self._live(GPU_MINUTES, COLUMNS, "start", spans))
        self._rewrite(GPU_HOURS, fresh, "start", spans, _HOURS_CHUNK_US)
        self._write_jobs(fresh, spans)

    def _write_jobs(self, fresh: pa.Table, spans: Sequence[Span]) -> None:
        """Makes the jobs anew that have hours in `spans`, from their first hour on."""
        near = [(start - JOB_GAP_US, end + JOB_GAP_US) for start, end in spans]
        files = [file for file in self._files(JOBS) if any(file.overlaps(*span) for span in near)]
        schema = arrow_schema(JOBS)
        known = [self._read(file, schema.names) for file in files]
        old = pa.concat_tables([schema.empty_table(), *known])
        keys = pa.concat_tables(
            [
                fresh.filter(pc.not_equal(fresh["pod"], "")).select(JOB_KEY),
                old.filter(overlap(old["start"], old["end"], near)).select(JOB_KEY),
            ]
        )
        keys = keys.group_by(JOB_KEY).aggregate([])
        if not keys.num_rows:
            return
        changed = old.join(keys, JOB_KEY, join_type="left semi")
        begins = [start for start, _ in spans] + pc.cast(changed["start"], pa.int64()).to_pylist()
        ends = [end for _, end in spans] + pc.cast(changed["end"], pa.int64()).to_pylist()
        reach = aligned([(min(begins), max(ends))], HOUR_US)
        rows = self._live(GPU_HOURS, COLUMNS, "start", reach)
        mine = rows.join(keys, JOB_KEY, join_type="left semi")
        others = old.join(keys, JOB_KEY, join_type="left anti")
        self._outcome.replaced.extend(file.path for file in files)
        # What goes on is rewritten with each micro-batch, and what has ended is left alone.
        self._add(JOBS, others, place=f"{JOBS}-ended")
        self._add(JOBS, jobs(mine))

    def _rewrite(
        self, table: str, fresh: pa.Table, instant: str, spans: Sequence[Span], chunk_us: int
    ) -> None:
        """Replaces the rows of `table` in `spans` by `fresh`, in the files that hold them."""
        schema = arrow_schema(table)
        kept = [schema.empty_table()]
        for file in self._files(table):
            assert file.chunk is not None, f"{file.path} has no chunk"
            first = file.chunk * 1_000_000
            if any(first < end and first + chunk_us > start for start, end in spans):
                self._outcome.replaced.append(file.path)
                kept.append(self._read(file, schema.names))
        before = pa.concat_tables(kept)
        outside = pc.invert(lie_within(before[instant], spans))
        inside = lie_within(fresh[instant], spans)
        rows = pa.concat_tables(
            [before.filter(outside), fresh.filter(inside).select(schema.names).cast(schema)]
        ).sort_by([(name, "ascending") for name in (instant, "uuid", "gpu_i_id")])
        micros = pc.cast(rows[instant], pa.int64())
        chunks = pc.multiply(_floor_divide(micros, chunk_us), chunk_us)
        for chunk in pc.unique(chunks).to_pylist():
            self._add(table, rows.filter(pc.equal(chunks, chunk)), chunk=chunk // 1_000_000)

    def _live(
        self, table: str, columns: Sequence[str], instant: str, spans: Sequence[Span]
    ) -> pa.Table:
        """The rows of `table` in `spans` as they are now."""
        files = [file for file in self._files(table) if any(file.overlaps(*s) for s in spans)]
        parts = [self._read(file, columns) for file in files]
        empty = pa.schema([arrow_schema(table).field(name) for name in columns]).empty_table()
        rows = pa.concat_tables([empty, *parts])
        return rows.filter(lie_within(rows[instant], spans))

    def _files(self, table: str) -> list[TableFile]:
        """The files of `table` that are live now."""
        gone = set(self._outcome.replaced)
        return [
            file
            for file in (*self._before, *self._outcome.added)
            if file.table == table and file.path not in gone
        ]

    def _overlapping(self, names: Sequence[str], spans: Sequence[Span]) -> list[TableFile]:
        return [
            file
            for file in self._before
            if file.table in names and any(file.overlaps(*span) for span in spans)
        ]

    def _read(self, file: TableFile, columns: Sequence[str]) -> pa.Table:
        return _columns.read(str(self._root / file.path), tuple(columns))

    def _add(
        self, table: str, rows: pa.Table, *, chunk: int | None = None, place: str | None = None
    ) -> None:
        if not rows.num_rows:
            return
        schema = arrow_schema(table)
        place = place or (table if chunk is None else f"{table}-{chunk}")
        name = f"batch={self._task.batch}/{place}-{self._number}-{self._token}.parquet"
        path = self._root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(
            rows.select(schema.names).cast(schema), path,
            row_group_size=_ROW_GROUP, compression="zstd",
        )  # fmt: skip
        self._outcome.added.append(
            tables.describe(self._root, path, table, self._task.batch, self._number, chunk)
        )


def _floor_divide(numbers: pa.ChunkedArray, by: int) -> pa.ChunkedArray:
    """Towards minus infinity, as Python does; Arrow cuts towards zero."""
    cut = pc.divide(numbers, by)
    below = pc.less(numbers, pc.multiply(cut, by))
    return pc.subtract(cut, pc.cast(below, pa.int64()))


class _Columns:
    """Columns of files, which never change.

    A worker goes on from one micro-batch to the next, and reads what it wrote in the last.
    """

    def __init__(self) -> None:
        self._held: OrderedDict[tuple[str, tuple[str, ...]], pa.Table] = OrderedDict()
        self._bytes = 0

    def read(self, path: str, columns: tuple[str, ...]) -> pa.Table:
        """The columns, from memory where they were read a moment ago."""
        key = (path, columns)
        found = self._held.pop(key, None)
        if found is None:
            found = pq.read_table(path, columns=list(columns), partitioning=None)
            self._bytes += found.nbytes
        self._held[key] = found
        while self._bytes > job_limits.PIPELINE_CACHE_BYTES:
            _, oldest = self._held.popitem(last=False)
            self._bytes -= oldest.nbytes
        return found


_columns: Final = _Columns()

_ORDER: Final[Any] = [
    (name, "ascending")
    for name in ("uuid", "gpu_i_id", "metric", "event_time", "topic", "partition", "offset", "item")
]
_GAP_COLUMNS: Final = (
    *(name for name in NEEDED if name not in {"value", "value_long", "late"}), "reason",
)  # fmt: skip

_LOOK: Final = """
    SELECT
        topic, partition,
        count(*) AS readings,
        count_if(item = 0)::BIGINT AS messages,
        max("offset") + 1 AS next_offset,
        max(CASE WHEN reason IS NULL THEN time_us END) AS newest_us,
        list(DISTINCT time_us - (time_us % $step + $step) % $step)
            FILTER (WHERE time_us IS NOT NULL) AS starts
    FROM (SELECT *, epoch_us(event_time) AS time_us FROM readings)
    GROUP BY topic, partition ORDER BY topic, partition"""
