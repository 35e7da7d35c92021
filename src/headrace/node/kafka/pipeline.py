"""The requests of one connection that are in work, in their order, and what they hold.

Owns how many there may be, whom the next one waits for, and what waits behind the first that may
wait for other clients. Must not know what a request does.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from headrace import limits

if TYPE_CHECKING:
    from collections.abc import Iterator


class _InWork(NamedTuple):
    overlaps: bool
    waits: bool
    held_bytes: int


class Pipeline:
    """Requests in work.

    Attributes:
        last: the newest.
        barrier: the newest that no other overlaps.
    """

    __slots__ = ("_held_bytes", "_tasks", "_waiting", "barrier", "last")

    def __init__(self) -> None:
        self._held_bytes = 0
        self._waiting = 0  # of them, may wait for other clients
        self.last: asyncio.Task[None] | None = None
        self.barrier: asyncio.Task[None] | None = None
        self._tasks: dict[asyncio.Task[None], _InWork] = {}

    def __len__(self) -> int:
        """How many there are."""
        return len(self._tasks)

    def __iter__(self) -> Iterator[asyncio.Task[None]]:
        """The oldest first."""
        return iter(self._tasks)

    @property
    def has_room(self) -> bool:
        """Whether one more may begin."""
        most = limits.KAFKA_PIPELINE_MAX if self.barrier is None else limits.KAFKA_BEHIND_MAX
        return len(self._tasks) < most

    def before(self, *, overlaps: bool) -> asyncio.Task[None] | None:
        """The one that must end before the next begins."""
        return self.barrier if overlaps else self.last

    def holds_up(self, *, is_unread: bool) -> bool:
        """Whether what comes behind may wait for long: for other clients, or its own.

        `is_unread` says that its client does not read what it was sent, for which all wait that let
        no other overlap.
        """
        return self._waiting > 0 or (is_unread and self.barrier is not None)

    def ahead_bytes(self, *, is_unread: bool) -> int:
        """What those hold that wait for nobody, and the first that may."""
        if not self.holds_up(is_unread=is_unread):
            return self._held_bytes
        ahead_bytes = 0
        for each in self._tasks.values():
            ahead_bytes += each.held_bytes
            if each.waits or (is_unread and not each.overlaps):
                break
        return ahead_bytes

    def begin(
        self, task: asyncio.Task[None], held_bytes: int, *, overlaps: bool, waits: bool
    ) -> None:
        """One begins."""
        self._tasks[task] = _InWork(overlaps, waits, held_bytes)
        self._held_bytes += held_bytes
        self._waiting += waits
        self.last = task
        if not overlaps:
            self.barrier = task

    def end(self, task: asyncio.Task[None]) -> int:
        """One has ended; what it held."""
        if self.last is task:
            self.last = None
        if self.barrier is task:
            self.barrier = None
        ended = self._tasks.pop(task)
        self._held_bytes -= ended.held_bytes
        self._waiting -= ended.waits
        return ended.held_bytes

    def let_go(self, task: asyncio.Task[None] | None) -> int:
        """One holds nothing any more, and goes on; what it held."""
        if task is None or task not in self._tasks:
            return 0
        held_bytes = self._tasks[task].held_bytes
        self._tasks[task] = self._tasks[task]._replace(held_bytes=0)
        self._held_bytes -= held_bytes
        return held_bytes

    def cancel(self) -> None:
        """Nobody waits for an answer: those end that store nothing."""
        for task, each in self._tasks.items():
            if not each.overlaps:
                task.cancel()


async def end_of(task: asyncio.Task[None] | None) -> None:
    """Waits for an earlier task, also where that one was cancelled, and never cancels it."""
    if task is None or task.done():
        return
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        waiting = asyncio.current_task()
        if not task.cancelled() or (waiting is not None and waiting.cancelling()):
            raise  # it is the waiting one that was cancelled
