"""`headrace collect`: telemetry from where it is to a broker.

Owns arguments, progress and exit codes. What is read, how it looks on the wire and what is sent
again is decided in `headrace.collect`.
"""

from __future__ import annotations

import hashlib
import json
import math
import signal
import socket
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

import click

from headrace import job_limits
from headrace.cli.login import login, login_options
from headrace.cli.paths import NamedPath
from headrace.collect import CsvFile, Origin, Publisher, narrow, replayed, wide
from headrace.collect.publish import WAITING
from headrace.model import Address

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rich.progress import Progress

    from headrace.collect import Counts

_RATE_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0}


def _address(_context: object, _option: object, text: str) -> Address:
    try:
        return Address.parse(text)
    except ValueError as fault:
        raise click.BadParameter(str(fault)) from None


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


@click.group(short_help="Publish GPU telemetry to a broker.")
def collect() -> None:
    """Read GPU telemetry and publish it over MQTT, each reading acknowledged.

    \b
    Examples:
      headrace collect csv readings.csv.gz
      headrace collect csv readings.csv.gz --rate 500/s --loop
    """


@collect.command("csv", short_help="Publish a CSV file of DCGM readings.")
@click.argument("file", type=NamedPath())
@click.option(
    "--mqtt",
    "broker",
    callback=_address,
    metavar="HOST:PORT",
    default="127.0.0.1:1883",
    show_default=True,
    help="MQTT door of the broker.",
)
@login_options
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
@click.option("--json", "as_json", is_flag=True, help="Print the counts as one JSON object.")
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
    origin = Origin(_source_name(source, file), time.time_ns())
    who = login(user, password_file)
    with _progress() as progress:
        begun = time.monotonic()
        publisher = Publisher(
            broker, origin, login=who, rate=rate, on_progress=_shown_on(progress, begun)
        )
        stopped_by = _stop_on_signals(publisher)
        counts = publisher.run(messages)
    _conclude(counts, origin, time.monotonic() - begun, as_json=as_json)
    if counts.acknowledged < counts.published:
        raise click.ClickException(
            f"{counts.published - counts.acknowledged} readings were not acknowledged by {broker}"
        )
    if stopped_by and not loop:
        raise click.exceptions.Exit(128 + stopped_by[0])


def now_us() -> int:
    """The time of collection."""
    return time.time_ns() // 1000


def default_source(file: Path) -> str:
    """A name that the same file on the same host always gets."""
    path = file.resolve()
    digest = hashlib.sha256(bytes(path)).hexdigest()[:8]
    return f"{socket.gethostname()[:64]}/{path.name[:100]}-{digest}"


def _source_name(given: str | None, file: Path) -> str:
    source = given or default_source(file)
    if len(source.encode()) > job_limits.SOURCE_BYTES_MAX or "\0" in source:
        raise click.BadParameter(
            f"must be at most {job_limits.SOURCE_BYTES_MAX} bytes without NUL",
            param_hint="--source",
        )
    return source


def _stop_on_signals(publisher: Publisher) -> list[int]:
    """The first SIGINT or SIGTERM stops in order and is noted; a second interrupts."""
    seen: list[int] = []

    def stop(number: int, _frame: object) -> None:
        if seen:
            raise KeyboardInterrupt
        seen.append(number)
        publisher.stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    return seen


def _conclude(counts: Counts, origin: Origin, seconds: float, *, as_json: bool) -> None:
    if as_json:
        value = {**asdict(counts), **origin._asdict(), "seconds": round(seconds, 3)}
        click.echo(json.dumps(value))
        return
    repeats = f", {counts.resent:,} sent again" if counts.resent else ""
    click.echo(
        f"{counts.acknowledged:,} of {counts.published:,} readings acknowledged in "
        f"{counts.messages:,} messages{repeats}; {seconds:.1f} s, "
        f"{counts.acknowledged / max(seconds, 0.001):,.0f} readings/s"
    )


def _shown_on(progress: Progress, begun: float) -> Callable[[Counts, str], None]:
    """Moves the bar, and prints a line for each outage."""
    task = progress.add_task("connecting", total=None, rate="")
    before = ""

    def show(counts: Counts, doing: str) -> None:
        nonlocal before
        speed = counts.acknowledged / max(time.monotonic() - begun, 0.001)
        progress.update(
            task, description=doing, completed=counts.acknowledged, rate=f"{speed:,.0f}/s"
        )
        if doing != before and doing.startswith(WAITING):
            progress.console.print(f"[dim]·[/dim] {doing}", highlight=False)
        before = doing

    return show


def _progress() -> Progress:
    from rich.console import Console  # noqa: PLC0415 - slow to import, and --help needs none
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    # A log has no width: its lines are not broken.
    console = Console(stderr=True, width=None if sys.stderr.isatty() else 10_000)
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.completed:,} readings acknowledged"),
        TextColumn("{task.fields[rate]}", style="cyan"),
        TimeElapsedColumn(),
        TextColumn("{task.description}", style="dim"),
        console=console,
        transient=True,
        disable=not console.is_terminal,  # a log would get an empty line of it
    )
