"""How well detections match faults that are known: precision and recall of each kind.

A pure part. A detection is right where a fault of its kind, on its GPU, was there at its time; a
fault is found where any detection was right about it. Detections of severity `info` tell what is
normal, such as a power cap at full load, and are not scored.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from headrace.collect.instants import parse_instant
from headrace.pipeline.rules import RULES
from headrace.spark.errors import PipelineError
from headrace.text import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

SLACK: Final = timedelta(minutes=3)
"""How far a detection may lie beside its fault: scrapes apart, a temperature that follows."""


@dataclass(frozen=True, slots=True)
class Known:
    """One fault on one GPU, as `headrace simulate fleet --truth` writes it."""

    kind: str
    uuid: str
    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class Score:
    """What became of one kind.

    Attributes:
        kind: of the faults.
        faults: that there were.
        found: of those.
        detections: that there are.
        right: of those.
    """

    kind: str
    faults: int
    found: int
    detections: int
    right: int

    @property
    def recall(self) -> float | None:
        """Share of the faults that were found; None without faults."""
        return self.found / self.faults if self.faults else None

    @property
    def precision(self) -> float | None:
        """Share of the detections that are right; None without detections."""
        return self.right / self.detections if self.detections else None


def read_truth(lines: Iterable[str]) -> list[Known]:
    """Faults from lines of JSON.

    Raises:
        PipelineError: a line is no fault; the message names it.
    """
    known = []
    for number, line in enumerate(lines, 1):
        try:
            fault = json.loads(line)
            start, end = (_instant(fault[name]) for name in ("start", "end"))
            known.append(Known(_text(fault["kind"]), _text(fault["uuid"]), start, end))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise PipelineError(
                f"line {number} of the truth is no fault ({error}); it must be a line that "
                "headrace simulate fleet --truth wrote"
            ) from None
    return known


def _instant(text: str) -> datetime:
    instant_us = parse_instant(_text(text))
    if instant_us is None:
        raise ValueError(f"{shown(text)} is no time with a zone")
    return _EPOCH + timedelta(microseconds=instant_us)


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    raise TypeError(f"{shown(value)} is no text")


def score(detections: Sequence[Mapping[str, Any]], known: Sequence[Known]) -> list[Score]:
    """The score of each kind, in the order of the rules.

    Args:
        detections: rows of the table `detections`.
        known: all faults that there were.
    """
    return [
        _of_kind(
            rule.kind,
            [row for row in detections if row["kind"] == rule.kind and row["severity"] != "info"],
            [fault for fault in known if fault.kind == rule.kind],
        )
        for rule in RULES
    ]


def _of_kind(kind: str, rows: Sequence[Mapping[str, Any]], faults: Sequence[Known]) -> Score:
    pairs = [(row, fault) for row in rows for fault in faults if _meet(row, fault)]
    right = {row["id"] for row, _ in pairs}
    found = {fault for _, fault in pairs}
    return Score(kind, len(faults), len(found), len(rows), len(right))


def _meet(row: Mapping[str, Any], fault: Known) -> bool:
    return bool(
        row["uuid"] == fault.uuid
        and row["start"] <= fault.end + SLACK
        and row["last"] >= fault.start - SLACK
    )
