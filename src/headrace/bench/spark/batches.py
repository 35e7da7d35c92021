"""What micro-batches cost: those of the pipeline with two messages, and what Spark alone takes."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Final

from headrace.bench.spark.load import BATCH_MS, Load, Row
from headrace.pipeline.run import Options, start

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from headrace.bench.spark.fill import Filled
    from headrace.pipeline.manifest import Manifest

MESSAGES: Final = 2
WARM_UP: Final = 10
"""Micro-batches that do not count: until workers have read what they need, and Java compiled it."""


def messages_needed(load: Load) -> int:
    """How many messages `batch_rows` goes through."""
    return MESSAGES * (load.batches + WARM_UP)


def batch_rows(spark: SparkSession, servers: str, filled: Filled, folder: Path) -> list[Row]:
    """Median times of micro-batches of two messages."""
    makes: dict[int, bool] = {}
    watch = [""]

    def committed(manifest: Manifest) -> None:
        # What the rules remember is written anew by whoever makes detections, and by nobody else.
        makes[manifest.batch] = manifest.watch != watch[0]
        watch[0] = manifest.watch

    options = Options(now="event_time", messages_per_batch=MESSAGES)
    places = folder / "batch-tables", folder / "batch-checkpoint"
    query = start(
        spark, servers, filled.stream, *places, options=options, on_commit=committed
    )  # fmt: skip
    ours = _times_ms(query)
    stream = _stream(spark, servers, filled.stream, MESSAGES)
    writer = stream.writeStream.format("noop")
    alone = _times_ms(_started(writer, folder / "noop-checkpoint"))
    baseline = _median([ms for batch, ms in alone.items() if batch >= WARM_UP])
    words = "Spark alone: source to a sink that drops all"
    rows = []
    for name, made in (
        ("micro-batch of 2 messages, readings", False),
        ("micro-batch of 2 messages, and intervals, detections", True),
    ):
        times = [ms for b, ms in ours.items() if b >= WARM_UP and makes.get(b) is made]
        target = None if made else BATCH_MS
        note = f"median of {len(times)}" if times else "none of this kind: give more --batches"
        rows.append(Row(name, "ms", _median(times), words, baseline, target, note=note))
    return rows


def copied_rate(
    spark: SparkSession, servers: str, filled: Filled, load: Load, folder: Path
) -> float | None:
    """Readings a second that Spark copies from the stream to Parquet, after the first micro-batch.

    None where there was no second one.
    """
    stream = _stream(spark, servers, filled.stream, load.messages_per_batch)
    writer = stream.writeStream.format("parquet").option("path", str(folder / "copied"))
    query = _started(writer, folder / "copied-checkpoint")
    query.awaitTermination()
    later = [each for each in query.recentProgress if each.batchId > 0 and each.numInputRows]
    seconds = sum(each.durationMs["triggerExecution"] for each in later) / 1e3
    return sum(each.numInputRows for each in later) / seconds if later else None


def _stream(spark: SparkSession, servers: str, stream: str, messages: int) -> DataFrame:
    reader = spark.readStream.format("headrace").option("servers", servers)
    reader = reader.option("stream", stream).option("startingOffsets", "earliest")
    reader = reader.option("payload", "dcgm-replay").option("maxOffsetsPerTrigger", messages)
    return reader.load()


def _started(writer: DataStreamWriter, checkpoint: Path) -> StreamingQuery:
    return writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()


def _times_ms(query: StreamingQuery) -> dict[int, float]:
    """Times of the micro-batches of a query, which ends by itself, by their numbers."""
    query.awaitTermination()
    return {
        each.batchId: float(each.durationMs["triggerExecution"])
        for each in query.recentProgress
        if each.numInputRows
    }


def _median(values: list[float]) -> float | None:
    return statistics.median(values) if values else None
