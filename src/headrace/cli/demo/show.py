"""What a person sees of the demo: progress while it runs, then a report.

Owns terminal output only; every number comes from elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self

import click
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from headrace.pipeline.report import IDLE
from headrace.text import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.cli.demo.leave import Results
    from headrace.collect import Counts
    from headrace.pipeline import Progress as PipelineProgress
    from headrace.pipeline.report import Load, Refused

LOADS_MAX: Final = 40
"""Rows of a fleet's loads that are printed; report.json has all."""

DETECTIONS_MAX: Final = 40
"""As of the loads."""

REFUSED_MAX: Final = 15

_GAP: Final = "-"


class Live:
    """Progress on stderr; as a context manager. Bars on a terminal, else a line per event."""

    def __init__(self, readings: int) -> None:
        console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description:<11}", style="bold"),
            BarColumn(bar_width=32),
            MofNCompleteColumn(),
            TextColumn("{task.fields[doing]}", style="dim"),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._console = console
        add = self._progress.add_task
        self._published = add("published", total=readings, doing="readings, over MQTT QoS 1")
        self._stored = add("stored", total=readings, doing="acknowledged, so on disk")
        self._tables = add("in tables", total=readings, doing="Spark is starting")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def note(self, text: str) -> None:
        """Prints a line above the bars."""
        self._console.print(f"[dim]·[/dim] {text}", highlight=False)
        if text == "Spark is up":
            self._progress.update(self._tables, doing="Structured Streaming")

    def collected(self, counts: Counts, doing: str) -> None:
        """Moves the first two bars."""
        resent = f", {counts.resent} sent again" if counts.resent else ""
        self._progress.update(self._published, completed=counts.published, doing=f"{doing}{resent}")
        self._progress.update(self._stored, completed=counts.acknowledged)

    def piped(self, progress: PipelineProgress) -> None:
        """Moves the third bar."""
        self._progress.update(self._tables, completed=progress.totals.readings)


def report(found: Results) -> None:
    """Prints loads, quarantine, where everything is, and last the line."""
    console = Console(highlight=False)
    console.print()
    if found.loads:
        console.print(_loads_table(found.loads[:LOADS_MAX]))
    if len(found.loads) > LOADS_MAX:
        more = len(found.loads) - LOADS_MAX
        console.print(f"… and {more:,} more loads in report.json\n", style="dim")
    if gaps := sum(load.profiling_gaps for load in found.loads):
        have, count = ("has", "counts") if gaps == 1 else ("have", "count")
        line = f"{counted(gaps, 'scrape')} {have} no valid profiling sample; {count} in no SM %"
        console.print(f"{line}\n", style="dim")
    if found.detections:
        console.print(_detections_table(found.detections[:DETECTIONS_MAX]))
    if len(found.detections) > DETECTIONS_MAX:
        more = len(found.detections) - DETECTIONS_MAX
        console.print(f"… and {more:,} more detections in report.json\n", style="dim")
    if found.refused:
        console.print(_refused_table(found.refused[:REFUSED_MAX]))
    if len(found.refused) > REFUSED_MAX:
        more = sum(each.readings for each in found.refused[REFUSED_MAX:])
        console.print(f"… and {more:,} more readings in quarantine\n", style="dim")
    console.print(_places(found))
    console.print()
    click.echo(str(found.outcome.account))


def _places(found: Results) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    if found.chart is not None:
        table.add_row("chart", str(found.chart))
    table.add_row("tables", f"{found.folder / 'parquet'} (plain Parquet files, for any tool)")
    table.add_row("all else", f"{found.folder}")
    parts = ", ".join(
        f"{name.replace('_', ' ')} {value:.1f}" for name, value in found.outcome.seconds.items()
    )
    table.add_row("seconds", f"{found.seconds:.1f} ({parts})")
    return table


def _loads_table(loads: Sequence[Load]) -> Table:
    table = Table(
        title="What each GPU did", title_justify="left", title_style="bold",
        box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False,
    )  # fmt: skip
    table.add_column("GPU", no_wrap=True)
    table.add_column("load", no_wrap=True)
    for name in ("seconds", "util %", "SM %", "watts", "joules"):
        table.add_column(name, justify="right", no_wrap=True)
    shown = ""
    for load in loads:
        gpu = _gpu(load)
        idle = not load.pod
        table.add_row(
            "" if gpu == shown else gpu,
            load.pod or IDLE,
            f"{load.seconds:,.0f}",
            _number(load.mean_gpu_util_percent, 1.0),
            _number(load.mean_sm_active_ratio, 100.0),
            _number(load.mean_power_watts, 1.0),
            _number(load.energy_joules, 1.0, digits=0),
            style="dim" if idle else "",
        )
        shown = gpu
    return table


_STYLES: Final = {"info": "dim", "warning": "yellow", "critical": "bold red"}


def _detections_table(detections: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(
        title="What was found", title_justify="left", title_style="bold",
        box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False,
    )  # fmt: skip
    table.add_column("kind", no_wrap=True)
    table.add_column("load", no_wrap=True)
    table.add_column("seconds", justify="right", no_wrap=True)
    table.add_column("why", overflow="fold")
    for each in detections:
        seconds = (each["last"] - each["start"]).total_seconds()
        table.add_row(
            each["kind"], each["pod"] or IDLE, f"{seconds:,.0f}", each["text"],
            style=_STYLES[each["severity"]],
        )  # fmt: skip
    return table


def _refused_table(refused: Sequence[Refused]) -> Table:
    table = Table(
        title="In quarantine", title_justify="left", title_style="bold",
        box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False,
    )  # fmt: skip
    table.add_column("why", no_wrap=True)
    table.add_column("metric", no_wrap=True)
    table.add_column("readings", justify="right", min_width=8)
    table.add_column("raw text", no_wrap=True)
    for each in refused:
        example = each.example if len(each.example) <= 40 else each.example[:39] + "…"
        table.add_row(each.reason, each.metric or _GAP, f"{each.readings:,}", repr(example))
    return table


def _gpu(load: Load) -> str:
    place = " ".join(part for part in (load.host, load.device) if part) or load.uuid
    return f"{place}/{load.gpu_i_id}" if load.gpu_i_id else place


def _number(value: float | None, scale: float, *, digits: int = 1) -> str:
    return _GAP if value is None else f"{value * scale:,.{digits}f}"
