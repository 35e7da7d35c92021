"""The tables: their columns, types and meaning. `docs/tables.md` is generated from here.

Owns what a reader of the tables may rely on. Columns are only ever added: a file of an older
schema version reads as null in newer columns.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headrace.dcgm.fields import IN_INTERVALS, XID, Keep

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from headrace.dcgm.fields import Field

SCHEMA_VERSION: Final = 1
"""Grows with each added column; the manifest records it for each file."""

READINGS: Final = "readings"
QUARANTINE: Final = "quarantine"
DUPLICATES: Final = "duplicates"
GPU_INTERVALS: Final = "gpu_intervals"
GPU_MINUTES: Final = "gpu_minutes"
GPU_HOURS: Final = "gpu_hours"
JOBS: Final = "jobs"
DETECTIONS: Final = "detections"

_TEXT: Final = StringType()
_INSTANT: Final = TimestampType()
_LONG: Final = LongType()
_INT: Final = IntegerType()
_DOUBLE: Final = DoubleType()
_FLAG: Final = BooleanType()


def _column(name: str, kind: DataType, meaning: str) -> StructField:
    return StructField(name, kind, nullable=True, metadata={"comment": meaning})


_ORIGIN: Final = (
    _column("topic", _TEXT, "stream that the message was read from"),
    _column("partition", _INT, "partition of that stream"),
    _column("offset", _LONG, "offset of the message in that partition"),
    _column("item", _INT, "position of the reading in its message; 0 in a narrow message"),
)
_SUBJECT: Final = (
    _column("event_time", _INSTANT, "when it was measured (UTC, microseconds)"),
    _column("ingest_time", _INSTANT, "when the collector read it, else when the broker stored it"),
    _column("host", _TEXT, "host of the GPU"),
    _column("device", _TEXT, "device name on that host, such as `nvidia0`"),
    _column("gpu_index", _INT, "index of the GPU on that host"),
    _column("uuid", _TEXT, "UUID of the GPU; of the parent for a MIG slice"),
    _column("gpu_i_id", _TEXT, "GPU instance id of a MIG slice; empty for a whole GPU"),
    _column("gpu_i_profile", _TEXT, "MIG profile, such as `1g.10gb`; empty for a whole GPU"),
    _column("metric", _TEXT, "canonical name of the field"),
    _column("field_id", _INT, "DCGM's id of the field; null for a field that is not known"),
)
_CONTEXT: Final = (
    _column("model", _TEXT, "model of the GPU"),
    _column("driver", _TEXT, "driver version"),
    _column("namespace", _TEXT, "Kubernetes namespace; context only"),
    _column("pod", _TEXT, "Kubernetes pod; context only"),
    _column("container", _TEXT, "Kubernetes container; context only"),
    _column("labels", MapType(_TEXT, _TEXT), "all labels as they came"),
    _column("source", _TEXT, "collector that sent the message"),
    _column("source_epoch", _LONG, "run of that collector"),
    _column("source_sequence", _LONG, "number of the message in that run"),
)
_RAW: Final = _column("raw", _TEXT, "the value's text as it was read")
_REASON: Final = "why there is no usable value: {}"

REASONS: Final[Mapping[str, str]] = {
    "blank": "DCGM's mark for no value (INT32, INT64 or FP64 blank, or `<<<NULL>>>`)",
    "not_found": "DCGM's mark for a field or entity that is not found",
    "not_supported": "DCGM's mark for a field that the device does not support",
    "no_permission": "DCGM's mark for a field that may not be read",
    "unparseable": "text that is no number",
    "missing": "no value at all; absent is not 0",
    "not_a_number": "NaN or an infinity",
    "out_of_range": "outside the field's range; never clamped",
    "no_identity": "no UUID",
    "ambiguous_time": "a time that names no single instant: no zone, or a zone's name; or none of "
    "the years 2 to 9998",
    "future": "measured after it was read",
    "undecodable": "a message, or a line of one, in which no reading was found",
}

_STATUS: Final = _column(
    "status", _TEXT, "`ok`, or `unknown_field` where no unit or range is known for the metric"
)
_VALUE: Final = (
    _column("value", _DOUBLE, "the value, in `unit`"),
    _column("value_long", _LONG, "the exact value of a counter; a double is exact to 2^53 only"),
    _column("unit", _TEXT, "unit of `value`; empty for counts, flags and codes"),
)
_LATE: Final = _column(
    "late", _FLAG, "older than the newest event time before it in its partition, by the watermark"
)

_INTERVAL_HEAD: Final = (
    _column("uuid", _TEXT, "UUID of the GPU; of the parent for a MIG slice"),
    _column("gpu_i_id", _TEXT, "GPU instance id of a MIG slice; empty for a whole GPU"),
    _column("interval_start", _INSTANT, "first instant of the interval (UTC)"),
    _column("interval_end", _INSTANT, "first instant after it"),
    _column("host", _TEXT, "host of the GPU"),
    _column("device", _TEXT, "device name on that host"),
    _column("gpu_index", _INT, "index of the GPU on that host"),
    _column("gpu_i_profile", _TEXT, "MIG profile; empty for a whole GPU"),
    _column("model", _TEXT, "model of the GPU"),
    _column("namespace", _TEXT, "namespace of most scrapes; context only"),
    _column("pod", _TEXT, "pod of most scrapes, the latest where two have as many; context only"),
    _column("container", _TEXT, "container of most scrapes; context only"),
    _column("samples", _LONG, "scrapes: distinct event times"),
    _column("readings", _LONG, "readings in them, the superseded ones of a conflict left out"),
    _column("late_readings", _LONG, "of those, late ones"),
    _column(
        "profiling_gaps",
        _LONG,
        "scrapes without a valid profiling sample: a PROF field is NaN. Their other PROF values "
        "are in no column of this row",
    ),
    _column(
        "seconds",
        _DOUBLE,
        "time since the scrape before, where that is within the staleness, summed over the scrapes",
    ),
)
_INTERVAL_ENERGY: Final = (
    _column(
        "energy_source",
        _TEXT,
        "`counter`: from deltas of the energy counter; `power`: power integrated over time; null: "
        "no energy in this row. All slices of a MIG device repeat its counters: the first slice "
        "has them, the others null",
    ),
    _column("energy_seconds", _DOUBLE, "time that `energy_joules` covers"),
    _column("counter_restarts", _LONG, "counters that fell: a driver reload or a swapped board"),
)

_KEPT: Final[Mapping[Keep, str]] = {
    Keep.MEAN: "mean of {name} ({unit})",
    Keep.MAX: "greatest {name} ({unit})",
    Keep.LAST: "last {name} ({unit})",
    Keep.ANY_BITS: "bits of {name} that were set at any time",
    Keep.DELTA: "growth of {name}, restarts handled; null without a scrape before",
}


_LAST_XID: Final = f"last {XID.name} that is not an application's, else the last one"


def _interval_columns(field: Field) -> list[StructField]:
    unit = field.unit or "no unit"
    return [
        _column(
            column,
            _LONG if keep is Keep.ANY_BITS else _DOUBLE,
            _LAST_XID if field is XID else _KEPT[keep].format(name=field.name, unit=unit),
        )
        for keep, column in field.columns.items()
    ]


_PLACE: Final = (
    _column("host", _TEXT, "host of the GPU"),
    _column("device", _TEXT, "device name on that host"),
    _column("gpu_index", _INT, "index of the GPU on that host"),
    _column("gpu_i_profile", _TEXT, "MIG profile; empty for a whole GPU"),
    _column("model", _TEXT, "model of the GPU"),
)
_LOAD: Final = (
    _column("namespace", _TEXT, "Kubernetes namespace; context only"),
    _column("pod", _TEXT, "Kubernetes pod; empty where none was named; context only"),
    _column("container", _TEXT, "Kubernetes container; context only"),
)
_IDENTITY: Final = (
    _column("uuid", _TEXT, "UUID of the GPU; of the parent for a MIG slice"),
    _column("gpu_i_id", _TEXT, "GPU instance id of a MIG slice; empty for a whole GPU"),
)
_ROLLED: Final = (
    _column("samples", _LONG, "scrapes"),
    _column("profiling_gaps", _LONG, "of those, without a valid profiling sample"),
    _column("gpu_util_percent_mean", _DOUBLE, "GPU_UTIL (%), weighted by scrapes"),
    _column("gr_engine_active_ratio_mean", _DOUBLE, "share of time with work; for MIG slices too"),
    _column("sm_active_ratio_mean", _DOUBLE, "SM activity, weighted by valid scrapes"),
    _column("tensor_active_ratio_mean", _DOUBLE, "activity of the tensor pipe"),
    _column("dram_active_ratio_mean", _DOUBLE, "activity of the memory interface"),
    _column("fb_used_mib_mean", _DOUBLE, "framebuffer in use (MiB)"),
    _column("power_watts_mean", _DOUBLE, "power (W), weighted by scrapes"),
    _column("sm_clock_mhz_mean", _DOUBLE, "SM clock (MHz)"),
    _column("fb_used_mib_max", _DOUBLE, "greatest framebuffer in use (MiB)"),
    _column("power_watts_max", _DOUBLE, "greatest power (W)"),
    _column("gpu_temp_celsius_max", _DOUBLE, "greatest temperature (°C)"),
    _column("throttle_reasons_any", _LONG, "bits of throttle reasons that were set at any time"),
    _column("seconds", _DOUBLE, "time that its scrapes cover"),
    _column("energy_joules", _DOUBLE, "energy (J); once for all slices of a MIG device"),
    _column("energy_seconds", _DOUBLE, "time that `energy_joules` covers"),
    _column(
        "gpu_cost", _DOUBLE, "price of `seconds`, of a MIG slice its share; null without a price"
    ),
    _column("energy_cost", _DOUBLE, "price of `energy_joules`; null without energy"),
)


def _rolled(length: str) -> StructType:
    return StructType(
        [
            *_IDENTITY,
            _column("start", _INSTANT, f"first instant of the {length} (UTC)"),
            _column("end", _INSTANT, "first instant after it"),
            *_PLACE,
            *_LOAD,
            _column("active_from", _INSTANT, "start of its first interval with a scrape"),
            _column("active_to", _INSTANT, "end of its last interval with a scrape"),
            *_ROLLED,
        ]
    )


SCHEMAS: Final[Mapping[str, StructType]] = {
    READINGS: StructType(
        [
            *_ORIGIN,
            *_SUBJECT,
            _RAW,
            *_VALUE,
            _STATUS,
            _column("conflict", _FLAG, "an earlier reading of this metric and time differs"),
            _LATE,
            *_CONTEXT,
        ]
    ),
    QUARANTINE: StructType(
        [
            *_ORIGIN,
            *_SUBJECT,
            _RAW,
            _column("reason", _TEXT, _REASON.format(", ".join(f"`{name}`" for name in REASONS))),
            *_CONTEXT,
            _column("event_time_text", _TEXT, "the event time as it came"),
            _column("payload", BinaryType(), "the whole message; only where it is `undecodable`"),
        ]
    ),
    DUPLICATES: StructType(
        [*_ORIGIN, *_SUBJECT, _RAW, *_CONTEXT],
    ),
    GPU_INTERVALS: StructType(
        [
            *_INTERVAL_HEAD,
            *(column for field in IN_INTERVALS for column in _interval_columns(field)),
            *_INTERVAL_ENERGY,
        ]
    ),
    GPU_MINUTES: _rolled("minute"),
    GPU_HOURS: _rolled("hour"),
    JOBS: StructType(
        [
            *_IDENTITY,
            *_LOAD,
            _column("start", _INSTANT, "start of its first interval on this GPU"),
            _column("end", _INSTANT, "end of its last interval so far"),
            *_PLACE,
            *_ROLLED,
        ]
    ),
    DETECTIONS: StructType(
        [
            _column("id", _TEXT, "the same for one detection in every version of the tables"),
            _column("kind", _TEXT, "what was found"),
            _column("severity", _TEXT, "`info`, `warning` or `critical`; the worst so far"),
            *_IDENTITY,
            _column("host", _TEXT, "host of the GPU"),
            _column("gpu_index", _INT, "index of the GPU on that host"),
            _column("model", _TEXT, "model of the GPU"),
            *_LOAD,
            _column("start", _INSTANT, "since when it holds (UTC)"),
            _column("end", _INSTANT, "until when it held; null while it is open"),
            _column("last", _INSTANT, "until when it was seen so far"),
            _column("window_seconds", _DOUBLE, "for how long it had to hold to be found"),
            _column(
                "evidence",
                MapType(_TEXT, _DOUBLE),
                "what was measured while it held, and the rule's settings as `rule.NAME`",
            ),
            _column("text", _TEXT, "the same as a sentence"),
        ]
    ),
}

DESCRIPTIONS: Final[Mapping[str, str]] = {
    READINGS: "One row for each reading with a usable value.",
    QUARANTINE: "One row for each reading without a usable value, and why.",
    DUPLICATES: (
        "Readings that repeat one already stored: same UUID, MIG slice, metric, event time and "
        "raw text. The first by partition and offset stays where it is."
    ),
    GPU_INTERVALS: (
        "One row for each GPU, or MIG slice, and interval of event time. A pure function of "
        "`readings` and of the NaN profiling values in `quarantine`: late readings change the "
        "rows of their intervals."
    ),
    GPU_MINUTES: (
        "One row for each GPU, or MIG slice, minute and load (namespace, pod, container), made of "
        "`gpu_intervals`."
    ),
    GPU_HOURS: "The same for each hour, made of `gpu_minutes`.",
    JOBS: (
        "One row for each pod and GPU that it ran on: a job on eight GPUs has eight rows. A pod "
        "that is silent for more than an hour is another job. Made of `gpu_hours`."
    ),
    DETECTIONS: (
        "One row for each fault that was found, open or ended. The rules are those of "
        "`headrace.pipeline.rules`. What is newer than the watermark may still change."
    ),
}


def time_columns(table: str) -> tuple[str, str]:
    """Columns with the first and with the last instant that a row of a table is about."""
    names = SCHEMAS[table].names
    first = next(name for name in ("event_time", "interval_start", "start") if name in names)
    # A job lies in all the time until its end.
    return first, "end" if table == JOBS else first


@cache
def arrow_schema(table: str) -> pa.Schema:
    """The columns of a table as Arrow's types."""
    return to_arrow_schema(SCHEMAS[table], timezone="UTC")
