"""Makes anew what is made of readings, for a stretch of event time.

After prices, rules or the release have changed: intervals, minutes, hours and jobs of that time
come from the readings that are in the tables, which need neither the stream nor its retention.
Detections come from all intervals there are, for each depends on what was before it.

All of it is one version: readers see what was before, or all that is made anew, and where it is
ended in the middle the tables are as before.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace.pipeline import manifest as manifests
from headrace.pipeline import mirror, step, tables
from headrace.pipeline.batch import run_tasks
from headrace.pipeline.detections import rules_of
from headrace.pipeline.folder import Folder
from headrace.pipeline.manifest import VersionExistsError
from headrace.pipeline.schemas import READINGS, arrow_schema
from headrace.pipeline.spans import merged
from headrace.spark.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from headrace.pipeline.folder import Location
    from headrace.pipeline.manifest import Manifest, TableFile
    from headrace.pipeline.run import Options
    from headrace.pipeline.spans import Span

_HOUR_US: Final = 3_600_000_000
_SLICE_HOURS: Final = 6
"""Of one job: a quarter of a day of readings is in the tasks at a time."""


def backfill(
    spark: SparkSession,
    tables_dir: Location,
    options: Options,
    *,
    start_us: int | None = None,
    end_us: int | None = None,
    on_slice: Callable[[int, int], None] | None = None,
) -> Manifest:
    """Makes tables anew, a quarter of a day at a time, and commits them as one version.

    Where no reading lies in the time that is asked for, detections alone are made anew.

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
        PipelineError: there are no tables, or somebody writes them meanwhile.
    """
    folder = Folder.at(tables_dir)
    before = tables.committed(folder)
    slices = _slices(folder, before, start_us, end_us)
    mirror.begin(folder, options.format)
    if before.version < 0:
        return before  # nothing was read yet: the first micro-batch says whose tables they are
    settings = step.of_tables(
        folder,
        before,
        watermark_seconds=options.watermark_s,
        staleness_seconds=options.staleness_s,
        prices=options.prices,
        energy_price=options.energy_price,
        rules=rules_of(options.rules),
    )
    place = step.work_place(before)
    after = before.next_version()
    for number, span in enumerate(slices, 1):
        task = step.task(after, settings, place, before.batch, derives=True)
        pending = {
            bucket: merged([*task.pending.get(bucket, ()), span])
            for bucket in range(before.buckets)
        }
        rows = spark.range(0, before.buckets, 1, before.buckets)
        after = step.with_outcomes(after, run_tasks(rows, replace(task, pending=pending), None))
        if manifests.newest_version(folder) != before.version:
            raise _taken(folder)
        if on_slice is not None:
            on_slice(number, len(slices))
    after = step.watched(folder, after, place, settings, anew=True)
    try:
        mirror.commit(folder, after, options.format)
    except VersionExistsError as error:
        raise _taken(folder) from error
    return after


def _taken(folder: Folder) -> PipelineError:
    return PipelineError(
        f"somebody writes the tables in {folder} meanwhile, a pipeline or a compaction; nothing "
        "has changed: stop it, and begin again"
    )


def _slices(folder: Folder, held: Manifest, start_us: int | None, end_us: int | None) -> list[Span]:
    """Stretches of whole hours in which intervals with readings begin.

    An interval counts to the hour, and the minute, that it begins in, as rollups have it, however
    far it reaches: so no interval is in two slices, and each hour is made of all that belongs to
    it, also where intervals cut through hours or are longer.
    """
    step_us = round(held.interval_seconds * 1_000_000)
    hours: set[int] = set()
    for file in held.of(READINGS):
        if file.min_time_us is not None and file.max_time_us is not None:
            low = file.min_time_us if start_us is None else max(start_us, file.min_time_us)
            high = file.max_time_us if end_us is None else min(end_us - 1, file.max_time_us)
            if low <= high:
                hours |= _hours(folder, file, _hour(low, step_us), _hour(high, step_us), step_us)
    slices: list[list[int]] = []
    for hour in sorted(hours):
        if slices and hour < slices[-1][0] + _SLICE_HOURS:
            slices[-1].append(hour)
        else:
            slices.append([hour])
    return [(each[0] * _HOUR_US, (each[-1] + 1) * _HOUR_US) for each in slices]


def _hour(at_us: int, step_us: int) -> int:
    """The hour since the epoch in which the interval of an instant begins."""
    return (at_us - at_us % step_us) // _HOUR_US


def _hours(folder: Folder, file: TableFile, first: int, last: int, step_us: int) -> set[int]:
    """Hours since the epoch, from `first` to `last`, to which readings of a file count.

    One that reaches far may have them at its ends alone, as with a clock that was wrong for once.
    """
    if last - first < _SLICE_HOURS:
        return set(range(first, last + 1))
    column = folder.read(file.path, arrow_schema(READINGS), ["event_time"])["event_time"]
    instants = pc.unique(pc.cast(pc.drop_null(column), pa.int64())).to_pylist()
    return {hour for at in instants if first <= (hour := _hour(at, step_us)) <= last}
