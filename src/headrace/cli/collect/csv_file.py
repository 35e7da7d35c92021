"""`headrace collect csv`: a file to a broker."""

from __future__ import annotations

import hashlib
import math
import socket
import time
from typing import TYPE_CHECKING, Final

import click

from headrace import job_limits
from headrace.cli.collect.show import (
    checked_source,
    conclude,
    new_progress,
    now_us,
    shown_on,
    stop_on_signals,
    unacknowledged,
)
from headrace.cli.login import login
from headrace.cli.paths import NamedPath
from headrace.cli.where import broker_options, json_option
from headrace.collect import CsvFile, Origin, Publisher, narrow, replayed, wide

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.model import Address

_RATE_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0}


def _rate(_context: object, _option: object, text: str | None) -> float | None:
    """Readings a second of `500`, `500/s` or `1200/m`."""
    if text is None:
        return None
    number, _, unit = text.partition("/")
    try:
        rate = float(number) / _RATE_UNITS[unit or "s"]
    except (ValueError, KeyError):
        rate = 0.0
    if not 0.0 < rate < math.inf:
        raise click.BadParameter(f"must be a rate above 0, such as 500/s; got {text!r}")
    return rate


@click.command("csv", short_help="Publish a CSV file of DCGM readings.")
@click.argument("file", type=NamedPath())
@broker_options
@click.option(
    "--rate", callback=_rate, metavar="N/s", help="Readings a second at most.  [no limit]"
)
@click.option("--loop", is_flag=True, help="Play the file again and again, later each time.")
@click.option("--wide", "is_wide", is_flag=True, help="One message per GPU and event time.")
@click.option(
    "--gpus",
    type=click.IntRange(1, job_limits.REPLAY_GPUS_MAX),
    help="Play the file for this many GPUs.",
)
@click.option("--source", help="Name of this collector.  [host and file]")
@json_option
def csv_file(
    *,
    file: Path,
    broker: Address,
    user: str | None,
    password_file: Path | None,
    rate: float | None,
    loop: bool,
    is_wide: bool,
    gpus: int | None,
    source: str | None,
    as_json: bool,
) -> None:
    """Publish the readings of FILE, a CSV as dcgm-exporter's users keep it, plain or gzip.

    The first line names the columns timestamp, metric_name, uuid and value; gpu_id, device,
    modelName, Hostname, container, pod, namespace and labels_raw are used where present. A row
    with a fault is published like any other: the pipeline decides what is usable.

    Each message is published at QoS 1 until the broker acknowledges it. Lost connections are made
    again, and nothing of a run is stored twice: each message carries a source, an epoch (the run's
    start) and a sequence. A second run publishes everything anew. A signal ends the input, waits
    for what is out, and exits (with 0 after --loop).

    \b
    Examples:
      headrace collect csv readings.csv.gz
      headrace collect csv readings.csv --mqtt 127.0.0.1:2883 --wide
      headrace collect csv readings.csv.gz --gpus 64 --rate 2000/s --loop
    """
    readings = replayed(CsvFile(file), gpus, loop=loop)
    messages = (wide if is_wide else narrow)(readings, now_us)
    origin = Origin(checked_source(source or default_source(file)), time.time_ns())
    who = login(user, password_file)
    with new_progress() as progress:
        begun = time.monotonic()
        publisher = Publisher(
            broker, origin, login=who, rate=rate, on_progress=shown_on(progress, begun)
        )
        stopped_by = stop_on_signals(publisher.stop)
        counts = publisher.run(messages)
    conclude(counts, origin, time.monotonic() - begun, as_json=as_json)
    unacknowledged(counts.published - counts.acknowledged, broker)
    if stopped_by and not loop:
        raise click.exceptions.Exit(128 + stopped_by[0])


def default_source(file: Path) -> str:
    """A name that the same file on the same host always gets."""
    path = file.resolve()
    digest = hashlib.sha256(bytes(path)).hexdigest()[:8]
    return f"{socket.gethostname()[:64]}/{path.name[:100]}-{digest}"
