"""A thread with an event loop for each client, and the way there and back.

Must not know what a client does.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")


class _Opened(Protocol):
    async def start(self) -> None: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: object, trace: object
    ) -> None: ...


C = TypeVar("C", bound=_Opened)


class Client(Generic[C]):
    """A client in a thread of its own."""

    def __init__(self, make: Callable[[], C]) -> None:
        self._client = make()
        self._loop: asyncio.AbstractEventLoop
        self._thread = threading.Thread(target=self._run, name="headrace-client", daemon=True)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            left = asyncio.all_tasks(self._loop)  # of threads that came too late
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        finally:
            self._loop.close()

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        if not self._thread.is_alive():
            work.close()
            raise RuntimeError(f"the {type(self).__name__} is not open; use it in `with`")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:  # Ctrl-C; who is gone is not worked for
            future.cancel()
            raise

    def _do(self, act: Callable[..., T], *arguments: Any, **named: Any) -> T:  # noqa: ANN401
        async def call() -> T:
            return act(*arguments, **named)

        return self._wait(call())

    def __enter__(self) -> Self:
        self.start()
        return self

    def start(self) -> None:
        """Reaches the cluster.

        Raises:
            ClientError: no broker is reached within `default_api_timeout_ms`, or one refuses.
            RuntimeError: it was started before.
        """
        if self._thread.ident is not None:
            raise RuntimeError(f"a {type(self).__name__} is started once; make another one")
        self._loop = asyncio.new_event_loop()  # which the thread closes
        self._thread.start()
        try:
            self._wait(self._client.start())
        except BaseException:
            self._stop()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        if self._thread.is_alive():
            try:
                self._wait(self._end(kind, error, trace))
            finally:
                self._stop()

    async def _end(self, *why: Any) -> None:  # noqa: ANN401 - as of `__aexit__`
        await self._client.__aexit__(*why)

    def close(self) -> None:
        """Ends the client, and its thread."""
        self.__exit__(None, None, None)

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
