"""How commands print tables: for a person at a terminal, and whole where a script reads."""

from __future__ import annotations

import sys

from headrace.cli.terminal import one_line


def table(columns: list[str], rows: list[list[str]], *, right: set[int]) -> None:
    """Prints rows under their columns; those numbered `right` hold numbers."""
    if not sys.stdout:  # closed by whoever began this
        return
    from rich import box  # noqa: PLC0415 - only tables need it, and it is slow to import
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for index, column in enumerate(columns):
        number = index in right
        drawn.add_column(
            column, justify="right" if number else "left", no_wrap=number, overflow="fold"
        )
    for row in rows:
        drawn.add_row(*(Text(one_line(cell)) for cell in row))  # names of others are no markup
    # A pipe has no width: never cut what a script reads.
    Console(width=None if sys.stdout.isatty() else 10_000).print(drawn)
