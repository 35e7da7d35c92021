"""Durable queues for programs without asyncio.

Must not know what the client does. Any thread may call `Queue.put`, `stop` and what settles a
message.
"""

from __future__ import annotations

import asyncio
import inspect
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Self

from headrace import client as aio
from headrace.client.queues.messages import Delivered
from headrace.client.queues.worker import UnusableError, check
from headrace.sync.thread import Client

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence

    Wait = Callable[[Coroutine[Any, Any, Any]], Any]

_PARTS = tuple(each.name for each in fields(Delivered))


class Message(Delivered):
    """As `headrace.Message`, blocking."""

    __slots__ = ("_message", "_wait")
    _message: aio.Message
    _wait: Wait

    def __init__(self, message: aio.Message, wait: Wait) -> None:
        super().__init__(**{name: getattr(message, name) for name in _PARTS})
        object.__setattr__(self, "_message", message)
        object.__setattr__(self, "_wait", wait)

    @property
    def is_settled(self) -> bool:
        """Whether a call here has settled it, or is about to."""
        return self._message.is_settled

    def ack(self) -> None:
        """It is done with."""
        self._wait(self._message.ack())

    def nack(self, delay: float | None = None, reason: str | None = None) -> None:
        """It has failed, and comes again; as `headrace.Message.nack`."""
        self._wait(self._message.nack(delay, reason))

    def reject(self, reason: str | None = None) -> None:
        """It is not to come again: a dead letter, with `reason`."""
        self._wait(self._message.reject(reason))

    def extend(self, seconds: float | None = None) -> None:
        """It takes longer; as `headrace.Message.extend`."""
        self._wait(self._message.extend(seconds))


class Consumption:
    """As `headrace.client.queues.Consumption`, blocking: `with`, then `for`."""

    def __init__(self, messages: aio.queues.Consumption, wait: Wait) -> None:
        self._messages = messages
        self._wait = wait

    def __enter__(self) -> Self:
        self._wait(self._messages.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        self._wait(self._messages.__aexit__(kind, error, trace))

    def __iter__(self) -> Iterator[Message]:
        while True:
            message = self._wait(_next(self._messages))
            if message is None:
                return
            yield Message(message, self._wait)


async def _next(messages: aio.queues.Consumption) -> aio.Message | None:
    return await anext(messages, None)


class Queue(Client["aio.Queue"]):
    """As `headrace.Queue`, blocking: `with`, and no `await`."""

    def __init__(
        self,
        name: str,
        mqtt: str | Sequence[str] | None = None,
        **settings: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(lambda: aio.Queue(name, mqtt, **settings))
        self.config = self._client.config
        self.name = name

    def put(
        self,
        payload: bytes,
        *,
        key: str | None = None,
        routing: str | None = None,
        properties: Mapping[str, str] | None = None,
        ttl: float | None = None,
        delay: float | None = None,
        priority: int | None = None,
        dedup_id: str | None = None,
    ) -> None:
        """Puts a message into the queue; on return it is on the broker's disk."""
        putting = self._client.put(
            payload, key=key, routing=routing, properties=properties, ttl=ttl, delay=delay,
            priority=priority, dedup_id=dedup_id,
        )  # fmt: skip
        self._wait(putting)

    def consume(
        self, *, group: str | None = None, prefetch: int | None = None, routing: str | None = None
    ) -> Consumption:
        """Messages of the queue, for a member of a group: `with`, then `for`."""
        messages = self._client.consume(group=group, prefetch=prefetch, routing=routing)
        return Consumption(messages, self._wait)

    def work(
        self,
        function: Callable[[Message], object],
        *,
        group: str | None = None,
        concurrency: int = 1,
        prefetch: int | None = None,
        routing: str | None = None,
    ) -> None:
        """Calls `function` with each message, in as many threads as `concurrency` says.

        Until `stop`, or Ctrl-C: what runs finishes first.

        Raises:
            ClientError: as of `consume`.
            TypeError: the function is none, or is `async`.
        """
        check(function, is_async=False)
        with ThreadPoolExecutor(concurrency, "headrace-worker") as pool:

            async def call(message: aio.Message) -> None:
                given = Message(message, self._wait)
                done = await asyncio.get_running_loop().run_in_executor(pool, function, given)
                if inspect.iscoroutine(done):
                    done.close()
                    raise UnusableError(f"{function!r} is async, which headrace.Queue takes")

            self._wait(
                self._client.work(
                    call, group=group, concurrency=concurrency, prefetch=prefetch, routing=routing
                )
            )

    def stop(self) -> None:
        """Ends each `work` in order; also from a handler of signals."""
        self._loop.call_soon_threadsafe(self._client.stop)
