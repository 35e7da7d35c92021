"""A fleet's report: what the tables say of some time, gathered for a person.

Owns which rows that takes. Prints nothing; `cli.report` shows it, `fleet_page` makes a page of it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any, Final

import pyarrow.compute as pc

from headrace.pipeline import fleet, tables
from headrace.pipeline.folder import Folder
from headrace.pipeline.rules import SEVERITIES
from headrace.pipeline.schemas import DETECTIONS, GPU_HOURS, GPU_MINUTES, arrow_schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from headrace.pipeline.fleet import Idle
    from headrace.pipeline.folder import Location
    from headrace.pipeline.manifest import Manifest

_1970: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_NEVER_US: Final = 1 << 62

_BY_MINUTE: Final = timedelta(hours=6)
"""Time up to which the course is told by minutes; beyond, by hours."""


@dataclass(frozen=True, slots=True)
class FleetReport:
    """What there is to say.

    Attributes:
        version: of the tables.
        start, end: first and last instant of the hours that count; None where there are none.
        whole: the fleet (`fleet.FIGURES`).
        parts: the same by `fleet.GROUPS`, what costs most first.
        idle: GPUs that were held and did nothing, what cost most first.
        detections: those that are open, the worst first; without `info`.
        found: detections in those hours by kind, without `info`.
        series: `fleet.series`.
    """

    version: int
    start: datetime | None
    end: datetime | None
    whole: Mapping[str, Any]
    parts: Mapping[str, Sequence[Mapping[str, Any]]]
    idle: Sequence[Idle]
    detections: Sequence[Mapping[str, Any]]
    found: Mapping[str, int]
    series: Sequence[Mapping[str, Any]]

    def as_json(self, top: int) -> dict[str, Any]:
        """As one object; lists that a fleet makes long are cut to `top`."""
        return {
            "version": self.version,
            "start": self.start and self.start.isoformat(),
            "end": self.end and self.end.isoformat(),
            "fleet": dict(self.whole),
            **{name: [dict(row) for row in rows[:top]] for name, rows in self.parts.items()},
            "idle_allocated": [asdict(each) for each in self.idle[:top]],
            "open": [_detection(row) for row in self.detections],
            "found": dict(self.found),
            "series": [{**row, "start": row["start"].isoformat()} for row in self.series],
        }


def gathered(tables_dir: Location, start: datetime | None, end: datetime | None) -> FleetReport:
    """The report of the hours that begin within a time; None is no bound.

    Raises:
        PipelineError: there are no tables, or they cannot be read.
    """
    folder = Folder.at(tables_dir)
    held = tables.committed(folder)
    hours = _within(folder, held, GPU_HOURS, start, end)
    rows = _within(folder, held, DETECTIONS, None, None).to_pylist()
    loads = fleet.loads(hours)
    parts = fleet.summary(loads)
    (whole,) = parts.pop("fleet")
    begin, until = pc.min(hours["active_from"]).as_py(), pc.max(hours["active_to"]).as_py()
    course = hours
    if begin is not None and until - begin <= _BY_MINUTE:
        course = _within(folder, held, GPU_MINUTES, begin - timedelta(minutes=1), until)
    serious = [row for row in rows if row["severity"] != "info"]
    bounds = fleet.hours_within(start, end)
    at_the_time = [row for row in serious if _holds(row, *bounds)]
    return FleetReport(
        version=held.version,
        start=begin,
        end=until,
        whole=whole,
        parts=parts,
        idle=fleet.idle(rows, loads, *bounds),
        detections=sorted(
            (row for row in serious if row["end"] is None),
            key=lambda row: (-SEVERITIES.index(row["severity"]), row["start"], row["id"]),
        ),
        found={
            kind: sum(row["kind"] == kind for row in at_the_time)
            for kind in sorted({row["kind"] for row in at_the_time})
        },
        series=fleet.series(course),
    )


def _within(
    folder: Folder, held: Manifest, table: str, start: datetime | None, end: datetime | None
) -> pa.Table:
    """The rows of a table that begin within a time, ends included; no other file is opened."""
    first_us = -_NEVER_US if start is None else (start - _1970) // _MICROSECOND
    last_us = _NEVER_US if end is None else (end - _1970) // _MICROSECOND
    files = [file.path for file in held.of(table) if file.overlaps(first_us, last_us + 1)]
    begins, bounds = pc.field("start"), []
    if start is not None:
        bounds.append(begins >= start)
    if end is not None:
        bounds.append(begins <= end)
    only = reduce(and_, bounds) if bounds else None
    return folder.dataset(files, arrow_schema(table)).to_table(filter=only)


def _holds(row: Mapping[str, Any], start: datetime | None, end: datetime | None) -> bool:
    begins_in_time = end is None or row["start"] < end
    return begins_in_time and (start is None or row["end"] is None or row["end"] >= start)


def _detection(row: Mapping[str, Any]) -> dict[str, Any]:
    times = {name: row[name] and row[name].isoformat() for name in ("start", "end", "last")}
    return {**row, **times, "evidence": dict(row["evidence"] or ())}
