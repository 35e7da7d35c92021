"""The tables at one version, as answers hold them, and how the newest one is kept at hand.

Owns what is kept in memory: which GPUs there are, what each of their files says in sum, and all
detections. Files never change, so a newer version costs what its new files cost. An answer takes
one snapshot and reads no other: its files stay for `MANIFESTS_KEPT` versions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace import job_limits
from headrace.pipeline import duck, fleet
from headrace.pipeline import manifest as manifests
from headrace.pipeline.schemas import (
    DETECTIONS,
    GPU_HOURS,
    GPU_MINUTES,
    arrow_schema,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headrace.pipeline.folder import Folder
    from headrace.pipeline.manifest import Manifest, TableFile

GpuId = tuple[str, str]
"""UUID, and the MIG slice's id, empty for a whole GPU."""

_PLACE: Final = ("host", "device", "gpu_index", "gpu_i_profile", "model")
_LOAD: Final = ("namespace", "pod", "container")

LATEST: Final = (
    "gpu_util_percent_mean", "gr_engine_active_ratio_mean", "sm_active_ratio_mean",
    "tensor_active_ratio_mean", "dram_active_ratio_mean", "fb_used_mib_mean", "power_watts_mean",
    "sm_clock_mhz_mean", "gpu_temp_celsius_max", "throttle_reasons_any",
)  # fmt: skip
"""Of its last minute, of one GPU."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU, or MIG slice, that is in the tables.

    Attributes:
        id: which.
        bucket: whose files hold it.
        first_us, last_us: first and last instant of its intervals.
        place: host, device, index, profile and model, when it was last seen.
        load: namespace, pod and container, likewise.
        latest: values of its last minute up to the tables' newest time; None where that is long
            before it.
    """

    id: GpuId
    bucket: int
    first_us: int
    last_us: int
    place: Mapping[str, Any]
    load: Mapping[str, str]
    latest: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The tables at one version.

    Attributes:
        manifest: its files.
        gpus: by id, in the order of ids.
        detections: rows of `detections`, the newest first; times in microseconds.
        open: how many detections hold, by id of the GPU.
        hours: files of `gpu_hours` and `fleet.loads` of each.
    """

    manifest: Manifest
    gpus: Mapping[GpuId, Gpu]
    detections: pa.Table
    open: Mapping[GpuId, int]
    hours: Mapping[TableFile, pa.Table]

    def files(self, table: str, bucket: int, start_us: int, end_us: int) -> list[TableFile]:
        """Files of a table and bucket with times in `[start_us, end_us)`, by their first."""
        found = [
            file
            for file in self.manifest.of(table)
            if file.bucket == bucket and file.overlaps(start_us, end_us)
        ]
        return sorted(found, key=lambda file: (file.min_time_us, file.path))


class Snapshots:
    """Makes snapshots of one folder, each out of the one before.

    Attributes:
        is_written: whether the folder was one of tables when it was last looked at.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self.is_written = False
        self._sums: dict[tuple[str, str], pa.Table] = {}

    def newer(self, than: Snapshot | None) -> Snapshot | None:
        """The newest version, if it is not that one.

        Raises:
            FileNotFoundError: while this looked, so many versions were written that its files went.
            PipelineError: the manifest cannot be read.
        """
        version = manifests.newest_version(self._folder)
        self.is_written = version >= 0 or self._folder.has(manifests.FOLDER)
        if than is not None and version == than.manifest.version:
            return None
        return self._made(manifests.newest(self._folder))

    def _made(self, manifest: Manifest) -> Snapshot:
        before, self._sums = self._sums, {}

        def sums(file: TableFile, make: Callable[[pa.Table], pa.Table], what: str) -> pa.Table:
            key = (what, file.path)
            if key not in self._sums:
                found = before.get(key)
                self._sums[key] = make(self._read(file)) if found is None else found
            return self._sums[key]

        try:
            hours = {file: sums(file, fleet.loads, "loads") for file in manifest.of(GPU_HOURS)}
            seen = _together(
                [sums(file, _seen, "seen") for file in hours], [file.bucket for file in hours]
            )
            latest = self._latest(manifest, before)
            found = [sums(file, _listed, "listed") for file in manifest.of(DETECTIONS)]
        except FileNotFoundError:
            self._sums = before | self._sums
            raise
        detections = _sorted(found)
        return Snapshot(manifest, _gpus(seen, latest), detections, _open(detections), hours)

    def _latest(
        self, manifest: Manifest, before: Mapping[tuple[str, str], pa.Table]
    ) -> dict[GpuId, dict[str, Any]]:
        """The last minute of each GPU in the hour up to the tables' newest time.

        Rows are bounded by time, not files: which file they are in tells nothing. What a clock that
        is ahead has written after that time comes when it does.
        """
        until_us = manifest.reached_us
        since_us = until_us - job_limits.API_RECENT_SECONDS * 1_000_000
        latest: dict[GpuId, dict[str, Any]] = {}
        for file in manifest.of(GPU_MINUTES):
            if not file.overlaps(since_us, until_us + 1):
                continue
            assert file.max_time_us is not None, "it overlaps"
            # Of a file that reaches no further the last rows stay what they are.
            end_us = min(until_us, file.max_time_us)
            key = (f"minutes until {end_us}", file.path)
            found = before.get(key)
            if found is None:
                found = _last_minutes(self._minutes(file, end_us))
            self._sums[key] = found
            for row in found.to_pylist():
                gpu = (row["uuid"], row["gpu_i_id"])
                if row["start_us"] >= since_us and (
                    gpu not in latest or latest[gpu]["start_us"] < row["start_us"]
                ):
                    latest[gpu] = row
        return latest

    def _minutes(self, file: TableFile, end_us: int) -> pa.Table:
        """Rows of the hour up to an instant, of which there may be newer ones in other files."""
        start = pc.field("start")
        since, until = (
            pa.scalar(each, pa.int64()).cast(pa.timestamp("us", "UTC"))
            for each in (end_us - job_limits.API_RECENT_SECONDS * 1_000_000, end_us)
        )
        return self._folder.dataset([file.path], arrow_schema(file.table)).to_table(
            ["uuid", "gpu_i_id", "start", "active_to", *_LOAD, *LATEST],
            filter=(start >= since) & (start <= until),
        )

    def _read(self, file: TableFile) -> pa.Table:
        return self._folder.dataset([file.path], arrow_schema(file.table)).to_table()


def _seen(hours: pa.Table) -> pa.Table:
    """Each GPU in rows of hours: since when, until when, where and under what."""
    last = ", ".join(f"arg_max({name}, active_to) AS {name}" for name in (*_PLACE, *_LOAD))
    return duck.query(
        f"""SELECT uuid, gpu_i_id, min(epoch_us(active_from)) AS first_us,
            max(epoch_us(active_to)) AS last_us, {last}
        FROM hours GROUP BY uuid, gpu_i_id""",
        hours=hours,
    )


def _together(found: Sequence[pa.Table], buckets: Sequence[int]) -> pa.Table:
    """What several files say of each GPU."""
    if not found:
        return duck.query("SELECT *, 0 AS bucket FROM seen", seen=_seen(_EMPTY_HOURS))
    rows = pa.concat_tables(
        each.append_column("bucket", pa.array([bucket] * each.num_rows, pa.int64()))
        for each, bucket in zip(found, buckets, strict=True)
    )
    last = ", ".join(f"arg_max({name}, last_us) AS {name}" for name in (*_PLACE, *_LOAD, "bucket"))
    return duck.query(
        f"""SELECT uuid, gpu_i_id, min(first_us) AS first_us, max(last_us) AS last_us, {last}
        FROM rows GROUP BY uuid, gpu_i_id ORDER BY uuid, gpu_i_id""",
        rows=rows,
    )


def _last_minutes(minutes: pa.Table) -> pa.Table:
    """The last row of each GPU in rows of minutes, as a whole: also what is null in it."""
    columns = ", ".join((*_LOAD, *LATEST))
    return duck.query(
        f"""SELECT uuid, gpu_i_id, unnest(max(last)) FROM (
            SELECT uuid, gpu_i_id, struct_pack(
                start_us := epoch_us(start), end_us := epoch_us(active_to), {columns}
            ) AS last FROM minutes
        ) GROUP BY uuid, gpu_i_id""",
        minutes=minutes,
    )


def _gpus(seen: pa.Table, latest: Mapping[GpuId, Mapping[str, Any]]) -> dict[GpuId, Gpu]:
    gpus = {}
    for row in seen.to_pylist():
        key = (row["uuid"], row["gpu_i_id"])
        gpus[key] = Gpu(
            key,
            row["bucket"],
            row["first_us"],
            row["last_us"],
            {name: row[name] for name in _PLACE},
            {name: row[name] or "" for name in _LOAD},
            latest.get(key),
        )
    return gpus


_TIMES: Final = ("start", "end", "last")


def _listed(detections: pa.Table) -> pa.Table:
    """Rows of detections with their times as numbers."""
    for name in _TIMES:
        at = detections.schema.get_field_index(name)
        detections = detections.set_column(at, name, detections[name].cast(pa.int64()))
    return detections


def _sorted(found: Sequence[pa.Table]) -> pa.Table:
    rows = pa.concat_tables(found) if found else _listed(arrow_schema(DETECTIONS).empty_table())
    return rows.take(
        pc.sort_indices(rows, sort_keys=[("start", "descending"), ("id", "ascending")])
    ).combine_chunks()


def _open(detections: pa.Table) -> dict[GpuId, int]:
    rows = detections.filter(pc.is_null(detections["end"])).select(["uuid", "gpu_i_id"])
    counted = rows.group_by(["uuid", "gpu_i_id"]).aggregate([([], "count_all")]).to_pylist()
    return {(row["uuid"], row["gpu_i_id"]): row["count_all"] for row in counted}


_EMPTY_HOURS: Final = arrow_schema(GPU_HOURS).empty_table()
