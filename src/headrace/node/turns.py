"""Turns of the event loop for work that many clients ask for at once.

Owns how many have one at a time: an iteration of the loop gives one, to who has waited for longest.
Must not know what is done in it.
"""

from __future__ import annotations

import asyncio
from collections import deque


class Turns:
    """Those of one kind of work.

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
