"""Figures of several rounds: medians, and one server's beside another's. Pure."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

Figures = dict[str, float | None]
"""Numbers by name, in base units; None for what there is nothing to say of."""


def median_of(
    rows: Sequence[Mapping[str, float | None]],
    *,
    sums: Collection[str] = (),
    maxima: Collection[str] = (),
) -> Figures:
    """The median of each figure over rounds; of `sums`, which should be 0, the sum."""
    result: Figures = {}
    for name in rows[0]:
        values = [value for row in rows if (value := row[name]) is not None]
        of_all = sum if name in sums else max if name in maxima else statistics.median
        result[name] = of_all(values) if values else None
    return result


def middle_of(rows: Sequence[Mapping[str, float | None]], name: str) -> int | None:
    """The round whose figure is nearest to the median; None where none has it."""
    values = [
        (value, index) for index, row in enumerate(rows) if (value := row.get(name)) is not None
    ]
    if not values:
        return None
    median = statistics.median(value for value, _ in values)
    return min(values, key=lambda each: abs(each[0] - median))[1]


def ratios_of(
    ours: Mapping[str, float | None], theirs: Mapping[str, float | None], but: Collection[str] = ()
) -> dict[str, float]:
    """The first one's figures over the second's."""
    return {
        name: value / other
        for name, value in ours.items()
        if name not in but and value is not None and (other := theirs.get(name))
    }
