"""Where tables lie: a folder of this machine, or of an object store.

Owns how files are read, written, made durable and listed there; knows neither tables nor
manifests. Paths are relative to the folder, with `/`.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import dataset, fs

from headrace.spark.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow.compute as pc

_S3: Final = re.compile(r"^s3://")
_S3A: Final = re.compile(r"^s3a://")
"""What Arrow, and what Spark calls the same object store."""

_ROW_GROUP: Final = 20_000
"""Rows that a reader of one GPU and metric must look at, at least."""

_creating: Final = threading.Lock()
"""Held from the look whether a name is free until it is taken, where a store does not do both."""


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder, which need not exist yet.

    Attributes:
        location: as it was named: a path, or a URI such as `s3://bucket/tables`.
        files: file system that it is in.
        root: its path there.
    """

    location: str
    files: fs.FileSystem
    root: str

    @classmethod
    def at(cls, location: Location) -> Folder:
        """The folder of that name.

        An object store takes its address and keys as its own tools do, from `AWS_ENDPOINT_URL`,
        `AWS_REGION`, `AWS_ACCESS_KEY_ID` and the like, or from the URI
        (`s3://bucket/tables?endpoint_override=localhost:9000&scheme=http`).

        Raises:
            PipelineError: no such kind of URI is known, or what stands in it is wrong.
        """
        if isinstance(location, Folder):
            return location
        name = str(location)
        if "://" not in name:
            return cls(name, fs.LocalFileSystem(), str(Path(name).absolute()))
        try:
            files, root = fs.FileSystem.from_uri(_S3A.sub("s3://", name))
            if not root:
                raise ValueError("it names no bucket")  # noqa: TRY301 - as all that is wrong with it
        except (OSError, ValueError) as error:
            raise PipelineError(
                f"{name}: {error}; name a folder, or a URI such as s3://bucket/tables"
            ) from error
        return cls(name, files, root.rstrip("/"))

    def __str__(self) -> str:
        return self.location

    @property
    def is_local(self) -> bool:
        """Whether it is a folder of this machine."""
        return isinstance(self.files, fs.LocalFileSystem)

    @property
    def address(self) -> str:
        """What finds it from any process, wherever that was started."""
        return self.root if self.is_local else self.location

    @property
    def for_spark(self) -> str:
        """What Spark's file systems call it.

        Raises:
            PipelineError: its URI says more than they read there.
        """
        if self.is_local:
            return self.location
        place, has_options, _ = self.location.partition("?")
        if has_options:
            raise PipelineError(
                f"{self}: Spark reads no options behind '?' in the URI of a checkpoint; set "
                "AWS_ENDPOINT_URL, AWS_REGION and the like instead"
            )
        return _S3.sub("s3a://", place)

    def path(self, name: str) -> str:
        """What the file system calls a file."""
        return f"{self.root}/{name}"

    def shown(self, name: str) -> str:
        """What a person calls a file."""
        where, separator, _ = self.location.partition("?")
        return f"{where.rstrip('/')}/{name}" if separator or not self.is_local else self.path(name)

    def read(
        self,
        name: str,
        schema: pa.Schema,
        columns: Sequence[str],
        only: pc.Expression | None = None,
    ) -> pa.Table:
        """Columns of a Parquet file, in their order; with `only`, of those rows alone.

        Those of `schema` that the file was written before are null.
        """
        return pq.read_table(
            self.path(name), columns=list(columns), schema=schema, filters=only,
            filesystem=self.files, partitioning=None,
        )  # fmt: skip

    def write(self, name: str, rows: pa.Table) -> tuple[pq.FileMetaData, int]:
        """Writes a Parquet file; its footer and its size in bytes. It is not durable yet.

        Raises:
            OSError: it cannot be written; the error names it.
        """
        with self._named(name):
            self._parent(name)
            with self.files.open_output_stream(self.path(name)) as stream:
                with pq.ParquetWriter(stream, rows.schema, compression="zstd") as writer:
                    writer.write_table(rows, _ROW_GROUP)
                return writer.writer.metadata, stream.tell()

    def text(self, name: str) -> str:
        """The text of a file.

        Raises:
            OSError: it cannot be read.
            UnicodeDecodeError: it is no text.
        """
        with self.files.open_input_stream(self.path(name)) as stream:
            return bytes(stream.read()).decode()

    def write_text(self, name: str, text: str) -> None:
        """Writes a file. It is not durable yet.

        Raises:
            OSError: it cannot be written; the error names it.
        """
        with self._named(name):
            self._parent(name)
            with self.files.open_output_stream(self.path(name)) as stream:
                stream.write(text.encode())

    def create(self, name: str, text: str) -> None:
        """Makes a durable file, whole or not at all.

        In an object store two processes that make the same name at the same moment may both
        succeed.

        Raises:
            FileExistsError: there is one of that name.
        """
        if not self.is_local:
            with _creating:
                if self._info([self.path(name)])[0].type != fs.FileType.NotFound:
                    raise FileExistsError(name)
                self.write_text(name, text)
            return
        # Of its own: what another writer drafts of this name must not come under it.
        draft = Path(self.path(name)).with_suffix(f".{uuid4().hex[:12]}.draft")
        self.write_text(str(draft.relative_to(self.root)), text)
        path = self.path(name)
        try:
            _sync(draft)
            # A link, unlike a rename, fails where there is a file.
            os.link(draft, path)
        finally:
            draft.unlink()
        try:
            _sync(draft.parent)
        except OSError:
            # Whether its name lasts is not known, and no later sync would tell.
            os.unlink(path)  # noqa: PTH108 - the twin of `link`
            raise

    def sync(self, names: Iterable[str]) -> None:
        """Makes files durable, which an object store does as it takes them."""
        if self.is_local:
            for name in names:
                _sync(Path(self.path(name)))

    def names(self, folder: str) -> list[str]:
        """Names of the files directly in one of its folders; none where there is no such folder."""
        selector = fs.FileSelector(self.path(folder), allow_not_found=True)
        found = self._info(selector)
        return [info.base_name for info in found if info.type == fs.FileType.File]

    def all_names(self) -> list[str]:
        """Names of all files in it, at any depth."""
        selector = fs.FileSelector(self.root, allow_not_found=True, recursive=True)
        found = self._info(selector)
        return [
            info.path.removeprefix(f"{self.root}/")
            for info in found
            if info.type == fs.FileType.File
        ]

    def has(self, folder: str) -> bool:
        """Whether it has such a folder."""
        [info] = self._info([self.path(folder)])
        return bool(info.type == fs.FileType.Directory)

    def make(self, folder: str) -> None:
        """Makes a folder, where there is none."""
        self.files.create_dir(self.path(folder), recursive=True)

    def remove(self, name: str) -> None:
        """Deletes a file, where there is one, and folders of its table that it was the last in."""
        path = self.path(name)
        with contextlib.suppress(FileNotFoundError):
            self.files.delete_file(path)
        if self.is_local:
            with contextlib.suppress(OSError):  # others are in one of them
                for parent in Path(name).parents[:-2]:
                    Path(self.path(str(parent))).rmdir()

    def dataset(self, names: Iterable[str], schema: pa.Schema) -> dataset.Dataset:
        """Files as one table."""
        paths = [self.path(name) for name in names]
        if not paths:
            return dataset.dataset(schema.empty_table())
        return dataset.dataset(paths, schema=schema, format="parquet", filesystem=self.files)

    def _info(self, what: fs.FileSelector | list[str]) -> list[fs.FileInfo]:
        """What the file system says of files.

        Raises:
            PipelineError: it cannot be asked.
        """
        try:
            return list(self.files.get_file_info(what))
        except OSError as error:
            why = str(error).splitlines()[0]
            raise PipelineError(f"{self}: {why}; is its address right, and its key?") from error

    @contextlib.contextmanager
    def _named(self, name: str) -> Iterator[None]:
        """Says of which file the system spoke, as Arrow does not.

        Raises:
            OSError: it refused.
        """
        try:
            yield
        except OSError as error:
            if error.errno is None:
                raise OSError(f"{self.shown(name)}: {str(error).splitlines()[0]}") from error
            raise OSError(error.errno, os.strerror(error.errno), self.shown(name)) from error

    def _parent(self, name: str) -> None:
        if self.is_local:
            Path(self.path(name)).parent.mkdir(parents=True, exist_ok=True)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


Location = str | Path | Folder
"""A folder of tables, as callers name it."""
