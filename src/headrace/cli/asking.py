"""What a person at a terminal is asked before something goes; a script is not."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from headrace.cli.terminal import one_line

if TYPE_CHECKING:
    from collections.abc import Callable

yes_option: Callable[[Callable[..., None]], Callable[..., None]] = click.option(
    "--yes", is_flag=True, help="Do not ask."
)


def is_asked(*, yes: bool) -> bool:
    """Whether somebody is there who is asked."""
    return sys.stdin.isatty() and not yes


def confirm(question: str) -> None:
    """Asks, and goes on with a yes.

    Raises:
        ClickException: the answer is no.
        Abort: there is none.
    """
    if not click.confirm(one_line(question), err=True):
        raise click.ClickException("nothing was done")
