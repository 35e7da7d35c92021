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

FAULTS: Final = (
    "lost", "duplicated", "reordered", "corrupted", "disconnected", "refused", "forgotten",
    "unsettled", "owed",
)  # fmt: skip
"""Figures that should be 0, as far as the level of service promises; their medians are sums."""


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

    def faults(self) -> dict[str, float]:
        """What went wrong with messages, over all rounds; empty where nothing did."""
        return {name: count for name in FAULTS if (count := self.medians.get(name))}


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
        ours: the server that ratios are of.
        began: when it was measured, ISO 8601, UTC; empty where the result says it.
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
    ours: str = OURS
    began: str = ""

    def ratios(self) -> dict[str, float]:
        """Our figure beside that of each other server; without those that have no such figure."""
        ours = self.median(self.ours)
        found = {}
        for name in self.servers:
            theirs = self.median(name)
            if name != self.ours and ours and theirs:
                found[name] = theirs / ours if self.less_is_better else ours / theirs
        return found

    def is_level(self, server: str) -> bool:
        """Whether our rounds and those of another server overlap."""
        ours, theirs = (
            measured.spread(self.figure) if (measured := self.servers.get(name)) else None
            for name in (self.ours, server)
        )
        return bool(ours and theirs and ours[0] <= theirs[1] and theirs[0] <= ours[1])

    def misses(self) -> bool:
        """Whether our figure is not what it is to reach; there may be none."""
        ours = self.median(self.ours)
        if ours is None or self.at_least is None:
            return False
        return ours > self.at_least if self.less_is_better else ours < self.at_least

    def is_behind(self) -> bool:
        """Whether we are not where we are to be: too slow, no figure, or messages gone wrong.

        Where nothing is to be reached beside a server, we are to be no slower than it.
        """
        ours = self.servers.get(self.ours)
        return (
            self.misses()
            or self.median(self.ours) is None
            or (ours is not None and bool(ours.faults()))
            or any(ratio < self.bounds.get(name, 1.0) for name, ratio in self.ratios().items())
        )

    def median(self, server: str) -> float | None:
        """Of the figure that counts; None where a server has none."""
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
        left_out: by name of a broker that is not here, what is missing and what installs it.
        rows: in the order in which they ran.
        resumed: when later runs began that went on with it; `seconds` are of all runs.
    """

    began: str
    seconds: float
    machine: Mapping[str, Any]
    settings: Mapping[str, Any]
    peers: Mapping[str, Any]
    left_out: Mapping[str, str]
    rows: Sequence[Row]
    resumed: Sequence[str] = ()

    def losses_first(self) -> list[Row]:
        """Rows where headrace is behind, the furthest first; then the others as they ran."""
        behind = [row for row in self.rows if row.is_behind()]
        behind.sort(key=_least_ratio)
        return behind + [row for row in self.rows if not row.is_behind()]


def _least_ratio(row: Row) -> float:
    return min(row.ratios().values(), default=0.0 if row.median(row.ours) is None else 1.0)
