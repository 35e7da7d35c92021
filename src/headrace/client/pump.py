"""What keeps a machine of a client moving: turns, a timer, work beside.

Owns: when the machine is looked at again, the tasks that work for it, and their end. Must not know
what the machine is, or what a task does. Lives in one event loop.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Hashable


class Pump:
    """Looks at a machine whenever something may have changed, at most once in a turn of the loop.

    Args:
        turn: does what is to be done now, by the loop's clock in seconds; says when to look again
            if nothing happens before.
    """

    __slots__ = ("_alone", "_is_closed", "_is_due", "_loop", "_tasks", "_turn", "_wake")

    def __init__(self, turn: Callable[[float], float | None]) -> None:
        self._turn = turn
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._alone: set[Hashable] = set()
        self._wake: asyncio.TimerHandle | None = None
        self._is_due = self._is_closed = False

    def start(self) -> None:
        """Begins, in the running loop; what was asked for before is done now."""
        self._loop = asyncio.get_running_loop()
        self.soon()

    def soon(self) -> None:
        """Takes a turn, after what this turn of the loop still brings."""
        if not self._is_due and self._loop is not None:
            self._is_due = True
            self._loop.call_soon(self.now)

    def now(self) -> None:
        """Takes a turn at once, before the program goes on."""
        assert self._loop is not None
        self._is_due = False
        if self._is_closed:
            return
        due_at = self._turn(self._loop.time())
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None
        if due_at is not None:
            self._wake = self._loop.call_at(due_at, self.soon)

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Does something beside, until it is done or the pump ends; a turn follows it."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def begin_alone(self, what: Hashable, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """As `begin`, where the same is not under way."""
        if what not in self._alone:
            self._alone.add(what)
            self.begin(self._work_alone(what, work))

    async def _work_alone(
        self, what: Hashable, work: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        try:
            await work()
        finally:
            self._alone.discard(what)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.result()  # a bug is told by the loop
        self.soon()

    async def close(self) -> None:
        """Ends what is under way; no turn is taken any more."""
        self._is_closed = True
        if self._wake is not None:
            self._wake.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def now_s() -> float:
    """The running loop's clock, in seconds."""
    return asyncio.get_running_loop().time()
