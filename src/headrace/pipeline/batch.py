"""One micro-batch: readings in, one new version of all tables out.

Owns the order of things: clear what a crash left of this batch, let a task for each bucket write
its files, commit the manifest. A batch that is committed already is skipped; so each message
changes the tables once, however often Spark runs a batch.
"""

from __future__ import annotations

import pickle
import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark import TaskContext

from headrace.dcgm.readings import SCHEMA as READING
from headrace.pipeline import manifest as manifests
from headrace.pipeline import tables
from headrace.pipeline.bucket import Bucket, Outcome, Task
from headrace.pipeline.detections import detect
from headrace.pipeline.manifest import Manifest, Totals
from headrace.pipeline.rules import RULES, Rule
from headrace.pipeline.schemas import DUPLICATES, QUARANTINE, READINGS
from headrace.spark.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame

_SECOND_US: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Settings:
    """What one run of the pipeline is told.

    Attributes:
        tables_dir: folder of the tables.
        query: id of the streaming query, which owns the tables.
        interval_us: length of an interval of `gpu_intervals` in microseconds.
        watermark_seconds: how far behind the newest event time a reading is still in time.
        buckets: shares of the GPUs, each of which one task brings into the tables; fixed with the
            first micro-batch.
        prices: of an hour of a GPU, by model; `default` is that of any other model.
        energy_price: of a kilowatt hour.
        rules: what is looked for.
    """

    tables_dir: Path
    query: str
    interval_us: int
    watermark_seconds: float
    buckets: int
    prices: Mapping[str, float] = field(default_factory=dict)
    energy_price: float = 0.0
    rules: tuple[Rule, ...] = RULES


def write(readings: DataFrame, batch: int, settings: Settings) -> Manifest | None:
    """Brings micro-batch `batch` into the tables.

    Args:
        readings: rows of `format("headrace")` with the option `payload = dcgm`.
        batch: number of the micro-batch.
        settings: of the run.

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
    shutil.rmtree(root / f"batch={batch}", ignore_errors=True)
    outcomes = _run(readings, batch, before, settings)
    after = detect(
        root,
        before,
        _next(outcomes, batch, before, settings),
        settings.rules,
        newest_us=_newest(outcomes),
        watermark_us=round(settings.watermark_seconds * _SECOND_US),
    )
    manifests.commit(root, after)
    manifests.prune(root, after.version)
    return after


def _newest(outcomes: Iterable[Outcome]) -> list[int]:
    """The newest event time of each partition, of whose readings several buckets have a share."""
    found: dict[tuple[str, str], int] = {}
    for outcome in outcomes:
        for topic, partitions in outcome.newest_us.items():
            for partition, newest in partitions.items():
                found[topic, partition] = max(newest, found.get((topic, partition), newest))
    return list(found.values())


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
            "empty folder for each"
        )
    if round(manifest.interval_seconds * _SECOND_US) != settings.interval_us:
        raise PipelineError(
            f"the tables in {root} have intervals of {manifest.interval_seconds:g} s: keep that, "
            "or use empty folders for tables and checkpoint"
        )


def _run(readings: DataFrame, batch: int, before: Manifest, settings: Settings) -> list[Outcome]:
    """Lets a task for each bucket write its files: one job."""
    buckets = before.buckets or settings.buckets
    task = Task(
        tables_dir=str(settings.tables_dir),
        batch=batch,
        interval_us=settings.interval_us,
        watermark_seconds=settings.watermark_seconds,
        newest_us=before.newest_us,
        prices=settings.prices,
        energy_price=settings.energy_price,
        files=before.by_bucket(),
    )

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = pa.Table.from_batches(list(batches), READING)
        if rows.num_rows:
            context = TaskContext.get()
            assert context is not None, "tasks have a context"
            outcome = Bucket(task, context.partitionId()).write(rows)
            yield pa.RecordBatch.from_pydict({"outcome": [pickle.dumps(outcome)]})

    # A number of partitions that is named is kept as it is, so that a partition is a bucket.
    done = readings.repartition(buckets, "uuid").mapInArrow(work, "outcome binary")
    return [pickle.loads(row.outcome) for row in done.collect()]  # noqa: S301 - our own


def _next(
    outcomes: Iterable[Outcome], batch: int, before: Manifest, settings: Settings
) -> Manifest:
    """The manifest after `batch`."""
    totals = Totals()
    after = before.next(
        batch=batch,
        query=settings.query,
        buckets=before.buckets or settings.buckets,
        interval_seconds=settings.interval_us / _SECOND_US,
    )
    for outcome in outcomes:
        rows = dict.fromkeys((READINGS, QUARANTINE, DUPLICATES), 0)
        for file in outcome.added:
            if file.table in rows:
                rows[file.table] += file.rows
        totals += Totals(
            messages=outcome.messages,
            readings=outcome.readings,
            rows=rows[READINGS],
            quarantined=rows[QUARANTINE],
            duplicates=rows[DUPLICATES],
            reasons=outcome.reasons,
        )
        after = after.with_bucket(
            outcome.added, outcome.replaced, outcome.offsets, outcome.newest_us
        )
    if not totals.balanced:
        raise PipelineError(
            f"{totals.readings} readings were read and {totals.rows} + {totals.quarantined} + "
            f"{totals.duplicates} written: the batch is not committed; run the pipeline again"
        )
    return after.counted(totals)
