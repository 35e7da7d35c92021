"""Makes the class archive of Spark's JVM, by running the pipeline on nothing.

Owns what is run for it: one micro-batch without readings takes the way of every other, so the JVM
has loaded what a pipeline needs to its first row.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema

from headrace.dcgm.readings import SCHEMA
from headrace.pipeline.run import start_on
from headrace.spark.archive import archive_path
from headrace.spark.errors import SparkSideError
from headrace.spark.session import close, session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType


def prepare() -> Path:
    """Makes the archive, unless it is there; returns where it is.

    Takes half a minute, and 170 MB below the prefix of the Python environment. What is there is
    whole: it gets its name when it is done.

    Raises:
        JavaMissingError: no Java 17 or newer is found.
        SparkSideError: Spark did not start, or made no archive.
        OSError: the folder cannot be written to.
    """
    archive = archive_path()
    if archive.is_file():
        return archive
    archive.parent.mkdir(parents=True, exist_ok=True)
    # Beside it, to be renamed. Also shows first whether there is leave to write.
    with TemporaryDirectory(dir=archive.parent, prefix="new-") as aside:
        made = Path(aside, archive.name)
        spark = session("headrace prepare", classes_to=made)
        try:
            spark.dataSource.register(_Nothing)
            readings = spark.readStream.format(_Nothing.name()).load()
            start_on(readings, Path(aside, "tables"), Path(aside, "checkpoint")).awaitTermination()
        finally:
            close(spark)
        try:
            made.replace(archive)
        except FileNotFoundError:
            raise SparkSideError(f"this Java makes no class archives ({archive})") from None
    return archive


class _Nothing(DataSource):
    """A stream of readings that has one micro-batch, without any."""

    @classmethod
    def name(cls) -> str:
        return "headrace-nothing"

    def schema(self) -> StructType:
        return from_arrow_schema(SCHEMA)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's
        return _NothingReader()


class _NothingReader(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's
        return {"end": 0}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002, N802
        return {"end": 1}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:  # noqa: ARG002
        return [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        yield pa.RecordBatch.from_pylist([], SCHEMA)
