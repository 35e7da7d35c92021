"""Messages of a queue, as they come to one member of a group.

Owns the connection of that member, made again when it breaks, and what it has brought and was not
asked for yet. Of a connection that broke it hands out nothing more: the broker has given that to
others.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Final, Self

from headrace.client.errors import (
    ClientError,
    ConnectionLostError,
    DeadlineError,
    QueueError,
)
from headrace.client.queues.link import Link, reach
from headrace.client.queues.messages import (
    Hold,
    Message,
    cause,
    delay_of,
    message_of,
    reason_of,
    tell,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from paho.mqtt.client import MQTTMessage

    from headrace.client.config import QueueConfig
    from headrace.model import Address

log = logging.getLogger(__name__)

TOLD_AT_ONCE_MAX: Final = 500
"""Messages that one publish is about: 16 KiB of user properties."""


RENEW_S: Final = 1.0
"""After which a message that is not settled is `due`: deadlines of queues are longer."""


class Consumption:
    """Consumes in `async with`; `async for` gives the messages, to several tasks if need be.

    At the end what is not settled goes to others: as failed, with its reason, where it was handed
    out and the block ends with an exception, as untouched otherwise.

    Raises:
        ClientError: from `async with` where no broker is reached within `default_api_timeout_ms`;
            from there and from `async for` where one refuses for good, as when the queue is
            deleted. A connection that breaks is made again, for as long as it takes.
    """

    def __init__(
        self, config: QueueConfig, queue: str, filter_: str, said: Sequence[tuple[str, str]]
    ) -> None:
        self._config = config
        self._queue = queue
        self._filter = filter_
        self._said = said
        self._link: Link | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._open: dict[str, Hold] = {}
        self._buffer: deque[Message] = deque()
        self._changed = asyncio.Event()
        self._failure: BaseException | None = None
        self._is_over = False
        self._give_up_s = 0.0

    async def __aenter__(self) -> Self:
        if self._keeping is not None:
            raise RuntimeError("it is consumed once; call `consume` again")
        timeout_s = self._config.default_api_timeout_ms / 1000
        self._give_up_s = asyncio.get_running_loop().time() + timeout_s
        self._keeping = asyncio.create_task(self._keep())
        self._keeping.add_done_callback(self._kept)
        try:
            while self._link is None and self._failure is None:
                await self._change()
        except BaseException:
            await self._leave()
            raise
        if self._failure is not None:
            raise self._failure
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        try:
            if error is not None and isinstance(error, Exception):
                await self._fail_what_is_out(cause(error))
        finally:
            await self._leave()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        while True:
            if self._is_over:
                raise StopAsyncIteration
            if self._buffer:
                message = self._buffer.popleft()
                if message.hold.link.lost.done():
                    continue
                return message
            if self._failure is not None:
                raise self._failure
            await self._change()

    def stop(self) -> None:
        """Gives out nothing more: whoever iterates comes to the end."""
        self._is_over = True
        self._changed.set()

    async def extend(self, seconds: float, renew_s: float) -> None:
        """Gives what is open and due, and not settled, so many seconds from now.

        It is due again after `renew_s`. Who is too late is told when he settles.
        """
        link, now_s = self._link, asyncio.get_running_loop().time()
        due = [name for name, hold in self._open.items() if hold.renew_s <= now_s]
        if link is None or not due:
            return
        for each in due:
            self._open[each].renew_s = now_s + renew_s
        await self._tell(link, "$extend", due, delay_of(seconds))

    async def _tell(
        self, link: Link, verb: str, ids: Sequence[str], said: Sequence[tuple[str, str]]
    ) -> None:
        for first in range(0, len(ids), TOLD_AT_ONCE_MAX):
            some = ids[first : first + TOLD_AT_ONCE_MAX]
            try:
                await tell(link, self._queue, verb, some, said)
            except (ConnectionLostError, QueueError) as error:
                log.info("%s", error)

    async def _fail_what_is_out(self, reason: str) -> None:
        waiting = {each.message_id for each in self._buffer}
        out = [name for name in self._open if name not in waiting]
        if self._link is not None and out:
            await self._tell(self._link, "$nack", out, reason_of(reason))

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    async def _keep(self) -> None:
        """Has a subscription, on one connection after the other."""
        while True:
            self._link = link = await reach(self._config, self._begin, self._failed)
            self._changed.set()
            why = await asyncio.shield(link.lost)
            link.close()
            self._forget()
            if isinstance(why, QueueError):
                raise why
            log.warning("queue %s: %s; consumption goes on", self._queue, why)

    async def _begin(self, address: Address) -> Link:
        self._forget()
        link = Link(self._config, address, self._received)
        await link.open()
        try:
            await link.subscribe(self._filter, self._said)
        except BaseException:
            link.close()
            raise
        return link

    def _failed(self, error: ConnectionLostError) -> None:
        if self._link is None and asyncio.get_running_loop().time() > self._give_up_s:
            raise DeadlineError(f"{error}") from error

    def _kept(self, keeping: asyncio.Task[None]) -> None:
        if not keeping.cancelled():
            self._failure = keeping.exception()
            self._changed.set()

    def _forget(self) -> None:
        self._open = {}
        self._buffer.clear()

    def _received(self, link: Link, packet: MQTTMessage) -> None:
        renew_s = asyncio.get_running_loop().time() + RENEW_S
        hold = Hold(link, self._queue, self._open, renew_s, packet.properties)
        message = message_of(packet, hold)
        if message is None:
            return log.warning("%s: no headrace broker's message is dropped", packet.topic)
        self._open[message.message_id] = message.hold  # and not its payload
        self._buffer.append(message)
        return self._changed.set()

    async def _leave(self) -> None:
        self.stop()
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait((self._keeping,))
        link = self._link
        if link is None or link.lost.done():
            return
        try:
            # An answer to this says that what is under way will not come; a connection that is
            # closed while it comes would count as broken.
            await link.unsubscribe(self._filter)
        except ClientError as error:
            log.info("%s", error)
        finally:
            link.close()
        self._forget()
