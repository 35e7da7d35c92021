"""Merges all that can be merged, and deletes what nothing lists; needs no Spark.

May run beside a pipeline: each commits the next version of the tables, and who comes second does
its work again on top of the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace import job_limits
from headrace.pipeline import manifest as manifests
from headrace.pipeline import mirror, step, tables
from headrace.pipeline.bucket import Bucket
from headrace.pipeline.folder import Folder
from headrace.pipeline.manifest import VersionExistsError
from headrace.spark.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.pipeline.folder import Location
    from headrace.pipeline.mirror import Format

_SETTLED_SECONDS: Final = 3600.0
"""Behind the newest event time: longer than anybody lets readings be late."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """What a compaction did.

    Attributes:
        files_before: live files before it.
        files_after: live files after it.
        bytes_before: of those before it.
        bytes_after: of those after it.
        deleted: files that no version listed, as crashes leave them.
    """

    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    deleted: int


def compact(
    tables_dir: Location, on_progress: Callable[[str], None], form: Format = "parquet"
) -> Compacted:
    """Merges small files bucket by bucket, each a version of its own.

    Args:
        tables_dir: location of the tables.
        on_progress: is told of each bucket, a line.
        form: whether Delta logs follow the tables.

    Raises:
        PipelineError: there are no tables, or a pipeline commits faster than this can.
    """
    folder = Folder.at(tables_dir)
    before = tables.committed(folder)
    mirror.begin(folder, form)
    for bucket in range(before.buckets):
        _compact(folder, bucket, form)
        on_progress(f"bucket {bucket + 1} of {before.buckets}")
    after = manifests.newest(folder)
    return Compacted(
        files_before=len(before.files),
        files_after=len(after.files),
        bytes_before=sum(file.bytes for file in before.files),
        bytes_after=sum(file.bytes for file in after.files),
        deleted=manifests.sweep(folder),
    )


def _compact(folder: Folder, bucket: int, form: Format) -> None:
    for _ in range(job_limits.PIPELINE_COMMITS_MAX):
        before = manifests.newest(folder)
        settings = step.of_tables(folder, before, watermark_seconds=_SETTLED_SECONDS)
        task = step.task(before, settings, step.work_place(before), before.batch, derives=False)
        outcome = Bucket(task, bucket).compact()
        if not outcome.replaced:
            return
        after = step.after_merging([outcome], before)
        try:
            mirror.commit(folder, after, form)
        except VersionExistsError:
            continue
        return
    raise PipelineError(
        f"the pipeline that writes {folder} commits faster than bucket {bucket} can be merged; "
        "stop it for a while"
    )
