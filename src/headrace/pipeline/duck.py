"""Queries over Arrow tables inside a task, answered by DuckDB.

Owns the one connection of a process and how it is set: a task of Spark is one thread, so is a
query. The same rows in the same order give the same result, to the last bit of a mean.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import duckdb

if TYPE_CHECKING:
    import pyarrow as pa

_connections: dict[int, duckdb.DuckDBPyConnection] = {}


def query(sql: str, **tables: pa.Table) -> pa.Table:
    """The rows of `sql`, in which `tables` are known by their names."""
    cursor = _connection().cursor()
    try:
        for name, table in tables.items():
            cursor.register(name, table)
        return cursor.sql(sql).to_arrow_table()
    finally:
        cursor.close()


def _connection() -> duckdb.DuckDBPyConnection:
    """Spark forks its workers; a connection does not survive that."""
    mine = os.getpid()
    if mine not in _connections:
        _connections.clear()
        connection = duckdb.connect(config={"threads": 1, "preserve_insertion_order": True})
        connection.execute("SET TimeZone = 'UTC'")
        _connections[mine] = connection
    return _connections[mine]
