"""One partition of a stream, as every door sees it.

Owns the order of its appends and who waits for its watermark. Must not know which protocol asks.
Offsets are dense; records in `[start_offset, high_watermark)` are durable and readable. Who holds
one while its stream is deleted hears `UnknownStreamError` from then on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace import limits, queue_settings
from headrace.errors import MessageTooLargeError, UnknownStreamError
from headrace.native import Buffer

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from headrace.model import StreamDefinition
    from headrace.native import Segment
    from headrace.node.runner import Runner
    from headrace.ports import Store
    from headrace.settings import Settings


class Stream:
    """A stream that this node serves.

    Attributes:
        definition: its present one.
        settings: what holds for it, the node's defaults included.
        partitions: those that are open.
    """

    __slots__ = ("definition", "partitions", "settings")

    def __init__(self, definition: StreamDefinition, settings: Settings) -> None:
        self.definition = definition
        self.settings = settings
        self.partitions: list[Partition] = []

    @property
    def record_bytes_max(self) -> int | None:
        """Largest record, decompressed, where it is a queue; None: it is none, and takes any."""
        if self.definition.queue is None:
            return None
        return queue_settings.record_bytes_max(self.definition.name, self.settings)

    @property
    def message_bytes_max(self) -> int:
        """Largest record batch."""
        return min(self.settings.max_message_bytes, self.record_bytes_max or limits.INT64_MAX)


class _Known:
    """Asks the store about a log that it had: if it has none, the stream was deleted."""

    __slots__ = ("_stream",)

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is ValueError:
            name = self._stream.definition.name
            raise UnknownStreamError(f"stream {name!r} was deleted meanwhile") from None


class Partition:
    """A log of record batches with its high watermark.

    Attributes:
        stream: the stream it belongs to.
        index: 0-based number in the stream.
        log: the store's handle.
        queued_bytes: on their way to the disk; the runner counts them.
        unkept_bytes: appended since the sources of messages were last kept, those included.
    """

    __slots__ = (
        "_known", "_runner", "_store", "_watchers", "index", "log", "queued_bytes", "stream",
        "unkept_bytes",
    )  # fmt: skip

    def __init__(self, runner: Runner, store: Store, stream: Stream, index: int, log: int) -> None:
        self._known = _Known(stream)
        self._runner = runner
        self._store = store
        self._watchers: set[Callable[[], None]] = set()
        self.stream = stream
        self.index = index
        self.log = log
        self.queued_bytes = 0
        self.unkept_bytes = 0

    def append(self, batches: bytes, wall_ms: int) -> asyncio.Future[int]:
        """Queues validated record batches v2; the future is their base offset once durable.

        All appends of one loop iteration share one fdatasync.

        Raises:
            MessageTooLargeError: larger than the stream's `max.message.bytes`.
            StorageError: the store has failed or is closed.
            OutOfOrderSequenceError, StaleProducerEpochError: idempotent producers.
        """
        bytes_max = self.stream.settings.max_message_bytes
        if len(batches) > bytes_max:
            raise MessageTooLargeError(
                f"{len(batches)} bytes exceed max.message.bytes of stream "
                f"{self.stream.definition.name!r}, {bytes_max}"
            )
        return self._runner.append(self, batches, wall_ms)

    async def read(self, offset: int, max_bytes: int) -> bytes:
        """Whole durable batches from the one that holds `offset`, at least one where there is one.

        What is in memory comes at once; what is not, does not hold up the loop.

        Raises:
            ValueError: `offset` is outside `[start_offset, high_watermark]`, or the stream was
                deleted.
            StorageError: the file cannot be read.
            UnavailableError: too many reads wait for the disk.
        """
        found = self.begin_read(offset, max_bytes)
        return bytes(found if isinstance(found, Buffer) else await found)

    def begin_read(self, offset: int, max_bytes: int) -> Buffer | asyncio.Future[Buffer]:
        """As `read`, where it was read to; a future where the disk must bring something."""
        return self._runner.begin_read(self, offset, max_bytes)

    def readable_bytes(self, offset: int) -> int:
        """What a read from `offset` brings at most, but for a batch larger than asked for.

        Raises:
            ValueError: as `read`.
        """
        return self._store.readable_bytes(self.log, offset)

    @property
    def is_served(self) -> bool:
        """Whether its stream has not been deleted."""
        key = self.stream.definition.id, self.index
        return self._runner.partitions.get(key) is self

    @property
    def bounds(self) -> tuple[int, int]:
        """`(start_offset, high_watermark)`, at one moment."""
        with self._known:
            return self._store.bounds(self.log)

    @property
    def start_offset(self) -> int:
        """Offset of the first record that is kept."""
        return self.bounds[0]

    @property
    def high_watermark(self) -> int:
        """Offset after the last durable record."""
        return self.bounds[1]

    @property
    def told_offset(self) -> int:
        """Offset up to which whoever appended has been told that its records are durable.

        The watermark may be ahead of it: the disk does not wait for the loop.
        """
        return self._runner.told_offset(self)

    @property
    def size_bytes(self) -> int:
        """Bytes of its segments."""
        with self._known:
            return self._store.size_bytes(self.log)

    @property
    def segments(self) -> list[Segment]:
        """Oldest first, the last of them active."""
        with self._known:
            return self._store.segments(self.log)

    def roll(self, wall_ms: int) -> None:
        """Closes the active segment, where it has records, with the next commit round.

        Raises:
            StorageError: the store has failed or is closed.
        """
        with self._known:
            self._store.roll(self.log, wall_ms)

    def forget_silent(self, wall_ms: int) -> None:
        """Forgets idempotent producers that are silent, though nothing is appended.

        Raises:
            UnknownStreamError: the stream was deleted.
        """
        with self._known:
            self._store.forget_silent(self.log, wall_ms)

    async def offset_for_time(self, timestamp_ms: int) -> tuple[int, int] | None:
        """`(offset, timestamp)` of the first record at or after `timestamp_ms`, or None.

        Raises:
            StorageError: a file cannot be read.
            UnavailableError: too many reads wait for the disk.
        """
        with self._known:
            return await self._runner.offset_for_time(self, timestamp_ms)

    def watch(self, wake: Callable[[], None]) -> None:
        """Calls `wake` on the loop after each advance of the high watermark, until `unwatch`.

        It is also called when the partition is deleted, so that who waits looks again.
        """
        self._watchers.add(wake)

    def unwatch(self, wake: Callable[[], None]) -> None:
        """Ends a `watch`; an unknown one is ignored."""
        self._watchers.discard(wake)

    def advanced(self) -> None:
        """Wakes who waits; called by the runner."""
        for wake in tuple(self._watchers):
            wake()
