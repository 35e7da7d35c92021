"""Reading on a thread of its own, so that a broker that is away does not change when it happens.

Owns the thread and its event loop. What is read goes through a `Feed`.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from headrace.collect.feed import Feed


class Background:
    """Runs `work` to its end, or to `stop`, then closes `feed`; use it as a context manager.

    Its end raises what `work` has raised.
    """

    def __init__(self, work: Callable[[], Coroutine[None, None, None]], feed: Feed) -> None:
        self._work = work
        self._feed = feed
        self._loop = asyncio.new_event_loop()
        self._stopped = asyncio.Event()
        self._fault: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="collect", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.stop()
        self._thread.join()
        if self._fault is not None and kind is None:
            raise self._fault

    def stop(self) -> None:
        """Ends the work where it is. For a signal handler or another thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: the work has ended
            self._loop.call_soon_threadsafe(self._stopped.set)

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._until_stopped())
        except BaseException as fault:  # noqa: BLE001 - it is raised again where `run` was called
            self._fault = fault
        finally:
            self._feed.close()

    async def _until_stopped(self) -> None:
        work = asyncio.ensure_future(self._work())
        stopped = asyncio.ensure_future(self._stopped.wait())
        await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not work.done():
            work.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await work
        else:
            work.result()
