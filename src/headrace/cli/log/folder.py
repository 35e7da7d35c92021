"""What the commands of `headrace log` share: the folder, its streams, what is asked for."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from headrace.adapters.files import DEFINITION, FileDefinitions
from headrace.cli.paths import NamedPath, held_folder
from headrace.errors import CatalogError, InputError
from headrace.kernel.catalog import Catalog
from headrace.model import HeldLog
from headrace.native import Folder
from headrace.text import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from headrace.model import StreamDefinition

NAME_ONE: Final = "give the folder of a stopped node"

data_option: Callable[[Callable[..., None]], Callable[..., None]] = click.option(
    "--data",
    type=NamedPath(),
    required=True,
    metavar="DIR",
    help="Folder of a stopped node.",
)


class Wanted(NamedTuple):
    """What a command looks at; None is all."""

    stream: str | None = None
    partition: int | None = None


class WantedType(click.ParamType[Wanted]):
    """Reads STREAM or STREAM/PARTITION."""

    name = "stream[/partition]"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Wanted:
        """The stream and the partition.

        Raises:
            UsageError: the partition is no number.
        """
        if isinstance(value, Wanted):
            return value
        stream, slash, partition = str(value).partition("/")
        if slash and not (partition.isascii() and partition.isdigit()):
            self.fail(
                f"a partition is a number from 0, as in readings/0; got {value!r}", param, ctx
            )
        return Wanted(stream, int(partition) if slash else None)


wanted_argument: Callable[[Callable[..., None]], Callable[..., None]] = click.argument(
    "wanted", type=WantedType(), required=False, default=Wanted(), metavar="[STREAM[/PARTITION]]"
)


class Opened(NamedTuple):
    """A locked folder.

    Attributes:
        path: where it is.
        folder: the compiled module's.
        streams: their definitions, by name.
    """

    path: Path
    folder: Folder
    streams: dict[str, StreamDefinition]

    @property
    def incarnations(self) -> dict[str, int]:
        """By stream."""
        return {name: stream.incarnation for name, stream in self.streams.items()}

    def misfits(self, wanted: Wanted) -> Iterator[tuple[str, str]]:
        """Definitions with which no node would start: `(file, why)`."""
        catalog = Catalog()
        held = [
            HeldLog(stream, partition, incarnation, any(base or size for base, size, _ in segments))
            for stream, partition, incarnation, _, segments in self.folder.logs(self.incarnations)
        ]
        for name, definition in self.streams.items():
            if wanted.stream not in {None, name}:
                continue
            try:
                catalog.check(definition, held)
            except CatalogError as error:
                yield f"streams/{name}/{DEFINITION}", str(error)


@contextlib.contextmanager
def opened(data: Path, wanted: Wanted, *, repairs: bool = False) -> Iterator[Opened]:
    """Locks the folder of a stopped node; without `repairs` nothing there is changed.

    Raises:
        InputError: it is none.
        StorageError: a node uses it.
        DefinitionError: a `stream.json` is damaged.
        UsageError: what is wanted is not there.
    """
    held_folder(data, "--data", NAME_ONE)
    if not any((data / part).is_dir() for part in ("streams", "journal")):
        raise InputError(
            f"--data {data}: it is no node's, for it has neither streams/ nor journal/; {NAME_ONE}"
        )
    folder = Folder.open(str(data), repairs=repairs)
    try:
        streams = {each.name: each for each in FileDefinitions(data).load(tidy=repairs)}
        if wanted.stream is not None:
            _check(wanted, streams)
        yield Opened(data, folder, streams)
    finally:
        folder.close()


def _check(wanted: Wanted, streams: dict[str, StreamDefinition]) -> None:
    definition = streams.get(wanted.stream or "")
    if definition is None:
        hint = nearest(wanted.stream or "", streams)
        raise click.UsageError(f"no stream {wanted.stream!r} in this folder; {hint}")
    if wanted.partition is not None and wanted.partition >= definition.partitions:
        raise click.UsageError(
            f"stream {definition.name!r} has partitions 0 to {definition.partitions - 1}"
        )
