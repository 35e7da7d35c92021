"""What may be asked: query parameters, and the cursors of pages. Pure.

Times are RFC 3339 in, microseconds since the epoch inside. A cursor says after which row a page
begins, never how many there were before: rows that come or go elsewhere move nothing.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import BeforeValidator, Field, model_validator

from headrace import job_limits, limits
from headrace.adapters.answers import Fields
from headrace.text import parse_duration_ms, shown

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_RFC_3339: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)
_SUCH_AS: Final = "a time such as 2030-01-01T00:00:00Z (RFC 3339)"

Cursor: TypeAlias = tuple[int, str]
"""Microseconds and a text that tells rows of one time apart: pages begin after it."""


def instant(value: object) -> int:
    """Microseconds since the epoch of an RFC 3339 time.

    Raises:
        ValueError: it is none, and what is.
    """
    text = str(value)
    found = _RFC_3339.fullmatch(text)
    if found is None:
        if re.search(r"\d [0-9]{2}:[0-9]{2}$", text):
            raise ValueError(f"must be {_SUCH_AS}; a + is written %2B in a URL; got {shown(text)}")
        if re.fullmatch(r"[^+Zz]*\d\d:\d\d:\d\d(\.\d+)?", text):
            raise ValueError(f"must say its zone, as Z or +05:30 (%2B05:30); got {shown(text)}")
        raise ValueError(f"must be {_SUCH_AS}; got {shown(text)}")
    day, time, fraction, zone = found.groups()
    zone = "+00:00" if zone in "Zz" else zone
    try:
        read = datetime.fromisoformat(f"{day}T{time}{(fraction or '.0')[:7]:0<7}{zone}")
        # In UTC it may lie beyond the years 1 to 9999.
        return (read.astimezone(UTC) - EPOCH) // _MICROSECOND
    except (ValueError, OverflowError) as error:
        raise ValueError(f"must be {_SUCH_AS}: {error}; got {shown(text)}") from None


def time_text(micros: int) -> str:
    """A time as answers have it.

    >>> time_text(1_893_456_000_000_000)
    '2030-01-01T00:00:00Z'
    """
    return (EPOCH + timedelta(microseconds=micros)).isoformat().replace("+00:00", "Z")


def _window(value: object) -> int:
    """Microseconds of a duration in whole seconds."""
    milliseconds = parse_duration_ms(value)
    if not 1000 <= milliseconds <= job_limits.API_WINDOW_SECONDS_MAX * 1000 or milliseconds % 1000:
        raise ValueError(f"must be whole seconds, from 1s to 31d; got {shown(value)}")
    return milliseconds * 1000


def written(cursor: Cursor) -> str:
    """A cursor as text that means nothing to who reads it."""
    return base64.urlsafe_b64encode(json.dumps(cursor).encode()).decode().rstrip("=")


def _cursor(value: object) -> Cursor:
    text = str(value)
    try:
        read: Any = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        micros, name = read
        if type(micros) is int and type(name) is str and abs(micros) < limits.INT64_MAX:
            name.encode()  # half a character is in no text of a table
            return micros, name
    except (ValueError, TypeError, binascii.Error, RecursionError):
        pass
    raise ValueError(f"must be the next of the page before; got {shown(text)}")


def _flag(value: object) -> bool:
    if value in {"true", "false"}:
        return value == "true"
    raise ValueError(f"must be true or false; got {shown(value)}")


def _count(value: object, low: int, high: int) -> int:
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value) and low <= int(value) <= high:
        return int(value)
    raise ValueError(f"must be from {low} to {high}; got {shown(value)}")


def _limit(high: int) -> BeforeValidator:
    number: Any = Annotated[int, Field(ge=1, le=high)]
    return BeforeValidator(lambda value: _count(value, 1, high), json_schema_input_type=number)


_Instant = Annotated[
    int,
    BeforeValidator(
        instant,
        json_schema_input_type=Annotated[str, Field(json_schema_extra={"format": "date-time"})],
    ),
]
_Text = Annotated[str, Field(min_length=1, max_length=1_000)]
_Next = Annotated[
    Cursor | None,
    BeforeValidator(_cursor, json_schema_input_type=str),
    Field(description="`next` of the page before."),
]
_Page = Annotated[int, _limit(limits.HTTP_PAGE_MAX), Field(description="Rows of a page at most.")]


class Nothing(Fields):
    """No parameters."""


class _Range(Fields):
    start_time: _Instant | None = Field(default=None, description="First instant, included.")
    end_time: _Instant | None = Field(default=None, description="Last instant, included.")

    @model_validator(mode="after")
    def _in_order(self) -> _Range:
        if None not in {self.start_time, self.end_time} and self.start_time > self.end_time:  # type: ignore[operator]
            raise ValueError("start_time is after end_time; change one of them")
        return self


class GpusAsked(Fields):
    """Of `/api/v1/gpus`."""

    host: _Text | None = Field(default=None, description="On this host alone.")
    model: _Text | None = Field(default=None, description="Of this model alone.")
    namespace: _Text | None = Field(default=None, description="Last seen in this namespace.")
    pod: _Text | None = Field(default=None, description="Last seen under this pod.")
    limit: _Page = limits.HTTP_PAGE
    next: _Next = None


class TelemetryAsked(_Range):
    """Of `/api/v1/gpus/{id}/telemetry`."""

    metric_name: _Text | None = Field(
        default=None, description="One metric, by any name that DCGM has had for it."
    )
    window: Annotated[
        int | None, BeforeValidator(_window, json_schema_input_type=str)
    ] = Field(
        default=None,
        description="Length of a stretch of time that becomes one row, such as `5m`: avg, min, "
        "max and last of its readings.",
    )  # fmt: skip
    source: Literal["auto", "readings"] = Field(
        default="auto",
        description="With `readings` windows are made of readings, though the table "
        "`gpu_intervals` has the metric.",
    )
    limit: Annotated[
        int,
        _limit(job_limits.API_ROWS_MAX),
        Field(description="Rows of a page at most."),
    ] = job_limits.API_ROWS
    next: _Next = None


class DetectionsAsked(_Range):
    """Of `/api/v1/detections`."""

    kind: _Text | None = Field(default=None, description="One kind, such as `xid`.")
    severity: Literal["info", "warning", "critical"] | None = None
    host: _Text | None = Field(default=None, description="On this host alone.")
    uuid: _Text | None = Field(default=None, description="Of this GPU and its slices alone.")
    open: Annotated[bool | None, BeforeValidator(_flag, json_schema_input_type=bool)] = Field(
        default=None, description="Those that hold still, or those that have ended."
    )
    limit: _Page = limits.HTTP_PAGE
    next: _Next = None


class SummaryAsked(_Range):
    """Of `/api/v1/fleet/summary`."""

    top: Annotated[
        int,
        _limit(limits.HTTP_PAGE_MAX),
        Field(description="Models, hosts, namespaces and pods that are listed, largest first."),
    ] = 20
