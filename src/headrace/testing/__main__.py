"""`python -m headrace.testing`: runs seeds, and replays the one that found something."""

from __future__ import annotations

import sys

import click

from headrace.testing import SimulatedRun, faults, simulate

SOUND, FOUND = 0, 1


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--seed", type=click.IntRange(0, 2**64 - 1), default=0, help="The (first) seed.")
@click.option("--count", type=click.IntRange(1), default=1, help="How many seeds, from there on.")
@click.option(
    "--fault", type=click.Choice(["none", *faults()]), default="none", help="A fault to plant."
)
@click.option("--trace", is_flag=True, help="Print every call, answer and effect of each run.")
def main(seed: int, count: int, fault: str, trace: bool) -> None:
    r"""Simulate lives of the log engine on a disk in memory that fails as disks do.

    A seed decides everything: clients, schedule, what each power cut leaves. The same seed is the
    same run everywhere; its hash says so. A run ends at the first broken promise, and the command
    that replays it is printed.

    \b
    Examples:
      python -m headrace.testing --count 2000
      python -m headrace.testing --seed 88 --trace | tail -40
      python -m headrace.testing --fault acknowledge-early --count 50

    Exit codes: 0 no promise was broken, 1 one was, 2 wrong use.
    """
    starts = stored = 0
    for each in range(seed, seed + count):
        run = simulate(each, fault=fault, trace=trace)
        starts, stored = starts + run.starts, stored + run.stored
        for line in run.trace:
            click.echo(line)
        if run.anomaly is not None:
            click.echo(report(run), err=True)
            sys.exit(FOUND)
    click.echo(
        f"{count} seeds from {seed}: no promise was broken "
        f"({starts} starts, {stored} records stored; hash of the last {run.hash:016x})"
    )
    sys.exit(SOUND)


def report(run: SimulatedRun) -> str:
    """The anomaly, and how to see it again."""
    plant = "" if run.fault == "none" else f" --fault {run.fault}"
    return (
        f"seed {run.seed}: {run.anomaly!r}\n"
        f"replay: python -m headrace.testing --seed {run.seed}{plant} --trace"
    )


if __name__ == "__main__":
    main()
