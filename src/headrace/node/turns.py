"""Turns of the event loop for work that many clients ask for at once.

Owns how many have one at a time: an iteration of the loop gives so many, to who has waited for
longest. Must not know what is done in it.
"""

from __future__ import annotations

import asyncio
from collections import deque


class Turns:
    """Those of one kind of work.

    Attributes:
        given: to who has waited, so far.
    """

    def __init__(self, at_once: int = 1) -> None:
        self.given = 0
        self._at_once = at_once
        self._left = at_once  # of this iteration
        self._is_scheduled = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def is_free(self) -> bool:
        """Whether this iteration has a turn left, and nobody waits for one."""
        return self._left > 0 and not self._waiting

    def take(self) -> None:
        """Takes a turn of this iteration, which is free."""
        self._left -= 1
        self._schedule()

    def ask(self) -> asyncio.Future[None]:
        """Done when it is one's turn; who cancels it has none."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._schedule()
        return turn

    async def next(self) -> None:
        """Waits for a turn."""
        await self.ask()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._give)

    def _give(self) -> None:
        self._is_scheduled = False
        self._left = self._at_once
        while self._left and self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # else who waited has gone
                turn.set_result(None)
                self.given += 1
                self._left -= 1
        if self._left < self._at_once:
            self._schedule()  # behind those that have one now, so that they count to this iteration
