"""The demo's broker: a child process that is restarted where it dies.

Owns one `headrace serve` on free loopback ports, its log, and its end. The ports stay the same
through restarts, so that clients come back by themselves; they are none that the kernel gives to
connections, one of which could have such a port when the broker comes back. The child ends with
this process, however this one ends.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

from headrace.adapters.children import unused, with_us
from headrace.errors import StartError
from headrace.model import Address

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DOORS: Final = ("mqtt", "kafka", "http")

_READY_S_MAX: Final = 60.0
_STOP_S_MAX: Final = 20.0
_LOOK_S: Final = 0.5
_REFUSALS_MAX: Final = 10
"""Restarts in a row that end before they are ready."""


class Broker:
    """A broker under supervision. `start` it once; `close` ends it.

    Args:
        data: its data folder.
        log: file that takes its log.
        on_change: told in a word what happened, on the supervising thread.
    """

    def __init__(self, data: Path, log: Path, on_change: Callable[[str], None]) -> None:
        self._data = data
        self._log = log
        self._on_change = on_change
        self._child: subprocess.Popen[bytes] | None = None
        self._addresses = dict(zip(DOORS, unused(len(DOORS)), strict=True))
        self.failure: Future[None] = Future()
        """Gets an exception where the broker does not come back."""
        self._refusals = 0
        self._closing = threading.Event()
        self._ready = threading.Event()
        self._lock = threading.Lock()
        self._up = False
        # One thread makes every child: the kernel ends a child when the thread that made it ends.
        self._supervisor = threading.Thread(target=self._supervise, name="broker", daemon=True)

    def start(self) -> None:
        """Starts it and waits until all its doors are open.

        Raises:
            StartError: it does not start; the message is its own.
        """
        self._supervisor.start()
        if not self._ready.wait(_READY_S_MAX) or not self._up:
            self.close()
            raise StartError(f"the broker did not start: {self._last_words()}")

    def address(self, door: str) -> Address:
        """Where `mqtt`, `kafka` or `http` is; stays the same through restarts."""
        return self._addresses[door]

    @property
    def pid(self) -> int | None:
        """The process that serves now, or the last that did."""
        with self._lock:
            return None if self._child is None else self._child.pid

    def close(self) -> None:
        """Stops it in order, or at once where it takes too long."""
        self._closing.set()
        with self._lock:
            child = self._child
        if child is not None:
            child.terminate()
            try:
                child.wait(_STOP_S_MAX)
            except subprocess.TimeoutExpired:
                child.kill()
        if self._supervisor.ident is not None:
            self._supervisor.join(_STOP_S_MAX)

    def _supervise(self) -> None:
        while not self._closing.is_set():
            child = self._launch()
            if child is None:
                return
            assert child.stdout is not None
            with child, child.stdout as output:
                ready = output.readline()
                if ready:
                    self._note(json.loads(ready))
                    output.read()  # ends with the process
                status = child.wait()
            if ready:
                self._report(status)
            elif not self._up:
                self._ready.set()  # the first one ended before it was ready
                return
            elif not self._wait_while_served() and self._gives_up():
                return

    def _launch(self) -> subprocess.Popen[bytes] | None:
        # -P: a folder named headrace, where the user happens to be, is not what is meant.
        serve = [sys.executable, "-P", "-m", "headrace", "serve", "--json"]
        serve += ["--data", str(self._data)]
        for door, address in self._addresses.items():
            serve += [f"--{door}", str(address)]
        kept = {name: os.environ[name] for name in os.environ if not name.startswith("HEADRACE_")}
        for setting in ("MQTT__WS_BIND", "FRAME__BIND"):  # their ports may be another node's
            kept[f"HEADRACE_{setting}"] = "off"
        with self._lock, self._log.open("ab") as log:
            if self._closing.is_set():
                return None
            self._child = subprocess.Popen(  # noqa: S603
                with_us(serve),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=kept,
                process_group=0,  # Ctrl-C reaches this process alone, which stops things in order
            )
            return self._child

    def _note(self, ready: dict[str, Any]) -> None:
        for door in DOORS:
            self._addresses[door] = Address.parse(ready[door])
        if self._up:
            self._on_change("broker restarted")
        self._refusals = 0
        self._up = True
        self._ready.set()

    def _report(self, status: int) -> None:
        if not self._closing.is_set():
            how = f"signal {-status}" if status < 0 else f"exit code {status}"
            self._on_change(f"broker ended by {how}")

    def _wait_while_served(self) -> bool:
        """Waits while somebody else, who restarted it before us, serves on our ports.

        Returns whether there was anybody.
        """
        served = False
        while not self._closing.wait(_LOOK_S) and self._answers():
            if not served:
                served = True
                self._on_change("broker restarted by somebody else; using that one")
        return served

    def _gives_up(self) -> bool:
        self._refusals += 1
        if self._refusals < _REFUSALS_MAX or self._closing.is_set():
            return False
        error = StartError(f"the broker does not start again: {self._last_words()}")
        self.failure.set_exception(error)
        return True

    def _answers(self) -> bool:
        try:
            with socket.create_connection(self._addresses["mqtt"], timeout=_LOOK_S):
                return True
        except OSError:
            return False

    def _last_words(self) -> str:
        log = self._log.read_text(errors="replace") if self._log.exists() else ""
        lines = log.strip().splitlines()
        said = lines[-1].removeprefix("headrace: ") if lines else "it said nothing"
        return f"{said} (log: {self._log})"
