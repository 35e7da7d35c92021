"""Types of the compiled module. `make test` compares this file with the module (stubtest).

Times are `mono_ms` (milliseconds on a monotonic clock) and `wall_ms` (milliseconds since
1970-01-01T00:00:00Z), always passed in: nothing native reads a clock.
"""

import asyncio
from collections.abc import Callable, Generator, Mapping, Sequence
from contextvars import Context
from typing import (
    Any,
    ClassVar,
    Final,
    Generic,
    Literal,
    Self,
    TypeAlias,
    TypedDict,
    TypeVar,
    Unpack,
    final,
    type_check_only,
)

import typing_extensions

_T = TypeVar("_T")

_DecodedColumn: TypeAlias = tuple[Buffer | None, list[Buffer]]
"""Validity bitmap where a row is null, and the buffers of its Arrow layout."""

__all__ = [
    "AccessRules",
    "Anomaly",
    "Appended",
    "BatchBuilder",
    "BatchSummary",
    "Buffer",
    "Compaction",
    "Completion",
    "ConnectRequest",
    "ConnectionReport",
    "CorruptRecordError",
    "Delivery",
    "Effects",
    "Folder",
    "FrameIntake",
    "FrameOutflow",
    "HeadraceError",
    "History",
    "InvalidRecordError",
    "Kernel",
    "LogSettings",
    "MqttLoad",
    "MqttRelay",
    "NativeError",
    "OutOfOrderSequenceError",
    "Payloads",
    "Principal",
    "QueueGroup",
    "QueueMessage",
    "ReadEnd",
    "ReadingDecoder",
    "RecordColumns",
    "RecordJudge",
    "RecordSpread",
    "RecordsTooLargeError",
    "Recovery",
    "RetainedMessage",
    "RowDecoder",
    "Segment",
    "SessionReport",
    "SessionSummary",
    "SimulatedRun",
    "StaleProducerEpochError",
    "StorageCorruptError",
    "StorageError",
    "StorageFullError",
    "StorageLimitError",
    "Store",
    "StreamPiece",
    "StreamRequest",
    "Switchboard",
    "TakenFrames",
    "TraceLine",
    "UnsupportedRecordError",
    "WillReport",
    "__version__",
    "batch_headers",
    "build_batch",
    "build_frame",
    "decode_records",
    "faults",
    "murmur2",
    "payload",
    "recode_batches",
    "simulate",
    "unpack_batches",
    "validate_batches",
    "value_of",
]

__version__: Final[str]

# --- errors (crates/headrace-py/src/errors.rs; Python classes in headrace.errors) -------------

class HeadraceError(Exception):
    """Base of what headrace raises.

    Attributes:
        http_status: what the HTTP door answers.
        kafka_code: what the Kafka door answers.
        retriable: whether the same request may succeed later.
    """

    http_status: ClassVar[int]
    kafka_code: int
    retriable: bool

class NativeError(HeadraceError):
    """Base of what the compiled module raises."""

class CorruptRecordError(NativeError):
    """A record batch failed its CRC or its length (Kafka error 2)."""

class InvalidRecordError(CorruptRecordError):
    """A record batch is whole and says what none may say (Kafka error 87)."""

class UnsupportedRecordError(NativeError):
    """A record batch has a magic other than 2, or an unknown codec (Kafka error 76)."""

class RecordsTooLargeError(NativeError):
    """The records of a batch decompress to more than the bound (Kafka error 10)."""

class StorageError(NativeError):
    """The disk refused; the node writes no more. The message names file and remedy."""

class StorageCorruptError(StorageError):
    """Damage below the durable point: file, position and remedy are in the message."""

class StorageFullError(StorageError):
    """The disk is nearly full: nothing is stored until there is room, and all else goes on."""

class StorageLimitError(StorageError):
    """The log engine holds as many logs as it can; all else goes on."""

class OutOfOrderSequenceError(NativeError):
    """An idempotent producer skipped a sequence (Kafka error 45)."""

class StaleProducerEpochError(NativeError):
    """A newer epoch of this producer id has written (Kafka error 47)."""

# --- record batches (headrace-core::record) --------------------------------------------------

@final
class BatchSummary:
    """What a run of validated record batches holds."""

    @property
    def records(self) -> int: ...
    @property
    def batches(self) -> int: ...
    @property
    def max_timestamp(self) -> int:
        """Milliseconds; -1 without a batch."""
    @property
    def control(self) -> bool:
        """A batch holds control records; a client must not send such."""
    @property
    def transactional(self) -> bool:
        """A batch belongs to a transaction."""
    @property
    def log_append_time(self) -> bool:
        """A batch has the times of its append, which only a broker gives."""
    @property
    def delete_horizon(self) -> bool:
        """A batch has been compacted, which only a broker does."""
    @property
    def keyless(self) -> bool:
        """A record has no key; one that was not opened counts for none."""
    @property
    def misdated(self) -> bool:
        """A header does not tell the greatest timestamp of its records (opened ones count)."""
    @property
    def record_bytes(self) -> int:
        """Of the largest record, decompressed; those that were not opened do not count."""
    @property
    def record_headers(self) -> int:
        """Of the record that has the most; those that were not opened do not count."""

def validate_batches(
    data: bytes, open_compressed: bool = True, bytes_max: int = 134217728
) -> BatchSummary:
    """Checks each batch in `data`: length, magic 2, CRC-32C, attributes, record count, and each
    record with its offset. Records of compressed batches are checked where `open_compressed`,
    else they pass unseen. No data holds no batch, which is valid. Releases the GIL.

    Raises:
        CorruptRecordError: a CRC or a length is wrong.
        InvalidRecordError: attributes, a count, a producer or a record are wrong, or what is
            compressed.
        UnsupportedRecordError: magic is not 2 or the codec is unknown.
        RecordsTooLargeError: a batch decompresses to more than `bytes_max`.
    """

def recode_batches(data: bytes, codec: str) -> bytes:
    """The batches with their records compressed by `codec`, and their headers with the greatest
    timestamp of those; all else of them stays. Releases the GIL.

    Raises:
        ValueError: the codec is unknown.
        CorruptRecordError, UnsupportedRecordError, RecordsTooLargeError: as `validate_batches`.
    """

@final
class StreamPiece:
    """Records on their way to subscribers."""

    def __new__(cls, batches: bytes) -> StreamPiece: ...
    def __len__(self) -> int: ...

def unpack_batches(
    batches: bytes, offset: int, bytes_max: int, batch_bytes_max: int, record_bytes_max: int
) -> StreamPiece | None:
    """What batches hold from an offset on, decompressed: some `bytes_max` bytes, and a record at
    least. None where the first batch has more than `batch_bytes_max` bytes, compressed or not.
    Records of more than `record_bytes_max`, or with more than 65,535 headers, are left out. What is
    damaged is left as it is. Releases the GIL.
    """

def build_batch(
    records: Sequence[tuple[bytes | None, bytes | None, Sequence[tuple[str, bytes | None]], int]],
    codec: str = "none",
    *,
    published: bool = False,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    """One record batch v2 (base offset 0) of `(key, value, headers, timestamp ms)` records.

    For producers, control paths, tests and tools; publishes are built into batches by the
    switchboard. Releases the GIL while it compresses.
    `codec` is one of none, gzip, snappy, lz4, zstd. `published` is for what MQTT clients have sent:
    only in such a batch do headers name a source of messages. `producer` is its id, its epoch and
    the sequence of the first record; -1 each for one whose repeats are not told.

    Raises:
        ValueError: the codec is another, or there is no record.
    """

@final
class BatchBuilder:
    """Records to be sent together, encoded as they come: no object is kept for any of them."""

    def __new__(cls) -> Self: ...
    def __len__(self) -> int: ...
    @property
    def size_bytes(self) -> int:
        """Of the batch so far, not compressed."""
    def push(
        self,
        owner: object,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
        timestamp: int,
    ) -> Delivery[Any]:
        """Adds a record (`timestamp` in ms), and gives what stands for it: a delivery of `owner`
        with the number that the record has here."""
    def encode(self, codec: str, producer: tuple[int, int, int]) -> bytes:
        """The record batch, as `build_batch` makes it; as often as it must be sent.

        Raises:
            ValueError: the codec is none, or there is no record.
        """
    def timestamps(self) -> Buffer:
        """int64 of the machine's order, ms, one per record."""
    def split(self, at: int) -> BatchBuilder:
        """Keeps the records before `at`; the others."""

@final
class Delivery(Generic[_T]):
    """A record on its way: an awaitable that knows the calls of `asyncio.Future`, and works where
    one does (`gather`, `wait`, `shield`).

    All is asked of its `owner`, by number: `done`, `result`, `exception`, `cancelled`, `future`,
    `call_back`, `call_not_back`, `loop`. The garbage collector need not look at it.
    """

    _asyncio_future_blocking: Final[bool]

    def done(self) -> bool: ...
    def result(self) -> _T: ...
    def exception(self) -> BaseException | None: ...
    def cancelled(self) -> bool: ...
    def cancel(self, msg: object | None = None) -> bool: ...
    def add_done_callback(
        self, callback: Callable[[Self], object], *, context: Context | None = None
    ) -> None: ...
    def remove_done_callback(self, callback: Callable[[Self], object]) -> int: ...
    def get_loop(self) -> asyncio.AbstractEventLoop: ...
    def __await__(self) -> Generator[Any, None, _T]: ...
    def __iter__(self) -> Generator[Any, None, _T]: ...

@final
class Buffer(typing_extensions.Buffer):
    """Bytes that the compiled module owns; `memoryview` and `pyarrow.py_buffer` read in place."""

    def __len__(self) -> int: ...

@final
class RecordColumns:
    """Decoded records as Arrow buffers, ready for `pyarrow.Array.from_buffers`.

    Binary columns are `(validity bitmap | None, int32 offsets, data)`; a null value has a clear
    bit. `headers` is a list column: `header_lists` are its int32 offsets into the flattened
    `header_keys` (utf8) and `header_values` (binary). Nothing is copied on the way to Arrow.
    """

    @property
    def records(self) -> int: ...
    @property
    def next_offset(self) -> int:
        """Where to read on: after the last whole batch read, control and filtered records
        included; `end` where a batch beyond it was seen; `start` where no whole batch was."""
    @property
    def offsets(self) -> Buffer:
        """int64 little-endian, one per record."""
    @property
    def timestamps_us(self) -> Buffer:
        """int64 little-endian microseconds since the epoch, one per record."""
    @property
    def keys(self) -> tuple[Buffer | None, Buffer, Buffer]: ...
    @property
    def values(self) -> tuple[Buffer | None, Buffer, Buffer]: ...
    @property
    def header_lists(self) -> Buffer: ...
    @property
    def header_keys(self) -> tuple[Buffer | None, Buffer, Buffer]: ...
    @property
    def header_values(self) -> tuple[Buffer | None, Buffer, Buffer]: ...
    @staticmethod
    def of(
        timestamps_us: bytes,
        keys: tuple[bytes | None, bytes, bytes],
        values: tuple[bytes | None, bytes, bytes],
        header_lists: bytes,
        header_keys: tuple[bytes | None, bytes, bytes],
        header_values: tuple[bytes | None, bytes, bytes],
    ) -> RecordColumns:
        """Records that are to be sent; their offsets count from 0. The buffers are copied.

        Raises:
            ValueError: a column is not whole.
        """
    def digests(self) -> list[bytes]:
        """16 bytes for each record that tell it apart by key, value and headers."""
    def rows(
        self, start: int = 0, stop: int = ...
    ) -> list[tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]:
        """`(offset, timestamp ms, key, value, headers)` of records `start` to before `stop`, as
        Python objects."""

def decode_records(data: bytes, start: int, end: int, max_records: int) -> RecordColumns:
    """Decodes whole batches of `data`; keeps offsets in `[start, end)`. Stops before the batch
    that would bring more than `max_records` or 256 MiB, but decodes at least one. A cut-off batch
    at the end is ignored, control batches give no records. Every codec is read. Releases the GIL.

    Raises:
        CorruptRecordError: a CRC or a layout is wrong; the message names the base offset.
        UnsupportedRecordError: magic is not 2 or the codec is unknown.
        RecordsTooLargeError: a batch decompresses to more than 128 MiB.
    """

@final
class ReadingDecoder:
    """Reads the GPU telemetry of one partition, record by record in their order.

    Args:
        fields: canonical name, id, unit, whether a counter, whether an INT64, least and greatest
            value of each field.
        names: names and aliases, each with the place of its field.
        future_us: an event time further after its collection than this is in the future; None: no
            time is. With it, none counts as newer than the timestamp of its record.
        newest_us: newest event time of a usable reading before the first record.

    Raises:
        ValueError: a name has no field.
    """

    def __new__(
        cls,
        fields: Sequence[tuple[str, int | None, str, bool, bool, float, float]],
        names: Sequence[tuple[str, int]],
        *,
        future_us: int | None,
        newest_us: int | None,
    ) -> Self: ...
    def read(
        self, records: RecordColumns, start: int, rows_max: int
    ) -> tuple[
        int,
        int,
        list[tuple[str, tuple[Buffer | None, list[Buffer]]]],
        list[tuple[Buffer | None, list[Buffer]]],
    ]:
        """Readings of the records from `start` on, until there are `rows_max` or 128 MiB of them.

        How many there are, the record to go on with, their columns by name, and of their labels
        the lists, names and values. Releases the GIL.
        """

@final
class RowDecoder:
    """Reads JSON objects or CSV lines, one row for each record.

    Args:
        format: `json` or `csv`.
        schema: names and kinds of the columns: `string`, `boolean`, `int`, `bigint`, `double` or
            `timestamp`.

    Raises:
        ValueError: there is no such format or kind.
    """

    def __new__(cls, format: str, schema: Sequence[tuple[str, str]]) -> Self: ...  # noqa: A002
    def read(self, records: RecordColumns) -> tuple[list[_DecodedColumn], _DecodedColumn]:
        """A column for each of the schema, and which rows are corrupt. Releases the GIL."""

@final
class RecordSpread:
    """Records on their way to the partitions of a stream, in batches.

    Args:
        partitions: of the stream, > 0.
        bytes_wanted: size at which a batch is full.
        bytes_max: what a batch may grow to so that it holds an even number of records.

    Raises:
        ValueError: there is no partition.
    """

    def __new__(cls, partitions: int, bytes_wanted: int, bytes_max: int) -> Self: ...
    def push(self, records: RecordColumns, partitions: bytes | None = None) -> None:
        """Adds records. `partitions` has an int32 for each: where it goes, or -1 for where Kafka's
        producers put its key, or, without one, its value. Releases the GIL.

        Raises:
            ValueError: one is no partition, or there are not as many as records.
        """
    def full(self) -> list[int]:
        """Partitions that a batch is full for: of an even number of records, unless they are
        large."""
    def held(self) -> list[int]:
        """Partitions that records are held for."""
    def take(self, partition: int, producer: tuple[int, int, int]) -> tuple[int, bytes]:
        """The next batch of a partition, a full one where there is one: its records, and itself.

        Raises:
            ValueError: nothing is held for it.
        """

def batch_headers(
    data: bytes,
) -> tuple[
    list[tuple[int, int, int, int, int, str, tuple[int, int, int], bool, bool]],
    int,
]:
    """The headers of the whole batches at the front of `data`, and how many bytes they take.

    Position, base offset, last offset, records, greatest timestamp (ms), codec, producer (id,
    epoch, sequence; -1 each without), whether it is a control batch, whether its CRC is right.
    """

def murmur2(key: bytes) -> int:
    """Kafka's murmur2 of `key` as an unsigned 32-bit integer; Kafka's default partitioner
    takes `(murmur2(key) & 0x7FFFFFFF) % partitions`."""

# --- message frames (headrace-core::frame) -----------------------------------------------------

@final
class TakenFrames:
    """What one read of a producer of frames has brought."""

    @property
    def frames(self) -> int:
        """Whole and right ones, in all batches."""
    @property
    def batches(self) -> list[tuple[int, bytes]]:
        """`(partition, record batch v2)`, in the order in which they are to be appended; made anew
        at each call."""
    @property
    def fault(self) -> tuple[str, int, str] | None:
        """What is wrong with the frame behind those taken: a word for counters, an error code of
        Kafka's, one line. Nothing more is to be given then."""
    def acknowledge(self, bases: Sequence[int | None]) -> tuple[bytes, int]:
        """Acknowledgements, 16 bytes each: `frames u32, partition i32, offset i64` of the first, in
        the order of the frames, up to the first whose batch has no base offset; and how many
        frames that are. `bases` has one for each batch."""

@final
class FrameIntake:
    """One producer's frames on their way in. Keeps what is not whole.

    Frames with a key go where Kafka's default partitioner puts it, those without to partition
    `turn` modulo the number of partitions, and with each read that has such to the next.
    """

    def __new__(cls, turn: int = 0) -> FrameIntake: ...
    @property
    def kept_bytes(self) -> int:
        """Of a frame that is not whole."""
    def receive(
        self,
        data: bytes,
        *,
        partitions: int,
        partition: int | None,
        message_bytes_max: int,
        needs_key: bool,
        codec: str,
        wall_ms: int,
    ) -> TakenFrames:
        """Takes what was read. `partition` is where all frames go, or None; `message_bytes_max`
        bounds each batch; frames with the timestamps 0 and -1 get `wall_ms`; `codec` as
        `build_batch`.

        Raises:
            ValueError: there is no such codec or partition.
        """

@final
class FrameOutflow:
    """Stored batches on their way to one consumer, from an offset on.

    Each record is `offset i64` and its frame. Control batches and what compaction took are passed
    over, and so is a batch that is cut off at the end.
    """

    def __new__(cls, batches: bytes, offset: int) -> FrameOutflow: ...
    @property
    def next_offset(self) -> int:
        """Behind all that has gone out, or that is nothing to go out."""
    @property
    def frames(self) -> int:
        """That have gone out."""
    @property
    def held_bytes(self) -> int:
        """Batches, and records that are decompressed."""
    @property
    def is_slow(self) -> bool:
        """Whether `write` has to decompress: better beside the loop."""
    def write(self, bytes_max: int) -> bytes:
        """The next frames: some `bytes_max` bytes and at least one frame; empty once all have gone.
        Releases the GIL.

        Raises:
            CorruptRecordError, UnsupportedRecordError, RecordsTooLargeError: a batch is damaged.
            InvalidRecordError: no frame holds a record; the message names its offset.
        """

def build_frame(
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]],
    timestamp: int,
) -> bytes:
    """One message frame; for tests and tools.

    Raises:
        ValueError: a header's name has more than 32,767 bytes.
    """

# --- the store (headrace-core::log, performed by headrace-io) ----------------------------------

@final
class Appended:
    """Where a queued append will stand. Nothing is durable yet; the ticket says when."""

    @property
    def base_offset(self) -> int: ...
    @property
    def duplicate(self) -> bool:
        """True for an exact repeat of an idempotent producer's batch: `base_offset` is the
        first copy's. The ticket still completes, no sooner than that copy is durable."""

@final
class Completion:
    """The end of one append."""

    @property
    def ticket(self) -> int: ...
    @property
    def log(self) -> int: ...
    @property
    def error(self) -> str | None:
        """None: the batch is as durable as its log's `fsync` says. Else why it never will be."""

@final
class ReadEnd:
    """The end of one read that waited for the disk."""

    @property
    def ticket(self) -> int: ...
    def result(self) -> Buffer | tuple[int, int] | None:
        """What `read`, for a ticket of `fetch`, or `offset_for_time`, for one of `seek`, returns.

        Raises:
            ValueError, StorageError: as there.
        """

@final
class Recovery:
    """What opening a data folder found and mended."""

    @property
    def clean(self) -> bool:
        """True after an orderly close: nothing had to be replayed."""
    @property
    def logs(self) -> int: ...
    @property
    def replayed_batches(self) -> int:
        """Batches rewritten into segments from the journal."""
    @property
    def truncated_bytes(self) -> int:
        """Bytes of torn, never acknowledged tails that were cut."""
    @property
    def rebuilt_indexes(self) -> int:
        """Segments whose index files were damaged or lost, and were made anew."""

@final
class LogSettings:
    """How one log is cut into segments, and what its acknowledgements promise.

    Names and defaults are Kafka's, `fsync` apart.
    """

    def __new__(
        cls,
        *,
        segment_bytes: int = 1073741824,
        segment_ms: int = 604800000,
        segment_index_bytes: int = 10485760,
        fsync: Literal["commit", "interval", "os"] = "commit",
        flush_ms: int = 1000,
        producer_expiry_ms: int = 86400000,
    ) -> Self:
        """`segment_bytes`: bytes beyond which a segment is closed. `segment_ms`: the age at which
        it is. `segment_index_bytes`: what each of its indexes may take, 24 bytes at least.

        `fsync`: an append ends once it is synced to the disk (`commit`), or once it is written,
        whereupon it survives the process at once, and a power cut when it is synced: within
        `flush_ms` (`interval`), or when the system or another log brings it about (`os`). What a
        power cut takes is the end of a log, never a part before it.

        `producer_expiry_ms`: silence, by the `wall_ms` of appends, after which an idempotent
        producer is forgotten (`producer.id.expiration.ms`).

        Raises:
            ValueError: `fsync` is another.
        """

@final
class Compaction:
    """What a compaction did."""

    @property
    def read_bytes(self) -> int:
        """Those of the part that was dirty count twice: for its keys, and for its records."""
    @property
    def written_bytes(self) -> int: ...
    @property
    def kept_records(self) -> int: ...
    @property
    def removed_records(self) -> int: ...
    @property
    def clean_to(self) -> int:
        """Offset up to which the log is compacted."""

@final
class Segment:
    """One segment of a log, as it is committed."""

    @property
    def base_offset(self) -> int:
        """Offset of its first record; the log may begin later, inside of it."""
    @property
    def next_offset(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def max_timestamp_ms(self) -> int | None:
        """The greatest timestamp of its batches, as clients chose it; -1 where none has one, None
        where there is no batch."""
    @property
    def created_ms(self) -> int | None:
        """The wall clock when it began; None where a crash has lost it."""
    @property
    def active(self) -> bool:
        """It is the last, to which appends go."""
    @property
    def clean(self) -> bool:
        """All of it was compacted."""
    @property
    def horizon_ms(self) -> int | None:
        """The wall clock from which `compact` may drop the first of its tombstones; None where it
        holds none that a compaction has met."""

@final
class Store:
    """The node's journal and segments, and the native threads that write and read them.

    One store per data folder; a lock file holds a second process off.
    """

    @staticmethod
    def open(
        path: str,
        *,
        journal_bytes: int = 67108864,
        segment_bytes: int = 1073741824,
        index_interval_bytes: int = 4096,
        direct_write_bytes: int = 1048576,
        reserve_bytes: int = 268435456,
    ) -> Store:
        """Locks the folder, recovers, starts the flusher and the keeper thread.

        `journal_bytes` is the size of one journal file (128 KiB at least, rounded up to pages);
        there are two, at times three. A run of batches of one log that reaches
        `direct_write_bytes` in one round, or a quarter of the journal, goes straight to its
        segment. Where the disk has less than `reserve_bytes` left, or less than a journal file,
        appends are refused until there is somewhat more; 0 refuses none.

        Raises:
            ValueError: a size is too small to work with.
            StorageError: the folder cannot be used, or another node holds it (its pid is named).
            StorageCorruptError: damage below the durable point.
        """
    @property
    def recovery(self) -> Recovery: ...
    def notify_fd(self) -> int:
        """An eventfd that is readable while `poll` or `poll_reads` has something; owned by the
        store. It tells also, until the next `poll`, that `failed`, `full` or `leftovers`
        has changed."""
    def check_logs(self, stream: str, first: int, count: int, incarnation: int) -> None:
        """Whether `open_logs` could open these now, for all of them together: inodes, descriptors,
        a place in every checkpoint. Nothing is made.

        Raises:
            StorageLimitError: checkpoints would not fit the journal.
            StorageFullError: too few inodes are left.
            StorageError: too few descriptors are; or another stream's log, or somebody's files,
                are there.
        """
    def open_logs(
        self, stream: str, first: int, count: int, incarnation: int, wall_ms: int
    ) -> list[int]:
        """The handles of the logs of `count` partitions from `first` on; creates their folders
        where needed. `incarnation` differs between a stream and a later one of the same name, so
        that a journal never revives a deleted one. Their active segments age from `wall_ms` where
        nothing tells when they began.

        Raises:
            StorageError: as `check_logs`, but for descriptors; none is opened.
        """
    def open_log(self, stream: str, partition: int, incarnation: int, wall_ms: int) -> int:
        """As `open_logs`, of one."""
    def created(self, stream: str) -> None:
        """Waits until the logs that were opened of a stream are there, and survive power loss.

        Raises:
            StorageError: the disk refused to make one: there is none of them, their handles are
                unknown, what was made of them is gone, and all others go on. Or the store has
                failed.
        """
    def held_logs(self) -> list[tuple[str, int, int, bool]]:
        """Every log that the journal knows, whether opened or not: `(stream, partition,
        incarnation, whether it holds records or has held some)`."""
    def configure(self, log: int, settings: LogSettings) -> None:
        """Takes effect from the next append on; a store that opens again begins with its own
        `segment_bytes` and the defaults.

        Raises:
            ValueError: a setting cannot work, or the log is unknown.
        """
    def delete_stream(self, stream: str) -> None:
        """Removes the stream's folder and forgets its logs (journalled; survives a crash)."""
    def append(self, log: int, batches: bytes, ticket: int, wall_ms: int) -> Appended:
        """Stamps offsets and the epoch into validated batches and queues them; every queued
        append of all logs goes into the next commit round, one fdatasync for all. A segment rolls
        as Kafka's do, where no timestamp counts as later than `wall_ms`.

        Raises:
            StorageError: the store has failed or is closed.
            StorageFullError: the disk is nearly full.
            OutOfOrderSequenceError, StaleProducerEpochError: idempotent producers.
        """
    def lead(self, log: int, epoch: int) -> None:
        """Appends from now on belong to this epoch, which is stamped into each batch. It becomes
        durable with the first of them, and `leader-epoch-checkpoint` then tells where it began.

        Raises:
            ValueError: a later epoch has begun, or the log is unknown.
        """
    def roll(self, log: int, wall_ms: int) -> None:
        """Begins a new segment where the active one has records. It rides the next round: a call
        of `trim` that follows finds it done, or lets the old segment go once it is.

        Raises:
            ValueError: the log is unknown.
            StorageError: the store has failed or is closed.
        """
    def forget_silent(self, log: int, wall_ms: int) -> None:
        """Forgets idempotent producers that have sent nothing for `producer_expiry_ms`, as an
        append does. Cheap where it was done lately.

        Raises:
            ValueError: the log is unknown.
        """
    def trim(self, log: int, offset: int) -> None:
        """Lets the log begin at `offset`, from which readers are refused at once; nothing changes
        where it begins there or later. Durable on return. Segments that hold nothing else go.
        Keep the sources first (`refresh_sources`): who asks for them is refused where what the
        records told of them is nowhere.

        Raises:
            ValueError: `offset` is above the high watermark, or the log is unknown.
            StorageError: the store has failed or is closed.
        """
    def segments(self, log: int) -> list[Segment]:
        """Oldest first; at least the active one.

        Raises:
            ValueError: the log is unknown.
        """
    def submit(self) -> None:
        """Hands what is queued to the flusher thread; it starts as soon as the last round ends."""
    def poll(self) -> list[Completion]:
        """Appends that ended since the last call, in ticket order per log. Never blocks."""
    def read(self, log: int, offset: int, max_bytes: int) -> bytes:
        """Whole committed batches from the one that holds `offset`; at least one where there
        is one, else empty. Waits for the disk, without the GIL.

        Raises:
            ValueError: `offset` is outside `[log start, high watermark]`.
            StorageError: the file cannot be read.
        """
    def fetch(self, log: int, offset: int, max_bytes: int, ticket: int) -> Buffer | None:
        """As `read`, and never waits: None where the disk must bring something. It then does so
        on a native thread, after what was asked for before, and the ticket ends in `poll_reads`.

        Raises:
            ValueError: as `read`.
        """
    def seek(self, log: int, timestamp_ms: int, ticket: int) -> None:
        """As `offset_for_time`, on a native thread; the ticket ends in `poll_reads`.

        Raises:
            ValueError: the log is unknown.
        """
    def cancel_read(self, ticket: int) -> None:
        """Nobody waits for this read any more; it ends nonetheless where it has begun."""
    def poll_reads(self) -> list[ReadEnd]:
        """Reads that ended since the last call. Never blocks. Further ones begin only while less
        than 64 MiB lie here."""
    def bounds(self, log: int) -> tuple[int, int]:
        """`(log start offset, high watermark)`; the watermark is the offset after the last
        durable record."""
    def size_bytes(self, log: int) -> int: ...
    def readable_bytes(self, log: int, offset: int) -> int:
        """What `fetch` from `offset` brings at most, but for a batch larger than asked for. Never
        waits for the disk.

        Raises:
            ValueError: as `read`.
        """
    def offset_for_time(self, log: int, timestamp_ms: int) -> tuple[int, int] | None:
        """`(offset, timestamp)` of the first record whose timestamp is at or after
        `timestamp_ms`, or None. Waits for the disk, without the GIL."""
    def last_sources(self, log: int) -> list[tuple[str, int, int]]:
        """`(source, epoch, sequence)`: the last of each MQTT source in this log, rebuilt when
        the store opened (headers `source`, `epoch`, `sequence` of its records)."""
    def save_sources(self, log: int, sources: list[tuple[str, int, int]]) -> None:
        """Keeps the sources for the next open; called before `close`, so that a clean start
        scans nothing."""
    def refresh_sources(self, log: int, *, around_damage: bool = False) -> None:
        """Keeps the sources as the log tells them, read on from what was kept before, so that the
        next start reads on from here. Waits for the disk, without the GIL.

        Args:
            around_damage: pass over what is damaged; what was sent there is not known then.

        Raises:
            StorageCorruptError: records, or what was kept of some that are gone, are damaged.
        """
    def unkept_bytes(self, log: int) -> int:
        """Bytes of the segments whose sources are not kept, or in part. Waits for no disk."""
    def save_state(self, log: int, offset: int, state: bytes) -> None:
        """Keeps what all records below `offset` come to beside the log, durable on return. What
        was kept before goes, but for the newest of it. Waits for the disk, without the GIL.

        Raises:
            ValueError: `offset` is below 1 or above the high watermark, or the log is unknown.
            StorageError: the disk refused; what was kept before stands.
        """
    def load_state(self, log: int) -> tuple[int, bytes, list[str]]:
        """`(offset, state, why files were ignored)`: the newest state that reads whole and whose
        records the log has; `(0, b"", ...)` without one. Waits for the disk, without the GIL."""
    def compact(
        self,
        log: int,
        *,
        wall_ms: int,
        delete_retention_ms: int,
        min_lag_ms: int,
        span_ms: int | None = None,
        bytes_per_second: int,
    ) -> Compaction:
        """Leaves of each key the last record (Kafka's `cleanup.policy=compact`), in all segments
        but the active one and those from the first on that holds a timestamp within `min_lag_ms`
        of `wall_ms`. Records without a key go. A tombstone goes in the first call that is
        `delete_retention_ms` or more after the call that met it. Offsets stay as they are. Small
        segments are merged, those whose records are more than `span_ms` apart are not.

        Blocks, without the GIL, for as long as it takes to read and write `bytes_per_second` at
        most; the store serves everything meanwhile. One runs at a time, others wait. Up to
        3,670,016 keys are held at once (105 MB); more take more passes. Ends early where the
        stream is deleted or a trim takes what it reads.

        Raises:
            ValueError: `bytes_per_second` is 0, or the log is unknown.
            StorageError: the disk refused (then the log is as it was), or the store was closed.
            StorageCorruptError: a batch is damaged; nothing of its segment was changed.
        """
    def fail(self, reason: str) -> None:
        """Writes nothing more, as after a sync that failed: for one that failed elsewhere."""
    def failed(self) -> str | None:
        """Why the store writes no more, or None."""
    def full(self) -> str | None:
        """Why appends are refused for want of room, or None."""
    def leftovers(self) -> str | None:
        """Which files that nothing needs any more could not be removed, or None. That is tried
        again, each minute and at the next start.
        """
    def statistics(self) -> dict[str, float]:
        """Counters: rounds, journal_bytes, appended_bytes, commit_seconds_sum, and so on."""
    def close(self) -> None:
        """Flushes, syncs segments, marks the folder clean, ends the thread, frees the lock."""

@final
class Folder:
    """The data folder of a stopped node; holds a lock until it is closed.

    `incarnations` tell those of the streams that have a definition. Paths are relative to the
    folder. An offset range `lost` is the first offset and the one after the last.
    """

    @staticmethod
    def open(
        path: str,
        *,
        repairs: bool = False,
        journal_bytes: int = 67108864,
        index_interval_bytes: int = 4096,
    ) -> Folder:
        """Without `repairs` others may look at the folder, too, and nothing in it is changed.

        A new journal has files of `journal_bytes` only where none of the old one is whole.

        Raises:
            ValueError: a size is too small to work with.
            StorageError: it is no data folder, or a node holds it (its pid is named).
        """
    def verify(
        self,
        incarnations: dict[str, int],
        stream: str | None = None,
        partition: int | None = None,
        progress: Callable[[int], object] | None = None,
    ) -> list[tuple[str, str, int, int | None, str, tuple[int, int] | None]]:
        """What is damaged: `(class, path, position, offset, what, lost)`; changes nothing.

        Class `records`: batches cannot be read. `journal`: nobody knows where logs end. `side`: a
        file or a stamp that can be rebuilt. `progress` is told the bytes of each segment.

        Raises:
            StorageError: the disk refused.
        """
    def repair(
        self,
        incarnations: dict[str, int],
        stream: str | None = None,
        partition: int | None = None,
        *,
        drop_damaged: bool = False,
        rebuild_journal: bool = False,
        dry: bool = False,
    ) -> list[tuple[str, str, tuple[int, int] | None, bool]]:
        """What is done, or would be: `(path, what, lost, whether to keep a copy first)`. Logs that
        are not asked for get what a start would give them, which must accept them.

        Raises:
            StorageCorruptError: damage that the arguments do not cover; find out `dry`, which
                changes nothing.
            StorageError: the disk refused.
        """
    def journal(self) -> list[tuple[str, int, int, str]]:
        """Its entries: `(file, position of the round, round, what it says)`."""
    def logs(
        self, incarnations: dict[str, int]
    ) -> list[tuple[str, int, int, int, list[tuple[int, int, str]]]]:
        """`(stream, partition, incarnation, start offset, [(base offset, bytes, file)])`."""
    def snapshots(self, stream: str, partition: int) -> list[tuple[str, list[str] | None]]:
        """Snapshots of producers and MQTT sources: `(file, lines)`, None where it does not
        verify."""
    def close(self) -> None: ...

# --- the data plane of MQTT (headrace-core::switchboard) ---------------------------------------

@final
class ConnectRequest:
    """A client asks to connect, or authenticates. Its further input waits until
    `Switchboard.decided`, but on an open connection."""

    @property
    def request(self) -> int: ...
    @property
    def connection(self) -> int: ...
    @property
    def asks(self) -> str:
        """`connect`; `continue` where its AUTH answers a challenge; `reauthenticate` on an open
        connection. The steps of one exchange have one `connection`."""
    @property
    def client_id(self) -> str: ...
    @property
    def username(self) -> str | None: ...
    @property
    def password(self) -> bytes | None: ...
    @property
    def auth_method(self) -> str | None:
        """Authentication Method (MQTT 5.0 4.12)."""
    @property
    def auth_data(self) -> bytes | None: ...
    @property
    def protocol_level(self) -> int:
        """4 is 3.1.1 (MQTT 3.1 is served as 3.1.1), 5 is 5.0."""

@final
class StreamRequest:
    """A client subscribes to streams. Its further input waits until `Switchboard.placed`."""

    @property
    def request(self) -> int: ...
    @property
    def streams(self) -> list[str]:
        """Names, one for each filter that has one."""
    @property
    def properties(self) -> list[tuple[str, str]]:
        """User properties of the packet."""

@final
class Effects:
    """What the shell must do, in this order: appends, writes, reads, decisions, streams, closes."""

    @property
    def appends(self) -> list[tuple[int, int, bytes, int]]:
        """`(stream, partition, record batch, ticket)`, one per partition."""
    @property
    def writes(self) -> list[tuple[int, bytes | list[bytes]]]:
        """`(connection, bytes)`, one per connection.

        A list has pieces, of which memoryviews are of what others are sent, too.
        """
    @property
    def reads(self) -> list[tuple[int, bool]]:
        """`(connection, True to read on | False to pause)`."""
    @property
    def decisions(self) -> list[ConnectRequest]: ...
    @property
    def streams(self) -> list[StreamRequest]: ...
    @property
    def dead_letters(self) -> list[int]:
        """Streams whose `NAME.dlq` must be created, and told by `set_queue`."""
    @property
    def lost(self) -> list[tuple[int, str, int, int, int, str]]:
        """`(stream, group, partition, offset, count, "damaged" | "too large")`: messages of queues
        that nobody can be given, from an offset on, of one read."""
    @property
    def closes(self) -> list[tuple[int, str]]:
        """`(connection, reason)`, after that connection's writes; the reason is a metric label."""
    @property
    def wake_at(self) -> int | None:
        """`mono_ms` at which `tick` is due, or None."""

@final
class QueueGroup:
    """A group of a queue; the counts are since the node started."""

    @property
    def name(self) -> str: ...
    @property
    def filter(self) -> str | None: ...
    @property
    def consumers(self) -> list[tuple[str, bool, int, int]]:
        """`(client id, connected, open deliveries, prefetch)`."""
    @property
    def partitions(self) -> list[tuple[int, int, int, int, bool, int, int | None]]:
        """`(floor, depth, in flight, resting, blocked, lag, oldest in ms since 1970)`."""
    @property
    def delivered(self) -> int: ...
    @property
    def redelivered(self) -> int: ...
    @property
    def settled(self) -> int: ...
    @property
    def failed(self) -> int: ...
    @property
    def dead(self) -> int: ...
    @property
    def lost(self) -> int:
        """Messages that nobody could be given."""
    @property
    def latency(self) -> list[tuple[int | None, int]]:
        """Upper bounds in milliseconds, ascending, the last None, and first deliveries that had
        waited no longer."""
    @property
    def latency_sum_ms(self) -> int: ...

@final
class QueueMessage:
    """A message of a queue, delivered or looked at."""

    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def attempt(self) -> int:
        """Which delivery this is, from 1; of one that is looked at how many there were."""
    @property
    def topic(self) -> str: ...
    @property
    def payload(self) -> bytes: ...
    @property
    def properties(self) -> list[tuple[str, str]]:
        """User properties, those that say where it lies last."""
    @property
    def content_type(self) -> str | None: ...
    @property
    def response_topic(self) -> str | None: ...
    @property
    def correlation_data(self) -> bytes | None: ...
    @property
    def key(self) -> bytes | None:
        """Of one that is looked at, what its order goes by."""
    @property
    def standing(self) -> str | None:
        """`available`, `in flight`, `resting`, `waiting`, `dead` or `settled`."""
    @property
    def client(self) -> str | None:
        """Who has it in flight, unless it was pulled."""
    @property
    def until_ms(self) -> int | None:
        """When its deadline is, or its rest ends, milliseconds since 1970."""

@final
class RetainedMessage:
    """A retained message."""

    @property
    def topic(self) -> str: ...
    @property
    def payload(self) -> bytes:
        """As much of it as was asked for."""
    @property
    def bytes(self) -> int:
        """Of the whole payload."""
    @property
    def qos(self) -> int: ...
    @property
    def expiry_s(self) -> int | None:
        """Seconds until it expires; None where it does not."""

@type_check_only
class _QueueSettings(TypedDict):
    """How a queue is served; 0 is no bound for `attempts_max`, `total_ms`, `ttl_ms` and depths."""

    order: str
    hash: str
    ack_deadline_ms: int
    backoff_initial_ms: int
    backoff_growth_percent: int
    backoff_max_ms: int
    backoff_jitter_percent: int
    attempts_max: int
    total_ms: int
    ttl_ms: int
    prefetch: int
    read_ahead: int
    paused: bool
    consumers: str
    keeps_dead: bool
    prioritises: bool
    batch_messages: int
    depth_messages_max: int
    depth_bytes_max: int
    depth_policy: str

class _Limits(TypedDict, total=False):
    """Bounds of a switchboard, by the names of `headrace-core::switchboard::Limits`."""

    packet_bytes_max: int
    receive_max: int
    topic_alias_max: int
    session_expiry_s_max: int
    in_flight_max: int
    queued_messages_max: int
    queued_bytes_max: int
    queued_bytes_of_node_max: int
    copies_each: bool
    overflow: str
    sessions_max: int
    sessions_kept_max: int
    queue_groups_max: int
    subscriptions_max: int
    subscriptions_of_node_max: int
    unreleased_of_node_max: int
    messages_per_s_max: int
    shared_strategy: str
    shared_strategies: list[tuple[str, str]]
    group_messages_max: int
    group_bytes_max: int
    retained_messages_max: int
    retained_bytes_max: int
    outbound_bytes_max: int
    buffered_bytes_max: int
    stall_ms_max: int
    undurable_bytes_max: int
    keep_alive_s_max: int
    response_information: str | None
    connect_timeout_ms: int

@final
class SessionSummary:
    """What a list says of a session."""

    @property
    def client_id(self) -> str: ...
    @property
    def connection(self) -> int | None:
        """The number of its connection; None while the client is away."""
    @property
    def protocol_level(self) -> int | None:
        """Of its connection: 4 or 5."""
    @property
    def expiry_s(self) -> int | None:
        """For how long it outlives its connection, seconds; None for ever."""
    @property
    def ends_in_s(self) -> int | None:
        """Seconds until it ends, where the client is away and it will."""
    @property
    def subscriptions(self) -> int: ...
    @property
    def queued_messages(self) -> int:
        """Messages that wait for the client's window or return."""
    @property
    def held_bytes(self) -> int:
        """Of those, and of what may have to be sent again."""
    @property
    def in_flight(self) -> int:
        """Messages to the client whose exchange is not over."""
    @property
    def unreleased(self) -> int:
        """Messages at QoS 2 that the client has not released."""
    @property
    def has_will(self) -> bool: ...

@final
class WillReport:
    """A will that may be published."""

    @property
    def topic(self) -> str: ...
    @property
    def qos(self) -> int: ...
    @property
    def retain(self) -> bool: ...
    @property
    def delay_s(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def due_in_s(self) -> int | None:
        """Seconds until it is published, where the client is away."""

@final
class ConnectionReport:
    """Where the connection of a session stands."""

    @property
    def keep_alive_s(self) -> int:
        """Longest silence that it allows itself; 0 for any."""
    @property
    def silent_ms(self) -> int:
        """Since its last packet."""
    @property
    def outbound_bytes(self) -> int:
        """On the way to it."""
    @property
    def receive_maximum(self) -> int: ...
    @property
    def rests(self) -> str | None:
        """Why it is not read at the moment: decision, window, full_subscriber, disk,
        unread_answers, rate, turn or crowd."""

@final
class SessionReport:
    """All of one session."""

    @property
    def summary(self) -> SessionSummary: ...
    @property
    def subscriptions(self) -> list[tuple[str, int, bool, bool, int]]:
        """Filter, QoS, no local, retain as published, identifier (0 for none); the first 1,000 by
        filter."""
    @property
    def streams(self) -> list[tuple[str, int, list[int]]]:
        """Of its subscriptions to streams: filter, stream (which may be no more), by partition the
        offset that is sent next; the first by filter, with 4,096 positions together."""
    @property
    def will(self) -> WillReport | None: ...
    @property
    def connection(self) -> ConnectionReport | None: ...

@final
class TraceLine:
    """One thing that a trace saw."""

    @property
    def wall_ms(self) -> int: ...
    @property
    def client_id(self) -> str:
        """Empty where it is nobody's, or not known yet."""
    @property
    def way(self) -> Literal["in", "out", "drop", "rest", "close"]:
        """A packet from a client, one to a client, a message that somebody does not get, input
        that rests, the end of a connection."""
    @property
    def packet(self) -> str:
        """PUBLISH and the like; empty where it is none."""
    @property
    def packet_id(self) -> int: ...
    @property
    def topic(self) -> str: ...
    @property
    def qos(self) -> int: ...
    @property
    def retain(self) -> bool: ...
    @property
    def dup(self) -> bool: ...
    @property
    def payload(self) -> bytes:
        """The beginning of it."""
    @property
    def bytes(self) -> int:
        """Of the packet, or of the message."""
    @property
    def reason_code(self) -> int | None: ...
    @property
    def text(self) -> str:
        """Filters, reasons and the like."""

@final
class Principal:
    """Somebody who was let in: a user with roles, or nobody in particular, at a host."""

    def __new__(
        cls,
        username: str | None = None,
        roles: list[str] = ...,
        host: str | None = None,
        *,
        is_certified: bool = False,
    ) -> Self:
        """`host` is an address; anything else is nowhere, where no rule about addresses holds.
        `is_certified` says that a certificate has named the user."""
    @property
    def username(self) -> str | None: ...
    @property
    def roles(self) -> list[str]: ...

@final
class AccessRules:
    """Who may do what. The first rule that is about a client, an action and a topic decides; where
    none is, `no_match` does, but whoever is let in may connect."""

    def __new__(cls, no_match: bool) -> Self: ...
    def add(
        self,
        *,
        allows: bool,
        actions: list[str],
        users: list[str],
        roles: list[str],
        clients: list[str],
        addresses: list[str],
        topics: list[str],
        streams: list[str],
        groups: list[str],
    ) -> None:
        """Adds a rule behind the others; an empty list stands for all. Actions: connect, publish,
        subscribe, will, read, write, describe. Topics, clients, streams and groups take {clientid}
        and {username}; users, clients, streams and groups may end with *. Where some of topics,
        streams and groups are given, the rule is about no others.

        Raises:
            ValueError: what cannot be a part of a rule, or the rules are in use by a switchboard.
        """
    def __len__(self) -> int: ...
    def check(
        self, principal: Principal, client_id: str, action: str, topic: str
    ) -> tuple[bool, int | None, int | None]:
        """Whether it may be, and the number of the rule that says so, from 0; and of a subscription
        that may be, the first rule that denies a part of it. `topic` is a topic name, for subscribe
        a filter without $share/GROUP/, for read, write and describe a stream's name.

        Raises:
            ValueError: no such action.
        """
    def check_group(
        self, principal: Principal, client_id: str, action: str, group: str
    ) -> tuple[bool, int | None, int | None]:
        """As `check`, of a consumer group, with read or describe. Groups are everybody's until a
        rule names some.

        Raises:
            ValueError: no such action.
        """

@final
class Switchboard:
    """The MQTT data plane of one event loop; not thread-safe by design.

    Raises ValueError for a connection, stream or request that it does not know.
    """

    def __new__(cls, hash_key: tuple[int, int], **limits: Unpack[_Limits]) -> Self: ...
    def configure(self, mono_ms: int, wall_ms: int, **limits: Unpack[_Limits]) -> None:
        """Puts limits in force; those that are not named stay as they are.

        What clients were told when they connected stays too: `packet_bytes_max`, `receive_max`,
        `topic_alias_max`, and `in_flight_max`, which sessions were made for.
        """
    def bind(self, stream: int, partitions: int, filters: list[str], key: str) -> None:
        """Stores publishes that match a filter in `stream`. `key`: topic, level:N (1-based) or
        property:NAME. Replaces an earlier binding of the stream. The log of sessions names a stream
        by that number: no other stream may have it, after a restart either.

        Raises:
            ValueError: a filter or the key is malformed; the message says how.
        """
    def shape(self, stream: int, codec: str, batch_bytes_max: int, compacts: bool) -> None:
        """Compresses what is stored in the stream from the next batch on; none is larger than
        `batch_bytes_max` before that, and a publish that makes a larger one is refused. Where it
        `compacts`, a publish without payload removes its key."""
    def unbind(self, stream: int) -> None: ...
    def set_queue(
        self,
        stream: int,
        name: str,
        dead_letters: int | None,
        **settings: Unpack[_QueueSettings],
    ) -> None:
        """Makes a stream that is bound a queue, or changes one. `dead_letters` is the id of stream
        `NAME.dlq` where it exists."""
    def queue_trimmed(self, stream: int, partition: int, start: int) -> None:
        """The log of a partition begins at `start` now: where the stream is a queue, what lay
        before is owed no longer."""
    def queue_sized(
        self, stream: int, partition: int, bounds: tuple[int, int], size_bytes: int
    ) -> None:
        """The log of a partition of a queue has so many bytes between its bounds now."""
    def queue_takes(self, stream: int, batches: bytes) -> int | None:
        """How many messages batches of another door are, where the queue has room for them: they
        count to what is owed from now on, until `queue_took`. None: it has not."""
    def queue_took(self, stream: int, messages: int, size_bytes: int) -> None:
        """An append that `queue_takes` was asked for has ended."""
    def queue_floors(self, stream: int) -> list[int] | None:
        """By partition the first offset that some group still owes; None: no queue, no groups."""
    def queue_groups(self, stream: int) -> list[QueueGroup]: ...
    def seek_queue(
        self,
        stream: int,
        group: str | None,
        offsets: list[int],
        request: int,
        mono_ms: int,
        wall_ms: int,
    ) -> int:
        """Has a group, or all, go on from an offset of each partition; how many groups there are.
        What is in flight can no longer be settled. `request` ends once that is durable.

        Raises:
            ValueError: it is no queue, or there is not an offset for each partition.
        """
    def pull_queue(
        self,
        stream: int,
        group: str,
        topic_filter: str | None,
        messages_max: int,
        bytes_max: int,
        deadline_ms: int | None,
        waits: bool,
    ) -> int | None:
        """Delivers messages to a group for who has no connection: a number, which comes back from
        `pulled` once it has all, or as soon as there are none at hand. Where it `waits`, it waits
        for the first until `end_pull`. None: it would be a group more than there may be.

        Raises:
            ValueError: the queue cannot be pulled from, or there can be no such group.
        """
    def end_pull(self, number: int) -> None:
        """It waits no longer; called again, not for what is on its way from the disk either."""
    def pulled(self) -> list[tuple[int, list[QueueMessage]]]:
        """Pulls that have ended since the last call, by number."""
    def return_pull(
        self,
        stream: int,
        group: str,
        topic_filter: str | None,
        number: int,
    ) -> None:
        """Whoever pulled has gone: what it got and has not settled is delivered again, at once."""
    def settle_queue(
        self,
        stream: int,
        group: str,
        topic_filter: str | None,
        verb: str,
        message_ids: list[str],
        delay: str | None,
        reason: str | None,
        request: int,
        mono_ms: int,
        wall_ms: int,
    ) -> list[str] | None:
        """Ends deliveries: of each `settled`, `settled before`, `too late` or `no delivery`; None
        where the queue has no such group. `#` is the filter of one without. `request` ends once
        that is durable.

        Raises:
            ValueError: there is no such verb, id or delay, or several groups have such a delivery;
                nothing is settled.
        """
    def peek_queue(
        self,
        stream: int,
        partition: int,
        piece: StreamPiece,
        group: tuple[str, str | None] | None,
        offset: int,
        count_max: int,
        has_settled: bool,
        mono_ms: int,
        wall_ms: int,
    ) -> tuple[list[QueueMessage], int]:
        """Messages of a piece of its log from an offset on, and what they are to a group, by name
        and filter; and where to read on. Nothing changes.

        Raises:
            ValueError: it is no queue, or has no such partition.
        """
    def forget_queue_group(self, stream: int, group: str) -> bool:
        """Forgets a group and what it has settled; False: there is none.

        Raises:
            ValueError: it has consumers.
        """
    def load_sources(
        self, stream: int, partition: int, sources: list[tuple[str, int, int]]
    ) -> None: ...
    def sources(self, stream: int, partition: int) -> list[tuple[str, int, int]]: ...
    def opened(self, connection: int, mono_ms: int, wall_ms: int) -> None: ...
    def closed(self, connection: int, mono_ms: int, wall_ms: int) -> None:
        """The socket is gone. The session waits for its client as long as it may; then, or after
        its delay, the will is published unless DISCONNECT came first."""
    def receive(self, connection: int, data: bytes, mono_ms: int, wall_ms: int) -> None: ...
    def writable(self, connection: int, credit_bytes: int) -> None:
        """At most this much may be written to the connection per `collect`; 0 stops it. A new
        connection has no credit."""
    def decided(
        self,
        request: int,
        reason_code: int,
        mono_ms: int,
        wall_ms: int,
        auth_data: bytes | None = None,
        principal: Principal | None = None,
    ) -> None:
        """0 accepts, 0x18 challenges a client that named an authentication method, any other
        MQTT 5 reason code of CONNACK, or of DISCONNECT on an open connection, refuses (mapped for
        3.1.1). A request of a connection that has gone is ignored. `principal` is whom policy lets
        in, where `control` has set rules: those may refuse it yet."""
    def control(
        self,
        rules: AccessRules | None,
        users: dict[str, list[str]],
        mono_ms: int,
        wall_ms: int,
        *,
        anonymous: bool,
        certified: bool,
        closes: bool,
        silent: bool,
    ) -> None:
        """Sets who may do what, for those who are connected too; None lets everybody do everything.

        `users` are their roles by name. `anonymous` lets in clients without a user, `certified`
        users that only a certificate has named; with `closes`, publishing where one may not ends
        the connection; with `silent`, 5.0 clients are told 0x80 where it would be 0x87. Who may not
        stay loses session and connection; a client that has subscribed to what it may not any more
        loses that, and its connection."""
    def placed(
        self,
        request: int,
        placements: Sequence[tuple[int, list[tuple[int, int]], bool] | tuple[int, str]],
        mono_ms: int,
        wall_ms: int,
    ) -> None:
        """Where subscriptions to streams begin, one for each stream of the request: the stream, by
        partition the first offset to be sent and the one behind the last durable record, and
        whether the client has said where; or a reason code of SUBACK from 0x80 on, and why. A
        request of a connection that has gone is ignored."""
    def streams_read(self) -> list[int]:
        """Streams that somebody reads; of those that are no more, somebody who is away."""
    def stream_readers(self, stream: int, count_max: int) -> tuple[list[tuple[str, bool]], int]:
        """Client ids of those who read a stream, `count_max` at most, and whether each is
        connected; how many there are."""
    def stream_lags(
        self, bounds: dict[int, list[tuple[int, int]]], steps_max: int
    ) -> tuple[dict[int, tuple[int, int]], int]:
        """Of streams that are read: how many records the last reader that is connected is behind,
        and the last that is away. How many subscriptions were left out: each takes a step, and one
        more for each partition. `bounds`: by stream and partition, the first offset that is kept
        and the one behind the last.
        """
    def advanced(self, stream: int, partition: int, end: int) -> bool:
        """Records of a partition are durable below `end`. False where nobody reads the stream."""
    def next_read(self, mono_ms: int, wall_ms: int) -> tuple[int, int, int, int, int] | None:
        """`(ticket, stream, partition, offset, bytes)` of the next piece that a client has room
        for; None where there is none in this turn. Ends in `fed`, `missed` or `unread`."""
    def fed(self, ticket: int, piece: StreamPiece, mono_ms: int, wall_ms: int) -> None:
        """Batches from the one that holds the offset."""
    def missed(self, ticket: int, start: int, end: int) -> None:
        """The offset lies outside the log, which is from `start` to below `end`."""
    def unread(self, ticket: int, mono_ms: int, wall_ms: int) -> None:
        """It could not be read, and is asked for again."""
    def durable(self, ticket: int, reason_code: int, mono_ms: int, wall_ms: int) -> None:
        """The append of `ticket` ended: acknowledge, deliver what waited for it. `reason_code` is 0
        where it is stored, 0x97 where there is no room for it now, and else any from 0x80 on."""
    def publish(
        self,
        topic: str,
        payload: bytes,
        qos: int,
        retain: bool,
        properties: list[tuple[str, str]],
        request: int,
        mono_ms: int,
        wall_ms: int,
    ) -> None:
        """A publish from another door; `request` comes back from `published` once it is as
        durable as its streams ask.

        Raises:
            ValueError: the topic is no topic name, or what a queue should take it does not.
        """
    def announce(self, topic: str, payload: bytes, mono_ms: int, wall_ms: int) -> None:
        """Publishes below `$SYS/`, and keeps it for those who subscribe later; an empty payload
        removes it. It is neither stored nor counted among retained messages.

        Raises:
            ValueError: the topic is no topic name below `$SYS/`.
        """
    def published(self) -> list[tuple[int, int, int]]:
        """`(request, reason code, matched streams)` of other doors' publishes that ended; the code
        is that of PUBACK: from 0x80 on it is not stored; 0x95 is too large for a stream, 0x9A that
        there is no room to retain it."""
    def retained(
        self,
        topic_filter: str,
        start: str,
        count_max: int,
        payload_bytes_max: int,
        mono_ms: int,
        wall_ms: int,
    ) -> tuple[list[RetainedMessage], str | None]:
        """A page of the retained messages that match, in the order of their topics, and where the
        next page starts, or None. The first starts at "". Of each payload `payload_bytes_max`
        bytes are copied.

        Raises:
            ValueError: the filter is malformed.
        """
    def count_retained(self, topic_filter: str, start: str) -> tuple[int, str | None]:
        """How many retained messages match, page by page like `retained`.

        Raises:
            ValueError: the filter is malformed.
        """
    def delete_retained(
        self, topic_filter: str, start: str, request: int, mono_ms: int, wall_ms: int
    ) -> tuple[int, str | None]:
        """Deletes retained messages that match; how many, page by page like `retained`. `request`
        comes back from `published` once that is durable.

        Raises:
            ValueError: the filter is malformed.
        """
    def list_sessions(
        self,
        pattern: str,
        connected: bool | None,
        start: int,
        count_max: int,
        mono_ms: int,
        wall_ms: int,
    ) -> tuple[list[SessionSummary], int | None]:
        """A page of sessions, and where the next one starts, or None; the first starts at 0.
        `*` in `pattern` stands for any text of a client id. A call looks at 50,000 sessions at
        most, so a page may be empty though others follow."""
    def session(self, client_id: str, mono_ms: int, wall_ms: int) -> SessionReport | None:
        """All of one session, of its subscriptions the first 1,000 by filter."""
    def disconnect_client(
        self, client_id: str, request: int, mono_ms: int, wall_ms: int
    ) -> bool | None:
        """Ends a client's connection with DISCONNECT 0x98; whether it had one. None: it has no
        session. `request` comes back from `published` once what was so is durable."""
    def delete_session(self, client_id: str, request: int, mono_ms: int, wall_ms: int) -> bool:
        """Ends a session, and its connection as `disconnect_client` does; whether there was
        one. Its will is published. `request` comes back as from `disconnect_client`."""
    def start_trace(
        self, client_id: str | None, topic_filter: str | None, payload_bytes_max: int
    ) -> int | None:
        """Begins a trace of one client, or of the publishes to the topics of a filter; its number.
        None where eight run.

        Raises:
            ValueError: the filter is malformed, or not one of both is given.
        """
    def take_trace(self, trace: int) -> tuple[list[TraceLine], int]:
        """What was seen since the last call, and how many lines before that gave way to it: 4 MiB
        of them wait at most."""
    def stop_trace(self, trace: int) -> None: ...
    def keep_retained(self, stream: int) -> None:
        """Has retained messages last in a stream, which is bound and has no filters."""
    def restore_retained(self, batches: bytes, mono_ms: int, wall_ms: int) -> tuple[int, int, int]:
        """Takes in whole batches, of `retained_state` or of the stream that keeps retained
        messages: `(records, those of them that are none of a retained message, next offset)`.

        Raises:
            CorruptRecordError, UnsupportedRecordError: as `validate_batches`.
        """
    def retained_state(
        self, partitions: list[int], start: str, names: int, mono_ms: int, wall_ms: int
    ) -> tuple[list[tuple[bytes, int]], str | None]:
        """A page of what is retained of some partitions of the stream that keeps it: of each at
        most one batch and its records, and where the next page starts, or None. The first starts at
        "". Looks at `names` topics of all partitions; 10,000 take some 5 ms.
        """
    def disconnect_all(self, reason_code: int, mono_ms: int, wall_ms: int) -> None:
        """DISCONNECT (5.0) to every client and close; the shell then collects and drains."""
    def tick(self, mono_ms: int, wall_ms: int) -> None: ...
    def collect(self, mono_ms: int, wall_ms: int) -> Effects | None:
        """Everything due since the last call, or None. Called once per loop iteration."""
    def keep_sessions(self, partitions: int, checkpoint_bytes_min: int) -> None:
        """Keeps sessions that may outlive their connection on a log of so many partitions. Called
        before the first connection. One that has more than `checkpoint_bytes_min` is written anew
        at times."""
    def restore(self, partition: int, batches: bytes) -> int:
        """Takes in batches of a partition of that log, in their order; the offset behind them, 0
        without one.

        Raises:
            ValueError: there is no such partition, or a record is none of ours.
        """
    def restored(self, mono_ms: int, wall_ms: int) -> None:
        """All of the log has been taken in. Whoever was connected when it ended has just left."""
    def persist(self, mono_ms: int, wall_ms: int) -> tuple[int, int] | None:
        """Closes a round of what is due, for `session_append` to give out. Called once after each
        `collect`, when its appends have been performed or refused. A partition and the offset at
        which it may begin from now on, where a checkpoint of it has become durable."""
    def session_append(self) -> tuple[int, bytes, int, bool] | None:
        """The next append of the round: `(partition, batch, ticket, begins)`, the last of them True
        where a checkpoint begins with it, which is a good place for a new file. Each is performed
        or refused before the next is asked for; None until the next `persist`."""
    def session_appended(self, ticket: int, offset: int) -> None:
        """An append with which a checkpoint `begins` is on its way to the log, at `offset`."""
    def statistics(self) -> dict[str, int]:
        """Counters and gauges, flat; a name may carry one label as `name{reason="x"}`."""

# --- simulation and histories (headrace-core::testing; public as headrace.testing) -------------

@final
class Anomaly:
    """A broken promise."""

    @property
    def kind(self) -> str:
        """lost, duplicated, reordered, invented, inconsistent, backwards, regressed, lookup,
        unanswered, refused or panicked."""
    @property
    def log(self) -> str:
        """The log, as the history names it."""
    @property
    def text(self) -> str:
        """What was seen, in one line."""

@final
class SimulatedRun:
    """What came of one seed."""

    @property
    def seed(self) -> int: ...
    @property
    def fault(self) -> str:
        """The planted fault, or "none"."""
    @property
    def hash(self) -> int:
        """64 bits of every call, answer and effect: two runs with one hash are the same run."""
    @property
    def events(self) -> int:
        """How many calls, answers and effects there were."""
    @property
    def starts(self) -> int:
        """Starts of the store, with those that were cut short."""
    @property
    def stored(self) -> int:
        """Records that were acknowledged."""
    @property
    def anomaly(self) -> Anomaly | None:
        """The first broken promise; the run ended there."""
    @property
    def trace(self) -> list[str]:
        """A line for each event, where it was asked for."""

def simulate(seed: int, *, fault: str = "none", trace: bool = False) -> SimulatedRun:
    """One run of the store: several lives under random clients, each ended by a power cut, a kill,
    a failing disk or a clean stop, on a disk in memory. Releases the GIL.

    Raises:
        ValueError: there is no such fault.
    """

def faults() -> list[str]:
    """Names of the faults that `simulate` can plant."""

@final
class History:
    """The judge of what clients sent, were told, and saw. Tell it everything in the order in
    which it happened; it never holds against a log what nobody saw.

    Logs and clients are named by any text; a deleted and recreated log needs another name.
    Records are `(offset, value, timestamp ms)`; value is None where a record holds none.
    """

    def __new__(cls) -> Self: ...
    def append(
        self,
        client: str,
        log: str,
        value: int,
        timestamp_ms: int | None,
        *,
        key: int | None = None,
        tombstone: bool = False,
        may_repeat: bool = False,
    ) -> None:
        """`client` sends `value`, a number of its own, or sends it again. What one client sends
        to one log keeps its order. `timestamp_ms` is None where the broker chooses it.
        `may_repeat`: a second copy is no anomaly, as over MQTT at QoS 1."""
    def stored(self, value: int, offset: int | None = None) -> None:
        """The client was told that it is stored, and where if its protocol says so."""
    def failed(self, value: int) -> None:
        """The client was told that it is not stored. A time-out is `unknown`."""
    def unknown(self, value: int) -> None:
        """The client was told nothing: the record may be there or not."""
    def crashed(self) -> None:
        """The node is gone: what was not answered is unknown."""
    def quiet(self) -> None:
        """The node has nothing left to do: whatever was sent must have been answered."""
    def read(
        self,
        reader: str,
        log: str,
        records: list[tuple[int, int | None, int]],
        seek_to: int | None = None,
    ) -> None:
        """`reader` goes on where it stands, or at `seek_to`, and gets `records`."""
    def scan(
        self, log: str, start: int, end: int, records: list[tuple[int, int | None, int]]
    ) -> None:
        """Somebody read all of the log, from its start offset to its end."""
    def bounds(self, log: str, start: int, end: int) -> None:
        """Somebody was told where the log starts and ends."""
    def lookup(self, log: str, timestamp_ms: int, found: tuple[int, int] | None) -> None:
        """Somebody asked for the first record at or after a time: `(offset, timestamp)`."""
    def trim(self, log: str, offset: int) -> None:
        """Records below `offset` may be gone from now on."""
    def compact(self, log: str, below: int = ..., tombstones_below: int = ...) -> None:
        """From now on, of the records below `below`, those may be gone that have no key or that a
        later one there of the same key replaces, and of the records without a value those below
        `tombstones_below`. Without bounds: anywhere."""
    def cut(self, log: str, synced: int, end: int) -> None:
        """The power failed when `log`, which is not synced with each acknowledgement, was synced
        up to the offset `synced`, and it ends at `end` now: the last records behind the first may
        be gone."""
    @property
    def anomalies(self) -> list[Anomaly]:
        """What was found, the first first."""
    @property
    def counts(self) -> tuple[int, int, int]:
        """Values that were stored, refused, and of which nobody knows."""

def payload(value: int, bytes: int = 0) -> bytes:  # noqa: A002 - as Rust names it
    """A payload of `bytes` bytes, 12 at least, that carries `value` and a CRC-32C."""

def value_of(payload: bytes) -> int | None:
    """The value in a payload; None where it is no payload, or was changed."""

# --- paths of the core alone (used by headrace.bench.suite) ------------------------------------

@final
class Kernel:
    """A loop over one path of the core, made ready: no sockets, no disk, no Python.

    `name` is of `headrace_core::testing::kernels::kernel`, which says what `of` counts; `payload`
    in bytes.

    Attributes:
        OPTIMISED: the module was built for release, so that times and counts mean something.

    Raises:
        ValueError: there is no such.
    """

    OPTIMISED: ClassVar[bool]
    def __new__(cls, name: str, of: int, payload: int) -> Self: ...
    def run(self, operations: int) -> int:
        """Does so many operations, or somewhat more; how many. Releases the GIL."""

# --- load (headrace-bench; used by headrace.bench) ---------------------------------------------

@final
class MqttLoad:
    """Load on an MQTT server and the judge of what arrives, on a thread of its own.

    Raises:
        ValueError: the plan makes no sense; the message says what is expected.
        OSError: the system gives no thread.
    """

    def __new__(
        cls,
        server: str,
        *,
        version: int,
        prefix: str,
        credentials: tuple[str, bytes] | None,
        session_expiry: int,
        publishers: int,
        subscribers: int,
        idle: int,
        opening: int,
        pattern: str,
        qos: int,
        payload: int,
        window: int,
        rate: float | None,
        warm_up: float,
        duration: float,
        drain: float,
        queue: Mapping[str, int] | None = None,
        queued: int = 0,
    ) -> Self:
        """Starts at once. Times in seconds; `server` is `ADDRESS:PORT`, no name; `payload` in
        bytes, 16 to 16 MiB; `window` 1 to 65,535, in use where `rate` (a second, per publisher)
        is None; `version` 4 or 5; the rest as `headrace.bench.Load` has it, and with the pattern
        `queue` (the prefix is its name) also: ack_batch (message ids of a publish to `$ack`; 0 for
        PUBACK), prefetch, stuck (of the subscribers), keys (of each publisher, whose order is
        judged; 0 for none), fill (enqueued first), fills_only, open (deliveries that stay open),
        at_random (what of those is settled). With the pattern `storm` `queued` messages wait for
        each session."""
    def progress(self) -> dict[str, Any]:
        """The counts so far: connected, published, acknowledged, refused, expected, delivered,
        lost, duplicated, reordered, corrupted, disconnected, measured (deliveries in the measured
        time), phase (connecting, warming, measuring, draining, done), seconds, connect_seconds,
        trouble (the first, in words, or None), by_second, busy (the part of the measured time in
        which the load had something to do, 0 to 1), connect and latency (count, p50, p90, p99,
        p99.9, max; seconds). With the pattern `storm` the phases leaving, filling and returning,
        and `storm`: fill_seconds, back_seconds (from the first connect until all are back),
        emptied_seconds (from there to the last message that waited), forgotten (sessions that the
        server did not have any more). With the pattern `queue` the phases filling and opening, and
        `queue`: settled, unsettled (answered otherwise), redelivered, stuck (deliveries to such),
        open, enqueued_measured, settled_measured, settled_by_second, fill_seconds; enqueue,
        whole (publish to settled) and settle (delivery to settled), as latency."""
    def is_over(self) -> bool: ...
    def stop(self) -> None:
        """Ends the run soon; what it has counted stays."""
    def finish(self) -> dict[str, Any]:
        """Waits for the end and gives the counts, once. Releases the GIL.

        Raises:
            OSError: the machine gave no sockets.
            RuntimeError: they were given before.
        """

@final
class MqttRelay:
    """A thread that does for MQTT at QoS 0 the least that carries messages: it copies what a
    connection publishes, as it comes, to the one that has subscribed to the topic of its first.

    Raises:
        ValueError: `address` is no `ADDRESS:PORT`.
        OSError: it cannot be had.
    """

    def __new__(cls, address: str, *, drop_every: int = 0) -> Self:
        """Listens at once. Of the messages of each connection every `drop_every`-th is lost, none
        where that is 0."""
    @property
    def address(self) -> str:
        """Where it listens."""
    def stop(self) -> None:
        """Ends it and all connections. Releases the GIL."""

@final
class Payloads:
    """Payloads of a flow: what one producer sends to one partition, numbered in order.

    `size` is in bytes, 16 at least; each begins with flow (24 bits), number, time and a checksum
    of `topic` and these.
    """

    def __new__(cls, topic: str, flow: int, size: int) -> Self: ...
    def take(self, count: int, due_us: int = 0, step_us: float = 0.0) -> list[bytes]:
        """The next `count`, due every `step_us` from `due_us` on (microseconds of any clock)."""

@final
class RecordJudge:
    """Holds what is read of a topic against what its flows, numbered from 0, have sent.

    `measured_us`: records that were due between these are timed.
    """

    def __new__(
        cls, topic: str, flows: int, size: int, measured_us: tuple[int, int] = (0, 0)
    ) -> Self: ...
    @property
    def received(self) -> int:
        """Records that were taken."""
    @property
    def distinct(self) -> int:
        """Different ones among them."""
    def take(self, values: list[bytes], now_us: int) -> None:
        """Takes records that were read at `now_us`, in their order."""
    def take_joined(self, values: typing_extensions.Buffer, now_us: int) -> None:
        """The same, of values that stand one behind the other."""
    def read(self, acknowledged: list[int], sent: list[int]) -> dict[str, Any]:
        """received, lost (acknowledged and not read), duplicated, reordered, corrupted (or never
        sent), latency (as of `MqttLoad`); by what was acknowledged and sent of each flow."""
