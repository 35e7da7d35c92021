"""The option `payload`: what becomes of a record's value, and the columns that follow from it.

- `raw`: the columns of Spark's Kafka source; the value stays bytes.
- `json`, `csv`: the columns of the schema that the reader was given. Those named as a column of
  `raw` come from the record, `_corrupt_record` holds the value where it could not be read, and any
  other is a member of the JSON object, or the next field of the CSV line.
- `dcgm`, `dcgm-replay`: readings of GPU telemetry, one row each, judged from their text. In a
  replayed file no event time is in the future.

Values are decoded by the compiled module, straight into Arrow columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, Protocol, get_args

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import BinaryType, StructType

from headrace.client.arrow import array, record_batch
from headrace.dcgm import readings
from headrace.native import RowDecoder
from headrace.spark.errors import OptionError
from headrace.spark.schema import SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.native import RecordColumns

Payload = Literal["raw", "json", "csv", "dcgm", "dcgm-replay"]
PAYLOADS: Final[tuple[Payload, ...]] = get_args(Payload)

CORRUPT: Final = "_corrupt_record"

_KINDS: Final = ("string", "boolean", "int", "bigint", "double", "timestamp")


class Decode(Protocol):
    """Decodes the records of one partition, one piece after the other."""

    def __call__(self, records: RecordColumns, /) -> Iterator[pa.RecordBatch]:
        """The rows of a piece."""


def is_ordered(payload: Payload) -> bool:
    """Whether rows depend on those before them in their partition, which must then stay whole."""
    return payload in {"dcgm", "dcgm-replay"}


def default_schema(payload: Payload) -> StructType:
    """The columns, where the reader was given none.

    Raises:
        OptionError: the payload has none of its own.
    """
    if payload == "raw":
        return SCHEMA
    if is_ordered(payload):
        return from_arrow_schema(readings.SCHEMA)
    raise OptionError(
        f"option payload={payload} needs the columns that are in it; give them, as in "
        f".schema('host string, watts double, {CORRUPT} binary')"
    )


def check_schema(payload: Payload, schema: StructType) -> None:
    """Refuses a schema that the payload cannot fill.

    Raises:
        OptionError: its columns are fixed, or one is of a type that is not decoded.
    """
    if payload == "raw" or is_ordered(payload):
        if schema != default_schema(payload):
            raise OptionError(
                f"a schema cannot be given with payload={payload}: its columns are fixed; remove "
                ".schema(...)"
            )
        return
    for field in schema.fields:
        kind = field.dataType.simpleString()
        if field.name in SCHEMA.names:
            if field.dataType != SCHEMA[field.name].dataType:
                wanted = SCHEMA[field.name].dataType.simpleString()
                raise OptionError(f"column {field.name} is of the record, and {wanted}; not {kind}")
        elif field.name == CORRUPT:
            if field.dataType != BinaryType():
                raise OptionError(f"column {CORRUPT} is binary, for it holds values as they came")
        elif kind not in _KINDS:
            raise OptionError(
                f"column {field.name} is {kind}; payload={payload} is decoded to "
                f"{', '.join(_KINDS)}"
            )


def decoder(payload: Payload, schema: StructType, stream: str, partition: int) -> Decode:
    """What decodes the records of a partition, from the first on."""
    if payload == "raw":
        return lambda records: iter((record_batch(records, stream, partition),))
    if payload == "dcgm":
        return readings.Decoder(stream, partition, "ingest_time").decode
    if payload == "dcgm-replay":
        return readings.Decoder(stream, partition, "event_time").decode
    return _Rows(payload, schema, stream, partition).decode


class _Rows:
    """Decodes values by a schema."""

    def __init__(
        self, payload: Literal["json", "csv"], schema: StructType, stream: str, partition: int
    ) -> None:
        self._stream = stream
        self._partition = partition
        self._arrow = to_arrow_schema(schema, timezone="UTC")
        own = [
            field.name
            for field in schema.fields
            if field.name not in SCHEMA.names and field.name != CORRUPT
        ]
        self._own = own
        kinds = [(name, schema[name].dataType.simpleString()) for name in own]
        self._native = RowDecoder(payload, kinds)

    def decode(self, records: RecordColumns) -> Iterator[pa.RecordBatch]:
        rows = records.records
        columns, corrupt = self._native.read(records)
        found = {
            name: array(self._arrow.field(name).type, rows, column)
            for name, column in zip(self._own, columns, strict=True)
        }
        record = record_batch(records, self._stream, self._partition)
        is_corrupt = array(pa.bool_(), rows, corrupt)
        found[CORRUPT] = pc.if_else(is_corrupt, record["value"], pa.scalar(None, pa.binary()))
        yield pa.RecordBatch.from_arrays(
            [
                found[name] if name in found else record[name].cast(self._arrow.field(name).type)
                for name in self._arrow.names
            ],
            schema=self._arrow,
        )
