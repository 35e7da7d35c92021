"""Rounds of one server to what is kept of it, and servers to a row. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.bench.figures import median_of, middle_of
from headrace.bench.suite.results import FAULTS, Measured, Row

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.bench.figures import Figures
    from headrace.bench.suite.peers.peer import Mode
    from headrace.bench.suite.workloads import Round, Workload


def measured_of(figure: str, rounds: Sequence[Round]) -> Measured:
    """Medians of the rounds that had no trouble; of what should be 0, the sum of all rounds.

    Args:
        figure: the one that counts.
        rounds: in order, 1 or more.
    """
    whole = [each for each in rounds if each.trouble is None and each.figures]
    medians: Figures = {}
    if whole:
        medians = median_of([each.figures for each in whole], maxima={"bytes_per_connection"})
    for name in FAULTS:
        counts = [count for each in rounds if (count := each.figures.get(name)) is not None]
        if counts:
            medians[name] = sum(counts)
    middle = middle_of([each.figures for each in whole], figure)
    return Measured(
        rounds=[each.figures for each in rounds],
        medians=medians,
        by_second=() if middle is None else whole[middle].by_second,
        trouble=next((each.trouble for each in rounds if each.trouble), None),
    )


def row_of(workload: Workload, mode: Mode, servers: Mapping[str, Measured]) -> Row:
    """What is kept of a workload in a mode; of bounds, those beside servers that took part."""
    return Row(
        workload=workload.name,
        title=workload.title,
        source=workload.source,
        mode=str(mode),
        figure=workload.figure,
        unit=workload.unit,
        less_is_better=workload.less_is_better,
        servers=servers,
        bounds={name: least for name, least in workload.bounds.items() if name in servers},
        at_least=workload.at_least,
        note=workload.note,
    )
