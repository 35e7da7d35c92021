"""One picture of a run: power, and SM activity beside GPU_UTIL, over time with loads shaded.

Owns how it looks. GPU_UTIL only says that some kernel ran; the picture shows where it and the
work that was done part ways.
"""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING, Any, Final

import matplotlib as mpl
import matplotlib.dates
from matplotlib.figure import Figure

from headrace.pipeline.report import IDLE, loads

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa
    from matplotlib.axes import Axes

    from headrace.pipeline.report import Load

GPUS_MAX: Final = 4
"""GPUs in one picture; more would be too small to read."""

POINTS_MIN: Final = 10
"""Points in time that make a line; a GPU with fewer has no course to show."""

_POWER: Final = "#b5432f"
_SM: Final = "#1f6f8b"
_UTIL: Final = "#8a8f98"
_INK: Final = "#2b2f36"
_FAINT: Final = "#d9dce1"
_SHADES: Final = ("#f3e9d2", "#dfe9e2", "#e4e3f1", "#f4dfdc", "#dcebf2", "#efe6ee", "#e9ecd6")

_STYLE: Final[dict[Any, Any]] = {
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "axes.edgecolor": _FAINT,
    "axes.labelcolor": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "text.parse_math": False,  # a pod may be called $HOME$
    "svg.fonttype": "none",
    "svg.hashsalt": "headrace",
}


def save_chart(intervals: pa.Table, path: Path) -> bool:
    """Draws rows of `gpu_intervals` to a PNG; False where there is nothing to draw.

    A capture becomes lines over time; a snapshot of a fleet, with few points in time for each
    GPU, becomes one dot for each: power against GPU_UTIL.
    """
    with mpl.rc_context(_STYLE):
        figure = _over_time(_series(intervals)) or _fleet(loads(intervals))
        if figure is not None:
            figure.savefig(path)
    return figure is not None


def fleet_pictures(series: Sequence[Mapping[str, Any]]) -> list[str]:
    """SVG elements of a fleet over time (`fleet.series`); none where there is too little of it."""
    if len(series) < 2:
        return []
    times = [row["start"] for row in series]
    drawn = []
    with mpl.rc_context(_STYLE):
        figure, axes = _panel("How busy: GPU_UTIL and SM activity", "percent of time")
        axes.fill_between(
            times, _values(series, "gpu_util_percent_mean", 1.0), color=_UTIL, alpha=0.28,
            linewidth=0, label="GPU_UTIL: some kernel ran",
        )  # fmt: skip
        axes.plot(
            times, _values(series, "sm_active_ratio_mean", 100.0), color=_SM, linewidth=1.8,
            label="SM activity: work was done",
        )  # fmt: skip
        axes.set_ylim(0, 124)
        drawn.append(_svg(figure, axes))
        figure, axes = _panel("GPUs that are seen, held by a pod, and busy", "GPUs")
        for column, color, fill in (
            ("gpus", _FAINT, True), ("allocated", _UTIL, False), ("busy", _SM, False),
        ):  # fmt: skip
            values = _values(series, column, 1.0)
            if fill:
                axes.fill_between(times, values, color=color, linewidth=0, label=column)
            else:
                axes.plot(times, values, color=color, linewidth=1.8, label=column)
        axes.set_ylim(0, max(row["gpus"] for row in series) * 1.3)
        drawn.append(_svg(figure, axes))
        figure, axes = _panel("What the fleet draws", "power (kW)")
        watts = _values(series, "watts", 0.001)
        axes.plot(times, watts, color=_POWER, linewidth=1.6, label="mean of all GPUs together")
        axes.fill_between(times, watts, color=_POWER, alpha=0.12, linewidth=0)
        axes.set_ylim(0, max((w for w in watts if w == w), default=1.0) * 1.3 or 1.0)  # noqa: PLR0124 (NaN)
        drawn.append(_svg(figure, axes))
    return drawn


def _panel(title: str, unit: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(11, 3), layout="constrained")
    axes = figure.subplots()
    axes.set_title(title, loc="left", fontsize=10.5, fontweight="bold", pad=8)
    axes.set_ylabel(unit)
    axes.grid(axis="y", color=_FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.margins(x=0)
    return figure, axes


def _svg(figure: Figure, axes: Axes) -> str:
    """A figure as an element of a page, without what makes it a file."""
    axes.legend(loc="upper left", frameon=False, ncols=3, borderaxespad=0.2)
    locator = matplotlib.dates.AutoDateLocator()  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(matplotlib.dates.ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    text = StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    return text.getvalue()[text.getvalue().index("<svg") :]


def _over_time(gpus: Sequence[Sequence[dict[str, Any]]]) -> Figure | None:
    if not gpus:
        return None
    shown = gpus[:GPUS_MAX]
    figure = Figure(figsize=(12.5, 1.3 + 4.1 * len(shown)), dpi=130, layout="constrained")
    grid = figure.subplots(2 * len(shown), 1, sharex=True, squeeze=False)
    colors = _colors(shown)
    for index, rows in enumerate(shown):
        _draw(grid[2 * index, 0], grid[2 * index + 1, 0], rows, colors)
    locator = matplotlib.dates.AutoDateLocator()  # type: ignore[no-untyped-call]
    bottom = grid[-1, 0]
    bottom.xaxis.set_major_locator(locator)
    concise = matplotlib.dates.ConciseDateFormatter(locator)  # type: ignore[no-untyped-call]
    bottom.xaxis.set_major_formatter(concise)
    bottom.set_xlabel("event time (UTC)")
    more = f" (first {GPUS_MAX} of {len(gpus)} GPUs)" if len(gpus) > GPUS_MAX else ""
    _title(figure, f"What the GPU did, and what its utilisation said{more}")
    return figure


def _fleet(found: Sequence[Load]) -> Figure | None:
    dots = [
        (load.mean_gpu_util_percent, load.mean_power_watts, f"{load.host} {load.device}")
        for load in found
        if load.mean_gpu_util_percent is not None and load.mean_power_watts is not None
    ]
    if not dots:
        return None
    figure = Figure(figsize=(9.5, 6.2), dpi=130, layout="constrained")
    axes = figure.subplots()
    high = max(watts for _, watts, _ in dots) * 1.12
    axes.axhspan(0, high / 3, xmin=0.75, color=_SHADES[0], linewidth=0, zorder=0)
    axes.text(
        89, high / 3 * 0.96, "busy by GPU_UTIL,\nyet drawing little", ha="center", va="top",
        fontsize=8.5, color=_UTIL, style="italic",
    )  # fmt: skip
    axes.scatter(
        [util for util, _, _ in dots], [watts for _, watts, _ in dots],
        s=46, color=_SM, alpha=0.75, edgecolor="white", linewidth=0.7, clip_on=False, zorder=3,
    )  # fmt: skip
    for name, util, watts in _names(dots, high):
        axes.annotate(
            name, (util, watts), xytext=(7 if util < 50 else -7, 4), fontsize=8,
            textcoords="offset points", ha="left" if util < 50 else "right",
        )  # fmt: skip
    axes.set(xlim=(0, 102), ylim=(0, high), xlabel="GPU_UTIL (percent of time)", ylabel="power (W)")
    axes.grid(color=_FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    _title(figure, f"Utilisation and power of {len(dots)} GPUs")
    return figure


def _names(dots: Sequence[tuple[float, float, str]], high: float) -> list[tuple[str, float, float]]:
    """One name for each heap of dots, so that none covers another."""
    heaps: dict[tuple[int, int], list[tuple[float, float, str]]] = {}
    for util, watts, name in dots:
        heaps.setdefault((round(util / 12), round(watts / high * 12)), []).append(
            (util, watts, name)
        )
    named = []
    for heap in heaps.values():
        util, watts, name = max(heap)
        named.append((name if len(heap) == 1 else f"{len(heap)} GPUs", util, watts))
    return named


def _series(intervals: pa.Table) -> list[list[dict[str, Any]]]:
    """Rows of each GPU or slice in the order of time, of those that have enough for a line."""
    by = ("host", "device", "uuid", "gpu_i_id")
    order = [(name, "ascending") for name in (*by, "interval_start")]
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in intervals.sort_by(order).to_pylist():
        found.setdefault(tuple(row[name] for name in by), []).append(row)
    return [rows for rows in found.values() if len(rows) >= POINTS_MIN]


def _colors(shown: Sequence[Sequence[dict[str, Any]]]) -> dict[str, str]:
    pods = dict.fromkeys(row["pod"] for rows in shown for row in rows if row["pod"])
    return {pod: _SHADES[index % len(_SHADES)] for index, pod in enumerate(pods)}


def _draw(
    power: Axes, activity: Axes, rows: Sequence[dict[str, Any]], colors: dict[str, str]
) -> None:
    times = [row["interval_start"] for row in rows]
    watts = _values(rows, "power_watts_mean", 1.0)
    power.plot(times, watts, color=_POWER, linewidth=1.6)
    power.fill_between(times, watts, color=_POWER, alpha=0.12, linewidth=0)
    power.set_ylabel("power (W)")
    power.set_ylim(0, max((w for w in watts if w == w), default=1.0) * 1.22)  # noqa: PLR0124 (NaN)

    activity.fill_between(
        times, _values(rows, "gpu_util_percent_mean", 1.0), color=_UTIL, alpha=0.28, linewidth=0,
        step="mid", label="GPU_UTIL: some kernel ran",
    )  # fmt: skip
    activity.plot(
        times, _values(rows, "sm_active_ratio_mean", 100.0), color=_SM, linewidth=1.8,
        label="SM activity: work was done",
    )  # fmt: skip
    activity.set_ylabel("percent of time")
    activity.set_ylim(0, 124)  # the legend stands above 100
    activity.set_yticks(range(0, 101, 25))
    activity.legend(loc="upper left", frameon=False, ncols=2, borderaxespad=0.2)
    _shade(power, activity, rows, colors)
    first = rows[0]
    piece = f" · slice {first['gpu_i_id']}" if first["gpu_i_id"] else ""
    power.set_title(
        f"{first['model'] or 'GPU'} · {first['host']} {first['device']}{piece} · {first['uuid']}",
        loc="left", fontsize=10.5, fontweight="bold", pad=8,
    )  # fmt: skip
    for axes in (power, activity):
        axes.grid(axis="y", color=_FAINT, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.margins(x=0)


def _shade(
    power: Axes, activity: Axes, rows: Sequence[dict[str, Any]], colors: dict[str, str]
) -> None:
    """Colours the background of each stretch of one load, and names it."""
    begun = 0
    for index in range(1, len(rows) + 1):
        if index < len(rows) and rows[index]["pod"] == rows[begun]["pod"]:
            continue
        start, pod = rows[begun]["interval_start"], rows[begun]["pod"]
        end = rows[index]["interval_start"] if index < len(rows) else rows[-1]["interval_end"]
        if pod:
            for axes in (power, activity):
                axes.axvspan(start, end, color=colors[pod], alpha=0.75, linewidth=0, zorder=0)
        power.text(
            start + (end - start) / 2, 0.97, pod or IDLE, transform=power.get_xaxis_transform(),
            ha="center", va="top", fontsize=8.5, color=_INK if pod else _UTIL,
            style="normal" if pod else "italic",
        )  # fmt: skip
        begun = index


def _values(rows: Sequence[Mapping[str, Any]], column: str, scale: float) -> list[float]:
    """A gap in the data is a gap in the line."""
    return [float("nan") if row[column] is None else row[column] * scale for row in rows]


def _title(figure: Figure, text: str) -> None:
    figure.suptitle(text, x=0.008, ha="left", fontsize=13)
