"""What a table's Delta Lake log is told, so that it lists the files that the manifest lists.

A pure part. The manifest is the truth; a log follows it, one commit for what has changed since the
log's last. Owns the actions of a commit. Invariant: after a commit the log's live files are those
of the manifest, whatever they were before, so a commit that never happened needs no mending.

Reader version 1 and writer version 2 are enough: columns are plain, instants are UTC in
microseconds (`timestamp`), and nothing is partitioned.

Source: Delta Transaction Log Protocol, PROTOCOL.md of github.com/delta-io/delta.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from headrace import job_limits
from headrace.pipeline.schemas import DESCRIPTIONS, SCHEMAS, time_columns
from headrace.spark.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace.pipeline.manifest import Manifest, TableFile

Action = dict[str, Any]

FOLDER: Final = "_delta_log"

_KEPT: Final = f"interval {job_limits.PIPELINE_DELTA_LOG_SECONDS} seconds"
CONFIGURATION: Final = {
    "delta.checkpointInterval": str(job_limits.PIPELINE_DELTA_CHECKPOINT_COMMITS),
    "delta.logRetentionDuration": _KEPT,
    "delta.deletedFileRetentionDuration": _KEPT,
}
"""What bounds the log. By default it would be kept for 30 days, and each checkpoint would name the
files that were removed in the last 7: millions, at two commits a second."""


@dataclass(frozen=True, slots=True)
class Log:
    """What a table's log comes to.

    Attributes:
        version: of its last commit; -1 where there is none.
        id: of the table; empty where there is no log.
        created_ms: when the table was made, milliseconds since the epoch.
        columns: as Delta's schema has them.
        configuration: of the table.
        paths: live files, relative to the folder of the table.
        manifest: version of the tables that it is known to list; -1 where that is not known.
    """

    version: int = -1
    id: str = ""
    created_ms: int = 0
    columns: tuple[Mapping[str, Any], ...] = ()
    configuration: Mapping[str, str] = field(default_factory=dict)
    paths: frozenset[str] = frozenset()
    manifest: int = -1


def name(table: str, version: int) -> str:
    """Path of a commit, in the folder of the tables."""
    return f"{table}/{FOLDER}/{version:020d}.json"


def text(actions: Iterable[Action]) -> str:
    """A commit's text: an action in each line."""
    return "".join(json.dumps(action, separators=(",", ":")) + "\n" for action in actions)


def followed(
    log: Log, manifest: Manifest, table: str, *, now_ms: int, new_id: str
) -> tuple[Log, list[Action]]:
    """The log that lists what the manifest lists, and the actions that make it so.

    Args:
        log: as it is.
        manifest: which it is to follow.
        table: whose log it is.
        now_ms: wall clock, milliseconds since the epoch.
        new_id: of the table, where there is no log yet: a UUID.

    Returns:
        The log after the commit, and the actions in it; none where nothing has changed.

    Raises:
        PipelineError: a file does not lie in the folder of its table, where Delta's readers look.
    """
    files = {_path(table, file): file for file in manifest.of(table)}
    # Which files only move rows is known from one version to the next.
    still = set(manifest.moved) if log.manifest == manifest.version - 1 else set[str]()
    actions, log = _described(log, table, now_ms, new_id)
    for path, file in sorted(files.items()):
        if path not in log.paths:
            actions.append(_add(path, file, now_ms, changes=file.path not in still))
    for path in sorted(log.paths - files.keys()):
        changes = f"{table}/{path}" not in still
        removed = {"path": path, "deletionTimestamp": now_ms, "dataChange": changes}
        actions.append({"remove": removed})
    log = replace(log, paths=frozenset(files), manifest=manifest.version)
    if not actions:
        return log, []
    changed = [data for action in actions for data in action.values() if "dataChange" in data]
    merges = bool(changed) and not any(data["dataChange"] for data in changed)
    head: list[Action] = [
        {
            "commitInfo": {
                "timestamp": now_ms,
                "operation": "OPTIMIZE" if merges else "WRITE",
                "operationParameters": {},
                "engineInfo": "headrace",
            }
        },
        {"txn": {"appId": manifest.query, "version": manifest.version, "lastUpdated": now_ms}},
    ]
    return replace(log, version=log.version + 1), head + actions


def _path(table: str, file: TableFile) -> str:
    folder, slash, path = file.path.partition("/")
    if folder != table or not slash:
        raise PipelineError(
            f"{file.path}, which an earlier release wrote, is not in a folder {table}, where "
            "readers of Delta look: begin with empty folders for tables and checkpoint, or use the "
            "format parquet"
        )
    return path


def _described(log: Log, table: str, now_ms: int, new_id: str) -> tuple[list[Action], Log]:
    """What tells readers of columns and settings, where that is new."""
    columns = _columns(log.columns, SCHEMAS[table].jsonValue()["fields"])
    configuration = {**log.configuration, **CONFIGURATION}
    if (columns, configuration) == (log.columns, log.configuration):
        return [], log
    actions: list[Action] = []
    if not log.id:
        actions.append({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}})
        log = replace(log, id=new_id, created_ms=now_ms)
    described = {
        "id": log.id,
        "name": table,
        "description": DESCRIPTIONS[table],
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": columns}),
        "partitionColumns": [],
        "configuration": configuration,
        "createdTime": log.created_ms,
    }
    actions.append({"metaData": described})
    return actions, replace(log, columns=columns, configuration=configuration)


def _columns(
    held: tuple[Mapping[str, Any], ...], ours: Iterable[Mapping[str, Any]]
) -> tuple[Mapping[str, Any], ...]:
    """The columns of this release, and those of a later one that wrote here before."""
    after = {column["name"]: column for column in ours}
    after |= {column["name"]: column for column in held if column["name"] not in after}
    return held if after == {column["name"]: column for column in held} else tuple(after.values())


def _add(path: str, file: TableFile, now_ms: int, *, changes: bool) -> Action:
    return {
        "add": {
            "path": path,
            "partitionValues": {},
            "size": file.bytes,
            "modificationTime": now_ms,
            "dataChange": changes,
            "stats": json.dumps(_statistics(file)),
        }
    }


def _statistics(file: TableFile) -> dict[str, Any]:
    """What lets readers pass over the file; instants as whole milliseconds, outwards."""
    found: dict[str, Any] = {"numRecords": file.rows}
    first, last = time_columns(file.table)
    if file.min_time_us is not None and file.max_time_us is not None:
        low, high = _instant(file.min_time_us // 1000), _instant(-(-file.max_time_us // 1000))
        if low is not None and high is not None:
            found |= {"minValues": {first: low}, "maxValues": {last: high}}
    return found


def _instant(ms: int) -> str | None:
    """As ISO 8601; None in years that it has no four digits for."""
    try:
        at = datetime(1970, 1, 1) + timedelta(milliseconds=ms)  # noqa: DTZ001 - UTC throughout
    except OverflowError:
        return None
    return f"{at.isoformat(timespec='milliseconds')}Z"
