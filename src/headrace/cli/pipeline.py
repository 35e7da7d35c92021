"""`headrace pipeline`: telemetry from a stream to tables and detections, with Spark.

Here: arguments and what a person reads. What the pipeline does is `headrace.pipeline`'s.
"""

from __future__ import annotations

import json
import signal
import sys
from collections import Counter
from importlib.util import find_spec
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

import click

from headrace.cli.login import login, login_options
from headrace.cli.paths import NamedPath
from headrace.cli.tables import table
from headrace.errors import InputError
from headrace.model import Address
from headrace.text import parse_duration_ms

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql.streaming.query import StreamingQuery

    from headrace.pipeline import Progress
    from headrace.pipeline.manifest import Manifest
    from headrace.pipeline.score import Score

__all__ = ["pipeline"]

_STREAM: Final = "gpu-telemetry"

_tables_option = click.option(
    "--tables", "tables_dir", type=NamedPath(), required=True, metavar="DIR",
    help="Folder of the tables.",
)  # fmt: skip
_json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object instead of text."
)


def _duration(_context: object, option: click.Parameter, text: str) -> float:
    try:
        milliseconds = parse_duration_ms(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param=option) from None
    if milliseconds <= 0:
        raise click.BadParameter("must be longer than nothing", param=option)
    return milliseconds / 1000


def _rules(_context: object, option: click.Parameter, pairs: Sequence[str]) -> Any:  # noqa: ANN401
    """`KIND.SETTING=NUMBER` as the pipeline takes them."""
    rules: dict[str, dict[str, float]] = {}
    for pair in pairs:
        name, separator, number = pair.partition("=")
        kind, dot, setting = name.partition(".")
        try:
            if not (separator and dot):
                raise ValueError  # noqa: TRY301 - one error for all that is no rule
            rules.setdefault(kind, {})[setting] = float(number)
        except ValueError:
            raise click.BadParameter(
                f"{pair!r} must be KIND.SETTING=NUMBER, such as idle_allocated.window_s=600",
                param=option,
            ) from None
    return rules


def _price(text: str) -> float:
    price = float(text)
    if not isfinite(price) or price < 0:
        raise ValueError(text)
    return price


def _energy_price(_context: object, option: click.Parameter, text: str) -> float:
    try:
        return _price(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} must be a price, such as 0.12", param=option) from None


def _prices(_context: object, option: click.Parameter, pairs: Sequence[str]) -> dict[str, float]:
    prices = {}
    for pair in pairs:
        model, separator, number = pair.rpartition("=")
        try:
            if not (separator and model):
                raise ValueError  # noqa: TRY301
            prices[model] = _price(number)
        except ValueError:
            raise click.BadParameter(
                f"{pair!r} must be MODEL=PRICE, such as 'NVIDIA H200=3.9' or default=2.5",
                param=option,
            ) from None
    return prices


@click.group(short_help="Telemetry to tables and detections, with Spark.")
def pipeline() -> None:
    """Bring GPU telemetry from a stream to tables, and look what is in them.

    \b
    Examples:
      headrace pipeline run --tables tables --checkpoint checkpoint
      headrace pipeline status --tables tables
      headrace pipeline score --tables tables --truth truth.jsonl
    """


@pipeline.command(short_help="Keep tables up to date with a stream.")
@click.option(
    "--kafka", "broker", default="127.0.0.1:9092", show_default=True, metavar="HOST:PORT",
    help="Kafka door of the broker.",
)  # fmt: skip
@click.option("--stream", default=_STREAM, show_default=True, help="Stream with telemetry.")
@_tables_option
@click.option(
    "--checkpoint", "checkpoint_dir", type=NamedPath(), required=True, metavar="DIR",
    help="Spark's checkpoint; belongs to the tables.",
)  # fmt: skip
@click.option("--once", is_flag=True, help="Stop when all that is stored now is in the tables.")
@click.option(
    "--every", default="1s", show_default=True, metavar="DURATION", callback=_duration,
    help="Time from one micro-batch to the next.",
)  # fmt: skip
@click.option(
    "--interval", default="10s", show_default=True, metavar="DURATION", callback=_duration,
    help="Length of an interval of gpu_intervals; fixed with the first micro-batch.",
)  # fmt: skip
@click.option(
    "--watermark", default="90s", show_default=True, metavar="DURATION", callback=_duration,
    help="How far behind the newest a reading is still in time.",
)  # fmt: skip
@click.option(
    "--replay", is_flag=True,
    help="Telemetry of a file that is played again: no event time is in the future.",
)  # fmt: skip
@click.option(
    "--rule", "rules", multiple=True, metavar="KIND.SETTING=NUMBER", callback=_rules,
    help="A setting of a rule that finds faults.",
)  # fmt: skip
@click.option(
    "--price", "prices", multiple=True, metavar="MODEL=PRICE", callback=_prices,
    help="Of an hour of a GPU; 'default' is that of any other model.",
)  # fmt: skip
@click.option(
    "--energy-price", default="0", metavar="PRICE", callback=_energy_price,
    help="Of a kilowatt hour.",
)  # fmt: skip
@click.option(
    "--master", metavar="URL",
    help="Spark to run on, such as spark://host:7077.  [this machine's cores]",
)  # fmt: skip
@click.option(
    "--memory", default="2g", show_default=True, help="Heap of the JVM, as Java writes it."
)
@login_options
@_json_option
def run(
    *,
    broker: str,
    stream: str,
    tables_dir: Path,
    checkpoint_dir: Path,
    once: bool,
    every: float,
    interval: float,
    watermark: float,
    replay: bool,
    rules: dict[str, dict[str, float]],
    prices: dict[str, float],
    energy_price: float,
    master: str | None,
    memory: str,
    user: str | None,
    password_file: Path | None,
    as_json: bool,
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
    try:
        Address.parse(broker, such_as=9092)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--kafka") from None
    _need_spark()
    from headrace.pipeline import Options, start  # noqa: PLC0415 - loads Spark, which takes seconds
    from headrace.pipeline import tables as stored  # noqa: PLC0415
    from headrace.pipeline.detections import rules_of  # noqa: PLC0415
    from headrace.spark import close, session  # noqa: PLC0415
    from headrace.spark.errors import PipelineError, SparkSideError, explain  # noqa: PLC0415

    try:
        rules_of(rules)
    except PipelineError as error:
        raise click.BadParameter(str(error), param_hint="--rule") from None
    who = login(user, password_file)
    options = Options(
        interval_s=interval,
        watermark_s=watermark,
        now="event_time" if replay else "ingest_time",
        rules=rules,
        prices=prices,
        energy_price=energy_price,
    )
    conf = {} if master is None else {"spark.master": master}
    stopped_by: list[int] = []
    try:
        spark = session("headrace pipeline", memory=memory, conf=conf)
        try:
            query = start(
                spark, broker, stream, tables_dir, checkpoint_dir, options=options, login=who,
                trigger="availableNow" if once else f"{round(every * 1000)} milliseconds",
                on_progress=_told,
            )  # fmt: skip
            _until_stopped(query, stopped_by)
            stored.begin(tables_dir)
        finally:
            close(spark)
    except SparkSideError as error:
        raise click.ClickException(explain(error)) from error
    _show_status(stored.manifest(tables_dir), tables_dir, as_json=as_json)
    if stopped_by and once:
        raise click.exceptions.Exit(128 + stopped_by[0])


def _until_stopped(query: StreamingQuery, stopped_by: list[int]) -> None:
    from pyspark.errors import StreamingQueryException  # noqa: PLC0415

    from headrace.spark.errors import PipelineError, explain  # noqa: PLC0415

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda got, _frame: stopped_by.append(got))
    try:
        while not stopped_by and not query.awaitTermination(1):
            pass
    except StreamingQueryException as error:
        raise PipelineError(explain(error)) from error
    query.stop()


def _told(progress: Progress) -> None:
    totals = progress.totals
    click.echo(
        f"batch {progress.batch}: readings {totals.readings:,} = rows {totals.rows:,} + "
        f"quarantined {totals.quarantined:,} + duplicates {totals.duplicates:,}",
        err=True,
    )


@pipeline.command(short_help="What the tables hold, and how far they are.")
@_tables_option
@_json_option
def status(*, tables_dir: Path, as_json: bool) -> None:
    """Show tables, accounting, offsets and open detections of a folder.

    \b
    Examples:
      headrace pipeline status --tables tables
      headrace pipeline status --tables tables --json
    """
    _need_spark()
    from headrace.pipeline import tables as stored  # noqa: PLC0415

    _show_status(stored.manifest(tables_dir), _existing(tables_dir), as_json=as_json)


def _show_status(manifest: Manifest, tables_dir: Path, *, as_json: bool) -> None:
    from headrace.pipeline import tables as stored  # noqa: PLC0415
    from headrace.pipeline.schemas import DETECTIONS, SCHEMAS  # noqa: PLC0415

    held = {
        name: {
            "rows": sum(file.rows for file in manifest.of(name)),
            "bytes": sum(file.bytes for file in manifest.of(name)),
            "files": len(manifest.of(name)),
        }
        for name in SCHEMAS
    }
    found = stored.open_arrow(tables_dir, DETECTIONS).to_table(["kind", "severity", "end"])
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
        }
        click.echo(json.dumps(said))
        return
    rows = [
        [name, f"{each['rows']:,}", f"{each['bytes']:,}", f"{each['files']:,}"]
        for name, each in held.items()
    ]
    table(["table", "rows", "bytes", "files"], rows, right={1, 2, 3})
    for kind, count in sorted(still_open.items()):
        click.echo(f"open: {count} {kind}")
    click.echo(
        f"version {manifest.version}: readings {totals.readings:,} = rows {totals.rows:,} + "
        f"quarantined {totals.quarantined:,} + duplicates {totals.duplicates:,}"
    )


@pipeline.command(short_help="Compare detections with faults that are known.")
@_tables_option
@click.option(
    "--truth", "truth", type=NamedPath(), required=True, metavar="FILE",
    help="Faults, as `headrace simulate fleet --truth` writes them.",
)  # fmt: skip
@_json_option
def score(*, tables_dir: Path, truth: Path, as_json: bool) -> None:
    """Print precision and recall of each kind of detection.

    Detections of severity `info` tell what is normal and are not counted.

    \b
    Examples:
      headrace pipeline score --tables tables --truth truth.jsonl
    """
    _need_spark()
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
    rows = stored.open_arrow(_existing(tables_dir), "detections").to_table().to_pylist()
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


def _existing(tables_dir: Path) -> Path:
    if not tables_dir.is_dir():
        raise InputError(f"{tables_dir}: no such folder; name the one that the pipeline writes")
    return tables_dir


def _need_spark() -> None:
    if find_spec("pyspark") is None or find_spec("duckdb") is None:
        click.echo(
            "the pipeline needs Spark, which is not installed\ntry: pip install 'headrace[spark]'",
            err=True,
        )
        sys.exit(1)
