"""A result as one HTML file that loads nothing: where headrace is behind first, then all. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.bench.suite.card import card, name_of, ratio_of
from headrace.bench.suite.markup import document, facts, table, text
from headrace.bench.suite.results import OURS, SCHEMA
from headrace.bench.suite.words import (
    ends,
    families,
    label,
    losses,
    moment,
    number,
    promises,
    ran,
    standing,
    told,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.bench.suite.results import Result, Row


_HOW: Final = (
    "Bars end at the median; the line across goes from the least to the most of all rounds."
)


def page(result: Result) -> str:
    """The file of a suite."""
    anchors = {id(row): f"row-{index}" for index, row in enumerate(result.rows)}
    lede = f"{ran(result)}: {standing(result.rows)}."
    parts = [
        _header(f"{OURS} beside other brokers", lede),
        _named({**result.machine, **result.settings}),
        _losses(result, anchors),
        _ends(result, anchors),
        _brokers(result),
        _glance(result, anchors),
    ]
    for source, rows in families(result.rows).items():
        cards = (card(row, anchors[id(row)], judged=True) for row in rows)
        parts.append(f"<section><h2>{text(source)}</h2>" + "\n".join(cards) + "</section>")
    parts.append(
        f"<footer>{OURS} bench suite, schema {SCHEMA}. A ratio is of medians, and above 1 where "
        f"{OURS} is ahead, also where less is better. {_HOW}</footer>"
    )
    return document(f"{OURS} bench suite, {moment(result.began)}", parts)


def sheet(title: str, began: str, load: Mapping[str, object], rows: Sequence[Row]) -> str:
    """The file of another command of `headrace bench`.

    Args:
        title: names the command.
        began: when, ISO 8601.
        load: what was done, by name.
        rows: what was measured.
    """
    parts = [
        _header(title, moment(began)),
        _named(load),
        *(card(row, f"row-{index}", judged=False) for index, row in enumerate(rows)),
        f"<footer>A ratio is above 1 where the first is ahead. {_HOW}</footer>",
    ]
    return document(title, parts)


def _header(title: str, lede: str) -> str:
    return f'<header><h1>{text(title)}</h1><p class="lede">{text(lede)}</p></header>'


def _named(values: Mapping[str, object]) -> str:
    return facts((label(name), told(name, value)) for name, value in values.items())


def _link(row: Row, anchors: Mapping[int, str]) -> str:
    mode = f' <span class="mode">{text(row.mode)}</span>' if row.mode else ""
    return f'<a href="#{anchors[id(row)]}">{text(row.workload)}</a>{mode}'


def _losses(result: Result, anchors: Mapping[int, str]) -> str:
    behind = [row for row in result.losses_first() if row.is_behind()]
    head = f'<section id="behind"><h2>Where {OURS} is behind</h2>'
    if not behind:
        return f"{head}<p>In none of these rows.</p></section>"
    rows = [
        [
            _link(row, anchors),
            f"{number(row.median(row.ours))} {text(row.unit)}",
            f'<span class="bad">{text(losses(row))}</span>',
        ]
        for row in behind
    ]
    return f"{head}{table('', ['workload', OURS, 'beside what'], rows, words={2})}</section>"


def _ends(result: Result, anchors: Mapping[int, str]) -> str:
    """Of every server what it did to messages that it should not have, and what went wrong."""
    rows = [
        [_link(row, anchors), name_of(row, server), text(words)]
        for row in result.rows
        for server, measured in row.servers.items()
        if (words := ends(measured))
    ]
    head = "<section><h2>Messages that did not arrive as they should</h2>"
    if not rows:
        return f"{head}<p>None, at any broker.</p></section>"
    return f"{head}{table('', ['workload', 'broker', 'what it did'], rows, words={1, 2})}</section>"


def _brokers(result: Result) -> str:
    rows = [
        [
            text(name),
            text(peer["version"]),
            "<br/>".join(
                f"{text(door)} {text(mode)}: {text(words)}"
                for (door, mode), words in promises(peer).items()
            ),
            f"<code>{text(peer['install'])}</code>",
        ]
        for name, peer in result.peers.items()
    ]
    heads = ["broker", "version", "an acknowledgement means", "installed by"]
    told_of = table("", heads, rows, words={1, 2, 3}) if rows else ""
    left = [[text(name), text(why)] for name, why in result.left_out.items()]
    if left:
        told_of += "<h3>Left out</h3>" + table("", ["broker", "what is missing"], left, words={1})
    return f"<section><h2>Brokers</h2>{told_of}</section>"


def _glance(result: Result, anchors: Mapping[int, str]) -> str:
    """All rows with their ratios."""
    peers = list(
        dict.fromkeys(name for row in result.rows for name in row.servers if name != row.ours)
    )
    rows = []
    for row in result.rows:
        cells = (ratio_of(row, name, judged=True) for name in peers)
        rows.append([_link(row, anchors), number(row.median(row.ours)), text(row.unit), *cells])
    told_of = table(
        f"medians of {OURS}, and their ratio to those of each other; ▾ is behind, ≈ is neither, "
        "for the rounds of both overlap",
        ["workload", OURS, "", *peers],
        rows,
        words={2},
    )
    return f"<section><h2>All rows</h2>{told_of}</section>"
