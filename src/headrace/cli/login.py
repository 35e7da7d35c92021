"""User and password of commands: options, variables, or asked for; never on the command line alone.

A password comes from a file, from HEADRACE_PASSWORD, or is asked for at a terminal.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import TYPE_CHECKING, Final

import click

from headrace import limits
from headrace.cli.paths import NamedPath
from headrace.client.login import Login
from headrace.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

VARIABLE: Final = "HEADRACE_PASSWORD"

user_option: Callable[[Callable[..., None]], Callable[..., None]] = click.option(
    "--user", envvar="HEADRACE_USER", help="User name, where there are users; also HEADRACE_USER."
)
password_file_option: Callable[[Callable[..., None]], Callable[..., None]] = click.option(
    "--password-file",
    type=NamedPath(),
    metavar="FILE",
    help=f"Its first line is the password; else {VARIABLE}, or it is asked for.",
)


def login_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds `--user` and `--password-file`; the command gives them to `login`."""
    return user_option(password_file_option(command))


def login(user: str | None, file: Path | None) -> Login | None:
    """Who the command acts for; None for nobody in particular.

    Raises:
        UsageError: there is no password for the user, or no user for the password.
        InputError: the file cannot be read, or holds no text.
    """
    if user is None:
        if file is not None:
            raise click.UsageError("--password-file needs --user, or HEADRACE_USER")
        return None
    return Login(user, password(user, file))


def password(user: str, file: Path | None = None) -> str:
    """The password of a user.

    Raises:
        UsageError: there is none.
        InputError: the file cannot be read, or holds no text.
    """
    if file is None:
        return os.environ.get(VARIABLE) or _asked(user)
    try:
        return first_line(file).decode()
    except UnicodeDecodeError:
        raise InputError(f"{file}: the password is no UTF-8") from None


def first_line(file: Path) -> bytes:
    """The first line of a file.

    Raises:
        InputError: it cannot be read.
    """
    try:
        with file.open("rb") as stream:
            return stream.readline(limits.PASSWORD_BYTES_MAX + 2).rstrip(b"\r\n")
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}") from None


@cache
def _asked(user: str) -> str:
    if not sys.stdin.isatty():
        raise click.UsageError(
            f"the password of {user} is missing; set {VARIABLE}", click.get_current_context()
        )
    asked: str = click.prompt(f"Password of {user}", hide_input=True, err=True)
    return asked
