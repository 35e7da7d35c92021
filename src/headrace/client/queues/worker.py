"""Worker functions: they are given messages, and what becomes of them settles those.

Owns how many run at a time, how a failure is told, and an end in order.
"""

from __future__ import annotations

import asyncio
import inspect
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


class UnusableError(TypeError):
    """What is to work on messages does not: none of them is settled by it."""


def check(function: object, *, is_async: bool) -> None:
    """Refuses what cannot work on a message, as far as that shows before it is called.

    Raises:
        TypeError: it is no function, or one of the other kind.
    """
    wrong = "no function" if not callable(function) else None
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        wrong = "a generator"
    elif not is_async and inspect.iscoroutinefunction(function):
        wrong = "an async function, which headrace.Queue takes"
    if wrong is not None:
        raise TypeError(f"work calls a function with each message; {function!r} is {wrong}")


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
            TypeError: what the function returns cannot be awaited; its message goes to others.
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
            await self._call(message)
        except UnusableError:
            raise
        except asyncio.CancelledError as error:
            if _is_cancelled():
                raise
            await self._failed(message, error)
        except Reject as verdict:
            if not message.is_settled:
                await message.reject(str(verdict) or None)
        except Exception as error:  # noqa: BLE001 - whatever it is, the message comes again
            await self._failed(message, error)
        else:
            if not message.is_settled:
                await message.ack()

    async def _call(self, message: Message) -> None:
        working = self._function(message)
        if not inspect.isawaitable(working):
            raise UnusableError(
                f"work awaits what its function returns; {self._function!r} is not async: make it "
                "so, or use headrace.sync.Queue"
            )
        await working

    async def _failed(self, message: Message, error: BaseException) -> None:
        log.warning("%s of %s has failed", message.message_id, message.topic, exc_info=error)
        if not message.is_settled:
            await message.nack(reason=cause(error))

    async def _extend(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            await self._messages.extend(LEASE_S, RENEW_S)


def _is_cancelled() -> bool:
    """Whether somebody wants this task to end, and not what it works on has said so."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
