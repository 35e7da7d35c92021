"""Record batches as Arrow, in exactly the types that Spark expects; no loop over records.

Owns the columns of `format("headrace")`. Spark compares the schema of the first batch with its own
for equality: `timestamp[us, UTC]`, no large or dictionary types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

if TYPE_CHECKING:
    from headrace.native import Buffer, RecordColumns

SCHEMA: Final = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField(
            "headers",
            ArrayType(
                StructType([StructField("key", StringType()), StructField("value", BinaryType())])
            ),
        ),
    ]
)
"""Columns and types of Spark's own Kafka source, without its `timestampType`."""

ARROW_SCHEMA: Final = to_arrow_schema(SCHEMA, timezone="UTC")

_HEADERS: Final = ARROW_SCHEMA.field("headers").type
_HEADER: Final = _HEADERS.value_type


def record_batch(columns: RecordColumns, stream: str, partition: int) -> pa.RecordBatch:
    """Decoded records of one partition as an Arrow record batch over the same memory."""
    rows = columns.records
    return pa.RecordBatch.from_arrays(
        [
            _binary(pa.binary(), rows, columns.keys),
            _binary(pa.binary(), rows, columns.values),
            pa.repeat(pa.scalar(stream, pa.string()), rows),
            pa.repeat(pa.scalar(partition, pa.int32()), rows),
            _fixed(pa.int64(), rows, columns.offsets),
            _fixed(ARROW_SCHEMA.field("timestamp").type, rows, columns.timestamps_us),
            _headers(columns),
        ],
        schema=ARROW_SCHEMA,
    )


def _fixed(kind: pa.DataType, rows: int, data: Buffer) -> pa.Array:
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(data)])


def _binary(kind: pa.DataType, rows: int, parts: tuple[Buffer | None, Buffer, Buffer]) -> pa.Array:
    buffers = [None if part is None else pa.py_buffer(part) for part in parts]
    return pa.Array.from_buffers(kind, rows, buffers)


def _headers(columns: RecordColumns) -> pa.Array:
    lists = pa.py_buffer(columns.header_lists)
    count = pa.Array.from_buffers(pa.int32(), columns.records + 1, [None, lists])[-1].as_py()
    keys = _binary(pa.string(), count, columns.header_keys)
    values = _binary(pa.binary(), count, columns.header_values)
    headers = pa.Array.from_buffers(_HEADER, count, [None], children=[keys, values])
    return pa.Array.from_buffers(_HEADERS, columns.records, [None, lists], children=[headers])
