"""Turns for requests that name very much: whoever else is connected is served in between.

Owns when a handler lets others have a turn. Must not know what a request is about.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakKeyDictionary

from headrace import limits
from headrace.node.turns import Turns

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

T = TypeVar("T")


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
