"""The servers of a row: a headrace node and a mosquitto, each on a folder and a port of its own."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple


class Node(NamedTuple):
    """A running node: its process, its ports, its folder, and the seconds until it was ready."""

    process: int
    mqtt: int
    kafka: int
    data: Path
    mqtts: int
    frame: int
    http: int
    seconds: float


@contextlib.contextmanager
def headrace_node(
    folder: str | None = None, *, stop: int = signal.SIGTERM, **settings: str
) -> Iterator[Node]:
    """A node on a fresh folder, or on one that is there; `stop` is how it ends.

    Settings are variables `HEADRACE_TABLE__KEY`.
    """
    with contextlib.ExitStack() as stack:
        if folder is None:
            temporary = tempfile.TemporaryDirectory(prefix="headrace-bench-")
            folder = stack.enter_context(temporary)
        command = [sys.executable, "-m", "headrace", "serve", "--json", "--data", folder]
        command += ["--mqtt", "127.0.0.1:0", "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0"]
        command += ["--ws", "off", "--frame", "127.0.0.1:0"]
        started = time.perf_counter()
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=os.environ | settings
        ) as process:
            assert process.stdout is not None
            ready = json.loads(process.stdout.readline())
            seconds = time.perf_counter() - started
            try:
                ports = [
                    int(ready.get(door, ":0").rpartition(":")[2])
                    for door in ("mqtt", "kafka", "mqtts", "frame", "http")
                ]
                yield Node(process.pid, *ports[:2], Path(folder), *ports[2:], seconds)
            finally:
                process.send_signal(stop)
                process.wait()


class Peer(NamedTuple):
    """A running mosquitto: its process, its port, and the seconds until it answered."""

    process: int
    mqtt: int
    seconds: float


@contextlib.contextmanager
def mosquitto(listener: Mapping[str, str] = {}, **options: str) -> Iterator[Peer]:
    """mosquitto, without persistence unless `options` say so; lines of its configuration.

    `listener` holds what belongs to its one listener.
    """
    binary = shutil.which("mosquitto", path=f"{os.environ['PATH']}:/usr/sbin")
    if binary is None:
        sys.exit("the baseline is missing: install mosquitto (apt-get install mosquitto)")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    lines = {"listener": f"{port} 127.0.0.1", "allow_anonymous": "true", **listener}
    lines |= {"set_tcp_nodelay": "true", "max_inflight_messages": "0", "max_queued_messages": "0"}
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as config:
        config.writelines(f"{name} {value}\n" for name, value in {**lines, **options}.items())
        config.flush()
        started = time.perf_counter()
        with subprocess.Popen([binary, "-c", config.name], stderr=subprocess.DEVNULL) as process:
            try:
                await_port(port)
                yield Peer(process.pid, port, time.perf_counter() - started)
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait()


def for_others(folder: Path, *paths: Path) -> None:
    """Lets mosquitto use what is in a folder: it gives up root before it does."""
    folder.chmod(0o755)
    for path in paths:
        path.chmod(0o777)


def await_port(port: int) -> None:
    """Blocks until somebody listens."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=30).close()
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.001)


class Pair(NamedTuple):
    """headrace and its baseline, and who may use them."""

    node: Node
    peer: Peer
    credentials: tuple[str, bytes] | None = None


@contextlib.contextmanager
def both_servers() -> Iterator[Pair]:
    """headrace and mosquitto, open to everybody."""
    with headrace_node() as node, mosquitto() as peer:
        yield Pair(node, peer)


@contextlib.contextmanager
def both_with_a_user() -> Iterator[Pair]:
    """Both, and one user who must say a password."""
    user, password = "bench", b"a password of some length"
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        users = [sys.executable, "-m", "headrace", "users", "add", user, "--role", "admin"]
        data = Path(folder) / "data"
        data.mkdir()
        command = [*users, "--data", str(data)]
        subprocess.run(command, input=password, check=True, capture_output=True)
        hashed = Path(folder) / "mosquitto.users"
        command = ["mosquitto_passwd", "-c", "-b", str(hashed), user, password.decode()]
        subprocess.run(command, check=True, capture_output=True)
        for_others(Path(folder), hashed)
        with (
            headrace_node(str(data)) as node,
            mosquitto({"allow_anonymous": "false"}, password_file=str(hashed)) as peer,
        ):
            yield Pair(node, peer, (user, password))
