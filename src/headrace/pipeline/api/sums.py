"""What the fleet did in some time, put together from what each file says.

A file of a day is summed up once, when its version comes (`snapshot.Snapshot.hours`); of a time
that cuts through a file its hours are read.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace.pipeline import fleet
from headrace.pipeline.api.asked import EPOCH, time_text
from headrace.pipeline.schemas import GPU_HOURS, arrow_schema

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from headrace.pipeline.api.asked import SummaryAsked
    from headrace.pipeline.api.snapshot import Snapshot
    from headrace.pipeline.folder import Folder
    from headrace.pipeline.manifest import TableFile

_KEPT: Final = 32
"""Answers that are given again while the tables have not changed: a dashboard asks the same."""

_TIMES: Final = ("start", "end", "last")


class Sums:
    """Summaries of a folder of tables."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._held: OrderedDict[tuple[Any, ...], dict[str, Any]] = OrderedDict()

    def summary(self, snapshot: Snapshot, asked: SummaryAsked) -> dict[str, Any]:
        """The fleet in the hours that begin within a time, all of them where none is named.

        Raises:
            FileNotFoundError: the snapshot is older than its files are kept.
        """
        key = (snapshot.manifest.version, asked.start_time, asked.end_time, asked.top)
        with self._lock:
            found = self._held.get(key)
        if found is None:
            found = self._made(snapshot, asked)
            with self._lock:
                self._held[key] = found
                while len(self._held) > _KEPT:
                    self._held.popitem(last=False)
        return found

    def _made(self, snapshot: Snapshot, asked: SummaryAsked) -> dict[str, Any]:
        times = [(file.min_time_us, file.max_time_us) for file in snapshot.hours]
        first_us = min((low for low, _ in times if low is not None), default=0)
        last_us = max((high for _, high in times if high is not None), default=0)
        start_us = first_us if asked.start_time is None else asked.start_time
        end_us = last_us if asked.end_time is None else asked.end_time
        parts = list(self._loads(snapshot, start_us, end_us))
        loads = pa.concat_tables(parts) if parts else fleet.loads(_EMPTY)
        told = fleet.summary(loads, asked.top)
        bounds = fleet.hours_within(_time(asked.start_time), _time(asked.end_time))
        idle = fleet.idle(_idle_ones(snapshot.detections), loads, *bounds)
        kinds = snapshot.detections.filter(pc.is_null(snapshot.detections["end"]))["kind"]
        return {
            "start_time": time_text(start_us),
            "end_time": time_text(end_us),
            "fleet": told.pop("fleet")[0],
            **told,
            "idle_allocated": [asdict(each) for each in idle[: asked.top]],
            "open": dict(sorted(Counter(kinds.to_pylist()).items())),
        }

    def _loads(self, snapshot: Snapshot, start_us: int, end_us: int) -> Iterator[pa.Table]:
        cut = []
        for file, whole in snapshot.hours.items():
            if not file.overlaps(start_us, end_us + 1):
                continue
            low, high = file.min_time_us, file.max_time_us
            assert low is not None, "it overlaps"
            assert high is not None, "it overlaps"
            if start_us <= low and high <= end_us:
                yield whole
            else:
                cut.append(self._between(file, start_us, end_us))
        if cut:
            yield fleet.loads(pa.concat_tables(cut))

    def _between(self, file: TableFile, start_us: int, end_us: int) -> pa.Table:
        rows = self._folder.dataset([file.path], arrow_schema(GPU_HOURS)).to_table(
            list(fleet.HOURS)
        )
        start = rows["start"].cast(pa.int64())
        return rows.filter(pc.and_(pc.greater_equal(start, start_us), pc.less_equal(start, end_us)))


_EMPTY: Final = arrow_schema(GPU_HOURS).empty_table()


def _time(micros: int | None) -> datetime | None:
    return None if micros is None else EPOCH + timedelta(microseconds=micros)


def _idle_ones(detections: pa.Table) -> Iterator[dict[str, Any]]:
    """Detections of idle GPUs with times as `fleet.idle` takes them."""
    found = detections.filter(pc.equal(detections["kind"], "idle_allocated"))
    for row in found.drop_columns(["evidence", "text"]).to_pylist():
        for name in _TIMES:
            if row[name] is not None:
                row[name] = EPOCH + timedelta(microseconds=row[name])
        yield row
