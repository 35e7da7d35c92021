"""The files of one bucket, as one task sees and changes them.

Owns which files are live while the task runs, what of them is kept in memory, and how rows are
replaced in files that hold a stretch of time alone. A file has a name that no other attempt uses:
what a task that failed, or ran twice, has written is in no manifest.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import reduce
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from headrace import job_limits
from headrace.pipeline import tables
from headrace.pipeline.schemas import arrow_schema
from headrace.pipeline.spans import Span, lie_within

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headrace.pipeline.folder import Folder
    from headrace.pipeline.manifest import TableFile


class Files:
    """Files of a bucket.

    Args:
        folder: of the tables.
        place: folder in that of each table that new files go to.
        batch: micro-batch that writes them.
        bucket: number of the bucket.
        before: the bucket's live files.

    Attributes:
        replaced: paths of files that others stand for now.
        moved: paths of files, added or replaced, between which rows went unchanged.
    """

    def __init__(
        self, folder: Folder, place: str, batch: int, bucket: int, before: Sequence[TableFile]
    ) -> None:
        self._folder = folder
        self._place = place
        self._batch = batch
        self._bucket = bucket
        self._before = before
        self._token = uuid4().hex[:12]
        self._rows: dict[str, pa.Table] = {}
        self._added: list[TableFile] = []
        self.replaced: list[str] = []
        self.moved: list[str] = []

    @property
    def added(self) -> list[TableFile]:
        """The files that were written and are live."""
        return [file for file in self._added if file.path not in set(self.replaced)]

    def of(self, table: str) -> list[TableFile]:
        """The files of `table` that are live now."""
        gone = set(self.replaced)
        return [
            file
            for file in (*self._before, *self._added)
            if file.table == table and file.path not in gone
        ]

    def overlapping(self, table: str, spans: Sequence[Span]) -> list[TableFile]:
        """Those of them that may have rows in `spans`."""
        return [file for file in self.of(table) if any(file.overlaps(*span) for span in spans)]

    def read(self, file: TableFile, columns: Sequence[str]) -> pa.Table:
        """Columns of a file."""
        if file.path in self._rows:
            return self._rows[file.path].select(columns)
        if file.bytes > job_limits.PIPELINE_WHOLE_BYTES_MAX:
            return self._folder.read(file.path, arrow_schema(file.table), columns)
        return _columns.read(self._folder, file, tuple(columns))

    def within(
        self, table: str, columns: Sequence[str], instant: str, spans: Sequence[Span]
    ) -> pa.Table:
        """The rows of `table` whose `instant` lies in `spans`, as they are now."""
        schema = arrow_schema(table)
        parts = [pa.schema([schema.field(name) for name in columns]).empty_table()]
        for file in self.overlapping(table, spans):
            if file.path in self._rows or file.bytes <= job_limits.PIPELINE_WHOLE_BYTES_MAX:
                rows = self.read(file, columns)
                parts.append(rows.filter(lie_within(rows[instant], spans)))
            else:
                only = _within(instant, schema.field(instant).type, spans)
                parts.append(self._folder.read(file.path, schema, columns, only))
        return pa.concat_tables(parts)

    def add(
        self,
        table: str,
        rows: pa.Table,
        *,
        chunk: tuple[int, int] | None = None,
        name: str | None = None,
    ) -> None:
        """Writes rows to a file of their own, where there are any."""
        if not rows.num_rows:
            return
        schema = arrow_schema(table)
        rows = rows.select(schema.names).cast(schema)
        stem = name or ("" if chunk is None else f"{chunk[0] // 1_000_000}-")
        number = len(self._added)
        path = f"{table}/{self._place}/{stem}{self._bucket}-{self._token}-{number}.parquet"
        self._rows[path] = rows
        self._added.append(
            tables.add(
                self._folder, path, table, rows,
                batch=self._batch, bucket=self._bucket, chunk=chunk,
            )
        )  # fmt: skip

    def merge(
        self,
        table: str,
        group: Sequence[TableFile],
        order: Sequence[tuple[str, str]],
        *,
        chunk: tuple[int, int] | None = None,
    ) -> None:
        """Makes one file of several, its rows in `order`, or as they come where that is empty."""
        names = arrow_schema(table).names
        rows = pa.concat_tables(self.read(file, names) for file in group)
        is_moved = not {file.path for file in group} & {file.path for file in self._added}
        self.drop(group)
        self.add(table, rows.sort_by(order) if order else rows, chunk=chunk)
        if is_moved:
            self.moved += [*(file.path for file in group), self._added[-1].path]

    def drop(self, files: Iterable[TableFile]) -> None:
        """Replaces files by what was, or will be, added."""
        self.replaced.extend(file.path for file in files)

    def rewrite(
        self, table: str, fresh: pa.Table, instant: str, spans: Sequence[Span], chunk_us: int
    ) -> None:
        """Replaces the rows of `table` in `spans` by `fresh`, in the files that hold that time.

        Where there is none, a new file holds the stretch of `chunk_us` around it.
        """
        schema = arrow_schema(table)
        kept = [schema.empty_table()]
        held: list[Span] = []
        for file in self.of(table):
            assert file.chunk is not None, f"{file.path} holds no stretch of time alone"
            first, last = file.chunk
            if any(first < end and last > start for start, end in spans):
                self.drop([file])
                kept.append(self.read(file, schema.names))
                held.append((first, last))
        before = pa.concat_tables(kept)
        outside = pc.invert(lie_within(before[instant], spans))
        inside = lie_within(fresh[instant], spans)
        rows = pa.concat_tables(
            [before.filter(outside), fresh.filter(inside).select(schema.names).cast(schema)]
        ).sort_by([(name, "ascending") for name in ("uuid", "gpu_i_id", instant)])
        micros = pc.cast(rows[instant], pa.int64()).combine_chunks()
        starts = pc.unique(pc.multiply(_floor_divide(micros, chunk_us), chunk_us)).to_pylist()
        stretches = {
            next((span for span in held if span[0] <= start < span[1]), (start, start + chunk_us))
            for start in starts
        }
        for first, last in sorted(stretches):
            mine = rows.filter(lie_within(rows[instant], [(first, last)]))
            self.add(table, mine, chunk=(first, last))


def _within(instant: str, kind: pa.DataType, spans: Sequence[Span]) -> pc.Expression:
    column = pc.field(instant)
    return reduce(
        lambda one, other: one | other,
        (
            (column >= pa.scalar(start, pa.int64()).cast(kind))
            & (column < pa.scalar(end, pa.int64()).cast(kind))
            for start, end in spans
        ),
    )


def _floor_divide(numbers: pa.Array, by: int) -> pa.Array:
    """Towards minus infinity, as Python does; Arrow cuts towards zero."""
    cut = pc.divide(numbers, by)
    below = pc.less(numbers, pc.multiply(cut, by))
    return pc.subtract(cut, pc.cast(below, pa.int64()))


class _Columns:
    """Columns of files, which never change.

    A worker goes on from one micro-batch to the next, and reads what it wrote in the last.
    """

    def __init__(self) -> None:
        self._held: OrderedDict[tuple[str, tuple[str, ...]], pa.Table] = OrderedDict()
        self._bytes = 0

    def read(self, folder: Folder, file: TableFile, columns: tuple[str, ...]) -> pa.Table:
        """The columns, from memory where they were read a moment ago."""
        key = (folder.path(file.path), columns)
        found = self._held.pop(key, None)
        if found is None:
            found = folder.read(file.path, arrow_schema(file.table), columns)
            self._bytes += found.nbytes
        self._held[key] = found
        while self._bytes > job_limits.PIPELINE_CACHE_BYTES:
            _, oldest = self._held.popitem(last=False)
            self._bytes -= oldest.nbytes
        return found


_columns: Final = _Columns()
