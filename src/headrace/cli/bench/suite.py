"""`headrace bench suite`."""

from __future__ import annotations

import json
import signal
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from headrace.bench.suite import machine, results_json, resumed, words
from headrace.bench.suite.all_workloads import chosen
from headrace.bench.suite.page import page
from headrace.bench.suite.peers import custom, found
from headrace.bench.suite.peers.peer import Mode
from headrace.bench.suite.results import OURS, Result, Row
from headrace.bench.suite.run import ROUNDS_MIN, Plan, run, seconds_of, split_cores, tasks_of
from headrace.bench.suite.workloads import Timing
from headrace.cli.bench.page import file_option, html_option
from headrace.cli.bench.show import MEASURED, progress_bar
from headrace.cli.client import json_option
from headrace.cli.tables import table
from headrace.text import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.bench.suite.peers.found import Found
    from headrace.bench.suite.peers.peer import Peer
    from headrace.cli.bench.page import PageFile

LONG: Final = Timing()
QUICK: Final = Timing(duration=2.0, warm_up=0.5)


@click.command(short_help="headrace beside the brokers of this machine, in one run.")
@click.option(
    "--quick", "is_quick", is_flag=True, help="The rows that say most, in 3 to 5 minutes."
)
@click.option("--only", multiple=True, metavar="WORKLOAD", help="Again for more.  [all]")
@click.option("--peer", "names", multiple=True, metavar="NAME", help="Again for more.  [all found]")
@click.option(
    "--mode",
    "modes",
    type=click.Choice([str(mode) for mode in Mode]),
    multiple=True,
    help="Again for more.  [both]",
)
@click.option("--rounds", type=click.IntRange(ROUNDS_MIN, 1000), default=ROUNDS_MIN,
              show_default=True, help="Medians of so many.")  # fmt: skip
@click.option("--duration", type=MEASURED, help="Measured in a round.  [4s; 2s with --quick]")
@click.option("--server-cores", type=click.IntRange(1, 1024), default=1, show_default=True,
              help="Of servers; the load has the others.")  # fmt: skip
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="TOML with a section [peer.NAME] for each further broker.",
)
@click.option(
    "--folder",
    type=click.Path(exists=True, file_okay=False, writable=True, path_type=Path),
    metavar="DIR",
    help="Where brokers keep what they write.  [that of temporary files]",
)
@click.option("--list", "is_listed", is_flag=True, help="Names workloads and brokers, and ends.")
@html_option
@file_option("--save", "Write the JSON object, too, after each row.")
@file_option("--resume", "Measure what such a FILE lacks, and add it.")
@json_option
def suite(
    *,
    is_quick: bool,
    only: tuple[str, ...],
    names: tuple[str, ...],
    modes: tuple[str, ...],
    rounds: int,
    duration: float | None,
    server_cores: int,
    config: Path | None,
    folder: Path | None,
    is_listed: bool,
    html: PageFile | None,
    save: PageFile | None,
    resume: PageFile | None,
    as_json: bool,
) -> None:
    """Measure headrace and every broker found here by the same workloads.

    Starts each of them by itself, on free ports and a folder that goes again, once to acknowledge
    from memory and once as durable as it can be. Rounds alternate between them; servers run on the
    first core, or as many as --server-cores says, and the load on the others. What counts is what
    arrives: rows say what was lost, duplicated, reordered or corrupted, and what an acknowledgement
    means is said with each broker.

    A ratio is headrace's figure over the other's, or the other way round where less is better:
    above 1 headrace is ahead. Rows where it is behind, or misses what is to be reached, come first.

    The whole takes an hour beside three brokers, and more beside each other; how long is said
    first, and by --list. --quick takes 3 to 5 minutes: short rounds of the rows that say most,
    spread over the run, against mosquitto alone unless --peer or --config name others.

    A run that ended early goes on with --resume FILE, where --save has put it, and otherwise the
    same options: it measures the rows that FILE lacks, or those of --only again.

    \b
    A further broker is a section of a file, started in the foreground, without a shell:
      [peer.mine]
      command = "mybroker --port {port} --data {folder}"
      durable = "mybroker --port {port} --data {folder} --sync"    # without it: memory alone
      doors = ["mqtt"]                          # kafka: {kafka_port}; queue: {http_port}
      version_command = "mybroker --version"
      promise_memory = "acknowledges from memory"
      promise_durable = "acknowledges after fsync"

    \b
    Examples:
      headrace bench suite --list
      headrace bench suite --quick
      headrace bench suite --only ten-to-ten --only p2p-1k --peer mosquitto --rounds 5
      headrace bench suite --mode durable --folder /mnt/disk
      headrace bench suite --config peers.toml --save full.json --html full.html
      headrace bench suite --resume full.json --only p2p-1k
    """
    if why := machine.need_linux():
        raise click.ClickException(why)
    timing = QUICK if is_quick else LONG
    if duration is not None:
        timing = replace(timing, duration=duration, warm_up=min(duration, timing.warm_up))
    workloads = chosen(timing, only, is_quick=is_quick)
    own = custom.read(config) if config else []
    asked = _candidates(own, names, is_quick=is_quick)
    here = found.find(_candidates(own, names, is_quick=False) if is_listed else asked)
    servers, load = split_cores(server_cores)
    plan = Plan(
        workloads=workloads,
        peers=[peer for peer in here.peers if peer in asked],
        modes=[Mode(mode) for mode in modes] or list(Mode),
        rounds=rounds,
        is_spread=is_quick,
        folder=folder or machine.usual_folder(),
        server_cores=servers,
        load_cores=load,
    )
    if is_listed:
        _list(plan, here, as_json=as_json)
        return
    for name in names:
        if name in here.left_out:
            raise click.ClickException(f"{name}: {here.left_out[name]}")
    _need_rows(plan)
    result = Result(
        began=datetime.now(UTC).isoformat(timespec="seconds"),
        seconds=0.0,
        machine=machine.facts(plan.folder),
        settings={
            "quick": is_quick,
            "rounds": rounds,
            "duration_seconds": timing.duration,
            "warm_up_seconds": timing.warm_up,
            "server_cores": sorted(servers),
            "load_cores": sorted(load),
        },
        peers=here.described(),
        left_out=here.left_out,
        rows=[],
    )
    began = None
    if resume:
        began, result = result.began, _before(resume, result)
        if not only:
            done = frozenset((row.workload, row.mode) for row in result.rows)
            plan = replace(plan, skipped=done)
    _warn(plan)
    _measure(plan, result, began=began, html=html, save=save or resume, as_json=as_json)


def _before(file: PageFile, now: Result) -> Result:
    """What a file has, as the beginning of what is measured now.

    Raises:
        InputError: it holds no result.
        ClickException: it is of another machine, of other options or brokers.
    """
    before = results_json.read(file.path)
    if why := resumed.differs(before, now):
        raise click.ClickException(f"{file.path} is of {why}; --save begins another file")
    return before


def _candidates(own: Sequence[Peer], names: tuple[str, ...], *, is_quick: bool) -> Sequence[Peer]:
    """Whom to look for.

    Raises:
        UsageError: two have one name.
        InputError: one that is named is nobody.
    """
    known = [*found.PEERS, *own, *found.BASELINES]
    taken = {peer.name for peer in (*found.PEERS, *found.BASELINES)}
    for peer in own:
        if peer.name in taken:
            raise click.UsageError(f"[peer.{peer.name}]: there is one of this name; take another")
    if is_quick and not names:
        return [peer for peer in known if peer.name in found.QUICK or peer not in found.PEERS]
    return found.named(known, (OURS, *names) if names else ())


def _need_rows(plan: Plan) -> None:
    """Says why nothing can be measured, where it is so."""
    if not tasks_of(plan):
        asked = " and ".join(plan.modes)
        raise click.UsageError(f"none of these workloads is measured in {asked} mode; see --list")


def _warn(plan: Plan) -> None:
    brokers = [peer for peer in plan.peers if peer not in found.BASELINES]
    if len(brokers) == 1:
        click.echo("no other broker is here: no ratios; --list says how to install one", err=True)
    if plan.server_cores == plan.load_cores:
        click.echo("there is one core: the load takes its part of what servers have", err=True)
    if Mode.DURABLE in plan.modes and machine.is_volatile(plan.folder):
        click.echo(
            f"{plan.folder} is in memory: nothing there is durable; --folder names a disk", err=True
        )
    click.echo(_estimate(plan), err=True)


def _estimate(plan: Plan) -> str:
    minutes = max(round(seconds_of(plan) / 60), 1)
    return f"{counted(len(tasks_of(plan)), 'row')} to measure: about {counted(minutes, 'minute')}"


def _measure(
    plan: Plan,
    before: Result,
    *,
    began: str | None,
    html: PageFile | None,
    save: PageFile | None,
    as_json: bool,
) -> None:
    started, result = time.monotonic(), before
    runs = [*before.resumed, began] if began else before.resumed

    def done(row: Row) -> None:
        nonlocal result
        seconds = before.seconds + time.monotonic() - started
        rows = resumed.merged(result.rows, row)
        result = replace(result, seconds=seconds, resumed=runs, rows=rows)
        if save:
            save.keep(_text(result))

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as with nohup
            signal.signal(
                number, lambda number, _frame: sys.exit(128 + number)
            )  # servers end first
    try:
        with progress_bar() as bar:
            task = bar.add_task("starting", total=None)
            run(plan, done, lambda words: bar.update(task, description=words))
    finally:  # what was measured before an error is shown, too
        if result.rows:
            _write(result, html=html, save=save)
            if not as_json:
                _show(result)
    if as_json:
        click.echo(json.dumps(results_json.to_json(result)))
    if all(row.median(OURS) is None for row in result.rows):
        raise click.ClickException(f"no row has a figure of {OURS}: {_first_trouble(result.rows)}")


def _first_trouble(rows: Sequence[Row]) -> str:
    return next((m.trouble for row in rows for m in row.servers.values() if m.trouble), "no row")


def _write(result: Result, *, html: PageFile | None, save: PageFile | None) -> None:
    if save:
        save.write(_text(result))
    if html:
        html.write(page(result))


def _text(result: Result) -> str:
    return json.dumps(results_json.to_json(result), indent=1) + "\n"


# --- what a person reads ------------------------------------------------------------------------


def _list(plan: Plan, here: Found, *, as_json: bool) -> None:
    peers, workloads = here.described(), plan.workloads
    if as_json:
        listed = [
            {
                "name": each.name,
                "title": each.title,
                "source": each.source,
                "modes": [str(mode) for mode in each.modes],
                "quick": each.is_quick,
            }
            for each in workloads
        ]
        told = {"workloads": listed, "peers": peers, "left_out": here.left_out}
        click.echo(json.dumps(told | {"seconds": round(seconds_of(plan))}))
        return
    table(
        ["workload", "mode", "quick", "what it does", "from"],
        [
            [
                each.name,
                ", ".join(each.modes),
                "quick" if each.is_quick else "",
                each.title,
                each.source,
            ]
            for each in workloads
        ],
        right=set(),
    )
    there = [
        [name, peer["version"], f"{door}, {mode}", promise]
        for name, peer in peers.items()
        for (door, mode), promise in words.promises(peer).items()
    ]
    table(["broker", "version", "measured", "what an acknowledgement means"], there, right=set())
    if here.left_out:
        table(["not here", "what is missing"], [list(each) for each in here.left_out.items()],
              right=set())  # fmt: skip
    click.echo(_estimate(plan))


def _show(result: Result) -> None:
    cells, remarks = [], []
    for row in result.losses_first():
        cells += _lines(row)
        remarks += _remarks(row)
    table(["row", "server", "figure", "least to most", "ratio"], cells, right={2, 3, 4})
    for line in remarks:
        click.echo(line)
    for name, peer in result.peers.items():
        for (door, mode), promise in words.promises(peer).items():
            click.echo(f"{name} {peer['version']}, {door}, {mode}: {promise}")
    for row in result.rows:
        if sentence := words.limits(row):
            click.echo(f"{row.workload}, {row.mode}: {sentence}")
    for name, missing in result.left_out.items():
        click.echo(f"not here: {name}: {missing}")
    if any(row.is_level(name) for row in result.rows for name in row.ratios()):
        click.echo("≈: the rounds of both overlap, so that neither is ahead")
    click.echo(f"{words.ran(result)}: {words.standing(result.rows)}")


def _lines(row: Row) -> list[list[str]]:
    """Our line, and one for each other server."""
    lines = []
    for name, measured in row.servers.items():
        median = row.median(name)
        lines.append(
            [
                f"{row.workload}, {row.mode}" if name == row.ours else "",
                name,
                "-" if median is None else f"{words.number(median)} {row.unit}",
                words.spread(row, measured),
                "" if name == row.ours else words.ratio_to(row, name),
            ]
        )
    return lines


def _remarks(row: Row) -> list[str]:
    """A line for each server of which there is more to say."""
    lines, ratios = [], row.ratios()
    for name, measured in row.servers.items():
        remarks = [*words.faults(measured), *filter(None, [measured.trouble])]
        if name == row.ours:
            behind = words.shortfalls(row)
            remarks = [*(["BEHIND"] if row.is_behind() else []), *behind, *remarks]
            if row.at_least is not None and not row.misses():
                most = "at most " if row.less_is_better else ""
                remarks.append(f"{most}{words.number(row.at_least)} is reached")
        elif name in row.bounds and ratios.get(name, 0.0) >= row.bounds[name]:
            remarks.insert(0, f"{row.bounds[name]:g} is reached")
        if remarks:
            lines.append(f"{row.workload}, {row.mode}: {name}: {'; '.join(remarks)}")
    return lines
