"""Changes of what lasts, each made whole although whoever asked for it leaves meanwhile.

Owns their order: one after the other. Must not know what is changed. A call that waits for the disk
cannot be taken back, so a change that is cancelled half-way would leave the disk with what the node
does not know of.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")

log = logging.getLogger(__name__)


class Changes:
    """Those of one kind."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._under_way: asyncio.Task[Any] | None = None

    async def make(self, change: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """What a change comes to; it begins once those before it have ended.

        Whoever leaves before that has changed nothing; afterwards it goes on.
        """
        await self._turn.acquire()
        task = self._under_way = asyncio.get_running_loop().create_task(change())
        task.add_done_callback(self._ended)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_tell)
            raise
        finally:
            del task  # whose error has this frame in its traceback, and would be held by it

    async def quiet(self) -> None:
        """Waits until none is under way, or waits for its turn."""
        async with self._turn:
            pass

    def _ended(self, _: asyncio.Task[Any]) -> None:
        self._under_way = None
        self._turn.release()


def _tell(task: asyncio.Task[Any]) -> None:
    """Of a change that failed when nobody waited for it any more."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.warning("a change that was asked for by somebody who has left failed: %s", error)
