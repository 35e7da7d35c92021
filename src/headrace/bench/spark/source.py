"""`format("headrace")` to a sink that drops all, beside Parquet and Spark's own Kafka source.

Sources take turns, so that what else the machine does meets all of them. What was read is counted
once, when it becomes Parquet: it is all that was stored, or there is no figure.
"""

from __future__ import annotations

import re
import statistics
import time
from typing import TYPE_CHECKING, Final

from pyspark import __version__ as pyspark_version

from headrace.bench.spark.load import (
    KAFKA_SOURCE,
    RAW_OF_KAFKA_SOURCE,
    RAW_ROWS_PER_SECOND,
    Load,
    Row,
)
from headrace.errors import UnavailableError
from headrace.spark import session
from headrace.spark.errors import SparkSideError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from headrace.bench.spark.fill import Filled

PROGRESS_KEPT: Final = 100_000
"""Micro-batches whose times a query remembers: all of them."""

_UNRESOLVED: Final = re.compile(r"unresolved dependency: (\S+?): (.+?)\W*$", re.MULTILINE)


def start_session(load: Load, folder: Path, *, with_kafka: bool) -> tuple[SparkSession, str]:
    """A session, and why it has no Kafka source; empty where it has, or none was asked for.

    Raises:
        SparkSideError: Spark does not start.
    """
    conf = {
        "spark.local.dir": str(folder),
        "spark.sql.streaming.numRecentProgressUpdates": str(PROGRESS_KEPT),
    }
    log, why = folder / "spark.log", ""
    if with_kafka:
        package = load.package or f"{KAFKA_SOURCE}:{pyspark_version}"
        with_source = (
            {"spark.jars": ",".join(load.jars)} if load.jars else {"spark.jars.packages": package}
        )
        try:
            return session("bench", memory=load.memory, log_file=log, conf=conf | with_source), ""
        except SparkSideError:
            found = _UNRESOLVED.search(log.read_text(errors="replace"))
            if load.jars or not found:
                raise
            why = f"{package} is not to be had: {found[2]}"
    return session("bench", memory=load.memory, log_file=log, conf=conf), why


def source_rows(
    spark: SparkSession, servers: str, load: Load, raw: Filled, told: Filled, folder: Path, why: str
) -> list[Row]:
    """Rows a second of a stream read raw, and of one that is decoded.

    Args:
        spark: a session.
        servers: Kafka door.
        load: what is done.
        raw: stream of payloads.
        told: stream of telemetry.
        folder: for Parquet.
        why: the session has no Kafka source; empty where it has.
    """
    raw_rows = _read(spark, servers, load, (raw.stream, "raw", raw.messages), folder, bool(why))
    of_dcgm = (told.stream, "dcgm-replay", told.readings)
    dcgm_rows = _read(spark, servers, load, of_dcgm, folder, bool(why))
    return [
        _row("source, raw", raw_rows, "parquet", RAW_ROWS_PER_SECOND),
        _row("source, raw", raw_rows, "kafka", RAW_ROWS_PER_SECOND, RAW_OF_KAFKA_SOURCE, why),
        _row("source, payload=dcgm", dcgm_rows, "parquet"),
        _row("source, payload=dcgm", dcgm_rows, "kafka", note=why),
    ]


_BASELINES: Final = {
    "parquet": "the same rows from Parquet",
    "kafka": "Spark's Kafka source, values as they are",
}


def _row(
    name: str,
    rates: dict[str, float],
    baseline: str,
    target: float | None = None,
    target_ratio: float | None = None,
    note: str = "",
) -> Row:
    words, theirs = _BASELINES[baseline], rates.get(baseline)
    return Row(name, "rows/s", rates["headrace"], words, theirs, target, target_ratio, note)


def _read(
    spark: SparkSession,
    servers: str,
    load: Load,
    what: tuple[str, str, int],
    folder: Path,
    without_kafka: bool,
) -> dict[str, float]:
    """Rows a second, by source; medians."""
    stream, payload, count = what
    ours = {"servers": servers, "stream": stream, "payload": payload}
    theirs = {"kafka.bootstrap.servers": servers, "subscribe": stream, "includeHeaders": "true"}
    parquet = str(folder / f"{stream}.parquet")
    ask: dict[str, Callable[[], DataFrame]] = {
        "headrace": lambda: spark.read.format("headrace").options(**ours).load(),
        "parquet": lambda: spark.read.parquet(parquet),
        "kafka": lambda: spark.read.format("kafka").options(**theirs).load(),
    }
    if without_kafka:
        del ask["kafka"]
    ask["headrace"]().write.parquet(parquet)
    if (stored := spark.read.parquet(parquet).count()) != count:
        raise UnavailableError(f"{stream}: {stored:,} of {count:,} rows were read")
    seconds: dict[str, list[float]] = {name: [] for name in ask}
    for turn in range(load.rounds + 1):
        for name, frame in ask.items():
            begun = time.perf_counter()
            frame().write.format("noop").mode("overwrite").save()
            if turn:  # the first one warms up
                seconds[name].append(time.perf_counter() - begun)
    return {name: count / statistics.median(times) for name, times in seconds.items()}
