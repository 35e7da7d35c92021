"""Spark looks for top-level packages named `pyspark_…` and registers their `DefaultSource`."""

from headrace.spark.source import HeadraceDataSource as DefaultSource

__all__ = ["DefaultSource"]
