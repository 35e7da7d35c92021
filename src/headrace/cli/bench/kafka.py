"""`headrace bench kafka`."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import click

from headrace.bench import Server
from headrace.bench.figures import ratios_of
from headrace.bench.kafka import (
    CLIENTS,
    FAULTS,
    INSTALL,
    MEASURES,
    Load,
    Outcome,
    installed,
    medians,
    run,
)
from headrace.bench.suite.results import Row
from headrace.cli.bench.page import html_option, measured
from headrace.cli.bench.show import (
    ADDRESS,
    MEASURED,
    SECONDS,
    SIZE,
    Rate,
    compare,
    progress_bar,
    servers_of,
)
from headrace.cli.client import json_option
from headrace.cli.login import login, login_options

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from headrace.cli.bench.page import PageFile
    from headrace.model import Address

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")

HEADINGS: Final = {
    "produce": "Produced and acknowledged, as fast as it goes; then read back and counted.",
    "consume": "Read from the beginning, as fast as it goes.",
    "together": "Produced and read at the same time, as fast as it goes.",
    "latency": "From when a record was due on a schedule until a reader had it.",
    "connections": "Connections that do nothing, and one more.",
    "metadata": "Answers about all partitions, and small ones beside, to another connection.",
}


FIGURES: Final = {
    "produce": ("records_per_second", "records/s", False),
    "consume": ("records_per_second", "records/s", False),
    "latency": ("p99_ms", "ms at the 99th percentile", True),
    "connections": ("connects_per_second", "connections/s", False),
    "metadata": ("answer_p50_ms", "ms to the last byte", True),
}
"""Of each measure the figure that counts, its unit, and whether less of it is better."""


@click.command(short_help="Load for a Kafka broker.")
@click.argument("measures", nargs=-1, type=click.Choice(MEASURES), metavar="[MEASURE]...")
@click.option("--kafka", type=ADDRESS, default="127.0.0.1:9092", show_default=True, help="Broker.")
@click.option("--pid", type=int, help="Its process here: adds CPU time and memory.")
@click.option("--against", type=ADDRESS, help="A second broker, in turn with the first.")
@click.option("--against-pid", type=int, help="Its process here.")
@click.option("--rounds", type=click.IntRange(1, 1000), help="Medians of so many.  [1; 3 against]")
@click.option(
    "--client",
    "clients",
    type=click.Choice(CLIENTS),
    multiple=True,
    help="confluent is librdkafka, headrace our own; again for more.  [those installed]",
)
@click.option("--payload", type=SIZE, default="100B", show_default=True, help="16 B or more.")
@click.option("--partitions", type=click.IntRange(1), default=1, show_default=True)
@click.option("--producers", type=click.IntRange(1, 64), default=1, show_default=True)
@click.option(
    "--readers", type=click.IntRange(1, 64), default=1, show_default=True, help="Of together."
)
@click.option("--keys", type=click.IntRange(0), default=0, help="Of each producer.  [none]")
@click.option("--records", type=click.IntRange(1), help="Sent in all, instead of for --duration.")
@click.option("--acks", type=click.Choice(["all", "1", "0"]), default="all", show_default=True)
@click.option(
    "--idempotent/--no-idempotent",
    default=None,
    help="Whether repeats are told.  [with acks all]",
)
@click.option("--compression", type=click.Choice(CODECS), default="none", show_default=True)
@click.option("--linger", type=SECONDS, help="Producers wait for more.  [each client's default]")
@click.option("--batch", type=SIZE, help="Bytes of a batch.  [each client's default]")
@click.option(
    "--topic-config", "configs", multiple=True, metavar="KEY=VALUE", help="Setting of the topics."
)
@click.option(
    "--rate",
    type=Rate(),
    help="Of latency.  [half of the lesser of produce and consume]",
)
@click.option(
    "--connections",
    type=click.IntRange(1),
    default=1000,
    show_default=True,
    help="Of connections.",
)
@click.option(
    "--metadata-partitions",
    type=click.IntRange(1),
    default=300,
    show_default=True,
    help="Of metadata.",
)
@click.option("--duration", type=MEASURED, default="5s", show_default=True, help="Measured.")
@click.option("--warm-up", type=SECONDS, default="1s", show_default=True, help="Not timed.")
@click.option("--drain", type=SECONDS, default="10s", show_default=True, help="Longest silence.")
@login_options
@click.option("--topic", default="bench", show_default=True, help="Begins topics, which go again.")
@html_option
@json_option
def kafka(
    *,
    measures: tuple[str, ...],
    kafka: Address,
    pid: int | None,
    against: Address | None,
    against_pid: int | None,
    rounds: int | None,
    clients: tuple[str, ...],
    idempotent: bool | None,
    linger: float | None,
    batch: int | None,
    configs: tuple[str, ...],
    user: str | None,
    password_file: Path | None,
    topic: str,
    html: PageFile | None,
    as_json: bool,
    **options: Any,  # noqa: ANN401 - fields of Load, as click read them
) -> None:
    """Produce, consume, and count what arrives.

    \b
    MEASURE is one or more of these, all without one:
      produce      records a second until the last is acknowledged
      consume      records a second out of a topic that was filled before
      together     records a second that are read while they are produced
      latency      from a schedule to a reader, at half of what those two show
      connections  how many open, what each takes, whether one more is served
      metadata     answers about topics of many partitions

    Every payload carries its producer, a number, the time and a checksum of its topic: the report
    says what was sent, acknowledged, received, lost, duplicated, reordered or corrupted. Latency
    counts from the time that the schedule names, so that a broker that stalls cannot hide it.
    Clients run in processes of their own and take their part of the processor.

    Numbers of one run mean little: compare with --against, on a machine with nothing else to do.

    \b
    Examples:
      headrace bench kafka produce --topic-config fsync=os
      headrace bench kafka latency --client confluent --rate 100000
      headrace bench kafka connections --connections 5000 --pid 4711
      headrace bench kafka metadata --metadata-partitions 3000
      headrace bench kafka produce consume --against 127.0.0.1:9093 --json
    """
    there = installed()
    missing = [client for client in clients if client not in there]
    if missing:
        raise click.UsageError(f"confluent-kafka is not installed; {INSTALL}")
    load = Load(
        idempotent=options["acks"] == "all" if idempotent is None else idempotent,
        linger_ms=None if linger is None else linger * 1e3,
        batch_bytes=batch,
        configs=_configs(configs),
        prefix=topic,
        **options,
    )
    who = login(user, password_file)
    credentials = None if who is None else (who.user, who.password.encode())
    first = Server(str(kafka), kafka, pid, credentials)
    servers, count = servers_of(first, against, against_pid, rounds)
    if not clients and "confluent" not in there:
        click.echo(f"without librdkafka: confluent-kafka is not installed ({INSTALL})", err=True)
    outcomes: list[Outcome] = []
    try:
        with progress_bar() as progress:
            task = progress.add_task("starting", total=None)
            run(
                measures or MEASURES,
                load,
                servers,
                clients or there,
                count,
                lambda words: progress.update(task, description=words),
                outcomes,
            )
    finally:  # what was measured before an error is shown, too
        if outcomes and not as_json:
            _tables(outcomes)
    if as_json:
        click.echo(json.dumps(_report(outcomes)))
    if html is not None:
        html.sheet("headrace bench kafka", asdict(load) | {"rounds": count}, _rows(outcomes))
    for outcome in outcomes:
        if outcome.trouble:
            click.echo(f"{outcome.server} {outcome.client}: {outcome.trouble}", err=True)


def _configs(texts: Sequence[str]) -> dict[str, str]:
    configs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise click.UsageError(f"--topic-config takes KEY=VALUE; got {text!r}")
        configs[name] = value
    return configs


Runs = dict[str, list[Outcome]]
"""Rounds by server."""


def _by_measure(outcomes: list[Outcome]) -> dict[str, dict[str, Runs]]:
    """By measure, client and server."""
    found: dict[str, dict[str, Runs]] = {}
    for outcome in outcomes:
        of_client = found.setdefault(outcome.measure, {}).setdefault(outcome.client, {})
        of_client.setdefault(outcome.server, []).append(outcome)
    return found


def _report(outcomes: list[Outcome]) -> dict[str, Any]:
    return {
        "measures": {
            measure: [
                {
                    "client": client or None,
                    "servers": {
                        server: {
                            "medians": medians(runs),
                            "rounds": [run.figures | {"trouble": run.trouble} for run in runs],
                        }
                        for server, runs in of_servers.items()
                    },
                    "ratios": _ratios(of_servers),
                }
                for client, of_servers in of_clients.items()
            ]
            for measure, of_clients in _by_measure(outcomes).items()
        }
    }


def _ratios(of_servers: Runs) -> dict[str, float]:
    """The first server's figures over the second's."""
    if len(of_servers) < 2:
        return {}
    ours, theirs = (medians(runs) for runs in of_servers.values())
    return ratios_of(ours, theirs, FAULTS)


def _tables(outcomes: list[Outcome]) -> None:
    for measure, of_clients in _by_measure(outcomes).items():
        click.echo(HEADINGS[measure])
        columns: list[tuple[str, dict[str, float | None], bool]] = []
        for client, of_servers in of_clients.items():
            for server, runs in of_servers.items():
                name = "\n".join(filter(None, [client, server]))
                columns.append((name, medians(runs), False))
            if ratios := _ratios(of_servers):
                columns.append(("ratio", dict(ratios), True))
        compare(measure, columns)


def _rows(outcomes: list[Outcome]) -> list[Row]:
    rows = []
    for measure, of_clients in _by_measure(outcomes).items():
        figure, unit, less_is_better = FIGURES[measure]
        for client, of_servers in of_clients.items():
            servers = {
                server: measured(
                    figure,
                    medians(runs),
                    [run.figures for run in runs],
                    troubles=[run.trouble for run in runs],
                )
                for server, runs in of_servers.items()
            }
            rows.append(
                Row(
                    workload=measure,
                    title=HEADINGS[measure],
                    source="",
                    mode=client,
                    figure=figure,
                    unit=unit,
                    less_is_better=less_is_better,
                    servers=servers,
                    ours=next(iter(servers)),
                )
            )
    return rows
