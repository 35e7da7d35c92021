"""Worker functions: they are given messages, and what becomes of them settles those.

Owns how many run at a time, how a failure is told, and an end in order.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, TypeAlias

from headrace.client.errors import ConnectionLostError, TooLateError
from headrace.client.queues.messages import cause

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from headrace.client.queues.consumption import Consumption
    from headrace.client.queues.messages import Message

    Work: TypeAlias = Callable[[Message], Awaitable[object]]

log = logging.getLogger(__name__)

LEASE_S: Final = 30.0
"""What a worker asks for, again and again, for what it has: so long others wait for one whose
machine hangs. As the default `ack.deadline.ms` of queues."""

RENEW_S: Final = LEASE_S / 3
"""Two requests may be lost before a lease is over."""

LOOK_S: Final = 0.5
"""Between two looks at what needs a longer deadline: of queues, those of 2 s are kept."""


class Reject(Exception):  # noqa: N818 - a verdict, not a fault
    """Raised by a worker function: the message is not to come again. Its text is the reason."""


class Worker:
    """Runs a function for each message of a consumption, so many at a time."""

    def __init__(self, messages: Consumption, function: Work, concurrency: int) -> None:
        self._messages = messages
        self._function = function
        self._concurrency = concurrency

    def stop(self) -> None:
        """Begins nothing more; `run` returns once what runs is done."""
        self._messages.stop()

    async def run(self) -> None:
        """Works until `stop`, or until it is cancelled, which has what runs finish first.

        Cancelled once more it cancels what runs: those messages go to others.

        Raises:
            ClientError: as of `Consumption`, and where the broker refuses to have messages settled.
        """
        async with self._messages:
            serving = [asyncio.create_task(self._serve()) for _ in range(self._concurrency)]
            extending = asyncio.create_task(self._extend())
            try:
                await self._wait(serving)
            finally:
                extending.cancel()
                for each in serving:
                    each.cancel()
                await asyncio.wait((*serving, extending))
        for each in serving:
            if not each.cancelled():
                each.result()

    async def _wait(self, serving: list[asyncio.Task[None]]) -> None:
        try:
            await asyncio.wait(serving, return_when=asyncio.FIRST_EXCEPTION)
        except asyncio.CancelledError:
            self.stop()
            await asyncio.wait(serving)
            raise
        self.stop()  # one has failed: so does the rest, when it is done
        await asyncio.wait(serving)

    async def _serve(self) -> None:
        async for message in self._messages:
            try:
                await self._settle(message)
            except (TooLateError, ConnectionLostError) as error:
                log.warning("%s", error)

    async def _settle(self, message: Message) -> None:
        try:
            await self._function(message)
        except Reject as verdict:
            if not message.is_settled:
                await message.reject(str(verdict) or None)
        except Exception as error:
            log.warning("%s of %s has failed", message.message_id, message.topic, exc_info=True)
            if not message.is_settled:
                await message.nack(reason=cause(error))
        else:
            if not message.is_settled:
                await message.ack()

    async def _extend(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            await self._messages.extend(LEASE_S, RENEW_S)
