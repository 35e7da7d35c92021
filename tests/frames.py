"""Readings as the Spark source gives them, made from CSV rows or payloads, without a broker."""

import json
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from headrace.collect import CsvFile, narrow
from headrace.dcgm.readings import SCHEMA as READING
from headrace.dcgm.readings import Decoder
from headrace.native import build_batch, decode_records

STORED = datetime(2030, 1, 1, 1, tzinfo=UTC)
NOW_US = 1_893_459_600_000_000
"""Time of collection: 2030-01-01T01:00:00Z."""

IDLE = {
    "DCGM_FI_DEV_GPU_UTIL": "0",
    "DCGM_FI_DEV_FB_USED": "40000",
    "DCGM_FI_DEV_POWER_USAGE": "90",
}
BUSY = {**IDLE, "DCGM_FI_DEV_GPU_UTIL": "95", "DCGM_FI_DEV_POWER_USAGE": "600"}
"""Scrapes of a GPU that is held and does nothing, and of one at work."""

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


def metric(name, raw, seconds, **more) -> bytes:
    """A narrow message of a field, `seconds` after the start."""
    return payload(name, str(raw), event_time=at(seconds), **more)


def from_csv(path) -> list[bytes]:
    """The narrow messages that the collector makes of a file."""
    return [message.payload for message in narrow(CsvFile(path), lambda: NOW_US)]


def table(
    payloads, *, first_offset=0, partition=0, headers=(), now="event_time", stored=STORED
) -> pa.Table:
    """The readings of messages at consecutive offsets, as the compiled decoder gives them."""
    if not payloads:
        return READING.empty_table()
    stored_ms = int(stored.timestamp() * 1000)
    batch = build_batch([(None, payload, list(headers), stored_ms) for payload in payloads])
    records = decode_records(batch, 0, len(payloads), len(batch))
    batches = list(Decoder("gpu-telemetry", partition, now).decode(records))
    found = pa.Table.from_batches(batches, READING)
    moved = pc.add(found["offset"], first_offset)
    return found.set_column(READING.get_field_index("offset"), "offset", moved)


def readings(spark, payloads, **given):
    """The same as a DataFrame."""
    return spark.createDataFrame(table(payloads, **given))


def decoded(payloads, *, now="ingest_time", headers=()) -> list[dict]:
    """The same as rows, judged live."""
    return table(payloads, now=now, headers=headers).to_pylist()
