"""One step from a version of the tables to the next, as far as it needs no Spark.

Owns what tasks are told, when that is due which waits, and how what they did becomes a manifest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from headrace import job_limits
from headrace.pipeline.bucket import Outcome, Task
from headrace.pipeline.detections import detect
from headrace.pipeline.folder import Folder
from headrace.pipeline.manifest import Manifest, Totals
from headrace.pipeline.rules import RULES, Rule
from headrace.pipeline.schemas import DUPLICATES, QUARANTINE, READINGS
from headrace.spark.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headrace.pipeline.folder import Location
    from headrace.pipeline.mirror import Format

_SECOND_US: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Settings:
    """What one run of the pipeline is told.

    Attributes:
        tables_dir: location of the tables.
        query: id of the streaming query, which owns the tables.
        interval_us: length of an interval of `gpu_intervals` in microseconds.
        watermark_seconds: how far behind the newest event time a reading is still in time.
        buckets: shares of the GPUs, each of which one task brings into the tables; fixed with the
            first micro-batch.
        prices: of an hour of a GPU, by model; `default` is that of any other model.
        energy_price: of a kilowatt hour.
        rules: what is looked for.
        format: whether Delta logs follow the tables.
        staleness_seconds: longest time between two scrapes of a GPU that still reports. None: two
            and a half minutes, or twice the interval where that is longer.
    """

    tables_dir: Location
    query: str
    interval_us: int
    watermark_seconds: float
    buckets: int
    prices: Mapping[str, float] = field(default_factory=dict)
    energy_price: float = 0.0
    rules: tuple[Rule, ...] = RULES
    format: Format = "parquet"
    staleness_seconds: float | None = None

    @property
    def staleness_us(self) -> int:
        """`staleness_seconds` in microseconds, or what it is where none is given."""
        if self.staleness_seconds is not None:
            return round(self.staleness_seconds * _SECOND_US)
        return max(job_limits.PIPELINE_STALENESS_SECONDS * _SECOND_US, 2 * self.interval_us)


def check(manifest: Manifest, settings: Settings) -> None:
    """Refuses tables that this query must not write.

    Raises:
        PipelineError: another query wrote them, or with other intervals.
    """
    if manifest.version < 0:
        return
    root = settings.tables_dir
    if manifest.query != settings.query:
        raise PipelineError(
            f"the tables in {root} belong to another query: use its checkpoint folder, or an "
            "empty folder for each"
        )
    if round(manifest.interval_seconds * _SECOND_US) != settings.interval_us:
        raise PipelineError(
            f"the tables in {root} have intervals of {manifest.interval_seconds:g} s: keep that, "
            "or use empty folders for tables and checkpoint"
        )


def is_due_after(derived_us: int, clock_us: int) -> bool:
    """Whether enough time of the stream has gone by to make tables of readings anew.

    By the stream's own clock, so that the same micro-batches give the same tables.
    """
    step = job_limits.PIPELINE_DERIVE_SECONDS * _SECOND_US
    return clock_us // step > derived_us // step


def task(before: Manifest, settings: Settings, place: str, batch: int, *, derives: bool) -> Task:
    """What the tasks of a step are told.

    Args:
        before: the version that it starts from.
        settings: of the run.
        place: folder in that of each table that new files go to.
        batch: micro-batch that the files belong to.
        derives: whether tables are made of readings.
    """
    settled_us = before.clock_us - round(settings.watermark_seconds * _SECOND_US)
    return Task(
        tables_dir=Folder.at(settings.tables_dir).address,
        place=place,
        batch=batch,
        interval_us=settings.interval_us,
        staleness_us=settings.staleness_us,
        watermark_seconds=settings.watermark_seconds,
        newest_us=before.newest_us,
        prices=settings.prices,
        energy_price=settings.energy_price,
        files=before.by_bucket(),
        pending={int(bucket): spans for bucket, spans in before.pending.items()},
        derives=derives,
        cold_us=settled_us - settings.staleness_us,
        ahead_us=before.clock_us + job_limits.FUTURE_SECONDS_MAX * _SECOND_US,
    )


def after_batch(
    outcomes: Sequence[Outcome], batch: int, before: Manifest, settings: Settings
) -> Manifest:
    """The manifest after micro-batch `batch`, of which tasks did `outcomes`.

    Raises:
        PipelineError: a reading ended nowhere, or twice.
    """
    totals = Totals()
    after = before.next(
        batch=batch,
        query=settings.query,
        buckets=before.buckets or settings.buckets,
        interval_seconds=settings.interval_us / _SECOND_US,
    )
    for outcome in outcomes:
        more = Totals(
            messages=outcome.messages,
            readings=outcome.readings,
            rows=outcome.rows.get(READINGS, 0),
            quarantined=outcome.rows.get(QUARANTINE, 0),
            duplicates=outcome.rows.get(DUPLICATES, 0),
            reasons=outcome.reasons,
        )
        totals += more
        after = after.with_files(outcome.added, outcome.replaced, outcome.moved)
        after = after.with_readings(more, outcome.offsets, outcome.newest_us)
        after = after.with_pending(outcome.bucket, outcome.pending)
    if not totals.balanced:
        raise PipelineError(
            f"{totals.readings} readings were read and {totals.rows} + {totals.quarantined} + "
            f"{totals.duplicates} written: the batch is not committed; run the pipeline again"
        )
    return after.reached(_reached(_newest(outcomes)))


def watched(
    folder: Folder, after: Manifest, place: str, settings: Settings, *, anew: bool = False
) -> Manifest:
    """`after`, with what the rules find in its tables; `anew` looks at all of them."""
    watermark_us = round(settings.watermark_seconds * _SECOND_US)
    return detect(
        folder, after, settings.rules, place=place, watermark_us=watermark_us,
        staleness_us=settings.staleness_us, anew=anew,
    )  # fmt: skip


def of_tables(tables_dir: Location, held: Manifest, **given: Any) -> Settings:  # noqa: ANN401
    """Settings for who changes tables without their query: what is fixed is as they have it."""
    return Settings(
        tables_dir=tables_dir,
        query=held.query,
        interval_us=round(held.interval_seconds * _SECOND_US),
        buckets=held.buckets,
        **given,
    )


def work_place(before: Manifest) -> str:
    """A folder of its own for the files of a step without readings."""
    return f"work={before.version + 1}/{uuid4().hex[:12]}"


def after_merging(outcomes: Iterable[Outcome], before: Manifest) -> Manifest:
    """The manifest after a step without readings."""
    return with_outcomes(before.next_version(), outcomes)


def with_outcomes(after: Manifest, outcomes: Iterable[Outcome]) -> Manifest:
    """`after`, which is being made, with the files of what tasks without readings did."""
    for outcome in outcomes:
        after = after.with_files(outcome.added, outcome.replaced, outcome.moved)
        after = after.with_pending(outcome.bucket, outcome.pending)
    return after


def _reached(newest_us: Sequence[int]) -> int:
    """The time that all partitions have reached, but for those that are days behind the others.

    What such a one tells comes from a clock that is wrong, and is late in any case.
    """
    if not newest_us:
        return 0
    least = max(newest_us) - job_limits.PIPELINE_BEHIND_SECONDS * _SECOND_US
    return min(each for each in newest_us if each >= least)


def _newest(outcomes: Iterable[Outcome]) -> list[int]:
    """The newest event time of each partition, of whose readings several buckets have a share."""
    found: dict[tuple[str, str], int] = {}
    for outcome in outcomes:
        for topic, partitions in outcome.newest_us.items():
            for partition, newest in partitions.items():
                found[topic, partition] = max(newest, found.get((topic, partition), newest))
    return list(found.values())
