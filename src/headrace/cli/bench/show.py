"""What the commands of `headrace bench` share: values with a unit, progress, numbers in a table."""

from __future__ import annotations

import math
import sys
from statistics import mean
from typing import TYPE_CHECKING, Any, Final

import click

from headrace.bench import Server
from headrace.model import Address
from headrace.text import parse_duration_ms, parse_size

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rich.progress import Progress

SPARKS: Final = "▁▂▃▄▅▆▇█"

SPARKS_MAX: Final = 60
"""Blocks of a line; each is the mean of several seconds where there are more."""

ROUNDS_AGAINST: Final = 3
"""Fewer have no median."""

DAYS_MAX: Final = 30
"""That are measured: each second has a count."""

COUNT_MAX: Final = 10**12
"""Of messages: a disk has not as many."""


class Quantity(click.ParamType[Any]):
    """A value with a unit."""

    def __init__(self, name: str, parse: Callable[[str], float]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401 - click's own
        """The value that a text names."""
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as fault:
            self.fail(str(fault), param, ctx)


ADDRESS: Final = Quantity("HOST:PORT", Address.parse)  # type: ignore[arg-type]


def _measured(text: str) -> float:
    seconds = parse_duration_ms(text) / 1e3
    if not seconds:
        raise ValueError("nothing is measured in no time; give 1s or more")
    if seconds > DAYS_MAX * 86_400:
        raise ValueError(f"must be at most {DAYS_MAX}d; got {text}")
    return seconds


class Rate(click.FloatRange):
    """Above 0, and a number."""

    def __init__(self) -> None:
        super().__init__(0, min_open=True)

    def convert(
        self,
        value: Any,  # noqa: ANN401 - click's own
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> float:
        """The rate that a text names."""
        rate: float = super().convert(value, param, ctx)
        if not math.isfinite(rate):
            self.fail(f"{value} is no number", param, ctx)
        return rate


SECONDS: Final = Quantity("DURATION", lambda text: parse_duration_ms(text) / 1e3)
MEASURED: Final = Quantity("DURATION", _measured)
"""Seconds, and more than none."""

SIZE: Final = Quantity("SIZE", parse_size)


def servers_of(
    first: Server, against: Address | None, pid: int | None, rounds: int | None
) -> tuple[list[Server], int]:
    """Whom a command measures, and in how many rounds.

    Raises:
        UsageError: the second is the first.
    """
    if against is None:
        return [first], rounds or 1
    if against == first.address:
        raise click.UsageError("--against is the server itself; name another")
    second = Server(str(against), against, pid, first.credentials)
    return [first, second], rounds or ROUNDS_AGAINST


def number(value: float | None) -> str:
    """A number as people read it; empty where there is none."""
    if value is None:
        return ""
    return f"{value:,.{0 if value == int(value) or value >= 100 else 3}f}"


def by_second(name: str, counts: Sequence[int]) -> None:
    """Prints what came in each second, as a line of blocks; nothing where no second was full."""
    if not counts:
        return
    step = -(-len(counts) // SPARKS_MAX)
    means = [mean(counts[at : at + step]) for at in range(0, len(counts), step)]
    peak = max(means) or 1
    line = "".join(SPARKS[min(int(value / peak * len(SPARKS)), len(SPARKS) - 1)] for value in means)
    try:
        line.encode(sys.stdout.encoding)
    except UnicodeEncodeError:  # a terminal without blocks: numbers alone
        line = ""
    least, most = number(min(counts)), number(max(counts))
    click.echo(f"{name} by second: {line} {least} to {most}")


def compare(head: str, columns: Sequence[tuple[str, Mapping[str, float | None], bool]]) -> None:
    """Prints figures of what was measured side by side.

    Args:
        head: over the names of the figures.
        columns: name, figures, and whether these are ratios; the first has all names.
    """
    from rich import box  # noqa: PLC0415 - only tables need it, and it is slow to import
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    table = Table(box=box.SIMPLE_HEAD)
    table.add_column(head)
    for name, _, _ in columns:
        table.add_column(name, justify="right")
    for name in columns[0][1]:
        cells = [
            f"{figures[name]:.2f}" if is_ratio and name in figures else number(figures.get(name))
            for _, figures, is_ratio in columns
        ]
        if any(cells):
            table.add_row(name, *cells)
    # A pipe has no width: never cut what a script reads.
    Console(width=None if sys.stdout.isatty() else 10_000).print(table)


def progress_bar() -> Progress:
    """A line on stderr, at a terminal, that says what goes on."""
    from rich.console import Console  # noqa: PLC0415 - slow to import, and --help needs none
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
