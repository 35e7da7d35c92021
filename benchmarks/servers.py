"""The servers of a row: a headrace node and a mosquitto, each on a folder and a port of its own."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from headrace.adapters.children import unused
from headrace.bench.suite.peers.peer import LeftOutError
from headrace.bench.suite.peers.process import Child, find


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
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as temporary:
        data = str(Path(temporary) / "data") if folder is None else folder
        command = [sys.executable, "-m", "headrace", "serve", "--data", data, "--ws", "off"]
        doors = dict(zip(("mqtt", "kafka", "http", "frame"), unused(4), strict=True))
        for door, address in doors.items():
            command += [f"--{door}", str(address)]
        (mqtts,) = unused(1)
        if "HEADRACE_MQTT__TLS_CERTIFICATE" in settings:
            settings["HEADRACE_MQTT__TLS_BIND"] = str(mqtts)
        node = Child(
            "headrace",
            command,
            Path(temporary),
            {},
            others=list(doors.values()),
            environment=os.environ | settings,
        )
        started = time.perf_counter()
        node.start()
        seconds = time.perf_counter() - started
        ports = {door: address.port for door, address in doors.items()}
        try:
            yield Node(
                process=node.pid, data=Path(data), mqtts=mqtts.port, seconds=seconds, **ports
            )
        finally:
            node.end(stop)


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
    try:
        binary = find("mosquitto")
    except LeftOutError as missing:
        sys.exit(f"the baseline is missing, {missing}: apt-get install mosquitto")
    (place,) = unused(1)
    lines = {"listener": f"{place.port} {place.host}", "allow_anonymous": "true", **listener}
    lines |= {"set_tcp_nodelay": "true", "max_inflight_messages": "0", "max_queued_messages": "0"}
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        config = Path(folder) / "mosquitto.conf"
        config.write_text("".join(f"{name} {value}\n" for name, value in (lines | options).items()))
        command = [binary, "-c", str(config)]
        # It may ask for TLS, or a password: no more than its port is waited for.
        peer = Child("mosquitto", command, Path(folder), {}, others=[place])
        started = time.perf_counter()
        with peer.running() as running:
            yield Peer(running.pid, place.port, time.perf_counter() - started)


def for_others(folder: Path, *paths: Path) -> None:
    """Lets mosquitto use what is in a folder: it gives up root before it does."""
    folder.chmod(0o755)
    for path in paths:
        path.chmod(0o777)


class Pair(NamedTuple):
    """headrace and its baseline, and who may use them."""

    node: Node
    peer: Peer
    credentials: tuple[str, bytes]


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
