"""Judges each reading from its raw text: a usable value, or the reason why there is none.

Owns DCGM's marks for "no value", the numbers that a text may hold, the times that name an
instant, and the ranges of `fields`. Nothing is corrected or clamped. The value is typed from the
text, never from a double: as doubles, DCGM's four INT64 marks are one number.

Source: DCGM `dcgm_structs.h` for the marks; a value at or above a mark is none.
"""

from __future__ import annotations

import json
from math import isfinite
from typing import TYPE_CHECKING, Final, Literal

from pyspark.sql import functions as F  # noqa: N812 - the usual name

from headrace import job_limits
from headrace.pipeline.fields import BY_NAME, Kind

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from headrace.pipeline.fields import Field

Now = Literal["ingest_time", "event_time"]
"""What a `future` event time is measured against: `ingest_time` for live data; `event_time` for
a replayed file, whose newest event time is its now, so that none is in the future."""

INT32_BLANK: Final = 2_147_483_632
INT64_BLANK: Final = 9_223_372_036_854_775_792
FP64_BLANK: Final = 140_737_488_355_328
"""DCGM's marks: + 0 blank, + 1 not found, + 2 not supported, + 3 no permission."""

_EXACT: Final = "decimal(38,6)"
"""Holds every INT64 and six decimals, which is what DCGM's exporter prints."""

_NUMBER: Final = r"text RLIKE r'^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?$'"
_NOT_A_NUMBER: Final = r"text RLIKE r'(?i)^[+-]?(nan|inf|infinity)$'"

_RFC3339: Final = r"RLIKE r'^\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)$'"
_EPOCH_UNITS: Final = ((11, 1_000_000, 1), (14, 1_000, 1), (17, 1, 1), (19, 1, 1_000))
"""`(digits at most, times, over)` to microseconds. Counts of seconds, milliseconds, microseconds
and nanoseconds since 1970 have different lengths from 1973 to 5138."""


def clean(readings: DataFrame, now: Now = "ingest_time") -> DataFrame:
    """Adds `reason` (null for a usable value) and the typed columns to decoded readings.

    Args:
        readings: what `decode` gives.
        now: what the future is measured against.
    """
    known = readings.withColumn("field", F.element_at(_fields(), F.col("metric_text")))
    return (
        known.selectExpr(
            "*",
            "trim(raw) AS text",
            "coalesce(field.name, metric_text) AS metric",
            "field.id AS field_id",
            "coalesce(field.unit, '') AS unit",
            "CASE WHEN field IS NULL THEN 'unknown_field' ELSE 'ok' END AS status",
            f"{instant('event_time_text')} AS event_time",
            f"coalesce({instant('ingest_time_text')}, stored_time) AS ingest_time",
        )
        .selectExpr(
            "*",
            f"CASE WHEN {_NUMBER} THEN try_cast(text AS double) END AS number",
            f"CASE WHEN {_NUMBER} THEN try_cast(text AS {_EXACT}) END AS exact",
        )
        .selectExpr("*", f"{_MARK} AS mark")
        .selectExpr("*", f"{_reason(now)} AS reason")
        .selectExpr(
            "*",
            "CASE WHEN reason IS NULL THEN number END AS value",
            f"CASE WHEN reason IS NULL AND field.kind = '{Kind.COUNTER}' "
            "THEN try_cast(exact AS bigint) END AS value_long",
        )
        .drop("field", "text", "number", "exact", "mark", "metric_text", "ingest_time_text")
    )


def instant(text: str) -> str:
    """SQL for the instant that column `text` names without doubt, else null.

    RFC 3339 with `Z` or a numeric offset, or digits counted from the epoch. Digits beyond the
    microsecond are cut.
    """
    digits = f"try_cast(trim({text}) AS decimal(20,0))"
    micros = "".join(
        f" WHEN length(trim({text})) <= {digits_max} "
        f"THEN try_cast(floor({digits} * {times} / {over}) AS bigint)"
        for digits_max, times, over in _EPOCH_UNITS
    )
    return (
        f"CASE WHEN trim({text}) {_RFC3339} THEN try_cast(upper(trim({text})) AS timestamp)"
        rf" WHEN trim({text}) RLIKE r'^\d{{9,19}}$' THEN timestamp_micros(CASE{micros} END) END"
    )


def _marked(blank: int) -> str:
    return (
        f"CASE exact - {blank} WHEN 1 THEN 'not_found' WHEN 2 THEN 'not_supported' "
        "WHEN 3 THEN 'no_permission' ELSE 'blank' END"
    )


def _reachable_mark(blank: int) -> str:
    """SQL for a mark that is also a plausible count.

    It holds only where the field cannot reach it, or is not known.
    """
    return (
        f"WHEN exact BETWEEN {blank} AND {blank} + 3 AND (field IS NULL OR field.high < {blank}) "
        f"THEN {_marked(blank)}"
    )


_MARK: Final = f"""
    CASE
    WHEN text = '<<<NULL>>>' THEN 'blank'
    WHEN text = '<<<NOT_FOUND>>>' THEN 'not_found'
    WHEN text = '<<<NOT_SUPPORTED>>>' THEN 'not_supported'
    WHEN text = '<<<NOT_PERM>>>' THEN 'no_permission'
    WHEN exact >= {INT64_BLANK} THEN {_marked(INT64_BLANK)}
    WHEN exact >= {FP64_BLANK} AND NOT coalesce(field.integer, false) THEN {_marked(FP64_BLANK)}
    {_reachable_mark(FP64_BLANK)}
    {_reachable_mark(INT32_BLANK)}
    END"""
"""What DCGM's marks say about a reading, else null."""


def _reason(now: Now) -> str:
    """SQL for the first fault of a reading, from the message inward; null where there is none."""
    future = (
        f"WHEN event_time > ingest_time + INTERVAL {job_limits.FUTURE_SECONDS_MAX} SECONDS "
        "THEN 'future'"
        if now == "ingest_time"
        else ""
    )
    return f"""
        CASE
        WHEN metric IS NULL THEN 'undecodable'
        WHEN uuid IS NULL THEN 'no_identity'
        WHEN event_time IS NULL THEN 'ambiguous_time'
        {future}
        WHEN coalesce(text, '') = '' THEN 'missing'
        WHEN {_NOT_A_NUMBER} THEN 'not_a_number'
        WHEN mark IS NOT NULL THEN mark
        WHEN number IS NULL THEN 'unparseable'
        WHEN number < field.low OR number > field.high OR abs(number) = double('Infinity')
        THEN 'out_of_range'
        END"""


def _fields() -> Column:
    """Name to field: one constant, which Spark folds when it plans."""
    text = json.dumps({name: _known(field) for name, field in BY_NAME.items()})
    kind = (
        "struct<name:string,id:int,unit:string,kind:string,integer:boolean,low:double,high:double>"
    )
    return F.from_json(F.lit(text), f"map<string,{kind}>")


def _known(field: Field) -> dict[str, object]:
    return {
        "name": field.name,
        "id": field.id,
        "unit": field.unit,
        "kind": field.kind,
        "integer": field.integer,
        "low": field.low,
        "high": field.high if isfinite(field.high) else None,
    }
