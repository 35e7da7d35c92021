"""What one task makes of the readings of its bucket: the files of all tables.

A bucket is a fixed share of the GPUs, so that all that is to be known of a GPU is in the files of
one bucket. Owns which files a task reads, and what it writes. A file has a name that no other
attempt uses: what a task that failed, or ran twice, has written is in no manifest.

Readings are settled and written at once. What is made of them (`derive`) waits until enough time
of the stream has gone by: that costs as much for ten readings as for ten thousand.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace import job_limits
from headrace.dcgm.fields import PROFILING_PREFIX
from headrace.pipeline import duck, merge
from headrace.pipeline.files import Files
from headrace.pipeline.folder import Folder
from headrace.pipeline.intervals import NEEDED, intervals, latest_before
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
from headrace.pipeline.spans import aligned, merged, overlap, touched

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headrace.pipeline.manifest import TableFile
    from headrace.pipeline.spans import Span

CHUNK_INTERVALS: Final = 6
"""Intervals in a new file of `gpu_intervals`, which is rewritten whole when one of them changes."""

_MINUTES_CHUNK_US: Final = 10 * MINUTE_US
_HOURS_CHUNK_US: Final = 24 * HOUR_US


@dataclass(frozen=True, slots=True)
class Task:
    """What a task is told.

    Attributes:
        tables_dir: location of the tables.
        place: folder in that of each table that new files go to.
        batch: number of the micro-batch.
        interval_us: length of an interval of `gpu_intervals` in microseconds.
        staleness_us: longest time between two scrapes of a GPU that still reports, in microseconds.
        watermark_seconds: how far behind the newest event time a reading is still in time.
        newest_us: newest event time before this micro-batch, by stream and partition.
        prices: of an hour of a GPU, by model; `default` is that of any other model.
        energy_price: of a kilowatt hour.
        files: live files before this micro-batch, by bucket.
        pending: stretches of event time whose intervals are to be made anew, by bucket.
        derives: whether to make them.
        cold_us: event time before which files are merged, where there are many small ones.
        ahead_us: event time behind which those of clocks that are ahead are; None for never.
    """

    tables_dir: str
    place: str
    batch: int
    interval_us: int
    staleness_us: int
    watermark_seconds: float
    newest_us: Mapping[str, Mapping[str, int]]
    prices: Mapping[str, float]
    energy_price: float
    files: Mapping[int, Sequence[TableFile]]
    pending: Mapping[int, Sequence[Span]] = field(default_factory=dict)
    derives: bool = True
    cold_us: int = 0
    ahead_us: int | None = None


@dataclass(slots=True)
class Outcome:
    """What a task has done.

    Attributes:
        bucket: its number.
        readings: readings of the micro-batch in this bucket.
        messages: messages whose first reading is in this bucket.
        reasons: quarantined readings by reason.
        offsets: per stream and partition the offset after the last message seen.
        newest_us: per stream and partition the newest event time (`newest_time` of readings).
        rows: rows of `readings`, `quarantine` and `duplicates` that it wrote.
        added: files that it wrote.
        replaced: paths of files that those stand for.
        moved: of both, those between which rows went unchanged.
        pending: stretches of event time whose intervals are still to be made anew.
    """

    bucket: int
    readings: int = 0
    messages: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    offsets: dict[str, dict[str, int]] = field(default_factory=dict)
    newest_us: dict[str, dict[str, int]] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    added: list[TableFile] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    moved: list[str] = field(default_factory=list)
    pending: list[Span] = field(default_factory=list)


class Bucket:
    """One bucket in one micro-batch.

    Args:
        task: what the task is told.
        number: of the bucket.
    """

    def __init__(self, task: Task, number: int) -> None:
        self._task = task
        self._number = number
        before = task.files.get(number, ())
        folder = Folder.at(task.tables_dir)
        self._files = Files(folder, task.place, task.batch, number, before)
        self._outcome = Outcome(number)

    def run(self, readings: pa.Table) -> Outcome:
        """Brings `readings` (`dcgm.readings.SCHEMA`) into files, and makes what is due of them."""
        pending = list(self._task.pending.get(self._number, ()))
        if readings.num_rows:
            pending = merged([*pending, *self._write(readings)])
        if self._task.derives and pending:
            self._write_intervals(pending)
            self._write_rollups(pending)
            pending = []
        if self._task.derives:
            self._merge(merge.FEW)
        return self._done(pending)

    def compact(self) -> Outcome:
        """Merges all files that can be merged; changes no row."""
        self._merge(2)
        return self._done(self._task.pending.get(self._number, ()))

    def _done(self, pending: Iterable[Span]) -> Outcome:
        self._outcome.pending = list(pending)
        self._outcome.added = self._files.added
        self._outcome.replaced = self._files.replaced
        self._outcome.moved = self._files.moved
        return self._outcome

    def _write(self, readings: pa.Table) -> list[Span]:
        """Writes rows of `readings`, `quarantine` and `duplicates`; the time that they change."""
        starts = self._look(readings)
        settled = self._settled(readings, starts)
        for table in (READINGS, QUARANTINE, DUPLICATES):
            rows = settled.filter(pc.equal(settled["ends"], table))
            self._outcome.rows[table] = rows.num_rows
            # One row of a clock that is ahead would have its file read for all time until then.
            is_ahead = pc.greater(pc.cast(rows["event_time"], pa.int64()), _latest_us(rows))
            is_ahead = pc.fill_null(is_ahead, fill_value=False)
            self._files.add(table, rows.filter(pc.invert(is_ahead)).sort_by(_ORDER))
            self._files.add(table, rows.filter(is_ahead).sort_by(_ORDER), name="ahead-")
            if table == QUARANTINE:
                counted = pc.value_counts(rows["reason"]).to_pylist()
                self._outcome.reasons = {each["values"]: each["counts"] for each in counted}
        return touched(starts, self._task.interval_us, self._task.staleness_us)

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
        earlier = [COMMITTED.empty_table()]
        for table in (READINGS, QUARANTINE) if spans else ():
            names = [name for name in COMMITTED.names if name != "value" or table == READINGS]
            rows = self._files.within(table, names, "event_time", spans)
            rows = rows.filter(pc.is_valid(rows["uuid"]))
            if table == QUARANTINE:
                rows = rows.append_column("value", pa.nulls(rows.num_rows, pa.float64()))
            earlier.append(rows.select(COMMITTED.names))
        return settle(
            readings, pa.concat_tables(earlier), self._task.newest_us, self._task.watermark_seconds
        )

    def _write_intervals(self, spans: Sequence[Span]) -> None:
        """Makes the intervals that begin in `spans` anew, in the files that hold them."""
        step = self._task.interval_us
        # Of a backfill's hours the last interval may reach beyond the end.
        whole = merged((start, end + (-end) % step) for start, end in spans)
        needed = [(start - self._task.staleness_us, end) for start, end in whole]
        readings = self._files.within(READINGS, NEEDED, "event_time", needed)
        quarantine = self._files.within(QUARANTINE, _GAP_COLUMNS, "event_time", needed)
        profiled = pc.starts_with(quarantine["metric"], PROFILING_PREFIX)
        nans = pc.equal(quarantine["reason"], "not_a_number")
        gaps = quarantine.filter(pc.and_(profiled, nans))
        readings = latest_before(readings, whole)
        fresh = intervals(readings, gaps, step, self._task.staleness_us)
        self._files.rewrite(GPU_INTERVALS, fresh, "interval_start", spans, step * CHUNK_INTERVALS)

    def _write_rollups(self, spans: Sequence[Span]) -> None:
        """Makes the minutes, hours and jobs anew whose intervals have changed."""
        task, files = self._task, self._files
        spans = aligned(spans, MINUTE_US)
        rows = files.within(GPU_INTERVALS, FROM_INTERVALS, "interval_start", spans)
        fresh = minutes(rows, task.prices, task.energy_price)
        files.rewrite(GPU_MINUTES, fresh, "start", spans, _MINUTES_CHUNK_US)
        spans = aligned(spans, HOUR_US)
        fresh = hours(files.within(GPU_MINUTES, COLUMNS, "start", spans))
        files.rewrite(GPU_HOURS, fresh, "start", spans, _HOURS_CHUNK_US)
        self._write_jobs(fresh, spans)

    def _write_jobs(self, fresh: pa.Table, spans: Sequence[Span]) -> None:
        """Makes the jobs anew that have hours in `spans`, from their first hour on."""
        near = [(start - JOB_GAP_US, end + JOB_GAP_US) for start, end in spans]
        _, old = self._jobs_in(near)
        keys = pa.concat_tables(
            [
                fresh.filter(pc.not_equal(fresh["pod"], "")).select(JOB_KEY),
                old.filter(overlap(old["start"], old["end"], near)).select(JOB_KEY),
            ]
        )
        keys = keys.group_by(JOB_KEY).aggregate([])
        if not keys.num_rows:
            return
        reach = (near[0][0], near[-1][1])
        while True:
            files, old = self._jobs_in([reach])
            inside = overlap(old["start"], old["end"], [reach])
            changed = old.filter(inside).join(keys, JOB_KEY, join_type="left semi")
            begins = [reach[0], *pc.cast(changed["start"], pa.int64()).to_pylist()]
            ends = [reach[1], *pc.cast(changed["end"], pa.int64()).to_pylist()]
            [wider] = aligned([(min(begins), max(ends))], HOUR_US)
            if wider == reach:
                break
            reach = wider  # All their jobs in it are made anew, so none may stick out.
        others = old.filter(inside).join(keys, JOB_KEY, join_type="left anti")
        others = pa.concat_tables([others, old.filter(pc.invert(inside))])
        rows = self._files.within(GPU_HOURS, COLUMNS, "start", [reach])
        self._files.drop(files)
        # What goes on is written again each time; what has ended, in files of its own, is not.
        recent = overlap(others["start"], others["end"], near)
        self._files.add(JOBS, others.filter(pc.invert(recent)), name="ended-")
        self._files.add(JOBS, others.filter(recent), name="others-")
        self._files.add(JOBS, jobs(rows.join(keys, JOB_KEY, join_type="left semi")))

    def _jobs_in(self, spans: Sequence[Span]) -> tuple[list[TableFile], pa.Table]:
        """Files that may have jobs in `spans`, and all that is in them."""
        files = self._files.overlapping(JOBS, spans)
        schema = arrow_schema(JOBS)
        known = [self._files.read(file, schema.names) for file in files]
        return files, pa.concat_tables([schema.empty_table(), *known])

    def _merge(self, fewest: int) -> None:
        """Makes one file of many small ones, of time that is settled."""
        files, cold_us = self._files, self._task.cold_us
        for table in (READINGS, QUARANTINE, DUPLICATES, JOBS):
            # A job goes on where its pod comes back within the hour.
            until_us = cold_us - (2 * JOB_GAP_US if table == JOBS else 0)
            ahead_us = None if table == JOBS else self._task.ahead_us
            for group in merge.alike(files.of(table), until_us, fewest, ahead_us):
                files.merge(table, group, () if table == JOBS else _ORDER)
        for table, instant, chunk_us in (
            (GPU_INTERVALS, "interval_start", self._task.interval_us * CHUNK_INTERVALS),
            (GPU_MINUTES, "start", _MINUTES_CHUNK_US),
            (GPU_HOURS, "start", _HOURS_CHUNK_US),
        ):
            for chunk, group in merge.longer(files.of(table), chunk_us, cold_us):
                files.merge(table, group, [*_OF_A_GPU, (instant, "ascending")], chunk=chunk)


def _latest_us(rows: pa.Table) -> pa.ChunkedArray:
    """Up to when an event time of a row is one of a clock that is right, or nearly so."""
    newest = pc.cast(rows["newest_time"], pa.int64())
    return pc.add(newest, job_limits.FUTURE_SECONDS_MAX * 1_000_000)


_OF_A_GPU: Final[Any] = [("uuid", "ascending"), ("gpu_i_id", "ascending")]
_ORDER: Final[Any] = [
    *_OF_A_GPU,
    *(
        (name, "ascending")
        for name in ("metric", "event_time", "topic", "partition", "offset", "item")
    ),
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
        epoch_us(max(newest_time)) AS newest_us,
        list(DISTINCT time_us - (time_us % $step + $step) % $step)
            FILTER (WHERE time_us IS NOT NULL) AS starts
    FROM (SELECT *, epoch_us(event_time) AS time_us FROM readings)
    GROUP BY topic, partition ORDER BY topic, partition"""
