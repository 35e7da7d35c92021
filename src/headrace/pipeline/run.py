"""Starts the pipeline as a Structured Streaming query.

Owns how stream, checkpoint and tables are tied together. A tables folder belongs to one
checkpoint: the checkpoint says what was read, the manifest what was written, and Spark asks again
for a batch that is in the one and not in the other.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, StreamingQueryException

from headrace import job_limits
from headrace.pipeline import mirror, tables
from headrace.pipeline.batch import finish, write
from headrace.pipeline.detections import rules_of
from headrace.pipeline.folder import Folder
from headrace.pipeline.manifest import VersionExistsError
from headrace.pipeline.step import Settings
from headrace.spark.errors import PipelineError, explain
from headrace.spark.session import core_count

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from headrace.client import Login
    from headrace.dcgm.readings import Now
    from headrace.pipeline.folder import Location
    from headrace.pipeline.manifest import Manifest, Totals
    from headrace.pipeline.mirror import Format

INTERVAL_SECONDS: Final = 10.0
WATERMARK_SECONDS: Final = 90.0
"""Three scrapes of dcgm-exporter, which collects every 30 s."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What `on_progress` is told after each committed micro-batch.

    Attributes:
        batch: number of the micro-batch.
        totals: what became of all readings so far.
        offsets: per stream and partition the offset after the last message in the tables.
    """

    batch: int
    totals: Totals
    offsets: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Options:
    """How the pipeline runs.

    Attributes:
        interval_s: length of an interval of `gpu_intervals`, in seconds.
        watermark_s: how far behind the newest event time a reading is still in time, in seconds.
        staleness_s: longest time between two scrapes of a GPU that still reports, in seconds.
            None: two and a half minutes, or twice the interval where that is longer.
        now: what a `future` event time is measured against: `ingest_time`, or `event_time` for a
            replayed file.
        fail_on_data_loss: whether messages that retention took before they were read end the run.
        messages_per_batch: messages in one micro-batch at most.
        buckets: shares of the GPUs, each of which one task brings into the tables; fixed with the
            first micro-batch. Default: the cores.
        prices: of an hour of a GPU, by model; `default` is that of any other model.
        energy_price: of a kilowatt hour.
        rules: settings of the rules that find faults, by kind (`headrace.pipeline.rules`).
        format: `parquet`, or `delta` for tables that are Delta Lake tables, too.
    """

    interval_s: float = INTERVAL_SECONDS
    watermark_s: float = WATERMARK_SECONDS
    staleness_s: float | None = None
    now: Now = "ingest_time"
    fail_on_data_loss: bool = True
    messages_per_batch: int = job_limits.PIPELINE_MESSAGES_PER_BATCH
    buckets: int = field(default_factory=core_count)
    prices: Mapping[str, float] = field(default_factory=dict)
    energy_price: float = 0.0
    rules: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    format: Format = "parquet"


def run(  # noqa: PLR0913 - what to run it on, and how
    spark: SparkSession,
    servers: str,
    stream: str,
    tables_dir: Location,
    checkpoint_dir: Location,
    *,
    options: Options | None = None,
    login: Login | None = None,
    trigger: str = "availableNow",
    on_progress: Callable[[Progress], None] | None = None,
    on_commit: Callable[[Manifest], None] | None = None,
    stopped: Callable[[], bool] | None = None,
) -> Totals:
    """Runs the pipeline until it ends.

    With `availableNow` that is when all that was stored at its start is in the tables; else when
    its query is stopped.

    Args:
        spark: a session, such as `headrace.spark.session` builds.
        servers: Kafka door of the broker, `HOST:PORT`.
        stream: stream with telemetry.
        tables_dir: location of the tables, which belong to one checkpoint.
        checkpoint_dir: location of Spark's checkpoint of the query.
        options: intervals, prices, rules.
        login: user and password, where the broker asks for them.
        trigger: `availableNow`, or a processing time such as `5 seconds`.
        on_progress: called after each committed micro-batch, on a thread of Spark.
        on_commit: called with each version of the tables that was committed, and at the start with
            the newest that there is, such as `Announcer.told`.
        stopped: asked each second whether to end.

    Returns:
        What became of all readings, those of earlier runs on the same tables included.

    Raises:
        PipelineError: tables and checkpoint do not belong together, a rule has no such setting, or
            the query failed; the message is one line.
    """
    options = options or Options()
    told = [monotonic()]

    def committed(manifest: Manifest | None) -> None:
        told[0] = monotonic()
        if manifest is not None and on_commit is not None:
            on_commit(manifest)

    def made_due(attempts: int) -> None:
        settings = _settings(options, tables_dir, checkpoint_dir)
        committed(finish(spark, settings, attempts=attempts))

    query = start(
        spark, servers, stream, tables_dir, checkpoint_dir,
        options=options, login=login, trigger=trigger, on_progress=on_progress,
        on_commit=committed,
    )  # fmt: skip
    try:
        while not query.awaitTermination(1):
            if stopped is not None and stopped():
                query.stop()
            elif monotonic() - told[0] > job_limits.PIPELINE_DERIVE_SECONDS:
                told[0] = monotonic()
                # Nothing comes that would make what is due.
                with suppress(VersionExistsError):
                    made_due(1)
    except StreamingQueryException as error:
        raise PipelineError(explain(error)) from error
    made_due(job_limits.PIPELINE_COMMITS_MAX)
    tables.begin(tables_dir)  # where nothing was stored, there was no micro-batch
    return tables.manifest(tables_dir).totals


def start(  # noqa: PLR0913
    spark: SparkSession,
    servers: str,
    stream: str,
    tables_dir: Location,
    checkpoint_dir: Location,
    *,
    options: Options | None = None,
    login: Login | None = None,
    trigger: str = "availableNow",
    on_progress: Callable[[Progress], None] | None = None,
    on_commit: Callable[[Manifest], None] | None = None,
) -> StreamingQuery:
    """As `run`, but returns the running query.

    The last seconds of the stream may not be in intervals, detections and the like when it ends.
    """
    options = options or Options()
    who = {} if login is None else {"user": login.user, "password": login.password}
    readings = (
        spark.readStream.format("headrace")
        .options(**who)
        .option("servers", servers)
        .option("stream", stream)
        .option("startingOffsets", "earliest")
        .option("failOnDataLoss", options.fail_on_data_loss)
        .option("maxOffsetsPerTrigger", options.messages_per_batch)
        .option("payload", "dcgm" if options.now == "ingest_time" else "dcgm-replay")
        .load()
    )
    return start_on(
        readings, tables_dir, checkpoint_dir,
        options=options, trigger=trigger, on_progress=on_progress, on_commit=on_commit,
    )  # fmt: skip


def start_on(
    readings: DataFrame,
    tables_dir: Location,
    checkpoint_dir: Location,
    *,
    options: Options | None = None,
    trigger: str = "availableNow",
    on_progress: Callable[[Progress], None] | None = None,
    on_commit: Callable[[Manifest], None] | None = None,
) -> StreamingQuery:
    """As `start`, on readings: a stream of `format("headrace")` with the option `payload=dcgm`."""
    options = options or Options()
    folder, checkpoint = Folder.at(tables_dir), Folder.at(checkpoint_dir)
    newest = _check_pair(folder, checkpoint)
    _clear_unbegun(checkpoint)
    rules_of(options.rules)
    mirror.begin(folder, options.format)
    if on_commit is not None:
        on_commit(newest)

    def on_batch(frame: DataFrame, batch: int) -> None:
        committed = write(frame, batch, _settings(options, tables_dir, checkpoint_dir))
        if committed is None:
            return
        if batch == newest.batch + 1:
            tables.clear(folder, committed)  # as a crash may have left it
        if on_commit is not None:
            on_commit(committed)
        if on_progress is not None:
            on_progress(Progress(batch, committed.totals, committed.offsets))

    writer = readings.writeStream.option("checkpointLocation", checkpoint.for_spark)
    if trigger == "availableNow":
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=trigger)
    try:
        return writer.foreachBatch(on_batch).start()
    except (Py4JJavaError, PySparkException) as error:
        raise PipelineError(explain(error)) from error


def _settings(options: Options, tables_dir: Location, checkpoint_dir: Location) -> Settings:
    return Settings(
        tables_dir=tables_dir,
        query=query_id(Folder.at(checkpoint_dir)),
        interval_us=round(options.interval_s * 1e6),
        watermark_seconds=options.watermark_s,
        staleness_seconds=options.staleness_s,
        buckets=options.buckets,
        prices=options.prices,
        energy_price=options.energy_price,
        rules=rules_of(options.rules),
        format=options.format,
    )


def query_id(checkpoint: Folder) -> str:
    """Id of the query that a checkpoint belongs to; empty where it has not started.

    Raises:
        PipelineError: the checkpoint cannot be read.
    """
    try:
        return str(json.loads(checkpoint.text("metadata"))["id"])
    except FileNotFoundError:
        return ""
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PipelineError(
            f"{checkpoint.shown('metadata')} is not readable ({error}); restore the checkpoint, or "
            "begin with empty folders for checkpoint and tables"
        ) from error


def _check_pair(root: Folder, checkpoint: Folder) -> Manifest:
    """The newest manifest, where the checkpoint belongs to it, and neither is older than the other.

    A micro-batch of which Spark knows that it is done is in the tables, even one without rows; and
    one that is in the tables was planned before.
    """
    manifest = tables.manifest(root)
    done, planned = _newest_batch(checkpoint, "commits"), _newest_batch(checkpoint, "offsets")
    has_lost = manifest.version < 0 and done >= 0
    if has_lost or (manifest.version >= 0 and manifest.query != query_id(checkpoint)):
        raise PipelineError(
            f"the tables in {root} were not written with the checkpoint in {checkpoint}: use the "
            "one they were written with, or empty folders for both"
        )
    if done > manifest.batch:
        raise PipelineError(
            f"the tables in {root} end with micro-batch {manifest.batch}, the checkpoint in "
            f"{checkpoint} with {done}, so readings are missing: restore newer tables, or delete "
            f"all after {manifest.batch} in the checkpoint's folders commits and offsets to read "
            "them again"
        )
    if planned < manifest.batch:
        raise PipelineError(
            f"the checkpoint in {checkpoint} ends with micro-batch {planned}, the tables in {root} "
            f"with {manifest.batch}, so readings would be left out: restore a newer checkpoint, or "
            "use empty folders for both"
        )
    return manifest


def _clear_unbegun(checkpoint: Folder) -> None:
    """Removes what a crash, or a full disk, left of the first offsets while they were written.

    Spark refuses to begin beside any file there, and takes none of them for offsets.
    """
    if _newest_batch(checkpoint, "offsets") < 0:
        for name in checkpoint.names("offsets"):
            checkpoint.remove(f"offsets/{name}")


def _newest_batch(checkpoint: Folder, kind: str) -> int:
    """The newest micro-batch that a checkpoint has a file of this kind of; -1 where it has none."""
    names = checkpoint.names(kind)
    return max((int(name) for name in names if name.isdigit()), default=-1)
