"""Producer, consumer and admin client for programs without asyncio.

Owns the hand-over of records from the program's thread to the client's. Must not know what a client
does. A client is for one thread at a time, but for `Producer.send` and `send_nowait`, which any
thread may call.
"""

from __future__ import annotations

import asyncio
import queue
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

from headrace import client as aio
from headrace.client import BufferFullError, ConnectionLostError
from headrace.client.admin import CHOICE_OF_BROKER
from headrace.sync.thread import Client

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from headrace.client import (
        OffsetAndMetadata,
        OffsetAndTimestamp,
        Record,
        RecordMetadata,
        TopicPartition,
    )
    from headrace.client.admin import Config, GroupDescription, TopicDescription
    from headrace.client.lanes import Headers
    from headrace.client.subscription import RebalanceListener
    from headrace.native import Delivery

HANDED_OVER_MAX: Final = 10_000
"""Records on their way from the program's thread to the client's: a few milliseconds of work."""


class Producer(Client["aio.Producer"]):
    """As `headrace.Producer`, blocking: `with`, and no `await`."""

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] | None = None,
        **settings: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(lambda: aio.Producer(bootstrap_servers, **settings))
        self.config = self._client.config
        self._handed_over: queue.Queue[tuple[str, Any, dict[str, Any], Future[RecordMetadata]]]
        self._handed_over = queue.Queue(HANDED_OVER_MAX)
        self._is_called = False
        self._moving = asyncio.Lock()

    def send(
        self,
        topic: str,
        value: Any = None,  # noqa: ANN401
        *,
        key: Any = None,  # noqa: ANN401
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | Mapping[str, bytes | None] = (),
    ) -> RecordMetadata:
        """Sends a record and waits until it is acknowledged; as `headrace.Producer.send`."""
        return self.send_nowait(
            topic, value, key=key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
        ).result()

    def send_nowait(
        self,
        topic: str,
        value: Any = None,  # noqa: ANN401
        *,
        key: Any = None,  # noqa: ANN401
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | Mapping[str, bytes | None] = (),
    ) -> Future[RecordMetadata]:
        """Takes a record in and returns a future of where it is.

        Waits where there is no room, for `max_block_ms` at most. What is wrong with a record its
        future tells; to cancel that takes back only what has not left the program's thread.

        Raises:
            BufferFullError: there was no room in time.
        """
        more = {
            "key": key, "partition": partition, "timestamp_ms": timestamp_ms, "headers": headers
        }  # fmt: skip
        future: Future[RecordMetadata] = Future()
        if not self._thread.is_alive():
            raise RuntimeError("the Producer is not open; use it in `with`")
        try:
            block_s = self.config.max_block_ms / 1000
            self._handed_over.put((topic, value, more, future), timeout=block_s)
        except queue.Full:
            raise BufferFullError(f"no room within max_block_ms, {block_s:g} s") from None
        if not self._is_called:
            self._is_called = True
            asyncio.run_coroutine_threadsafe(self._move(), self._loop)
        return future

    async def _move(self) -> None:
        """In the client's thread: hands on what was handed over, in order."""
        async with self._moving:
            self._is_called = False  # what comes in from now on calls again, if it is not seen here
            while not self._handed_over.empty():
                await self._hand_on(*self._handed_over.get_nowait())

    async def _hand_on(
        self,
        topic: str,
        value: Any,  # noqa: ANN401
        more: dict[str, Any],
        future: Future[RecordMetadata],
    ) -> None:
        if not future.set_running_or_notify_cancel():
            return  # it was cancelled before it was sent
        try:
            await self._client.ready()
            sent = self._client.send_nowait(topic, value, **more)
        except Exception as error:  # noqa: BLE001 - whoever waits is told
            future.set_exception(error)
            return
        except BaseException:
            future.set_exception(ConnectionLostError("the producer was closed"))
            raise

        def done(sent: Delivery[RecordMetadata] | asyncio.Future[RecordMetadata]) -> None:
            error = sent.exception()
            if error is None:
                future.set_result(sent.result())
            else:
                future.set_exception(error)

        sent.add_done_callback(done)

    def send_batch(
        self,
        topic: str,
        values: Iterable[Any],
        *,
        keys: Iterable[Any] | None = None,
        partition: int | None = None,
    ) -> list[RecordMetadata]:
        """Sends many records and waits until all are acknowledged."""

        async def after_others() -> list[RecordMetadata]:
            await self._move()
            return await self._client.send_batch(topic, values, keys=keys, partition=partition)

        return self._wait(after_others())

    def flush(self) -> None:
        """Waits until all records so far are stored or have failed."""
        self._wait(self._flush())

    async def _flush(self) -> None:
        await self._move()
        await self._client.flush()

    def partitions_for(self, topic: str) -> int:
        """How many partitions a stream has."""
        return self._wait(self._client.partitions_for(topic))

    async def _end(self, *why: Any) -> None:  # noqa: ANN401
        try:
            await self._move()
        finally:
            await super()._end(*why)

    def _stop(self) -> None:
        super()._stop()
        while not self._handed_over.empty():  # Ctrl-C while they waited for room
            *_, future = self._handed_over.get_nowait()
            if future.set_running_or_notify_cancel():
                future.set_exception(ConnectionLostError("the producer was closed"))


class Consumer(Client["aio.Consumer"]):
    """As `headrace.Consumer`, blocking: `with`, and no `await`."""

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] | None = None,
        topics: str | Iterable[str] = (),
        **settings: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(lambda: aio.Consumer(bootstrap_servers, topics, **settings))
        self.config = self._client.config

    def __iter__(self) -> Iterator[Record]:
        while True:
            yield self.getone()

    def getone(self) -> Record:
        """The next record; waits for one."""
        record = self._client.next_held()
        return self._wait(self._client.getone()) if record is None else record

    def getmany(
        self,
        *partitions: TopicPartition,
        timeout_ms: int | None = None,
        max_records: int | None = None,
    ) -> dict[TopicPartition, list[Record]]:
        """Records by partition, in order; waits for the first."""
        return self._wait(
            self._client.getmany(*partitions, timeout_ms=timeout_ms, max_records=max_records)
        )

    def get_arrow(
        self,
        *partitions: TopicPartition,
        timeout_ms: int | None = None,
        max_records: int | None = None,
    ) -> pa.RecordBatch | None:
        """Records of one partition as Arrow; None where nothing came in time."""
        return self._wait(
            self._client.get_arrow(*partitions, timeout_ms=timeout_ms, max_records=max_records)
        )

    def subscribe(
        self,
        topics: str | Iterable[str] = (),
        *,
        pattern: str | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Reads streams, shared with the members of the group; the listener's methods are async."""
        if not self._thread.is_alive():  # before it is opened
            self._client.subscribe(topics, pattern=pattern, listener=listener)
        else:
            self._do(self._client.subscribe, topics, pattern=pattern, listener=listener)

    def unsubscribe(self) -> None:
        """Reads nothing any more, and leaves the group."""
        self._do(self._client.unsubscribe)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Reads these partitions and no others."""
        self._do(self._client.assign, list(partitions))

    def assignment(self) -> set[TopicPartition]:
        """Partitions that are read."""
        return self._do(self._client.assignment)

    def pause(self, *partitions: TopicPartition) -> None:
        """Hands out nothing of these until `resume`."""
        self._do(self._client.pause, *partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        """Goes on with these."""
        self._do(self._client.resume, *partitions)

    def paused(self) -> set[TopicPartition]:
        """Partitions that are paused."""
        return self._do(self._client.paused)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Reads on at `offset`."""
        self._do(self._client.seek, partition, offset)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Reads these, or all, from the first record that is kept."""
        self._wait(self._client.seek_to_beginning(*partitions))

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Reads these, or all, from the next record on."""
        self._wait(self._client.seek_to_end(*partitions))

    def position(self, partition: TopicPartition) -> int:
        """Offset of the next record that is handed out."""
        return self._wait(self._client.position(partition))

    def highwater(self, partition: TopicPartition) -> int | None:
        """Offset after the last committed record, as the last fetch said."""
        return self._do(self._client.highwater, partition)

    def commit(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None
    ) -> None:
        """Keeps how far the group has read; on return it is durable."""
        self._wait(self._client.commit(offsets))

    def committed(self, *partitions: TopicPartition) -> dict[TopicPartition, OffsetAndMetadata]:
        """How far the group has read these, or all that are read."""
        return self._wait(self._client.committed(*partitions))

    def offsets_for_times(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after a time, in ms since 1970; None where all are older."""
        return self._wait(self._client.offsets_for_times(times))

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Offset of the first record that is kept."""
        return self._wait(self._client.beginning_offsets(partitions))

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Offset after the last committed record."""
        return self._wait(self._client.end_offsets(partitions))


class Admin(Client["aio.Admin"]):
    """As `headrace.Admin`, blocking."""

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] | None = None,
        **settings: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(lambda: aio.Admin(bootstrap_servers, **settings))
        self.config = self._client.config

    def topics(self, *, internal: bool = False) -> dict[str, int]:
        """Streams and their numbers of partitions."""
        return self._wait(self._client.topics(internal=internal))

    def describe_topic(self, topic: str) -> TopicDescription:
        """One stream."""
        return self._wait(self._client.describe_topic(topic))

    def create_topic(
        self,
        topic: str,
        *,
        partitions: int = CHOICE_OF_BROKER,
        replication_factor: int = CHOICE_OF_BROKER,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Makes a stream; as `headrace.Admin.create_topic`."""
        self._wait(
            self._client.create_topic(
                topic,
                partitions=partitions,
                replication_factor=replication_factor,
                configs=configs,
                validate_only=validate_only,
            )
        )

    def delete_topic(self, topic: str) -> None:
        """Removes a stream and all that it holds."""
        self._wait(self._client.delete_topic(topic))

    def create_partitions(self, topic: str, total: int) -> None:
        """Lets a stream grow to `total` partitions."""
        self._wait(self._client.create_partitions(topic, total))

    def configs(self, topic: str) -> dict[str, Config]:
        """The settings of a stream."""
        return self._wait(self._client.configs(topic))

    def alter_configs(self, topic: str, changes: Mapping[str, str | None]) -> None:
        """Changes some settings of a stream; None takes one back to its default."""
        self._wait(self._client.alter_configs(topic, changes))

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Deletes what is before an offset of each partition; where each begins now."""
        return self._wait(self._client.delete_records(before))

    def groups(self) -> dict[str, str]:
        """Groups and their protocol types."""
        return self._wait(self._client.groups())

    def describe_group(self, group: str) -> GroupDescription:
        """A group and its members."""
        return self._wait(self._client.describe_group(group))

    def delete_group(self, group: str) -> None:
        """Forgets a group without members, and what it has committed."""
        self._wait(self._client.delete_group(group))

    def group_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """How far a group has read."""
        return self._wait(self._client.group_offsets(group, partitions))

    def alter_group_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int | OffsetAndMetadata]
    ) -> None:
        """Has a group without members go on elsewhere."""
        self._wait(self._client.alter_group_offsets(group, offsets))

    def reset_group_offsets(
        self, group: str, topics: str | Iterable[str | TopicPartition], to: str | int
    ) -> dict[TopicPartition, int]:
        """Has a group without members go on at the beginning, the end, or a time of streams."""
        return self._wait(self._client.reset_group_offsets(group, topics, to))

    def delete_group_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Has a group forget how far it has read these."""
        self._wait(self._client.delete_group_offsets(group, partitions))
