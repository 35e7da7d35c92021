"""`headrace pipeline`: telemetry from a stream to tables and detections, with Spark.

Here: arguments and what a person reads. What the pipeline does is `headrace.pipeline`'s.
"""

from __future__ import annotations

import json
from collections import Counter
from contextlib import ExitStack
from dataclasses import asdict, replace
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import click

from headrace.cli.login import login, login_options
from headrace.cli.paths import NamedPath
from headrace.cli.pipeline_prepare import prepare
from headrace.cli.pipeline_session import reach_stream, spark_for, stopping
from headrace.cli.pipeline_settings import (
    Instant,
    config_option,
    energy_price_option,
    format_option,
    need_format,
    need_spark,
    needed,
    place_to_make,
    prices_option,
    rules_option,
    rules_with,
    settings_of,
    spark_conf_option,
    staleness_option,
    tables_of,
    tables_option,
    tables_read,
    watermark_option,
    wrong_rules,
)
from headrace.cli.processes import heed_signals
from headrace.cli.tables import table
from headrace.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from headrace.config import PipelineSettings
    from headrace.pipeline import Options, Progress
    from headrace.pipeline.manifest import Manifest
    from headrace.pipeline.score import Score

__all__ = ["pipeline"]

_TOLD_EVERY_SECONDS: Final = 5.0

_json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object instead of text."
)


@click.group(short_help="Telemetry to tables and detections, with Spark.")
def pipeline() -> None:
    """Bring GPU telemetry from a stream to tables, and look what is in them.

    \b
    Examples:
      headrace pipeline run --tables tables --checkpoint checkpoint
      headrace pipeline status --tables tables
      headrace pipeline compact --tables tables
      headrace pipeline backfill --tables tables --price default=2.5
      headrace pipeline score --tables tables --truth truth.jsonl
      headrace pipeline prepare
    """


pipeline.add_command(prepare)


@pipeline.command(short_help="Keep tables up to date with a stream.")
@config_option
@click.option("--kafka", metavar="HOST:PORT", help="Kafka door of the broker.  [127.0.0.1:9092]")
@click.option(
    "--mqtt", metavar="HOST:PORT", help="MQTT door of the broker, to publish alerts to.  [none]"
)
@click.option("--stream", help="Stream with telemetry.  [gpu-telemetry]")
@tables_option
@click.option(
    "--checkpoint", metavar="DIR",
    help="Spark's checkpoint, or a URI such as s3://bucket/checkpoint; belongs to the tables.",
)  # fmt: skip
@click.option("--once", is_flag=True, help="Stop when all that is stored now is in the tables.")
@click.option("--every", metavar="DURATION", help="Time from one micro-batch to the next.  [500ms]")
@click.option(
    "--interval", metavar="DURATION",
    help="Length of an interval of gpu_intervals; fixed with the first micro-batch.  [10s]",
)  # fmt: skip
@watermark_option
@staleness_option
@click.option(
    "--replay/--no-replay", default=None,
    help="Telemetry of a file that is played again: no event time is in the future.",
)  # fmt: skip
@click.option(
    "--fail-on-data-loss/--no-fail-on-data-loss", default=None,
    help="End where retention took messages that were not read yet, or go on.  [end]",
)  # fmt: skip
@click.option("--messages-per-batch", metavar="NUMBER", help="Of one micro-batch at most.  [20000]")
@click.option(
    "--buckets", metavar="NUMBER",
    help="Shares of the GPUs; fixed with the first micro-batch.  [this machine's cores]",
)  # fmt: skip
@rules_option
@prices_option
@energy_price_option
@format_option
@click.option(
    "--master", metavar="URL",
    help="Spark to run on, such as spark://host:7077.  [this machine's cores]",
)  # fmt: skip
@click.option("--memory", help="Heap of the JVM, as Java writes it.  [2g]")
@spark_conf_option
@login_options
@_json_option
def run(
    *,
    file: Path | None,
    once: bool,
    rules: dict[str, dict[str, float]],
    prices: dict[str, float],
    spark_conf: dict[str, str],
    user: str | None,
    password_file: Path | None,
    as_json: bool,
    **options: Any,  # noqa: ANN401 - settings, by their names
) -> None:
    """Read telemetry from a stream and keep the tables up to date, until a signal.

    Each reading ends in exactly one of readings, quarantine and duplicates, also where the broker,
    Spark or this command is killed; run it again with the same folders and it goes on. Progress is
    printed on stderr.

    \b
    Examples:
      headrace pipeline run --tables tables --checkpoint checkpoint
      headrace pipeline run --tables t --checkpoint c --once --replay --json
      headrace pipeline run --tables t --checkpoint c --rule idle_allocated.window_s=600
    """
    settings = settings_of(file, **options).pipeline
    need_format(settings)
    tables_dir = place_to_make(needed(settings, "tables"), "tables")
    checkpoint_dir = place_to_make(needed(settings, "checkpoint"), "checkpoint")
    need_spark()
    from headrace.pipeline import run as start  # noqa: PLC0415
    from headrace.pipeline import tables as stored  # noqa: PLC0415
    from headrace.pipeline import warm_up  # noqa: PLC0415
    from headrace.pipeline.announce import Announcer  # noqa: PLC0415
    from headrace.pipeline.folder import Folder  # noqa: PLC0415
    from headrace.spark.errors import PipelineError  # noqa: PLC0415

    try:
        Folder.at(tables_dir)
        checkpoint = Folder.at(checkpoint_dir).for_spark
    except PipelineError as error:
        raise InputError(str(error)) from None
    how = _options(settings, file, rules, prices)
    who = login(user, password_file)
    reach_stream(str(settings.kafka), settings.stream, who)
    stopped_by: list[int] = []
    heed_signals(stopped_by)
    with (
        stopping(stopped_by),
        spark_for(settings, spark_conf, tables_dir, checkpoint) as spark,
        ExitStack() as opened,
    ):
        warm_up(spark, how.buckets)
        told = None
        if settings.mqtt is not None:
            announcer = Announcer(tables_dir, str(settings.mqtt), who, _warn)
            told = opened.enter_context(announcer).told
        start(
            spark, str(settings.kafka), settings.stream, tables_dir, checkpoint_dir,
            options=how, login=who, on_progress=_told, on_commit=told,
            stopped=lambda: bool(stopped_by),
            trigger="availableNow" if once else f"{settings.every} milliseconds",
        )  # fmt: skip
    _show_status(stored.manifest(tables_dir), tables_dir, as_json=as_json)
    if stopped_by and once:
        raise click.exceptions.Exit(128 + stopped_by[0])


def _options(
    settings: PipelineSettings,
    file: Path | None,
    rules: dict[str, dict[str, float]],
    prices: dict[str, float],
) -> Options:
    """What a run is told, as settings and options say it."""
    from headrace.pipeline import Options  # noqa: PLC0415 - loads Spark, which takes seconds
    from headrace.pipeline.detections import rules_of  # noqa: PLC0415
    from headrace.spark.errors import PipelineError  # noqa: PLC0415

    all_rules = rules_with(settings, rules)
    try:
        rules_of(all_rules)
    except PipelineError as error:
        raise wrong_rules(file, error, rules) from None
    options = Options(
        interval_s=settings.interval / 1000,
        watermark_s=settings.watermark / 1000,
        staleness_s=None if settings.staleness is None else settings.staleness / 1000,
        now="event_time" if settings.replay else "ingest_time",
        fail_on_data_loss=settings.fail_on_data_loss,
        messages_per_batch=settings.messages_per_batch,
        rules=all_rules,
        prices=settings.prices | prices,
        energy_price=settings.energy_price,
        format=settings.format,
    )
    return options if settings.buckets is None else replace(options, buckets=settings.buckets)


def _warn(text: str) -> None:
    click.echo(text, err=True)


def _told(progress: Progress) -> None:
    totals = progress.totals
    click.echo(
        f"batch {progress.batch}: readings {totals.readings:,} = rows {totals.rows:,} + "
        f"quarantined {totals.quarantined:,} + duplicates {totals.duplicates:,}",
        err=True,
    )


@pipeline.command(short_help="What the tables hold, and how far they are.")
@config_option
@tables_option
@_json_option
def status(*, file: Path | None, tables: str | None, as_json: bool) -> None:
    """Show tables, accounting, offsets and open detections of a folder.

    \b
    Examples:
      headrace pipeline status --tables tables
      headrace pipeline status --tables tables --json
    """
    tables_dir = tables_of(file, tables)
    need_spark()
    from headrace.pipeline import tables as stored  # noqa: PLC0415
    from headrace.spark.errors import PipelineError  # noqa: PLC0415

    try:
        held = stored.manifest(tables_dir)
    except PipelineError as error:
        raise InputError(str(error)) from None
    _show_status(held, tables_dir, as_json=as_json)


def _show_status(manifest: Manifest, tables_dir: Path | str, *, as_json: bool) -> None:
    from headrace.pipeline import tables as stored  # noqa: PLC0415
    from headrace.pipeline.fleet import too_rare  # noqa: PLC0415
    from headrace.pipeline.schemas import DETECTIONS, GPU_HOURS, SCHEMAS  # noqa: PLC0415

    held = {
        name: {
            "rows": sum(file.rows for file in manifest.of(name)),
            "bytes": sum(file.bytes for file in manifest.of(name)),
            "files": len(manifest.of(name)),
        }
        for name in SCHEMAS
    }
    with tables_read(tables_dir):
        found = stored.open_arrow(tables_dir, DETECTIONS).to_table(["kind", "severity", "end"])
        columns = ["uuid", "gpu_i_id", "start", "samples", "seconds"]
        hours = stored.open_arrow(tables_dir, GPU_HOURS).to_table(columns)
    unjudged = too_rare(hours, manifest.reached_us)
    still_open = Counter(row["kind"] for row in found.to_pylist() if row["end"] is None)
    totals = manifest.totals
    if as_json:
        said = {
            "version": manifest.version,
            "batch": manifest.batch,
            "messages": totals.messages,
            "readings": totals.readings,
            "rows": totals.rows,
            "quarantined": totals.quarantined,
            "duplicates": totals.duplicates,
            "reasons": dict(totals.reasons),
            "offsets": manifest.offsets,
            "tables": held,
            "open": dict(sorted(still_open.items())),
            "scraped_too_rarely": unjudged,
        }
        click.echo(json.dumps(said))
        return
    if manifest.version < 0:
        click.echo("nothing was read yet: the tables are empty")
        return
    rows = [
        [name, f"{each['rows']:,}", f"{each['bytes']:,}", f"{each['files']:,}"]
        for name, each in held.items()
    ]
    table(["table", "rows", "bytes", "files"], rows, right={1, 2, 3})
    for kind, count in sorted(still_open.items()):
        click.echo(f"open: {count} {kind}")
    if unjudged:
        click.echo(
            f"GPUs scraped too rarely: {unjudged}. No time, cost or fault of them counts: run and "
            "backfill with a --staleness of more than twice the distance of scrapes"
        )
    click.echo(
        f"version {manifest.version}: readings {totals.readings:,} = rows {totals.rows:,} + "
        f"quarantined {totals.quarantined:,} + duplicates {totals.duplicates:,}"
    )


@pipeline.command(short_help="Make anew what is made of readings.")
@config_option
@tables_option
@click.option(
    "--from", "start_us", type=Instant(), metavar="TIME", help="Event time to begin with."
)
@click.option("--to", "end_us", type=Instant(), metavar="TIME", help="Event time to end before.")
@watermark_option
@staleness_option
@rules_option
@prices_option
@energy_price_option
@format_option
@click.option("--master", metavar="URL", help="Spark to run on.  [this machine's cores]")
@click.option("--memory", help="Heap of the JVM, as Java writes it.  [2g]")
@spark_conf_option
@_json_option
def backfill(
    *,
    file: Path | None,
    tables: str | None,
    start_us: int | None,
    end_us: int | None,
    rules: dict[str, dict[str, float]],
    prices: dict[str, float],
    spark_conf: dict[str, str],
    as_json: bool,
    **options: Any,  # noqa: ANN401 - settings, by their names
) -> None:
    """Make intervals, minutes, hours, jobs and detections anew from the readings in the tables.

    After prices, rules or staleness have changed: give those that hold now, and the --watermark of
    the run. Stop the pipeline first; it goes on afterwards. Hours are made whole; detections come
    from all intervals, whatever the times. All changes at once, at the end: ended before, it has
    changed nothing.

    \b
    Examples:
      headrace pipeline backfill --tables tables --price default=2.5
      headrace pipeline backfill --tables t --from 2026-11-01T00:00:00Z --config headrace.toml
    """
    if start_us is not None and end_us is not None and start_us >= end_us:
        raise click.BadParameter("must be after --from", param_hint="--to")
    tables_dir = tables_of(file, tables)
    settings = settings_of(file, **options).pipeline
    need_format(settings)
    need_spark()
    from headrace.pipeline.backfill import backfill as made_anew  # noqa: PLC0415

    how = _options(settings, file, rules, prices)
    with spark_for(settings, spark_conf, tables_dir) as spark:
        held = made_anew(
            spark, tables_dir, how, start_us=start_us, end_us=end_us,
            on_slice=_slice_told(),
        )  # fmt: skip
    _show_status(held, tables_dir, as_json=as_json)


def _slice_told() -> Callable[[int, int], None]:
    """Tells of slices every few seconds, and of the last."""
    told_at = 0.0

    def told(number: int, count: int) -> None:
        nonlocal told_at
        if number == count or monotonic() - told_at >= _TOLD_EVERY_SECONDS:
            told_at = monotonic()
            _warn(f"slice {number:,} of {count:,}")

    return told


@pipeline.command(short_help="Make few files of many small ones.")
@config_option
@tables_option
@format_option
@_json_option
def compact(
    *,
    file: Path | None,
    tables: str | None,
    as_json: bool,
    **options: Any,  # noqa: ANN401 - settings, by their names
) -> None:
    """Merge small files of settled time, and delete what no version of the tables lists.

    A running pipeline does the first by itself as it goes, and this command may run beside it. No
    row changes. Progress is printed on stderr.

    \b
    Examples:
      headrace pipeline compact --tables tables
    """
    tables_dir = tables_of(file, tables)
    settings = settings_of(file, **options).pipeline
    need_format(settings)
    need_spark()
    from headrace.pipeline.compact import compact as merged  # noqa: PLC0415

    with tables_read(tables_dir):
        done = merged(tables_dir, _warn, settings.format)
    if as_json:
        click.echo(json.dumps(asdict(done)))
        return
    click.echo(
        f"files {done.files_before:,} -> {done.files_after:,}, bytes {done.bytes_before:,} -> "
        f"{done.bytes_after:,}; deleted {done.deleted:,} that nothing lists"
    )


@pipeline.command(short_help="Compare detections with faults that are known.")
@config_option
@tables_option
@click.option(
    "--truth", "truth", type=NamedPath(), required=True, metavar="FILE",
    help="Faults, as `headrace simulate fleet --truth` writes them.",
)  # fmt: skip
@_json_option
def score(*, file: Path | None, tables: str | None, truth: Path, as_json: bool) -> None:
    """Print precision and recall of each kind of detection.

    Detections of severity `info` tell what is normal and are not counted.

    \b
    Examples:
      headrace pipeline score --tables tables --truth truth.jsonl
    """
    need_spark()
    from headrace.pipeline import tables as stored  # noqa: PLC0415
    from headrace.pipeline.score import read_truth  # noqa: PLC0415
    from headrace.pipeline.score import score as scored  # noqa: PLC0415
    from headrace.spark.errors import PipelineError  # noqa: PLC0415

    try:
        lines = truth.read_text(encoding="utf-8").splitlines()
        known = read_truth(lines)
    except (OSError, UnicodeDecodeError, PipelineError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"{truth}: {why}") from None
    try:
        folder = tables_of(file, tables)
        with tables_read(folder):
            rows = stored.open_arrow(folder, "detections").to_table().to_pylist()
    except PipelineError as error:
        raise InputError(str(error)) from None
    scores = scored(rows, known)
    if as_json:
        click.echo(json.dumps({each.kind: _score(each) for each in scores}))
        return
    table(
        ["kind", "faults", "found", "recall", "detections", "right", "precision"],
        [
            [
                each.kind, str(each.faults), str(each.found), _share(each.recall),
                str(each.detections), str(each.right), _share(each.precision),
            ]
            for each in scores
        ],
        right={1, 2, 3, 4, 5, 6},
    )  # fmt: skip


def _score(each: Score) -> dict[str, Any]:
    return {
        "faults": each.faults, "found": each.found, "recall": each.recall,
        "detections": each.detections, "right": each.right, "precision": each.precision,
    }  # fmt: skip


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
