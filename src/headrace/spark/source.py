"""`format("headrace")`: the data source, and the Spark side of reading, batch and streaming.

Thin: options are parsed in `options`, offsets decided in `offsets`, records read in `read`. Owns
what Spark's contract asks for and does not say: offsets have one spelling; Spark checks no
direction; `initialOffset` is asked twice; after a crash `partitions` is called with no
`latestOffset` before it; the reader that plans and the one that reads are different copies.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from headrace import job_limits
from headrace.client import ClientError, UnknownStreamError
from headrace.spark import offsets as off
from headrace.spark import sink
from headrace.spark.errors import DataLossError, OffsetError, OptionError
from headrace.spark.filters import Wanted, wanted
from headrace.spark.options import EARLIEST, LATEST, Options, parse, parse_write, payload_of
from headrace.spark.payload import check_schema, decoder, default_schema, is_ordered
from headrace.spark.read import client, lost, read, rows_per_record
from headrace.spark.session import core_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter, Filter
    from pyspark.sql.types import StructType

    from headrace.client import FetchClient
    from headrace.spark.offsets import Offsets, Range
    from headrace.spark.options import Named, PartitionOffsets
    from headrace.spark.payload import Decode

_LOG: Final = logging.getLogger(__name__)


class HeadraceDataSource(DataSource):
    """Streams of a headrace broker, or topics of Apache Kafka, as rows."""

    @classmethod
    def name(cls) -> str:
        """The name in `format(...)`."""
        return "headrace"

    def schema(self) -> StructType:
        """The columns of the payload; of `raw`: those of Spark's Kafka source."""
        return default_schema(payload_of(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read."""
        options = parse(self.options, "batch")
        check_schema(options.payload, schema)
        return (FilteredReader if options.push_filters else BatchReader)(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """A streaming read."""
        options = parse(self.options, "streaming")
        check_schema(options.payload, schema)
        return StreamReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A batch write."""
        options = parse_write(self.options)
        sink.check(options, schema, overwrite=overwrite)
        return sink.BatchWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """A streaming write."""
        options = parse_write(self.options)
        sink.check(options, schema, overwrite=overwrite)
        return sink.StreamWriter(options)


@dataclass
class Task(InputPartition):
    """What one Spark task reads."""

    ranges: tuple[Range, ...]

    def __init__(self, ranges: tuple[Range, ...]) -> None:
        super().__init__(None)
        self.ranges = ranges


class BatchReader(DataSourceReader):
    """Everything between two sets of offsets, fixed when the query is planned."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._wanted = Wanted()

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks."""
        reader = _client(self._options)
        names = _names(reader, self._options)
        start = _resolve(reader, names, self._options.starting, self._options.starting_ms)
        end = _resolve(reader, names, self._options.ending, self._options.ending_ms)
        start, end = self._narrowed(reader, start, end)
        # For no task at all Spark makes up one of its own, which names no ranges.
        return _tasks(reader, start, end, self._options) or [Task(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Runs on an executor."""
        return _read(self._options, self._schema, partition)

    def _narrowed(
        self, reader: FetchClient, start: Offsets, end: Offsets
    ) -> tuple[Offsets, Offsets]:
        """What the filters leave of it. Nothing is between a start and an end before it."""
        since_ms, is_whole = self._wanted.since_ms, is_ordered(self._options.payload)
        begins: Offsets = {}
        ends: Offsets = {}
        for stream, by in end.items():
            # One that was added between the two looks is none of what this frame reads.
            places = [p for p in by if p in start[stream] and self._wanted.may_be_in(stream, p)]
            times: dict[int, int | None] = dict.fromkeys(places, 0)
            if since_ms is not None and places and not is_whole:
                times = reader.offsets_for_time(stream, since_ms)
            for p in places:
                first, last = start[stream][p], by[p]
                if not is_whole:  # rows depend on those before them
                    first, last = self._wanted.clip(first, last)
                at = times.get(p, first)
                first = last if at is None else max(first, at)
                begins.setdefault(stream, {})[p] = first
                ends.setdefault(stream, {})[p] = max(first, last)
        return begins, ends


class FilteredReader(BatchReader):
    """As `BatchReader`, of what the query's filters leave.

    A class of its own, for Spark keeps what the filters of one query left, and hands it to the
    next that uses the same frame (ADR 0070): who reads must ask for it. Where
    `spark.sql.python.filterPushdown.enabled` is off, Spark refuses a reader that takes filters.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Takes note of them; Spark evaluates them all the same."""
        self._wanted = wanted(filters)
        return filters


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming read from offsets that Spark keeps in its checkpoint."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._initial: Offsets | None = None
        self._target: Offsets | None = None
        self._latest: Offsets | None = None
        self._published: Offsets | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a new query starts. Spark asks twice and must hear the same."""
        if self._initial is None:
            reader = _client(self._options)
            names = _names(reader, self._options)
            self._initial = _resolve(
                reader, names, self._options.starting, self._options.starting_ms
            )
        return off.dump(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """`maxOffsetsPerTrigger`."""
        most = self._options.max_offsets
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fixes where an `availableNow` run ends."""
        self._target = self._ends()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Where the next micro-batch ends.

        Raises:
            OffsetError: a log is shorter than what was read of it, or gone.
        """
        begin = off.load(start)
        # Spark plans a batch only when the one before is done: all before `start` is processed.
        self._publish(begin)
        end = off.advance(begin, self._ends())
        if self._target is not None:
            end = off.clip(begin, end, self._target)
        if isinstance(limit, ReadMaxRows):
            end = self._thinned(begin, off.admit(begin, end, limit.max_rows))
        return off.dump(end)

    def _thinned(self, begin: Offsets, end: Offsets) -> Offsets:
        """Fewer records, where they hold so many readings that tasks would want too much memory."""
        parts = off.ranges(begin, end)
        records, options = sum(map(len, parts)), self._options
        if not is_ordered(options.payload) or records < job_limits.SPARK_SAMPLED_RECORDS_MIN:
            return end

        def decoders(stream: str, partition: int) -> Decode:
            return decoder(options.payload, self._schema, stream, partition)

        rows = sum(
            len(part) * rows_per_record(options.servers, part, decoders, login=options.login)
            for part in parts
        )
        most = job_limits.SPARK_READINGS_MAX
        return end if rows <= most else off.admit(begin, end, max(1, int(records * most / rows)))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The ends of the logs as last seen: progress shows the lag by them."""
        return None if self._latest is None else off.dump(self._latest)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of one micro-batch, from the offsets alone."""
        return _tasks(
            _client(self._options),
            off.load(start),
            off.load(end),
            self._options,
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Runs on an executor, in a copy of this reader."""
        return _read(self._options, self._schema, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: the checkpoint holds the offsets, and `latestOffset` publishes them."""

    def _ends(self) -> Offsets:
        reader = _client(self._options)
        names = _names(reader, self._options)
        try:
            self._latest = {name: reader.latest_offsets(name) for name in names}
        except UnknownStreamError as error:
            raise OffsetError(
                f"{error}; a query that has read of it before needs a new checkpoint then"
            ) from None  # of two of ours, `explain` tells the first
        return self._latest

    def _publish(self, done: Offsets) -> None:
        """Tells the group how far the query is.

        The checkpoint is the truth, the group only shows it: that it cannot be told must not stop
        the query.
        """
        group = self._options.group
        if group is None or done == self._published:
            return
        flat = {(s, p): offset for s, by in done.items() for p, offset in by.items()}
        try:
            _client(self._options).commit_offsets(group, flat)
            self._published = done
        except ClientError as error:
            _LOG.warning("group %s does not show the progress: %s", group, error)


def _client(options: Options) -> FetchClient:
    return client(options.servers, options.login)


def _names(reader: FetchClient, options: Options) -> tuple[str, ...]:
    if options.pattern is None:
        return options.streams
    return tuple(reader.streams(options.pattern))


def _resolve(
    reader: FetchClient,
    names: tuple[str, ...],
    wanted: Named | PartitionOffsets,
    timestamp_ms: int | None,
) -> Offsets:
    """Offsets of each partition of `names`.

    Raises:
        OptionError: explicit offsets leave out a partition, name one that does not exist, or lie
            beyond an end.
    """
    resolved: Offsets = {}
    for name in names:
        if timestamp_ms is not None:
            latest = reader.latest_offsets(name)
            found = reader.offsets_for_time(name, timestamp_ms)
            # Where all records are older, there is nothing from that time on.
            resolved[name] = {
                p: latest[p] if at is None else at for p, at in found.items() if p in latest
            }
        elif wanted == "earliest":
            resolved[name] = reader.earliest_offsets(name)
        elif wanted == "latest":
            resolved[name] = reader.latest_offsets(name)
        else:
            resolved[name] = _explicit(reader, name, wanted.get(name, {}))
    if not isinstance(wanted, str) and (extra := set(wanted) - set(names)):
        raise OptionError(f"offsets are given for {sorted(extra)}, which are not read")
    return resolved


def _explicit(reader: FetchClient, name: str, given: dict[int, int]) -> dict[int, int]:
    earliest, latest = reader.earliest_offsets(name), reader.latest_offsets(name)
    if given.keys() != latest.keys():
        raise OptionError(
            f"offsets of {name} must be given for its partitions {sorted(latest)}; "
            f"given: {sorted(given)}"
        )
    for p, offset in given.items():
        if offset > latest[p]:
            raise OptionError(
                f"offset {offset} of {name}/{p} is beyond its end, which is {latest[p]}"
            )
    special = {EARLIEST: earliest, LATEST: latest}
    # A partition that was added between the two looks begins at 0.
    return {
        p: special[offset].get(p, 0) if offset in special else offset for p, offset in given.items()
    }


def _tasks(reader: FetchClient, start: Offsets, end: Offsets, options: Options) -> list[Task]:
    """Divides what lies between `start` and `end`; what retention took is left out or refused.

    It is divided by the offsets alone, so that a micro-batch that is repeated has the same rows in
    the same tasks, but for those that are gone by then.

    Raises:
        DataLossError: records are gone and `failOnDataLoss` is set.
    """
    wanted = off.ranges(start, end)
    kept = {stream: reader.earliest_offsets(stream) for stream in {part.stream for part in wanted}}
    for part in wanted:
        first = kept[part.stream].get(part.partition, part.start)
        if first > part.start:
            if options.fail_on_data_loss:
                raise DataLossError(lost(part, part.start, first))
            gone = min(first, part.end) - 1
            _LOG.warning("%s: records %d to %d are gone and left out", part, part.start, gone)
    most = options.max_tasks or max(core_count(), options.min_partitions or 1)
    least, whole = options.min_partitions, is_ordered(options.payload)
    tasks = off.plan(wanted, most, least, whole=whole)
    return [Task(ranges) for ranges in off.left(tasks, kept)]


def _read(
    options: Options, schema: StructType, partition: InputPartition
) -> Iterator[pa.RecordBatch]:
    assert isinstance(partition, Task)
    return read(
        options.servers,
        partition.ranges,
        lambda stream, number: decoder(options.payload, schema, stream, number),
        login=options.login,
        fail_on_data_loss=options.fail_on_data_loss,
    )
