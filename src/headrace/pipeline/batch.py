"""One micro-batch: messages in, one new version of all tables out.

Owns the order of things: clear what a crash left of this batch, write the new files, commit the
manifest. A batch that is committed already is skipped; so each message changes the tables once,
however often Spark runs a batch.
"""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow.compute
import pyarrow.parquet
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from headrace import job_limits
from headrace.pipeline import manifest as manifests
from headrace.pipeline import tables
from headrace.pipeline.clean import clean
from headrace.pipeline.decode import decode
from headrace.pipeline.duplicates import KEY, settle
from headrace.pipeline.intervals import LOOKBACK_SECONDS, floor_time, intervals
from headrace.pipeline.manifest import Manifest, TableFile, Totals
from headrace.pipeline.schemas import DUPLICATES, GPU_INTERVALS, QUARANTINE, READINGS, SCHEMAS
from headrace.spark.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, Row, SparkSession

    from headrace.pipeline.clean import Now

CHUNK_INTERVALS: Final = 30
"""Intervals in one file of `gpu_intervals`, which is rewritten whole when one of them changes."""

_LOOKBACK_US: Final = LOOKBACK_SECONDS * 1_000_000
_SECOND_US: Final = 1_000_000

Span = tuple[int, int]
"""`[start, end)` in microseconds since the epoch."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What one run of the pipeline is told.

    Attributes:
        tables_dir: folder of the tables.
        query: id of the streaming query, which owns the tables.
        interval_us: length of an interval of `gpu_intervals` in microseconds.
        watermark_seconds: how far behind the newest event time a reading is still in time.
        now: what a `future` event time is measured against.
    """

    tables_dir: Path
    query: str
    interval_us: int
    watermark_seconds: float
    now: Now


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a batch holds, from one pass over it."""

    readings: int
    messages: int
    offsets: dict[str, dict[str, int]]
    newest_us: dict[str, dict[str, int]]
    times: Span | None
    starts: tuple[int, ...]


def write(messages: DataFrame, batch: int, settings: Settings) -> Manifest | None:
    """Brings micro-batch `batch` into the tables.

    Returns:
        The manifest that it committed; None where it was committed before.

    Raises:
        PipelineError: the tables belong to another query or have other intervals.
    """
    root = settings.tables_dir
    before = tables.manifest(root)
    check(before, settings)
    if batch <= before.batch:
        return None
    folder = root / f"batch={batch}"
    shutil.rmtree(folder, ignore_errors=True)
    readings = clean(decode(messages), settings.now).persist()
    try:
        after = _write(readings, batch, before, settings)
    finally:
        readings.unpersist()
    manifests.commit(root, after)
    manifests.prune(root, after.version)
    return after


def check(manifest: Manifest, settings: Settings) -> None:
    """Refuses tables that this query must not write.

    Raises:
        PipelineError: another query wrote them, or with other intervals.
    """
    if manifest.version < 0:
        return
    root = settings.tables_dir
    if manifest.query != settings.query:
        raise PipelineError(
            f"the tables in {root} belong to another query: use its checkpoint folder, or an "
            "empty folder for the tables"
        )
    if round(manifest.interval_seconds * _SECOND_US) != settings.interval_us:
        raise PipelineError(
            f"the tables in {root} have intervals of {manifest.interval_seconds:g} s: keep that, "
            "or use an empty folder for the tables"
        )


def _write(readings: DataFrame, batch: int, before: Manifest, settings: Settings) -> Manifest:
    seen = _look(readings, settings.interval_us)
    added: list[TableFile] = []
    replaced: list[TableFile] = []
    if seen.readings:
        added += _write_rows(readings, seen, batch, before, settings)
    if seen.starts:
        spans = merge_spans(seen.starts, settings.interval_us)
        present = (*before.files, *added)
        replaced = _touched(before, spans, settings.interval_us)
        spark = readings.sparkSession
        added += _write_intervals(spark, present, replaced, spans, batch, settings)
    return before.next(
        batch=batch,
        query=settings.query,
        added=added,
        replaced=replaced,
        counted=_count(added, seen, settings.tables_dir),
        offsets=seen.offsets,
        newest_us=seen.newest_us,
        interval_seconds=settings.interval_us / _SECOND_US,
    )


def _look(readings: DataFrame, interval_us: int) -> _Seen:
    """Counts a batch by partition. One job, which also fills the cache."""
    time_us = "unix_micros(event_time)"
    # Quarantined rows matter to intervals only as profiling gaps; to take all is simpler.
    starts = f"collect_set(unix_micros({floor_time('event_time', interval_us)}))"
    aggregates = (
        "count(*) AS readings",
        "count_if(item = 0) AS messages",
        "max(offset) + 1 AS next_offset",
        f"max(CASE WHEN reason IS NULL THEN {time_us} END) AS newest_us",
        f"min({time_us}) AS min_us",
        f"max({time_us}) AS max_us",
        f"{starts} AS starts",
    )
    rows: list[Row] = readings.groupBy("topic", "partition").agg(*map(F.expr, aggregates)).collect()
    lows = [row.min_us for row in rows if row.min_us is not None]
    highs = [row.max_us for row in rows if row.max_us is not None]
    return _Seen(
        readings=sum(row.readings for row in rows),
        messages=sum(row.messages for row in rows),
        offsets=_by_partition(rows, "next_offset"),
        newest_us=_by_partition(rows, "newest_us"),
        times=(min(lows), max(highs) + 1) if lows else None,
        starts=tuple(sorted({start for row in rows for start in row.starts})),
    )


def _by_partition(rows: Iterable[Row], column: str) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for row in sorted(rows, key=lambda row: (row.topic, row.partition)):
        if row[column] is not None:
            found.setdefault(row.topic, {})[str(row.partition)] = row[column]
    return found


def _write_rows(
    readings: DataFrame, seen: _Seen, batch: int, before: Manifest, settings: Settings
) -> list[TableFile]:
    root = settings.tables_dir
    settled = settle(
        readings,
        _committed(readings.sparkSession, seen, before, root),
        before.newest_us,
        settings.watermark_seconds,
    )
    names = dict.fromkeys(
        name for table in (READINGS, QUARANTINE, DUPLICATES) for name in SCHEMAS[table].names
    )
    target = root / f"batch={batch}" / "rows"
    settled.select("table", *names).write.partitionBy("table").parquet(str(target))
    return [
        file
        for table in (READINGS, QUARANTINE, DUPLICATES)
        for file in tables.describe(root, target / f"table={table}", table, batch)
    ]


def _committed(spark: SparkSession, seen: _Seen, before: Manifest, root: Path) -> DataFrame | None:
    """Earlier rows that a reading of this batch may repeat: those of its event times."""
    if seen.times is None:
        return None
    start, end = seen.times
    found: DataFrame | None = None
    for table, value in ((READINGS, "value"), (QUARANTINE, "cast(null AS double)")):
        files = [file for file in before.of(table) if file.overlaps(start, end)]
        if files:
            rows = tables.read_files(spark, root, table, files).filter("uuid IS NOT NULL")
            part = rows.filter(_in("event_time", [seen.times])).selectExpr(
                *KEY, "raw", f"{value} AS value"
            )
            found = part if found is None else found.unionByName(part)
    return found


def _write_intervals(
    spark: SparkSession,
    present: Sequence[TableFile],
    replaced: Sequence[TableFile],
    spans: Sequence[Span],
    batch: int,
    settings: Settings,
) -> list[TableFile]:
    """Recomputes the intervals in `spans`, and rewrites the chunks that hold them."""
    root, step = settings.tables_dir, settings.interval_us
    needed = [(start - _LOOKBACK_US, end) for start, end in spans]
    readings, quarantine = (
        tables.read_files(
            spark,
            root,
            table,
            [f for f in present if f.table == table and any(f.overlaps(*n) for n in needed)],
        ).filter(_in("event_time", needed))
        for table in (READINGS, QUARANTINE)
    )
    rows = intervals(readings, quarantine, step).filter(_in("interval_start", spans))
    if replaced:
        kept = tables.read_files(spark, root, GPU_INTERVALS, replaced)
        rows = rows.unionByName(kept.filter(f"NOT ({_in('interval_start', spans)})"))
    chunk = f"unix_micros({floor_time('interval_start', step * CHUNK_INTERVALS)}) DIV {_SECOND_US}"
    target = root / f"batch={batch}" / GPU_INTERVALS
    (
        rows.selectExpr("*", f"{chunk} AS chunk")
        .repartition("chunk")
        .sortWithinPartitions("chunk", "interval_start", "uuid", "gpu_i_id")
        .write.partitionBy("chunk")
        .parquet(str(target))
    )
    return list(tables.describe(root, target, GPU_INTERVALS, batch))


def _touched(before: Manifest, spans: Sequence[Span], interval_us: int) -> list[TableFile]:
    """The files of `gpu_intervals` whose chunk holds a recomputed interval."""
    chunk_us = interval_us * CHUNK_INTERVALS
    return [
        file
        for file in before.of(GPU_INTERVALS)
        if file.chunk is not None
        and any(
            file.chunk * _SECOND_US < end and file.chunk * _SECOND_US + chunk_us > start
            for start, end in spans
        )
    ]


def merge_spans(starts: Sequence[int], interval_us: int) -> list[Span]:
    """The stretches of time whose intervals change when intervals at `starts` get new readings.

    A new reading changes its own interval, and the next scrape's growth up to the look-back later.
    At most `job_limits.PIPELINE_SPANS_MAX` stretches come back; joining two recomputes the time
    between them as well, which gives the same rows again.
    """
    reach = interval_us + _LOOKBACK_US + (-_LOOKBACK_US) % interval_us
    spans: list[Span] = []
    for start in sorted(starts):
        if spans and start <= spans[-1][1]:
            spans[-1] = (spans[-1][0], start + reach)
        else:
            spans.append((start, start + reach))
    while len(spans) > job_limits.PIPELINE_SPANS_MAX:
        at = min(range(1, len(spans)), key=lambda at: spans[at][0] - spans[at - 1][1])
        spans[at - 1 : at + 1] = [(spans[at - 1][0], spans[at][1])]
    return spans


def _in(column: str, spans: Sequence[Span]) -> str:
    """SQL: whether `column` lies in one of `spans`."""
    return " OR ".join(
        f"({column} >= timestamp_micros({start}L) AND {column} < timestamp_micros({end}L))"
        for start, end in spans
    )


def _count(added: Iterable[TableFile], seen: _Seen, root: Path) -> Totals:
    """What became of the batch, counted in the files that were written."""
    rows = Counter[str]()
    reasons = Counter[str]()
    for file in added:
        rows[file.table] += file.rows
        if file.table == QUARANTINE:
            column = pyarrow.parquet.read_table(root / file.path, columns=["reason"])["reason"]
            for count in pyarrow.compute.value_counts(column).to_pylist():
                reasons[count["values"]] += count["counts"]
    counted = Totals(
        messages=seen.messages,
        readings=seen.readings,
        rows=rows[READINGS],
        quarantined=rows[QUARANTINE],
        duplicates=rows[DUPLICATES],
        reasons=dict(reasons),
    )
    if not counted.balanced:
        raise PipelineError(
            f"{seen.readings} readings were read and {counted.rows} + {counted.quarantined} + "
            f"{counted.duplicates} written: the batch is not committed; run the pipeline again"
        )
    return counted
