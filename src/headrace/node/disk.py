"""Calls that wait for the disk, beside the event loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from headrace.errors import StorageError, StorageLimitError, StreamLimitError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")


async def on_disk(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Runs a blocking call on another thread.

    Raises:
        StreamLimitError: the log engine holds as much as it can.
        UnavailableError: the disk refused.
    """
    try:
        return await asyncio.to_thread(call, *args, **kwargs)
    except StorageLimitError as error:
        raise StreamLimitError(str(error)) from error
    except StorageError as error:  # says itself what, where and why
        raise UnavailableError(str(error)) from error
