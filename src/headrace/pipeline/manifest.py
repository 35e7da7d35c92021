"""Which files make up the tables: one manifest a version, replaced as a whole.

Owns the manifest's content, its text, and the rule that a version appears whole or not at all.
It knows nothing of Spark. Invariants: versions count up from 0 without a gap while one query
writes; a file that a manifest lists is on disk before the manifest is; a reader of any manifest
that is still there finds all its files.

Layout of a tables folder:

```
_manifest/00000000000000000007.json   all tables at version 7
TABLE/batch=N/[CHUNK-]BUCKET-….parquet  files that micro-batch N wrote
TABLE/work=V/…                        files that version V wrote without a micro-batch
watch/…                               what rules remember, the same way
```
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from headrace import job_limits
from headrace.pipeline.alerts import Change, changed
from headrace.pipeline.folder import Folder
from headrace.spark.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headrace.pipeline.folder import Location
    from headrace.pipeline.spans import Span

FORMAT: Final = 3
FOLDER: Final = "_manifest"
WATCH: Final = "watch"
"""Folder of what the rules remember."""


class VersionExistsError(PipelineError):
    """Another writer has committed the version that was to be committed."""


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
        chunk: the stretch of time of its bucket that the file holds alone, `[start, end)` in
            microseconds since the epoch; None in tables whose files may overlap.
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
    chunk: tuple[int, int] | None = None

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
        moved: files that this version added or replaced, between which rows went unchanged.
        totals: readings so far, by where they ended.
        offsets: per stream and partition the offset after the last message in the tables.
        newest_us: per stream and partition the newest event time that counts (`newest_time`).
        interval_seconds: length of the intervals of `gpu_intervals`; 0 before the first batch.
        buckets: shares of the GPUs, each in files of its own; 0 before the first batch.
        clock_us: the event time that all partitions have reached.
        pending: per bucket the stretches of event time, in microseconds, whose readings are not
            yet in the tables that are made of them.
        derived_us: what `clock_us` was when those tables were made last.
        watch: file with what the rules remember of the GPUs; empty before the first batch.
        alerts: payloads of the alerts that are open, by topic.
        changes: of alerts, made by version `alerts_version`.
        alerts_version: the last one that changed alerts; -1 before.
    """

    version: int = -1
    query: str = ""
    batch: int = -1
    files: tuple[TableFile, ...] = ()
    removed: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    totals: Totals = field(default_factory=Totals)
    offsets: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    newest_us: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    interval_seconds: float = 0.0
    buckets: int = 0
    clock_us: int = 0
    pending: Mapping[str, Sequence[Span]] = field(default_factory=dict)
    derived_us: int = 0
    watch: str = ""
    alerts: Mapping[str, str] = field(default_factory=dict)
    changes: tuple[Change, ...] = ()
    alerts_version: int = -1

    @property
    def reached_us(self) -> int:
        """The newest event time that counts, of any partition; 0 before the first.

        Unlike the newest in a table it is no time of a clock that is ahead (`newest_time`), and
        unlike `clock_us` none that a partition which is behind holds up.
        """
        times = (time for partitions in self.newest_us.values() for time in partitions.values())
        return max(times, default=0)

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
            self.next_version(),
            query=query,
            batch=batch,
            buckets=buckets,
            interval_seconds=interval_seconds,
        )

    def next_version(self) -> Manifest:
        """The manifest after this one, before anything in it has changed."""
        return replace(self, version=self.version + 1, removed=(), moved=())

    def with_files(
        self, added: Iterable[TableFile], replaced: Iterable[str], moved: Iterable[str] = ()
    ) -> Manifest:
        """With these files, in place of those; `moved` are those of both that change no row."""
        gone = set(replaced)
        return replace(
            self,
            files=(*(file for file in self.files if file.path not in gone), *added),
            removed=tuple(sorted({*self.removed, *gone})),
            moved=(*self.moved, *moved),
        )

    def with_readings(
        self,
        totals: Totals,
        offsets: Mapping[str, Mapping[str, int]],
        newest_us: Mapping[str, Mapping[str, int]],
    ) -> Manifest:
        """With what became of readings, and how far they reach."""
        return replace(
            self,
            totals=self.totals + totals,
            offsets=_merged(self.offsets, offsets),
            newest_us=_merged(self.newest_us, newest_us),
        )

    def with_pending(self, bucket: int, spans: Sequence[Span]) -> Manifest:
        """With what is to be made anew of a bucket."""
        others = {key: value for key, value in self.pending.items() if key != str(bucket)}
        return replace(self, pending=others | ({str(bucket): tuple(spans)} if spans else {}))

    def reached(self, clock_us: int) -> Manifest:
        """With the event time that all partitions have reached now."""
        return replace(self, clock_us=max(clock_us, self.clock_us))

    def watched(
        self,
        added: Iterable[TableFile],
        replaced: Iterable[str],
        watch: str,
        rows: Iterable[Mapping[str, Any]],
    ) -> Manifest:
        """With detections that are made anew, and what their rules remember.

        Args:
            added: files with detections.
            replaced: files that those stand for.
            watch: file with what the rules remember.
            rows: the detections that are open, and those that ended since.
        """
        gone = {*replaced, *([self.watch] if self.watch else [])}
        after = replace(self.with_files(added, gone), watch=watch, derived_us=self.clock_us)
        alerts, changes = changed(self.alerts, rows, self.query)
        if not changes:
            return replace(after, alerts=alerts)
        return replace(after, alerts=alerts, changes=tuple(changes), alerts_version=self.version)

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
        files = tuple(_file(file) for file in fields.pop("files"))
        totals = Totals(**fields.pop("totals"))
        removed = tuple(fields.pop("removed"))
        moved = tuple(fields.pop("moved", ()))
        pending = {
            bucket: tuple((start, end) for start, end in spans)
            for bucket, spans in fields.pop("pending").items()
        }
        changes = tuple(Change(**change) for change in fields.pop("changes"))
        return Manifest(
            **fields, files=files, totals=totals, removed=removed, moved=moved, pending=pending,
            changes=changes,
        )  # fmt: skip


def _file(fields: dict[str, Any]) -> TableFile:
    chunk = fields.pop("chunk")
    return TableFile(**fields, chunk=None if chunk is None else tuple(chunk))


def _merged(
    before: Mapping[str, Mapping[str, int]], after: Mapping[str, Mapping[str, int]]
) -> dict[str, dict[str, int]]:
    merged = {stream: dict(partitions) for stream, partitions in before.items()}
    for stream, partitions in after.items():
        known = merged.setdefault(stream, {})
        for partition, value in partitions.items():
            known[partition] = max(value, known.get(partition, value))
    return merged


def newest(tables_dir: Location) -> Manifest:
    """The newest committed manifest of a tables folder; an empty one where there is none.

    Raises:
        PipelineError: the newest manifest cannot be read.
    """
    folder = Folder.at(tables_dir)
    versions = _versions(folder)
    return load(folder, max(versions)) if versions else Manifest()


def newest_version(tables_dir: Location) -> int:
    """The newest committed version of a tables folder; -1 where there is none."""
    return max(_versions(Folder.at(tables_dir)), default=-1)


def load(tables_dir: Location, version: int) -> Manifest:
    """One version.

    Raises:
        PipelineError: there is no such version, or it cannot be read.
    """
    folder, name = Folder.at(tables_dir), _name(version)
    try:
        return Manifest.loads(folder.text(name))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise PipelineError(
            f"{folder.shown(name)}: not a readable manifest ({error}); restore it, or delete it to "
            "go back to the version before"
        ) from error


def commit(tables_dir: Location, manifest: Manifest) -> None:
    """Makes `manifest` the newest: its files first, then itself, each durable.

    Raises:
        VersionExistsError: another writer has committed this version.
    """
    folder = Folder.at(tables_dir)
    folder.sync(file.path for file in manifest.files if file.batch == manifest.batch)
    if manifest.watch:
        folder.sync([manifest.watch])
    name = _name(manifest.version)
    try:
        folder.create(name, manifest.dumps())
    except FileExistsError:
        raise VersionExistsError(
            f"{folder.shown(name)} exists: another query writes these tables; stop one of the two"
        ) from None


def prune(tables_dir: Location, version: int, kept: int = job_limits.MANIFESTS_KEPT) -> None:
    """Deletes manifests more than `kept` older than `version`, and what they alone list.

    Stopping anywhere in between leaves at most files that nothing lists.
    """
    folder = Folder.at(tables_dir)
    for old in sorted(_versions(folder)):
        if old >= version - kept:
            return
        folder.remove(_name(old))
        after = _load_kept(folder, old + 1)
        for name in () if after is None else after.removed:
            folder.remove(name)


def sweep(tables_dir: Location) -> int:
    """Deletes files of committed steps that no manifest lists, as crashes leave them; how many.

    What is being written belongs to a step that is not committed yet, and stays.
    """
    folder = Folder.at(tables_dir)
    newest_one = newest(folder)
    listed: set[str] = set()
    for version in _versions(folder):
        at = _load_kept(folder, version)
        if at is not None:
            listed |= {file.path for file in at.files} | {*at.removed, at.watch}
    deleted = 0
    for name in folder.all_names():
        kind, _, number = f"{name}/".split("/")[1].partition("=")
        done = {"batch": newest_one.batch, "work": newest_one.version}.get(kind, -1)
        if number.isdigit() and int(number) <= done and name not in listed:
            folder.remove(name)
            deleted += 1
    return deleted


def _load_kept(folder: Folder, version: int) -> Manifest | None:
    """One version; None where somebody else, who writes these tables too, has pruned it.

    What it alone listed goes with it, or is what the next version `removed`.

    Raises:
        PipelineError: it is there and cannot be read.
    """
    try:
        return load(folder, version)
    except PipelineError:
        if version in _versions(folder):
            raise
        return None


def _versions(folder: Folder) -> list[int]:
    stems = [name.removesuffix(".json") for name in folder.names(FOLDER) if name.endswith(".json")]
    return [int(stem) for stem in stems if stem.isdigit()]


def _name(version: int) -> str:
    return f"{FOLDER}/{version:020d}.json"
