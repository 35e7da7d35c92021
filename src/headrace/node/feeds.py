"""Streams that MQTT clients read: where subscriptions begin, and pieces of logs.

Owns the way from a name to offsets and from an offset to records. Who is read for, when and how
much is the switchboard's; what properties mean is `kernel.positions`'. Invariants: what takes long
to decompress is decompressed beside the loop; readers of streams leave others room to read.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace import limits, native
from headrace.errors import HeadraceError, InvalidStartError, UnknownStreamError
from headrace.kernel import positions
from headrace.kernel.catalog import is_internal
from headrace.native import Buffer
from headrace.text import shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.native import StreamPiece, StreamRequest, Switchboard
    from headrace.node.broker import Broker
    from headrace.node.partition import Partition

log = logging.getLogger(__name__)

UNSPECIFIED_ERROR: Final = 0x80
IMPLEMENTATION_SPECIFIC: Final = 0x83
TOPIC_FILTER_INVALID: Final = 0x8F
"""Reason codes of SUBACK (MQTT 5.0 table 3-8)."""

Placement = tuple[int, list[tuple[int, int]], bool] | tuple[int, str]
"""Stream, `(first offset, end)` by partition, and whether that was asked for; or code and text."""


class _Asked(NamedTuple):
    """A piece of a partition that the switchboard asks for."""

    ticket: int
    partition: Partition
    offset: int

    @property
    def key(self) -> tuple[int, int]:
        """Stream and partition."""
        return self.partition.stream.definition.id, self.partition.index


class Feeds:
    """Serves what the switchboard asks of streams."""

    def __init__(self, broker: Broker, switchboard: Switchboard) -> None:
        self._broker = broker
        self._switchboard = switchboard
        self._clock = broker.clock
        self._watched: dict[tuple[int, int], Callable[[], None]] = {}
        self._failing: set[tuple[int, int]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting = 0  # pieces that the disk, or a thread, is to bring
        self._openers = ThreadPoolExecutor(limits.CHECKERS, "streams")

    def open(self) -> None:
        """Begins to serve: sessions that were restored, too."""
        runner = self._broker.runner
        runner.place, runner.read_streams = self.place, self.read
        self._broker.altered.append(self._watch_all)
        self._watch_all()

    def place(self, request: StreamRequest) -> None:
        """Says where subscriptions begin, now or later."""
        try:
            start = positions.parse(request.properties)
        except InvalidStartError as error:
            refused = (IMPLEMENTATION_SPECIFIC, str(error))
            return self._answer(request, [refused for _ in request.streams])
        if start.base is positions.Base.TIME:
            task = asyncio.get_running_loop().create_task(self._place_by_time(request, start))
            self._tasks.add(task)
            return task.add_done_callback(self._tasks.discard)
        return self._answer(request, [self._placed(name, start) for name in request.streams])

    async def _place_by_time(self, request: StreamRequest, start: positions.Start) -> None:
        found: list[Placement] = []
        for name in request.streams:
            try:
                times = [
                    await each.offset_for_time(start.time_ms) for each in self._partitions(name)
                ]
            except HeadraceError as error:
                found.append(_refused(error))
            else:
                offsets = [at[0] if at is not None else None for at in times]
                found.append(self._placed(name, start, offsets))
        self._answer(request, found)

    def _placed(
        self, name: str, start: positions.Start, found: list[int | None] | None = None
    ) -> Placement:
        try:
            partitions = self._partitions(name)
            bounds = [each.bounds for each in partitions]
            if found is not None:  # partitions that were added meanwhile are read whole
                found += [0] * (len(bounds) - len(found))
            at = positions.place(start, bounds, found or ())
        except HeadraceError as error:
            return _refused(error)
        ends = [end for _, end in bounds]
        stream = partitions[0].stream.definition.id
        return stream, list(zip(at, ends, strict=True)), start.is_asked

    def _partitions(self, name: str) -> list[Partition]:
        if is_internal(name):
            raise UnknownStreamError(f"no stream is named {shown(name)}")
        return self._broker.partitions(name)

    def _answer(self, request: StreamRequest, placements: list[Placement]) -> None:
        clock = self._clock
        self._switchboard.placed(request.request, placements, *clock.now())
        for placement in placements:
            if len(placement) > 2:
                self.watch(placement[0])
        self._broker.runner.wake()

    def _watch_all(self) -> None:
        """Hears of every partition that somebody reads."""
        for stream in self._switchboard.streams_read():
            self.watch(stream)

    def watch(self, stream: int) -> None:
        """Has the switchboard hear of every partition of a stream, for as long as it wants to."""
        partitions, index = self._broker.runner.partitions, 0
        while (partition := partitions.get((stream, index))) is not None:
            self._watch(stream, partition)
            index += 1

    def _watch(self, stream: int, partition: Partition) -> None:
        key = stream, partition.index
        if key not in self._watched:
            self._watched[key] = partial(self._advanced, key, partition)
            partition.watch(self._watched[key])
            self._advanced(key, partition)

    def _advanced(self, key: tuple[int, int], partition: Partition) -> None:
        if partition.is_served and self._switchboard.advanced(*key, partition.high_watermark):
            return
        partition.unwatch(self._watched.pop(key))
        self._failing.discard(key)

    def read(self, mono_ms: int, wall_ms: int) -> bool:
        """Reads what clients have room for, within the bounds of a turn; whether there was any."""
        switchboard, partitions = self._switchboard, self._broker.runner.partitions
        has_read = False
        while (
            self._waiting < limits.STREAM_READS_MAX
            and (wanted := switchboard.next_read(mono_ms, wall_ms)) is not None
        ):
            has_read = True
            ticket, stream, index, offset, size = wanted
            partition = partitions.get((stream, index))
            if partition is None:  # deleted, which the switchboard knows
                switchboard.unread(ticket, mono_ms, wall_ms)
                continue
            asked = _Asked(ticket, partition, offset)
            try:
                found = partition.begin_read(offset, size)
            except (HeadraceError, ValueError) as error:
                self._failed(asked, error)
                continue
            if isinstance(found, Buffer):
                self._open(asked, bytes(found))
            else:
                self._waiting += 1
                found.add_done_callback(partial(self._ended, asked))
        return has_read

    def _ended(self, asked: _Asked, read: asyncio.Future[Buffer]) -> None:
        """The disk has brought a piece, or has not."""
        self._waiting -= 1
        try:
            self._open(asked, bytes(read.result()))
        except (HeadraceError, ValueError) as error:
            self._failed(asked, error)
        self._broker.runner.wake()

    def _open(self, asked: _Asked, batches: bytes) -> None:
        """Hands over what batches hold; found beside the loop where it takes long."""
        at_once = limits.CHECKED_AT_ONCE_BYTES_MAX
        piece = native.unpack_batches(batches, asked.offset, at_once, at_once, at_once)
        if piece is not None:
            self._feed(asked, piece)
            return
        self._waiting += 1
        opening = asyncio.get_running_loop().run_in_executor(
            self._openers, unpacked, batches, asked.offset
        )
        opening.add_done_callback(partial(self._opened, asked))

    def _opened(self, asked: _Asked, opening: asyncio.Future[StreamPiece]) -> None:
        self._waiting -= 1
        if not opening.cancelled():
            self._feed(asked, opening.result())
            self._broker.runner.wake()

    def _feed(self, asked: _Asked, piece: StreamPiece) -> None:
        clock = self._clock
        self._switchboard.fed(asked.ticket, piece, *clock.now())
        self._failing.discard(asked.key)

    def _failed(self, asked: _Asked, error: Exception) -> None:
        ticket, partition, _ = asked
        if isinstance(error, ValueError):
            with suppress(HeadraceError):  # deleted, which the switchboard knows
                self._switchboard.missed(ticket, *partition.bounds)
                return
        elif asked.key not in self._failing:
            self._failing.add(asked.key)
            log.warning(
                "MQTT clients wait for records that cannot be read: %s", error,
                extra={"stream": partition.stream.definition.name, "partition": partition.index},
            )  # fmt: skip
        self._switchboard.unread(ticket, *self._clock.now())


def unpacked(batches: bytes, offset: int) -> StreamPiece:
    """A piece of batches that are large, or compressed.

    What decompresses to more than any may is left as it is, and so counts as damaged.
    """
    piece = native.unpack_batches(
        batches,
        offset,
        limits.STREAM_PIECE_BYTES_MAX,
        limits.DECOMPRESSED_BYTES_MAX,
        limits.STREAM_RECORD_BYTES_MAX,
    )
    return piece if piece is not None else native.StreamPiece(batches)


def _refused(error: HeadraceError) -> Placement:
    match error:
        case InvalidStartError():
            code = IMPLEMENTATION_SPECIFIC
        case UnknownStreamError():
            code = TOPIC_FILTER_INVALID
        case _:
            code = UNSPECIFIED_ERROR
    return code, str(error)
