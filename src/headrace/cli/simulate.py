"""`headrace simulate`: telemetry of what does not exist, and the truth about it.

Owns arguments, files, clocks and exit codes. What a fleet does is decided in `headrace.simulate`.
"""

from __future__ import annotations

import gzip
import io
import json
import socket
import time
from contextlib import contextmanager
from functools import partial
from importlib.resources import as_file, files
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple

import click
from click.core import ParameterSource

from headrace import job_limits
from headrace.cli.bench.show import Quantity
from headrace.cli.collect.show import (
    checked_source,
    conclude,
    new_progress,
    shown_on,
    stop_on_signals,
    unacknowledged,
)
from headrace.cli.login import login
from headrace.cli.paths import NamedPath
from headrace.cli.where import broker_options, json_option
from headrace.collect import CsvFile, Origin, Publisher, narrow, wide
from headrace.collect.instants import format_instant, parse_instant
from headrace.simulate import Fleet, Kind, Settings, csv_lines, in_time, messages, pools
from headrace.text import counted, nearest, parse_duration_ms

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from headrace.collect import Message, Pause
    from headrace.model import Address
    from headrace.simulate import Scrape

TRACE: Final = "h200-1hz.csv.gz"
START: Final = "2026-01-05T00:00:00Z"

_TO_PUBLISH: Final = ("broker", "user", "password_file", "speed", "source", "is_wide")
"""Parameters that mean nothing where a file is written."""


def _seconds(low: float, high: float, text: str) -> float:
    seconds = parse_duration_ms(text) / 1e3
    if not low <= seconds <= high:
        raise ValueError(f"must be from {low:g}s to {high:g}s; got {text!r}")
    return seconds


_DURATION_SECONDS: Final = (60.0, 86_400.0 * job_limits.SIMULATED_DAYS_MAX)
_DURATION: Final = Quantity("DURATION", partial(_seconds, *_DURATION_SECONDS))
_INTERVAL: Final = Quantity(
    "DURATION",
    partial(
        _seconds,
        job_limits.SIMULATED_INTERVAL_SECONDS_MIN,
        job_limits.SIMULATED_INTERVAL_SECONDS_MAX,
    ),
)


def _speed(text: str) -> float:
    number = text.removesuffix("x")
    try:
        speed = float(number)
    except ValueError:
        speed = 0.0
    if not 0.0 < speed <= job_limits.SIMULATED_SPEED_MAX:
        raise ValueError(
            f"must be a number above 0, such as 1 or 60x, and "
            f"{job_limits.SIMULATED_SPEED_MAX:,.0f} at most; got {text!r}"
        )
    return speed


def _kinds(_context: object, _option: object, text: str) -> frozenset[Kind]:
    if text in {"all", "none"}:
        return frozenset(Kind if text == "all" else ())
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in set(Kind):
            hint = nearest(name, [*map(str, Kind), "all", "none"])
            raise click.BadParameter(f"{name!r} is no kind of fault; {hint}")
    return frozenset(map(Kind, names))


def _instant(_context: object, _option: object, text: str | None) -> int | None:
    if text is None:
        return None
    instant = _now_us() if text == "now" else parse_instant(text)
    if instant is None:
        raise click.BadParameter(f"must be a time such as {START}, or now; got {text!r}")
    if instant < 0:  # a fleet's clock counts from there
        raise click.BadParameter(f"must be in 1970 or later; got {text!r}")
    return instant


@click.group(short_help="Publish telemetry of a fleet that does not exist.")
def simulate() -> None:
    """Make telemetry of GPUs that do not exist, with faults that are known.

    \b
    Examples:
      headrace simulate fleet --gpus 64 --truth truth.jsonl
      headrace simulate fleet --gpus 8 --faults none --out fleet.csv.gz
    """


@simulate.command("fleet", short_help="Publish a fleet of GPUs, with labelled faults.")
@click.option(
    "--gpus", type=click.IntRange(1, job_limits.SIMULATED_GPUS_MAX), default=64,
    show_default=True, help="How many, eight to a host.",
)  # fmt: skip
@click.option(
    "--duration", "duration_s", type=_DURATION, default="6h", show_default=True,
    help="How long, in the fleet's time.",
)  # fmt: skip
@click.option("--hours", type=float, help="The same in hours.")
@click.option(
    "--interval", "interval_s", type=_INTERVAL, default="15s", show_default=True,
    help="Between scrapes of a GPU.",
)  # fmt: skip
@click.option(
    "--seed", type=click.IntRange(0, 2**63 - 1), default=0, show_default=True,
    help="The same seed and options make the same fleet.",
)  # fmt: skip
@click.option(
    "--faults", "kinds", callback=_kinds, default="all", show_default=True,
    metavar="all|none|KIND,…", help=f"Kinds of faults: {', '.join(Kind)}.",
)  # fmt: skip
@click.option(
    "--faults-per-kind", type=click.IntRange(1, job_limits.SIMULATED_FAULTS_MAX), default=3,
    show_default=True, help="How many of each kind.",
)  # fmt: skip
@click.option(
    "--start", "start_us", callback=_instant, metavar="TIME",
    help=f"First event time, or now.  [{START}; with --speed now]",
)  # fmt: skip
@click.option(
    "--speed", type=Quantity("X", _speed),
    help="Times real time; 1 is as it would be.  [as fast as it goes]",
)  # fmt: skip
@broker_options
@click.option(
    "--wide/--narrow", "is_wide", default=True, show_default=True,
    help="One message per GPU and scrape, or per reading.",
)  # fmt: skip
@click.option("--source", help="Name of this collector.  [host and seed]")
@click.option(
    "--truth", type=NamedPath(), metavar="FILE", help="Write the faults as lines of JSON."
)
@click.option(
    "--out", type=NamedPath(), metavar="FILE",
    help="Write a CSV (gzip where it ends so) and publish nothing.",
)  # fmt: skip
@json_option
@click.pass_context
def fleet(
    context: click.Context,
    /,
    *,
    gpus: int,
    duration_s: float,
    hours: float | None,
    interval_s: float,
    seed: int,
    kinds: frozenset[Kind],
    faults_per_kind: int,
    start_us: int | None,
    truth: Path | None,
    out: Path | None,
    as_json: bool,
    **publishing: Any,  # noqa: ANN401 - the fields of `_Publishing`
) -> None:
    """Publish the telemetry of a fleet of H200 GPUs, with faults that are written down.

    Loads are those of a real capture, resampled; jobs come and go on hosts of eight GPUs. Faults
    are drawn from published descriptions, and so is what looks like one and is none. The fleet has
    a time of its own: hours of it take seconds, and with --speed as long as said. Messages are
    published as `headrace collect csv` does, each until the broker acknowledges it.

    The truth has one JSON object a line for each fault and GPU: fault, kind, host, uuid, gpu_i_id,
    start, end, parameters, text.

    \b
    Examples:
      headrace simulate fleet --gpus 200 --truth truth.jsonl
      headrace simulate fleet --gpus 16 --duration 2h --faults thermal,xid --faults-per-kind 1
      headrace simulate fleet --gpus 1000 --faults none --speed 1
      headrace simulate fleet --gpus 8 --hours 1 --faults none --out fleet.csv.gz
    """
    if hours is not None:
        if _given(context, "duration_s"):
            raise click.UsageError("--hours and --duration contradict each other", context)
        duration_s = _hours(hours)
    if start_us is None:
        start_us = parse_instant(START) if publishing["speed"] is None else _now_us()
        assert start_us is not None
    if out is not None and (ignored := [name for name in _TO_PUBLISH if _given(context, name)]):
        option = next(o.opts[0] for o in context.command.params if o.name == ignored[0])
        raise click.UsageError(f"{option} is for publishing; with --out nothing is", context)
    if truth is not None and out is not None and truth.resolve() == out.resolve():
        raise click.UsageError("--out and --truth name one file", context)
    simulated = _fleet(
        Settings(
            gpus=gpus,
            start_us=start_us,
            duration_us=round(duration_s * 1e6),
            interval_us=round(interval_s * 1e6),
            seed=seed,
            kinds=kinds,
            faults_per_kind=faults_per_kind,
        )
    )
    if truth is not None:
        truth.write_text("".join(f"{line}\n" for line in simulated.truth()), encoding="utf-8")
    if out is not None:
        _write(simulated, out, as_json=as_json)
    else:
        _publish(simulated, _Publishing(**publishing), as_json=as_json)


def _given(context: click.Context, parameter: str) -> bool:
    """Whether it was said on the command line."""
    return context.get_parameter_source(parameter) is ParameterSource.COMMANDLINE


def _hours(hours: float) -> float:
    low, high = _DURATION_SECONDS
    if not low <= hours * 3600 <= high:
        raise click.BadParameter(
            f"must be from {low / 3600:.2g} to {high / 3600:g}; got {hours:g}", param_hint="--hours"
        )
    return hours * 3600


def _now_us() -> int:
    return time.time_ns() // 1000


def _fleet(settings: Settings) -> Fleet:
    with as_file(files("headrace") / "data" / TRACE) as trace:
        return Fleet(settings, pools(CsvFile(trace)))


def _about(simulated: Fleet) -> dict[str, Any]:
    """What `--json` says of a fleet."""
    settings = simulated.settings
    return {
        "gpus": settings.gpus,
        "faults": len(simulated.faults),
        "start": format_instant(settings.start_us),
        "end": format_instant(settings.end_us),
    }


def _write(simulated: Fleet, out: Path, *, as_json: bool) -> None:
    begun, readings = time.monotonic(), 0

    def counted_scrapes() -> Iterator[Scrape]:
        nonlocal readings
        for scrape in simulated.scrapes():
            readings += len(scrape.metrics)
            yield scrape

    with _opened(out) as file:
        file.writelines(csv_lines(counted_scrapes()))
    seconds = time.monotonic() - begun
    if as_json:
        value = {"readings": readings, "file": str(out), "seconds": round(seconds, 3)}
        click.echo(json.dumps(value | _about(simulated)))
        return
    click.echo(
        f"{readings:,} readings of {counted(simulated.settings.gpus, 'GPU')} with "
        f"{counted(len(simulated.faults), 'fault')} in {out}; {seconds:.1f} s"
    )


@contextmanager
def _opened(out: Path) -> Iterator[IO[str]]:
    """A file of text; gzip has no name and no time in it, so that the same is the same."""
    with out.open("wb") as raw:
        if out.suffix == ".gz":
            with gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed, _text(packed) as file:
                yield file
        else:
            with _text(raw) as file:
                yield file


def _text(raw: IO[bytes] | gzip.GzipFile) -> io.TextIOWrapper:
    return io.TextIOWrapper(raw, encoding="utf-8", newline="")


class _Publishing(NamedTuple):
    """Where messages go, and how."""

    broker: Address
    user: str | None
    password_file: Path | None
    speed: float | None
    is_wide: bool
    source: str | None


def _publish(simulated: Fleet, to: _Publishing, *, as_json: bool) -> None:
    name = f"{socket.gethostname()[:64]}/simulated-fleet-{simulated.settings.seed}"
    origin = Origin(checked_source(to.source or name), time.time_ns())
    who = login(to.user, to.password_file)
    shape = wide if to.is_wide else narrow
    with new_progress() as progress:
        begun = time.monotonic()
        publisher = Publisher(to.broker, origin, login=who, on_progress=shown_on(progress, begun))
        stopped_by = stop_on_signals(publisher.stop)
        scrapes = simulated.scrapes()
        outgoing: Iterator[Message | Pause] = messages(scrapes, shape)
        if to.speed is not None:
            first_us = simulated.settings.start_us
            outgoing = in_time(scrapes, shape, first_us, to.speed, lambda: time.monotonic() - begun)
        counts = publisher.run(outgoing)
    about = _about(simulated)
    conclude(counts, origin, time.monotonic() - begun, as_json=as_json, **about)
    unacknowledged(counts.published - counts.acknowledged, to.broker)
    if stopped_by:
        raise click.exceptions.Exit(128 + stopped_by[0])
