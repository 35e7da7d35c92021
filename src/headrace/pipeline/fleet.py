"""What a fleet did in some time: by model, host, namespace and pod, and what idle GPUs cost.

Owns sums over `gpu_hours` and `detections`. Reads no files, prints nothing. Costs are those that
the pipeline was given prices for; without a price they are None.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace.pipeline import duck
from headrace.pipeline.rollups import measures

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "models": ("model",),
    "hosts": ("host",),
    "namespaces": ("namespace",),
    "pods": ("namespace", "pod"),
}
"""How a fleet is taken apart, and the columns that tell the parts."""

FIGURES: Final = (
    "gpus", "seconds", "gpu_util_percent_mean", "sm_active_ratio_mean",
    "power_watts_mean", "energy_joules", "gpu_cost", "energy_cost",
)  # fmt: skip
"""What is told of each part. `gpus` counts slices where a GPU has some."""

BUSY_PERCENT: Final = 5
"""GPU_UTIL from which a GPU is no idle one, as idle-GPU rules in use have it."""

_HOUR: Final = timedelta(hours=1)
_DAY_US: Final = 24 * 3600 * 1_000_000

_SUMMED: Final = (*FIGURES, "samples", "profiling_gaps")
_LOAD: Final = ("uuid", "gpu_i_id", "host", "model", "namespace", "pod")


HOURS: Final = ("start", *_LOAD, *(name for name in _SUMMED if name != "gpus"))
"""Columns of `gpu_hours` that sums are made of."""


@dataclass(frozen=True, slots=True)
class Idle:
    """A GPU that was held and did nothing.

    Attributes:
        uuid, gpu_i_id, host, gpu_index, model: which.
        namespace, pod: who held it last.
        detections: how often that was found.
        seconds: for how long, together.
        cost: of those seconds; None without a price.
        is_open: whether it goes on.
    """

    uuid: str
    gpu_i_id: str
    host: str
    gpu_index: int | None
    model: str
    namespace: str
    pod: str
    detections: int
    seconds: float
    cost: float | None
    is_open: bool


def loads(hours: pa.Table) -> pa.Table:
    """Rows of `gpu_hours` put together by GPU and load: the same kind of rows, and fewer."""
    keys = ", ".join(_LOAD)
    sql = f"""SELECT {keys}, hash(uuid, gpu_i_id) AS gpu, {measures(_SUMMED)}
        FROM hours GROUP BY {keys}"""
    return duck.query(sql, hours=hours)


def summary(found: pa.Table, top: int | None = None) -> dict[str, list[dict[str, Any]]]:
    """The fleet as a whole (`fleet`, one row) and its `GROUPS`, what costs most first.

    Args:
        found: `loads`, of several times together.
        top: rows of each at most.
    """
    rows = _weighed(found)
    sums = [(name, "sum") for name in rows.column_names if name not in _LOAD and name != "gpu"]
    parts = {}
    for part, columns in {"fleet": (), **GROUPS}.items():
        grouped = rows.group_by(list(columns)).aggregate([*sums, ("gpu", "count_distinct")])
        spent = pc.add(
            pc.fill_null(grouped["gpu_cost_sum"], 0.0),
            pc.fill_null(grouped["energy_cost_sum"], 0.0),
        )
        order = [("spent", "descending"), ("seconds_sum", "descending")]
        first = grouped.append_column("spent", spent).sort_by(
            order + [(name, "ascending") for name in columns]
        )
        parts[part] = [_figures(row, columns) for row in first.slice(0, top).to_pylist()]
    return parts


def too_rare(hours: pa.Table, until_us: int) -> int:
    """GPUs that were scraped thrice in one of the last 24 hours, and reported for none of it.

    Their scrapes are further apart than the staleness, so no time, cost or fault of them counts.

    Args:
        hours: `uuid`, `gpu_i_id`, `start`, `samples` and `seconds` of `gpu_hours`.
        until_us: the newest time of the tables (`Manifest.reached_us`), which is no time of a
            clock that is ahead, in microseconds since the epoch.
    """
    sql = f"""SELECT count(DISTINCT (uuid, gpu_i_id)) AS gpus FROM hours
        WHERE samples >= 3 AND coalesce(seconds, 0) = 0
          AND epoch_us(start) > {until_us} - {_DAY_US}"""
    [row] = duck.query(sql, hours=hours).to_pylist()
    return int(row["gpus"])


_MEANS: Final = {
    "gpu_util_percent_mean": "samples",
    "sm_active_ratio_mean": "profiled",
    "power_watts_mean": "samples",
}
"""Means among the figures, and the scrapes that each stands for."""


def _weighed(found: pa.Table) -> pa.Table:
    """Loads with what sums up: means times their scrapes, and those scrapes."""
    scrapes = {
        "samples": found["samples"],
        "profiled": pc.subtract(found["samples"], found["profiling_gaps"]),
    }
    rows = found.select([*_LOAD, "gpu", "seconds", "energy_joules", "gpu_cost", "energy_cost"])
    for name, scraped in _MEANS.items():
        weight = pc.if_else(pc.is_valid(found[name]), scrapes[scraped], 0)
        rows = rows.append_column(name, pc.multiply(found[name], weight.cast(pa.float64())))
        rows = rows.append_column(f"{name}_weight", weight)
    return rows


def _figures(row: Mapping[str, Any], columns: Sequence[str]) -> dict[str, Any]:
    """A part of the fleet as it is told."""
    told = {name: row[name] for name in columns} | {"gpus": row["gpu_count_distinct"]}
    for name in FIGURES[1:]:
        told[name] = row[f"{name}_sum"]
        if name in _MEANS:
            weight = row[f"{name}_weight_sum"]
            told[name] = told[name] / weight if weight else None
    return told


def series(rows: pa.Table) -> list[dict[str, Any]]:
    """The fleet over time, a row for each `start` in rows of `gpu_hours` or `gpu_minutes`.

    Each has `start`; the number of `gpus`, of those `allocated` to a pod and `busy` by GPU_UTIL
    (`BUSY_PERCENT`); means of utilisation and SM activity; and the `watts` that all draw together
    in the time that scrapes cover.
    """
    util = measures(("gpu_util_percent_mean", "sm_active_ratio_mean"))
    found: list[dict[str, Any]] = duck.query(
        f"""SELECT start,
            count(DISTINCT gpu) AS gpus,
            count(DISTINCT gpu) FILTER (pod <> '') AS allocated,
            count(DISTINCT gpu) FILTER (gpu_util_percent_mean >= {BUSY_PERCENT}) AS busy, {util},
            sum(power_watts_mean * seconds)
                / nullif(epoch(max(active_to) - min(active_from)), 0) AS watts
        FROM (SELECT *, hash(uuid, gpu_i_id) AS gpu FROM rows) GROUP BY start ORDER BY start""",
        rows=rows,
    ).to_pylist()
    return found


def hours_within(
    start: datetime | None, end: datetime | None
) -> tuple[datetime | None, datetime | None]:
    """First and last instant of the hours that begin within a time, ends included.

    What is told beside sums over hours is of the same stretch. None is no bound.
    """
    if start is not None and (past := start - _hour_of(start)):
        start = _later(start, _HOUR - past)
    return start, None if end is None else _later(_hour_of(end), _HOUR)


def _hour_of(instant: datetime) -> datetime:
    at = instant.astimezone(UTC)  # in which hours begin
    return at.replace(minute=0, second=0, microsecond=0)


def _later(instant: datetime, by: timedelta) -> datetime:
    """That much later, or the end of the calendar."""
    last = datetime.max.replace(tzinfo=UTC)
    return instant + by if last - instant > by else last


def idle(
    detections: Iterable[Mapping[str, Any]],
    found: pa.Table,
    start: datetime | None = None,
    end: datetime | None = None,
) -> list[Idle]:
    """GPUs that were allocated and idle, what cost most first.

    Args:
        detections: rows of `detections`, of any kind.
        found: `loads`, of about the same time; they tell what an hour of a GPU costs.
        start: of the stretch of time that counts; None is no bound.
        end: of it, likewise.
    """
    by_gpu: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in detections:
        if row["kind"] == "idle_allocated" and _seconds(row, start, end) > 0:
            by_gpu.setdefault((row["uuid"], row["gpu_i_id"]), []).append(row)
    prices = _hour_prices(found, {uuid for uuid, _ in by_gpu})
    idle_ones = []
    for key, rows in by_gpu.items():
        last = max(rows, key=lambda row: row["start"])
        seconds = sum(_seconds(row, start, end) for row in rows)
        price = prices.get(key)
        idle_ones.append(
            Idle(
                *key,
                **{name: last[name] or "" for name in ("host", "model", "namespace", "pod")},
                gpu_index=last["gpu_index"],
                detections=len(rows),
                seconds=seconds,
                cost=None if price is None else price * seconds / 3600,
                is_open=any(row["end"] is None for row in rows),
            )
        )
    return sorted(idle_ones, key=lambda each: (-(each.cost or 0), -each.seconds, each.uuid))


def _seconds(row: Mapping[str, Any], start: datetime | None, end: datetime | None) -> float:
    """For how long a detection held within a stretch of time; an open one, so far."""
    until = row["last"] if row["end"] is None else row["end"]
    first = row["start"] if start is None else max(row["start"], start)
    last = until if end is None else min(until, end)
    return float((last - first).total_seconds())


def _hour_prices(found: pa.Table, uuids: Iterable[str]) -> dict[tuple[str, str], float]:
    """Of GPUs with these UUIDs, where they have a price."""
    wanted = pc.is_in(found["uuid"], pa.array(uuids, pa.string()))
    priced = found.filter(pc.and_(wanted, pc.is_valid(found["gpu_cost"])))
    rows = priced.group_by(["uuid", "gpu_i_id"])
    sums = rows.aggregate([("gpu_cost", "sum"), ("seconds", "sum")]).to_pylist()
    return {
        (row["uuid"], row["gpu_i_id"]): row["gpu_cost_sum"] / row["seconds_sum"] * 3600
        for row in sums
        if row["seconds_sum"]
    }
