"""Producers and readers in processes of their own, started together.

Owns: processes and their pipes. Must not know what a job does.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from typing import TYPE_CHECKING, Any, Final

from headrace.bench.kafka.readers import Got, Outlook, ReadJob, read
from headrace.bench.kafka.senders import SendJob, Sent, now_us, send
from headrace.errors import HeadraceError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection

START_SECONDS: Final = 60.0
"""Until a process has come up and is connected."""

LEAD_US: Final = 200_000
"""From when all are connected to when they begin."""

READY: Final = "ready"


class Worker:
    """One process, and the pipe to it."""

    def __init__(self, job: SendJob | ReadJob) -> None:
        spawn = multiprocessing.get_context("spawn")  # a fork would take threads' locks along
        self._pipe, theirs = spawn.Pipe()
        self._process = spawn.Process(target=_work, args=(job, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def tell(self, what: object) -> None:
        """Sends it something."""
        with contextlib.suppress(BrokenPipeError):  # its end is told by `hear`
            self._pipe.send(what)

    def hear(self, seconds: float | None = None) -> Any:  # noqa: ANN401 - what its job gives
        """The next that it says.

        Raises:
            UnavailableError: it has failed, or says nothing in time.
        """
        try:
            if not self._pipe.poll(seconds):
                raise UnavailableError(f"a client was not ready within {seconds:g} s")
            said = self._pipe.recv()
        except EOFError:
            raise UnavailableError("a client has ended before its time") from None
        if isinstance(said, _Trouble):
            raise UnavailableError(said.words)
        return said

    def close(self) -> None:
        """Ends it, if it has not ended by itself."""
        self._process.join(1)
        if self._process.is_alive():
            self._process.terminate()
            self._process.join()
        self._pipe.close()


class _Trouble:
    """Why a job was not done."""

    def __init__(self, words: str) -> None:
        self.words = words


@contextlib.contextmanager
def workers(*jobs: SendJob | ReadJob) -> Iterator[list[Worker]]:
    """A process for each job; all are connected.

    Raises:
        UnavailableError: one is not.
    """
    started: list[Worker] = []
    try:
        started.extend(map(Worker, jobs))
        for worker in started:
            assert worker.hear(START_SECONDS) == READY
        yield started
    finally:
        for worker in started:
            worker.close()


def begin(started: list[Worker]) -> int:
    """Lets all begin at the same moment; it."""
    start_us = now_us() + LEAD_US
    for worker in started:
        worker.tell(start_us)
    return start_us


def _work(job: SendJob | ReadJob, pipe: Connection) -> None:
    """What a process does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # its parent ends it
    parent = os.getppid()

    def ready() -> int:
        pipe.send(READY)
        start_us: int = pipe.recv()
        return start_us

    def outlook() -> Outlook | None:
        if os.getppid() != parent:
            raise EOFError
        if not pipe.poll(0):
            return None
        told: Outlook = pipe.recv()
        return told

    done: Sent | Got | _Trouble
    try:
        done = send(job, ready) if isinstance(job, SendJob) else read(job, ready, outlook)
    except EOFError:  # the parent is gone
        return
    except HeadraceError as error:
        done = _Trouble(str(error))
    except Exception as error:  # noqa: BLE001 - foreign clients have exceptions of their own
        done = _Trouble(f"{type(error).__name__}: {error}")
    pipe.send(done)
