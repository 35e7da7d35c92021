"""The door to the tables: every reader and every writer goes through the manifest.

Owns how files become a table, in Spark and in Arrow, and what a written folder holds. Files that
no manifest lists do not exist: what a crashed micro-batch left behind is never read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.dataset

from headrace.pipeline import manifest as manifests
from headrace.pipeline.folder import Folder
from headrace.pipeline.manifest import Manifest, TableFile
from headrace.pipeline.schemas import SCHEMA_VERSION, SCHEMAS, arrow_schema, time_columns
from headrace.spark.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa
    import pyarrow.parquet
    from pyspark.sql import DataFrame, SparkSession

    from headrace.pipeline.folder import Location

__all__ = ["Manifest", "TableFile", "manifest", "open_arrow", "read"]


def manifest(tables_dir: Location, version: int | None = None) -> Manifest:
    """The newest manifest, or that of `version`; an empty one where nothing was committed.

    Raises:
        PipelineError: it cannot be read.
    """
    folder = Folder.at(tables_dir)
    return manifests.newest(folder) if version is None else manifests.load(folder, version)


def read(
    spark: SparkSession, tables_dir: Location, table: str, version: int | None = None
) -> DataFrame:
    """A table as a Spark DataFrame.

    Args:
        spark: any session that sees `tables_dir`.
        tables_dir: folder of the tables.
        table: `readings`, `quarantine`, `duplicates` or `gpu_intervals`.
        version: manifest to read; default: the newest.

    Raises:
        PipelineError: there is no such table or no tables there, or the manifest cannot be read.
    """
    _check_name(table)
    folder = Folder.at(tables_dir)
    return read_files(spark, folder, table, committed(folder, version).of(table))


def begin(tables_dir: Location) -> None:
    """Marks a folder as one of tables: without a micro-batch readers find them empty."""
    folder = Folder.at(tables_dir)
    if folder.is_local:  # an object store has no folders
        folder.make(manifests.FOLDER)


def clear(folder: Folder, committed: Manifest) -> None:
    """Deletes what other attempts at the micro-batch of a version left.

    Not before it is committed: they may be those of another driver, that is about to.
    """
    listed = {file.path for file in committed.files} | {committed.watch}
    for table in (*SCHEMAS, manifests.WATCH):
        place = f"{table}/batch={committed.batch}"
        for name in folder.names(place):
            if f"{place}/{name}" not in listed:
                folder.remove(f"{place}/{name}")


def committed(folder: Folder, version: int | None = None) -> Manifest:
    """As `manifest`, for a reader, who would take the wrong folder for empty tables."""
    if not folder.has(manifests.FOLDER):
        raise PipelineError(
            f"{folder} holds no tables yet, for it has no folder {manifests.FOLDER!r}; name "
            "the folder that the pipeline writes"
        )
    return manifest(folder, version)


def read_files(
    spark: SparkSession, tables_dir: Location, table: str, files: Iterable[TableFile]
) -> DataFrame:
    """Some files of a table as a Spark DataFrame; of an object store, Spark's `s3a` reads them."""
    folder = Folder.at(tables_dir)
    paths = [folder.shown(file.path).replace("s3://", "s3a://", 1) for file in files]
    if not paths:
        return spark.createDataFrame([], SCHEMAS[table])
    return spark.read.schema(SCHEMAS[table]).parquet(*paths)


def open_arrow(
    tables_dir: Location, table: str, version: int | None = None
) -> pyarrow.dataset.Dataset:
    """A table as an Arrow dataset: `open_arrow(dir, "readings").to_table(columns=[…])`.

    Raises:
        PipelineError: there is no such table or no tables there, or the manifest cannot be read.
    """
    _check_name(table)
    folder = Folder.at(tables_dir)
    files = committed(folder, version).of(table)
    return folder.dataset((file.path for file in files), arrow_schema(table))


def add(
    folder: Folder,
    name: str,
    table: str,
    rows: pa.Table,
    *,
    batch: int,
    bucket: int = 0,
    chunk: tuple[int, int] | None = None,
) -> TableFile:
    """Writes rows of a table to a file, which is described as the manifest lists it."""
    footer, size = folder.write(name, rows)
    first, last = time_columns(table)
    return TableFile(
        table=table,
        path=name,
        rows=footer.num_rows,
        bytes=size,
        batch=batch,
        schema=SCHEMA_VERSION,
        bucket=bucket,
        min_time_us=_time_range(footer, first)[0],
        max_time_us=_time_range(footer, last)[1],
        chunk=chunk,
    )


def _time_range(footer: pyarrow.parquet.FileMetaData, column: str) -> tuple[int | None, int | None]:
    at = [footer.schema.column(at).path for at in range(footer.num_columns)].index(column)
    lows, highs = [], []
    for group in range(footer.num_row_groups):
        statistics = footer.row_group(group).column(at).statistics
        if statistics is not None and statistics.has_min_max:
            # Raw, for a datetime cannot hold the years before 1 and after 9999.
            lows.append(int(statistics.min_raw))
            highs.append(int(statistics.max_raw))
    return (min(lows), max(highs)) if lows else (None, None)


def _check_name(table: str) -> None:
    if table not in SCHEMAS:
        raise PipelineError(f"no table {table!r}; there are {', '.join(SCHEMAS)}")
