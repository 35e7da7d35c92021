"""Rows of one GPU out of files of many, in little time.

Owns which row groups a question needs, and the footers that tell it. Files never change, so what
was read of a footer holds until it is forgotten. Rows are found by what they hold, whatever the
order in a file; order only makes it quick: a file that is sorted by GPU and time has a GPU's rows
in one or two row groups. DuckDB plans each question, and opens each file for it anew: for a month
of one GPU that was twice the work (ADR 0072).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace import job_limits
from headrace.pipeline.schemas import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.pipeline.folder import Folder
    from headrace.pipeline.manifest import TableFile

_TEXTS: Final = ("uuid", "gpu_i_id", "metric", "namespace", "pod", "container")
"""Few different ones, which are read as numbers into a list of them."""

_FOUND_BY: Final = ("uuid", "gpu_i_id", "metric")
"""Columns beside the time whose ranges are kept."""


_Mask = np.ndarray[Any, np.dtype[np.bool_]]


class Range(NamedTuple):
    """What a column holds in a row group."""

    low: Any
    high: Any
    has_nulls: bool

    def meets(self, wanted: tuple[Any, Any]) -> bool:
        """Whether a value may lie within `wanted`, ends included."""
        return bool(self.low <= wanted[1] and self.high >= wanted[0])

    def lies_within(self, wanted: tuple[Any, Any]) -> bool:
        """Whether all values do."""
        return bool(self.low >= wanted[0] and self.high <= wanted[1] and not self.has_nulls)


@dataclass(frozen=True, slots=True)
class Footer:
    """What a file says of itself.

    Attributes:
        metadata: as it was read.
        texts: columns with texts that it has.
        ranges: of each row group, of the columns that rows are found by; None where it does not
            say.
    """

    metadata: pq.FileMetaData
    texts: tuple[str, ...]
    ranges: Mapping[str, Sequence[Range | None]]

    def groups(self, wanted: Mapping[str, tuple[Any, Any]]) -> list[int]:
        """Row groups that may hold a row within all of these ranges, ends included."""
        found = list(range(self.metadata.num_row_groups))
        for name, each in wanted.items():
            held = self.ranges[name]
            found = [n for n in found if (its := held[n]) is None or its.meets(each)]
        return found

    def undecided(
        self, groups: Sequence[int], wanted: Mapping[str, tuple[Any, Any]]
    ) -> dict[str, tuple[Any, Any]]:
        """Those of the ranges that not every row of these groups lies within."""
        return {
            name: each
            for name, each in wanted.items()
            if not all(
                (its := self.ranges[name][n]) is not None and its.lies_within(each) for n in groups
            )
        }


class Files:
    """Reads files of tables in a folder; any number of threads may."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._held: OrderedDict[str, Footer] = OrderedDict()
        self._bytes = 0

    def read(
        self,
        file: TableFile,
        columns: Sequence[str],
        wanted: Mapping[str, tuple[Any, Any]],
        time: str,
    ) -> pa.Table:
        """Rows of a file within `wanted`, times in microseconds, texts that repeat as numbers.

        Args:
            file: which; it may lack columns of its table that are newer than it is.
            columns: to read; those of `wanted` come too.
            wanted: ranges by column, ends included; texts, and `time` in microseconds.
            time: the column with the time of a row.

        Raises:
            FileNotFoundError: a newer version of the tables has no such file.
        """
        footer = self._footer(file.path, time)
        groups = footer.groups(wanted)
        looked_at = footer.undecided(groups, wanted)
        names = list(dict.fromkeys((*looked_at, *columns)))
        with pq.ParquetFile(
            self._folder.path(file.path), metadata=footer.metadata,
            read_dictionary=list(footer.texts), filesystem=self._folder.files,
            pre_buffer=not self._folder.is_local,
        ) as opened:  # fmt: skip
            rows = opened.read_row_groups(groups, columns=names, use_threads=False)
        if time in names:
            at = rows.schema.get_field_index(time)
            rows = rows.set_column(at, time, pc.cast(rows[time], pa.int64()))
        if looked_at:
            fits = [_fits(rows[name], low, high) for name, (low, high) in looked_at.items()]
            rows = _chosen(rows, np.logical_and.reduce(fits))
        return _typed(rows, file.table, columns, time)

    def _footer(self, path: str, time: str) -> Footer:
        with self._lock:
            found = self._held.get(path)
            if found is not None:
                self._held.move_to_end(path)
                return found
        metadata = pq.read_metadata(self._folder.path(path), filesystem=self._folder.files)
        found = _footer_of(metadata, time)
        with self._lock:
            if path not in self._held:
                self._bytes += found.metadata.serialized_size
            self._held[path] = found
            while self._bytes > job_limits.API_FOOTERS_BYTES and len(self._held) > 1:
                _, oldest = self._held.popitem(last=False)
                self._bytes -= oldest.metadata.serialized_size
        return found


def _fits(column: pa.ChunkedArray, low: Any, high: Any) -> _Mask:  # noqa: ANN401 - its values
    """Which values lie within a range; of texts, are the one."""
    if not pa.types.is_dictionary(column.type):
        values = column.fill_null(low - 1).to_numpy()
        inside: _Mask = np.logical_and(values >= low, values <= high)
        return inside
    assert low == high, "texts are looked for one by one"
    parts = [np.zeros(0, bool)]
    for chunk in column.chunks:  # each has its own list of texts
        code = pc.index(chunk.dictionary, low).as_py()
        parts.append(chunk.indices.fill_null(-1).to_numpy() == (-2 if code < 0 else code))
    return np.concatenate(parts)


def _chosen(rows: pa.Table, mask: _Mask) -> pa.Table:
    """Rows where the mask is set, which stand together in a file that is sorted."""
    places = np.flatnonzero(mask)
    if not len(places):
        return rows.slice(0, 0)
    first, last = int(places[0]), int(places[-1])
    if last - first + 1 == len(places):
        return rows.slice(first, len(places))
    return rows.take(pa.array(places))


def _typed(rows: pa.Table, table: str, columns: Sequence[str], time: str) -> pa.Table:
    """The columns, each of one type in all files; null where a file is older than a column."""
    schema = arrow_schema(table)
    held = {}
    for name in columns:
        kind = schema.field(name).type
        if name in _TEXTS:
            kind = pa.dictionary(pa.int32(), kind)
        elif name == time:
            kind = pa.int64()
        has = name in rows.schema.names
        held[name] = rows[name].cast(kind) if has else pa.nulls(rows.num_rows, kind)
    return pa.table(held)


def plain(rows: pa.Table) -> pa.Table:
    """With texts as texts."""
    for at, field in enumerate(rows.schema):
        if pa.types.is_dictionary(field.type):
            column = rows.column(at).cast(field.type.value_type)
            rows = rows.set_column(at, field.name, column)
    return rows


def _footer_of(metadata: pq.FileMetaData, time: str) -> Footer:
    names = [metadata.schema.column(at).path for at in range(metadata.num_columns)]
    places = {name: names.index(name) for name in (*_FOUND_BY, time) if name in names}
    ranges: dict[str, list[Range | None]] = {name: [] for name in places}
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for name, at in places.items():
            held = group.column(at).statistics
            if held is None or not held.has_min_max:
                ranges[name].append(None)
                continue
            low, high = held.min, held.max
            if name == time:
                low, high = int(held.min_raw), int(held.max_raw)
            ranges[name].append(Range(low, high, not held.has_null_count or held.null_count > 0))
    return Footer(metadata, tuple(name for name in _TEXTS if name in names), ranges)
