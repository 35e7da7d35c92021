"""`headrace bench queue`."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from headrace.bench import Server
from headrace.bench.figures import ratios_of
from headrace.bench.queue import ACK, ORDERS, PUBACK, QUEUE_FAULTS, Load, cases_of, medians, run
from headrace.bench.suite.results import Row
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
)
from headrace.cli.client import call, caller, json_option, url_option
from headrace.cli.definitions import QUEUES, created, setting_option

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rich.progress import Progress

    from headrace.bench.queue import Case, Outcome
    from headrace.bench.suite.results import Measured
    from headrace.cli.bench.page import PageFile
    from headrace.model import Address

HEARD_SECONDS: Final = 5.0
"""Until a broker has read the last PUBACKs of consumers that have gone."""


@click.command(short_help="Load for queues of a node: publish, deliver, settle.")
@click.option("--mqtt", type=ADDRESS, default="127.0.0.1:1883", show_default=True, help="Node.")
@click.option("--pid", type=int, help="Its process here: adds CPU time and memory.")
@click.option("--rounds", type=click.IntRange(1, 1000), default=1, show_default=True)
@click.option("--publishers", type=click.IntRange(1), default=10, show_default=True)
@click.option("--consumers", type=click.IntRange(1), default=10, show_default=True, help="A group.")
@click.option(
    "--settle",
    type=click.Choice([ACK, PUBACK]),
    default=ACK,
    show_default=True,
    help="Publishes to $queue/NAME/$ack, or PUBACK.",
)
@click.option(
    "--ack-batch",
    type=click.IntRange(1, 10_000),
    default=1,
    show_default=True,
    help="Message ids of one $ack, at most; it waits 5 ms for them.",
)
@click.option("--prefetch", type=click.IntRange(1, 65_535), default=1000, show_default=True)
@click.option("--order", type=click.Choice(ORDERS), default="none", show_default=True)
@click.option(
    "--keys",
    type=click.IntRange(1, 1_000_000),
    default=100,
    show_default=True,
    help="Of each publisher, with --order key.",
)
@click.option("--partitions", type=click.IntRange(1), default=1, show_default=True)
@setting_option
@click.option(
    "--stuck",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Again, with so many that settle nothing.",
)
@click.option(
    "--depth",
    type=click.IntRange(0, COUNT_MAX),
    default=0,
    show_default=True,
    help="Again, behind so many messages.",
)
@click.option(
    "--in-flight",
    type=click.IntRange(0, COUNT_MAX),
    default=0,
    show_default=True,
    help="Settles with few and so many open.",
)
@click.option(
    "--settlements",
    type=click.IntRange(1, COUNT_MAX),
    default=1_000_000,
    show_default=True,
    help="Of --in-flight.",
)
@click.option("--payload", type=SIZE, default="100B", show_default=True, help="16 B or more.")
@click.option(
    "--window",
    type=click.IntRange(1, 65_535),
    default=100,
    show_default=True,
    help="Under way per publisher.",
)
@click.option("--rate", type=Rate(), help="Per second and publisher.")
@click.option("--duration", type=MEASURED, default="5s", show_default=True, help="Measured.")
@click.option("--warm-up", type=SECONDS, default="1s", show_default=True, help="Not timed.")
@click.option("--drain", type=SECONDS, default="10s", show_default=True, help="Longest silence.")
@click.option("--opening", type=click.IntRange(1), default=64, show_default=True, help="At once.")
@url_option
@html_option
@json_option
def queue(
    *,
    mqtt: Address,
    pid: int | None,
    rounds: int,
    assignments: tuple[str, ...],
    stuck: int,
    depth: int,
    in_flight: int,
    url: str,
    html: PageFile | None,
    as_json: bool,
    **options: Any,  # noqa: ANN401 - fields of Load, as click read them
) -> None:
    """Publish to a queue, consume, settle, and count what became of each message.

    Queues are made for the run, over the node's HTTP door, and go again. Each payload says who
    sent it, the how-manieth it is and when: the report has what was enqueued, delivered, settled,
    delivered again, lost, duplicated and, with an --order, reordered within its key. A message is
    settled when the publish to $ack is answered, which is when that is on disk; PUBACK has no
    answer, so with --settle puback there is no time of it. `owed` is what the node still owes
    when all have gone. Times count first deliveries, from when a message was due.

    Each of these adds runs, and their ratio to the same without:

    \b
      --stuck N      N consumers more, that are handed messages and settle none. When publishers
                     have ended they go, and what they had comes to the others again.
      --depth N      N messages are there when consumers come, and stand before all that is
                     published then: publish to delivery is the time through all of them, and
                     settle_* the one to look at. All of them are consumed in the end.
      --in-flight N  N deliveries are kept open, by clients enough. With each that comes one is
                     settled: the one that was open longest, or any. Nothing is published
                     meanwhile. Beside 1,000 open, by as many clients.

    The share of the queue's own code, without sockets and disk, is what this prints:
    cargo bench -p headrace-core --bench queues

    \b
    Examples:
      headrace bench queue
      headrace bench queue --settle puback --pid 4711
      headrace bench queue --ack-batch 100 --rate 6000
      headrace bench queue --order key --keys 1000 --partitions 4
      headrace bench queue --stuck 2 --set ack.deadline.ms=2s
      headrace bench queue --depth 10000000 --json
      headrace bench queue --in-flight 1000000
    """
    load = Load(**options)
    cases = cases_of(load, stuck=stuck, depth=depth, in_flight=in_flight)
    url, who = caller(url)
    credentials = None if who is None else (who.user, who.password.encode())
    server = Server(str(mqtt), mqtt, pid, credentials)
    own = created("", partitions=1, filters=(), key=None, assignments=assignments)["settings"]
    outcomes: dict[str, list[Outcome]] = {}
    try:
        with progress_bar() as progress:
            run(cases, server, Http(url), rounds, own, outcomes, _shown_on(progress))
    finally:  # what was measured before an error is shown, too
        if outcomes and not as_json:
            _table(cases, outcomes)
    if as_json:
        click.echo(json.dumps(_report(cases, outcomes)))
    if html is not None:
        settings = asdict(load) | {"rounds": rounds} | own
        rows = [_row(case, cases, outcomes) for case in cases]
        html.sheet("headrace bench queue", settings, rows)
    for name, runs in outcomes.items():
        for outcome in runs:
            if trouble := outcome.counts["trouble"]:
                click.echo(f"{name}: {trouble}", err=True)
    if any(
        not outcome.counts["queue"]["settled"] for runs in outcomes.values() for outcome in runs
    ):
        raise click.ClickException("nothing was settled, so the figures mean nothing")


@dataclass(frozen=True, slots=True)
class Http:
    """Queues over the HTTP door."""

    url: str

    def create(self, name: str, partitions: int, settings: Mapping[str, str]) -> None:
        """A queue, which there was not.

        Raises:
            ClickException: no door is there, or it refuses.
        """
        body = {"name": name, "partitions": partitions, "filters": [], "settings": dict(settings)}
        call(self.url, "POST", QUEUES.path, body)

    def owed(self, name: str) -> int:
        """Messages that it owes, once all that was said to the broker has been heard.

        Raises:
            ClickException: as `create`.
        """
        until = time.monotonic() + HEARD_SECONDS
        while True:
            owed: int = QUEUES.call(self.url, "GET", name)["depth"]
            if not owed or time.monotonic() > until:
                return owed
            time.sleep(0.05)

    def delete(self, name: str) -> None:
        """The queue and its messages are no more.

        Raises:
            ClickException: as `create`.
        """
        QUEUES.call(self.url, "DELETE", name)


def _ratios(case: Case, cases: list[Case], outcomes: dict[str, list[Outcome]]) -> dict[str, float]:
    """A case's figures over those of its base."""
    bases = [base for base in cases if base.name == case.base and base.name in outcomes]
    if not bases or case.name not in outcomes:
        return {}
    ours, theirs = (medians(each, outcomes[each.name]) for each in (case, *bases))
    return ratios_of(ours, theirs, QUEUE_FAULTS)


def _report(cases: list[Case], outcomes: dict[str, list[Outcome]]) -> dict[str, Any]:
    return {
        "cases": {
            case.name: {
                "medians": medians(case, outcomes[case.name]),
                "rounds": [each.figures(case.load) | each.counts for each in outcomes[case.name]],
                "base": case.base,
                "ratios": _ratios(case, cases, outcomes),
            }
            for case in cases
        }
    }


def _table(cases: list[Case], outcomes: dict[str, list[Outcome]]) -> None:
    columns: list[tuple[str, Mapping[str, float | None], bool]] = []
    for case in cases:
        if case.name not in outcomes:
            continue
        columns.append((case.name, medians(case, outcomes[case.name]), False))
        if ratios := _ratios(case, cases, outcomes):
            columns.append(("ratio", dict(ratios), True))
    compare("", columns)
    for case in cases:
        if case.name in outcomes:
            by_second(f"{case.name}, settled", _measured(case, outcomes).by_second)


def _measured(case: Case, outcomes: dict[str, list[Outcome]]) -> Measured:
    runs = outcomes[case.name]
    return measured(
        "settled_per_second",
        medians(case, runs),
        [each.figures(case.load) for each in runs],
        [each.counts["queue"]["settled_by_second"] for each in runs],
        [each.counts["trouble"] for each in runs],
    )


def _row(case: Case, cases: list[Case], outcomes: dict[str, list[Outcome]]) -> Row:
    """A case beside its base."""
    both = [case, *(base for base in cases if base.name == case.base)]
    return Row(
        workload=case.name,
        title=f"Beside {case.base}" if case.base else "Publish, deliver, settle",
        source="",
        mode="",
        figure="settled_per_second",
        unit="settled/s",
        servers={each.name: _measured(each, outcomes) for each in both},
        ours=case.name,
    )


def _shown_on(progress: Progress) -> Callable[[str, dict[str, Any]], None]:
    task = progress.add_task("starting", total=None)

    def show(words: str, counts: dict[str, Any]) -> None:
        queue = counts["queue"]
        progress.update(
            task,
            description=f"{words}: {counts['phase']}, {counts['acknowledged']:,} enqueued, "
            f"{counts['delivered']:,} delivered, {queue['settled']:,} settled, "
            f"{queue['open']:,} open",
        )

    return show
