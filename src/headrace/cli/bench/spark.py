"""`headrace bench spark`."""

from __future__ import annotations

import json
import signal
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from headrace.bench.spark import MEASURES, Load, Row
from headrace.bench.suite import results
from headrace.cli.bench.page import PageFile, html_option
from headrace.cli.bench.show import MEASURED, SECONDS, SIZE, Rate, number, progress_bar
from headrace.cli.client import json_option
from headrace.cli.demo.broker import Broker
from headrace.cli.pipeline_settings import need_spark
from headrace.cli.tables import table


@click.command(short_help="Rows a second of the Spark source and the pipeline.")
@click.argument("measures", nargs=-1, type=click.Choice(MEASURES), metavar="[MEASURE]...")
@click.option(
    "--records", type=click.IntRange(1), default=2_000_000, show_default=True,
    help="Of the stream that is read raw.",
)  # fmt: skip
@click.option("--payload", type=SIZE, default="100B", show_default=True, help="16 B or more.")
@click.option(
    "--readings", type=click.IntRange(1), default=500_000, show_default=True,
    help="Of telemetry that is stored, about 42 in a message.",
)  # fmt: skip
@click.option(
    "--partitions", type=click.IntRange(1, 1000), default=4, show_default=True,
    help="Of these two streams.",
)  # fmt: skip
@click.option(
    "--rounds", type=click.IntRange(1, 1000), default=3, show_default=True,
    help="Medians of so many, of source.",
)  # fmt: skip
@click.option(
    "--messages-per-batch", type=click.IntRange(1), default=2_500, show_default=True,
    help="Of pipeline.",
)  # fmt: skip
@click.option(
    "--batches", type=click.IntRange(1, 10_000), default=60, show_default=True, help="Of batch."
)
@click.option(
    "--rate", type=Rate(), default=10_000, show_default=True,
    help="Readings a second, of age.",
)  # fmt: skip
@click.option(
    "--scrape", "scrape_s", type=MEASURED, default="1s", show_default=True,
    help="Between two of a GPU.",
)  # fmt: skip
@click.option(
    "--every", default="500ms", show_default=True, help="From one micro-batch to the next, of age."
)
@click.option("--warm-up", type=SECONDS, default="5s", show_default=True, help="Of age.")
@click.option("--duration", type=MEASURED, default="20s", show_default=True, help="Of age.")
@click.option("--memory", default="2g", show_default=True, help="Heap of each JVM.")
@click.option(
    "--kafka-package", "package", default="", metavar="GROUP:ARTIFACT:VERSION",
    help="Spark's Kafka source, from Maven Central.  [that of this version of Spark]",
)  # fmt: skip
@click.option(
    "--kafka-jar", "jars", multiple=True, metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="Its jar, and those that it needs; again for each.",
)  # fmt: skip
@html_option
@json_option
def spark(
    *,
    measures: tuple[str, ...],
    html: PageFile | None,
    as_json: bool,
    **options: Any,  # noqa: ANN401 - fields of Load, as click read them
) -> None:
    """Measure the Spark source and the pipeline on this machine, broker included.

    A broker of its own starts on free ports and a folder that goes again. Each figure stands
    beside a baseline of the same run, and beside what is to be reached on two cores.

    \b
    MEASURE is one or more of these, all without one:
      source    rows a second to a sink that drops all, beside Parquet and Spark's Kafka source
      pipeline  readings a second into all tables, catching up, beside Spark copying to Parquet
      cold      seconds from the start of a pipeline to its first row
      batch     milliseconds of a micro-batch of two messages
      age       of readings when they are in the tables, while they come at --rate

    \b
    Examples:
      headrace bench spark
      headrace bench spark source --records 5000000 --kafka-jar kafka-source.jar
      headrace bench spark age --rate 20000 --every 500ms
      headrace bench spark --json
    """
    need_spark()
    from headrace.bench.spark.run import run  # noqa: PLC0415 - loads Spark, which takes seconds

    load = Load(**options)
    load.check()
    rows: list[Row] = []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # children end first
    try:
        with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name, progress_bar() as bar:
            folder, task = Path(name), bar.add_task("starting", total=None)
            broker = Broker(folder / "data", folder / "broker.log", lambda _: None)
            broker.start()
            try:
                run(
                    measures or MEASURES,
                    load,
                    broker.address("kafka"),
                    broker.address("mqtt"),
                    folder,
                    lambda words: bar.update(task, description=words),
                    rows,
                )
            finally:
                broker.close()
    finally:  # what was measured before an error is shown, too
        if rows and not as_json:
            _show(rows)
    if as_json:
        click.echo(json.dumps({"rows": [asdict(row) | {"ratio": row.ratio} for row in rows]}))
    if html is not None:
        html.sheet("headrace bench spark", asdict(load), [_shown(row) for row in rows])


def _shown(row: Row) -> results.Row:
    """A row of a page."""

    def one(value: float | None) -> results.Measured:
        figures = {row.unit: value}
        return results.Measured(rounds=[figures], medians=figures)

    return results.Row(
        workload=row.name,
        title=f"Beside {row.baseline}",
        source="",
        mode="",
        figure=row.unit,
        unit=row.unit,
        less_is_better=row.unit in ("s", "ms"),
        servers={results.OURS: one(row.figure), row.baseline: one(row.baseline_figure)},
        bounds={} if row.target_ratio is None else {row.baseline: row.target_ratio},
        at_least=row.target,
        note=row.note,
    )


def _show(rows: list[Row]) -> None:
    cells = [
        [
            row.name,
            f"{number(row.figure)} {row.unit}" if row.figure is not None else "-",
            row.baseline,
            number(row.baseline_figure) or "-",
            "-" if row.ratio is None else f"{row.ratio:.2f}",
            _target(row),
        ]
        for row in rows
    ]
    table(["row", "figure", "baseline", "its figure", "ratio", "target"], cells, right={1, 3, 4, 5})
    for note in dict.fromkeys(f"{row.name}: {row.note}" for row in rows if row.note):
        click.echo(note)


def _target(row: Row) -> str:
    parts = [] if row.target is None else [number(row.target)]
    if row.target_ratio is not None:
        parts.append(f"{row.target_ratio:g}x")
    return ", ".join(parts)
