"""Groups of programs under load: kcat, a program of kafkajs, and Kafka's own console consumer."""

import itertools
import shutil
import signal
import subprocess

import pytest

from groupmember import HEARTBEAT_MS, SESSION_MS
from kafkajars import Tools
from test_kafka_group_clients import come_and_go
from test_kafka_java import VERSIONS
from test_kafkajs import CLIENTS

pytestmark = [pytest.mark.clients, pytest.mark.slow]

SETTINGS = {
    "auto.offset.reset": "earliest",
    "session.timeout.ms": str(SESSION_MS),
    "heartbeat.interval.ms": str(HEARTBEAT_MS),
}


class Program:
    """A member that prints what it reads, a value a line, until a signal ends it."""

    def __init__(self, command, file, signal):
        self._file, self._signal = file, signal
        with file.open("wb") as out:
            self._process = subprocess.Popen(command, stdout=out, stderr=subprocess.PIPE)

    @property
    def values(self):
        return self._file.read_bytes().split()

    def stop(self):
        self._process.send_signal(self._signal)
        _, errors = self._process.communicate(timeout=60)
        ended = (0, -self._signal, 128 + self._signal)  # as Java says it
        assert self._process.returncode in ended, errors.decode()


@pytest.fixture
def start(tmp_path):
    """Starts a member by its command; all end with the test."""
    numbers, programs = itertools.count(), []

    def start(*command, signal=signal.SIGTERM):
        programs.append(Program(command, tmp_path / f"member-{next(numbers)}", signal))
        return programs[-1]

    yield start
    for program in programs:
        program._process.kill()
        program._process.communicate()


@pytest.mark.shows("kcat", "groups", "commits")
def test_kcat_comes_and_goes_under_load(shared, start):
    settings = [part for name, value in SETTINGS.items() for part in ("-X", f"{name}={value}")]
    command = ["kcat", "-b", shared.servers, *settings, "-q", "-u", "-G", "kcat", "kcat"]
    # On SIGTERM it commits, but does not print, what it has taken last.
    come_and_go(shared, "kcat", lambda: start(*command, signal=signal.SIGKILL))
    _, told = shared.call("GET", "/api/v1/groups/kcat")
    assert any(each["committed"] for each in told["partitions"])


@pytest.mark.shows("kafkajs", "groups")
def test_kafkajs_comes_and_goes_under_load(shared, start):
    node = shutil.which("node")
    program = str(CLIENTS / "kafkajs_member.js")
    times = [str(SESSION_MS), str(HEARTBEAT_MS)]
    command = [node, program, shared.servers, "kafkajs", "kafkajs", *times]
    come_and_go(shared, "kafkajs", lambda: start(*command))


@pytest.mark.soak
@pytest.mark.shows("java", "groups")
@pytest.mark.parametrize("version", VERSIONS)
def test_the_console_consumer_comes_and_goes_under_load(shared, start, tmp_path, version):
    tools = Tools(tmp_path, version)
    file = tmp_path / "consumer.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in SETTINGS.items()))
    name = f"java-{version}"
    command = tools.command(
        "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", shared.servers,
        "--consumer.config", str(file), "--group", name, "--topic", name,
    )  # fmt: skip
    come_and_go(shared, name, lambda: start(*command))
