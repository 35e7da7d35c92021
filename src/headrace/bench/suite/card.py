"""One row of a result as a part of a page: bars, ratios, latencies, faults, rates. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.bench.suite import charts
from headrace.bench.suite.markup import table, text
from headrace.bench.suite.words import (
    QUANTILES,
    clean,
    faults,
    heading,
    joined,
    label,
    limits,
    missed,
    moment,
    number,
    quantiles,
    ratio_to,
    shortfalls,
    size,
    spread,
    told,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.bench.suite.results import Row

_COSTS: Final[tuple[tuple[str, str, Callable[[float | None], str]], ...]] = (
    ("CPU-s per million", "cpu_seconds_per_million", number),
    ("memory", "resident_bytes", size),
)
"""Columns of what a server took, where there is any of it."""


def card(row: Row, anchor: str, *, judged: bool) -> str:
    """A row.

    Args:
        row: what is shown.
        anchor: by which links find it.
        judged: that another is ahead is said to be a loss.
    """
    words = shortfalls(row) if judged else missed(row)
    lost = f'<p class="bad">Falls short: {text("; ".join(words))}.</p>' if words else ""
    mode = f' <span class="mode">{text(row.mode)}</span>' if row.mode else ""
    dated = f"Measured {moment(row.began)}." if row.began else ""
    note = " ".join(filter(None, [row.note, limits(row), dated]))
    note = f"<p><small>{text(note)}</small></p>" if note else ""
    return (
        f'<article class="card" id="{anchor}"><h3>{text(row.workload)}{mode}</h3>'
        f'<p class="what">{text(row.title)}</p>{lost}'
        f'<div class="pair">{_main(row, judged=judged)}{_latencies(row)}</div>'
        f"{_ends(row)}{_rates(row)}{note}{_all(row)}</article>"
    )


def name_of(row: Row, server: str) -> str:
    """A server, ours told from the others."""
    return f'<span class="us">{text(server)}</span>' if server == row.ours else text(server)


def ratio_of(row: Row, server: str, *, judged: bool) -> str:
    """The ratio to a server; with a mark where it is a loss, below 1 or what is to be reached."""
    value, told_of = row.ratios().get(server), ratio_to(row, server)
    if judged and value is not None and value < row.bounds.get(server, 1.0):
        return f'<span class="bad">▾ {told_of}</span>'
    return told_of


def _servers(row: Row) -> list[str]:
    """Ours, then the others, the best first; those without a figure last."""

    def place(server: str) -> tuple[bool, bool, float]:
        median = row.median(server)
        value = median or 0.0
        return server != row.ours, median is None, value if row.less_is_better else -value

    return sorted(row.servers, key=place)


def _main(row: Row, *, judged: bool) -> str:
    ratios = row.ratios()
    costs = [
        cost
        for cost in _COSTS
        if any(each.medians.get(cost[1]) is not None for each in row.servers.values())
    ]
    spreads = [found for each in row.servers.values() if (found := each.spread(row.figure))]
    whole = max((most for _, most in spreads), default=0.0)
    heads = ["", "median", "", "least to most"] + ["ratio"] * bool(ratios)
    rows = []
    for server in _servers(row):
        cells = [name_of(row, server), number(row.median(server)), _bar(row, server, whole)]
        cells.append(spread(row, row.servers[server]))
        if ratios:
            cells.append("" if server == row.ours else ratio_of(row, server, judged=judged))
        medians = row.servers[server].medians
        cells += [text(tell(medians.get(figure))) for _, figure, tell in costs]
        rows.append(cells)
    way = "less" if row.less_is_better else "more"
    caption = f"{row.unit}, {way} is better"
    if ratios:
        caption += f"; ratio above 1: {row.ours} is ahead"
    return table(caption, [*heads, *(head for head, _, _ in costs)], rows, words={2})


def _bar(row: Row, server: str, whole: float) -> str:
    median, found = row.median(server), row.servers[server].spread(row.figure)
    if median is None or found is None:
        return ""
    words = f"{server}: {number(median)} {row.unit}, {' to '.join(map(number, found))}"
    return charts.bar(median, *found, whole, words, ours=server == row.ours)


def _latencies(row: Row) -> str:
    rows = []
    for server in _servers(row):
        for what, values in quantiles(row.servers[server].medians).items():
            named = name_of(row, server) + (f" {text(label(what))}" if what else "")
            rows.append([named, *(number(values.get(quantile)) for quantile in QUANTILES)])
    return table("latency, ms", ["", *map(heading, QUANTILES)], rows) if rows else ""


def _ends(row: Row) -> str:
    """What became of messages, and what went wrong."""
    lines = []
    for server in _servers(row):
        measured = row.servers[server]
        if words := faults(measured):
            lines.append(f'<p class="bad">{text(server)} {text(joined(words))}.</p>')
        if measured.trouble:
            lines.append(f"<p>{name_of(row, server)}: {text(measured.trouble)}</p>")
    if sentence := clean(row):
        lines.append(f'<p class="clean">{text(sentence)}</p>')
    return "".join(lines)


def _rates(row: Row) -> str:
    seen = [server for server in _servers(row) if row.servers[server].by_second]
    if not seen:
        return ""
    peak = max(max(row.servers[server].by_second) for server in seen)
    figures = "".join(
        _rate(server, row.servers[server].by_second, peak, ours=server == row.ours)
        for server in seen
    )
    return f'<h4>In each second, at one scale</h4><div class="rates">{figures}</div>'


def _rate(server: str, counts: Sequence[int], peak: int, *, ours: bool) -> str:
    words = f"{server}: {number(min(counts))} to {number(max(counts))} a second"
    return (
        f"<figure>{charts.rate(counts, peak, words, ours=ours)}"
        f"<figcaption>{text(words)}</figcaption></figure>"
    )


def _all(row: Row) -> str:
    """Every figure of every server."""
    servers = _servers(row)
    names = dict.fromkeys(name for each in servers for name in row.servers[each].medians)
    of = [row.servers[server].medians for server in servers]
    rows = [
        [text(label(name)), *(text(told(name, medians.get(name))) for medians in of)]
        for name in names
        if any(medians.get(name) is not None for medians in of)
    ]
    rounds = max((len(each.rounds) for each in row.servers.values()), default=0)
    caption = f"medians of {rounds} rounds" if rounds > 1 else "one round"
    if not rows:
        return ""
    return (
        f"<details><summary>All figures</summary>{table(caption, ['', *servers], rows)}</details>"
    )
