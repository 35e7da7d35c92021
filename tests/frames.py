"""Messages as the Spark source gives them, made from CSV rows or payloads, without a broker."""

import itertools
import json
from datetime import UTC, datetime

from headrace.collect import CsvFile, narrow
from headrace.spark.schema import SCHEMA

STORED = datetime(2030, 1, 1, 1, tzinfo=UTC)
NOW_US = 1_893_459_600_000_000
"""Time of collection: 2030-01-01T01:00:00Z."""

_GPU = {
    "gpu_id": "GPU-1",
    "device": "nvidia0",
    "hostname": "node-1",
    "labels": {"gpu": "0"},
    "event_time": "2030-01-01T00:00:00.000000Z",
    "ingest_time": "2030-01-01T01:00:00.000000Z",
}


def payload(metric="DCGM_FI_DEV_GPU_UTIL", raw="50", **changes) -> bytes:
    """A narrow message."""
    return json.dumps({**_GPU, "metric_name": metric, "raw": raw, **changes}).encode()


def wide(metrics: dict, **changes) -> bytes:
    """A wide message."""
    return json.dumps({**_GPU, "metrics": metrics, **changes}).encode()


def at(seconds: float) -> str:
    """An event time."""
    return datetime.fromtimestamp(1_893_456_000 + seconds, UTC).isoformat(timespec="microseconds")


def from_csv(path) -> list[bytes]:
    """The narrow messages that the collector makes of a file."""
    return [message.payload for message in narrow(CsvFile(path), lambda: NOW_US)]


def messages(spark, payloads, *, first_offset=0, partition=0, headers=()):
    """A DataFrame of messages at consecutive offsets."""
    rows = [
        (None, value, "gpu-telemetry", partition, offset, STORED, list(headers))
        for offset, value in zip(itertools.count(first_offset), payloads, strict=False)
    ]
    return spark.createDataFrame(rows, SCHEMA)
