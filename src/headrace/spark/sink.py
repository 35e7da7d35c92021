"""`format("headrace")`: the Spark side of writing to streams, batch and streaming.

Thin: options are parsed in `options`, columns in `rows`, attempts told apart in `intent`, records
written in `write`. Owns what Spark knows of a task and does not hand to its writer.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from headrace.client import ClientError
from headrace.spark.errors import OptionError, WriteError
from headrace.spark.intent import Attempt
from headrace.spark.rows import check_columns
from headrace.spark.write import client, end, write

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from headrace.spark.options import WriteOptions

GROUP: Final = "headrace-sink"
"""What the names of groups begin with that keep the intents of tasks."""


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What a task has written.

    Attributes:
        group: where its intents are, if there are any.
        streams: that it had rows for, and has intents of.
    """

    group: str
    streams: tuple[str, ...]


def check(options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
    """Refuses a write that cannot be done, before it begins.

    Raises:
        OptionError: the mode or a column makes no sense.
        ClientError: the brokers are not reached, or there is no such stream.
    """
    if overwrite:
        raise OptionError(
            "a stream is only appended to: use mode('append'), or outputMode('append') or 'update'"
        )
    check_columns(schema, options.stream)
    if options.stream is not None:
        client(options.servers, options.login).partitions(options.stream)


class BatchWriter(DataSourceArrowWriter):
    """One write; its tasks may be repeated, itself is not told from another one."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._name = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Runs on an executor."""
        task = _task()
        return _write(
            self._options,
            iterator,
            Attempt(
                group=f"{GROUP}-{self._name}-{task.partitionId()}",
                batch=0,
                run=self._name,
                is_first=task.attemptNumber() == 0,
                is_new=True,
            ),
        )

    def commit(self, messages: list[Written | None]) -> None:  # type: ignore[override]
        """Nothing is left to be done but to tidy up."""
        self._end(messages)

    def abort(self, messages: list[Written | None]) -> None:  # type: ignore[override]
        """What has been written stays."""
        self._end(messages)

    def _end(self, messages: list[Written | None]) -> None:
        written = {each.group: each.streams for each in messages if each and each.streams}
        # Intents that stay do no harm, and go by themselves in seven days.
        with suppress(ClientError):
            end(client(self._options.servers, self._options.login), self._name, written)


class StreamWriter(DataSourceStreamArrowWriter):
    """The micro-batches of a query; Spark makes a writer anew for each."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Runs on an executor.

        Raises:
            WriteError: Spark does not say which query and micro-batch this is.
        """
        task = _task()
        query = task.getLocalProperty("sql.streaming.queryId")
        batch = task.getLocalProperty("streaming.sql.batchId")
        if query is None or batch is None:
            raise WriteError(
                "this Spark does not tell a sink its query and micro-batch; write in foreachBatch"
            )
        return _write(
            self._options,
            iterator,
            Attempt(
                group=f"{GROUP}-{query}-{task.partitionId()}",
                batch=int(batch),
                # Without it each micro-batch is written as if a run had been killed before it.
                run=task.getLocalProperty("spark.jobGroup.id") or uuid.uuid4().hex,
                is_first=task.attemptNumber() == 0,
                is_new=False,
            ),
        )

    def commit(self, messages: list[Written | None], batchId: int) -> None:  # type: ignore[override]  # noqa: N803
        """Nothing: what a task has written is durable."""

    def abort(self, messages: list[Written | None], batchId: int) -> None:  # type: ignore[override]  # noqa: N803
        """What has been written stays, and the next attempt of this micro-batch finds it."""


def _write(options: WriteOptions, rows: Iterator[pa.RecordBatch], attempt: Attempt) -> Written:
    log = client(options.servers, options.login)
    return Written(attempt.group, write(log, rows, options.stream, attempt))


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None, "a writer runs in a task"
    return task
