"""A broker as a process of this machine: found, on free ports, awaited until it answers, ended.

Owns what is the same for every broker, and must not know any of them. A process has a group of
its own: Ctrl-C reaches who measures, who then ends what it has started, with all its children. It
inherits the cores on which the thread that starts it may run.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.bench.suite.peers.peer import Door, LeftOutError, Running
from headrace.errors import StartError
from headrace.model import Address

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

HOST: Final = "127.0.0.1"

USUAL_FOLDERS: Final = ("/usr/sbin", "/usr/local/bin", "/usr/local/sbin", "~/.cargo/bin", "~/go/bin")
"""Where packages put what is not on everybody's PATH."""

START_SECONDS: Final = 90.0
"""Until its doors answer; RabbitMQ takes 10 to 20 on a busy machine."""
END_SECONDS: Final = 20.0
"""After which what was asked to end is killed."""
VERSION_SECONDS: Final = 60.0
LOOK_SECONDS: Final = 0.005
ANSWER_SECONDS: Final = 5.0
TOLD_LINES: Final = 3
"""Of a broker's output in an error."""
TOLD_BYTES: Final = 4096

FIRST_PORT: Final = 10_000
EPHEMERAL: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
PORT_TRIES: Final = 100

CONNECT: Final = b"\x10\x16\x00\x04MQTT\x04\x02\x00\x3c\x00\x0aare-you-up"
"""MQTT 3.1.1, as anybody, clean."""
CONNACK: Final = b"\x20\x02\x00\x00"


def find(binary: str, install: str, *folders: str) -> Path:
    """The path of a broker's program: on PATH, in `folders`, or where packages put such.

    Raises:
        LeftOutError: it is nowhere.
    """
    # Those of the package come first: what is on PATH may be a wrapper of it.
    places = [*folders, os.environ.get("PATH", os.defpath), *USUAL_FOLDERS]
    found = shutil.which(binary, path=":".join(os.path.expanduser(place) for place in places))
    if found is None:
        raise LeftOutError(f"no {binary} is installed: {install}")
    return Path(found)


def said(command: Sequence[str | Path], pattern: str) -> str:
    """The first group of `pattern` in what a command says, such as a version; else `unknown`."""
    told = subprocess.run(  # noqa: S603
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        text=True,
        errors="replace",
        timeout=VERSION_SECONDS,
    ).stdout
    match = re.search(pattern, told)
    return match[1] if match else "unknown"


def free_ports(count: int) -> list[int]:
    """So many different ones of the loopback address that nobody has.

    They lie below those that the kernel gives to connections, where there are any: one of a load
    could else take a port before its broker does.
    """
    try:
        end = int(EPHEMERAL.read_text().split()[0])
    except FileNotFoundError:  # this is no Linux
        end = FIRST_PORT
    with contextlib.ExitStack() as held:
        return [_bound(held, end) for _ in range(count)]


def _bound(held: contextlib.ExitStack, end: int) -> int:
    probe = held.enter_context(socket.socket())
    for _ in range(PORT_TRIES if end > FIRST_PORT else 0):
        with contextlib.suppress(OSError):  # somebody has it
            probe.bind((HOST, random.randrange(FIRST_PORT, end)))  # noqa: S311
            break
    else:
        probe.bind((HOST, 0))
    return int(probe.getsockname()[1])


class Child:
    """A broker's process; once ended, it can be started again on what it has left.

    Attributes:
        name: of the broker, in errors.
        doors: where it listens once it is up.
        others: further ports at which it listens by then.
        output: the file that takes what it writes.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        folder: Path,
        doors: Mapping[Door, Address],
        *,
        others: Sequence[int] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Starts nothing yet.

        Args:
            command: program and arguments; it must stay in the foreground.
            folder: it runs there; its output goes to `output` in it.
            environment: all of it; None for that of this process.
        """
        self.name, self.doors, self.others = name, dict(doors), others
        self.output = folder / f"{name}.output"
        self._command, self._folder, self._environment = command, folder, environment
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of the process that was started last."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Returns once each door answers, MQTT with a CONNACK.

        Raises:
            StartError: it ended, or does not answer; the last lines that it wrote.
        """
        with self.output.open("ab") as output:
            try:
                self._process = subprocess.Popen(  # noqa: S603
                    self._command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    cwd=self._folder,
                    env=self._environment,
                    start_new_session=True,
                )
            except OSError as error:
                raise StartError(f"{self.name}: {self._command[0]}: {error.strerror}") from None
        try:
            until = time.monotonic() + START_SECONDS
            for port in (*self.others, *(address.port for address in self.doors.values())):
                self._await(Address(HOST, port), b"", b"", until)
            if Door.MQTT in self.doors:
                self._await(self.doors[Door.MQTT], CONNECT, CONNACK, until)
        except BaseException:
            self.end(signal.SIGKILL)
            raise

    def _await(self, address: Address, asked: bytes, answer: bytes, until: float) -> None:
        assert self._process is not None
        found = f"nobody listens at {address}"
        while True:
            ended = self._process.poll()
            if ended is not None:
                raise StartError(f"{self.name} ended with {ended}: {self.last_lines()}")
            try:
                with socket.create_connection(address, timeout=ANSWER_SECONDS) as connection:
                    connection.sendall(asked)
                    got = b""
                    while len(got) < len(answer) and (read := connection.recv(64)):
                        got += read
            except OSError as error:
                found = f"{address}: {error.strerror or error}"
            else:
                if got.startswith(answer):
                    return
                found = f"{address} answers a CONNECT with {got.hex(' ') or 'the end'}"
            if time.monotonic() > until:
                raise StartError(
                    f"{self.name} is not up after {START_SECONDS:g} s, {found}: {self.last_lines()}"
                )
            time.sleep(LOOK_SECONDS)

    def last_lines(self) -> str:
        """What it wrote last, in one line."""
        with self.output.open("rb") as output:
            output.seek(max(0, output.seek(0, os.SEEK_END) - TOLD_BYTES))
            lines = output.read().decode(errors="replace").split("\n")
        told = [line.strip() for line in lines if line.strip()]
        return " / ".join(told[-TOLD_LINES:]) or "it wrote nothing"

    def end(self, how: int = signal.SIGTERM) -> None:
        """Ends it and its children; nothing, where it does not run."""
        if self._process is None:
            return
        self._process.send_signal(how)
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
        with contextlib.suppress(ProcessLookupError):  # it leaves nobody behind
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process = None

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


def mqtt_child(
    name: str,
    command: Sequence[str | Path],
    folder: Path,
    port: int,
    environment: Mapping[str, str] | None = None,
) -> Child:
    """A broker with one door for MQTT at this port."""
    doors = {Door.MQTT: Address(HOST, port)}
    return Child(name, command, folder, doors, environment=environment)
