"""Decoded records as Arrow record batches over the same memory; no loop over records.

Owns the columns. They are those of Spark's Kafka source without its `timestampType`, in types that
Spark takes as they are: `timestamp[us, UTC]`, no large or dictionary types. As there, a record
without headers has null, not an empty list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyarrow import compute

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.native import Buffer, RecordColumns

_HEADER: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
_HEADERS: Final = pa.list_(_HEADER)

SCHEMA: Final = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", "UTC")),
        pa.field("headers", _HEADERS),
    ]
)


def record_batch(columns: RecordColumns, stream: str, partition: int) -> pa.RecordBatch:
    """Decoded records of one partition."""
    rows = columns.records
    return pa.RecordBatch.from_arrays(
        [
            _binary(pa.binary(), rows, columns.keys),
            _binary(pa.binary(), rows, columns.values),
            pa.repeat(pa.scalar(stream, pa.string()), rows),
            pa.repeat(pa.scalar(partition, pa.int32()), rows),
            _fixed(pa.int64(), rows, columns.offsets),
            _fixed(SCHEMA.field("timestamp").type, rows, columns.timestamps_us),
            _headers(columns),
        ],
        schema=SCHEMA,
    )


def array(kind: pa.DataType, rows: int, column: tuple[Buffer | None, Sequence[Buffer]]) -> pa.Array:
    """A decoded column: validity, if a row is null, and the buffers of its layout."""
    validity, buffers = column
    return pa.Array.from_buffers(
        kind,
        rows,
        [None if validity is None else pa.py_buffer(validity), *map(pa.py_buffer, buffers)],
    )


def _fixed(kind: pa.DataType, rows: int, data: Buffer) -> pa.Array:
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(data)])


def _binary(kind: pa.DataType, rows: int, parts: tuple[Buffer | None, Buffer, Buffer]) -> pa.Array:
    buffers = [None if part is None else pa.py_buffer(part) for part in parts]
    return pa.Array.from_buffers(kind, rows, buffers)


def _headers(columns: RecordColumns) -> pa.Array:
    lists = pa.py_buffer(columns.header_lists)
    count = pa.Array.from_buffers(pa.int32(), columns.records + 1, [None, lists])[-1].as_py()
    if not count:
        return pa.nulls(columns.records, _HEADERS)
    keys = _binary(pa.string(), count, columns.header_keys)
    values = _binary(pa.binary(), count, columns.header_values)
    headers = pa.Array.from_buffers(_HEADER, count, [None], children=[keys, values])
    all_lists = pa.Array.from_buffers(_HEADERS, columns.records, [None, lists], children=[headers])
    none = compute.equal(compute.list_value_length(all_lists), 0)
    return pa.ListArray.from_arrays(all_lists.offsets, headers, mask=none)
