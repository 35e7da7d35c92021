"""What a suite found, as it is kept in a file: rounds, medians, spreads, ratios. Pure.

A ratio is headrace's figure over the peer's, or the other way round where less is better: above 1
headrace is ahead, whatever the figure.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.bench.figures import Figures

SCHEMA: Final = 1
"""Of the file."""

OURS: Final = "headrace"
"""The server that ratios are of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One server in one row.

    Attributes:
        rounds: figures of each round, in order; base units, None for what has none.
        medians: of each figure; of what should be 0, the sum.
        by_second: what was delivered in each second of the round with the median figure.
        trouble: the first error of a round, in a line; such a round has no place in medians.
    """

    rounds: Sequence[Figures]
    medians: Figures
    by_second: Sequence[int] = ()
    trouble: str | None = None

    def spread(self, figure: str) -> tuple[float, float] | None:
        """The least and the most of a figure."""
        values = [value for each in self.rounds if (value := each.get(figure)) is not None]
        return (min(values), max(values)) if values else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One workload in one mode.

    Attributes:
        workload, title, source: its name, what it does, and where it is from.
        mode: `memory` or `durable`.
        figure: the name of the figure that counts.
        unit: of it, as people write it.
        less_is_better: of that figure.
        servers: by name, those that took part.
        bounds: what headrace is to reach: by server, the least ratio to it.
        at_least: what headrace is to reach, in the unit; what a figure may be at most, where less
            is better.
        note: what a reader must know to take it right.
    """

    workload: str
    title: str
    source: str
    mode: str
    figure: str
    unit: str
    less_is_better: bool = False
    servers: Mapping[str, Measured] = field(default_factory=dict)
    bounds: Mapping[str, float] = field(default_factory=dict)
    at_least: float | None = None
    note: str = ""

    def ratios(self) -> dict[str, float]:
        """Our figure beside that of each other server; without those that have no such figure."""
        ours = self._median(OURS)
        found = {}
        for name in self.servers:
            theirs = self._median(name)
            if name != OURS and ours and theirs:
                found[name] = theirs / ours if self.less_is_better else ours / theirs
        return found

    def is_behind(self) -> bool:
        """Whether a peer is ahead, or headrace misses what it is to reach."""
        ratios = self.ratios()
        ours = self._median(OURS)
        missed = (
            self.at_least is not None
            and ours is not None
            and (ours > self.at_least if self.less_is_better else ours < self.at_least)
        )
        return (
            missed
            or any(ratio < 1 for ratio in ratios.values())
            or any(ratios.get(name, bound) < bound for name, bound in self.bounds.items())
        )

    def _median(self, server: str) -> float | None:
        measured = self.servers.get(server)
        return None if measured is None else measured.medians.get(self.figure)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A whole run.

    Attributes:
        began: when, ISO 8601, UTC.
        seconds: that it took.
        machine: what it ran on: `cores`, `processor`, `memory_bytes`, `kernel`, `disk`, `python`,
            and `commit_ms`, the median time of a 4 KiB write with fdatasync.
        settings: the options of the run.
        peers: by name: `version`, `install`, and `promises`, by door and mode.
        left_out: by name of a broker that is not here, what is missing.
        rows: in the order in which they ran.
    """

    began: str
    seconds: float
    machine: Mapping[str, Any]
    settings: Mapping[str, Any]
    peers: Mapping[str, Any]
    left_out: Mapping[str, str]
    rows: Sequence[Row]

    def losses_first(self) -> list[Row]:
        """Rows where headrace is behind, the furthest first; then the others as they ran."""
        behind = [row for row in self.rows if row.is_behind()]
        behind.sort(key=lambda row: min(row.ratios().values(), default=1.0))
        return behind + [row for row in self.rows if not row.is_behind()]
