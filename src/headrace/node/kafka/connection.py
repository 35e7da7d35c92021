"""One Kafka connection: frames in, responses out in the order of their requests.

Owns the order and the bounds of one connection; what a request does is the door's. Must not know
any request but for one fact: produce requests may overlap, since they take their places in the log
one after the other and only what follows, durability, is waited for together. Any other request
begins when all before it have ended. Invariants: at most `KAFKA_PIPELINE_MAX` requests are in work,
`KAFKA_BEHIND_MAX` where one of them lets no other overlap, no long one has been read that waits for
others, and `KAFKA_PART_BYTES` at most are read behind one that waits for other clients, or for its
own to read; the first that a read of the socket brings begins at once, the others in turns with
those of all connections; a connection that reads its responses too slowly begins nothing new; no
batch is taken in while too many wait for the disk;
one that sends nothing for a whole `idle_ms`, or reads nothing, is ended, within twice that time;
one beyond a quota is read no further for a time; what it leaves unread counts to the door's bound;
closing it cancels what waits, but nothing that came whole and is to be stored: a client that asks
for no answer may leave as soon as it has sent.
"""

from __future__ import annotations

import asyncio
import logging
from contextvars import Context
from typing import TYPE_CHECKING, Any, TypeVar

from headrace import limits
from headrace.errors import MalformedError
from headrace.kernel.groups.owners import owner_of
from headrace.kernel.quotas import Rate
from headrace.node.kafka.pace import begin, turns
from headrace.node.kafka.pipeline import Pipeline, end_of
from headrace.node.kafka.proof import Proof
from headrace.node.kafka.taken import Taken, is_produce, taken
from headrace.wire.kafka.apis import FETCH, PRODUCE
from headrace.wire.kafka.codec import TooManyError
from headrace.wire.kafka.frames import Framer, Request, decode_counted, encode_response

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.model import Address
    from headrace.node.kafka.door import KafkaDoor
    from headrace.ports import Link

T = TypeVar("T")

log = logging.getLogger(__name__)


class HangUp(Exception):  # noqa: N818 - an instruction, not an error
    """A handler ends the connection; `reason` becomes a metric label."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class KafkaConnection:
    """The receiver of one link.

    Attributes:
        local: the address that the client reached, which metadata names.
        secure: whether it came over TLS.
        host, identity: as `ports.Link` says.
        proof: who the client has proved to be.
        hurry: called when a request comes behind the one in work, which need not wait longer.
    """

    __slots__ = (
        "_appender", "_appending", "_begins", "_begins_left", "_decodes_produce", "_decoding",
        "_door", "_frame", "_framer", "_held_bytes", "_idle", "_leaves", "_link", "_memory",
        "_moved", "_muted", "_next", "_open", "_pipeline", "_room", "_turn", "_work_bytes",
        "host", "hurry", "identity", "local", "proof", "secure",
    )  # fmt: skip

    def __init__(self, door: KafkaDoor, link: Link) -> None:
        self.local: Address = link.local
        self.secure = link.secure
        self.host, self.identity = link.host, link.identity
        self.proof = Proof()
        self.hurry: Callable[[], None] | None = None
        self._door = door
        self._memory = door.memory
        self._link = link
        self._appending = asyncio.Lock()
        self._appender: asyncio.Task[None] | None = None  # who holds it
        self._framer = Framer(limits.KAFKA_REQUEST_BYTES_MAX)
        self._frame: bytes | None = None  # that is whole, while it waits for its turn
        self._turn: asyncio.Future[None] | None = None  # which it waits for
        self._begins = 0  # so many before it waits for a turn
        self._held_bytes = 0
        self._work_bytes = 0  # of those, what counts to `Memory.work_bytes`
        self._open = True
        self._leaves = False  # while batches of a client that has left are to be begun
        self._begins_left = 0  # how many of those
        self._pipeline = Pipeline()
        self._next: Taken | None = None  # while it waits for disk, quota or transport
        self._decoding: asyncio.Task[None] | None = None  # of a long one
        self._decodes_produce = False
        self._room: asyncio.Event | None = None  # while the transport is full
        self._muted: asyncio.TimerHandle | None = None  # while it is beyond a quota
        self._moved = False  # since the last look
        self._idle = self._look_later()

    @property
    def owner(self) -> str:
        """To whom the groups count that it makes."""
        return owner_of(self.proof.username or self.identity, self.host)

    def received(self, data: bytes) -> None:
        """Bytes came in."""
        if not self._open:
            return
        self._moved = True
        self._begins = max(self._begins, 1)
        self._framer.feed(data)
        self._hold(len(data))
        self.advance()

    def ended(self) -> bool:
        """The client has left."""
        return False

    def writable(self, ready: bool) -> None:
        """The transport is full, or has room again."""
        if not ready:
            self._room = asyncio.Event()
        elif self._room is not None:
            self._moved = True
            self._door.unread.forget(self)
            self._room.set()
            self._room = None
            self._count_work()
            self.advance()

    def end_slow(self) -> None:
        """Ends it: what it has not read is needed for others."""
        self._hang_up("slow", "it has read nothing for longest, of all that hold too much memory")
        self._link.abort()

    def closed(self) -> None:
        """The link is gone: nobody waits for an answer any more."""
        if self._next is not None and self._next.request.api is not PRODUCE:
            self._hold(-self._next.held_bytes)
            self._next = None
        was_open, self._open, self._leaves, self._room = self._open, False, True, None
        self._begins_left = limits.KAFKA_PIPELINE_MAX - len(self._pipeline)
        if not was_open or self._muted is not None or self._memory.is_crowded:
            self._give_up()
        self._idle.cancel()
        if self._muted is not None:
            self._muted.cancel()
        if self._decoding is not None and not self._decodes_produce:
            self._decoding.cancel()
            self._decoding = None
        self._memory.parts.forget(self)
        self._door.unread.forget(self)
        self._door.waiting.discard(self)
        self._memory.short.discard(self.advance)
        self._pipeline.cancel()
        self.advance()

    def advance(self) -> None:
        """Begins the requests that are whole, as far as the bounds allow."""
        try:
            while self._may_begin() and (whole := self._take()) is not None:
                self._begin(whole)
        except MalformedError as error:
            self._hang_up("malformed", f"malformed request: {error}")
        if self._leaves and not self._works:
            self._give_up()
        if not self._open:
            return
        works = self._works or self._muted is not None
        part_bytes = 0 if works else self._held_bytes
        if self._pipeline.holds_up(is_unread=self._is_unread):
            part_bytes = self._held_bytes - self._pipeline.ahead_bytes(is_unread=self._is_unread)
        for oldest in self._memory.parts.hold(self, part_bytes):
            oldest.end_part()
        is_behind = works and part_bytes > limits.KAFKA_PART_BYTES
        if is_behind and self.hurry is not None:
            self.hurry()
        if is_behind or self._is_stopped(works=works):
            self._link.pause()
        else:
            self._link.resume()

    def _give_up(self) -> None:
        """Of a client that has left nothing more is begun."""
        if self._leaves:
            self._leaves = False
            self._hold(-self._held_bytes)

    def _is_stopped(self, *, works: bool) -> bool:
        """Whether nothing more is to be read for the moment."""
        if self._memory.is_crowded and (works or self._held_bytes > limits.KAFKA_PART_BYTES):
            self._memory.short.add(self.advance)
            self._memory.hurry()
            return True
        return self._next is not None or not self._may_begin()

    @property
    def is_waited_for(self) -> bool:
        """Whether others wait for the request in work: one behind it, or who needs its memory."""
        behind = self._decoding is not None or self._pipeline.last is not asyncio.current_task()
        return behind or self._memory.is_busy or self._memory.is_crowded

    def _look_later(self) -> asyncio.TimerHandle:
        loop = asyncio.get_running_loop()
        return loop.call_later(self._door.settings.idle_ms / 1000, self._look)

    def _look(self) -> None:
        """Ends a connection that since the last look has sent nothing and waits for nothing.

        So does one that reads nothing of what it was sent.
        """
        waits = (self._works or self._muted is not None) and self._room is None
        if self._moved or waits:
            self._moved = False
            self._idle = self._look_later()
        elif self._room is None:
            self._hang_up("idle", "it has sent nothing for too long")
        else:
            self._hang_up("slow", "it has read nothing for too long")
            self._link.abort()

    def end_part(self) -> None:
        """Ends it: what it holds of a request is needed for others."""
        self._hang_up("memory", "unfinished requests of all hold too much, and its own is oldest")
        self._link.abort()

    def _hold(self, held_bytes: int) -> None:
        self._held_bytes += held_bytes
        self._memory.hold(held_bytes)

    def _may_begin(self) -> bool:
        waits = self._muted or self._decoding or self._turn or self._room
        is_free = waits is None and (self._open or self._leaves)
        has_memory = not (self._pipeline and self._memory.is_crowded)  # its own work will make room
        return is_free and has_memory and self._pipeline.has_room

    @property
    def _is_unread(self) -> bool:
        """Whether the client does not read what it was sent."""
        return self._room is not None

    @property
    def _works(self) -> bool:
        """Whether requests are in work, or whole and on the way there."""
        is_coming = self._frame is not None or self._next is not None or self._decoding is not None
        return bool(self._pipeline) or is_coming

    def _take(self) -> Taken | None:
        """The next whole request and what it holds, unless it must wait for the disk or a quota."""
        if self._next is None and (frame := self._cut()) is not None:
            most = limits.KAFKA_ELEMENTS_FEW
            if turns().is_free:
                most = limits.KAFKA_ELEMENTS_AT_ONCE
            try:
                if self._decoded(frame, *decode_counted(frame, most)).is_long:
                    turns().take()
            except TooManyError:
                if self.hurry is not None:
                    self.hurry()
                self._decodes_produce = is_produce(frame)
                self._decoding = asyncio.get_running_loop().create_task(self._decode(frame))
        if self._next is not None and self._next.request.api is PRODUCE and self._door.congested:
            if self._open:
                self._door.waiting.add(self)
            self._give_up()
            return None
        if self._next is not None and (owed_ms := self._door.owed(self, self._next.request)):
            self._mute(owed_ms)
            self._give_up()
            return None
        whole, self._next = self._next, None
        return whole

    def _cut(self) -> bytes | None:
        """The next whole request as it came, if it need not wait for its turn."""
        if self._frame is None:
            self._frame = self._framer.take()
        while not self._open and self._frame is not None and not is_produce(self._frame):
            self._frame = self._framer.take()
        if not self._open and self._begins_left == 0:
            self._give_up()
            return None
        if self._frame is None:
            self._begins = 0
            return None
        if self._begins == 0 and self._door.beginnings.is_free:
            self._door.beginnings.take()
            self._begins = limits.KAFKA_BEGUN_IN_TURN
        if self._begins == 0:
            self._turn = self._door.beginnings.ask()
            self._turn.add_done_callback(self._turn_came)
            return None
        self._begins -= 1
        self._begins_left -= not self._open
        frame, self._frame = self._frame, None
        return frame

    def _turn_came(self, _: asyncio.Future[None]) -> None:
        self._turn = None
        self._begins = limits.KAFKA_BEGUN_IN_TURN
        self.advance()

    def _decoded(self, frame: bytes, request: Request, elements: int) -> Taken:
        self._next = whole = taken(frame, request, elements)
        if self._open or self._leaves:
            self._hold(whole.in_memory_bytes)
        return whole

    async def _decode(self, frame: bytes) -> None:
        """Reads a long request in its turn, a large one beside the loop, and begins it.

        Not before those end that it would wait for: it is larger when it has been read.
        """
        try:
            await end_of(self._pipeline.before(overlaps=self._decodes_produce))
            async with self._memory.reading:
                await self._memory.has_room()
                await turns().next()
                try:
                    decoded = decode_counted(frame, limits.KAFKA_ELEMENTS_AT_ONCE)
                except TooManyError:
                    decoded = await self._beside(decode_counted, frame, self._door.elements_max)
                whole = self._decoded(frame, *decoded)
                self._decoding = None
                if not self._open:  # its client may leave as soon as it has sent
                    self._next = None
                    self._begin(whole)
                self.advance()
        except MalformedError as error:
            self._hang_up("malformed", f"malformed request: {error}")
        except Exception:  # a bug must cost one connection, not the node
            log.exception("a request could not be read", extra={"client": self._link.peer})
            self._hang_up("bug", "a request could not be read")
        finally:
            if self._decoding is asyncio.current_task():
                self._decoding = None

    async def _beside(self, work: Callable[..., T], *arguments: Any) -> T:  # noqa: ANN401
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._door.scribe, work, *arguments)

    def _begin(self, whole: Taken) -> None:
        before = self._pipeline.before(overlaps=whole.overlaps)
        serve = self._serve(whole, before, self._pipeline.last)
        # What begins it may be the end of another request, and that one's context is not its own.
        task = asyncio.get_running_loop().create_task(serve, context=Context())
        task.add_done_callback(self._ended)
        self._pipeline.begin(task, whole.held_bytes, overlaps=whole.overlaps, waits=whole.waits)
        self._count_work()
        if self.hurry is not None:
            self.hurry()

    async def _serve(
        self,
        whole: Taken,
        before: asyncio.Task[None] | None,
        last: asyncio.Task[None] | None,
    ) -> None:
        """Answers a request once `before` has ended; writes the response after that of `last`."""
        request = whole.request
        try:
            if request.api is PRODUCE:  # at once, while tasks are in the order of their requests
                await self._appending.acquire()
                self._appender = asyncio.current_task()
            await end_of(before)
            while self._room is not None and request.api is not PRODUCE:
                await self._room.wait()
            throttle_ms = self._charge(request, whole.size_bytes)
            if whole.is_long:
                await begin()
            body = await self._door.answer(self, request)
            await end_of(last)
            if body is not None and self._open:
                self._write(await self._response(whole, body, throttle_ms))
        except HangUp as order:
            self._hang_up(order.reason, str(order))
        except Exception:  # a bug must cost one connection, not the node
            log.exception("%s failed", request.api.name, extra={"client": self._link.peer})
            self._hang_up("bug", f"{request.api.name} failed")
        finally:
            self.appended()

    def appended(self) -> None:
        """The produce request of this task has its places in the log: the next may begin."""
        if self._appender is asyncio.current_task():
            self._appender = None
            self._appending.release()

    def _write(self, frame: list[bytes]) -> None:
        self._link.write_all(frame)
        if self._room is not None and self._open:
            for slowest in self._door.unread.add(self, sum(map(len, frame))):
                slowest.end_slow()

    def _charge(self, request: Request, size_bytes: int) -> int:
        """Charges quotas for a request, and mutes the connection that is beyond one; how long."""
        throttle_ms = self._door.charge(self, request, Rate.REQUESTS, 1)
        if request.api is PRODUCE:
            of_bytes_ms = self._door.charge(self, request, Rate.PRODUCED, size_bytes)
            throttle_ms = max(throttle_ms, of_bytes_ms)
        self._mute(throttle_ms)
        return throttle_ms

    async def _response(self, whole: Taken, body: Any, throttle_ms: int) -> list[bytes]:  # noqa: ANN401
        """The frame of a response; says for how long the client need not ask again (KIP-219)."""
        request = whole.request
        frame = await self._encoded(whole, body)
        if request.api is FETCH:
            of_bytes_ms = self._door.charge(self, request, Rate.FETCHED, sum(map(len, frame)))
            self._mute(of_bytes_ms)
            throttle_ms = max(throttle_ms, of_bytes_ms)
        if throttle_ms and hasattr(body, "throttle_time_ms"):
            body.throttle_time_ms = throttle_ms
            frame = await self._encoded(whole, body)
        return frame

    async def _encoded(self, whole: Taken, body: Any) -> list[bytes]:  # noqa: ANN401
        if whole.is_large:
            return await self._beside(encode_response, whole.request, body)
        if whole.is_long:
            await turns().next()
        return encode_response(whole.request, body)

    def _mute(self, throttle_ms: int) -> None:
        """Begins nothing new for a time; what is in work goes on."""
        loop = asyncio.get_running_loop()
        until = loop.time() + throttle_ms / 1000
        if not throttle_ms or not self._open:
            return
        if self._muted is not None:
            until = max(until, self._muted.when())
            self._muted.cancel()
        self._muted = loop.call_at(until, self._unmute)

    def _unmute(self) -> None:
        self._muted = None
        self.advance()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._free(self._pipeline.end(task))
        self.advance()

    def let_go(self) -> None:
        """The request of this task holds nothing while it waits for others: who keeps it counts."""
        self._free(self._pipeline.let_go(asyncio.current_task()))

    def _free(self, held_bytes: int) -> None:
        self._count_work()
        if self._open or self._leaves:
            self._hold(-held_bytes)

    def _count_work(self) -> None:
        """What comes behind a request that may wait for others is no work: it may wait as long."""
        ahead_bytes = self._pipeline.ahead_bytes(is_unread=self._is_unread)
        more_bytes = ahead_bytes - self._work_bytes
        self._work_bytes += more_bytes
        self._memory.work(more_bytes)

    def _hang_up(self, reason: str, message: str) -> None:
        self._give_up()
        if self._open:
            self._open = False
            self._door.hung_up[reason] += 1
            log.info("connection closed: %s", message, extra={"client": self._link.peer})
            self._link.close()
