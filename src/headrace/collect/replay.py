"""Traces played again: for more GPUs than they hold, and round after round.

Owns how a copy differs from its trace: ids, hosts and event times. A reading whose event time
names no instant keeps its text and its place. Draws nothing at random: the same trace gives the
same replay.
"""

from __future__ import annotations

import heapq
import uuid
from collections import Counter
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace.collect.instants import format_instant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from headrace.collect.readings import Reading

_NAMESPACE: Final = uuid.UUID("6b0d52f4-2f0a-5f0e-9d3c-0c1f4a4e7a51")
_GPUS_PER_HOST: Final = 8
_MILLISECOND_US: Final = 1_000
_SECOND_US: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Span:
    """Where a trace lies in time: first and last instant, and the mean step between instants.

    Attributes:
        first_us: the earliest event time, in microseconds since the epoch.
        last_us: the latest.
        step_us: mean distance of neighbouring event times; one second where there is only one.
    """

    first_us: int
    last_us: int
    step_us: int

    @classmethod
    def of(cls, readings: Iterable[Reading]) -> Span:
        """The span of `readings`; those without an instant do not count."""
        instants = {reading.event_us for reading in readings if reading.event_us is not None}
        if len(instants) < 2:
            first = min(instants, default=0)
            return cls(first, first, _SECOND_US)
        first, last = min(instants), max(instants)
        return cls(first, last, max((last - first) // (len(instants) - 1), 1))

    @property
    def period_us(self) -> int:
        """A shift after which no event time meets another: length and step, in whole ms."""
        length = self.last_us - self.first_us + self.step_us
        return -(-length // _MILLISECOND_US) * _MILLISECOND_US


def shifted(reading: Reading, shift_us: int) -> Reading:
    """`reading` at another time; unchanged where its text names no instant."""
    if reading.event_us is None or not shift_us:
        return reading
    event_us = reading.event_us + shift_us
    return replace(reading, timestamp=format_instant(event_us), event_us=event_us)


def replayed(trace: Iterable[Reading], gpus: int | None, *, loop: bool) -> Iterator[Reading]:
    """A trace as asked for: as it is, for `gpus` GPUs, once or without end.

    A fleet holds the trace in memory; else `trace` is iterated anew in each round.
    """
    if gpus is not None:
        rows = list(trace)
        # Starts are spread over one period, so a round lasts two.
        return _rounds(lambda: fleet(rows, gpus), 2 * Span.of(rows).period_us, loop=loop)
    return _rounds(lambda: trace, Span.of(trace).period_us if loop else 0, loop=loop)


def readings_of(trace: Iterable[Reading], gpus: int | None) -> int:
    """How many readings one round of `replayed` has."""
    counts = Counter(map(_identity, trace))
    if gpus is None or not counts:
        return counts.total()
    whole, rest = divmod(gpus, len(counts))
    return whole * counts.total() + sum(list(counts.values())[:rest])


def _rounds(
    play: Callable[[], Iterable[Reading]], period_us: int, *, loop: bool
) -> Iterator[Reading]:
    """Plays once, or over and over, each round one period later, until a round is empty."""
    for turn in count():
        empty = True
        for reading in play():
            empty = False
            yield shifted(reading, turn * period_us)
        if empty or not loop:
            return


def fleet(trace: Sequence[Reading], gpus: int) -> Iterator[Reading]:
    """The trace for `gpus` GPUs, in the order of event time.

    The trace's own GPUs come first, as they are; where there are more of them than asked for, the
    first ones are taken. Copies get ids drawn from the original id and the number of the copy,
    and a start that is shifted by equal parts of the trace's length. Copies of a single GPU fill
    hosts of eight; copies of several GPUs keep their slots on hosts of their own.
    """
    originals: dict[tuple[str, ...], list[tuple[int, Reading]]] = {}
    for order, reading in enumerate(trace):
        originals.setdefault(_identity(reading), []).append((order, reading))
    if not originals:
        return
    copies = -(-gpus // len(originals))
    slots = _GPUS_PER_HOST if len(originals) == 1 else 1
    length_us = Span.of(trace).period_us
    places = [
        _Place(copy, copy // slots, copy % slots if slots > 1 else None, length_us * copy // copies)
        for copy in (gpu // len(originals) for gpu in range(gpus))
    ]
    rows = list(originals.values())
    plays = [_play(rows[gpu % len(rows)], place, gpu) for gpu, place in enumerate(places)]
    for _, _, gpu, reading in heapq.merge(*plays):
        yield _copied(reading, places[gpu])


class _Place(NamedTuple):
    """Where a copy stands, and when it starts."""

    copy: int
    host: int
    slot: int | None
    """Index within the host, or None to keep the original's."""
    shift_us: int


def _identity(reading: Reading) -> tuple[str, ...]:
    """What tells GPUs apart, also those whose id is missing."""
    return (reading.uuid,) if reading.uuid else (reading.host, reading.device)


def _play(
    rows: Iterable[tuple[int, Reading]], place: _Place, gpu: int
) -> Iterator[tuple[int, int, int, Reading]]:
    """`(time, place in the trace, GPU, reading)`: the first three are unique together."""
    at_us = 0
    for order, reading in rows:
        # The merge needs each play sorted; a late or timeless reading keeps its place.
        at_us = max(at_us, reading.event_us or 0)
        yield at_us + place.shift_us, order, gpu, reading


def _copied(reading: Reading, place: _Place) -> Reading:
    if not place.copy:
        return reading
    labels = dict(reading.labels)
    device = reading.device
    if place.slot is not None:
        device, labels["gpu"] = f"nvidia{place.slot}", str(place.slot)
    return replace(
        shifted(reading, place.shift_us),
        uuid=_copied_id(reading.uuid, place.copy),
        device=device,
        host=f"{reading.host}-{place.host + 1}" if place.host else reading.host,
        labels=labels,
    )


@lru_cache(maxsize=8192)
def _copied_id(original: str, copy: int) -> str:
    return f"GPU-{uuid.uuid5(_NAMESPACE, f'{original}/{copy}')}" if original else ""
