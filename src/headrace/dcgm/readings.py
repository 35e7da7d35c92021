"""Messages of GPU telemetry as Arrow batches of readings, one row for each.

Owns the columns of a reading and what the compiled decoder is told of the fields. Each payload of
"Telemetry on the wire" is read, Prometheus text and CSV lines too, and each value judged from its
text: a usable one, or the reason why there is none. A message always gives at least one row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import pyarrow as pa

from headrace import job_limits
from headrace.client.arrow import array
from headrace.dcgm.fields import BY_NAME, FIELDS, Kind
from headrace.native import ReadingDecoder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.native import RecordColumns

Now = Literal["ingest_time", "event_time"]
"""What a `future` event time is measured against: `ingest_time` for live data; `event_time` for
a replayed file, whose newest event time is its now, so that none is in the future."""

_INSTANT: Final = pa.timestamp("us", "UTC")
_LABELS: Final = pa.map_(pa.string(), pa.string())

SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("item", pa.int32()),
        ("event_time", _INSTANT),
        ("ingest_time", _INSTANT),
        ("host", pa.string()),
        ("device", pa.string()),
        ("gpu_index", pa.int32()),
        ("uuid", pa.string()),
        ("gpu_i_id", pa.string()),
        ("gpu_i_profile", pa.string()),
        ("metric", pa.string()),
        ("field_id", pa.int32()),
        ("raw", pa.string()),
        ("value", pa.float64()),
        ("value_long", pa.int64()),
        ("unit", pa.string()),
        ("status", pa.string()),
        ("reason", pa.string()),
        ("newest_time", _INSTANT),
        ("model", pa.string()),
        ("driver", pa.string()),
        ("namespace", pa.string()),
        ("pod", pa.string()),
        ("container", pa.string()),
        ("labels", _LABELS),
        ("source", pa.string()),
        ("source_epoch", pa.int64()),
        ("source_sequence", pa.int64()),
        ("event_time_text", pa.string()),
        ("payload", pa.binary()),
    ]
)
"""Columns of a reading. `reason` is null where the value is usable; `newest_time` is the newest
event time of a usable reading up to it in what was decoded of its partition; live, none counts as
newer than the storage of its message, so that a host with a wrong clock moves no other's."""

_FIELDS: Final = [
    (
        field.name, field.id, field.unit, field.kind is Kind.COUNTER, field.integer,
        field.low, field.high,
    )
    for field in FIELDS
]  # fmt: skip
_PLACES: Final = {field.name: place for place, field in enumerate(FIELDS)}
_NAMES: Final = [(name, _PLACES[field.name]) for name, field in BY_NAME.items()]


class Decoder:
    """Decodes the records of one partition in their order.

    Args:
        stream: name of the stream, which becomes `topic`.
        partition: number of the partition.
        now: what the future is measured against.
    """

    def __init__(self, stream: str, partition: int, now: Now) -> None:
        self._stream = stream
        self._partition = partition
        future_us = job_limits.FUTURE_SECONDS_MAX * 1_000_000 if now == "ingest_time" else None
        self._native = ReadingDecoder(_FIELDS, _NAMES, future_us=future_us, newest_us=None)

    def decode(self, records: RecordColumns) -> Iterator[pa.RecordBatch]:
        """The readings of `records`, about `job_limits.SPARK_BATCH_ROWS_MAX` in a batch."""
        at = 0
        while at < records.records:
            rows, at, named, labels = self._native.read(
                records, at, job_limits.SPARK_BATCH_ROWS_MAX
            )
            columns = {
                name: array(SCHEMA.field(name).type, rows, buffers) for name, buffers in named
            }
            lists, names, values = labels
            count = array(pa.int32(), rows + 1, lists)[-1].as_py()
            columns["labels"] = pa.MapArray.from_buffers(
                _LABELS,
                rows,
                [None, pa.py_buffer(lists[1][0])],
                children=[
                    pa.StructArray.from_arrays(
                        [array(pa.string(), count, names), array(pa.string(), count, values)],
                        fields=[_LABELS.key_field, _LABELS.item_field],
                    )
                ],
            )
            columns["topic"] = pa.repeat(pa.scalar(self._stream, pa.string()), rows)
            columns["partition"] = pa.repeat(pa.scalar(self._partition, pa.int32()), rows)
            yield pa.RecordBatch.from_arrays(
                [columns[name] for name in SCHEMA.names], schema=SCHEMA
            )
