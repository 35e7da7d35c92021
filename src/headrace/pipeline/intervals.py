"""One row for each GPU and interval, from its readings.

Owns how readings become intervals: means, greatest values, growth of counters, energy. A pure
function of `readings` and of the NaN profiling values in `quarantine`; the same rows give the same
result in any order.

A scrape is all that a GPU, or MIG slice, reported at one event time. One in which any PROF field
is NaN has no valid profiling sample: DCGM then gives a false 0 in the other PROF fields, so none
of them counts.

Slices of a MIG device share its UUID and repeat its counters: growth is taken per device and
stands in the row of its first slice, so that a sum over rows counts it once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - the usual name

from headrace.pipeline.fields import ENERGY, IN_INTERVALS, POWER, PROFILING_PREFIX, Keep
from headrace.pipeline.schemas import GPU_INTERVALS, SCHEMAS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.pipeline.fields import Field

LOOKBACK_SECONDS: Final = 60
"""How far back the scrape before may be. Twice the 30 s at which dcgm-exporter collects; a longer
silence is a gap, over which nothing is known."""

_LOOKBACK_US: Final = LOOKBACK_SECONDS * 1_000_000
_ROW: Final = ("uuid", "gpu_i_id", "interval_start")
_BITS: Final = tuple(field for field in IN_INTERVALS if Keep.ANY_BITS in field.keeps)
_PROFILED: Final = tuple(field for field in IN_INTERVALS if field.profiling)

_CONTEXT: Final = "pod, namespace, container, host, device, gpu_index, gpu_i_profile, model"
"""Pod first: where two exporters report a GPU, the one that knows the pod compares as greater."""


def _ids(fields: tuple[Field, ...]) -> str:
    return ", ".join(str(field.id) for field in fields)


def intervals(readings: DataFrame, quarantine: DataFrame, interval_us: int) -> DataFrame:
    """The rows of `gpu_intervals` for all intervals that hold a scrape.

    Args:
        readings: of whole intervals, and of `LOOKBACK_SECONDS` before the first.
        quarantine: of the same time.
        interval_us: length of an interval in microseconds; intervals start at multiples of it
            since the epoch.
    """
    rows = _rows(readings, quarantine, interval_us)
    return (
        _scrapes(rows)
        .join(_values(rows), list(_ROW), "left")
        .selectExpr(
            "* EXCEPT (counter_restarts)",
            "coalesce(counter_restarts, 0) AS counter_restarts",
            f"timestamp_micros(unix_micros(interval_start) + {interval_us}) AS interval_end",
        )
        .select(*SCHEMAS[GPU_INTERVALS].names)
    )


def floor_time(instant: str, step_us: int) -> str:
    """SQL for the multiple of `step_us` since the epoch at or before `instant`."""
    return f"timestamp_micros(unix_micros({instant}) - pmod(unix_micros({instant}), {step_us}L))"


def _rows(readings: DataFrame, quarantine: DataFrame, interval_us: int) -> DataFrame:
    """Readings and gaps, those of one device together.

    Of several readings of one field and time the last by log order counts; `usable` is false for
    the others, and for PROF fields of a scrape with a gap.
    """
    gaps = quarantine.filter(
        f"startswith(metric, '{PROFILING_PREFIX}') AND reason = 'not_a_number'"
    ).selectExpr("*", "true AS gap")
    at_once = "PARTITION BY uuid, event_time, gpu_i_id"
    last = (
        f"row_number() OVER ({at_once}, metric "
        "ORDER BY topic DESC, partition DESC, offset DESC, item DESC) = 1"
    )
    return (
        readings.selectExpr("*", "false AS gap")
        .unionByName(gaps, allowMissingColumns=True)
        .repartition("uuid")
        .selectExpr(
            "uuid", "gpu_i_id", "event_time", "field_id", "gap", "late",
            f"{floor_time('event_time', interval_us)} AS interval_start",
            f"struct({_CONTEXT}) AS context",
            "value",
            "value_long",
            f"max(gap) OVER ({at_once}) AS no_profile",
            f"NOT gap AND {last} AS counted",
        )
        .selectExpr(
            "*",
            f"counted AND NOT (no_profile AND coalesce(field_id IN ({_ids(_PROFILED)}), false)) "
            "AS usable",
        )
    )  # fmt: skip


def _scrapes(rows: DataFrame) -> DataFrame:
    """What an interval's scrapes say as such: how many, how far apart, in which context.

    The context is that of most scrapes; of the latest where two have as many.
    """
    return (
        _grouped(
            rows,
            (*_ROW, "event_time"),
            "count_if(counted) AS readings",
            "count_if(counted AND late) AS late_readings",
            "max(no_profile) AS no_profile",
            "max(context) AS context",
        )
        .selectExpr("*", f"{_since('PARTITION BY uuid, gpu_i_id ORDER BY event_time')} AS since_us")
        .transform(
            _grouped,
            (*_ROW, "context"),
            "count(*) AS samples",
            "max(event_time) AS latest",
            "sum(readings) AS readings",
            "sum(late_readings) AS late_readings",
            "count_if(no_profile) AS profiling_gaps",
            f"sum(CASE WHEN since_us <= {_LOOKBACK_US} THEN since_us ELSE 0 END) AS covered_us",
        )
        .transform(
            _grouped,
            _ROW,
            "sum(samples) AS samples",
            "sum(readings) AS readings",
            "sum(late_readings) AS late_readings",
            "sum(profiling_gaps) AS profiling_gaps",
            "sum(covered_us) / 1e6 AS seconds",
            "max(struct(samples, latest, context)).context AS context",
        )
        .selectExpr("* EXCEPT (context)", "context.*")
    )


def _values(rows: DataFrame) -> DataFrame:
    """What an interval keeps of each field, wide.

    Long first, one row for each field: growth needs the value before of the same field, and a
    window over one column of values is far cheaper than one over fifty.
    """
    of_field = "PARTITION BY uuid, field_id ORDER BY event_time, gpu_i_id"
    # Power stands in for the energy counter only where that has not been seen within the
    # look-back, so that no time is counted twice.
    near = (
        f"count_if(field_id = {ENERGY.id}) OVER (PARTITION BY uuid ORDER BY "
        f"unix_micros(event_time) RANGE BETWEEN {_LOOKBACK_US} PRECEDING AND CURRENT ROW)"
    )
    steps = (
        rows.filter(f"usable AND field_id IN ({_ids(IN_INTERVALS)})")
        .selectExpr(
            *_ROW, "event_time", "field_id", "value", "value_long",
            f"{_since(of_field)} AS since_us",
            f"lag(value) OVER ({of_field}) AS before",
            f"lag(value_long) OVER ({of_field}) AS before_long",
            f"{near} AS near",
        )
        # Slices of one device repeat each other at one time: between them nothing has passed.
        .selectExpr("*", f"coalesce(since_us > 0 AND since_us <= {_LOOKBACK_US}, false) AS stepped")
        .selectExpr("*", f"{_GROWTH} AS growth", f"{_JOULES} AS joules")
    )  # fmt: skip
    kept = _grouped(
        steps,
        (*_ROW, "field_id"),
        "avg(value) AS mean",
        "max(value) AS max",
        "max_by(value, event_time) AS last",
        f"bit_or(CASE WHEN field_id IN ({_ids(_BITS)}) THEN cast(value AS bigint) END) AS bits",
        "sum(growth) AS growth",
        "sum(joules) AS joules",
        "sum(CASE WHEN coalesce(growth, joules) IS NOT NULL THEN since_us END) / 1e6 AS seconds",
        "count_if(stepped AND value_long < before_long) AS restarts",
    )
    return _grouped(kept, _ROW, *_wide())


_GROWTH: Final = """
    CASE WHEN stepped AND value_long >= before_long THEN cast(value_long - before_long AS double)
         WHEN stepped AND value_long < before_long THEN cast(value_long AS double) END"""
"""A counter that fell has started again from 0."""

_JOULES: Final = f"""
    CASE WHEN stepped AND near = 0 AND field_id = {POWER.id}
         THEN since_us / 1e6 * (value + before) / 2 END"""

_KEPT: Final = {
    Keep.MEAN: "max(mean)",
    Keep.MAX: "max(max)",
    Keep.LAST: "max(last)",
    Keep.ANY_BITS: "max(bits)",
    Keep.DELTA: "max(growth)",
}
"""Each group holds one row for a field; `max` takes it."""


def _wide() -> list[str]:
    columns = [
        f"{_of(_KEPT[keep], field)} * {field.scale} AS {column}"
        if keep is Keep.DELTA
        else f"{_of(_KEPT[keep], field)} AS {column}"
        for field in IN_INTERVALS
        for keep, column in field.columns.items()
        if field is not ENERGY
    ]
    counted = f"{_of('max(growth)', ENERGY)} * {ENERGY.scale}"
    integrated = _of("max(joules)", POWER)
    source = (
        f"CASE WHEN {counted} IS NOT NULL THEN 'counter' "
        f"WHEN {integrated} IS NOT NULL THEN 'power' END"
    )
    return [
        *columns,
        f"{_present(counted, integrated)} AS {ENERGY.column}",
        f"{_present(_of('max(seconds)', ENERGY), _of('max(seconds)', POWER))} AS energy_seconds",
        f"{source} AS energy_source",
        "sum(restarts) AS counter_restarts",
    ]


def _of(aggregate: str, field: Field) -> str:
    return f"{aggregate} FILTER (WHERE field_id = {field.id})"


def _present(one: str, other: str) -> str:
    """The sum of what is not null."""
    return f"coalesce({one} + {other}, {one}, {other})"


def _since(window: str) -> str:
    return f"unix_micros(event_time) - unix_micros(lag(event_time) OVER ({window}))"


def _grouped(rows: DataFrame, keys: tuple[str, ...], *aggregates: str) -> DataFrame:
    return rows.groupBy(*keys).agg(*(F.expr(aggregate) for aggregate in aggregates))
