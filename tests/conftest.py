"""Fixtures of all tests: a real node, started as a user starts it, on free loopback ports."""

import contextlib
import functools
import itertools
import json
import os
import random
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

import kafkaends
from authority import Authority
from headrace.native import Store
from headrace.node.kafka.connection import KafkaConnection
from kafkaraw import RawConnection
from secure import secure_settings
from storelog import opened

# Time is no property of the code here: a machine that is busy elsewhere must not fail a test.
settings.register_profile("headrace", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("headrace")

ROOT = Path(__file__).parent.parent
READY_SECONDS = 60
STOP_SECONDS = 60
SMALL_JOURNAL = {"HEADRACE_LOG__JOURNAL_BYTES": "4MiB"}
"""A new journal is two files written full of zeros: 128 MiB for each node of a test otherwise."""
KEEP_ALL = {"HEADRACE_LOG__RETENTION_MS": "-1"}
"""Tests write records of any date; the default of seven days would let go of them at any moment."""


SHORT_RUN_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A test runs Spark for seconds: to compile code well for them is waste."""
QUICK_STARTS = {
    "JAVA_TOOL_OPTIONS": SHORT_RUN_JAVA,
    "PYDANTIC_DISABLE_PLUGINS": "__all__",
    "SSL_CERT_DIR": os.devnull,
    "SSL_CERT_FILE": os.devnull,
}
"""aiohttp reads all authorities of the system when it is imported, pydantic what every installed
package says of itself: a sixth of the start of each of a thousand processes, and no test has use
for either."""


SOAK_SECONDS = 1800
"""A soak test runs for minutes, and on a machine that is busy elsewhere for many of them."""


def soaked(*values: object) -> object:
    """Parameters of a case that only repeats what others show: for `make soak`."""
    return pytest.param(*values, marks=pytest.mark.soak)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Gives soak tests that name no bound of their own a longer one."""
    for item in items:
        if item.get_closest_marker("soak") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SOAK_SECONDS))


def environment(**extra: str) -> dict[str, str]:
    """The environment of a started command: this source tree, no settings of the developer."""
    path = [str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
    # The ports that no test chooses.
    ports = dict.fromkeys(("HEADRACE_MQTT__WS_BIND", "HEADRACE_FRAME__BIND"), "127.0.0.1:0")
    own = {"PYTHONPATH": os.pathsep.join(path), **QUICK_STARTS}
    return kept | ports | own | extra


PORTS_OF_A_RUN = 1000


@functools.cache
def own_ports() -> Iterator[int]:
    """Ports that no other run of tests and no other worker of this one takes, again and again.

    They lie below those that connections get by themselves (ip(7)), so nobody has one when a node
    that was stopped, or killed, starts on it again. A name among abstract sockets (unix(7)) says
    whose they are: it goes with the process, and no two processes have it.
    """
    ends, _ = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    firsts = range(10_000, int(ends) - PORTS_OF_A_RUN, PORTS_OF_A_RUN)
    for first in random.SystemRandom().sample(firsts, len(firsts)):
        mark = socket.socket(socket.AF_UNIX)
        try:
            mark.bind(f"\0headrace tests, ports from {first}")
        except OSError:
            mark.close()
            continue
        mark.detach()  # Open until the process ends.
        return itertools.cycle(range(first, first + PORTS_OF_A_RUN))
    raise RuntimeError(f"all {len(firsts)} ranges of ports are taken by other runs of tests")


def unused_ports() -> tuple[int, int, int]:
    """Free ports of this process's own range."""
    found: list[int] = []
    for port in itertools.islice(own_ports(), PORTS_OF_A_RUN):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == 3:
            break
    one, two, three = found
    return one, two, three


def headrace(*args: str, timeout: float = 60, **extra: str) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "headrace", *args],
        capture_output=True,
        check=False,
        env=environment(**extra),
        text=True,
        timeout=timeout,
    )


def wait_for(condition: Callable[[], object], seconds: float = 30) -> None:
    """Waits until it holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.01)


class RunningNode:
    """A `headrace serve` process.

    Attributes:
        data: its folder.
        ready: its ready line, as JSON.
        process: to signal and to wait for.
        exit_codes: with which it may end.
    """

    def __init__(
        self,
        data: Path,
        *args: str,
        ports: tuple[int, int, int] | None = None,
        descriptors: int | None = None,
        **extra: str,
    ):
        self.exit_codes = {0, -signal.SIGKILL}
        self.data = data
        self.log = data.with_name(f"{data.name}.log")
        doors = zip(("--mqtt", "--kafka", "--http"), ports or unused_ports(), strict=True)
        addresses = [part for door, port in doors for part in (door, f"127.0.0.1:{port}")]
        wrap = [] if descriptors is None else ["prlimit", f"--nofile={descriptors}:{descriptors}"]
        command = [sys.executable, "-m", "headrace", "serve", "--json"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*wrap, *command, "--data", str(data), *addresses, *args],
                env=environment(**SMALL_JOURNAL | KEEP_ALL | extra),
                stderr=log,
                stdout=subprocess.PIPE,
            )
        self.ready: dict[str, Any] = json.loads(self._line())

    def _line(self) -> bytes:
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            line = self.process.stdout.readline() if selector.select(READY_SECONDS) else b""
        if not line:
            self.process.kill()
            self.process.communicate(timeout=STOP_SECONDS)
            pytest.fail(f"no ready line from the node:\n{self.log.read_text()}")
        return line

    def _port(self, door: str) -> int:
        return int(self.ready[door].rpartition(":")[2])

    @property
    def host(self) -> str:
        return "127.0.0.1"

    @property
    def mqtt(self) -> int:
        """Port."""
        return self._port("mqtt")

    @property
    def kafka(self) -> int:
        """Port."""
        return self._port("kafka")

    @property
    def frame(self) -> int:
        """Port."""
        return self._port("frame")

    @property
    def http(self) -> int:
        """Port."""
        return self._port("http")

    @property
    def servers(self) -> str:
        """The Kafka door, as clients take it."""
        return f"127.0.0.1:{self.kafka}"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http}"

    def call(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        """One HTTP request: status, and the answer's JSON or text."""
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, method=method, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                status, content, kind = response.status, response.read(), response.headers
        except urllib.error.HTTPError as error:
            status, content, kind = error.code, error.read(), error.headers
        text = content.decode()
        return status, json.loads(text) if kind.get_content_type() == "application/json" else text

    def create_stream(self, name: str, **body: object) -> None:
        status, answer = self.call("POST", "/api/v1/streams", {"name": name, **body})
        assert status == 201, answer

    def ends(self, stream: str) -> list[int]:
        """End offset of each partition."""
        status, answer = self.call("GET", f"/api/v1/streams/{stream}")
        assert status == 200, answer
        return [each["end"] for each in answer["partitions"]]

    def metrics(self, **headers: str) -> dict[str, float]:
        """Samples by `name{label="value"}`."""
        _, text = self.call("GET", "/metrics", **headers)
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}

    def resident_bytes(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) * 1024

    def kill(self) -> None:
        """SIGKILL: no flush, no goodbye."""
        self.process.kill()
        self.process.wait(STOP_SECONDS)

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_SECONDS)

    def restarted(self, *args: str, **extra: str) -> "RunningNode":
        """Starts it again on the same folder and the same ports."""
        ports = (self.mqtt, self.kafka, self.http)
        return RunningNode(self.data, *args, ports=ports, **extra)

    def close(self) -> None:
        """Ends it, shows its log, and fails where it had fallen or logged a fault."""
        code = self.process.poll()
        if code is None:
            code = self.stop()
        if self.process.stdout is not None:
            self.process.stdout.close()
        log = self.log.read_text()
        print(f"--- log of the node (exit code {code}) ---\n{log}")
        assert code in self.exit_codes, f"the node ended with {code}"
        assert "Traceback" not in log


@pytest.fixture
def start_node(tmp_path):
    """Starts nodes; each ends with the test."""
    with contextlib.ExitStack() as nodes:

        def start(*args: str, data: Path | None = None, **extra: Any) -> RunningNode:
            node = RunningNode(data or tmp_path / "data", *args, **extra)
            nodes.callback(node.close)
            return node

        def restart(node: RunningNode, *args: str, **extra: str) -> RunningNode:
            again = node.restarted(*args, **extra)
            nodes.callback(again.close)
            return again

        start.again = restart
        yield start


@pytest.fixture(scope="module")
def shared(tmp_path_factory) -> Iterator[RunningNode]:
    """A node of a whole file, for tests that leave it as they found it."""
    node = RunningNode(tmp_path_factory.mktemp("shared") / "data")
    yield node
    node.close()


@pytest.fixture(scope="module")
def authority(tmp_path_factory) -> Authority:
    """Issues the certificates of a file's tests."""
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def server(authority) -> tuple[Path, Path]:
    """Certificate and key of a node."""
    return authority.issue("server", "localhost", "127.0.0.1")


@pytest.fixture(scope="module")
def secured(tmp_path_factory, server) -> Iterator[RunningNode]:
    """A node with every listener, for tests that leave it as they found it."""
    folder = tmp_path_factory.mktemp("secured")
    unix = {"HEADRACE_MQTT__UNIX_PATH": str(folder / "mqtt.sock")}
    node = RunningNode(folder / "data", **secure_settings(server, **unix))
    yield node
    node.close()


@pytest.fixture
def stream(node) -> str:
    """A fresh stream of three partitions, on the node of the file."""
    name = f"s-{uuid.uuid4().hex[:12]}"
    node.create_stream(name, partitions=3)
    return name


@pytest.fixture
def raw(node) -> Iterator[RawConnection]:
    """A Kafka connection to the node of the file."""
    with RawConnection(node) as connection:
        yield connection


@pytest.fixture
def store(tmp_path) -> Iterator[Store]:
    """A store of small files on an empty folder."""
    with opened(tmp_path) as store:
        yield store


@pytest.fixture
def memory_folder(tmp_path) -> Iterator[Path]:
    """On a file system on which little else happens."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    path = Path(tempfile.mkdtemp(dir=memory))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def broker(start_node) -> RunningNode:
    """A node with an empty folder and every default."""
    return start_node()


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """One Spark session for all tests: two threads, and a start that is quick rather than a run."""
    from headrace.spark import close, session  # noqa: PLC0415 - most tests need no Java

    log = tmp_path_factory.mktemp("spark") / "log"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT / "src"))  # for the workers
        started = session("tests", cores=2, short_run=True, log_file=log)
    yield started
    close(started)


# One Kafka connection between the ends of `kafkaends`.


@pytest.fixture
def link() -> kafkaends.Link:
    return kafkaends.Link()


@pytest.fixture
def door() -> kafkaends.Door:
    return kafkaends.Door()


@pytest.fixture
async def connection(door, link) -> AsyncIterator[KafkaConnection]:
    async with kafkaends.connected(door, link) as connection:
        yield connection
