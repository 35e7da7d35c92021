"""A fleet's report as one HTML file that loads nothing. Pure.

Whatever comes from data is escaped here; pictures come from `chart` as SVG.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any, Final

from headrace.pipeline.fleet import GROUPS
from headrace.text import span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from headrace.pipeline.fleet_report import FleetReport

TITLES: Final = {
    "models": "By model", "hosts": "By host", "namespaces": "By namespace", "pods": "By pod",
}  # fmt: skip

ROWS_MAX: Final = 200
"""Open detections that are shown."""

_STYLE: Final = """
body{font:15px/1.5 system-ui,sans-serif;max-width:68em;margin:2em auto;padding:0 1em;color:#2b2f36}
h1{font-size:1.5em}h2{font-size:1.1em;margin-top:2em}svg{max-width:100%;height:auto}
table{border-collapse:collapse;width:100%;font-size:.92em}tr{border-bottom:1px solid #d9dce1}
th{text-align:left;font-weight:600}td,th{padding:.2em .6em;vertical-align:top}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.bar{background:#1f6f8b;height:.7em;border-radius:2px;min-width:1px}
.critical{color:#b5432f;font-weight:600}.figures{display:flex;flex-wrap:wrap;gap:2em}
.figures div{font-size:1.4em}.figures small{display:block;font-size:.6em;color:#6a6f78}
"""

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"


def share(value: float | None, scale: float = 1.0) -> str:
    """Of a hundred; `-` where nothing is known."""
    return "-" if value is None else f"{value * scale:.1f} %"


def kilowatt_hours(joules: float | None) -> str:
    """Energy as bills have it."""
    return "-" if joules is None else f"{joules / 3.6e6:,.1f} kWh"


def money(value: float | None) -> str:
    """In the currency of the prices."""
    return "-" if value is None else f"{value:,.2f}"


def cost(row: Mapping[str, Any]) -> float | None:
    """Of GPUs and their energy; None without a price of either: energy that costs 0 has none."""
    gpu, energy = row["gpu_cost"], row["energy_cost"]
    return None if gpu is None and not energy else (gpu or 0.0) + (energy or 0.0)


FIGURES: Final[tuple[tuple[str, Callable[[Mapping[str, Any]], str]], ...]] = (
    ("GPUs", lambda row: f"{row['gpus']:,}"),
    ("GPU hours", lambda row: f"{(row['seconds'] or 0) / 3600:,.1f}"),
    ("utilisation", lambda row: share(row["gpu_util_percent_mean"])),
    ("SM activity", lambda row: share(row["sm_active_ratio_mean"], 100)),
    ("energy", lambda row: kilowatt_hours(row["energy_joules"])),
    ("cost", lambda row: money(cost(row))),
)
"""Columns of a part of the fleet, at a terminal too."""


def names(part: str, row: Mapping[str, Any]) -> str:
    """What a row of a part is called."""
    told = "/".join(str(row[column] or "") for column in GROUPS[part])
    return told.strip("/") or "(none)"


def page(report: FleetReport, pictures: Iterable[str], top: int) -> str:
    """The file.

    Args:
        report: what it says.
        pictures: SVG elements.
        top: rows of each part.
    """
    between = f"{report.start:%Y-%m-%d %H:%M} to {report.end:%Y-%m-%d %H:%M} UTC" if (
        report.start and report.end
    ) else "no telemetry in that time"  # fmt: skip
    figures = "".join(
        f"<div>{escape(told(report.whole))}<small>{escape(name)}</small></div>"
        for name, told in FIGURES
    )
    parts = "".join(
        f"<h2>{TITLES[part]}</h2>{_part(part, rows, top)}" for part, rows in report.parts.items()
    )
    return (
        "<!doctype html>\n<html lang=en><head><meta charset=utf-8>"
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>GPU fleet</title><style>{_STYLE}</style></head><body>"
        f"<h1>GPU fleet, {escape(between)}</h1><div class=figures>{figures}</div>"
        f"{''.join(f'<figure>{each}</figure>' for each in pictures)}"
        f"<h2>Idle, though allocated</h2>{_idle(report, top)}"
        f"<h2>Open detections</h2>{_detections(report)}{parts}"
        f"<p><small>headrace report, version {report.version} of the tables</small></p>"
        "</body></html>\n"
    )


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], numbers: set[int]) -> str:
    """Rows of HTML; what is no bar of ours was escaped by who made it."""

    def cells(tag: str, row: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{' class=n' if at in numbers else ''}>{cell}</{tag}>"
            for at, cell in enumerate(row)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table><tr>{cells('th', columns)}</tr>{body}</table>"


def _more(shown: int, there: int) -> str:
    return f"<p>{there - shown:,} more</p>" if there > shown else ""


def _part(part: str, rows: Sequence[Mapping[str, Any]], top: int) -> str:
    def weight(row: Mapping[str, Any]) -> float:
        known = cost(row)
        return known if known is not None else row["seconds"] or 0

    most = max((weight(row) for row in rows), default=0) or 1
    told = [
        [
            escape(names(part, row)),
            *(escape(figure(row)) for _, figure in FIGURES),
            f'<div class=bar style="width:{100 * weight(row) / most:.1f}%"></div>',
        ]
        for row in rows[:top]
    ]
    columns = ["", *(name for name, _ in FIGURES), ""]
    return _table(columns, told, set(range(1, len(FIGURES) + 1))) + _more(len(told), len(rows))


def _idle(report: FleetReport, top: int) -> str:
    if not report.idle:
        return "<p>None was found.</p>"
    rows = [
        [
            escape(f"{each.host} GPU {'?' if each.gpu_index is None else each.gpu_index}"),
            escape(f"{each.uuid}{each.gpu_i_id and '/'}{each.gpu_i_id}"),
            escape(f"{each.namespace}/{each.pod}".strip("/")),
            escape(span(each.seconds)),
            escape(money(each.cost)),
            "now" if each.is_open else "",
        ]
        for each in report.idle[:top]
    ]
    columns = ["GPU", "UUID", "pod", "idle for", "cost", ""]
    return _table(columns, rows, {3, 4}) + _more(len(rows), len(report.idle))


def _detections(report: FleetReport) -> str:
    if not report.detections:
        return "<p>None.</p>"
    rows = [
        [
            f"<span class={escape(row['severity'])}>{escape(row['severity'])}</span>",
            escape(row["kind"]),
            escape(f"{row['host'] or ''} {row['uuid'] or ''}"),
            escape(f"{row['start']:%Y-%m-%d %H:%M}"),
            escape(row["text"] or ""),
        ]
        for row in report.detections[:ROWS_MAX]
    ]
    columns = ["severity", "kind", "GPU", "since", "what"]
    return _table(columns, rows, set()) + _more(len(rows), len(report.detections))
