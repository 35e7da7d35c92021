"""Apache Kafka in KRaft mode: one process that is broker and controller, from a folder of jars.

Its settings are its own, but for those that one node needs, and two: in durable mode it syncs each
batch before it acknowledges, and retention is looked at each second, as headrace is told to.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.adapters.children import unused
from headrace.bench.suite.peers.peer import Door, Feature, LeftOutError, Mode, Running
from headrace.bench.suite.peers.process import START_SECONDS, Child, find, one_line, said
from headrace.client.append import AppendClient
from headrace.errors import StartError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.model import Address

JARS_VARIABLE: Final = "HEADRACE_BENCH_KAFKA_JARS"
HOME_VARIABLE: Final = "KAFKA_HOME"

FOLDERS: Final = ("~/.cache/headrace/kafka", "/opt/kafka/libs", "/usr/share/kafka/libs")
"""Where jars are, unless a variable says where; `install` puts them into the first."""

WARM_UP_SECONDS: Final = 20.0
"""A JVM compiles what it runs: on one core rates grow threefold meanwhile."""

_SERVER: Final = re.compile(r"kafka_2\.\d+-(\d[\w.]*)\.jar")
"""The jar with the broker: versions of Scala and of Kafka."""

_CLUSTER: Final = "aGVhZHJhY2UtYmVuY2gtMQ"
"""Its id, 16 bytes in base64."""

_JVM: Final = (
    "-server", "-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)  # fmt: skip
"""As Kafka's own scripts start a broker."""

_PROMISES: Final = {
    Mode.MEMORY: "in the page cache: survives the process, not a power cut (Kafka's default)",
    Mode.DURABLE: "on disk: each batch is synced before it is acknowledged",
}


def jars() -> tuple[Path, str]:
    """The folder that has a broker, and its version.

    Raises:
        LeftOutError: none has.
    """
    places = [os.environ.get(JARS_VARIABLE, "")]
    if home := os.environ.get(HOME_VARIABLE):
        places.append(f"{home}/libs")
    named = [place for place in places if place]
    for place in named or FOLDERS:
        folder = Path(place).expanduser()
        for jar in sorted(folder.glob("kafka_2.*.jar")):
            if match := _SERVER.fullmatch(jar.name):
                return folder, match[1]
    raise LeftOutError(f"no kafka_2.13-VERSION.jar is in {' or '.join(named or FOLDERS)}")


class Kafka:
    """Of the version of its jars."""

    name = "kafka"
    doors = frozenset({Door.KAFKA})
    install = "mvn -f benchmarks/peers/kafka.xml dependency:copy-dependencies"

    @property
    def lacks(self) -> frozenset[Feature]:
        """Nothing that a workload of its door needs."""
        return frozenset()

    def version(self) -> str:
        """Of the broker, and of the Java that it runs on."""
        _, version = jars()
        java = said([_java(), "-version"], r'version "([^"]+)"')
        return f"{version}, Java {java}"

    def promise(self, door: Door, mode: Mode) -> str | None:
        """What an acknowledgement with acks=all means."""
        return _PROMISES[mode] if door is Door.KAFKA else None

    @contextlib.contextmanager
    def start(self, folder: Path, mode: Mode) -> Iterator[Running]:
        """Formats the folder, starts it, and returns once it gives out producer ids."""
        address, controller = unused(2)
        settings = folder / "server.properties"
        settings.write_text(_settings(folder, address, controller, mode))
        formats = ["format", "--cluster-id", _CLUSTER, "--config", str(settings)]
        _run(_command("kafka.tools.StorageTool", *formats, options=()))
        command = _command("kafka.Kafka", str(settings), options=_JVM)
        child = Child(self.name, command, folder, {Door.KAFKA: address}, others=[controller])
        with child.running() as running:
            with AppendClient(str(address)) as client:
                client.producer_id()  # the last that it can do when it comes up
            yield replace(running, warm_up_seconds=WARM_UP_SECONDS)


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    return find("java", *([f"{home}/bin"] if home else []))


def _command(program: str, *arguments: str, options: tuple[str, ...]) -> list[str]:
    """How a program is started, by the name of its class."""
    return [_java(), *options, "-cp", f"{jars()[0]}/*", program, *arguments]


def _run(command: list[str]) -> None:
    try:
        ran = subprocess.run(  # noqa: S603 - the Java of this machine
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=START_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise StartError(f"kafka: {error}") from None
    if ran.returncode:
        raise StartError(f"kafka: {one_line(ran.stdout.decode(errors='replace'))}")


def _settings(folder: Path, address: Address, controller: Address, mode: Mode) -> str:
    lines = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{address},CONTROLLER://{controller}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(folder / "data"),
        "offsets.topic.replication.factor": "1",
        "log.retention.check.interval.ms": "1000",
        "log.segment.delete.delay.ms": "1000",
    }
    if mode is Mode.DURABLE:
        lines["log.flush.interval.messages"] = "1"
    return "".join(f"{name}={value}\n" for name, value in lines.items())
