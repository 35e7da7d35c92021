"""Fetch: committed batches as they are stored, waiting for the first ones without polling.

A fetch reads every partition once; where records must come from the disk, it alone waits. Where
that yields too little it watches them all, sleeps until one advances or its time is up, and reads
them again. The budget of bytes is spent in the order of the request; the first batch of the first
partition that has one always goes, however large, so that no reader is ever stuck.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from headrace import limits
from headrace.errors import HeadraceError
from headrace.wire.kafka.errors import ErrorCode
from headrace.wire.kafka.messages import (
    FetchPartitionResponse,
    FetchResponse,
    FetchTopicResponse,
)

if TYPE_CHECKING:
    from headrace.node.broker import Broker
    from headrace.node.kafka.connection import KafkaConnection
    from headrace.node.kafka.door import KafkaDoor
    from headrace.node.partition import Partition
    from headrace.wire.kafka.frames import Request
    from headrace.wire.kafka.messages import FetchPartition, FetchRequest

LEADER_EPOCH: Final = 0
"""Epoch of every partition of a node that stands alone."""


async def fetch(door: KafkaDoor, _: KafkaConnection, request: Request) -> FetchResponse:
    """Answers with a full fetch always: session id 0 tells the client that no session was made."""
    body: FetchRequest = request.body
    if body.session_id != 0:
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, topics=[])
    reading = _Reading(door.broker, body)
    await reading.read()
    wait_ms = min(body.max_wait_ms, limits.KAFKA_FETCH_WAIT_MS_MAX)
    if not reading.enough and wait_ms > 0:
        await reading.wait(wait_ms / 1000)
    return FetchResponse(topics=reading.answers())


class _Reading:
    """One fetch at work."""

    __slots__ = (
        "_broker", "_bytes_left", "_bytes_max", "_bytes_min", "_found", "_full", "_size", "_wanted",
    )  # fmt: skip

    def __init__(self, broker: Broker, request: FetchRequest) -> None:
        self._broker = broker
        # Each partition once: a request names 100,000 in a few bytes each, a node has a few.
        wanted = {
            (topic.topic, asked.partition): asked
            for topic in request.topics
            for asked in topic.partitions
        }
        self._wanted = [(stream, asked) for (stream, _), asked in wanted.items()]
        self._found: list[FetchPartitionResponse] = []
        self._size = 0
        self._bytes_max = min(max(request.max_bytes, 0), limits.KAFKA_FETCH_BYTES_MAX)
        self._bytes_min = min(request.min_bytes, self._bytes_max)
        self._bytes_left = 0
        self._full = False  # something was left for want of budget

    async def read(self) -> None:
        """Reads every partition, within the budget of bytes."""
        self._bytes_left = self._bytes_max
        self._full = False
        self._size = 0
        self._found = [await self._read(stream, asked) for stream, asked in self._wanted]

    @property
    def enough(self) -> bool:
        """Whether the client should wait no longer: enough bytes, or an error it must hear."""
        failed = any(each.error_code for each in self._found)
        wants_more = self._found_bytes < self._bytes_min and not self._full
        return failed or not self._wanted or not wants_more

    async def wait(self, timeout_s: float) -> None:
        """Sleeps until there is enough, at most `timeout_s`; then holds what there is."""
        wake = asyncio.Event()
        watched = self._partitions()
        for partition in watched:
            partition.watch(wake.set)
        try:
            async with asyncio.timeout(timeout_s):
                while not self.enough:
                    await wake.wait()
                    wake.clear()
                    if self._may_be_enough():
                        await self.read()
        except TimeoutError:
            await self.read()
        finally:
            for partition in watched:
                partition.unwatch(wake.set)

    def answers(self) -> list[FetchTopicResponse]:
        """What was read, by topic."""
        topics: dict[str, list[FetchPartitionResponse]] = {}
        for (stream, _), found in zip(self._wanted, self._found, strict=True):
            topics.setdefault(stream, []).append(found)
        return [FetchTopicResponse(topic=name, partitions=each) for name, each in topics.items()]

    @property
    def _found_bytes(self) -> int:
        return sum(len(each.records or b"") for each in self._found)

    def _partitions(self) -> list[Partition]:
        return [self._broker.partition(stream, asked.partition) for stream, asked in self._wanted]

    def _may_be_enough(self) -> bool:
        """Whether partitions have grown by what is missing, as far as their sizes tell."""
        try:
            grown = sum(partition.size_bytes for partition in self._partitions()) - self._size
        except HeadraceError:  # one was deleted; reading again tells which
            return True
        return self._found_bytes + grown >= self._bytes_min

    async def _read(self, stream: str, asked: FetchPartition) -> FetchPartitionResponse:
        answer = FetchPartitionResponse(partition_index=asked.partition, records=b"")
        size = self._size
        try:
            partition = self._broker.partition(stream, asked.partition)
            self._size += partition.size_bytes
            answer.log_start_offset = partition.start_offset
            answer.high_watermark = answer.last_stable_offset = partition.high_watermark
            if asked.current_leader_epoch > LEADER_EPOCH:
                answer.error_code = ErrorCode.UNKNOWN_LEADER_EPOCH
            elif not answer.log_start_offset <= asked.fetch_offset <= answer.high_watermark:
                answer.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
            elif asked.fetch_offset < answer.high_watermark:
                answer.records = await self._take(partition, asked)
        except HeadraceError as error:
            answer.error_code = ErrorCode.of(error.kafka_code)
        except ValueError:  # trimmed beyond the offset, or deleted, while the disk was waited for
            self._size = size
            return await self._read(stream, asked)
        return answer

    async def _take(self, partition: Partition, asked: FetchPartition) -> bytes:
        if self._bytes_left <= 0:
            self._full = True
            return b""
        budget = min(max(asked.partition_max_bytes, 0), self._bytes_left)
        records = await partition.read(asked.fetch_offset, budget)
        if len(records) > budget and self._bytes_left < self._bytes_max:
            self._full = True
            return b""  # not the first batch of this response, so it may wait for the next
        self._bytes_left -= len(records)
        return records
