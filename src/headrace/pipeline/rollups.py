"""Minutes, hours and jobs of each GPU, from its intervals.

Owns how rows of shorter time become rows of longer time, and which hours are one job. Means are
weighted by scrapes, those of profiling by scrapes with a valid sample, so that an hour says the
same whether it is made of minutes or of intervals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from headrace.pipeline import duck

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

MINUTE_US: Final = 60_000_000
HOUR_US: Final = 3_600_000_000

JOB_GAP_US: Final = HOUR_US
"""Silence after which the same pod on the same GPU is another job: names are used again."""

_PLACE: Final = ("host", "device", "gpu_index", "gpu_i_profile", "model")
_LOAD: Final = ("namespace", "pod", "container")

_MEANS: Final[Mapping[str, str]] = {
    "gpu_util_percent_mean": "samples",
    "gr_engine_active_ratio_mean": "profiled",
    "sm_active_ratio_mean": "profiled",
    "tensor_active_ratio_mean": "profiled",
    "dram_active_ratio_mean": "profiled",
    "fb_used_mib_mean": "samples",
    "power_watts_mean": "samples",
    "sm_clock_mhz_mean": "samples",
}
"""Means, and the scrapes that each stands for."""

_GREATEST: Final = ("fb_used_mib_max", "power_watts_max", "gpu_temp_celsius_max")
_SUMS: Final = ("seconds", "energy_joules", "energy_seconds")
_COSTS: Final = ("gpu_cost", "energy_cost")
_KEPT: Final = (*_MEANS, *_GREATEST, "throttle_reasons_any", *_SUMS)

FROM_INTERVALS: Final = (
    "uuid", "gpu_i_id", "interval_start", "interval_end", *_PLACE, *_LOAD, "samples",
    "profiling_gaps", *_KEPT,
)  # fmt: skip
"""Columns of `gpu_intervals` that minutes are made of."""

COLUMNS: Final = (
    "uuid", "gpu_i_id", "start", "end", *_PLACE, *_LOAD, "active_from", "active_to", "samples",
    "profiling_gaps", *_KEPT, *_COSTS,
)  # fmt: skip
"""Columns of `gpu_minutes` and `gpu_hours`."""

JOB_KEY: Final = ("uuid", "gpu_i_id", *_LOAD)

_SHARE: Final = r"""
    CASE WHEN gpu_i_id != '' THEN coalesce(
        try_cast(regexp_extract(gpu_i_profile, '([0-9]+)g([.]|$)', 1) AS INT), 1
    ) / CASE WHEN regexp_matches(model, '\bA30\b|RTX PRO 6000') THEN 4 ELSE 7 END END"""
"""Of a MIG slice, its part of the GPU by the compute slices of its profile (`3g.40gb`: 3 of 7); one
without a known profile counts as the smallest. Source: NVIDIA, MIG User Guide, supported profiles.
"""

_PAID: Final = """
    CASE WHEN share IS NULL THEN greatest(1 - coalesce(slices, 0), 0)
        ELSE share / greatest(slices, 1) END"""
"""The part of a GPU's price that a row bears: beside slices, the GPU itself bears what they leave,
so that all together never cost more than it."""

_HOUR_PRICES: Final = pa.schema([("model", pa.string()), ("hour", pa.float64())])


def minutes(intervals: pa.Table, prices: Mapping[str, float], energy_price: float) -> pa.Table:
    """The rows of `gpu_minutes` for whole minutes of `intervals` (`FROM_INTERVALS`).

    Args:
        intervals: rows of `gpu_intervals`, those of all slices of a GPU together.
        prices: of an hour of a GPU, by model; `default` is that of any other model.
        energy_price: of a kilowatt hour.
    """
    hours = pa.Table.from_pylist(
        [{"model": model, "hour": price} for model, price in prices.items()], _HOUR_PRICES
    )
    priced = f"""
        WITH shared AS (
            SELECT *, sum(share) OVER (PARTITION BY uuid, interval_start) AS slices
            FROM (SELECT *, {_SHARE} AS share FROM intervals)
        )
        SELECT
            intervals.* EXCLUDE (interval_start, interval_end, share, slices),
            interval_start AS active_from,
            interval_end AS active_to,
            coalesce(own.hour, other.hour) * seconds / 3600 * {_PAID} AS gpu_cost,
            {energy_price!r} * energy_joules / 3.6e6 AS energy_cost
        FROM shared AS intervals
        LEFT JOIN prices AS own ON own.model = intervals.model
        LEFT JOIN prices AS other ON other.model = 'default'
        ORDER BY interval_start, uuid, gpu_i_id"""
    return duck.query(_longer(priced, MINUTE_US), intervals=intervals, prices=hours)


def hours(minutes: pa.Table) -> pa.Table:
    """The rows of `gpu_hours` for whole hours of `minutes` (`COLUMNS`)."""
    return duck.query(
        _longer("FROM minutes ORDER BY start, uuid, gpu_i_id", HOUR_US), minutes=minutes
    )


def jobs(hours: pa.Table) -> pa.Table:
    """The rows of `jobs`: hours (`COLUMNS`) of one pod on one GPU without a long silence."""
    key = ", ".join(JOB_KEY)
    return duck.query(
        f"""
        WITH marked AS (
            SELECT *, coalesce(
                epoch_us(active_from) - epoch_us(lag(active_to) OVER series) > {JOB_GAP_US}, true
            ) AS first
            FROM hours WHERE pod != ''
            WINDOW series AS (PARTITION BY {key} ORDER BY start)
        ), numbered AS (
            SELECT *, sum(first::INT) OVER (PARTITION BY {key} ORDER BY start) AS run FROM marked
        )
        SELECT
            {key},
            min(active_from) AS start,
            max(active_to) AS "end",
            {_aggregates()}
        FROM numbered GROUP BY {key}, run ORDER BY start, {key}""",
        hours=hours,
    )


def _longer(rows: str, step_us: int) -> str:
    """SQL that makes stretches of `step_us` of the rows of a query."""
    return f"""
        WITH placed AS (
            SELECT *, epoch_us(active_from) - (epoch_us(active_from) % {step_us} + {step_us})
                % {step_us} AS begin_us
            FROM ({rows})
        )
        SELECT
            uuid, gpu_i_id, {", ".join(_LOAD)},
            make_timestamptz(begin_us) AS start,
            make_timestamptz(begin_us + {step_us}) AS "end",
            min(active_from) AS active_from,
            max(active_to) AS active_to,
            {_aggregates()}
        FROM placed GROUP BY uuid, gpu_i_id, {", ".join(_LOAD)}, begin_us
        ORDER BY start, uuid, gpu_i_id, {", ".join(_LOAD)}"""


def _aggregates() -> str:
    places = ", ".join(f"arg_max({name}, active_from) AS {name}" for name in _PLACE)
    return f"{places}, {measures()}"


def measures(columns: Collection[str] = COLUMNS) -> str:
    """SQL for what was measured in rows of minutes, hours or jobs together.

    Args:
        columns: those that are wanted; what is no measure is left out.
    """
    known = {
        "samples": "sum(samples)::BIGINT",
        "profiling_gaps": "sum(profiling_gaps)::BIGINT",
        **{name: _mean(name, weight) for name, weight in _MEANS.items()},
        **{name: f"max({name})" for name in _GREATEST},
        "throttle_reasons_any": "bit_or(throttle_reasons_any)",
        **{name: f"sum({name})" for name in (*_SUMS, *_COSTS)},
    }
    return ", ".join(f"{sql} AS {name}" for name, sql in known.items() if name in columns)


def _mean(name: str, weight: str) -> str:
    scrapes = "samples" if weight == "samples" else "samples - profiling_gaps"
    present = f"FILTER ({name} IS NOT NULL)"
    return f"sum({name} * ({scrapes})) {present} / nullif(sum({scrapes}) {present}, 0)"
