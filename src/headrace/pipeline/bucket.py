"""What one task makes of the readings of its bucket: the files of all tables.

A bucket is a fixed share of the GPUs, so that all that is to be known of a GPU is in the files of
one bucket. Owns which files a task reads, and what it writes. A file has a name that no other
attempt uses: what a task that failed, or ran twice, has written is in no manifest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.pipeline import duck, tables
from headrace.pipeline.intervals import GAP, LOOKBACK_SECONDS, NEEDED, intervals
from headrace.pipeline.schemas import DUPLICATES, GPU_INTERVALS, QUARANTINE, READINGS, arrow_schema
from headrace.pipeline.settle import COMMITTED, settle
from headrace.pipeline.spans import Span, merged, touched, within

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headrace.pipeline.manifest import TableFile

CHUNK_INTERVALS: Final = 6
"""Intervals in one file of `gpu_intervals`, which is rewritten whole when one of them changes."""

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
        files: live files before this micro-batch, by bucket.
    """

    tables_dir: str
    batch: int
    interval_us: int
    watermark_seconds: float
    newest_us: Mapping[str, Mapping[str, int]]
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
        self._look(readings)
        starts = self._starts(readings)
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
            self._write_intervals(rows, touched(starts, self._task.interval_us, _LOOKBACK_US))
        return self._outcome

    def _look(self, readings: pa.Table) -> None:
        """Counts the readings by partition."""
        found = duck.query(_LOOK, readings=readings).to_pylist()
        outcome = self._outcome
        for row in found:
            partition = str(row["partition"])
            outcome.readings += row["readings"]
            outcome.messages += row["messages"]
            outcome.offsets.setdefault(row["topic"], {})[partition] = row["next_offset"]
            if row["newest_us"] is not None:
                outcome.newest_us.setdefault(row["topic"], {})[partition] = row["newest_us"]

    def _starts(self, readings: pa.Table) -> list[int]:
        """The intervals in which readings lie.

        Quarantined ones matter as gaps of profiling alone; to take all is simpler.
        """
        step = self._task.interval_us
        sql = (
            f"SELECT DISTINCT t - (t % {step} + {step}) % {step} AS start FROM "
            "(SELECT epoch_us(event_time) AS t FROM readings WHERE event_time IS NOT NULL) "
            "ORDER BY start"
        )
        starts: list[int] = duck.query(sql, readings=readings)["start"].to_pylist()
        return starts

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
            rows[table] = duck.query(
                f"FROM rows WHERE ({within('event_time', needed)})"
                + (f" AND {GAP}" if table == QUARANTINE else ""),
                rows=pa.concat_tables(parts),
            )
        step = self._task.interval_us
        fresh = intervals(rows[READINGS], rows[QUARANTINE], step)
        schema = arrow_schema(GPU_INTERVALS)
        fresh = fresh.select(schema.names).cast(schema)
        chunk_us = step * CHUNK_INTERVALS
        kept = [schema.empty_table()]
        for file in self._before:
            if file.table == GPU_INTERVALS and file.chunk is not None:
                first = file.chunk * 1_000_000
                if any(first < end and first + chunk_us > start for start, end in spans):
                    self._outcome.replaced.append(file.path)
                    kept.append(self._read(file, schema.names))
        chunks = duck.query(
            f"""
            SELECT *, start - (start % {chunk_us} + {chunk_us}) % {chunk_us} AS chunk
            FROM (
                SELECT *, epoch_us(interval_start) AS start FROM (
                    SELECT * FROM fresh WHERE {within("interval_start", spans)}
                    UNION ALL
                    SELECT * FROM kept WHERE NOT ({within("interval_start", spans)})
                )
            )
            ORDER BY chunk, interval_start, uuid, gpu_i_id""",
            fresh=fresh,
            kept=pa.concat_tables(kept),
        )
        for chunk in pc.unique(chunks["chunk"]).to_pylist():
            found = chunks.filter(pc.equal(chunks["chunk"], chunk))
            self._add(GPU_INTERVALS, found, chunk=chunk // 1_000_000)

    def _overlapping(self, names: Sequence[str], spans: Sequence[Span]) -> list[TableFile]:
        return [
            file
            for file in self._before
            if file.table in names and any(file.overlaps(*span) for span in spans)
        ]

    def _read(self, file: TableFile, columns: Sequence[str]) -> pa.Table:
        return _columns(str(self._root / file.path), tuple(columns))

    def _add(self, table: str, rows: pa.Table, chunk: int | None = None) -> None:
        if not rows.num_rows:
            return
        schema = arrow_schema(table)
        place = table if chunk is None else f"{table}-{chunk}"
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


@lru_cache(maxsize=64)
def _columns(path: str, columns: tuple[str, ...]) -> pa.Table:
    """Columns of a file, which never changes.

    A worker goes on from one micro-batch to the next, and reads what it wrote in the last.
    """
    return pq.read_table(path, columns=list(columns), partitioning=None)


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
        max(CASE WHEN reason IS NULL THEN epoch_us(event_time) END) AS newest_us
    FROM readings GROUP BY ALL ORDER BY ALL"""
