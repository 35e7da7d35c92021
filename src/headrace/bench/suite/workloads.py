"""What a suite measures, with the figure that counts and what is to be reached."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headrace.bench.figures import Figures
    from headrace.bench.suite.peers.peer import Door, Feature, Mode, Running


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What one round against one server gave.

    Attributes:
        figures: base units, None for what has none; those that should be 0 among them.
        by_second: what was delivered in each second.
        trouble: the first error, in a line.
    """

    figures: Figures
    by_second: Sequence[int] = ()
    trouble: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How long a round takes, where its workload does not say.

    Attributes:
        duration: seconds that are measured.
        warm_up: seconds before.
        drain: of silence at the end, the longest.
    """

    duration: float = 4.0
    warm_up: float = 1.0
    drain: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One row of a suite for each mode.

    Attributes:
        name: as `--only` takes it, letters, digits and hyphens.
        title: what it does, in a line.
        source: where it is from: a seed, a published suite.
        door: in which protocol; None for what needs no broker, which runs in this process.
        modes: in which it makes sense.
        figure, unit, less_is_better, bounds, at_least, note: as in `results.Row`.
        is_quick: it is a part of `--quick`.
        needs: what a broker must have to take part.
        beside: baselines that take part: servers that are no brokers (`peers.found.BASELINES`).
        is_fresh: leaves so much behind that servers start anew before it.
        is_exact: its figure is counted and not timed, so that one round says all.
        seconds: that a round takes, as far as is known.
        once: does one round; a `HeadraceError` or `OSError` is the round's trouble.
    """

    name: str
    title: str
    source: str
    door: Door | None
    modes: tuple[Mode, ...]
    figure: str
    unit: str
    less_is_better: bool = False
    bounds: Mapping[str, float] = field(default_factory=dict)
    at_least: float | None = None
    note: str = ""
    is_quick: bool = False
    needs: frozenset[Feature] = frozenset()
    beside: tuple[str, ...] = ()
    is_fresh: bool = False
    is_exact: bool = False
    seconds: float = 0.0
    once: Callable[[Running | None, Mode], Round]
