"""`headrace collect`: telemetry from where it is to a broker.

Owns arguments, progress and exit codes. What is read, how it looks on the wire and what is sent
again is decided in `headrace.collect`.
"""

from __future__ import annotations

import click

from headrace.cli.collect.csv_file import csv_file, default_source
from headrace.cli.collect.exporter import exporter
from headrace.cli.collect.nvml import nvml
from headrace.cli.collect.show import now_us

__all__ = ["collect", "default_source", "now_us"]


@click.group(short_help="Publish GPU telemetry to a broker.")
def collect() -> None:
    """Read GPU telemetry and publish it over MQTT, each reading acknowledged.

    \b
    Examples:
      headrace collect exporter http://node-1:9400/metrics
      headrace collect nvml --interval 1s
      headrace collect csv readings.csv.gz
      headrace collect csv readings.csv.gz --rate 500/s --loop
    """


collect.add_command(csv_file)
collect.add_command(exporter)
collect.add_command(nvml)
