"""The door to the tables: every reader and every writer goes through the manifest.

Owns how files become a table, in Spark and in Arrow, and what a written folder holds. Files that
no manifest lists do not exist: what a crashed micro-batch left behind is never read.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow.dataset
import pyarrow.parquet

from headrace.pipeline import manifest as manifests
from headrace.pipeline.manifest import Manifest, TableFile
from headrace.pipeline.schemas import JOBS, SCHEMA_VERSION, SCHEMAS, arrow_schema
from headrace.spark.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Manifest", "TableFile", "manifest", "open_arrow", "read"]

_TIME_COLUMNS: Final = ("event_time", "interval_start", "start")


def manifest(tables_dir: str | Path, version: int | None = None) -> Manifest:
    """The newest manifest, or that of `version`; an empty one where nothing was committed.

    Raises:
        PipelineError: it cannot be read.
    """
    root = Path(tables_dir)
    return manifests.newest(root) if version is None else manifests.load(root, version)


def read(
    spark: SparkSession, tables_dir: str | Path, table: str, version: int | None = None
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
    return read_files(spark, tables_dir, table, _committed(tables_dir, version).of(table))


def begin(tables_dir: Path) -> None:
    """Marks a folder as one of tables: without a micro-batch readers find them empty."""
    (tables_dir / manifests.FOLDER).mkdir(parents=True, exist_ok=True)


def _committed(tables_dir: str | Path, version: int | None) -> Manifest:
    """A manifest for a reader, who would take the wrong folder for empty tables."""
    if not Path(tables_dir, manifests.FOLDER).is_dir():
        raise PipelineError(
            f"{tables_dir} holds no tables yet, for it has no folder {manifests.FOLDER!r}; name "
            "the folder that the pipeline writes"
        )
    return manifest(tables_dir, version)


def read_files(
    spark: SparkSession, tables_dir: str | Path, table: str, files: Iterable[TableFile]
) -> DataFrame:
    """Some files of a table as a Spark DataFrame."""
    paths = [str(Path(tables_dir, file.path)) for file in files]
    if not paths:
        return spark.createDataFrame([], SCHEMAS[table])
    return spark.read.schema(SCHEMAS[table]).parquet(*paths)


def open_arrow(
    tables_dir: str | Path, table: str, version: int | None = None
) -> pyarrow.dataset.Dataset:
    """A table as an Arrow dataset: `open_arrow(dir, "readings").to_table(columns=[…])`.

    Raises:
        PipelineError: there is no such table or no tables there, or the manifest cannot be read.
    """
    _check_name(table)
    root = Path(tables_dir)
    paths = [str(root / file.path) for file in _committed(root, version).of(table)]
    schema = arrow_schema(table)
    if not paths:
        return pyarrow.dataset.dataset(schema.empty_table())
    return pyarrow.dataset.dataset(paths, schema=schema, format="parquet")


def describe(
    tables_dir: Path, path: Path, table: str, batch: int, bucket: int, chunk: int | None
) -> TableFile:
    """A Parquet file that micro-batch `batch` wrote, as the manifest lists it."""
    footer = pyarrow.parquet.read_metadata(path)
    low, high = _time_range(footer)
    if table == JOBS:
        # A job lies in all the time until its end.
        high = _time_range(footer, ("end",))[1]
    return TableFile(
        table=table,
        path=path.relative_to(tables_dir).as_posix(),
        rows=footer.num_rows,
        bytes=path.stat().st_size,
        batch=batch,
        schema=SCHEMA_VERSION,
        bucket=bucket,
        min_time_us=low,
        max_time_us=high,
        chunk=chunk,
    )


def _time_range(
    footer: pyarrow.parquet.FileMetaData, columns: Iterable[str] = _TIME_COLUMNS
) -> tuple[int | None, int | None]:
    names = [footer.schema.column(at).path for at in range(footer.num_columns)]
    at = next(names.index(name) for name in columns if name in names)
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
