"""Rows that are to be written, as columns of records: which columns there may be, and of what type.

Knows no broker. Nothing here touches a single row: columns are handed to the compiled module as
they lie in memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import IntegerType, StringType, TimestampType

from headrace.native import RecordColumns
from headrace.spark.errors import OptionError, WriteError
from headrace.spark.schema import SCHEMA
from headrace.text import nearest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.types import StructType

_TEXT: Final = ("binary", "string")
_TYPES: Final = {
    "value": _TEXT,
    "key": _TEXT,
    "headers": (SCHEMA["headers"].dataType.simpleString(),),
    "partition": (IntegerType().simpleString(),),
    "timestamp": (TimestampType().simpleString(),),
    "topic": (StringType().simpleString(),),
}

_MICROSECONDS: Final = pa.timestamp("us", "UTC")
_Column = tuple[bytes | None, bytes, bytes]


def check_columns(schema: StructType, stream: str | None) -> None:
    """Refuses columns that no record has.

    Raises:
        OptionError: a column is unknown, missing or of another type.
    """
    for field in schema.fields:
        types = _TYPES.get(field.name)
        if types is None:
            raise OptionError(
                f"no column {field.name!r} in a record; {nearest(field.name, tuple(_TYPES))}; "
                "select the columns to write"
            )
        if (found := field.dataType.simpleString()) not in types:
            raise OptionError(
                f"column {field.name} must be {' or '.join(types)}; it is {found}: cast it"
            )
    if "value" not in schema.names:
        raise OptionError(
            f"a column value is needed; there are {', '.join(schema.names) or 'none'}"
        )
    if stream is None and "topic" not in schema.names:
        raise OptionError("give the option stream, or a column topic that names each row's stream")
    if stream is not None and "topic" in schema.names:
        raise OptionError("option stream and column topic contradict; give one of them")


def by_stream(rows: pa.RecordBatch, stream: str | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each stream, in their order.

    Raises:
        WriteError: a row names no stream.
    """
    if stream is not None:
        yield stream, rows
        return
    topics = rows["topic"]
    if topics.null_count:
        raise WriteError("a row has no topic; each names the stream that it is written to")
    for topic in pc.unique(topics):
        yield topic.as_py(), rows.filter(pc.equal(topics, topic))


def records(rows: pa.RecordBatch, at_ms: int) -> tuple[RecordColumns, bytes | None]:
    """The columns of records, and where each is to go: an int32 each, -1 for where its key leads.

    `at_ms` is the time of rows that have none.

    Raises:
        WriteError: a row cannot be a record.
    """
    count, names = rows.num_rows, rows.schema.names
    at = pa.scalar(at_ms * 1000, pa.int64())
    if "timestamp" in names:
        times = pc.fill_null(rows["timestamp"].cast(_MICROSECONDS).cast(pa.int64()), at)
    else:
        times = pa.repeat(at, count)
    key = rows["key"] if "key" in names else pa.nulls(count, pa.binary())
    lists, header_keys, header_values = _headers(rows)
    made = RecordColumns.of(
        _fixed(times),
        _binary(key),
        _binary(rows["value"]),
        lists,
        _binary(header_keys),
        _binary(header_values),
    )
    return made, _partitions(rows["partition"]) if "partition" in names else None


def _partitions(column: pa.Array) -> bytes:
    if (least := pc.min(column).as_py()) is not None and least < 0:
        raise WriteError(f"a row has partition {least}; it must be 0 or more, or null")
    return _fixed(pc.fill_null(column, -1))


def _headers(rows: pa.RecordBatch) -> tuple[bytes, pa.Array, pa.Array]:
    if "headers" not in rows.schema.names:
        nothing = pa.array([], pa.binary())
        return bytes(4 * (rows.num_rows + 1)), nothing, nothing
    column = rows["headers"]
    lists = pc.cumulative_sum(pc.fill_null(pc.list_value_length(column), 0).cast(pa.int32()))
    keys, values = column.flatten().flatten()
    if keys.null_count:
        raise WriteError("a header has no key; its value may be null, its key may not")
    return bytes(4) + _fixed(lists), keys, values


def _fixed(column: pa.Array) -> bytes:
    """The values of a column without nulls."""
    width = column.type.bit_width // 8
    data = column.buffers()[1]
    begin, end = column.offset * width, (column.offset + len(column)) * width
    return bytes(data[begin:end])


def _binary(column: pa.Array) -> _Column:
    column = column.cast(pa.binary())
    if not len(column):
        return None, bytes(4), b""
    if column.offset:  # a slice need not begin with a byte of the bitmap
        column = column.take(pc.indices_nonzero(pa.repeat(True, len(column))))  # noqa: FBT003
    validity, offsets, data = column.buffers()
    bits = None if validity is None or not column.null_count else validity.to_pybytes()
    ends = bytes(offsets[: 4 * (len(column) + 1)])
    return bits, ends, b"" if data is None else data.to_pybytes()
