"""What the rules look at: rows of `gpu_intervals` and `gpu_minutes` as conditions and evidence.

A pure part: tables in, tables out. Which conditions hold is computed for all GPUs at once; only
rows that may change something go on to `watch`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from headrace.pipeline import duck
from headrace.pipeline.rules import POWER_LIMIT_DEFAULT, POWER_LIMITS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.pipeline.rules import Rule

CONTEXT: Final = ("host", "gpu_index", "model", "namespace", "pod", "container")

INTERVAL_COLUMNS: Final = (
    "uuid", "gpu_i_id", "interval_start", "interval_end", *CONTEXT, "fb_used_mib_mean",
    "gpu_util_percent_mean", "gr_engine_active_ratio_mean", "sm_active_ratio_mean",
    "power_watts_mean", "power_limit_watts_last", "sm_clock_mhz_mean", "throttle_reasons_any",
    "gpu_temp_celsius_max", "slowdown_temp_celsius_last", "thermal_violation_seconds", "xid_last",
    "ecc_dbe_volatile", "ecc_dbe_aggregate", "ecc_sbe_volatile", "ecc_sbe_aggregate",
    "row_remap_failure_max", "row_remap_pending_max", "uncorrectable_remapped_rows",
    "nvlink_crc_flit_errors", "nvlink_crc_data_errors", "nvlink_replay_errors",
    "nvlink_recovery_errors", "pcie_replays", "energy_joules", "energy_source",
)  # fmt: skip

MINUTE_COLUMNS: Final = (
    "uuid", "gpu_i_id", "start", "end", "active_to", *CONTEXT, "gpu_util_percent_mean",
    "power_watts_mean", "sm_clock_mhz_mean", "sm_active_ratio_mean", "throttle_reasons_any",
)  # fmt: skip

KNOWN: Final = pa.schema(
    [
        ("uuid", pa.string()),
        ("gpu_i_id", pa.string()),
        ("power_limit_watts", pa.float64()),
        ("slowdown_celsius", pa.float64()),
        ("xid", pa.float64()),
    ]
)

_EVIDENCE: Final = {
    "fb_used_mib": "fb_used_mib_mean",
    "gpu_util_percent": "gpu_util_percent_mean",
    "sm_active_ratio": "sm_active_ratio_mean",
    "power_watts": "power_watts_mean",
    "power_limit_watts": "power_limit_watts",
    "power_default_watts": "power_default_watts",
    "sm_clock_mhz": "sm_clock_mhz_mean",
    "gpu_temp_celsius_max": "gpu_temp_celsius_max",
    "throttle_reasons": "throttle_reasons_any::DOUBLE",
    "ecc_dbe": "ecc_dbe",
    "ecc_sbe": "ecc_sbe",
    "uncorrectable_remapped_rows": "uncorrectable_remapped_rows",
    "row_remap_pending": "row_remap_pending_max",
    "row_remap_failure": "row_remap_failure_max",
    "nvlink_replays": "nvlink_replays",
    "nvlink_crc": "nvlink_crc",
    "pcie_replays": "pcie_replays",
}

_LIMIT: Final = (
    "(CASE "
    + " ".join(f"WHEN contains(model, '{part}') THEN {watts}" for part, watts in POWER_LIMITS)
    + " END)::DOUBLE"
)
_OWN_LIMIT: Final = (
    "last_value(power_limit_watts_last IGNORE NULLS) OVER series, known.power_limit_watts"
)


def of_intervals(intervals: pa.Table, known: pa.Table, rules: Sequence[Rule]) -> pa.Table:
    """One row for each row of `intervals`, by GPU and time: what each rule says, and evidence.

    Args:
        intervals: rows of `gpu_intervals` (`INTERVAL_COLUMNS`).
        known: what was known of each GPU before (`KNOWN`).
        rules: those that look at intervals.

    Returns:
        `changes` (whether a row may change something), `uuid, gpu_i_id, start_us, end_us`,
        context, `xid`, `power_limit_watts`, `slowdown_celsius` and the evidence; for each rule
        `KIND` (bool) and `KIND_worse`, and for each of its counts `KIND_N`.
    """
    return duck.query(
        f"""
        WITH rows AS (
            SELECT
                intervals.*,
                greatest(ecc_dbe_volatile, ecc_dbe_aggregate) AS ecc_dbe,
                greatest(ecc_sbe_volatile, ecc_sbe_aggregate) AS ecc_sbe,
                coalesce(nvlink_replay_errors, 0) + coalesce(nvlink_recovery_errors, 0)
                    AS nvlink_replays,
                coalesce(nvlink_crc_flit_errors, 0) + coalesce(nvlink_crc_data_errors, 0)
                    AS nvlink_crc,
                coalesce({_OWN_LIMIT}, {_LIMIT}, {POWER_LIMIT_DEFAULT}) AS power_limit_watts,
                -- Of a model that is not listed nobody knows whether its limit was lowered.
                coalesce({_LIMIT}, {_OWN_LIMIT}, {POWER_LIMIT_DEFAULT}) AS power_default_watts,
                coalesce(
                    last_value(slowdown_temp_celsius_last IGNORE NULLS) OVER series,
                    known.slowdown_celsius
                ) AS slowdown_celsius,
                coalesce(
                    xid_last != coalesce(lag(xid_last IGNORE NULLS) OVER series, known.xid, 0),
                    false
                ) AS raised
            FROM intervals LEFT JOIN known USING (uuid, gpu_i_id)
            WINDOW series AS (
                PARTITION BY uuid, gpu_i_id ORDER BY interval_start
                ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
            )
        )
        SELECT
            uuid, gpu_i_id, epoch_us(interval_start) AS start_us, epoch_us(interval_end) AS end_us,
            {", ".join(CONTEXT)}, xid_last AS xid, slowdown_celsius,
            ({" OR ".join(_changing(rules))}) AS changes,
            {", ".join(_judged(rules))},
            {", ".join(f"{sql} AS {name}" for name, sql in _EVIDENCE.items())}
        FROM rows ORDER BY uuid, gpu_i_id, start_us""",
        intervals=intervals,
        known=known,
    )


def of_minutes(minutes: pa.Table, rule: Rule) -> pa.Table:
    """The same for the rule that compares the GPUs of a job with each other, minute by minute.

    A job is what pods share when the numbers at the end of their names are taken off.
    """
    peers = ("power_watts", "sm_clock_mhz", "sm_active_ratio")
    medians = ", ".join(f"median({name}_mean) OVER job AS {name}_peers" for name in peers)
    return duck.query(
        f"""
        WITH rows AS (
            SELECT
                *, count(*) OVER job AS job_gpus,
                median(gpu_util_percent_mean) OVER job / 100 AS busy_peers,
                {medians}
            FROM minutes WHERE pod != ''
            WINDOW job AS (
                PARTITION BY start, namespace, regexp_replace(pod, '(-[0-9]+)+$', ''), container
            )
        )
        SELECT
            uuid, gpu_i_id, epoch_us(start) AS start_us,
            -- An interval longer than a minute stands in its first one.
            epoch_us(greatest(rows.end, active_to)) AS end_us,
            {", ".join(CONTEXT)},
            {rule.sql(rule.condition)} AS {rule.kind},
            {rule.sql(rule.worse)} AS {rule.kind}_worse,
            power_watts_mean AS power_watts, power_watts_peers,
            sm_clock_mhz_mean AS sm_clock_mhz, sm_clock_mhz_peers
        FROM rows ORDER BY uuid, gpu_i_id, start_us""",
        minutes=minutes,
    )


def _with_columns(rules: Sequence[Rule]) -> list[Rule]:
    """Whether a code was raised, the watch alone can tell."""
    return [rule for rule in rules if rule.kind != "xid"]


def _changing(rules: Sequence[Rule]) -> list[str]:
    conditions = ["raised"]
    for rule in _with_columns(rules):
        conditions.append(f"coalesce({rule.sql(rule.condition)}, false)")
        conditions += [f"coalesce({count.what}, 0) > 0" for count in rule.counts]
    return conditions


def _judged(rules: Sequence[Rule]) -> list[str]:
    columns = []
    for rule in _with_columns(rules):
        columns.append(f"({rule.sql(rule.condition)}) AS {rule.kind}")
        columns.append(f"({rule.sql(rule.worse)}) AS {rule.kind}_worse")
        columns += [
            f"({count.what})::DOUBLE AS {rule.kind}_{place}"
            for place, count in enumerate(rule.counts)
        ]
    return columns
