"""Spark beside a broker: the source `format("headrace")` and a session that suits it."""

from pyspark.sql import SparkSession

from headrace.spark.session import close, session
from headrace.spark.source import HeadraceDataSource

__all__ = ["HeadraceDataSource", "close", "register", "session"]


def register(spark: SparkSession) -> None:
    """Makes `format("headrace")` known to `spark`.

    Needed only where the package `pyspark_headrace` is not beside this one: Spark finds it there
    by itself.
    """
    spark.dataSource.register(HeadraceDataSource)
