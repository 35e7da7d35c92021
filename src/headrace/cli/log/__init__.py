"""`headrace log`: the data folder of a stopped node, looked at and repaired."""

from __future__ import annotations

import click

from headrace.cli.log.dump import dump
from headrace.cli.log.repair import repair
from headrace.cli.log.verify import verify


@click.group(short_help="Look at, check and repair a stopped node's data.")
def log() -> None:
    """Segments, indexes and journal of a stopped node.

    A node that runs keeps its folder to itself: stop it first. STREAM and STREAM/PARTITION narrow
    a command down.

    \b
    Examples:
      headrace log dump --data /var/lib/headrace
      headrace log dump --data /var/lib/headrace readings/0 --records --offset 1000 --limit 5
      headrace log verify --data /var/lib/headrace
      headrace log repair --data /var/lib/headrace --dry-run
    """


for command in (dump, repair, verify):
    log.add_command(command)
