"""Reads streams by offset, blocking, over the Kafka protocol; what the Spark source stands on.

Owns: the questions that a reader asks. Must not know: Spark, or what a batch holds: batches are
handed on as they came. Works against headrace and against Apache Kafka 0.11 and later. Each call
runs the event loop of its client until it is done.
"""

import asyncio
import re
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Self, TypeVar

from headrace.client.cluster import Cluster
from headrace.client.config import ClientConfig
from headrace.client.errors import check, fetch_error
from headrace.client.login import Login
from headrace.client.offsets import commit, committed, offsets_by_time
from headrace.client.records import OffsetAndMetadata, TopicPartition
from headrace.wire.kafka.apis import FETCH
from headrace.wire.kafka.messages import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ListOffsetsPartitionResponse,
)

T = TypeVar("T")

TIMEOUT_SECONDS: Final = 60.0
"""Default deadline of a call, retries included: a broker restarts well within it."""

REQUEST_TIMEOUT_SECONDS: Final = 30.0
"""Longest silence of a broker before its connection counts as lost (`request.timeout.ms`)."""


class FetchClient:
    """A blocking reader of streams. Not thread-safe; may be pickled, which leaves sockets behind.

    Every call retries what a retry can mend, lost connections among it, with growing, jittered
    waits until its deadline.

    Args:
        servers: bootstrap brokers, `HOST:PORT` separated by commas; one that lives is enough.
        client_id: how the broker's logs and metrics name this client.
        login: user and password, where the broker asks for them; proved by SCRAM-SHA-256, so that
            the password is not sent.
        timeout_s: deadline of each call in seconds, > 0.
        request_timeout_s: longest silence of a broker in seconds, > 0.

    Raises:
        ConfigError: `servers` is malformed.
    """

    __slots__ = ("_arguments", "_cluster", "_runner")

    def __init__(
        self,
        servers: str,
        *,
        client_id: str = "headrace",
        login: Login | None = None,
        timeout_s: float = TIMEOUT_SECONDS,
        request_timeout_s: float = REQUEST_TIMEOUT_SECONDS,
    ) -> None:
        self._arguments = (servers, client_id, login, timeout_s, request_timeout_s)
        self._runner: asyncio.Runner | None = None
        self._cluster = Cluster(
            ClientConfig(
                bootstrap_servers=servers,
                client_id=client_id,
                login=login,
                default_api_timeout_ms=_ms(timeout_s),
                request_timeout_ms=_ms(min(request_timeout_s, timeout_s)),
            )
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _revive, self._arguments

    def __del__(self) -> None:
        """Ends what nobody closed, as sockets end by themselves."""
        if getattr(self, "_runner", None) is not None and not sys.is_finalizing():
            self.close()

    def close(self) -> None:
        """Ends every connection; a later call connects anew."""
        runner, self._runner = self._runner, None
        if runner is not None:
            cluster, self._cluster = self._cluster, Cluster(self._cluster.config)
            _apart(lambda: runner.run(cluster.close()))
            _apart(runner.close)

    def _persist(self, what: str, attempt: Callable[[], Awaitable[T]]) -> T:
        runner = self._runner
        if runner is None:
            runner = self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        return _apart(lambda: runner.run(self._cluster.persist(what, attempt)))

    def streams(self, pattern: str | None = None) -> dict[str, int]:
        """Streams and their numbers of partitions, by name.

        Args:
            pattern: a regular expression that the whole name must match; None takes all.
                Internal streams never match.

        Raises:
            ClientError: the brokers are not reached, or refuse.
        """
        wanted = re.compile(pattern or ".*")

        async def attempt() -> dict[str, int]:
            topics = await self._cluster.topics(None, create=False)
            return {
                topic.name: len(topic.partitions)
                for topic in sorted(topics, key=lambda topic: topic.name)
                if not topic.is_internal and not topic.error_code and wanted.fullmatch(topic.name)
            }

        return self._persist("streams", attempt)

    def partitions(self, stream: str) -> int:
        """Number of partitions of `stream`, as the brokers say now.

        Raises:
            UnknownStreamError: there is no such stream.
            ClientError: the brokers are not reached, or refuse.
        """

        async def attempt() -> int:
            (topic,) = await self._cluster.topics([stream], create=False)
            check(topic.error_code, f"stream {stream}")
            return len(topic.partitions)

        return self._persist(f"stream {stream}", attempt)

    def earliest_offsets(self, stream: str) -> dict[int, int]:
        """Offset of the first record that is kept, by partition.

        Raises:
            UnknownStreamError: there is no such stream.
            ClientError: the brokers are not reached, or refuse.
        """
        found = self._list_offsets(stream, EARLIEST_TIMESTAMP)
        return {partition: answer.offset for partition, answer in found.items()}

    def latest_offsets(self, stream: str) -> dict[int, int]:
        """Offset after the last committed record, by partition.

        Raises:
            UnknownStreamError: there is no such stream.
            ClientError: the brokers are not reached, or refuse.
        """
        found = self._list_offsets(stream, LATEST_TIMESTAMP)
        return {partition: answer.offset for partition, answer in found.items()}

    def offsets_for_time(self, stream: str, timestamp_ms: int) -> dict[int, int | None]:
        """Offset of the first record at or after `timestamp_ms`; None where all are older.

        Raises:
            UnknownStreamError: there is no such stream.
            ClientError: the brokers are not reached, or refuse.
        """
        found = self._list_offsets(stream, timestamp_ms)
        return {p: None if answer.offset < 0 else answer.offset for p, answer in found.items()}

    def fetch(
        self, stream: str, partition: int, offset: int, max_bytes: int, max_wait_ms: int
    ) -> bytes:
        """Committed record batches from the one that holds `offset` on.

        Args:
            stream: name of the stream.
            partition: 0 or more.
            offset: first offset wanted; the first batch may begin below it.
            max_bytes: of batches, > 0; a single batch that is larger comes whole.
            max_wait_ms: how long the broker may wait for a first record, >= 0.

        Returns:
            Batches as stored, the last perhaps cut off; empty where nothing came in time.

        Raises:
            CorruptMessageError: what the broker keeps at `offset` is damaged.
            OffsetOutOfRangeError: `offset` is before the first record or after the last.
            UnknownStreamError: there is no such stream or partition.
            ClientError: the brokers are not reached, or refuse.
        """
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            topics=[
                FetchTopic(
                    topic=stream,
                    partitions=[
                        FetchPartition(
                            partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes
                        )
                    ],
                )
            ],
        )
        what = f"fetch {stream}/{partition} at {offset}"

        async def attempt() -> bytes:
            leader = await self._cluster.leader(stream, partition)
            response = await self._cluster.ask_at(leader, FETCH, request, max_wait_ms / 1000)
            check(response.error_code, what)
            answer = response.topics[0].partitions[0]
            if answer.error_code:
                raise fetch_error(answer.error_code, f"{stream}/{partition}", offset)
            return answer.records or b""

        return self._persist(what, attempt)

    def commit_offsets(self, group: str, offsets: dict[tuple[str, int], int]) -> None:
        """Keeps how far `group` has read: the next offset of each `(stream, partition)`.

        The group must have no members; on return the offsets are durable.

        Raises:
            RequestError: a partition was refused, `UnknownStreamError` where it is unknown.
            ClientError: the brokers are not reached.
        """
        wanted = {
            TopicPartition(*place): OffsetAndMetadata(offset) for place, offset in offsets.items()
        }
        self._persist(f"commit of {group}", lambda: commit(self._cluster, group, wanted))

    def committed_offsets(self, group: str) -> dict[tuple[str, int], int]:
        """The next offset of each `(stream, partition)` that `group` has committed.

        Raises:
            ClientError: the brokers are not reached, or refuse.
        """
        found = self._persist(f"offsets of {group}", lambda: committed(self._cluster, group))
        return {(place.topic, place.partition): each.offset for place, each in found.items()}

    def _list_offsets(self, stream: str, timestamp: int) -> dict[int, ListOffsetsPartitionResponse]:
        async def attempt() -> dict[int, ListOffsetsPartitionResponse]:
            leaders = await self._cluster.leaders(stream)
            times = {TopicPartition(stream, partition): timestamp for partition in leaders}
            found = await offsets_by_time(self._cluster, times)
            return {place.partition: found[place] for place in times}

        return self._persist(f"offsets of {stream}", attempt)


def _apart(call: Callable[[], T]) -> T:
    """Calls in a thread of its own where an event loop runs in this one, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return call()
    with ThreadPoolExecutor(1, "headrace") as beside:
        return beside.submit(call).result()


def _revive(
    servers: str, client_id: str, login: Login | None, timeout_s: float, request_timeout_s: float
) -> FetchClient:
    return FetchClient(
        servers,
        client_id=client_id,
        login=login,
        timeout_s=timeout_s,
        request_timeout_s=request_timeout_s,
    )


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))
