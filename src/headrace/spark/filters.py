"""What a query's filters say of the records that it can have a use for: partitions, offsets, times.

A pure part: no broker. Filters are used to read less, and for nothing else: Spark evaluates each of
them again on what is read. So what is not understood is left alone, and no record that passes may
be left out.

Of times only lower bounds are used. The broker knows the first record at or after a time; those
behind it may be older, so where a time ends, nobody knows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql.datasource import Filter

_1970: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_COMPARISONS: Final = (EqualTo, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual)


class Span(NamedTuple):
    """Whole numbers from `least` to `most`, both with it; None is no bound."""

    least: int | None = None
    most: int | None = None

    def __and__(self, other: Span) -> Span:
        return Span(
            max((n for n in (self.least, other.least) if n is not None), default=None),
            min((n for n in (self.most, other.most) if n is not None), default=None),
        )

    def holds(self, number: int) -> bool:
        """Whether it is one of them."""
        return (self.least is None or number >= self.least) and (
            self.most is None or number <= self.most
        )


EVERYTHING: Final = Span()


@dataclass(frozen=True, slots=True)
class Wanted:
    """Records that may pass all filters.

    Attributes:
        topics: their streams; None for all.
        partitions: where they are.
        among: their partitions, where these are named; None for all.
        offsets: where they lie.
        times_us: when they are from, microseconds since 1970.
    """

    topics: frozenset[str] | None = None
    partitions: Span = EVERYTHING
    among: frozenset[int] | None = None
    offsets: Span = EVERYTHING
    times_us: Span = EVERYTHING

    def may_be_in(self, topic: str, partition: int) -> bool:
        """Whether a partition can hold any."""
        return (
            (self.topics is None or topic in self.topics)
            and (self.among is None or partition in self.among)
            and self.partitions.holds(partition)
        )

    def clip(self, start: int, end: int) -> tuple[int, int]:
        """Which offsets of `[start, end)` they can have; the first may be beyond the second."""
        least, most = self.offsets
        return max(start, least or 0), end if most is None else min(end, most + 1)

    @property
    def since_ms(self) -> int | None:
        """Time of the oldest in whole milliseconds, > 0; None for no bound."""
        if self.times_us.least is None:
            return None
        ms = -(-self.times_us.least // 1000)
        return ms if ms > 0 else None  # below, numbers have a meaning of their own


def wanted(filters: Iterable[Filter]) -> Wanted:
    """What may pass each of `filters`."""
    found = Wanted()
    for each in filters:
        if isinstance(each, _COMPARISONS):
            values = each.value if isinstance(each, In) else (each.value,)
            found = _narrowed(found, each, [value for value in values if value is not None])
    return found


def _narrowed(found: Wanted, by: Any, values: Sequence[Any]) -> Wanted:  # noqa: ANN401 - a comparison
    (name, *inner) = by.attribute
    if inner or not values:
        return found
    if name == "topic" and isinstance(by, EqualTo | In):
        topics = frozenset(values)
        return replace(found, topics=topics if found.topics is None else found.topics & topics)
    if name == "timestamp" and all(_is_instant(value) for value in values):
        times = [(value - _1970) // _MICROSECOND for value in values]
        return replace(found, times_us=found.times_us & _span(by, times))
    if not all(isinstance(value, int) for value in values):
        return found
    if name == "offset":
        found = replace(found, offsets=found.offsets & _span(by, values))
    elif name == "partition":
        among = found.among
        if isinstance(by, In):
            among = frozenset(values) if among is None else among & frozenset(values)
        found = replace(found, partitions=found.partitions & _span(by, values), among=among)
    return found


def _is_instant(value: object) -> bool:
    return isinstance(value, datetime) and value.tzinfo is not None


def _span(by: Filter, values: Sequence[int]) -> Span:
    """Numbers that pass a comparison with any of `values`."""
    least, most = min(values), max(values)
    if isinstance(by, GreaterThan):
        return Span(least + 1, None)
    if isinstance(by, GreaterThanOrEqual):
        return Span(least, None)
    if isinstance(by, LessThan):
        return Span(None, most - 1)
    if isinstance(by, LessThanOrEqual):
        return Span(None, most)
    return Span(least, most)
