"""One consumer: the records of a partition from an offset on, and then what is appended.

Owns where it stands. Must not know the bytes of a frame. Invariants: nothing is read from the log
while the client does not take what it was sent; of all consumers one has a turn to read or send in
an iteration of the loop; where it stands is told once when it comes to the end, and then whenever
nothing was sent for `heartbeat_ms`; whoever takes nothing for `idle_ms` is ended.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from headrace import limits, native
from headrace.errors import HeadraceError, UnknownStreamError
from headrace.node.frame import refusals
from headrace.wire import frame
from headrace.wire.frame import At, Place, Refusal
from headrace.wire.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.native import FrameOutflow
    from headrace.node.frame.door import FrameDoor
    from headrace.node.frame.permit import Permit
    from headrace.node.partition import Partition
    from headrace.ports import Link
    from headrace.wire.frame import Opening

log = logging.getLogger(__name__)


class Consumer:
    """The receiver of a link whose client consumes."""

    __slots__ = (
        "_door", "_held_bytes", "_link", "_may", "_offset", "_over", "_partition", "_room",
        "_task", "_told", "_wake",
    )  # fmt: skip

    def __init__(
        self, door: FrameDoor, link: Link, may: Permit, partition: Partition, offset: int
    ) -> None:
        self._door = door
        self._link = link
        self._may = may
        self._partition = partition
        self._offset = offset
        self._held_bytes = 0
        self._over = False
        self._told = False  # that it has come to the end
        self._wake = asyncio.Event()  # the log has grown, or is gone
        self._room = asyncio.Event()  # the transport takes more
        self._room.set()
        self._task: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, door: FrameDoor, link: Link, opening: Opening, may: Permit) -> Consumer:
        """Finds the partition, and the offset where it begins.

        Raises:
            Refusal, UnknownStreamError: there is none.
            StorageError, UnavailableError: the disk does not tell the offset.
        """
        partitions = door.broker.partitions(opening.stream)
        index = opening.partition
        if index is None:
            if len(partitions) > 1:
                text = f"partition is missing: {opening.stream!r} has {len(partitions)}, from 0 on"
                raise Refusal("line_malformed", ErrorCode.INVALID_REQUEST, text)
            index = 0
        if index >= len(partitions):
            raise refusals.no_partition(opening.stream, index, len(partitions))
        partition = partitions[index]
        offset = await _place(partition, opening.offset)
        start, end = partition.bounds
        if not start <= offset <= end:
            raise refusals.out_of_range(partition, offset)
        return cls(door, link, may, partition, offset)

    def begin(self) -> None:
        """Tells the client where it stands, and begins to serve it."""
        start, end = self._partition.bounds
        stream = self._partition.stream
        members = {
            "stream": stream.definition.name,
            "mode": "consume",
            "partitions": len(stream.partitions),
            "partition": self._partition.index,
            "start": start,
            "end": end,
            "offset": self._offset,
            "heartbeat_ms": self._door.settings.heartbeat_ms,
        }
        self._link.write(frame.accepted(members))
        self._door.consumers += 1
        self._task = asyncio.get_running_loop().create_task(self._run())

    def received(self, data: bytes) -> None:
        """Bytes came in, of which none are expected."""
        del data
        text = "a consumer sends nothing behind its first line"
        self._end(Refusal("consumer_sent", ErrorCode.INVALID_REQUEST, text))

    def ended(self) -> bool:
        """The client has left: nobody tells one that only sends no more from one that is gone."""
        return False

    def writable(self, ready: bool) -> None:
        """The transport is full, or has room again."""
        if ready:
            self._door.unread.forget(self)
            self._room.set()
        else:
            self._room.clear()

    def closed(self) -> None:
        """The link is gone."""
        self._leave()

    def _leave(self) -> None:
        if not self._over:
            self._over = True
            self._door.consumers -= 1
            self._door.unread.forget(self)
            self._hold(0)
            # A cancelled task keeps where it was, and so what was read: nobody keeps the task.
            task, self._task = self._task, None
            if task is not None:
                task.cancel()

    def _end(self, refusal: Refusal) -> None:
        if self._over:
            return
        self._door.refuse(refusal)
        extra = {"client": self._link.peer, "stream": self._partition.stream.definition.name}
        log.info("connection closed: %s", refusal, extra=extra)
        self._link.write(frame.ending_of_consumer(refusal))
        self._link.close()
        self._leave()

    def end_slow(self) -> None:
        """Ends it: what it has not read is needed for others."""
        text = "it has read nothing for longest, of all that hold too much memory; try again"
        self._end(Refusal("memory", ErrorCode.THROTTLING_QUOTA_EXCEEDED, text))
        self._link.abort()

    # Serving.

    async def _run(self) -> None:
        self._partition.watch(self._wake.set)
        try:
            while True:
                await self._step()
        except Refusal as refusal:
            self._end(refusal)
        except HeadraceError as error:
            self._end(refusals.of_error(error))
        except Exception:  # a bug must cost one connection, not the node
            log.exception("a consumer failed", extra={"client": self._link.peer})
            self._end(refusals.of_bug())
        finally:
            self._partition.unwatch(self._wake.set)

    async def _step(self) -> None:
        """Sends what there is, or waits until there is something.

        Raises:
            Refusal, HeadraceError: the connection ends.
        """
        await self._has_room()
        self._may.check()
        self._wake.clear()
        if not self._partition.is_served:
            name = self._partition.stream.definition.name
            raise UnknownStreamError(f"stream {name!r} was deleted")
        start, end = self._partition.bounds
        if not start <= self._offset <= end:  # trimmed beyond it
            raise refusals.out_of_range(self._partition, self._offset)
        if self._offset == end:
            await self._wait()
            return
        await self._turn()
        try:
            batches = await self._partition.read(self._offset, limits.FRAME_READ_BYTES)
        except ValueError:  # trimmed or deleted meanwhile, as its bounds tell
            await asyncio.sleep(0)
            return
        try:
            await self._send(native.FrameOutflow(batches, self._offset))
        finally:
            self._hold(0)

    async def _wait(self) -> None:
        """Sleeps until the log grows, and tells where the client stands."""
        if not self._told:
            self._told = True
            self._link.write(frame.mark(self._offset))
        try:
            async with asyncio.timeout(self._door.settings.heartbeat_ms / 1000):
                await self._wake.wait()
        except TimeoutError:
            self._link.write(frame.mark(self._offset))

    async def _send(self, flow: FrameOutflow) -> None:
        """Sends frames as fast as the client takes them."""
        begun, sent = self._offset, 0
        while frames := await self._written(flow):
            self._link.write(frames)
            if not self._room.is_set():
                for slowest in self._door.unread.add(self, len(frames)):
                    slowest.end_slow()
            self._door.sent_bytes += len(frames)
            self._door.sent += flow.frames - sent
            self._offset, sent = flow.next_offset, flow.frames
            self._hold(flow.held_bytes)
            if self._door.crowded:
                return  # what is left is read again
            await self._door.turns.next()
            await self._has_room()
            self._may.check()
        self._offset = flow.next_offset
        assert self._offset > begun, "a read brings a whole batch at least"

    async def _turn(self) -> None:
        """Waits for the turn of this consumer, where others want one, too."""
        if self._door.turns.is_free:
            self._door.turns.take()
        else:
            await self._door.turns.next()

    async def _written(self, flow: FrameOutflow) -> bytes:
        """The next frames; found beside the loop where it takes long."""
        bytes_max = limits.WRITE_CREDIT_BYTES
        if not flow.is_slow:
            return flow.write(bytes_max)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._door.decoders, flow.write, bytes_max)

    async def _has_room(self) -> None:
        """Waits until the client has taken what it was sent.

        Raises:
            Refusal: it does not.
        """
        if self._room.is_set():
            return
        idle_ms = self._door.settings.idle_ms
        try:
            async with asyncio.timeout(idle_ms / 1000):
                await self._room.wait()
        except TimeoutError:
            raise refusals.slow(idle_ms) from None

    def _hold(self, held_bytes: int) -> None:
        self._door.held_bytes += held_bytes - self._held_bytes
        self._held_bytes = held_bytes


async def _place(partition: Partition, offset: int | Place | At | None) -> int:
    """The number of an offset.

    Raises:
        StorageError, UnavailableError: the disk does not tell it.
    """
    start, end = partition.bounds
    if isinstance(offset, At):
        found = await partition.offset_for_time(offset.timestamp)
        return end if found is None else found[0]
    if isinstance(offset, Place):
        return start if offset is Place.EARLIEST else end
    assert offset is not None, "whoever consumes has said where"
    return offset
