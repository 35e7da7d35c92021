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

import pyarrow as pa

from headrace.dcgm.fields import ENERGY, IN_INTERVALS, POWER, XID, Keep
from headrace.pipeline import duck
from headrace.pipeline.rules import APPLICATION_XIDS
from headrace.pipeline.spans import lie_within

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.dcgm.fields import Field
    from headrace.pipeline.spans import Span

_BITS: Final = tuple(field for field in IN_INTERVALS if Keep.ANY_BITS in field.keeps)
_PROFILED: Final = tuple(field for field in IN_INTERVALS if field.profiling)

_CONTEXT: Final = (
    ("pod", "''"), ("namespace", "''"), ("container", "''"), ("host", "''"), ("device", "''"),
    ("gpu_index", "-1"), ("gpu_i_profile", "''"), ("model", "''"),
)  # fmt: skip
"""Names, and what stands for none. Pod first: where two exporters report a GPU, the one that knows
the pod compares as greater."""

_FILLED: Final = ("pod", "namespace", "container", "gpu_i_profile")
"""Of those, what is empty and never null."""


def _ids(fields: tuple[Field, ...]) -> str:
    return ", ".join(str(field.id) for field in fields)


def intervals(
    readings: pa.Table, quarantine: pa.Table, interval_us: int, staleness_us: int
) -> pa.Table:
    """The rows of `gpu_intervals` for all intervals that hold a scrape.

    Args:
        readings: of whole intervals, and of the staleness before the first (`NEEDED`).
        quarantine: of the same time, the PROF values that are NaN.
        interval_us: length of an interval in microseconds; intervals start at multiples of it
            since the epoch.
        staleness_us: how far back the scrape before may be, in microseconds; a longer silence is
            a gap, over which nothing is known.
    """
    sql = _SQL.replace("$interval_us", str(interval_us)).replace("$stale_us", str(staleness_us))
    return duck.query(sql, readings=readings, gaps=quarantine)


def latest_before(readings: pa.Table, spans: Sequence[Span]) -> pa.Table:
    """`readings` in `spans`; of those before each, the latest of each GPU, slice and metric.

    Growth needs no more, and the staleness may hold many times the readings of the spans.
    """
    parts = [readings.filter(lie_within(readings["event_time"], spans))]
    before_us = _BEGIN_US
    for start, end in spans:
        if start > before_us:
            earlier = readings.filter(lie_within(readings["event_time"], [(before_us, start)]))
            latest = earlier.group_by(_SERIES).aggregate([("event_time", "max")])
            keys = [*_SERIES, "event_time"]
            parts.append(earlier.join(latest, keys, [*_SERIES, "event_time_max"], "left semi"))
        before_us = end
    return pa.concat_tables(parts)


_SERIES: Final = ["uuid", "gpu_i_id", "metric"]
_BEGIN_US: Final = -(2**63)

NEEDED: Final = (
    "topic", "partition", "offset", "item", "event_time", "uuid", "gpu_i_id", "metric", "field_id",
    "value", "value_long", "late", "pod", "namespace", "container", "host", "device", "gpu_index",
    "gpu_i_profile", "model",
)  # fmt: skip
"""Columns of `readings` that intervals are made of."""

# Of several readings of one field and time the last by log order counts; `usable` is false for
# the others, and for PROF fields of a scrape with a gap.
_ROWS: Final = f"""
    SELECT
        uuid, gpu_i_id, time_us, field_id, late, value, value_long, context, no_profile, counted,
        time_us - (time_us % $interval_us + $interval_us) % $interval_us AS start,
        counted AND NOT (no_profile AND coalesce(field_id IN ({_ids(_PROFILED)}), false)) AS usable
    FROM (
        SELECT
            uuid, gpu_i_id, epoch_us(event_time) AS time_us, field_id, late, value, value_long,
            {{{", ".join(f"'{name}': coalesce({name}, {empty})" for name, empty in _CONTEXT)}}}
                AS context,
            bool_or(gap) OVER (PARTITION BY uuid, event_time, gpu_i_id) AS no_profile,
            NOT gap AND row_number() OVER (
                PARTITION BY uuid, event_time, gpu_i_id, metric
                ORDER BY topic DESC, partition DESC, "offset" DESC, item DESC
            ) = 1 AS counted
        FROM (
            SELECT *, false AS gap FROM readings
            UNION ALL BY NAME SELECT *, true AS gap FROM gaps
        )
    )"""

# What an interval's scrapes say as such: how many, how far apart, in which context: that of most
# scrapes, of the latest where two have as many.
_SCRAPES: Final = """
    SELECT
        uuid, gpu_i_id, start,
        sum(samples)::BIGINT AS samples,
        sum(readings)::BIGINT AS readings,
        sum(late_readings)::BIGINT AS late_readings,
        sum(profiling_gaps)::BIGINT AS profiling_gaps,
        sum(covered_us) / 1e6 AS seconds,
        max({'samples': samples, 'latest': latest, 'context': context}).context AS context
    FROM (
        SELECT
            uuid, gpu_i_id, start, context,
            count(*) AS samples,
            max(time_us) AS latest,
            sum(readings) AS readings,
            sum(late_readings) AS late_readings,
            count_if(no_profile) AS profiling_gaps,
            sum(CASE WHEN since_us <= $stale_us THEN since_us ELSE 0 END) AS covered_us
        FROM (
            SELECT
                *,
                time_us - lag(time_us) OVER (PARTITION BY uuid, gpu_i_id ORDER BY time_us)
                    AS since_us
            FROM (
                SELECT
                    uuid, gpu_i_id, start, time_us,
                    count_if(counted) AS readings,
                    count_if(counted AND late) AS late_readings,
                    bool_or(no_profile) AS no_profile,
                    max(context) AS context
                FROM rows GROUP BY ALL
            )
        )
        GROUP BY ALL
    )
    GROUP BY ALL"""

_GROWTH_MAX: Final = " ".join(
    # µJ are thousandths of the counter's mJ; in a µs a GPU throttles for 1000 ns at most.
    f"WHEN {field.id} THEN since_us * {POWER.high / 1000 if field is ENERGY else 1000}"
    for field in IN_INTERVALS
    if field is ENERGY or (Keep.DELTA in field.keeps and field.unit == "ns")
)
"""What a counter that started again can stand at, by field: what it grew to since the value before.
One that fell and stands above that has not: of two exporters of a GPU, one tells an older value.
That is taken back, so that the sum stays right."""

# Growth needs the value before of the same field. Power stands in for the energy counter only
# where that has not been seen within the staleness, so that no time is counted twice. Slices of
# one device repeat each other at one time: between them nothing has passed.
_STEPS: Final = f"""
    SELECT
        *,
        CASE WHEN restarted THEN value_long::DOUBLE
             WHEN stepped THEN (value_long - before_long)::DOUBLE END AS growth,
        CASE WHEN stepped AND field_id = {POWER.id}
                  AND coalesce(time_us - counted_at > $stale_us, true)
             THEN since_us / 1e6 * (value + before) / 2 END AS joules
    FROM (
        SELECT
            *,
            coalesce(since_us > 0 AND since_us <= $stale_us, false) AS stepped,
            -- A counter that fell has started again from 0.
            stepped AND coalesce(
                value_long < before_long
                AND value_long <= CASE field_id {_GROWTH_MAX} ELSE value_long END,
                false
            ) AS restarted
        FROM (
            SELECT
                uuid, gpu_i_id, start, time_us, field_id, value, value_long,
                time_us - lag(time_us) OVER field AS since_us,
                lag(value) OVER field AS before,
                lag(value_long) OVER field AS before_long
            FROM rows
            WHERE usable AND field_id IN ({_ids(IN_INTERVALS)})
            WINDOW field AS (PARTITION BY uuid, field_id ORDER BY time_us, gpu_i_id)
        )
        LEFT JOIN (
            SELECT DISTINCT uuid, time_us, counted_at
            FROM (
                SELECT
                    uuid, time_us, field_id,
                    max(CASE WHEN field_id = {ENERGY.id} THEN time_us END)
                        OVER (PARTITION BY uuid ORDER BY time_us) AS counted_at
                FROM rows WHERE usable AND field_id IN ({ENERGY.id}, {POWER.id})
            )
            WHERE field_id = {POWER.id}
        ) USING (uuid, time_us)
    )"""

# An XID 45 follows most others at once, as what runs is ended: the other is the one that says why.
_RANK: Final = (
    f"time_us + CASE WHEN field_id = {XID.id} AND value NOT IN {(0, *APPLICATION_XIDS)} "
    f"THEN {1 << 61} ELSE 0 END"
)

_FIELDS: Final = f"""
    SELECT
        uuid, gpu_i_id, start, field_id,
        avg(value) AS mean,
        max(value) AS max,
        arg_max(value, {_RANK}) AS last,
        bit_or(CASE WHEN field_id IN ({_ids(_BITS)}) THEN value::BIGINT END) AS bits,
        sum(growth) AS growth,
        sum(joules) AS joules,
        sum(CASE WHEN coalesce(growth, joules) IS NOT NULL THEN since_us END) / 1e6 AS seconds,
        count_if(restarted) AS restarts
    FROM steps GROUP BY ALL"""

_KEPT: Final = {
    Keep.MEAN: "max(mean)",
    Keep.MAX: "max(max)",
    Keep.LAST: "max(last)",
    Keep.ANY_BITS: "max(bits)",
    Keep.DELTA: "max(growth)",
}
"""Each group holds one row for a field; `max` takes it."""


def _wide() -> list[str]:
    """What an interval keeps of each field, a column each."""
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
        "sum(restarts)::BIGINT AS counter_restarts",
    ]


def _of(aggregate: str, field: Field) -> str:
    return f"{aggregate} FILTER (WHERE field_id = {field.id})"


def _present(one: str, other: str) -> str:
    """The sum of what is not null."""
    return f"coalesce({one} + {other}, {one}, {other})"


def _context(name: str, empty: str) -> str:
    value = f"context.{name}"
    return f"{value if name in _FILLED else f'nullif({value}, {empty})'} AS {name}"


_SQL: Final = f"""
    WITH rows AS MATERIALIZED ({_ROWS}),
    scrapes AS ({_SCRAPES}),
    steps AS ({_STEPS}),
    fields AS ({_FIELDS}),
    wide AS (SELECT uuid, gpu_i_id, start, {", ".join(_wide())} FROM fields GROUP BY ALL)
    SELECT
        * EXCLUDE (start, context, counter_restarts),
        make_timestamptz(start) AS interval_start,
        make_timestamptz(start + $interval_us) AS interval_end,
        {", ".join(_context(name, empty) for name, empty in _CONTEXT)},
        coalesce(counter_restarts, 0) AS counter_restarts
    FROM scrapes LEFT JOIN wide USING (uuid, gpu_i_id, start)
    ORDER BY start, uuid, gpu_i_id"""
