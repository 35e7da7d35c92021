"""What a run of the pipeline has to say to a person: loads, and what was quarantined.

Owns sums over `gpu_intervals` and `quarantine`. Reads the tables, prints nothing. A load is what
one GPU, or MIG slice, did under one pod; without a pod it was idle as far as labels tell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

IDLE: Final = "idle"
"""Shown where no pod is named."""

_SERIES: Final = ("uuid", "gpu_i_id", "host", "device")
_WEIGHED: Final = {
    "gpu_util_percent_mean": "samples",
    "power_watts_mean": "samples",
    "sm_active_ratio_mean": "profiled",
}
"""Means of an interval, and the scrapes that each stands for."""

INTERVAL_COLUMNS: Final = (
    *_SERIES, "model", "pod", "interval_start", "interval_end", "samples", "profiling_gaps",
    "seconds", "energy_joules", *_WEIGHED,
)  # fmt: skip
"""Columns of `gpu_intervals` that a report and its chart need."""


@dataclass(frozen=True, slots=True)
class Load:
    """What one GPU did under one pod.

    Attributes:
        uuid: the GPU's.
        gpu_i_id: the MIG slice's; empty for a whole GPU.
        host: where it is.
        device: such as `nvidia0`.
        pod: empty where none was named.
        start: first interval.
        seconds: time that its scrapes cover.
        scrapes: how many there were.
        profiling_gaps: of those, without a valid profiling sample.
        mean_gpu_util_percent: GPU_UTIL over the scrapes; None where there was none.
        mean_sm_active_ratio: SM activity over the scrapes with a valid sample.
        mean_power_watts: power over the scrapes.
        energy_joules: growth of the energy counter, or power over time where there is no counter.
    """

    uuid: str
    gpu_i_id: str
    host: str
    device: str
    pod: str
    start: datetime
    seconds: float
    scrapes: int
    profiling_gaps: int
    mean_gpu_util_percent: float | None
    mean_sm_active_ratio: float | None
    mean_power_watts: float | None
    energy_joules: float | None


@dataclass(frozen=True, slots=True)
class Refused:
    """Readings of one metric that were quarantined for one reason."""

    reason: str
    metric: str
    readings: int
    example: str
    """The raw text of one of them."""


def loads(intervals: pa.Table) -> list[Load]:
    """The loads in rows of `gpu_intervals` (`INTERVAL_COLUMNS`), by GPU, then by start."""
    if not intervals.num_rows:
        return []
    valid = pc.subtract(intervals["samples"], intervals["profiling_gaps"])
    rows = intervals.append_column("profiled", valid)
    for column, weight in _WEIGHED.items():
        present = pc.is_valid(rows[column])
        weights = pc.if_else(present, rows[weight], 0)
        rows = rows.append_column(f"{column}_weight", weights)
        rows = rows.append_column(
            f"{column}_sum", pc.multiply(rows[column], weights.cast("double"))
        )
    sums = [
        "seconds", "samples", "profiling_gaps", "energy_joules",
        *(f"{column}_{part}" for column in _WEIGHED for part in ("sum", "weight")),
    ]  # fmt: skip
    grouped = rows.group_by([*_SERIES, "pod"]).aggregate(
        [("interval_start", "min"), *((column, "sum") for column in sums)]
    )
    found = [_load(row) for row in grouped.to_pylist()]
    return sorted(
        found, key=lambda load: (load.host, load.device, load.uuid, load.gpu_i_id, load.start)
    )


def _load(row: dict[str, Any]) -> Load:
    def mean(column: str) -> float | None:
        weight = row[f"{column}_weight_sum"]
        return float(row[f"{column}_sum_sum"] / weight) if weight else None

    return Load(
        **{name: row[name] or "" for name in (*_SERIES, "pod")},
        start=row["interval_start_min"],
        seconds=row["seconds_sum"] or 0.0,
        scrapes=row["samples_sum"],
        profiling_gaps=row["profiling_gaps_sum"] or 0,
        mean_gpu_util_percent=mean("gpu_util_percent_mean"),
        mean_sm_active_ratio=mean("sm_active_ratio_mean"),
        mean_power_watts=mean("power_watts_mean"),
        energy_joules=row["energy_joules_sum"],
    )


def refused(quarantine: pa.Table) -> list[Refused]:
    """What rows of `quarantine` (`reason, metric, raw`) say, the most frequent first."""
    grouped = quarantine.group_by(["reason", "metric"]).aggregate(
        [([], "count_all"), ("raw", "min")]
    )
    found = [
        Refused(row["reason"], row["metric"] or "", row["count_all"], row["raw_min"] or "")
        for row in grouped.to_pylist()
    ]
    return sorted(found, key=lambda each: (-each.readings, each.reason, each.metric))


def totals_by_reason(found: Iterable[Refused]) -> dict[str, int]:
    """Quarantined readings by reason."""
    totals: dict[str, int] = {}
    for each in found:
        totals[each.reason] = totals.get(each.reason, 0) + each.readings
    return totals
