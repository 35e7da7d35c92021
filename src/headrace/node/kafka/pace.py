"""Turns for requests that name very much: whoever else is connected is served in between.

Owns when a handler lets others have a turn. Must not know what a request is about.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from headrace import limits

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

T = TypeVar("T")


async def paced(items: Iterable[T]) -> AsyncIterator[T]:
    """Each of these; after `KAFKA_TURN_SECONDS` of work others have a turn."""
    now = asyncio.get_running_loop().time
    due = now() + limits.KAFKA_TURN_SECONDS
    for item in items:
        yield item
        if now() >= due:
            await asyncio.sleep(0)
            due = now() + limits.KAFKA_TURN_SECONDS
