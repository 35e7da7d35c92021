"""Fetch: committed batches as they are stored, waiting for the first ones without polling.

A fetch reads every partition once; those whose records the disk must bring are waited for together.
Where that yields too little it watches them all, sleeps until one advances or its time is up, and
reads again what has advanced. It waits no longer than until its connection brings another request,
which would wait behind it: a consumer that goes elsewhere asks for that at once.

Invariants: the budget of bytes is spent in the order of the request, and a read begins beside
others only where all that they can bring fits, so that the answer is that of one read after the
other. The first batch of the first partition that has one always goes, however large, so that no
reader is ever stuck.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from headrace import limits
from headrace.errors import HeadraceError
from headrace.node.kafka.pace import paced, turns
from headrace.wire.kafka.errors import ErrorCode
from headrace.wire.kafka.messages import (
    FetchPartitionResponse,
    FetchResponse,
    FetchTopicResponse,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from headrace.native import Buffer
    from headrace.node.broker import Broker
    from headrace.node.kafka.connection import KafkaConnection
    from headrace.node.kafka.door import KafkaDoor
    from headrace.node.partition import Partition
    from headrace.wire.kafka.frames import Request
    from headrace.wire.kafka.messages import FetchPartition, FetchRequest

LEADER_EPOCH: Final = 0
"""Epoch of every partition of a node that stands alone."""


async def fetch(door: KafkaDoor, connection: KafkaConnection, request: Request) -> FetchResponse:
    """Answers with a full fetch always: session id 0 tells the client that no session was made."""
    body: FetchRequest = request.body
    if body.session_id != 0:
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, topics=[])
    wait_ms = min(body.max_wait_ms, limits.KAFKA_FETCH_WAIT_MS_MAX)
    deadline = asyncio.get_running_loop().time() + wait_ms / 1000
    reading = _Reading(door.broker, body, await _parts(door.broker, body))
    connection.hurry = reading.hurry
    try:
        with reading.watch():
            await reading.read_all()
            if not connection.is_waited_for:
                with door.memory.waits(reading.hurry):
                    await reading.wait(deadline)
    finally:
        connection.hurry = None
    return FetchResponse(topics=await reading.answers())


async def _parts(broker: Broker, body: FetchRequest) -> list[_Part]:
    """What is asked of each partition, once: a request may name it again and again."""
    parts: dict[tuple[str, int], _Part] = {}
    wanted = ((topic.topic, each) for topic in body.topics for each in topic.partitions)
    async for stream, asked in paced(wanted):
        parts[stream, asked.partition] = _Part(broker, stream, asked)
    return list(parts.values())


class _Part:
    """What a fetch asks of one partition, and the answer as far as it is known."""

    __slots__ = ("_broker", "answer", "asked", "stream", "unused_bytes")

    def __init__(self, broker: Broker, stream: str, asked: FetchPartition) -> None:
        self._broker = broker
        self.stream = stream
        self.asked = asked
        self.answer = FetchPartitionResponse(partition_index=asked.partition, records=b"")
        # Of those that may be read at once, what whole batches leave where more are there.
        self.unused_bytes = 0
        try:
            broker.partition(stream, asked.partition)
        except HeadraceError as error:  # nothing of it is read or waited for
            self.answer.error_code = ErrorCode.of(error.kafka_code)

    @property
    def partition(self) -> Partition:
        """Raises UnknownStreamError where there is none, or no longer."""
        return self._broker.partition(self.stream, self.asked.partition)

    @property
    def bytes_max(self) -> int:
        """To be read at once, but for a larger first batch."""
        return min(max(self.asked.partition_max_bytes, 0), limits.KAFKA_FETCH_PARTITION_BYTES_MAX)

    @property
    def size_bytes(self) -> int:
        """Of the records found."""
        return len(self.answer.records or b"")

    def forget(self) -> int:
        """Gives up the records found; their bytes."""
        size_bytes, self.answer.records, self.unused_bytes = self.size_bytes, b"", 0
        return size_bytes

    def look(self) -> int | None:
        """Answers where the log stands. Bytes to be read from there, None where nothing is."""
        answer, offset = self.answer, self.asked.fetch_offset
        try:
            partition = self.partition
            answer.log_start_offset, answer.high_watermark = partition.bounds
            answer.last_stable_offset = answer.high_watermark
            if self.asked.current_leader_epoch > LEADER_EPOCH:
                answer.error_code = ErrorCode.UNKNOWN_LEADER_EPOCH
            elif not answer.log_start_offset <= offset <= answer.high_watermark:
                answer.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
            elif offset < answer.high_watermark:
                return min(self.bytes_max, partition.readable_bytes(offset))
        except HeadraceError as error:
            answer.error_code = ErrorCode.of(error.kafka_code)
        except ValueError:  # trimmed beyond the offset since its bounds were told
            return self.look()
        return None

    def may_have_grown(self) -> int:
        """By how many bytes the records found may have grown.

        Raises:
            HeadraceError, ValueError: the partition has gone, or the records have.
        """
        readable_bytes = self.partition.readable_bytes(self.asked.fetch_offset)
        if self.size_bytes == 0:  # the first batch comes whole
            return readable_bytes
        return min(self.bytes_max, readable_bytes) - self.size_bytes - self.unused_bytes


class _Read(NamedTuple):
    """A read that was begun."""

    part: _Part
    budget: int
    is_cut: bool  # there is more than it may bring
    found: Buffer | asyncio.Future[Buffer] | HeadraceError | ValueError | None

    @property
    def is_over(self) -> bool:
        """Whether it need not be waited for."""
        return not isinstance(self.found, asyncio.Future) or self.found.done()


class _Reading:
    """One fetch at work."""

    __slots__ = (
        "_bytes_left", "_bytes_max", "_bytes_min", "_full", "_is_hurried", "_parts", "_runner",
        "_stale", "_there", "_wake",
    )  # fmt: skip

    def __init__(self, broker: Broker, request: FetchRequest, parts: list[_Part]) -> None:
        self._runner = broker.runner
        self._parts = parts
        self._there = [part for part in parts if not part.answer.error_code]
        # At least one byte: less would leave the first batch, which always goes, no budget at all.
        self._bytes_max = min(max(request.max_bytes, 1), limits.KAFKA_FETCH_BYTES_MAX)
        most = limits.KAFKA_FETCH_PARTITION_BYTES_MAX  # of one partition no more will come
        self._bytes_min = min(request.min_bytes, self._bytes_max, most)
        self._bytes_left = self._bytes_max
        self._full = False  # something was left for want of budget
        self._stale: set[_Part] = set()  # advanced, or deleted, since they were read
        self._wake = asyncio.Event()
        self._is_hurried = False

    def hurry(self) -> None:
        """Holds what there is: others wait."""
        self._is_hurried = True
        self._wake.set()

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Hears of every partition that advances."""
        watched = []
        for part in self._there:
            with suppress(HeadraceError):  # which reading will tell
                watched.append((part.partition, partial(self._advanced, part)))
        for partition, advanced in watched:
            partition.watch(advanced)
        try:
            yield
        finally:
            for partition, advanced in watched:
                partition.unwatch(advanced)

    async def read_all(self) -> None:
        """Reads every partition, within the budget of bytes."""
        await self._read(self._there)

    async def wait(self, deadline: float) -> None:
        """Sleeps until there is enough, but not beyond `deadline`; then holds what there is."""
        is_time = False
        while not (self._enough or is_time) and deadline > asyncio.get_running_loop().time():
            try:
                async with asyncio.timeout_at(deadline):
                    await self._wake.wait()
            except TimeoutError:
                is_time = True
            self._wake.clear()
            is_time = is_time or self._is_hurried
            if len(self._parts) > limits.KAFKA_ELEMENTS_FEW:
                await turns().next()  # to look at all of them
            if is_time or self._may_be_enough():
                await self._read([part for part in self._parts if part in self._stale])

    async def answers(self) -> list[FetchTopicResponse]:
        """What was read, by topic."""
        topics: dict[str, list[FetchPartitionResponse]] = {}
        async for part in paced(self._parts):
            topics.setdefault(part.stream, []).append(part.answer)
        return [
            FetchTopicResponse(topic=name, partitions=each)
            async for name, each in paced(topics.items())
        ]

    def _advanced(self, part: _Part) -> None:
        self._stale.add(part)
        self._wake.set()

    @property
    def _found_bytes(self) -> int:
        return self._bytes_max - self._bytes_left

    @property
    def _counted_bytes(self) -> int:
        """Those found, and those in whose place others would have come if batches could be cut.

        Apache Kafka cuts them, so that a client which waits for as much as one partition may bring
        has it there.
        """
        return self._found_bytes + sum(part.unused_bytes for part in self._parts)

    @property
    def _enough(self) -> bool:
        """Whether the client should wait no longer: enough bytes, or an error it must hear."""
        failed = any(part.answer.error_code for part in self._parts)
        wants_more = self._counted_bytes < self._bytes_min and not self._full
        return failed or not self._parts or not wants_more

    def _may_be_enough(self) -> bool:
        """Whether partitions may have grown by what is missing."""
        try:
            grown = sum(part.may_have_grown() for part in self._stale)
        except (HeadraceError, ValueError):  # reading again tells what has gone
            return True
        return self._counted_bytes + grown >= self._bytes_min

    async def _read(self, parts: list[_Part]) -> None:
        """Reads these partitions, anew where they were read before."""
        self._bytes_left += sum(part.forget() for part in parts)
        self._full = False
        begun: deque[_Read] = deque()
        try:
            async for part in paced(parts):
                self._stale.discard(part)
                readable_bytes = part.look()
                if readable_bytes is None:
                    continue
                while begun and (begun[0].is_over or not self._fits(begun, readable_bytes)):
                    await self._take(begun.popleft())
                begun.append(self._begin(part, readable_bytes))
            while begun:
                await self._take(begun.popleft())
        finally:
            for read in begun:
                if isinstance(read.found, asyncio.Future):
                    read.found.cancel()

    def _fits(self, begun: Collection[_Read], readable_bytes: int) -> bool:
        """Whether a read may be waited for beside those that were begun."""
        reserved_bytes = sum(read.budget for read in begun)
        reads_max = 1 if self._runner.is_crowded else limits.KAFKA_FETCH_READS_MAX
        return len(begun) < reads_max and reserved_bytes + readable_bytes <= self._bytes_left

    def _begin(self, part: _Part, readable_bytes: int) -> _Read:
        if self._bytes_left <= 0:
            self._full = True
            return _Read(part, 0, is_cut=True, found=None)
        budget = min(readable_bytes, self._bytes_left)
        is_cut = readable_bytes > budget or readable_bytes == part.bytes_max
        try:
            found = part.partition.begin_read(part.asked.fetch_offset, budget)
        except (HeadraceError, ValueError) as error:
            return _Read(part, budget, is_cut, error)
        return _Read(part, budget, is_cut, found)

    async def _take(self, read: _Read) -> None:
        """Waits for a read, and answers with what it has found as far as that fits."""
        try:
            if isinstance(read.found, Exception):
                raise read.found
            found = await read.found if isinstance(read.found, asyncio.Future) else read.found
            # As they were read: they go to the socket from there (`encode_response`).
            records = cast("bytes", memoryview(found or b""))
        except HeadraceError as error:
            read.part.answer.error_code = ErrorCode.of(error.kafka_code)
        except ValueError:  # trimmed beyond the offset, or deleted, while the disk was waited for
            readable_bytes = read.part.look()
            if readable_bytes is not None:
                await self._take(self._begin(read.part, readable_bytes))
        else:
            if len(records) > min(read.budget, self._bytes_left) and self._found_bytes > 0:
                self._full = True  # no first batch of this response, so it may wait for the next
                return
            self._bytes_left -= len(records)
            read.part.answer.records = records
            if read.is_cut and len(records) > 0:
                read.part.unused_bytes = max(0, read.budget - len(records))
