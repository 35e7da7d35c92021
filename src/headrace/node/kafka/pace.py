"""Turns for requests that name very much: whoever else is connected is served in between.

Owns when a handler lets others have a turn, and how many have one at a time: whatever many clients
ask for, an iteration of the event loop gives one turn, to who has waited for longest. Must not know
what a request is about.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakKeyDictionary

from headrace import limits

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

T = TypeVar("T")


class Turns:
    """Those of one event loop.

    Attributes:
        given: so far.
    """

    def __init__(self) -> None:
        self.given = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_taken = False  # or waited for

    @property
    def is_free(self) -> bool:
        """Whether nobody has the turn of this iteration, or waits for one."""
        return not self._is_taken

    def take(self) -> None:
        """Takes the turn of this iteration, which is free."""
        if not self._is_taken:
            self._schedule()

    async def next(self) -> None:
        """Waits for a turn."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self.take()
        await turn

    def _schedule(self) -> None:
        self._is_taken = True
        asyncio.get_running_loop().call_soon(self._give)

    def _give(self) -> None:
        self._is_taken = False
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # else who waited has gone
                turn.set_result(None)
                self.given += 1
                self._schedule()
                return


_IN_TURNS: ContextVar[bool] = ContextVar("in_turns", default=False)

_TURNS: WeakKeyDictionary[asyncio.AbstractEventLoop, Turns] = WeakKeyDictionary()


def turns() -> Turns:
    """Those of the running loop, which is what all its tasks share."""
    return _TURNS.setdefault(asyncio.get_running_loop(), Turns())


async def begin() -> None:
    """The request of this task names much: it begins with its turn, and goes on in turns."""
    _IN_TURNS.set(True)
    await turns().next()


async def paced(items: Iterable[T]) -> AsyncIterator[T]:
    """Each of these; of a request in turns, others have one after `KAFKA_TURN_SECONDS` of work."""
    if not _IN_TURNS.get():
        for item in items:
            yield item
        return
    now = asyncio.get_running_loop().time
    due = now() + limits.KAFKA_TURN_SECONDS
    for item in items:
        yield item
        if now() >= due:
            await turns().next()
            due = now() + limits.KAFKA_TURN_SECONDS
