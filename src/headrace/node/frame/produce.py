"""One producer: frames in, acknowledgements out in their order.

Owns what is under way of one connection. Must not know the bytes of a frame: each read is one call
of the compiled module, which gives a batch for each partition. Invariants: a frame is acknowledged
when it and all before it are durable; behind a frame that is refused nothing is taken, and all
before it are acknowledged before the client hears of it; nothing is taken while too much waits for
the disk, or while the client does not read; whoever completes no frame for `idle_ms`, or reads
nothing for as long, is ended within twice that time; a client that leaves loses nothing that came
whole.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from headrace import limits, native
from headrace.errors import HeadraceError
from headrace.node.frame import refusals
from headrace.wire import frame
from headrace.wire.frame import ALL, Refusal
from headrace.wire.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.native import TakenFrames
    from headrace.node.frame.door import FrameDoor
    from headrace.node.frame.permit import Permit
    from headrace.node.partition import Partition
    from headrace.ports import Link
    from headrace.wire.frame import Opening

log = logging.getLogger(__name__)


class _Read:
    """What one read has brought, on its way to the disk."""

    __slots__ = ("failure", "futures", "taken", "waiting")

    def __init__(self, taken: TakenFrames) -> None:
        self.taken = taken
        self.futures: list[asyncio.Future[int]] = []
        self.waiting = 0
        self.failure: HeadraceError | None = None

    def acknowledgements(self) -> bytes:
        """For the frames that are durable, up to the first that is not; `failure` then says why."""
        bases: list[int | None] = []
        for future in self.futures:
            try:
                bases.append(future.result())
            except HeadraceError as error:
                self.failure = error
                break
        return self.taken.acknowledge(bases)[0]


class Producer:
    """The receiver of a link whose client produces."""

    __slots__ = (
        "_acks", "_at_end", "_counted_bytes", "_door", "_flushing", "_full", "_held", "_intake",
        "_link", "_may", "_moved", "_over", "_partition", "_reads", "_refusal", "_stream", "_timer",
        "_undurable_bytes",
    )  # fmt: skip

    def __init__(self, door: FrameDoor, link: Link, opening: Opening, may: Permit) -> None:
        self._door = door
        self._link = link
        self._may = may
        self._stream = opening.stream
        self._partition = opening.partition
        self._acks = opening.acks
        self._intake = native.FrameIntake(door.turn())
        self._held = b""  # while the disk or the client must catch up
        self._counted_bytes = 0  # of what is held, to the door's own
        self._undurable_bytes = 0
        self._reads: deque[_Read] = deque()
        self._refusal: Refusal | None = None  # told once all before it is answered
        self._flushing = False
        self._full = False
        self._at_end = False
        self._over = False
        self._moved = True  # a frame came, or the client read, since the last look
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    async def open(cls, door: FrameDoor, link: Link, opening: Opening, may: Permit) -> Producer:
        """Finds the stream.

        Raises:
            Refusal, UnknownStreamError: there is none, or no such partition.
        """
        producer = cls(door, link, opening, may)
        producer._partitions()
        return producer

    def begin(self) -> None:
        """Tells the client that it may go on."""
        partitions = self._partitions()
        members: dict[str, object] = {
            "stream": self._stream,
            "mode": "produce",
            "acks": "all" if self._acks == ALL else self._acks,
            "partitions": len(partitions),
            "partition": self._partition,
        }
        if self._partition is not None:
            members["start"], members["end"] = partitions[self._partition].bounds
        members["frame_bytes_max"] = _length_max(partitions[0])
        self._link.write(frame.accepted(members))
        self._door.producers += 1
        self._look_later()

    def received(self, data: bytes) -> None:
        """Bytes came in."""
        if self._over or self._refusal is not None:
            return
        self._held = self._held + data if self._held else data
        self._advance()

    def ended(self) -> bool:
        """The client sends no more, and is told what becomes of what it has sent."""
        self._at_end = True
        self._flush_soon()
        return True

    def writable(self, ready: bool) -> None:
        """The transport is full, or has room again."""
        self._full = not ready
        self._moved = True
        if ready:
            self._advance()

    def closed(self) -> None:
        """The link is gone."""
        if not self._over:
            if self._held and self._refusal is None:
                self._take()
            self._leave()
        self._intake = native.FrameIntake()
        self._held = b""
        self._count()

    def end_part(self) -> None:
        """Ends it: what it holds of a frame is needed for others."""
        text = (
            "frames that are not whole, of all connections, hold too much memory, and this one "
            "is the oldest; try again"
        )
        self._end(Refusal("memory", ErrorCode.THROTTLING_QUOTA_EXCEEDED, text))
        self._intake = native.FrameIntake()
        self._count()

    def _leave(self) -> None:
        self._over = True
        self._door.parts.forget(self)
        self._door.producers -= 1
        self._door.waiting.discard(self._advance)
        if self._timer is not None:
            self._timer.cancel()

    # Frames.

    def _advance(self) -> None:
        """Takes what has come, unless something must catch up."""
        if self._over or self._refusal is not None:
            return
        if self._held and self._may_take():
            self._take()
        self._count()
        for oldest in self._door.parts.hold(self, self._intake.kept_bytes):
            oldest.end_part()
        if self._may_take() and self._refusal is None:
            self._link.resume()
        else:
            self._link.pause()

    def _may_take(self) -> bool:
        if self._door.congested:
            self._door.waiting.add(self._advance)
            return False
        return not self._full and self._undurable_bytes < limits.FRAME_IN_FLIGHT_BYTES_MAX

    def _count(self) -> None:
        """Counts what is held to the door's own."""
        bytes_now = len(self._held) + self._intake.kept_bytes
        self._door.held_bytes += bytes_now - self._counted_bytes
        self._counted_bytes = bytes_now

    def _partitions(self) -> list[Partition]:
        """Those of the stream, as it is now.

        Raises:
            Refusal, UnknownStreamError: there is none, or not the one that was asked for.
        """
        partitions = self._door.broker.partitions(self._stream)
        if self._partition is not None and self._partition >= len(partitions):
            raise refusals.no_partition(self._stream, self._partition, len(partitions))
        return partitions

    def _take(self) -> None:
        """Takes the frames that have come, and queues them for the disk."""
        data, self._held = self._held, b""
        try:
            self._may.check()
            partitions = self._partitions()
        except Refusal as refusal:
            self._end(refusal)
            return
        except HeadraceError as error:
            self._end(refusals.of_error(error))
            return
        stream = partitions[0].stream
        settings = stream.settings
        wall_ms = self._door.broker.clock.wall_ms()
        taken = self._intake.receive(
            data,
            partitions=len(partitions),
            partition=self._partition,
            message_bytes_max=stream.message_bytes_max,
            needs_key=settings.compacts,
            codec=settings.codec or "none",
            wall_ms=wall_ms,
        )
        self._door.received_bytes += len(data)
        if taken.frames:
            self._door.received += taken.frames
            self._door.parts.forget(self)  # what follows is the beginning of another frame
            self._moved = True
            self._append(partitions, taken, wall_ms)
        if taken.fault is not None:
            self._end(Refusal(*taken.fault))

    def _append(self, partitions: list[Partition], taken: TakenFrames, wall_ms: int) -> None:
        read = _Read(taken)
        self._reads.append(read)
        for index, batch in taken.batches:
            try:
                future = partitions[index].append(batch, wall_ms)
            except HeadraceError as error:  # nothing behind it may be stored, or order is lost
                read.failure = error
                break
            read.futures.append(future)
            read.waiting += 1
            self._undurable_bytes += len(batch)
            self._door.appended(len(batch), future)
            future.add_done_callback(partial(self._durable, read, len(batch)))
        if read.failure is not None:
            self._end(refusals.of_error(read.failure))

    # Answers.

    def _durable(self, read: _Read, size_bytes: int, _: asyncio.Future[int]) -> None:
        read.waiting -= 1
        self._undurable_bytes -= size_bytes
        self._flush_soon()

    def _end(self, refusal: Refusal) -> None:
        """Takes nothing more; the client is told once what was taken is answered."""
        if self._refusal is None:
            self._refusal = refusal
            self._held = b""
            self._link.pause()
            self._flush_soon()

    def _flush_soon(self) -> None:
        """Answers once this iteration has heard of all that is durable."""
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        if self._over:
            return
        out: list[bytes] = []
        while self._reads and not self._reads[0].waiting:
            read = self._reads.popleft()
            out.append(read.acknowledgements())
            if read.failure is not None:  # what follows it is not acknowledged, stored or not
                self._refusal = refusals.of_error(read.failure)
                self._reads.clear()
        if self._acks:
            self._write(b"".join(out))
        self._advance()
        if not self._reads and not self._held:
            self._finish()

    def _finish(self) -> None:
        """Ends the connection, where all is answered and nothing more is to come."""
        if self._refusal is None and self._at_end and self._intake.kept_bytes:
            text = "the connection ended within a frame"
            self._refusal = Refusal("frame_cut_off", ErrorCode.INVALID_RECORD, text)
        if self._refusal is not None:
            self._door.refuse(self._refusal)
            extra = {"client": self._link.peer, "stream": self._stream}
            log.info("connection closed: %s", self._refusal, extra=extra)
            self._write(frame.ending_of_producer(self._refusal))
        if self._refusal is not None or self._at_end:
            self._leave()
            self._link.close()

    def _write(self, data: bytes) -> None:
        if data:
            self._link.write(data)

    # Time.

    def _look_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._door.settings.idle_ms / 1000, self._look)

    def _look(self) -> None:
        """Ends a connection on which nothing has moved since the last look."""
        waits = bool(self._reads or self._held) and not self._full  # for the disk
        if self._moved or waits:
            self._moved = False
            self._look_later()
            return
        idle_ms = self._door.settings.idle_ms
        refusal = refusals.slow(idle_ms) if self._full else refusals.idle(idle_ms)
        self._end(refusal)


def _length_max(partition: Partition) -> int:
    """The greatest length that a frame may say: with a batch's header it is `max.message.bytes`."""
    bytes_max = partition.stream.settings.max_message_bytes
    return max(bytes_max - limits.BATCH_HEADER_BYTES, 0)
