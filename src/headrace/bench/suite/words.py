"""What a result says, in words and numbers as people read them: of pages and of Markdown. Pure."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from headrace.text import counted, span

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headrace.bench.suite.results import Measured, Result, Row

QUANTILES: Final = ("p50", "p90", "p99", "p99_9", "max")
"""As figures name them, and `_ms` behind."""

FAULTS: Final = {
    "lost": "lost {}",
    "duplicated": "duplicated {}",
    "reordered": "reordered {}",
    "corrupted": "corrupted {}",
    "disconnected": "ended {} connections",
    "refused": "refused {}",
    "forgotten": "forgot {} sessions",
    "unsettled": "did not settle {}",
    "owed": "still owed {}",
}
"""Figures that should be 0, and what a server did."""

MORE: Final = 1.1
"""From here on a tail is longer, or a cost higher, than another."""

BUSY: Final = 0.95
"""The part of a time from which on the load may be slower than the server."""

_COUNTED: Final = ("lost", "duplicated", "reordered", "corrupted")
"""Those of which is said that they are 0."""

_WHOLES: Final = ("expected", "enqueued", "acknowledged", "published", "sent")
"""Figures of how many should have come: the first that there is counts."""

_QUANTILE: Final = re.compile(rf"(?:(.+)_)?({'|'.join(QUANTILES)})_ms")

_UNITS: Final = {"_ms": " ms", "_seconds": " s"}
"""By how names end."""

_LABELS: Final = {
    "cpu_seconds_per_million": "CPU-seconds per million",
    "resident_bytes": "resident memory",
    "mib_per_second": "MiB per second",
    "commit": "source",
    "commit_ms": "4 KiB and fdatasync",
}


def number(value: float | None) -> str:
    """A number to three digits or more; a dash where there is none."""
    if value is None:
        return "-"
    size = abs(value)
    if size >= 1e15:
        return f"{value:.3g}"
    if isinstance(value, int) or size >= 100:
        return f"{value:,.0f}"
    return f"{value:.{1 if size >= 10 else 2 if size >= 1 else 3}f}"


def size(value: float | None) -> str:
    """Bytes."""
    if value is None:
        return "-"
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if abs(value) >= scale:
            return f"{value / scale:,.1f} {unit}"
    return f"{number(value)} B"


def ratio(value: float | None) -> str:
    """Of two figures; what is below 1 never reads as 1."""
    if value is None:
        return "-"
    if value < 1:
        return f"{math.floor(value * 100) / 100:.2f}"
    return f"{value:,.{2 if value < 10 else 1 if value < 100 else 0}f}"


def label(name: str) -> str:
    """A figure or setting as people call it, without the unit that `told` adds."""
    quantile = _QUANTILE.fullmatch(name)
    if quantile:
        return " ".join(filter(None, (quantile[1] and label(quantile[1]), heading(quantile[2]))))
    for suffix in (*_UNITS, "_bytes"):
        name = name if name in _LABELS else name.removesuffix(suffix)
    return _LABELS.get(name, name.replace("_", " "))


def heading(quantile: str) -> str:
    """Of a column."""
    return quantile.replace("_", ".")


def told(name: str, value: Any) -> str:  # noqa: ANN401 - whatever JSON holds
    """A figure or setting with its unit, which its name tells."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        value = int(value) if value == value // 1 else value  # 5 s, not 5.00
        if "bytes" in name:
            return size(value)
        unit = next((each for suffix, each in _UNITS.items() if name.endswith(suffix)), "")
        return number(value) + unit
    if isinstance(value, list | tuple):
        return ", ".join(told(name, each) for each in value) or "-"
    if isinstance(value, dict):
        return ", ".join(f"{key} {told(str(key), each)}" for key, each in value.items()) or "-"
    return "-" if value is None or value == "" else str(value)


def moment(began: str) -> str:
    """When, to the minute."""
    at = datetime.fromisoformat(began)
    at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    return f"{at:%Y-%m-%d %H:%M} UTC"


def ran(result: Result) -> str:
    """When a result was measured, and how long that took."""
    took = span(result.seconds)
    if not result.resumed:
        return f"{moment(result.began)}, in {took}"
    runs = counted(len(result.resumed) + 1, "run")
    return f"{moment(result.began)} to {moment(result.resumed[-1])}, in {runs} of {took} together"


def joined(words: Sequence[str], last: str = "and") -> str:
    """Words of a list in a sentence."""
    return f" {last} ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def spread(row: Row, measured: Measured) -> str:
    """The least and the most of the figure that counts."""
    found = measured.spread(row.figure)
    return "-" if found is None else " to ".join(map(number, found))


def promises(peer: Mapping[str, Any]) -> dict[tuple[str, str], str]:
    """What acknowledgements of a broker mean, by door and mode; without modes that it lacks."""
    return {
        (door, mode): words
        for door, modes in peer["promises"].items()
        for mode, words in modes.items()
        if words
    }


def quantiles(figures: Mapping[str, float | None]) -> dict[str, dict[str, float]]:
    """Latencies of figures: by what was timed, empty where one thing was, and quantile; in ms."""
    found: dict[str, dict[str, float]] = {}
    for name, value in figures.items():
        match = _QUANTILE.fullmatch(name)
        if match and value is not None:
            found.setdefault(match[1] or "", {})[match[2]] = value
    return found


def whole_way(figures: Mapping[str, float | None]) -> dict[str, float]:
    """Latencies of messages from their beginning to their end, by quantile, in ms.

    Of a queue that is until they are settled. Empty where none were timed: what a connection took,
    or an acknowledgement, is no way of a message.
    """
    found = quantiles(figures)
    return found.get("") or found.get("settled") or {}


# --- faults -------------------------------------------------------------------------------------


def faults(measured: Measured) -> list[str]:
    """What a server did to messages that it should not have, over all rounds."""
    return [
        words.format(number(count)) + (_of_whole(measured, count) if name in _COUNTED else "")
        for name, words in FAULTS.items()
        if (count := measured.medians.get(name))
    ]


def _of_whole(measured: Measured, count: float) -> str:
    for name in _WHOLES:
        if whole := sum(figures.get(name) or 0 for figures in measured.rounds):
            return f" of {number(whole)} ({100 * count / whole:.2g} %)"
    return ""


def ends(measured: Measured) -> str:
    """What a server did to messages, and what went wrong, in a line; empty where all was well."""
    return "; ".join(filter(None, [joined(faults(measured)), measured.trouble]))


def clean(row: Row) -> str:
    """Of the servers that did none of it, a sentence; empty where nobody has looked."""
    kinds = list(_COUNTED)
    names = []
    for name, measured in row.servers.items():
        looked_at = [kind for kind in _COUNTED if measured.medians.get(kind) is not None]
        if looked_at and not faults(measured):
            names.append(name)
            kinds = [kind for kind in kinds if kind in looked_at]
    return f"Nothing {joined(kinds, 'or')}: {joined(names)}." if names and kinds else ""


def limits(row: Row) -> str:
    """Of the servers beside which the load itself may have been the limit, a sentence."""
    busy = {
        name: share
        for name, measured in row.servers.items()
        if (share := measured.medians.get("generator_busy") or 0.0) >= BUSY
    }
    if not busy:
        return ""
    words = joined([f"{share:.0%} of the time with {name}" for name, share in busy.items()])
    return f"The load itself was busy {words}, and may be the limit."


# --- where a row falls short --------------------------------------------------------------------


def missed(row: Row) -> list[str]:
    """What is to be reached and is not."""
    words = []
    ours = row.median(row.ours)
    if row.misses():
        most = "at most " if row.less_is_better else ""
        words.append(
            f"{number(ours)} {row.unit}, and {most}{number(row.at_least)} is to be reached"
        )
    ratios = row.ratios()
    words += [
        f"{ratio(ratios[name])} beside {name}, and {bound:g} is to be reached"
        for name, bound in row.bounds.items()
        if name in ratios and ratios[name] < bound
    ]
    return words


def shortfalls(row: Row) -> list[str]:
    """Why a row is behind; empty where it is not."""
    if row.median(row.ours) is None:
        measured = row.servers.get(row.ours)
        trouble = measured and measured.trouble
        return [f"{row.ours} has no figure{f': {trouble}' if trouble else ''}"]
    return missed(row) + [
        f"{ratio(value)} beside {name}{_within(row, name)}"
        for name, value in sorted(row.ratios().items(), key=lambda each: each[1])
        if value < 1 and name not in row.bounds
    ]


def losses(row: Row) -> str:
    """Why a row is behind, and what we did to messages, in a line."""
    ours = row.servers.get(row.ours)
    return "; ".join([*shortfalls(row), *(faults(ours) if ours else ())])


def _within(row: Row, name: str) -> str:
    return ", within what rounds differ by" if row.is_level(name) else ""


def ratio_to(row: Row, name: str) -> str:
    """The ratio to a server, with a mark where it says no more than that the two are level."""
    text = ratio(row.ratios().get(name))
    return f"≈ {text}" if row.is_level(name) else text


def standing(rows: Sequence[Row]) -> str:
    """How many rows, in how many headrace is behind, and how many ratios say that it is level."""
    behind = sum(row.is_behind() for row in rows)
    ratios = [row.is_level(name) for row in rows for name in row.ratios()]
    told = f"{counted(len(rows), 'row')}; headrace is behind in {behind or 'none'}"
    level = sum(ratios)
    return (
        f"{told}; {level} of {len(ratios)} ratios are within what rounds differ by"
        if level
        else told
    )


def elsewhere(row: Row, name: str) -> list[str]:
    """Where headrace is behind a server in what the row is not about: the tail, the processor."""
    if name == row.ours or row.ours not in row.servers:
        return []
    ours, theirs = (row.servers[each].medians for each in (row.ours, name))
    words = []
    tail = (whole_way(ours).get("p99"), whole_way(theirs).get("p99"))
    if row.figure != "p99_ms" and _is_more(*tail):
        words.append(f"p99 {number(tail[0])} ms beside {number(tail[1])}")
    cost = "cpu_seconds_per_million"
    if _is_more(ours.get(cost), theirs.get(cost)):
        words.append(f"{number(ours[cost])} CPU-s per million beside {number(theirs[cost])}")
    return words


def _is_more(ours: float | None, theirs: float | None) -> bool:
    return ours is not None and theirs is not None and ours > MORE * theirs


def families(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Rows by where they are from, as they ran; the modes of a workload beside each other."""
    found: dict[str, dict[str, list[Row]]] = {}
    for row in rows:
        found.setdefault(row.source or "Others", {}).setdefault(row.workload, []).append(row)
    return {
        source: [row for each in workloads.values() for row in each]
        for source, workloads in found.items()
    }
