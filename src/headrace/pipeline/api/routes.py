"""The routes of `headrace api`. Translate, never decide.

A route is a function of a snapshot and of what was asked, run on a thread: reading files and
computing would hold up the loop.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import pyarrow.compute as pc

from headrace.adapters.answers import bad_request
from headrace.dcgm.fields import BY_NAME
from headrace.errors import HeadraceError
from headrace.pipeline import fleet
from headrace.pipeline.api.asked import (
    DetectionsAsked,
    GpusAsked,
    Nothing,
    SummaryAsked,
    TelemetryAsked,
    time_text,
    written,
)
from headrace.pipeline.api.files import Files
from headrace.pipeline.api.snapshot import LATEST
from headrace.pipeline.api.sums import Sums
from headrace.pipeline.api.telemetry import NEVER_US, Telemetry
from headrace.pipeline.rules import RULES
from headrace.text import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import pyarrow as pa

    from headrace.adapters.answers import Fields
    from headrace.pipeline.api.snapshot import Gpu, GpuId, Snapshot
    from headrace.pipeline.folder import Folder

KINDS: Final = tuple(rule.kind for rule in RULES)


class UnknownGpuError(HeadraceError):
    """No GPU of this id is in the tables."""

    http_status = 404


@dataclass(frozen=True, slots=True)
class Route:
    """One path of the API.

    Attributes:
        path: with `{id}` where it names a GPU.
        asked: what its query may hold.
        summary: what it answers, in a sentence.
        shape: the answer's fields, each with what it is.
        answer: makes the answer.
    """

    path: str
    asked: type[Fields]
    summary: str
    shape: Mapping[str, str]
    answer: Callable[[Snapshot, str, Any], dict[str, Any]]


class Routes:
    """What can be asked of a folder of tables."""

    def __init__(self, folder: Folder) -> None:
        self._telemetry = Telemetry(Files(folder))
        self._sums = Sums(folder)

    def close(self) -> None:
        """Ends its threads."""
        self._telemetry.close()

    def all(self) -> list[Route]:
        """Every route."""
        return [
            Route(
                "/api/v1/gpus", GpusAsked, "GPUs, and MIG slices, by UUID.",
                {"gpus": "GPUs", **_PAGED}, self._gpus,
            ),
            Route(
                "/api/v1/gpus/{id}", Nothing,
                "One GPU, the values of its last minute, and its detections that are open.",
                {"gpu": "the GPU", "latest": "values, or null", "detections": "open ones"},
                self._gpu,
            ),
            Route(
                "/api/v1/gpus/{id}/telemetry", TelemetryAsked,
                "Readings of one GPU, or what windows of time make of them, by time.",
                {
                    "gpu": "the GPU's id", "source": "table that answered",
                    "telemetry": "readings or windows", **_PAGED,
                },
                self._readings,
            ),
            Route(
                "/api/v1/gpus/{id}/metrics", Nothing,
                "Metrics that a GPU has reported in its last hour.",
                {"gpu": "the GPU's id", "metrics": "name, unit, last time and value of each"},
                self._metrics,
            ),
            Route(
                "/api/v1/detections", DetectionsAsked, "Faults that were found, newest first.",
                {"detections": "detections", **_PAGED}, self._detections,
            ),
            Route(
                "/api/v1/fleet/summary", SummaryAsked,
                "What the fleet did in whole hours of some time, and what that cost.",
                {
                    "fleet": "the whole", **{name: f"the same by {name}" for name in fleet.GROUPS},
                    "idle_allocated": "GPUs that were held and did nothing",
                    "open": "open detections by kind", "start_time": "of the hours",
                    "end_time": "of the hours",
                },
                self._summary,
            ),
        ]  # fmt: skip

    def _gpus(self, snapshot: Snapshot, _id: str, asked: GpusAsked) -> dict[str, Any]:
        after = None if asked.next is None else _pair(asked.next[1])
        found = [
            gpu
            for gpu in snapshot.gpus.values()
            if (after is None or gpu.id > after) and _is_meant(gpu, asked)
        ][: asked.limit + 1]
        page = found[: asked.limit]
        following = (0, json.dumps(page[-1].id)) if len(found) > len(page) else None
        return {"gpus": [_told(snapshot, gpu) for gpu in page], **_next(following)}

    def _gpu(self, snapshot: Snapshot, name: str, _asked: Nothing) -> dict[str, Any]:
        gpu = _find(snapshot, name)
        rows = snapshot.detections
        mine = pc.and_(pc.equal(rows["uuid"], gpu.id[0]), pc.equal(rows["gpu_i_id"], gpu.id[1]))
        still = rows.filter(pc.and_(mine, pc.is_null(rows["end"])))
        latest = gpu.latest and {
            "time": time_text(gpu.latest["start_us"]),
            **{column: gpu.latest[column] for column in LATEST},
        }
        return {
            "gpu": _told(snapshot, gpu),
            "latest": latest,
            "detections": [_detection(row) for row in still.to_pylist()],
        }

    def _readings(self, snapshot: Snapshot, name: str, asked: TelemetryAsked) -> dict[str, Any]:
        gpu = _find(snapshot, name)
        page = self._telemetry.page(snapshot, gpu, asked)
        if not page.rows and page.following is None and asked.metric_name is not None:
            self._check_metric(snapshot, gpu, asked.metric_name)
        for row in page.rows:
            for column in ("timestamp", "start", "end"):
                if column in row:
                    row[column] = time_text(row[column])
        return {
            "gpu": _name(gpu),
            "source": page.source,
            "telemetry": page.rows,
            **_next(page.following),
        }

    def _check_metric(self, snapshot: Snapshot, gpu: Gpu, name: str) -> None:
        """Refuses a metric that nobody knows: nothing would ever be found of it."""
        if name not in BY_NAME and not self._telemetry.may_have(snapshot, gpu, name):
            reported = [row["metric_name"] for row in self._telemetry.metrics(snapshot, gpu)]
            known = dict.fromkeys([*reported, *BY_NAME])
            raise bad_request(f"metric_name: no such metric; {nearest(name, known)}")

    def _metrics(self, snapshot: Snapshot, name: str, _asked: Nothing) -> dict[str, Any]:
        gpu = _find(snapshot, name)
        found = self._telemetry.metrics(snapshot, gpu)
        for row in found:
            row["last_time"] = time_text(row["last_time"])
        return {"gpu": _name(gpu), "metrics": found}

    def _detections(self, snapshot: Snapshot, _id: str, asked: DetectionsAsked) -> dict[str, Any]:
        if asked.kind is not None and asked.kind not in KINDS:
            raise bad_request(f"kind: no such kind; {nearest(asked.kind, KINDS)}")
        rows = snapshot.detections
        fits = list(_conditions(rows, asked))
        if fits:
            rows = rows.filter(reduce(pc.and_, fits))
        found = rows.slice(0, asked.limit + 1).to_pylist()
        page = found[: asked.limit]
        following = (page[-1]["start"], page[-1]["id"]) if len(found) > len(page) else None
        return {"detections": [_detection(row) for row in page], **_next(following)}

    def _summary(self, snapshot: Snapshot, _id: str, asked: SummaryAsked) -> dict[str, Any]:
        return self._sums.summary(snapshot, asked)


_PAGED: Final = {"next": "where the next page begins, or null"}


def _next(following: tuple[int, str] | None) -> dict[str, str | None]:
    return {"next": None if following is None else written(following)}


def _name(gpu: Gpu) -> str:
    """How a GPU is named: its UUID, for a slice with `/` and its id."""
    uuid, gpu_i_id = gpu.id
    return f"{uuid}/{gpu_i_id}" if gpu_i_id else uuid


def _pair(text: str) -> GpuId:
    """The id that a cursor carries; of its name alone it would be a guess."""
    try:
        uuid, gpu_i_id = json.loads(text)
        if type(uuid) is str and type(gpu_i_id) is str:
            return uuid, gpu_i_id
    except (ValueError, TypeError, RecursionError):
        pass
    raise bad_request("next: must be the next of the page before")


def _find(snapshot: Snapshot, name: str) -> Gpu:
    """The GPU of this name; a UUID may hold `/` itself, as those of MIG devices did before R470.

    Raises:
        UnknownGpuError: it is not in the tables.
    """
    board, _, gpu_i_id = name.rpartition("/")
    found = snapshot.gpus.get((name, "")) or snapshot.gpus.get((board, gpu_i_id))
    if found is not None:
        return found
    slices = [_name(gpu) for gpu in snapshot.gpus.values() if gpu.id[0] in {name, board}]
    if slices:
        raise UnknownGpuError(
            f"no GPU {name!r} is in the tables; of its board there are, with / as %2F in a path: "
            f"{', '.join(slices[:8])}"
        )
    raise UnknownGpuError(f"no GPU {name!r} is in the tables; GET /api/v1/gpus lists them")


def _is_meant(gpu: Gpu, asked: GpusAsked) -> bool:
    return (
        asked.host in {None, gpu.place["host"]}
        and asked.model in {None, gpu.place["model"]}
        and asked.namespace in {None, gpu.load["namespace"]}
        and asked.pod in {None, gpu.load["pod"]}
    )


def _told(snapshot: Snapshot, gpu: Gpu) -> dict[str, Any]:
    uuid, gpu_i_id = gpu.id
    return {
        "id": _name(gpu),
        "uuid": uuid,
        "gpu_i_id": gpu_i_id,
        **gpu.place,
        **gpu.load,
        "first_seen": time_text(gpu.first_us),
        "last_seen": time_text(gpu.last_us),
        "open_detections": snapshot.open.get(gpu.id, 0),
    }


def _conditions(rows: pa.Table, asked: DetectionsAsked) -> Iterable[Any]:
    for column in ("kind", "severity", "host", "uuid"):
        value = getattr(asked, column)
        if value is not None:
            yield pc.equal(rows[column], value)
    if asked.open is not None:
        yield pc.is_null(rows["end"]) if asked.open else pc.is_valid(rows["end"])
    if asked.end_time is not None:
        yield pc.less_equal(rows["start"], asked.end_time)
    if asked.start_time is not None:
        yield pc.greater_equal(pc.fill_null(rows["end"], NEVER_US), asked.start_time)
    if asked.next is not None:
        at_us, name = asked.next
        is_same = pc.and_(pc.equal(rows["start"], at_us), pc.greater(rows["id"], name))
        yield pc.or_(pc.less(rows["start"], at_us), is_same)


def _detection(row: Mapping[str, Any]) -> dict[str, Any]:
    told = dict(row)
    for column in ("start", "end", "last"):
        told[column] = None if row[column] is None else time_text(row[column])
    return told | {"evidence": dict(row["evidence"] or ())}
