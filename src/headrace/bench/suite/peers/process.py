"""A broker as a process of this machine: found, awaited until it answers, ended.

Owns what is the same for every broker, and must not know any of them. A process has a group of
its own: Ctrl-C reaches who measures, who then ends what it has started, with all its children. It
inherits the cores on which the thread that starts it may run.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.adapters.children import with_us
from headrace.bench.suite.peers.peer import Door, LeftOutError, Running
from headrace.errors import StartError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from headrace.model import Address

USUAL_FOLDERS: Final = (
    "/usr/sbin",
    "/usr/local/bin",
    "/usr/local/sbin",
    "~/.cargo/bin",
    "~/go/bin",
)
"""Where packages put what is not on everybody's PATH."""

START_SECONDS: Final = 180.0
"""Until its doors answer; RabbitMQ takes 30 where another process has its core."""
END_SECONDS: Final = 60.0
"""After which what was asked to end is killed."""
VERSION_SECONDS: Final = 60.0
LOOK_SECONDS: Final = 0.005
ANSWER_SECONDS: Final = 5.0
TOLD_LINES: Final = 5
"""Of a broker's output in an error."""
TOLD_BYTES: Final = 4096

CONNECT: Final = b"\x10\x16\x00\x04MQTT\x04\x02\x00\x3c\x00\x0aare-you-up"
"""MQTT 3.1.1, as anybody, clean."""
CONNACK: Final = b"\x20\x02\x00\x00"


def find(binary: str, *folders: str | Path) -> str:
    """The path of a program: in `folders`, on PATH, or where packages put what is not there.

    Raises:
        LeftOutError: it is nowhere.
    """
    # Those of the package come first: what is on PATH may be a wrapper of it.
    places = [*folders, os.environ.get("PATH", os.defpath), *USUAL_FOLDERS]
    found = shutil.which(binary, path=":".join(map(os.path.expanduser, places)))
    if found is None:
        raise LeftOutError(f"there is no {binary}")
    return str(Path(found).absolute())


def said(command: Sequence[str], pattern: str, environment: Mapping[str, str] | None = None) -> str:
    """The first group of `pattern` in what a command says, such as a version.

    Raises:
        LeftOutError: it says nothing of the kind.
    """
    try:
        told = subprocess.run(  # noqa: S603
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            env=environment,
            timeout=VERSION_SECONDS,
        ).stdout.decode(errors="replace")
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LeftOutError(f"{command[0]} does not run: {error}") from None
    match = re.search(pattern, told)
    if match is None:
        raise LeftOutError(f"{' '.join(command)} says no version: {one_line(told)}")
    return match[1]


def numbers(version: str) -> tuple[int, ...]:
    """Of a version, to be compared."""
    return tuple(map(int, re.findall(r"\d+", version)))


def one_line(told: str) -> str:
    """The last lines that a program wrote."""
    lines = [line.strip() for line in told.splitlines() if line.strip()]
    return " / ".join(lines[-TOLD_LINES:]) or "it said nothing"


class Child:
    """A broker's process; once ended, it can be started again on what it has left.

    Attributes:
        name: of the broker, in errors.
        doors: where it listens once it is up.
        output: the file that takes what it writes.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        folder: Path,
        doors: Mapping[Door, Address],
        *,
        others: Sequence[Address] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Starts nothing yet.

        Args:
            name: of the broker, in errors and of the file of its output.
            command: the program and its arguments; it must stay in the foreground.
            folder: it runs there; its output goes to a file in it.
            doors: where it listens once it is up.
            others: further places where it listens once it is up.
            environment: all of it; None for that of this process.
        """
        self.name, self.doors, self.output = name, dict(doors), folder / f"{name}.output"
        self._command, self._folder, self._environment = command, folder, environment
        self._places = [*others, *doors.values()]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of the process that runs."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Returns once each door answers: that for MQTT with a CONNACK.

        Raises:
            StartError: it ended, or does not answer; the last lines that it wrote.
        """
        program = shutil.which(self._command[0])
        if program is None:
            raise StartError(f"{self.name}: {self._command[0]} is no program")
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603
                with_us([str(Path(program).absolute()), *self._command[1:]]),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self._folder,
                env=self._environment,
                process_group=0,
            )
        try:
            self._await(self._process)
        except BaseException:
            self.end(signal.SIGKILL)
            raise

    def _await(self, process: subprocess.Popen[bytes]) -> None:
        until = time.monotonic() + START_SECONDS
        left = list(self._places)
        while left:
            is_mqtt = left[0] == self.doors.get(Door.MQTT)
            problem = _missing(left[0], CONNECT, CONNACK) if is_mqtt else _missing(left[0])
            if process.poll() is not None:
                raise StartError(f"{self.name} ended with {process.returncode}: {self._told()}")
            if problem is None:
                del left[0]
            elif time.monotonic() > until:
                raise StartError(
                    f"{self.name} is not up after {START_SECONDS:g} s: {problem}: {self._told()}"
                )
            else:
                time.sleep(LOOK_SECONDS)

    def _told(self) -> str:
        with self.output.open("rb") as output:
            output.seek(max(0, output.seek(0, os.SEEK_END) - TOLD_BYTES))
            return one_line(output.read().decode(errors="replace"))

    def end(self, how: int = signal.SIGTERM) -> None:
        """Ends it and its children; nothing, where it does not run."""
        if self._process is None:
            return
        process, self._process = self._process, None
        process.send_signal(how)
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_SECONDS)
        finally:  # it leaves nobody behind, also where somebody is tired of waiting for it
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    @contextlib.contextmanager
    def running(self) -> Iterator[Running]:
        """Starts it, and ends it with the block.

        Raises:
            StartError: as `start`.
        """
        self.start()
        try:
            yield Running(self.doors, self.pid)
        finally:
            self.end()


def _missing(address: Address, asked: bytes = b"", answer: bytes = b"") -> str | None:
    """What keeps a server from being up."""
    try:
        with socket.create_connection(address, timeout=ANSWER_SECONDS) as connection:
            connection.sendall(asked)
            got = b""
            while len(got) < len(answer) and (more := connection.recv(len(answer) - len(got))):
                got += more
    except OSError as error:
        return f"{address}: {error.strerror or error}"
    return None if got == answer else f"{address} answers CONNECT with {got.hex(' ') or 'its end'}"
