"""Commits a version of the tables, and keeps Delta Lake logs that follow it, where that is asked.

A thin shell around `delta`. Owns the order of things: the manifest first, which alone decides; then
a commit in each table's log that has changed; and files go last, when no log lists them any more.
What a crash leaves undone between the two is done with the next commit, or the next start.

The logs are written like manifests, durable and whole or not at all; they are read, and made short
again, by `deltalake`.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import contextmanager
from importlib.util import find_spec
from threading import Lock
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import parse_qsl, unquote, urlsplit
from uuid import uuid4

import pyarrow as pa

from headrace import job_limits
from headrace.pipeline import delta
from headrace.pipeline import manifest as manifests
from headrace.pipeline.delta import Log
from headrace.pipeline.folder import Folder
from headrace.pipeline.schemas import SCHEMAS
from headrace.spark.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltalake import DeltaTable

    from headrace.pipeline.folder import Location
    from headrace.pipeline.manifest import Manifest

Format = Literal["parquet", "delta"]

MISSING: Final = "the format delta needs deltalake: pip install 'headrace[delta]'"


def begin(tables_dir: Location, form: Format) -> None:
    """Before the first commit of a process: logs list what the manifest lists, or there are none.

    Raises:
        PipelineError: `deltalake` is missing or a log unreadable; or logs that are there would go
            stale.
    """
    folder = Folder.at(tables_dir)
    if form == "delta":
        if find_spec("deltalake") is None:
            raise PipelineError(MISSING)
        # Nothing is remembered of a run before, after which the folder may be another.
        _mirrors[folder.location] = Mirror(folder)
        _mirrors[folder.location].follow(manifests.newest(folder))
    elif held := [table for table in SCHEMAS if folder.has(f"{table}/{delta.FOLDER}")]:
        raise PipelineError(
            f"{folder.shown(held[0])} has a Delta log, which would no longer follow it: give "
            f"--format delta, or delete the folder {delta.FOLDER} of each table"
        )


def commit(tables_dir: Location, manifest: Manifest, form: Format) -> None:
    """Makes `manifest` the newest version of the tables, and deletes what no kept one lists.

    Raises:
        VersionExistsError: another writer has committed this version.
        PipelineError: a Delta log cannot follow. The version is committed all the same.
    """
    folder = Folder.at(tables_dir)
    manifests.commit(folder, manifest)
    kept = job_limits.MANIFESTS_KEPT
    if form == "delta":
        _mirrors.setdefault(folder.location, Mirror(folder)).follow(manifest)
        kept = job_limits.PIPELINE_DELTA_MANIFESTS_KEPT
    manifests.prune(folder, manifest.version, kept)


class Mirror:
    """The Delta logs of a folder of tables, as one process keeps them.

    Args:
        folder: of the tables.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._logs: dict[str, Log] = {}
        self._lock = Lock()  # micro-batches come on a thread of Spark's, what is due on our own

    def follow(self, manifest: Manifest) -> None:
        """Brings all logs to `manifest`, or to a newer one.

        Raises:
            PipelineError: a log is unreadable, or others write it all the time.
        """
        if manifest.version < 0:
            return
        with self._lock:
            for _ in range(job_limits.PIPELINE_COMMITS_MAX):
                unknown = SCHEMAS.keys() - self._logs.keys()
                self._logs |= {table: self._read(table) for table in unknown}
                if unknown:
                    # Read after the logs, so that none of them is ahead of it.
                    manifest = manifests.newest(self._folder)
                behind = [table for table in SCHEMAS if not self._has_followed(table, manifest)]
                if not behind:
                    return
        raise PipelineError(
            f"the Delta logs in {self._folder} are written by others all the time; stop them"
        )

    def _has_followed(self, table: str, manifest: Manifest) -> bool:
        """Commits what is new in a table; whether no other writer came first."""
        log = self._logs[table]
        if log.manifest >= manifest.version:
            return True
        now_ms = time.time_ns() // 1_000_000
        after, actions = delta.followed(log, manifest, table, now_ms=now_ms, new_id=str(uuid4()))
        if actions:
            try:
                self._folder.create(delta.name(table, after.version), delta.text(actions))
            except FileExistsError:
                del self._logs[table]
                return False
        self._logs[table] = after
        is_turn = (after.version + 1) % job_limits.PIPELINE_DELTA_CHECKPOINT_COMMITS == 0
        if actions and is_turn:
            self._shorten(table)
        return True

    def _read(self, table: str) -> Log:
        names = self._folder.names(f"{table}/{delta.FOLDER}")
        if not any(name.endswith((".json", ".parquet")) for name in names):
            return Log()
        with self._opened(table) as held:
            described = held.metadata()
            return Log(
                version=held.version(),
                id=str(described.id),
                created_ms=described.created_time or 0,
                columns=tuple(json.loads(held.schema().to_json())["fields"]),
                configuration=described.configuration,
                paths=frozenset(pa.table(held.get_add_actions())["path"].to_pylist()),
            )

    def _shorten(self, table: str) -> None:
        """Makes a checkpoint, before which commits are deleted once they are old."""
        with self._opened(table) as held:
            held.create_checkpoint()
            held.cleanup_metadata()

    @contextmanager
    def _opened(self, table: str) -> Iterator[DeltaTable]:
        from deltalake import DeltaTable  # noqa: PLC0415 - an extra
        from deltalake.exceptions import DeltaError  # noqa: PLC0415

        where, options = _address(self._folder, table)
        try:
            yield DeltaTable(where, storage_options=options)
        except (DeltaError, OSError, ValueError) as error:
            log = self._folder.shown(f"{table}/{delta.FOLDER}")
            why = str(error).splitlines()[0]
            raise PipelineError(
                f"{log}: not a usable Delta log ({why}); delete that folder, and it is made anew"
            ) from error


def _address(folder: Folder, table: str) -> tuple[str, dict[str, str]]:
    """Where a table lies, as `deltalake` takes it; what Arrow takes from a URI is options there."""
    if folder.is_local:
        return folder.path(table), {}
    parts = urlsplit(folder.location)
    asked = dict(parse_qsl(parts.query))
    options = {}
    if endpoint := asked.get("endpoint_override"):
        scheme = asked.get("scheme", "https")
        options["AWS_ENDPOINT_URL"] = endpoint if "://" in endpoint else f"{scheme}://{endpoint}"
    if (options or os.environ).get("AWS_ENDPOINT_URL", "").startswith("http:"):
        options["AWS_ALLOW_HTTP"] = "true"
    if "region" in asked:
        options["AWS_REGION"] = asked["region"]
    if parts.username:
        options["AWS_ACCESS_KEY_ID"] = unquote(parts.username)
        options["AWS_SECRET_ACCESS_KEY"] = unquote(parts.password or "")
    bucket = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{bucket}{parts.path.rstrip('/')}/{table}", options


_mirrors: Final[dict[str, Mirror]] = {}
"""Of the folders that this process writes, by their locations."""
