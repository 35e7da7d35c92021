"""Files that `headrace bench` writes: `--html`, a page that loads nothing, and `--save`."""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import click

from headrace.bench.figures import middle_of
from headrace.bench.suite.page import sheet
from headrace.bench.suite.results import Measured
from headrace.cli.paths import NamedPath
from headrace.text import remedy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from headrace.bench.figures import Figures
    from headrace.bench.suite.results import Row


@dataclass(frozen=True, slots=True)
class PageFile:
    """Where a page, or what else is written once all is measured, goes.

    Attributes:
        option: that names it.
        began: when the command did.
    """

    path: Path
    option: str
    began: str

    def write(self, page: str) -> None:
        """Writes it whole or not at all, and says where it is.

        Raises:
            ClickException: as `keep`.
        """
        self.keep(page)
        click.echo(f"written: {self.path}", err=True)

    def keep(self, page: str) -> None:
        """Writes it whole or not at all.

        Raises:
            ClickException: it cannot be written; what was there stands.
        """
        try:
            _put(self.path, page)
        except OSError as error:
            what = remedy(error, f"name another file with {self.option}")
            raise click.ClickException(
                f"{self.path} cannot be written: {error.strerror}; {what}"
            ) from None

    def sheet(self, command: str, load: Mapping[str, object], rows: Sequence[Row]) -> None:
        """Writes the page of one command.

        Args:
            command: as it was called, without its options.
            load: what was done, by name.
            rows: what was measured.

        Raises:
            ClickException: it cannot be written.
        """
        self.write(sheet(command, self.began, load, rows))


def _put(path: Path, page: str) -> None:
    if path.exists() and not path.is_file():  # a terminal or a pipe is not replaced
        path.write_text(page, encoding="utf-8")
        return
    temporary = path.with_name(f".headrace-{os.getpid():x}.tmp")
    try:
        temporary.write_text(page, encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _place(_context: object, option: click.Parameter, path: Path | None) -> PageFile | None:
    """Tells before a long run what would be an error behind it."""
    if path is None:
        return None
    folder = path.absolute().parent
    try:
        with contextlib.suppress(FileNotFoundError):  # it is made
            if stat.S_ISDIR(path.stat().st_mode):
                raise click.BadParameter(f"{path} is a folder; name a file", param=option)
        if not os.access(folder, os.W_OK | os.X_OK) or not folder.is_dir():
            raise click.BadParameter(
                f"{folder} is no folder in which this user may write; name another file",
                param=option,
            )
    except OSError as error:
        raise click.BadParameter(
            f"{path}: {error.strerror}; name another file", param=option
        ) from None
    return PageFile(path, option.opts[0], datetime.now(UTC).isoformat(timespec="seconds"))


def file_option(name: str, words: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """An option whose value is a `PageFile`, or None."""
    return click.option(name, type=NamedPath(), metavar="FILE", callback=_place, help=words)


html_option: Final = file_option("--html", "Write a page with charts, too.")


def measured(
    figure: str,
    medians: Figures,
    rounds: Sequence[Figures],
    by_second: Sequence[Sequence[int]] = (),
    troubles: Sequence[str | None] = (),
) -> Measured:
    """One server of a row.

    Args:
        figure: that counts.
        medians: of all figures.
        rounds: figures of each.
        by_second: of each round, what was delivered in each second.
        troubles: of each round, the first error.
    """
    middle = middle_of(rounds, figure)
    return Measured(
        rounds=rounds,
        medians=medians,
        by_second=by_second[middle] if by_second and middle is not None else (),
        trouble=next(filter(None, troubles), None),
    )
