"""Starts the pipeline as a Structured Streaming query.

Owns how stream, checkpoint and tables are tied together. A tables folder belongs to one
checkpoint: the checkpoint says what was read, the manifest what was written, and Spark asks again
for a batch that is in the one and not in the other.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.errors import StreamingQueryException

from headrace import job_limits
from headrace.pipeline import tables
from headrace.pipeline.batch import Settings, write
from headrace.pipeline.detections import rules_of
from headrace.spark.errors import PipelineError, explain
from headrace.spark.session import core_count

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from headrace.client import Login
    from headrace.dcgm.readings import Now
    from headrace.pipeline.manifest import Manifest, Totals

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
        now: what a `future` event time is measured against: `ingest_time`, or `event_time` for a
            replayed file.
        messages_per_batch: messages in one micro-batch at most.
        buckets: shares of the GPUs, each of which one task brings into the tables; fixed with the
            first micro-batch. Default: the cores.
        prices: of an hour of a GPU, by model; `default` is that of any other model.
        energy_price: of a kilowatt hour.
        rules: settings of the rules that find faults, by kind (`headrace.pipeline.rules`).
    """

    interval_s: float = INTERVAL_SECONDS
    watermark_s: float = WATERMARK_SECONDS
    now: Now = "ingest_time"
    messages_per_batch: int = job_limits.PIPELINE_MESSAGES_PER_BATCH
    buckets: int = field(default_factory=core_count)
    prices: Mapping[str, float] = field(default_factory=dict)
    energy_price: float = 0.0
    rules: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


def run(  # noqa: PLR0913 - what to run it on, and how
    spark: SparkSession,
    servers: str,
    stream: str,
    tables_dir: str | Path,
    checkpoint_dir: str | Path,
    *,
    options: Options | None = None,
    login: Login | None = None,
    trigger: str = "availableNow",
    on_progress: Callable[[Progress], None] | None = None,
) -> Totals:
    """Runs the pipeline until it ends.

    With `availableNow` that is when all that was stored at its start is in the tables; else when
    its query is stopped.

    Args:
        spark: a session, such as `headrace.spark.session` builds.
        servers: Kafka door of the broker, `HOST:PORT`.
        stream: stream with telemetry.
        tables_dir: folder of the tables; belongs to one checkpoint.
        checkpoint_dir: Spark's checkpoint of the query.
        options: intervals, prices, rules.
        login: user and password, where the broker asks for them.
        trigger: `availableNow`, or a processing time such as `5 seconds`.
        on_progress: called after each committed micro-batch, on a thread of Spark.

    Returns:
        What became of all readings, those of earlier runs on the same tables included.

    Raises:
        PipelineError: tables and checkpoint do not belong together, a rule has no such setting, or
            the query failed; the message is one line.
    """
    query = start(
        spark, servers, stream, tables_dir, checkpoint_dir,
        options=options, login=login, trigger=trigger, on_progress=on_progress,
    )  # fmt: skip
    try:
        query.awaitTermination()
    except StreamingQueryException as error:
        raise PipelineError(explain(error)) from error
    tables.begin(Path(tables_dir))  # where nothing was stored, there was no micro-batch
    return tables.manifest(tables_dir).totals


def start(  # noqa: PLR0913
    spark: SparkSession,
    servers: str,
    stream: str,
    tables_dir: str | Path,
    checkpoint_dir: str | Path,
    *,
    options: Options | None = None,
    login: Login | None = None,
    trigger: str = "availableNow",
    on_progress: Callable[[Progress], None] | None = None,
) -> StreamingQuery:
    """As `run`, but returns the running query."""
    options = options or Options()
    who = {} if login is None else {"user": login.user, "password": login.password}
    readings = (
        spark.readStream.format("headrace")
        .options(**who)
        .option("servers", servers)
        .option("stream", stream)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", options.messages_per_batch)
        .option("payload", "dcgm" if options.now == "ingest_time" else "dcgm-replay")
        .load()
    )
    return start_on(
        readings, tables_dir, checkpoint_dir,
        options=options, trigger=trigger, on_progress=on_progress,
    )  # fmt: skip


def start_on(
    readings: DataFrame,
    tables_dir: str | Path,
    checkpoint_dir: str | Path,
    *,
    options: Options | None = None,
    trigger: str = "availableNow",
    on_progress: Callable[[Progress], None] | None = None,
) -> StreamingQuery:
    """As `start`, on readings: a stream of `format("headrace")` with the option `payload=dcgm`."""
    options = options or Options()
    rules = rules_of(options.rules)
    root, checkpoint = Path(tables_dir), Path(checkpoint_dir)
    _check_pair(tables.manifest(root), checkpoint, root)

    def on_batch(frame: DataFrame, batch: int) -> None:
        settings = Settings(
            root, query_id(checkpoint), round(options.interval_s * 1e6), options.watermark_s,
            options.buckets, options.prices, options.energy_price, rules,
        )  # fmt: skip
        committed = write(frame, batch, settings)
        if committed is not None and on_progress is not None:
            on_progress(Progress(batch, committed.totals, committed.offsets))

    writer = readings.writeStream.option("checkpointLocation", str(checkpoint))
    if trigger == "availableNow":
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=trigger)
    return writer.foreachBatch(on_batch).start()


def query_id(checkpoint: Path) -> str:
    """Id of the query that a checkpoint belongs to; empty where it has not started.

    Raises:
        PipelineError: the checkpoint cannot be read.
    """
    path = checkpoint / "metadata"
    if not path.exists():
        return ""
    try:
        return str(json.loads(path.read_text())["id"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PipelineError(
            f"{path} is not readable ({error}); restore the checkpoint, or begin with empty "
            "folders for checkpoint and tables"
        ) from error


def _check_pair(manifest: Manifest, checkpoint: Path, root: Path) -> None:
    # A micro-batch of which Spark knows that it is done is in the tables, even one without rows.
    has_lost = manifest.version < 0 and any((checkpoint / "commits").glob("[0-9]*"))
    if has_lost or (manifest.version >= 0 and manifest.query != query_id(checkpoint)):
        raise PipelineError(
            f"the tables in {root} were not written with the checkpoint in {checkpoint}: use the "
            "one they were written with, or empty folders for both"
        )
