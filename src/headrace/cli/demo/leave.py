"""What a run of the demo leaves: its results as numbers and files.

Owns `report.json`, `chart.png` and the plain folders of Parquet files. Prints nothing.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from headrace.pipeline import report, tables
from headrace.pipeline.chart import save_chart
from headrace.pipeline.schemas import DETECTIONS, GPU_INTERVALS, QUARANTINE, SCHEMAS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from headrace.cli.demo.run import Folder, Outcome
    from headrace.pipeline.report import Load, Refused


@dataclass(frozen=True, slots=True)
class Results:
    """All there is to show.

    Attributes:
        outcome: the line and what is wrong with it.
        seconds: of the whole command.
        loads: what each GPU did.
        detections: faults that were found, in the order of their start.
        refused: what was quarantined.
        tables: a folder of Parquet files for each table, which any Parquet reader takes.
        chart: the picture, or None where there was nothing to draw.
        folder: everything.
    """

    outcome: Outcome
    seconds: float
    loads: Sequence[Load]
    detections: Sequence[Mapping[str, Any]]
    refused: Sequence[Refused]
    tables: dict[str, Path]
    chart: Path | None
    folder: Path

    def as_json(self) -> dict[str, Any]:
        """The object of `--json`, without the loads' inner details."""
        return {
            **asdict(self.outcome.account),
            "seconds": round(self.seconds, 3),
            "tables": {name: str(path) for name, path in self.tables.items()},
            "loads": [_load(load) for load in self.loads],
            "detections": [_detection(found) for found in self.detections],
            "reasons": report.totals_by_reason(self.refused),
            "parts": {name: round(value, 3) for name, value in self.outcome.seconds.items()},
            "chart": None if self.chart is None else str(self.chart),
            "data": str(self.folder),
        }


def results(outcome: Outcome, folder: Folder, seconds: float) -> Results:
    """Reads the tables, and writes the files beside them."""
    intervals = tables.open_arrow(folder.tables, GPU_INTERVALS).to_table(
        list(report.INTERVAL_COLUMNS)
    )
    quarantine = tables.open_arrow(folder.tables, QUARANTINE).to_table(["reason", "metric", "raw"])
    chart = folder.root / "chart.png"
    found = Results(
        outcome=outcome,
        seconds=seconds,
        loads=report.loads(intervals),
        detections=tables.open_arrow(folder.tables, DETECTIONS)
        .to_table()
        .sort_by([("start", "ascending"), ("id", "ascending")])
        .to_pylist(),
        refused=report.refused(quarantine),
        tables={name: _plain_folder(folder, name) for name in SCHEMAS},
        chart=chart if save_chart(intervals, chart) else None,
        folder=folder.root,
    )
    (folder.root / "report.json").write_text(json.dumps(found.as_json(), indent=1) + "\n")
    return found


def _load(load: Load) -> dict[str, Any]:
    return {
        **asdict(load),
        "start": load.start.isoformat(),
        "seconds": round(load.seconds, 3),
    }


def _detection(found: Mapping[str, Any]) -> dict[str, Any]:
    names = ("kind", "uuid", "gpu_i_id", "host", "pod", "severity", "text")
    ends = {name: found[name] and found[name].isoformat() for name in ("start", "end")}
    return {**{name: found[name] for name in names}, **ends, "evidence": dict(found["evidence"])}


def _plain_folder(folder: Folder, table: str) -> Path:
    """The live files of a table, linked into a folder of their own.

    Readers that know no manifest see exactly them. A table without rows is a file without rows.
    """
    target = folder.root / "parquet" / table
    target.mkdir(parents=True)
    live = tables.manifest(folder.tables).of(table)
    for number, file in enumerate(live):
        _same(folder.tables / file.path, target / f"{number:05}.parquet")
    if not live:
        schema = tables.open_arrow(folder.tables, table).schema
        pq.write_table(schema.empty_table(), target / "00000.parquet")
    return target


def _same(file: Path, name: Path) -> None:
    """Another name for `file`, or a copy where the file system has no links."""
    try:
        os.link(file, name)
    except OSError:
        shutil.copy2(file, name)
