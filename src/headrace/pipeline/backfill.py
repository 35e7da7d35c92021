"""Makes anew what is made of readings, for a stretch of event time.

After prices, rules or the release have changed: intervals, minutes, hours and jobs of that time
come from the readings that are in the tables, which need neither the stream nor its retention.
Detections come from all intervals there are, for each depends on what was before it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from headrace import job_limits
from headrace.pipeline import manifest as manifests
from headrace.pipeline import mirror, step, tables
from headrace.pipeline.batch import run_tasks
from headrace.pipeline.detections import rules_of
from headrace.pipeline.folder import Folder
from headrace.pipeline.manifest import VersionExistsError
from headrace.pipeline.schemas import READINGS
from headrace.pipeline.spans import aligned, merged
from headrace.spark.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from headrace.pipeline.folder import Location
    from headrace.pipeline.manifest import Manifest
    from headrace.pipeline.run import Options
    from headrace.pipeline.spans import Span

_HOUR_US: Final = 3_600_000_000
_SLICE_US: Final = 6 * _HOUR_US
"""Of one version: a quarter of a day of readings is in the tasks at a time."""


def backfill(
    spark: SparkSession,
    tables_dir: Location,
    options: Options,
    *,
    start_us: int | None = None,
    end_us: int | None = None,
    on_slice: Callable[[int, int], None] | None = None,
) -> Manifest:
    """Makes tables anew, a quarter of a day in each version.

    Args:
        spark: a session, such as `headrace.spark.session` builds.
        tables_dir: location of the tables.
        options: prices, rules, watermark and staleness; interval and buckets are as the tables have
            them.
        start_us: event time to begin with, microseconds since the epoch; default: the first.
        end_us: event time to end before; default: after the last.
        on_slice: called after each slice with its number, from 1, and how many there are.

    Returns:
        The manifest at the end.

    Raises:
        PipelineError: there are no tables, or a pipeline writes them meanwhile.
    """
    folder = Folder.at(tables_dir)
    slices = list(_slices(tables.committed(folder), start_us, end_us))
    mirror.begin(folder, options.format)
    given = {
        "watermark_seconds": options.watermark_s,
        "staleness_seconds": options.staleness_s,
        "prices": options.prices,
        "energy_price": options.energy_price,
        "rules": rules_of(options.rules),
    }
    for number, span in enumerate(slices, 1):
        for attempt in range(job_limits.PIPELINE_COMMITS_MAX):
            before = manifests.newest(folder)
            settings = step.of_tables(folder, before, **given)
            place = step.work_place(before)
            task = step.task(before, settings, place, before.batch, derives=True)
            pending = {
                bucket: merged([*task.pending.get(bucket, ()), span])
                for bucket in range(before.buckets)
            }
            rows = spark.range(0, before.buckets, 1, before.buckets)
            outcomes = run_tasks(rows, replace(task, pending=pending), None)
            after = step.after_merging(outcomes, before)
            if number == len(slices):
                after = step.watched(folder, after, place, settings, anew=True)
            try:
                mirror.commit(folder, after, options.format)
            except VersionExistsError as error:
                if attempt + 1 < job_limits.PIPELINE_COMMITS_MAX:
                    continue
                raise PipelineError(
                    f"a pipeline writes {folder} meanwhile; stop it, and begin again"
                ) from error
            break
        if on_slice is not None:
            on_slice(number, len(slices))
    return manifests.newest(folder)


def _slices(held: Manifest, start_us: int | None, end_us: int | None) -> Iterator[Span]:
    """Stretches with readings, whole hours, so that a row is made of all that belongs to it."""
    spans = []
    for file in held.of(READINGS):
        if file.min_time_us is not None and file.max_time_us is not None:
            low = file.min_time_us if start_us is None else max(start_us, file.min_time_us)
            high = file.max_time_us + 1 if end_us is None else min(end_us, file.max_time_us + 1)
            if low < high:
                spans.append((low, high))
    for start, end in aligned(spans, _HOUR_US):
        for first in range(start, end, _SLICE_US):
            yield first, min(first + _SLICE_US, end)
