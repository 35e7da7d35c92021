"""Writes the rows of a task, each once, however many attempts the task has.

Owns: what an attempt does about those before it, or beside it. Knows no query and no checkpoint.

A batch is appended under the sequence that follows the last one that its writer knows of, one at a
time for each partition; the broker refuses it if there is another one by then. So who has it
appended knows all that was written under this producer and epoch (ADR 0069). An attempt that is
alone goes on by the answers. Any other reads the log: what is there already it does not send, and
of what it sends it believes nothing but the log.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from time import monotonic, time_ns
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace import job_limits
from headrace.client.append import AppendClient
from headrace.client.errors import OffsetOutOfRangeError
from headrace.native import RecordSpread, batch_headers, build_batch, decode_records
from headrace.spark.errors import WriteError
from headrace.spark.intent import OVER, Attempt, Begun, begin, load, refuse_over, with_over
from headrace.spark.rows import by_stream, records

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa

    from headrace.client import Login

_LOG: Final = logging.getLogger(__name__)

_APPEND_TIME: Final = 0x08
"""Attribute of a batch whose records have the time of their append."""

_ATTRIBUTES_AT: Final = 22
"""Low byte of the attributes in a batch."""

_clients: dict[tuple[int, str, Login | None], AppendClient] = {}


def client(servers: str, login: Login | None) -> AppendClient:
    """The connection of this process. Spark keeps worker processes and makes writers anew."""
    key = (os.getpid(), servers, login)
    if key not in _clients:
        _clients[key] = AppendClient(servers, client_id="headrace-spark-sink", login=login)
    return _clients[key]


def write(
    log: AppendClient, rows: Iterable[pa.RecordBatch], stream: str | None, attempt: Attempt
) -> tuple[str, ...]:
    """Writes all rows; on return each is durable, once. The streams that there were any for.

    Args:
        log: where to.
        rows: what the task has; the same rows in each attempt, in any order.
        stream: where all rows go; None where each names its own.
        attempt: who writes.

    Raises:
        WriteError: a row cannot be written, another attempt of the task is under way, or its
            write is over.
        ClientError: the brokers are not reached, or refuse.
    """
    lanes: dict[str, Lane] = {}
    for batch in rows:
        if not batch.num_rows:
            continue
        for name, part in by_stream(batch, stream):
            if name not in lanes:
                lanes[name] = lane(log, name, attempt, part.schema.names)
            lanes[name].push(part)
    for each in lanes.values():
        each.finish()
    return tuple(lanes)


def end(log: AppendClient, run: str, groups: Mapping[str, Iterable[str]]) -> None:
    """Deletes the intents of a batch write that is over, and keeps that it is.

    An attempt may begin after it, as one that Spark gave up on, and finds no intent.

    Args:
        log: where they are.
        run: name of the write.
        groups: of its tasks, with the streams that each wrote to.

    Raises:
        ClientError: the brokers are not reached, or refuse; what is left goes in seven days.
    """
    for stream in sorted({stream for streams in groups.values() for stream in streams}):
        offset, text = log.kept(OVER, stream).get(0, (0, ""))
        log.keep(OVER, {(stream, 0): (offset, with_over(text, run))})
    for group in groups:
        log.forget(group)


def lane(log: AppendClient, stream: str, attempt: Attempt, columns: Sequence[str]) -> Lane:
    """Begins to write to a stream."""
    # In this order: whoever keeps an intent after this look begins to write after it, too.
    ends = log.latest_offsets(stream)
    kept = log.kept(attempt.group, stream)
    intent = load({place: text for place, (_, text) in kept.items()})
    if intent is None and attempt.is_new:  # after the look for intents, as they go after the name
        refuse_over(log.kept(OVER, stream).get(0, (0, ""))[1], attempt)
    begun = begin(intent, attempt, time_ns() // 1_000_000, log.producer_id)
    if begun.is_repeated or (kept and not attempt.is_first):
        # Not this one's intent, perhaps, where one that was late has kept an older one over it.
        starts = {place: kept[place][0] if place in kept else 0 for place in ends}
    else:
        starts = ends
    if not begun.is_repeated:
        text = begun.intent.dump()
        log.keep(attempt.group, {(stream, place): (at, text) for place, at in starts.items()})
    if begun.is_trusted:
        return Lane(log, stream, begun, len(ends))
    return CarefulLane(log, stream, begun, starts, columns)


class Lane:
    """The rows of an attempt for one stream: batch by batch, each when the last is durable."""

    def __init__(self, log: AppendClient, stream: str, begun: Begun, partitions: int) -> None:
        self._log = log
        self._stream = stream
        self._intent = begun.intent
        self._partitions = partitions
        self._last = dict.fromkeys(range(partitions), -1)
        self._spread = RecordSpread(
            partitions, job_limits.SPARK_SINK_BATCH_BYTES, job_limits.SPARK_SINK_BATCH_BYTES_MAX
        )

    def push(self, rows: pa.RecordBatch) -> None:
        """Takes rows, and sends what makes full batches.

        Raises:
            WriteError: a row cannot be a record, or another attempt writes.
        """
        columns, places = records(rows, self._intent.at_ms)
        try:
            self._spread.push(columns, places)
        except ValueError as error:
            raise WriteError(
                f"a row names a partition that {self._stream} has not: {error}; there are 0 to "
                f"{self._partitions - 1}"
            ) from None
        while full := self._spread.full():
            self._send(full)

    def finish(self) -> None:
        """Sends the rest.

        Raises:
            WriteError: another attempt writes.
        """
        while held := self._spread.held():
            self._send(held, is_last=True)

    def _send(self, places: Sequence[int], *, is_last: bool = False) -> None:
        taken = {at: self._spread.take(at, self._producer(at)) for at in places}
        done = self._log.append(self._stream, {at: batch for at, (_, batch) in taken.items()})
        for at, (count, batch) in taken.items():
            offset = done[at]
            # Who repeats the task sends odd numbers of records, and all that is left at the end:
            # no other range of sequences can be that of another attempt.
            is_sure = count % 2 == 0 or is_last
            if offset is None or not (is_sure or self._holds(at, offset, batch)):
                raise WriteError(
                    f"{self._stream}/{at}: another attempt of this task writes "
                    f"(producer {self._intent.producer}, epoch {self._intent.epoch})"
                )
            self._last[at] += count

    def _holds(self, place: int, offset: int, batch: bytes) -> bool:
        """Whether what stands there is what was sent."""
        wanted = decode_records(batch, 0, 2**62, 2**31)
        end = offset + wanted.records
        data = self._log.fetch(self._stream, place, offset, len(batch), 0)
        return decode_records(data, offset, end, 2**31).digests() == wanted.digests()

    def _producer(self, place: int) -> tuple[int, int, int]:
        return self._intent.producer, self._intent.epoch, self._last[place] + 1


class _Row(NamedTuple):
    """A record to be written: as `build_batch` takes it, and what it is told by."""

    record: tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]
    digest: bytes


class CarefulLane(Lane):
    """As `Lane`, where another attempt has written, or may be about to."""

    def __init__(
        self,
        log: AppendClient,
        stream: str,
        begun: Begun,
        starts: dict[int, int],
        columns: Sequence[str],
    ) -> None:
        super().__init__(log, stream, begun, len(starts))
        ends = log.latest_offsets(stream)
        # A log that ends before has been created anew, and what it has may be of this task.
        self._next = {place: at if at <= ends[place] else 0 for place, at in starts.items()}
        self._is_timed = "timestamp" in columns
        self._is_placed = "partition" in columns
        self._stored: Counter[tuple[bytes, int, int]] = Counter()
        for place in starts:
            self._learn(place, ends[place])

    def finish(self) -> None:
        """Sends the rest.

        Raises:
            WriteError: another attempt writes.
        """
        super().finish()
        if strange := self._stored.total():
            _LOG.warning(
                "%s: an earlier attempt wrote %d records of micro-batch %d that this one has not: "
                "its rows, or the number of its tasks, are not the same each time, so rows may be "
                "there twice",
                self._stream, strange, self._intent.batch,
            )  # fmt: skip

    def _send(self, places: Sequence[int], *, is_last: bool = False) -> None:
        del is_last
        for place in places:
            _, batch = self._spread.take(place, (-1, -1, -1))
            columns = decode_records(batch, 0, 2**62, 2**31)
            self._settle(
                place,
                [
                    _Row((key, value, headers, time), digest)
                    for (_, time, key, value, headers), digest in zip(
                        columns.rows(), columns.digests(), strict=True
                    )
                ],
            )

    def _settle(self, place: int, rows: list[_Row]) -> None:
        """Sends rows until the log says that they are there.

        Raises:
            WriteError: it does not come to say so.
        """
        silent_since = monotonic()
        while rows := [row for row in rows if not self._is_stored(place, row)]:
            part = rows[: len(rows) - (len(rows) % 2 == 0)]
            producer = self._producer(place)
            batch = build_batch([row.record for row in part], producer=producer)
            offset = self._log.append(self._stream, {place: batch})[place]
            if offset is None:
                self._learn(place, self._log.latest_offsets(self._stream)[place], is_awaited=True)
            else:
                self._learn(place, offset + len(part))
            if self._producer(place) != producer:
                silent_since = monotonic()
            elif monotonic() - silent_since > job_limits.SPARK_SILENCE_SECONDS_MAX:
                raise WriteError(
                    f"{self._stream}/{place} takes nothing more of micro-batch "
                    f"{self._intent.batch}: a later one has begun, or retention has taken what was "
                    "written of it before it could be repeated; start with an empty checkpoint"
                )

    def _is_stored(self, place: int, row: _Row) -> bool:
        """Whether the row is in the log; then it counts for this one, and for no other."""
        key = self._key(place, row.record[3], row.digest)
        if not self._stored[key]:
            return False
        self._stored[key] -= 1
        return True

    def _key(self, place: int, time_ms: int, digest: bytes) -> tuple[bytes, int, int]:
        return digest, time_ms if self._is_timed else 0, place if self._is_placed else 0

    def _learn(self, place: int, end: int, *, is_awaited: bool = False) -> None:
        """Reads on to `end`; where more is awaited, waits a little for it there.

        Raises:
            WriteError: what lies before `end` does not come.
        """
        silent_since = monotonic()
        while self._next[place] < end or is_awaited:
            wait_ms = job_limits.SPARK_SINK_LOOK_MS
            try:
                data = self._log.fetch(
                    self._stream, place, self._next[place], job_limits.SPARK_FETCH_BYTES, wait_ms
                )
            except OffsetOutOfRangeError:  # retention has been here
                self._next[place] = self._log.earliest_offsets(self._stream)[place]
                continue
            is_awaited = False
            if self._take(place, data):
                silent_since = monotonic()
            elif monotonic() - silent_since > job_limits.SPARK_SILENCE_SECONDS_MAX:
                raise WriteError(
                    f"{self._stream}/{place} ends at {end}, and record {self._next[place]} does "
                    "not come; was the stream created anew?"
                )

    def _take(self, place: int, data: bytes) -> bool:
        """Takes note of the batches of this task. Whether there was any batch at all."""
        mine = (self._intent.producer, self._intent.epoch)
        batches, size = batch_headers(data)
        if not batches:
            return False
        ends = [position for position, *_ in batches[1:]] + [size]
        for (position, first, last, _, _, _, (*producer, sequence), *_), stop in zip(
            batches, ends, strict=True
        ):
            if first >= self._next[place] and tuple(producer) == mine:
                if data[position + _ATTRIBUTES_AT] & _APPEND_TIME:
                    self._is_timed = False
                columns = decode_records(data[position:stop], first, last + 1, 0)
                for row, digest in zip(columns.rows(), columns.digests(), strict=True):
                    self._stored[self._key(place, row[1], digest)] += 1
                self._last[place] = sequence + last - first
            self._next[place] = max(self._next[place], last + 1)
        return True
