"""A result that a later run goes on with: whether it may, and what becomes of its rows. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.bench.suite.words import label, told

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.bench.suite.results import Result, Row

_VARIES: Final = ("commit_ms", "commit")
"""Facts that differ from run to run; what headrace was built from is in its version."""


def differs(before: Result, now: Result) -> str | None:
    """Why rows of one result do not belong to another, in a line; None where they do."""
    for what, then, here in (
        ("another machine", before.machine, now.machine),
        ("other options", before.settings, now.settings),
        ("other brokers", _each(before.peers, "version"), _each(now.peers, "version")),
        ("other promises", _each(before.peers, "promises"), _each(now.peers, "promises")),
    ):
        for name in {**then, **here}:
            if name not in _VARIES and then.get(name) != here.get(name):
                was, found = (
                    told(name, each[name]) if name in each else "absent" for each in (then, here)
                )
                return f"{what}: {label(name)} was {was}, and is {found}"
    return None


def _each(peers: Mapping[str, Any], what: str) -> dict[str, Any]:
    return {name: peer[what] for name, peer in peers.items()}


def merged(rows: Sequence[Row], row: Row) -> list[Row]:
    """Rows with one more, or with that in the place of the one before."""
    place = (row.workload, row.mode)
    found = [row if (each.workload, each.mode) == place else each for each in rows]
    return found if row in found else [*found, row]
