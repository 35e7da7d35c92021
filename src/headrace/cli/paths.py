"""Paths that a person names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    import os


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
