"""One micro-batch: readings in, one new version of all tables out.

Owns the order of things: let a task for each bucket write its files, commit the manifest. A batch
that is committed already is skipped; so each message changes the tables once, however often Spark
runs a batch.
"""

from __future__ import annotations

import contextlib
import pickle
from threading import Thread
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext

from headrace import job_limits
from headrace.dcgm.readings import SCHEMA as READING
from headrace.pipeline import duck, mirror, step, tables
from headrace.pipeline import manifest as manifests
from headrace.pipeline.bucket import Bucket, Outcome, Task
from headrace.pipeline.folder import Folder
from headrace.pipeline.manifest import Manifest, VersionExistsError
from headrace.spark.errors import PipelineError
from headrace.spark.read import freeze

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession


def write(readings: DataFrame, batch: int, settings: step.Settings) -> Manifest | None:
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
    folder = Folder.at(settings.tables_dir)
    for attempt in range(job_limits.PIPELINE_COMMITS_MAX):
        before = manifests.newest(folder)
        step.check(before, settings)
        if batch <= before.batch:
            return None
        place = f"batch={batch}"
        # Also the first one: whoever starts a pipeline sees what becomes of it.
        is_due = before.version < 0 or step.is_due_after(before.derived_us, before.clock_us)
        task = step.task(before, settings, place, batch, derives=is_due)
        buckets = before.buckets or settings.buckets
        # A number of partitions that is named is kept as it is, so that a partition is a bucket.
        outcomes = run_tasks(readings.repartition(buckets, "uuid"), task, READING)
        after = step.after_batch(outcomes, batch, before, settings)
        if is_due:
            after = step.watched(folder, after, place, settings)
        with contextlib.suppress(VersionExistsError):
            mirror.commit(folder, after, settings.format)
            if attempt:
                tables.clear(folder, after)
            return after
    raise PipelineError(
        f"other versions of the tables in {folder} come faster than micro-batch {batch} can be "
        "committed; stop whoever else writes them"
    )


def finish(
    spark: SparkSession,
    settings: step.Settings,
    *,
    attempts: int = job_limits.PIPELINE_COMMITS_MAX,
) -> Manifest | None:
    """Makes what is due of readings that are in the tables, when no micro-batch follows soon.

    Args:
        spark: where tasks run.
        settings: of the run.
        attempts: how often it is done again where somebody commits meanwhile, > 0.

    Returns:
        The manifest that it committed; None where nothing was due.

    Raises:
        VersionExistsError: somebody committed during each attempt; nothing is lost.
        PipelineError: the tables belong to another query.
    """
    for left in reversed(range(attempts)):
        try:
            return _finish(spark, settings)
        except VersionExistsError:
            if not left:
                raise
    return None


def _finish(spark: SparkSession, settings: step.Settings) -> Manifest | None:
    folder = Folder.at(settings.tables_dir)
    before = manifests.newest(folder)
    if before.version < 0 or (not before.pending and before.derived_us == before.clock_us):
        return None
    step.check(before, settings)
    place = step.work_place(before)
    task = step.task(before, settings, place, before.batch, derives=True)
    rows = spark.range(0, before.buckets, 1, before.buckets)
    after = step.after_merging(run_tasks(rows, task, None), before)
    after = step.watched(folder, after, place, settings)
    mirror.commit(folder, after, settings.format)
    return after


def warm_up(spark: SparkSession, buckets: int) -> Thread:
    """Starts workers that have read what tasks need, while a query is being planned.

    The first micro-batch would wait for that: seconds, half of them on one core. The job goes the
    ways of a micro-batch, without readings, on a thread that is returned.
    """

    def job() -> None:
        # What is wrong with Spark is wrong with the micro-batch, too, which tells.
        with contextlib.suppress(Exception):
            rows = spark.range(0, buckets, 1, buckets).repartition(buckets, "id")
            rows.mapInArrow(_warmed, "outcome binary").collect()

    thread = Thread(target=job, name="headrace-warm-up", daemon=True)
    thread.start()
    return thread


def _warmed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A task that has loaded this module, and DuckDB's, and does nothing."""
    freeze()
    for _ in batches:
        duck.query("SELECT 1")
    yield pa.RecordBatch.from_pydict({"outcome": [b""]})


def run_tasks(frame: DataFrame, task: Task, schema: pa.Schema | None) -> list[Outcome]:
    """Lets a task for each partition of `frame`, which is a bucket, write its files: one job.

    Args:
        frame: readings, or anything where there are none.
        task: what all are told.
        schema: of the readings.
    """

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze()
        given = list(batches)
        rows = READING.empty_table() if schema is None else pa.Table.from_batches(given, schema)
        context = TaskContext.get()
        assert context is not None, "tasks have a context"
        outcome = Bucket(task, context.partitionId()).run(rows)
        yield pa.RecordBatch.from_pydict({"outcome": [pickle.dumps(outcome)]})

    done = frame.mapInArrow(work, "outcome binary").collect()
    return [pickle.loads(row.outcome) for row in done]  # noqa: S301 - our own
