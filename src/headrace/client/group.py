"""The thread in which a consumer is a member of its group.

Owns: a thread, its event loop, the connection to the coordinator. Moves what the membership says
and tells it what came of it. Must not know what that means. It beats while the program's own loop
stands still; what the program must do it is told through `on_step`, in the program's loop.
"""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.client.errors import ClientError, check
from headrace.client.membership import Membership
from headrace.client.membership_events import (
    Answered,
    Close,
    Count,
    Counted,
    Done,
    Event,
    Failed,
    Find,
    Found,
    Gave,
    Get,
    Give,
    Send,
    Subscribed,
    Tell,
    Tick,
)
from headrace.wire.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from headrace.client.cluster import Cluster
    from headrace.client.config import ConsumerConfig
    from headrace.client.membership_events import Effect
    from headrace.model import Address

Step = Give | Get | Tell


class GroupMember:
    """A membership at work. Made and closed in the program's event loop.

    Args:
        config: of the consumer; it has a `group_id`.
        cluster: connections of the thread's own.
        on_step: called in the program's loop with what the program must do.
    """

    def __init__(
        self, config: ConsumerConfig, cluster: Cluster, on_step: Callable[[Step], None]
    ) -> None:
        assert config.group_id is not None
        self._group = config.group_id
        self._cluster = cluster
        self._on_step = on_step
        self._program = asyncio.get_running_loop()
        self._membership = Membership(config)
        self._busy_since: float | None = time.monotonic()
        self._coordinator: Address | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._wake: asyncio.TimerHandle | None = None
        self._is_done = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._run, name=f"headrace-group-{self._group}", daemon=True
        )
        self._thread.start()

    # --- what the program says ------------------------------------------------------------------

    def busy(self, *, is_busy: bool) -> None:
        """Whether the program handles records, or waits for some."""
        self._busy_since = time.monotonic() if is_busy else None

    def subscribe(self, counts: Mapping[str, int]) -> None:
        """The streams that the program wants to read, with their partitions."""
        self._tell(Subscribed(dict(counts)))

    def gave(self, number: int) -> None:
        """The program has given up what it was told to."""
        self._tell(Gave(number))

    async def close(self) -> None:
        """Leaves the group, and ends the thread."""
        closing = asyncio.run_coroutine_threadsafe(self._close(), self._loop)
        await asyncio.wrap_future(closing)
        self._loop.call_soon_threadsafe(self._loop.stop)
        await self._program.run_in_executor(None, self._thread.join)

    def _tell(self, event: Event) -> None:
        self._loop.call_soon_threadsafe(self._handle, event)

    # --- in the thread --------------------------------------------------------------------------

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        finally:
            self._loop.close()

    def _handle(self, event: Event) -> None:
        for effect in self._membership.handle(event, self._loop.time()):
            self._perform(effect)
        if self._wake is not None:
            self._wake.cancel()
        self._wake = self._loop.call_at(self._membership.wake_at(self._loop.time()), self._tick)

    def _tick(self) -> None:
        since = self._busy_since
        self._handle(Tick(0.0 if since is None else time.monotonic() - since))

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Find():
                self._begin(self._find)
            case Send():
                self._begin(partial(self._send, effect))
            case Count(topics):
                self._begin(partial(self._count, topics))
            case Done():
                self._is_done.set()
            case _:
                with suppress(RuntimeError):  # its loop is closed: it asks no more
                    self._program.call_soon_threadsafe(self._on_step, effect)

    def _begin(self, work: Callable[[], Coroutine[Any, Any, Event]]) -> None:
        task = self._loop.create_task(self._finish(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _finish(self, work: Callable[[], Coroutine[Any, Any, Event]]) -> None:
        try:
            event = await work()
        except ClientError as error:
            event = Failed(error)
        self._handle(event)

    async def _find(self) -> Event:
        self._cluster.forget()
        self._coordinator = await self._cluster.coordinator(self._group)
        return Found()

    async def _send(self, asked: Send) -> Event:
        assert self._coordinator is not None
        connection = await self._cluster.connection(self._coordinator)
        timeout_s = asked.timeout_s or self._cluster.request_timeout_s
        return Answered(await connection.call(asked.api, asked.body, timeout_s))

    async def _count(self, topics: list[str]) -> Event:
        counts = {}
        for topic in await self._cluster.topics(topics, create=False):
            if topic.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                check(topic.error_code, f"stream {topic.name}")
                counts[topic.name] = len(topic.partitions)
        return Counted(counts)

    async def _close(self) -> None:
        effects = self._membership.handle(Close(), self._loop.time())
        for task in self._tasks:  # what is under way may take as long as a rebalance
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._cluster.close()
        for effect in effects:
            self._perform(effect)
        await self._is_done.wait()
        if self._wake is not None:
            self._wake.cancel()
        await asyncio.gather(*self._tasks)
        await self._cluster.close()
