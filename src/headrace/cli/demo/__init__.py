"""`headrace demo`: a broker, a collector and a Spark pipeline on real GPU telemetry.

`run` starts and stops everything and does the accounting, `broker` supervises the child process,
`leave` is what stays in the folder, `show` what a person sees. Here: arguments and exit codes.
"""

from __future__ import annotations

import json
import signal
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.resources import as_file, files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from headrace import job_limits
from headrace.cli.collect.csv_file import default_source
from headrace.cli.collect.show import now_us
from headrace.cli.paths import NamedPath
from headrace.collect import CsvFile, Origin, Span, narrow, replayed, wide
from headrace.collect.replay import readings_of
from headrace.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["demo"]

TRACE: Final = "h200-1hz.csv.gz"
INTERVAL_SECONDS_MIN: Final = 1.0


class _Interrupted(BaseException):
    """A signal asked for the end. No `except Exception` on its way takes it for a fault."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@click.command(short_help="Real GPU telemetry from MQTT to Spark tables.")
@click.option(
    "--data",
    type=NamedPath(),
    metavar="DIR",
    help="New or empty folder.  [headrace-demo/TIME]",
)
@click.option(
    "--input",
    "file",
    type=NamedPath(),
    metavar="FILE",
    help="CSV of readings, plain or gzip.  [a capture of an H200]",
)
@click.option(
    "--gpus",
    type=click.IntRange(1, job_limits.REPLAY_GPUS_MAX),
    help="Play the file for this many GPUs.",
)
@click.option("--wide", "is_wide", is_flag=True, help="One message per GPU and event time.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a report.")
def demo(
    *, data: Path | None, file: Path | None, gpus: int | None, is_wide: bool, as_json: bool
) -> None:
    """Run the whole path once: a broker, a collector, a Spark pipeline, a report.

    A broker starts on free loopback ports. The collector publishes a real capture of an H200 under
    known loads, or FILE, over MQTT at QoS 1. The stream gpu-telemetry stores it. A Structured
    Streaming job reads that and writes the tables readings, quarantine, duplicates and
    gpu_intervals. Then everything is counted, and stays in DIR for inspection.

    A broker that dies on the way is restarted; nothing acknowledged is lost or doubled. The exit
    code is 0 only where the last line holds.

    \b
    Examples:
      headrace demo
      headrace demo --gpus 8 --data /tmp/fleet
      headrace demo --input readings.csv.gz --json
    """
    begun = time.monotonic()
    with as_file(files("headrace") / "data" / TRACE) as shipped:
        path = file or shipped
        trace = CsvFile(path)
        span, readings = Span.of(trace), readings_of(trace, gpus)
        _check_spark()
        root = _make_folder(data)
        # These load Spark, which takes seconds: not before arguments are known to be good.
        from headrace.cli.demo import leave, run, show  # noqa: PLC0415

        shape = wide if is_wide else narrow
        job = run.Job(
            messages=lambda: shape(replayed(trace, gpus, loop=False), now_us),
            origin=Origin(default_source(path), time.time_ns()),
            wide=is_wide,
            interval_s=max(INTERVAL_SECONDS_MIN, float(round(span.step_us / 1e6))),
        )
        folder = run.Folder(root)
        with _spark_faults(), _interruptible(root), show.Live(readings) as live:
            outcome = run.execute(job, folder, live)
    found = leave.results(outcome, folder, time.monotonic() - begun)
    if as_json:
        click.echo(json.dumps(found.as_json()))
    else:
        show.report(found)
    if not outcome.good:
        raise click.ClickException("\n".join(["the last line does not hold", *outcome.problems]))


def _check_spark() -> None:
    """Refuses before anything starts where Spark cannot."""
    if find_spec("pyspark") is None or find_spec("matplotlib") is None:
        raise click.ClickException(
            "the demo needs Spark, which is not installed\ntry: pip install 'headrace[spark]'"
        )
    with _spark_faults():
        from headrace.spark.java import java_home  # noqa: PLC0415 - Spark is optional

        java_home()


def _make_folder(data: Path | None) -> Path:
    """The folder of the run, which holds nothing yet: what a user has is never touched."""
    started = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    root = (data or Path("headrace-demo") / started).resolve()
    try:
        root.mkdir(parents=True, exist_ok=data is not None)
        held = next(root.iterdir(), None)
    except OSError as fault:
        raise InputError(
            f"{root}: cannot be used as the demo's folder ({fault.strerror})\n"
            "name a new or empty one with --data"
        ) from None
    if held is not None:
        raise InputError(
            f"{root} holds {held.name}, perhaps of an earlier run\n"
            "name a new or empty folder with --data; this one stays as it is"
        )
    return root


@contextmanager
def _spark_faults() -> Iterator[None]:
    """What goes wrong on the Spark side, as one line for a person."""
    from headrace.spark.errors import SparkSideError  # noqa: PLC0415 - Spark is optional

    try:
        yield
    except SparkSideError as fault:
        raise click.ClickException(str(fault)) from None


@contextmanager
def _interruptible(root: Path) -> Iterator[None]:
    """SIGINT and SIGTERM end the run in order, once; the exit code names the signal."""

    def interrupt(number: int, _frame: object) -> None:
        for each in before:
            signal.signal(each, signal.SIG_IGN)
        raise _Interrupted(number)

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, interrupt)
    try:
        yield
    except _Interrupted as interrupted:
        click.echo(f"interrupted; what there was is in {root}", err=True)
        raise click.exceptions.Exit(128 + interrupted.number) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
