"""Which files make up the tables: one manifest a version, replaced as a whole.

Owns the manifest's content, its text, and the rule that a version appears whole or not at all.
It knows nothing of Spark. Invariants: versions count up from 0 without a gap while one query
writes; a file that a manifest lists is on disk before the manifest is; a reader of any manifest
that is still there finds all its files.

Layout of a tables folder:

```
_manifest/00000000000000000007.json     all tables at version 7
batch=N/TABLE[-CHUNK]-BUCKET-….parquet  files that micro-batch N wrote
```
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from headrace import job_limits
from headrace.spark.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

FORMAT: Final = 2
FOLDER: Final = "_manifest"


@dataclass(frozen=True, slots=True)
class TableFile:
    """One Parquet file of a table.

    Attributes:
        table: name of the table.
        path: relative to the tables folder, with `/`.
        rows: in the file.
        bytes: size of the file.
        batch: micro-batch that wrote it.
        schema: version of the schemas that it was written with.
        bucket: share of the GPUs that it is about.
        min_time_us: least event time in it (interval start in `gpu_intervals`), microseconds
            since the epoch; None where no row has one.
        max_time_us: greatest event time in it.
        chunk: of `gpu_intervals`, the stretch of time that the file holds alone, in seconds since
            the epoch; None in other tables.
    """

    table: str
    path: str
    rows: int
    bytes: int
    batch: int
    schema: int
    bucket: int = 0
    min_time_us: int | None = None
    max_time_us: int | None = None
    chunk: int | None = None

    def overlaps(self, start_us: int, end_us: int) -> bool:
        """Whether a row may lie in `[start_us, end_us)`."""
        if self.min_time_us is None or self.max_time_us is None:
            return False
        return self.min_time_us < end_us and self.max_time_us >= start_us


@dataclass(frozen=True, slots=True)
class Totals:
    """What became of all readings up to a version; the terms of the accounting line.

    Attributes:
        messages: stored messages that were read.
        readings: readings in them; a message that holds none counts as one.
        rows: of those, in `readings`.
        quarantined: of those, in `quarantine`.
        duplicates: of those, in `duplicates`.
        reasons: the quarantined ones by reason.
    """

    messages: int = 0
    readings: int = 0
    rows: int = 0
    quarantined: int = 0
    duplicates: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict)

    def __add__(self, other: Totals) -> Totals:
        reasons = dict(self.reasons)
        for reason, count in other.reasons.items():
            reasons[reason] = reasons.get(reason, 0) + count
        return Totals(
            self.messages + other.messages,
            self.readings + other.readings,
            self.rows + other.rows,
            self.quarantined + other.quarantined,
            self.duplicates + other.duplicates,
            dict(sorted(reasons.items())),
        )

    @property
    def balanced(self) -> bool:
        """Whether each reading ended in exactly one table."""
        return self.readings == self.rows + self.quarantined + self.duplicates


@dataclass(frozen=True, slots=True)
class Manifest:
    """All tables at one version.

    Attributes:
        version: counts up with each committed micro-batch.
        query: id of the streaming query that writes these tables.
        batch: last micro-batch in them; -1 before the first.
        files: every live file.
        removed: files that this version replaced; deleted when the version before it goes.
        totals: readings so far, by where they ended.
        offsets: per stream and partition the offset after the last message in the tables.
        newest_us: per stream and partition the newest event time of a usable reading.
        interval_seconds: length of the intervals of `gpu_intervals`; 0 before the first batch.
        buckets: shares of the GPUs, each in files of its own; 0 before the first batch.
        clock_us: the event time that all partitions have reached.
        watch: file with what the rules remember of the GPUs; empty before the first batch.
    """

    version: int = -1
    query: str = ""
    batch: int = -1
    files: tuple[TableFile, ...] = ()
    removed: tuple[str, ...] = ()
    totals: Totals = field(default_factory=Totals)
    offsets: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    newest_us: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    interval_seconds: float = 0.0
    buckets: int = 0
    clock_us: int = 0
    watch: str = ""

    def of(self, table: str) -> tuple[TableFile, ...]:
        """The live files of one table."""
        return tuple(file for file in self.files if file.table == table)

    def by_bucket(self) -> dict[int, list[TableFile]]:
        """The live files of each bucket."""
        found: dict[int, list[TableFile]] = {}
        for file in self.files:
            found.setdefault(file.bucket, []).append(file)
        return found

    def next(self, *, batch: int, query: str, buckets: int, interval_seconds: float) -> Manifest:
        """The manifest of micro-batch `batch`, before any file of it."""
        return replace(
            self,
            version=self.version + 1,
            query=query,
            batch=batch,
            removed=(),
            buckets=buckets,
            interval_seconds=interval_seconds,
        )

    def with_bucket(
        self,
        added: Iterable[TableFile],
        replaced: Iterable[str],
        offsets: Mapping[str, Mapping[str, int]],
        newest_us: Mapping[str, Mapping[str, int]],
    ) -> Manifest:
        """With what a task has done to one bucket."""
        gone = set(replaced)
        return replace(
            self,
            files=(*(file for file in self.files if file.path not in gone), *added),
            removed=tuple(sorted({*self.removed, *gone})),
            offsets=_merged(self.offsets, offsets),
            newest_us=_merged(self.newest_us, newest_us),
        )

    def watched(
        self, added: Iterable[TableFile], replaced: Iterable[str], watch: str, clock_us: int
    ) -> Manifest:
        """With the detections of its micro-batch, and what their rules remember."""
        gone = {*replaced, *([self.watch] if self.watch else [])}
        after = self.with_bucket(added, gone, {}, {})
        return replace(after, watch=watch, clock_us=clock_us)

    def counted(self, totals: Totals) -> Manifest:
        """With what became of the readings of its micro-batch."""
        return replace(self, totals=self.totals + totals)

    def dumps(self) -> str:
        """The manifest's text; the same manifest gives the same text."""
        return json.dumps({"format": FORMAT, **asdict(self)}, sort_keys=True, indent=1)

    @staticmethod
    def loads(text: str) -> Manifest:
        """Reads the manifest's text.

        Raises:
            ValueError: it is no manifest of a format that this release reads.
        """
        fields: Any = json.loads(text)
        if not isinstance(fields, dict) or fields.pop("format", None) != FORMAT:
            raise ValueError(f"no manifest of format {FORMAT}")
        files = tuple(TableFile(**file) for file in fields.pop("files"))
        totals = Totals(**fields.pop("totals"))
        removed = tuple(fields.pop("removed"))
        return Manifest(**fields, files=files, totals=totals, removed=removed)


def _merged(
    before: Mapping[str, Mapping[str, int]], after: Mapping[str, Mapping[str, int]]
) -> dict[str, dict[str, int]]:
    merged = {stream: dict(partitions) for stream, partitions in before.items()}
    for stream, partitions in after.items():
        known = merged.setdefault(stream, {})
        for partition, value in partitions.items():
            known[partition] = max(value, known.get(partition, value))
    return merged


def newest(tables_dir: Path) -> Manifest:
    """The newest committed manifest of a tables folder; an empty one where there is none.

    Raises:
        PipelineError: the newest manifest cannot be read.
    """
    versions = sorted(_versions(tables_dir))
    return load(tables_dir, versions[-1]) if versions else Manifest()


def newest_version(tables_dir: Path) -> int:
    """The newest committed version of a tables folder; -1 where there is none."""
    return max(_versions(tables_dir), default=-1)


def load(tables_dir: Path, version: int) -> Manifest:
    """One version.

    Raises:
        PipelineError: there is no such version, or it cannot be read.
    """
    path = _path(tables_dir, version)
    try:
        return Manifest.loads(path.read_text())
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PipelineError(
            f"{path}: not a readable manifest ({error}); restore it, or delete it to go back to "
            "the version before"
        ) from error


def commit(tables_dir: Path, manifest: Manifest) -> None:
    """Makes `manifest` the newest: its files first, then itself, each synced.

    Raises:
        PipelineError: another writer has committed this version.
    """
    for file in manifest.files:
        if file.batch == manifest.batch:
            _sync(tables_dir / file.path)
    if manifest.watch:
        _sync(tables_dir / manifest.watch)
    folder = tables_dir / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    path = _path(tables_dir, manifest.version)
    draft = path.with_suffix(".draft")
    draft.write_text(manifest.dumps())
    _sync(draft)
    try:
        # A link, unlike a rename, fails where the version exists.
        os.link(draft, path)
    except FileExistsError:
        raise PipelineError(
            f"{path} exists: another query writes these tables; stop one of the two"
        ) from None
    finally:
        draft.unlink()
    try:
        _sync(folder)
    except OSError:
        # Whether its name lasts is not known, and no later sync would tell: the batch comes again.
        path.unlink()
        raise


def prune(tables_dir: Path, version: int) -> None:
    """Deletes manifests `job_limits.MANIFESTS_KEPT` older than `version`, and what they alone list.

    Stopping anywhere in between leaves at most files that nothing lists.
    """
    for old in sorted(_versions(tables_dir)):
        if old >= version - job_limits.MANIFESTS_KEPT:
            return
        _path(tables_dir, old).unlink()
        for path in load(tables_dir, old + 1).removed:
            (tables_dir / path).unlink(missing_ok=True)


def _versions(tables_dir: Path) -> list[int]:
    folder = tables_dir / FOLDER
    if not folder.is_dir():
        return []
    return [int(path.stem) for path in folder.glob("*.json") if path.stem.isdigit()]


def _path(tables_dir: Path, version: int) -> Path:
    return tables_dir / FOLDER / f"{version:020d}.json"


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
