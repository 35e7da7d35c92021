"""`headrace report`: what a fleet of GPUs did, from the tables of the pipeline."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from headrace.cli.paths import NamedPath
from headrace.cli.pipeline_settings import (
    config_option,
    need_spark,
    tables_of,
    tables_option,
    tables_read,
)
from headrace.cli.tables import table
from headrace.text import span

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from headrace.pipeline.fleet_report import FleetReport


def _instant(_context: object, option: click.Parameter, text: str | None) -> datetime | None:
    from headrace.pipeline.api.asked import EPOCH, instant  # noqa: PLC0415 - loads Arrow

    if text is None:
        return None
    try:
        return EPOCH + timedelta(microseconds=instant(text))
    except ValueError as error:
        raise click.BadParameter(str(error), param=option) from None


@click.command(short_help="What a fleet of GPUs did, and what that cost.")
@config_option
@tables_option
@click.option("--start", metavar="TIME", callback=_instant, help="Hours that begin from it on.")
@click.option("--end", metavar="TIME", callback=_instant, help="Hours that begin until it.")
@click.option(
    "--top", type=click.IntRange(1, 10_000), default=10, show_default=True,
    help="Hosts, pods and the like that are listed, largest first.",
)  # fmt: skip
@click.option("--html", type=NamedPath(), metavar="FILE", help="Write a page with pictures, too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
def report(
    *,
    file: Path | None,
    tables: str | None,
    start: datetime | None,
    end: datetime | None,
    top: int,
    html: Path | None,
    as_json: bool,
) -> None:
    """Tell how busy a fleet was, what it drew and cost, what was idle, and what is wrong with it.

    The page of --html is one file that loads nothing. Costs are those that the pipeline had prices
    for ([pipeline] prices). Times are RFC 3339.

    \b
    Examples:
      headrace report --tables tables
      headrace report --tables tables --start 2030-01-01T00:00:00Z --html fleet.html
    """
    folder = tables_of(file, tables)
    need_spark()
    from headrace.pipeline.fleet_report import gathered  # noqa: PLC0415 - loads Arrow

    with tables_read(folder):
        found = gathered(folder, start, end)
    if html is not None:
        from headrace.pipeline.chart import fleet_pictures  # noqa: PLC0415 - loads matplotlib
        from headrace.pipeline.fleet_page import page  # noqa: PLC0415

        html.write_text(page(found, fleet_pictures(found.series), top), encoding="utf-8")
    if as_json:
        click.echo(json.dumps(found.as_json(top)))
        return
    _show(found, top)
    if html is not None:
        click.echo(f"page: {html}")


def _show(found: FleetReport, top: int) -> None:
    from headrace.pipeline.fleet_page import FIGURES, TITLES, money, names  # noqa: PLC0415

    if found.start is None:
        click.echo("no telemetry in that time")
        return
    click.echo(f"{found.start:%Y-%m-%d %H:%M} to {found.end:%Y-%m-%d %H:%M} UTC")
    heads, right = [name for name, _ in FIGURES], set(range(len(FIGURES)))
    table(heads, [[told(found.whole) for _, told in FIGURES]], right=right)
    for part, rows in found.parts.items():
        told = [[names(part, row), *(each(row) for _, each in FIGURES)] for row in rows[:top]]
        table([TITLES[part].lower(), *heads], told, right={each + 1 for each in right})
    if found.idle:
        idle = [
            [
                each.host,
                "" if each.gpu_index is None else str(each.gpu_index),
                f"{each.namespace}/{each.pod}".strip("/"),
                span(each.seconds),
                money(each.cost),
                "now" if each.is_open else "",
            ]
            for each in found.idle[:top]
        ]
        table(["idle on", "GPU", "pod", "for", "cost", ""], idle, right={1, 3, 4})
    still = [
        [
            row["severity"], row["kind"], row["host"] or "", f"{row['start']:%m-%d %H:%M}",
            row["text"] or "",
        ]
        for row in found.detections[:top]
    ]  # fmt: skip
    if still:
        table(["open", "kind", "host", "since", "what"], still, right=set())
    more = len(found.detections) - len(still)
    if more > 0:
        click.echo(f"{more} more are open")
