"""`headrace bench mqtt`."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import click

from headrace.bench import FAULTS, Load, Outcome, Server, medians, run
from headrace.bench.figures import ratios_of
from headrace.bench.suite.results import Row
from headrace.bench.suite.words import BUSY
from headrace.cli.bench.page import html_option, measured
from headrace.cli.bench.show import (
    ADDRESS,
    COUNT_MAX,
    MEASURED,
    SECONDS,
    SIZE,
    Rate,
    by_second,
    compare,
    progress_bar,
    servers_of,
)
from headrace.cli.client import json_option
from headrace.cli.login import login, login_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from rich.progress import Progress

    from headrace.bench.suite.results import Measured
    from headrace.cli.bench.page import PageFile
    from headrace.model import Address

WINDOW_UNACKNOWLEDGED: Final = 20
"""The in-flight window that mosquitto ships with, and so what published figures use."""
WINDOW_UNDELIVERED: Final = 2000
"""At QoS 0: enough to fill a pipe of 64 KiB with the smallest messages."""
QUEUED: Final = 100
"""Messages that wait for a session: what servers keep for one at the least (mosquitto 1.6)."""


@click.command(short_help="Load for an MQTT server.")
@click.option("--mqtt", type=ADDRESS, default="127.0.0.1:1883", show_default=True, help="Server.")
@click.option("--pid", type=int, help="Its process here: adds CPU time and memory.")
@click.option("--against", type=ADDRESS, help="A second server, in turn with the first.")
@click.option("--against-pid", type=int, help="Its process here.")
@click.option("--rounds", type=click.IntRange(1, 1000), help="Medians of so many.  [1; 3 against]")
@click.option("--publishers", type=click.IntRange(0), default=1, show_default=True)
@click.option("--subscribers", type=click.IntRange(0), default=1, show_default=True)
@click.option("--idle", type=click.IntRange(0), default=0, help="Connections that do nothing.")
@click.option(
    "--pattern",
    type=click.Choice(["pair", "all", "share", "storm"]),
    help="Who hears whom.  [pair where there are as many of each, else all]",
)
@click.option(
    "--queued",
    type=click.IntRange(1, COUNT_MAX),
    help="Waiting for each session of a storm.  [100]",
)
@click.option("--qos", type=click.IntRange(0, 2), help="[0; 1 of a storm]")
@click.option("--payload", type=SIZE, default="100B", show_default=True, help="16 B or more.")
@click.option("--window", type=click.IntRange(1, 65_535), help="Under way per publisher.")
@click.option("--rate", type=Rate(), help="Per second and publisher.")
@click.option("--duration", type=MEASURED, default="5s", show_default=True, help="Measured.")
@click.option("--warm-up", type=SECONDS, default="1s", show_default=True, help="Not timed.")
@click.option("--drain", type=SECONDS, default="5s", show_default=True, help="Longest silence.")
@click.option("--opening", type=click.IntRange(1), default=64, show_default=True, help="At once.")
@login_options
@click.option("--protocol", type=click.Choice(["5", "3.1.1"]), default="5", show_default=True)
@click.option(
    "--session-expiry",
    type=click.IntRange(0, 2**32 - 1),
    default=0,
    help="Seconds; subscribers have persistent sessions, which end with the run. In 3.1.1 any "
    "number above 0 means that.",
)
@click.option("--topic", default="bench", show_default=True, help="Begins topics, client ids.")
@html_option
@json_option
def mqtt(
    *,
    mqtt: Address,
    pid: int | None,
    against: Address | None,
    against_pid: int | None,
    rounds: int | None,
    user: str | None,
    password_file: Path | None,
    protocol: str,
    topic: str,
    html: PageFile | None,
    as_json: bool,
    **options: Any,  # noqa: ANN401 - fields of Load, as click read them
) -> None:
    """Publish, subscribe, and count what arrives.

    Every payload carries its publisher, a number, the time, and a checksum of its topic, so that
    the report says what was delivered, lost, duplicated, reordered or corrupted; that something
    was acknowledged is no result. Without --rate each publisher sends as fast as --window allows:
    messages not acknowledged (QoS 1 and 2), or not delivered (QoS 0). With --rate it keeps to a
    schedule, and latency counts from the time that the schedule names: a server that stalls
    cannot hide it.

    In a storm the subscribers are sessions that last. They leave, --queued messages wait for each,
    and then all come back, --opening at a time: back_seconds until all are there, emptied_seconds
    until all that waited is delivered.

    Numbers of one run mean little: compare with --against, on a machine with nothing else to do,
    and give servers and load cores of their own (taskset).

    \b
    Examples:
      headrace bench mqtt --qos 1 --publishers 10 --subscribers 10
      headrace bench mqtt --subscribers 1000 --publishers 1 --rate 10
      headrace bench mqtt --publishers 1000 --subscribers 5 --pattern share --rate 1 --qos 1
      headrace bench mqtt --publishers 0 --subscribers 0 --idle 10000 --pid 4711
      headrace bench mqtt --pattern storm --publishers 10 --subscribers 2000 --queued 100
      headrace bench mqtt --against 127.0.0.1:2883 --html report.html
    """
    if not (options["publishers"] or options["subscribers"] or options["idle"]):
        raise click.UsageError(
            "no connection is asked for; give --publishers, --subscribers, --idle"
        )
    _complete(options)
    load = Load(version=5 if protocol == "5" else 4, prefix=topic, **options)
    who = login(user, password_file)
    credentials = None if who is None else (who.user, who.password.encode())
    first = Server(str(mqtt), mqtt, pid, credentials)
    servers, count = servers_of(first, against, against_pid, rounds)
    with progress_bar() as progress:
        outcomes = run(load, servers, count, _shown_on(progress, count))
    if as_json:
        click.echo(json.dumps(_report(outcomes)))
    else:
        _show(outcomes)
    if html is not None:
        html.sheet("headrace bench mqtt", asdict(load) | {"rounds": count}, [_row(outcomes)])
    for name, runs in outcomes.items():
        for outcome in runs:
            if trouble := outcome.counts["trouble"]:
                click.echo(f"{name}: {trouble}", err=True)
    connections = load.publishers + load.subscribers + load.idle
    if any(
        outcome.counts["connected"] + outcome.counts["disconnected"] < connections
        or not outcome.counts["connected"]
        for runs in outcomes.values()
        for outcome in runs
    ):
        raise click.ClickException(
            "not every connection came about, so the figures mean nothing; is a broker there, and "
            "does it take so many? --mqtt HOST:PORT names another"
        )


def _complete(options: dict[str, Any]) -> None:
    """Fills in what was left open, which depends on the rest."""
    fair = options["publishers"] == options["subscribers"]
    options["pattern"] = options["pattern"] or ("pair" if fair else "all")
    is_storm = options["pattern"] == "storm"
    if options["queued"] and not is_storm:
        raise click.UsageError("--queued is of --pattern storm")
    options["queued"] = options["queued"] or (QUEUED if is_storm else 0)
    if options["qos"] is None:
        options["qos"] = 1 if is_storm else 0
    options["window"] = options["window"] or (
        WINDOW_UNACKNOWLEDGED if options["qos"] else WINDOW_UNDELIVERED
    )


def _report(outcomes: dict[str, list[Outcome]]) -> dict[str, Any]:
    return {
        "servers": {
            name: {
                "medians": medians(runs),
                "rounds": [outcome.figures() | outcome.counts for outcome in runs],
            }
            for name, runs in outcomes.items()
        },
        "ratios": _ratios(outcomes),
    }


def _ratios(outcomes: dict[str, list[Outcome]]) -> dict[str, float]:
    """The first server's figure over the second's."""
    if len(outcomes) < 2:
        return {}
    ours, theirs = (medians(runs) for runs in outcomes.values())
    return ratios_of(ours, theirs, FAULTS)


def _show(outcomes: dict[str, list[Outcome]]) -> None:
    columns = [(name, medians(runs), False) for name, runs in outcomes.items()]
    if ratios := _ratios(outcomes):
        columns.append(("ratio", dict(ratios), True))
    compare("", columns)
    for name, runs in outcomes.items():
        for outcome in runs:
            by_second(name, outcome.counts["by_second"])
        for line in _remarks(name, runs):
            click.echo(line)


def _remarks(name: str, runs: list[Outcome]) -> Iterator[str]:
    """What a reader of the table should not miss."""
    figures = medians(runs)
    expected = sum(outcome.counts["expected"] for outcome in runs)
    for fault in FAULTS:
        if number := figures[fault]:
            part = f" of {expected:,} ({number / expected:.2%})" if expected else ""
            yield f"{name}: {fault} {number:,.0f}{part}"
    if (busy := figures["generator_busy"] or 0) >= BUSY:
        yield f"{name}: the load itself was busy for {busy:.0%} of the time; it may be the limit"


def _row(outcomes: dict[str, list[Outcome]]) -> Row:
    delivers = any(each.counts["delivered"] for runs in outcomes.values() for each in runs)
    figure = "delivered_per_second" if delivers else "connects_per_second"

    def of(runs: list[Outcome]) -> Measured:
        return measured(
            figure,
            medians(runs),
            [each.figures() for each in runs],
            [each.counts["by_second"] for each in runs],
            [each.counts["trouble"] for each in runs],
        )

    return Row(
        workload="mqtt",
        title="What was published, delivered, and became of each message",
        source="",
        mode="",
        figure=figure,
        unit="messages/s" if delivers else "connections/s",
        servers={name: of(runs) for name, runs in outcomes.items()},
        ours=next(iter(outcomes)),
    )


def _shown_on(progress: Progress, rounds: int) -> Callable[[Server, int, dict[str, Any]], None]:
    task = progress.add_task("starting", total=None)

    def show(server: Server, index: int, counts: dict[str, Any]) -> None:
        progress.update(
            task,
            description=f"{server.name} round {index + 1} of {rounds}: {counts['phase']}, "
            f"{counts['connected']:,} connected, {counts['delivered']:,} delivered, "
            f"{counts['lost']:,} on their way",
        )

    return show
