"""Performs effects, in one order, once per loop iteration.

Every door feeds machines and calls `wake`; the runner then collects what is due once, after all
sockets of this iteration were read: appends first and on their way to the disk, then writes, then
pauses, decisions and closes. What the disk has done comes back through one descriptor.

Decides nothing. Invariants: a ticket ends exactly once; bytes of one connection leave in the
order in which the switchboard gave them; a fault here, which loses effects and so acknowledgements,
is a failure of the node and not a line in its log.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from headrace import limits
from headrace.errors import HeadraceError, StorageError, StorageFullError, UnavailableError
from headrace.kernel.damage import FailedReads
from headrace.node.refusals import FAILURE, QUEUE_FULL, QUOTA_EXCEEDED, refused

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from headrace.native import (
        Buffer,
        Completion,
        ConnectRequest,
        Effects,
        ReadEnd,
        StreamRequest,
        Switchboard,
    )
    from headrace.node.partition import Partition
    from headrace.ports import Clock, Link, Store

log = logging.getLogger(__name__)

T = TypeVar("T")


class _Inflight(NamedTuple):
    """One append that the disk has not answered; of the switchboard's, without a future.

    `messages` are those that it brings to a queue.
    """

    partition: Partition
    size_bytes: int
    base_offset: int
    future: asyncio.Future[int] | None = None
    messages: int = 0


class Runner:
    """The effect runner of one node.

    Attributes:
        links: open MQTT connections by number; the gateway keeps it.
        decide: asked of each client that connects or authenticates; answers the switchboard.
        place: asked where a subscription to streams begins; answers the switchboard.
        pulls: pulls from queues that wait.
        end_pulls: called once per loop iteration while there are any; answers those that have
            ended.
        hear_queues: called with what queues want of the node, and tell.
        read_streams: called once per loop iteration, last, with both clocks; reads what MQTT
            clients of streams have room for, and says whether there was any.
        partitions: by `(stream id, index)`; the broker keeps it.
        on_grown: called whenever `UNKEPT_CHECK_BYTES` have been appended.
        persist: called once per loop iteration, after the appends of publishes.
        on_failure: called with the reason once the store has failed, whoever met that, or on a
            fault here; maybe more than once.
        on_full: called with the reason when the disk is nearly full, with None once it is not.
        before_batch: called before each iteration's work, by tests.
        full: what `on_full` was called with last.
    """

    def __init__(
        self,
        clock: Clock,
        switchboard: Switchboard,
        store: Store,
        on_failure: Callable[[str], None],
        on_full: Callable[[str | None], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._clock = clock
        self._switchboard = switchboard
        self._store = store
        self.on_failure = on_failure
        self.on_full = on_full
        self.on_grown: Callable[[], None] = lambda: None
        self.before_batch: Callable[[], None] | None = None
        self.persist: Callable[[int, int], None] = lambda _mono_ms, _wall_ms: None
        self.links: dict[int, Link] = {}
        self.decide: Callable[[ConnectRequest, Link], None]
        self.place: Callable[[StreamRequest], None]
        self.hear_queues: Callable[[Effects], None] = lambda _effects: None
        self.pulls: Collection[object] = ()
        self.end_pulls: Callable[[], None] = lambda: None
        self.read_streams: Callable[[int, int], bool] = lambda _mono_ms, _wall_ms: False
        self.partitions: dict[tuple[int, int], Partition] = {}
        self._inflight: dict[int, _Inflight] = {}
        self._reads: dict[int, tuple[Partition, asyncio.Future[Any]]] = {}
        self.failed_reads = FailedReads()
        self._publishes: dict[int, tuple[asyncio.Future[int], int]] = {}  # and their bytes
        self._publishes_bytes = 0
        self.full: str | None = None
        self._leftovers: str | None = None
        self._idle: asyncio.Future[None] | None = None
        self._ticket = 0
        self._request = 0
        self._appended_bytes = 0  # since `on_grown` was called
        self._scheduled = False
        self._queued = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0
        self._wake_at: int | None = None
        self._fd = store.notify_fd()
        self._loop.add_reader(self._fd, self._guarded, self._completed)

    def wake(self) -> None:
        """Collects once this loop iteration's input is in."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._run)

    def append(self, partition: Partition, batches: bytes, wall_ms: int) -> asyncio.Future[int]:
        """Queues batches; the future is their base offset once durable, or `UnavailableError`.

        Raises:
            StorageError, StorageFullError, OutOfOrderSequenceError, StaleProducerEpochError,
            QueueFullError: nothing is queued.
        """
        queue = partition.stream.definition.queue is not None
        taken = self._take_room(partition, batches) if queue else 0
        self._ticket += 2
        try:
            appended = self._store.append(partition.log, batches, self._ticket, wall_ms)
        except HeadraceError:
            self._give_room(partition, taken, len(batches))
            raise
        future: asyncio.Future[int] = self._loop.create_future()
        self._appending(
            self._ticket, _Inflight(partition, len(batches), appended.base_offset, future, taken)
        )
        self.wake()
        return future

    def _take_room(self, partition: Partition, batches: bytes) -> int:
        """How many messages batches bring to a queue.

        Raises:
            QueueFullError: it has no room for them.
        """
        messages = self._switchboard.queue_takes(partition.stream.definition.id, batches)
        if messages is None:
            raise refused(QUEUE_FULL)
        return messages

    def _give_room(self, partition: Partition, messages: int, size_bytes: int) -> None:
        if messages:
            stream = partition.stream.definition.id
            self._switchboard.queue_took(stream, messages, size_bytes)

    def begin_read(
        self, partition: Partition, offset: int, max_bytes: int
    ) -> Buffer | asyncio.Future[Buffer]:
        """As `Partition.begin_read`."""
        ticket = self._read_ticket()
        try:
            batches = self._store.fetch(partition.log, offset, max_bytes, ticket)
        except StorageError as error:
            self._tell(partition, error)
            raise
        return self._read_end(partition, ticket) if batches is None else batches

    async def offset_for_time(
        self, partition: Partition, timestamp_ms: int
    ) -> tuple[int, int] | None:
        """As `Partition.offset_for_time`."""
        ticket = self._read_ticket()
        self._store.seek(partition.log, timestamp_ms, ticket)
        found: tuple[int, int] | None = await self._read_end(partition, ticket)
        return found

    @property
    def is_crowded(self) -> bool:
        """Whether so many reads wait that nobody should begin several."""
        return len(self._reads) >= limits.READS_MAX // 2

    def _read_ticket(self) -> int:
        if len(self._reads) >= limits.READS_MAX:
            raise UnavailableError("too many reads wait for the disk; try again")
        self._ticket += 2
        return self._ticket

    def _read_end(self, partition: Partition, ticket: int) -> asyncio.Future[Any]:
        future = self._loop.create_future()
        self._reads[ticket] = partition, future
        future.add_done_callback(partial(self._read_ended, ticket))
        return future

    def _read_ended(self, ticket: int, future: asyncio.Future[Any]) -> None:
        del self._reads[ticket]
        if future.cancelled():
            self._store.cancel_read(ticket)

    def publish(
        self,
        topic: str,
        payload: bytes,
        qos: int,
        properties: list[tuple[str, str]],
        *,
        retain: bool = False,
    ) -> asyncio.Future[int]:
        """Publishes from another door; the future is how many streams hold it durably.

        It ends in `StaleEpochError`, `MessageTooLargeError`, `RetainedLimitError`,
        `UnknownStreamError`, `StorageFullError` or `UnavailableError` where it is not stored.

        Raises:
            ValueError: the topic is no topic name, or what a queue should take it does not.
            UnavailableError: too many wait.
        """
        is_full = self._publishes_bytes >= limits.HTTP_PUBLISHES_BYTES_MAX
        if is_full or len(self._publishes) >= limits.HTTP_PUBLISHES_MAX:
            raise UnavailableError("too many messages wait for the disk; try again")
        self._request += 1
        self._switchboard.publish(
            topic, payload, qos, retain, properties, self._request,
            *self._clock.now(),
        )  # fmt: skip
        return self._awaited(self._request, len(payload))

    def administer(self, ask: Callable[[int, int, int], T]) -> tuple[T, asyncio.Future[int]]:
        """Asks the switchboard for something that changes what lasts, with a request and the time.

        The future ends once what it answered is durable, with errors as `publish`.

        Raises:
            ValueError: what `ask` raises; then nothing has changed.
        """
        request = self._request + 1
        answer = ask(request, *self._clock.now())
        self._request = request
        return answer, self._awaited(request, 0)

    def _awaited(self, request: int, size_bytes: int) -> asyncio.Future[int]:
        future: asyncio.Future[int] = self._loop.create_future()
        self._publishes[request] = future, size_bytes
        self._publishes_bytes += size_bytes
        self.wake()
        return future

    def told_offset(self, partition: Partition) -> int:
        """As `Partition.told_offset`."""
        waiting = (each for each in self._inflight.values() if each.partition is partition)
        return min((each.base_offset for each in waiting), default=partition.high_watermark)

    def stop_reading(self) -> None:
        """Reads nothing more for MQTT clients of streams: who drains would have no end."""
        self.read_streams = lambda _mono_ms, _wall_ms: False

    async def quiet(self) -> None:
        """Waits until nothing is on its way to the disk and all acknowledgements were written."""
        while self._scheduled or self._queued or self._inflight:
            self._idle = self._loop.create_future()
            await self._idle

    def close(self) -> None:
        """Stops listening to the disk and the clock."""
        self._loop.remove_reader(self._fd)
        if self._timer is not None:
            self._timer.cancel()

    def _guarded(self, step: Callable[[], None]) -> None:
        try:
            step()
        except BaseException as error:  # a panic of the compiled module is no Exception
            self._faulted(error)
            raise  # the loop logs it

    def _faulted(self, error: BaseException) -> None:
        self.on_failure(f"a fault of the node: {error!r}")

    def _run(self) -> None:
        """One turn.

        It guards itself and calls a step only where there is something for it to do: a message that
        comes alone waits for all of this.
        """
        try:
            if self.before_batch is not None:
                self.before_batch()
            self._scheduled = False
            mono_ms, wall_ms = self._clock.now()
            effects = self._switchboard.collect(mono_ms, wall_ms)
            if effects is not None and (appends := effects.appends):
                self._append_all(appends, mono_ms, wall_ms)
            self.persist(mono_ms, wall_ms)
            if self._queued:
                self._queued = False
                self._store.submit()
            if effects is not None:
                self._perform(effects)
            if self._publishes:
                self._end_publishes()
            if self.pulls:
                self.end_pulls()
            if self.read_streams(mono_ms, wall_ms):
                self.wake()
            self._arm(mono_ms)
            if self._idle is not None and not self._idle.done():
                self._idle.set_result(None)
        except BaseException as error:  # as in `_guarded`
            self._faulted(error)
            raise

    def _append_all(
        self, appends: list[tuple[int, int, bytes, int]], mono_ms: int, wall_ms: int
    ) -> None:
        for stream, index, batch, ticket in appends:
            partition = self.partitions.get((stream, index))
            if partition is None:  # deleted while the message was on its way
                self._refuse(ticket, FAILURE, mono_ms, wall_ms)
                continue
            self.append_own(partition, batch, ticket, mono_ms, wall_ms)

    def append_own(
        self, partition: Partition, batch: bytes, ticket: int, mono_ms: int, wall_ms: int
    ) -> int | None:
        """Queues a batch of the switchboard; its base offset, or None where the store refuses it.

        The switchboard hears the end of the ticket.
        """
        try:
            appended = self._store.append(partition.log, batch, ticket, wall_ms)
        except StorageFullError:
            self._refuse(ticket, QUOTA_EXCEEDED, mono_ms, wall_ms)
            return None
        except StorageError:  # which `look_at_store` tells
            self._refuse(ticket, FAILURE, mono_ms, wall_ms)
            return None
        base_offset = appended.base_offset
        self._appending(ticket, _Inflight(partition, len(batch), base_offset))
        return base_offset

    def _appending(self, ticket: int, inflight: _Inflight) -> None:
        self._queued = True
        self._inflight[ticket] = inflight
        self._appended_bytes += inflight.size_bytes
        inflight.partition.queued_bytes += inflight.size_bytes
        inflight.partition.unkept_bytes += inflight.size_bytes

    def _refuse(self, ticket: int, reason_code: int, mono_ms: int, wall_ms: int) -> None:
        """Tells the switchboard that what it gave the ticket is not stored."""
        self._switchboard.durable(ticket, reason_code, mono_ms, wall_ms)
        self.wake()

    def _perform(self, effects: Effects) -> None:
        links = self.links
        for connection, data in effects.writes:
            if isinstance(data, bytes):
                links[connection].write(data)
            else:
                links[connection].write_all(data)
        for connection, reading in effects.reads:
            (links[connection].resume if reading else links[connection].pause)()
        for request in effects.decisions:
            self.decide(request, links[request.connection])
        for asked in effects.streams:
            self.place(asked)
        if effects.dead_letters or effects.lost:
            self.hear_queues(effects)
        for connection, reason in effects.closes:
            log.debug("connection closed: %s", reason, extra={"client": links[connection].peer})
            links[connection].close()
        self._wake_at = effects.wake_at

    def _arm(self, mono_ms: int) -> None:
        """Sets the one timer, unless it fires soon enough: most deadlines only ever move away."""
        if self._wake_at is None or (self._timer is not None and self._timer_at <= self._wake_at):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = self._wake_at
        self._timer = self._loop.call_later(
            max(self._wake_at - mono_ms, 0) / 1000, self._guarded, self._tick
        )

    def _tick(self) -> None:
        self._timer = None
        self._switchboard.tick(*self._clock.now())
        self.wake()

    def _completed(self) -> None:
        for end in self._store.poll_reads():
            self._end_read(end)
        mono_ms, wall_ms = self._clock.now()
        advanced: dict[Partition, None] = {}
        for completion in self._store.poll():
            inflight = self._inflight.pop(completion.ticket)
            inflight.partition.queued_bytes -= inflight.size_bytes
            if completion.error is None:
                advanced[inflight.partition] = None
            if inflight.future is None:
                code = 0 if completion.error is None else FAILURE
                self._switchboard.durable(completion.ticket, code, mono_ms, wall_ms)
            else:
                _resolve(inflight, completion)
                self._give_room(inflight.partition, inflight.messages, inflight.size_bytes)
        for partition in advanced:
            partition.advanced()
        if self._appended_bytes >= limits.UNKEPT_CHECK_BYTES:
            self._appended_bytes = 0
            self.on_grown()
        self.look_at_store()
        self.wake()

    def look_at_store(self) -> None:
        """Tells what has changed: a failure, room on the disk, files that cannot be removed."""
        if (reason := self._store.failed()) is not None:
            self.on_failure(reason)
        full = self._store.full()
        if full != self.full:
            self.full = full
            self.on_full(full)
        leftovers = self._store.leftovers()
        if leftovers != self._leftovers:
            self._leftovers = leftovers
            if leftovers is not None:
                log.warning(leftovers)

    def _end_read(self, end: ReadEnd) -> None:
        partition, future = self._reads.get(end.ticket, (None, None))
        if partition is None or future is None or future.done():  # its reader went away
            return
        try:
            future.set_result(end.result())
        except (HeadraceError, ValueError) as error:
            if isinstance(error, StorageError):
                self._tell(partition, error)
            future.set_exception(error)

    def _tell(self, partition: Partition, error: StorageError) -> None:
        """Counts a read that failed, and has the log name a damaged place once."""
        if self.failed_reads.add(error):
            log.error(
                "readers are refused: %s; headrace log verify finds what else is damaged", error,
                extra={"stream": partition.stream.definition.name, "partition": partition.index},
            )  # fmt: skip

    def _end_publishes(self) -> None:
        for request, code, streams in self._switchboard.published():
            future, size_bytes = self._publishes.pop(request)
            self._publishes_bytes -= size_bytes
            if future.done():  # its requester went away
                continue
            if code < FAILURE:
                future.set_result(streams)
            else:
                future.set_exception(refused(code, self.full))


def _resolve(inflight: _Inflight, completion: Completion) -> None:
    future = inflight.future
    if future is None or future.done():  # done: its requester went away
        return
    if completion.error is None:
        future.set_result(inflight.base_offset)
    else:
        future.set_exception(UnavailableError(completion.error))
