"""A durable queue: put messages in, consume them, have functions work on them.

Owns what a program may say of a queue, and how that is said on the wire (docs/python.md).
"""

from __future__ import annotations

import asyncio
import math
import re
from typing import TYPE_CHECKING, Any, Final, Self

from headrace.client.config import QueueConfig
from headrace.client.mqtt_properties import message_expiry, user_properties
from headrace.client.queues.consumption import Consumption
from headrace.client.queues.messages import (
    BELOW,
    DEDUP_ID,
    KEY,
    PRIORITY,
    check_seconds,
    delay_of,
)
from headrace.client.queues.sender import OF_SOURCE, Sender
from headrace.client.queues.worker import Worker, check
from headrace.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.client.queues.worker import Work

_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")

PREFETCH_MAX: Final = 65_535
"""As much as a Receive Maximum can say."""

LEVELS_MAX: Final = 128
"""Of a topic: a broker ends the connection over more."""

TTL_S_MAX: Final = 2**32 - 1
"""As much as a Message Expiry Interval can say (MQTT 5.0 3.3.2.3.3)."""


class Queue:
    """A queue, over MQTT 5.0; use it in `async with`, which ends what it has begun.

    Connections are opened when there is use for them: one for all that is put in, one for each
    `consume` and `work`.

    Args:
        name: of a queue that is there (`headrace queues create`); `NAME.dlq` has dead letters.
        mqtt: brokers, `HOST:PORT`; the default is 127.0.0.1:1883.
        settings: as `headrace.client.QueueConfig` names them.

    Raises:
        ConfigError: a setting is unknown or unusable, or the name is none.
    """

    def __init__(
        self,
        name: str,
        mqtt: str | Sequence[str] | None = None,
        **settings: Any,  # noqa: ANN401 - QueueConfig types and checks them
    ) -> None:
        self.config = QueueConfig.of(mqtt, settings)
        if _NAME.fullmatch(name if _is_text(name) else "") is None:
            raise ConfigError(f"a queue's name has 1 to 249 of a-z, A-Z, 0-9, . _ -; got {name!r}")
        self.name = name
        self._sender = Sender(self.config)
        self._working: dict[asyncio.Task[Any], Worker] = {}
        self._is_closed = False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def start(self) -> None:
        """Does nothing yet: connections are opened when there is use for them."""
        self._check_open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: object, trace: object
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Waits for what is put in, ends the workers in order, and closes."""
        self._is_closed = True
        self.stop()
        working = self._working.keys() - {asyncio.current_task()}
        if working:
            await asyncio.wait(working)
        await self._sender.close()

    async def put(
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
        """Puts a message into the queue; on return it is on the broker's disk.

        A queue that is full refuses at once, with a `QueueError` of `reason_code` 0x97 that is
        `retriable`: try again when something is settled, this does not.

        Where a connection breaks meanwhile it is sent again. In its partition, that of `key` or the
        only one, it is stored once then; without a key and with several it may be stored twice.

        Args:
            payload: what it says.
            key: chooses the partition, and in a queue with order `key` what it comes after.
            routing: levels of a topic behind the queue's name, by which consumers may choose.
            properties: user properties.
            ttl: seconds after which nobody needs it, rounded up to whole ones.
            delay: seconds until it is given out at the earliest; as long as the queue's
                `message.ttl.ms` or longer, and it dies undelivered.
            priority: 0 to 9, the most urgent; of a queue with `priorities=on`.
            dedup_id: stored once, whoever puts it in again with the same `key`, or both times with
                none; each partition knows its last 32,768 for a week.

        Raises:
            DeadlineError: no answer within `default_api_timeout_ms`; it may be stored.
            QueueError: the broker refuses: `UnknownQueueError`, or by `reason_code` 0x97 no room
                (retriable, unless it is too large), 0x87 not allowed, 0x95 too large.
            ValueError: a text or `ttl` that MQTT cannot say, a `delay` or `priority` out of range.
        """
        self._check_open()
        if not isinstance(payload, bytes | bytearray | memoryview):
            raise TypeError(f"a payload must be bytes; got {type(payload).__name__}")
        said = {} if properties is None else dict(properties)
        terms = {KEY: key, DEDUP_ID: dedup_id, PRIORITY: _priority(priority)}
        said |= {name: value for name, value in terms.items() if value is not None}
        said.update(delay_of(delay))
        for name, value in said.items():
            if not (_is_text(name) and _is_text(value)):
                raise TypeError(f"keys and properties are text; got {name!r}: {value!r}")
        packed = user_properties(said.items()) + _expiry(ttl)
        topic = f"{BELOW}{self.name}" + ("" if routing is None else f"/{_levels(routing)}")
        is_ours = OF_SOURCE.isdisjoint(said) and DEDUP_ID not in said
        await self._sender.put(topic, bytes(payload), packed, is_ours=is_ours)

    def consume(
        self,
        *,
        group: str | None = None,
        prefetch: int | None = None,
        routing: str | None = None,
    ) -> Consumption:
        """Messages of the queue, for a member of a group: `async with`, then `async for`.

        Args:
            group: whose members share the messages; None: `client_id`.
            prefetch: deliveries that may be open, 1 to 65535; None: as many as the queue says.
            routing: a filter of what is behind the queue's name (`eu/+`); a group with one is
                another than that without. None: all.
        """
        self._check_open()
        if prefetch is not None and not 1 <= prefetch <= PREFETCH_MAX:
            raise ValueError(f"prefetch is from 1 to {PREFETCH_MAX}; got {prefetch!r}")
        if not all(each is None or _is_text(each) for each in (group, routing)):
            raise TypeError(f"group and routing are text; got {group!r} and {routing!r}")
        said = [("consumer-group", self.config.client_id if group is None else group)]
        if prefetch is not None:
            said.append(("prefetch", str(prefetch)))
        filter_ = f"{BELOW}{self.name}" + ("" if routing is None else f"/{routing}")
        return Consumption(self.config, self.name, filter_, said)

    async def work(
        self,
        function: Work,
        *,
        group: str | None = None,
        concurrency: int = 1,
        prefetch: int | None = None,
        routing: str | None = None,
    ) -> None:
        """Calls `function` with each message, until `stop`, or until it is cancelled.

        A message is acknowledged when the function returns, comes again when it raises, with that
        as the reason, and becomes a dead letter when it raises `Reject`; what the function has
        settled itself stays so. Deadlines are extended while it runs. To cancel has what runs
        finish first; to cancel again does not.

        Args:
            function: `async`, of one message.
            group: as of `consume`.
            concurrency: how many messages it works on at a time, 1 or more.
            prefetch: as of `consume`, but None: twice as many as `concurrency`.
            routing: as of `consume`.

        Raises:
            ClientError: as of `consume`.
            TypeError: the function is none, or is not `async`; `headrace.sync.Queue` takes plain
                ones.
        """
        check(function, is_async=True)
        if concurrency < 1:
            raise ValueError(f"concurrency is 1 or more; got {concurrency!r}")
        prefetch = min(2 * concurrency, PREFETCH_MAX) if prefetch is None else prefetch
        messages = self.consume(group=group, prefetch=prefetch, routing=routing)
        worker = Worker(messages, function, concurrency)
        task = asyncio.current_task()
        assert task is not None, "a coroutine runs in a task"
        self._working[task] = worker
        try:
            await worker.run()
        finally:
            del self._working[task]

    def stop(self) -> None:
        """Ends each `work` of this object in order: what runs finishes, the rest goes to others."""
        for worker in self._working.values():
            worker.stop()

    def _check_open(self) -> None:
        if self._is_closed:
            raise RuntimeError("the Queue is closed; make another one")


def _expiry(ttl: float | None) -> bytes:
    if ttl is None:
        return b""
    check_seconds("ttl", ttl, TTL_S_MAX)
    if ttl == 0:
        raise ValueError(f"ttl is a number of seconds, more than 0, to {TTL_S_MAX}; got {ttl!r}")
    return message_expiry(math.ceil(ttl))


def _priority(priority: int | None) -> str | None:
    if priority is None:
        return None
    if isinstance(priority, bool) or not isinstance(priority, int):
        raise TypeError(f"priority is a number from 0 to 9; got {priority!r}")
    if not 0 <= priority < 10:
        raise ValueError(f"priority is a number from 0 to 9; got {priority!r}")
    return str(priority)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _levels(routing: str) -> str:
    if routing.count("/") + 3 > LEVELS_MAX:
        raise ValueError(
            f"a topic has at most {LEVELS_MAX} levels, $queue and the name among them; routing has "
            f"{routing.count('/') + 1}"
        )
    if not routing or "/$" in f"/{routing}" or any(each in routing for each in "+#\0"):
        raise ValueError(
            f"routing is levels of a topic, without + and #, none begins with $; got {routing!r}"
        )
    return routing
