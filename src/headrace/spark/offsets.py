"""Offsets of a query: their one written form, how much a micro-batch takes, who reads what.

A pure part: no broker, no Spark. Invariants: the same offsets have one text, because Spark
compares texts and would loop over a second spelling; an end never lies before its start; the
ranges of a plan cover exactly `[start, end)` of each partition, each record once.
"""

from __future__ import annotations

from bisect import bisect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace import job_limits, limits
from headrace.spark.errors import OffsetError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Offsets = dict[str, dict[int, int]]
"""Stream, partition, next offset to read."""


@dataclass(frozen=True, slots=True)
class Range:
    """Records `[start, end)` of one partition."""

    stream: str
    partition: int
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.stream}/{self.partition} [{self.start}, {self.end})"


def dump(offsets: Mapping[str, Mapping[int, int]]) -> dict[str, dict[str, int]]:
    """The one form in which Spark is handed offsets: sorted, partitions as text."""
    return {
        stream: {str(partition): offsets[stream][partition] for partition in sorted(by)}
        for stream, by in sorted(offsets.items())
    }


def load(written: Any) -> Offsets:  # noqa: ANN401 - JSON out of a checkpoint
    """Reads what `dump` wrote.

    Raises:
        OffsetError: it is something else.
    """
    try:
        return {
            stream: {int(partition): _held(int(offset)) for partition, offset in by.items()}
            for stream, by in written.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise OffsetError(
            f"the checkpoint holds offsets that are not of this source: {written!r}; give the "
            "query a checkpoint of its own"
        ) from None


def _held(offset: int) -> int:
    if not 0 <= offset <= limits.INT64_MAX:
        raise ValueError(offset)
    return offset


def advance(start: Offsets, latest: Offsets) -> Offsets:
    """`latest`, which must not lie before `start`; a partition that is new starts at 0.

    Raises:
        OffsetError: a stream has vanished, or one of its logs is shorter than what was read.
    """
    for stream, by in start.items():
        if stream not in latest:
            raise OffsetError(
                f"stream {stream} is gone; create it again and start with a new checkpoint"
            )
        for partition, offset in by.items():
            end = latest[stream].get(partition)
            if end is None or end < offset:
                raise OffsetError(
                    f"{stream}/{partition} ends at {end}, and {offset} records were read of it: "
                    "the stream was deleted and created anew; start with a new checkpoint"
                )
    return latest


def clip(start: Offsets, latest: Offsets, target: Offsets) -> Offsets:
    """`latest` up to `target`, but never before `start`; what `target` lacks is left out."""
    return {
        stream: {
            partition: max(
                start.get(stream, {}).get(partition, 0),
                min(latest[stream].get(partition, offset), offset),
            )
            for partition, offset in by.items()
        }
        for stream, by in target.items()
        if stream in latest
    }


def admit(start: Offsets, latest: Offsets, records_max: int) -> Offsets:
    """An end with at most `records_max` new records, each partition in proportion to its lag.

    A share below one record is one, while there are as many records: otherwise a partition with a
    little would wait for all that has much. Fractions go to the partitions that lose most by
    rounding, so that all `records_max` are used.
    """
    lags = {(r.stream, r.partition): len(r) for r in ranges(start, latest)}
    total = sum(lags.values())
    if total <= records_max:
        return latest
    taken: dict[tuple[str, int], int] = {}
    if len(lags) <= records_max:
        # What the small ones take lowers the shares of the others, which may fall below one by it.
        while small := [key for key, lag in lags.items() if lag * records_max < total]:
            taken |= dict.fromkeys(small, 1)
            records_max -= len(small)
            total -= sum(lags.pop(key) for key in small)
    shares = {key: divmod(lag * records_max, total) for key, lag in lags.items()}
    spare = records_max - sum(whole for whole, _ in shares.values())
    lucky = sorted(shares, key=lambda key: (-shares[key][1], key))[:spare]
    taken |= {key: whole + (key in lucky) for key, (whole, _) in shares.items()}
    return {
        stream: {
            partition: start.get(stream, {}).get(partition, 0) + taken.get((stream, partition), 0)
            for partition in by
        }
        for stream, by in latest.items()
    }


def ranges(start: Offsets, end: Offsets) -> list[Range]:
    """What lies between, without empty ranges, sorted; a partition that is new starts at 0.

    Raises:
        OffsetError: an end lies before its start.
    """
    found = []
    for stream, by in sorted(end.items()):
        for partition, stop in sorted(by.items()):
            begin = start.get(stream, {}).get(partition, 0)
            if stop < begin:
                raise OffsetError(f"{stream}/{partition} would be read from {begin} back to {stop}")
            if stop > begin:
                found.append(Range(stream, partition, begin, stop))
    return found


def plan(
    wanted: Sequence[Range], tasks_max: int, tasks_min: int | None = None, *, whole: bool = False
) -> list[tuple[Range, ...]]:
    """Divides ranges among tasks: all records in a row, cut into pieces of equal length.

    Where ranges must stay `whole`, each goes to the piece in which most of it lies.

    Args:
        wanted: ranges to read.
        tasks_max: tasks at most, > 0.
        tasks_min: tasks at least, where there are as many records.
        whole: whether no range may be cut.
    """
    total = sum(map(len, wanted))
    tasks = min(tasks_max, -(-total // job_limits.SPARK_TASK_RECORDS_MIN))
    tasks = min(max(tasks, tasks_min or 0), total)
    cuts = [total * at // tasks for at in range(1, tasks)] if tasks else []
    pieces = _dealt(wanted, cuts) if whole else _cut(wanted, cuts)
    return [tuple(piece) for piece in pieces if piece]


def left(
    tasks: Iterable[tuple[Range, ...]], earliest: Mapping[str, Mapping[int, int]]
) -> list[tuple[Range, ...]]:
    """The tasks without the records before `earliest`; what that does not name is whole.

    As many tasks, in the same order, even where nothing is left of one: a sink that repeats a
    micro-batch tells what was written by the numbers of its tasks.
    """
    return [
        tuple(
            Range(part.stream, part.partition, max(part.start, first), part.end)
            for part in task
            if (first := earliest.get(part.stream, {}).get(part.partition, 0)) < part.end
        )
        for task in tasks
    ]


def _dealt(wanted: Iterable[Range], cuts: Sequence[int]) -> list[list[Range]]:
    pieces: list[list[Range]] = [[] for _ in range(len(cuts) + 1)]
    passed = 0
    for part in wanted:
        pieces[bisect(cuts, passed + len(part) // 2)].append(part)
        passed += len(part)
    return pieces


def _cut(wanted: Iterable[Range], cuts: Sequence[int]) -> list[list[Range]]:
    pieces: list[list[Range]] = [[]]
    passed = 0
    for whole in wanted:
        rest = whole
        while len(pieces) <= len(cuts) and passed + len(rest) > cuts[len(pieces) - 1]:
            at = rest.start + cuts[len(pieces) - 1] - passed
            head = Range(rest.stream, rest.partition, rest.start, at)
            if len(head):
                pieces[-1].append(head)
            passed += len(head)
            rest = Range(rest.stream, rest.partition, at, rest.end)
            pieces.append([])
        pieces[-1].append(rest)
        passed += len(rest)
    return pieces
