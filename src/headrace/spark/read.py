"""Reads ranges of records on an executor.

Owns the connection of a worker process and the check that what comes is whole: every offset of a
range once, in order, none missing. Knows no query and no checkpoint.
"""

from __future__ import annotations

import gc
import os
from time import monotonic
from typing import TYPE_CHECKING

from headrace import job_limits
from headrace.client import FetchClient, Login, OffsetOutOfRangeError
from headrace.native import decode_records
from headrace.spark.errors import DataLossError, OffsetError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from headrace.spark.offsets import Range
    from headrace.spark.payload import Decode

_clients: dict[tuple[int, str, Login | None], FetchClient] = {}
_frozen: set[int] = set()


def client(servers: str, login: Login | None = None) -> FetchClient:
    """The connection of this process. Spark keeps worker processes and makes readers anew."""
    key = (os.getpid(), servers, login)
    if key not in _clients:
        _clients[key] = FetchClient(servers, client_id="headrace-spark", login=login)
    return _clients[key]


def read(
    servers: str,
    wanted: tuple[Range, ...],
    decoders: Callable[[str, int], Decode],
    *,
    login: Login | None = None,
    fail_on_data_loss: bool,
) -> Iterator[pa.RecordBatch]:
    """Arrow batches of all records of `wanted`, range by range, in offset order.

    Args:
        servers: Kafka doors.
        wanted: what to read.
        decoders: what makes rows of the records of a partition.
        login: user and password.
        fail_on_data_loss: whether records that are gone are an error.

    Raises:
        DataLossError: records are gone and `fail_on_data_loss` is set.
        OffsetError: records that were committed do not come.
        ClientError: the broker is not reached, or refuses.
    """
    freeze()
    for part in wanted:
        decode = decoders(part.stream, part.partition)
        yield from _read(client(servers, login), part, decode, fail_on_data_loss=fail_on_data_loss)


def _read(
    reader: FetchClient, part: Range, decode: Decode, *, fail_on_data_loss: bool
) -> Iterator[pa.RecordBatch]:
    at = part.start
    silent_since = monotonic()
    while at < part.end:
        try:
            data = reader.fetch(
                part.stream,
                part.partition,
                at,
                job_limits.SPARK_FETCH_BYTES,
                job_limits.SPARK_FETCH_WAIT_MS,
            )
        except OffsetOutOfRangeError:
            at = _skip(reader, part, at, fail_on_data_loss=fail_on_data_loss)
            continue
        if not data:
            if monotonic() - silent_since > job_limits.SPARK_SILENCE_SECONDS_MAX:
                raise OffsetError(
                    f"{part}: record {at} was committed and has not come for "
                    f"{job_limits.SPARK_SILENCE_SECONDS_MAX:.0f} s; was the stream created anew?"
                )
            continue
        silent_since = monotonic()
        # Offsets may be missing where the log was compacted; elsewhere the broker takes a gap for
        # damage.
        columns = decode_records(data, at, part.end, part.end - at)
        for whole in decode(columns):
            for first in range(0, whole.num_rows, job_limits.SPARK_BATCH_ROWS_MAX):
                yield whole.slice(first, job_limits.SPARK_BATCH_ROWS_MAX)
        assert columns.next_offset > at, f"{part}: a fetch at {at} held no whole batch"
        at = columns.next_offset


def rows_per_record(
    servers: str, part: Range, decoders: Callable[[str, int], Decode], *, login: Login | None = None
) -> float:
    """How many rows a record of a range gives, by those at its start and in its middle.

    The larger of the two; 1 where none of them comes.

    Raises:
        ClientError: the broker is not reached, or refuses.
    """
    found = 1.0
    for at in {part.start, (part.start + part.end) // 2}:
        try:
            data = client(servers, login).fetch(
                part.stream,
                part.partition,
                at,
                job_limits.SPARK_SAMPLE_BYTES,
                job_limits.SPARK_FETCH_WAIT_MS,
            )
        except OffsetOutOfRangeError:
            continue  # What is to be said of it says who reads it.
        records = decode_records(data, at, part.end, part.end - at)
        rows = sum(each.num_rows for each in decoders(part.stream, part.partition)(records))
        found = max(found, rows / max(records.records, 1))
    return found


def _skip(reader: FetchClient, part: Range, at: int, *, fail_on_data_loss: bool) -> int:
    """The next offset to read where `at` is no longer in the log.

    Raises:
        DataLossError: `fail_on_data_loss` is set.
        OffsetError: the log ends before `at`.
    """
    kept = reader.earliest_offsets(part.stream)[part.partition]
    if kept <= at:
        raise OffsetError(
            f"{part}: the log ends before {at}: the stream was deleted and created anew; start "
            "with a new checkpoint"
        )
    if fail_on_data_loss:
        raise DataLossError(lost(part, at, kept))
    return min(kept, part.end)


def lost(part: Range, at: int, kept: int) -> str:
    """What to say of records from `at` on that retention took before they were read."""
    return (
        f"{part}: records {at} to {min(kept, part.end) - 1} are gone, the log starts at {kept}; "
        "failOnDataLoss=false reads on without them"
    )


def freeze() -> None:
    """Keeps what the imports left out of the collections that a worker runs after each task.

    Once in a process, from the first task on.
    """
    if os.getpid() not in _frozen:
        _frozen.add(os.getpid())
        gc.collect()
        gc.freeze()
