"""Paths that a person names."""

from __future__ import annotations

import os
from pathlib import Path

import click

from headrace.errors import InputError


class NamedPath(click.Path):
    """A path that is not empty: the one of a shell variable without a value would be `.`."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        """The path.

        Raises:
            UsageError: it is empty.
        """
        if value == "":
            self.fail("the path is empty", param, ctx)
        return super().convert(value, param, ctx)  # type: ignore[arg-type]


def held_folder(path: Path, option: str, remedy: str) -> Path:
    """A folder that a command reads, which must be there.

    Args:
        path: the folder.
        option: what named it.
        remedy: what to give instead.

    Raises:
        InputError: it is not, is no folder, or may not be read.
    """
    try:
        os.scandir(path).close()
    except OSError as error:
        raise InputError(f"{option} {path}: {_why(error)}; {remedy}") from None
    return path


def folder_to_make(path: Path, option: str) -> Path:
    """A folder that a command writes in, and makes where it is not there. Makes none yet.

    Raises:
        InputError: it, or what it would stand in, is no folder or may not be written.
    """
    try:
        there = next(each for each in (path, *path.absolute().parents) if _stands(each))
        os.scandir(there).close()
        if not os.access(there, os.W_OK | os.X_OK):
            raise PermissionError(None, "it may not be written by this user")
    except OSError as error:
        raise InputError(
            f"{option} {path}: {_why(error)}; name a folder that is there or can be made"
        ) from None
    return path


def _stands(path: Path) -> bool:
    """Something does, be it a link that leads nowhere."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _why(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such folder"
    if isinstance(error, NotADirectoryError):
        return "it is a file, and a folder is needed"
    return f"it cannot be read: {error.strerror}" if error.errno else str(error.strerror)
