"""What goes into a queue, until the broker has it on disk.

Owns what is not acknowledged yet, in order, and the connection that it goes over: opened when there
is something to send. What was under way when a connection broke goes out again on the next, before
what is newer: the broker takes each sequence of a source once, and of two the higher one for news.
"""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.client.errors import ClientError, ConnectionLostError, DeadlineError
from headrace.client.mqtt_properties import Packed, user_properties, user_property
from headrace.client.queues.link import Link, reach

if TYPE_CHECKING:
    from paho.mqtt.client import MQTTMessage

    from headrace.client.config import QueueConfig
    from headrace.model import Address

OF_SOURCE: Final = frozenset({"source", "epoch", "sequence"})
"""User properties by which a broker tells repeats."""


@dataclass(slots=True, eq=False)
class _Put:
    topic: str
    payload: bytes
    properties: Packed
    stored: asyncio.Future[None]
    sent: asyncio.Future[int] | None = None


class Sender:
    """Publishes into queues."""

    def __init__(self, config: QueueConfig) -> None:
        self._config = config
        self._source = user_properties((("source", f"put-{uuid.uuid4().hex}"), ("epoch", "0")))
        self._sequence = 0
        self._pending: dict[int, _Put] = {}
        self._link: Link | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._trouble: ClientError | None = None

    async def put(self, topic: str, payload: bytes, properties: bytes, *, is_ours: bool) -> None:
        """Returns once it is durable.

        `properties` are in bytes; `is_ours` says that they name no source, so that this one does.

        Raises:
            DeadlineError: no answer within `default_api_timeout_ms`; it may be stored, unless the
                error says that it was not sent.
            QueueError: the broker refuses it.
        """
        sequence = self._sequence
        self._sequence += 1
        if is_ours:
            properties += self._source + user_property("sequence", str(sequence))
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        put = _Put(topic, payload, Packed(properties), stored)
        self._pending[sequence] = put
        self._send(put)
        timeout_s = self._config.default_api_timeout_ms / 1000
        try:
            async with asyncio.timeout(timeout_s):
                await stored
        except TimeoutError:
            if put.sent is None and self._trouble is not None:
                raise DeadlineError(
                    f"{topic}: not sent within {timeout_s:g} s: {self._trouble}"
                ) from self._trouble
            raise DeadlineError(
                f"{topic}: not acknowledged within {timeout_s:g} s; it may be stored"
            ) from self._trouble
        finally:
            self._pending.pop(sequence, None)
            if put.sent is not None:
                put.sent.cancel()

    async def close(self) -> None:
        """Waits for what is under way, and ends."""
        while self._pending:
            await asyncio.wait([put.stored for put in self._pending.values()])
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait((self._keeping,))
        if self._link is not None:
            self._link.close()
            self._link = None

    def _send(self, put: _Put) -> None:
        if self._link is None or self._link.lost.done():
            if self._keeping is None or self._keeping.done():
                self._keeping = asyncio.create_task(self._keep())
            return
        put.sent = self._link.publish(put.topic, put.payload, put.properties)
        put.sent.add_done_callback(lambda sent: _over(put, sent))

    async def _keep(self) -> None:
        """Has a link while there is something to send."""
        try:
            while self._pending:
                link = self._link = await reach(self._config, self._begin, self._failed)
                for put in list(self._pending.values()):
                    self._send(put)
                self._trouble = await asyncio.shield(link.lost)
                link.close()
        except ClientError as error:
            for put in self._pending.values():
                if not put.stored.done():
                    put.stored.set_exception(error)

    async def _begin(self, address: Address) -> Link:
        link = Link(self._config, address, _ignore)
        await link.open()
        return link

    def _failed(self, error: ConnectionLostError) -> None:
        self._trouble = error
        if not self._pending:
            raise error


def _over(put: _Put, sent: asyncio.Future[int]) -> None:
    """The broker has answered; where the connection broke, the next one sends it again."""
    if sent.cancelled() or put.stored.done():
        return
    error = sent.exception()
    if error is None:
        put.stored.set_result(None)
    elif not isinstance(error, ConnectionLostError):
        put.stored.set_exception(error)


def _ignore(_link: Link, _message: MQTTMessage) -> None:
    """Nothing is subscribed to."""
