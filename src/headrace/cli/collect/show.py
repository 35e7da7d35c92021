"""What the commands of `headrace collect` share: progress, signals, how a run ends."""

from __future__ import annotations

import json
import signal
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from headrace import job_limits
from headrace.cli.terminal import one_line
from headrace.collect.publish import WAITING

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.progress import Progress

    from headrace.collect import Counts, Origin
    from headrace.model import Address


def now_us() -> int:
    """The time of collection."""
    return time.time_ns() // 1000


def checked_source(source: str) -> str:
    """The name of a collector.

    Raises:
        BadParameter: no broker takes it.
    """
    if len(source.encode()) > job_limits.SOURCE_BYTES_MAX or "\0" in source:
        raise click.BadParameter(
            f"must be at most {job_limits.SOURCE_BYTES_MAX} bytes without NUL",
            param_hint="--source",
        )
    return source


def unacknowledged(readings: int, broker: Address) -> None:
    """Fails where there are any.

    Raises:
        ClickException: there are.
    """
    if readings:
        raise click.ClickException(f"{readings} readings were not acknowledged by {broker}")


def stop_on_signals(end: Callable[[], None]) -> list[int]:
    """The first SIGINT or SIGTERM calls `end` and is noted; a second interrupts."""
    seen: list[int] = []

    def stop(number: int, _frame: object) -> None:
        if seen:
            raise KeyboardInterrupt
        seen.append(number)
        end()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    return seen


def conclude(
    counts: Counts,
    origin: Origin,
    seconds: float,
    *,
    as_json: bool,
    note: str = "",
    **more: Any,  # noqa: ANN401 - JSON
) -> None:
    """Prints what a run came to; `note` ends the line, `more` are members of the JSON object."""
    if as_json:
        value = {**asdict(counts), **origin._asdict(), "seconds": round(seconds, 3), **more}
        click.echo(json.dumps(value))
        return
    repeats = f", {counts.resent:,} sent again" if counts.resent else ""
    click.echo(
        f"{counts.acknowledged:,} of {counts.published:,} readings acknowledged in "
        f"{counts.messages:,} messages{repeats}; {seconds:.1f} s, "
        f"{counts.acknowledged / max(seconds, 0.001):,.0f} readings/s"
        f"{note and '; '}{note}"
    )


def shown_on(progress: Progress, begun: float) -> Callable[[Counts, str], None]:
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
            say(progress, doing)
        elif before.startswith(WAITING) and not doing.startswith(WAITING):
            say(progress, "the broker is there again")
        before = doing

    return show


def say(progress: Progress, text: str) -> None:
    """Prints a line above the bar, or into a log."""
    from rich.markup import escape  # noqa: PLC0415 - slow to import, and --help needs none

    progress.console.print(f"[dim]·[/dim] {escape(one_line(text))}", highlight=False)


def new_progress() -> Progress:
    """A bar on a terminal; in a log there is none."""
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
