"""Reading on a thread of its own, so that a broker that is away does not change when it happens.

Owns the thread, its event loop and the clock of its rounds. What is read goes through a `Feed`.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from typing import TYPE_CHECKING, Self

from headrace import job_limits

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from headrace.collect.feed import Feed


async def rounds(interval_s: float | None) -> AsyncIterator[int]:
    """Yields at the beginning of each round, once where there is no interval.

    What it yields is how many rounds were missed because the one before took too long: rounds keep
    to their times.
    """
    begin, missed = time.monotonic(), 0
    while True:
        yield missed
        if interval_s is None:
            return
        now = time.monotonic()
        missed = int((now - begin) / interval_s)
        begin += (missed + 1) * interval_s
        await asyncio.sleep(begin - now)


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
        # A driver that hangs lets no thread end; this one ends with the process.
        self._thread.join(job_limits.COLLECT_FLUSH_SECONDS)
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
