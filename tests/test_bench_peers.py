"""Brokers beside which `headrace bench suite` measures: found, started, awaited, ended.

What is not installed is skipped, with what is missing; mosquitto always is.
"""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import paho.mqtt.client as paho
import pytest

from conftest import environment, wait_for
from headrace.adapters.children import unused
from headrace.bench.suite.peers import process
from headrace.bench.suite.peers.aedes import Aedes
from headrace.bench.suite.peers.amqtt import Amqtt
from headrace.bench.suite.peers.mochi import Mochi
from headrace.bench.suite.peers.nats import Nats
from headrace.bench.suite.peers.peer import Door, Feature, LeftOutError, Mode
from headrace.bench.suite.peers.process import Child, find, said
from headrace.bench.suite.peers.rabbitmq import RabbitMq
from headrace.bench.suite.peers.rmqtt import Rmqtt
from headrace.bench.suite.peers.rumqttd import Rumqttd
from headrace.errors import StartError

PEERS = [Nats(), RabbitMq(), Aedes(), Amqtt(), Rumqttd(), Rmqtt(), Mochi()]

SERVER = """
import os, signal, socket, subprocess, sys
address, stubborn = (sys.argv[1], int(sys.argv[2])), sys.argv[3] == "stubborn"
if stubborn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen(["sleep", "1000"])
print(child.pid, flush=True)
with socket.create_server(address) as server:
    while True:
        with server.accept()[0] as connection:
            if connection.recv(100):
                connection.sendall(bytes([0x20, 2, 0, 0]))
"""
"""Answers CONNECT, and has a child."""


def stub(folder, name, text):
    program = folder / name
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)


def server(folder, *options):
    (place,) = unused(1)
    command = [sys.executable, "-c", SERVER, place.host, str(place.port), *options]
    return Child("stub", command, folder, {Door.MQTT: place})


def lives(pid):
    """Whether there is such a process, and it has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


# --- finding --------------------------------------------------------------------------------------


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_a_broker_that_is_not_here_is_named(peer, tmp_path, monkeypatch):
    for variable, value in (("PATH", tmp_path), ("HOME", tmp_path), ("NODE_PATH", "")):
        monkeypatch.setenv(variable, str(value))
    monkeypatch.delenv("AMQTT_PYTHON", raising=False)
    with contextlib.suppress(LeftOutError):
        pytest.skip(f"{peer.name} {peer.version()} is installed where PATH need not name it")
    with pytest.raises(LeftOutError, match=r"^there is no "):
        peer.version()
    with pytest.raises(LeftOutError, match=r"^there is no "), peer.start(tmp_path, Mode.MEMORY):
        pass


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_it_says_how_it_is_installed_and_what_an_acknowledgement_means(peer):
    assert any(word in peer.install for word in ("apt-get", "npm", "pip", "cargo", "go")), peer.name
    try:
        assert peer.promise(Door.MQTT, Mode.MEMORY).startswith("acknowledges ")
    except LeftOutError as missing:
        pytest.skip(f"{missing}: {peer.install}")
    assert peer.promise(Door.KAFKA, Mode.MEMORY) is None


@pytest.mark.parametrize(
    ("version", "lacks_qos_2", "syncs"), [("2.9.10", True, False), ("2.11.3", False, True)]
)
def test_what_nats_can_do_depends_on_its_version(
    tmp_path, monkeypatch, version, lacks_qos_2, syncs
):
    stub(tmp_path, "nats-server", f"echo nats-server: v{version}")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    peer = Nats()
    assert peer.version() == version
    assert (Feature.QOS_2 in peer.lacks) == lacks_qos_2
    assert ("synced" in peer.promise(Door.MQTT, Mode.DURABLE)) == syncs
    assert "2 minutes" in peer.promise(Door.MQTT, Mode.MEMORY)


def test_a_program_that_says_no_version_is_left_out(tmp_path):
    stub(tmp_path, "broker", "echo usage: broker; exit 1")
    with pytest.raises(LeftOutError, match="says no version: usage: broker"):
        said([find("broker", tmp_path), "--version"], r"v([\d.]+)")


# --- starting -------------------------------------------------------------------------------------


def test_a_start_that_fails_tells_the_last_lines(tmp_path, monkeypatch):
    lines = (
        "for each in 1 2 3 4 5; do echo $each; done; echo '[FTL] no room for streams' >&2; exit 3"
    )
    stub(tmp_path, "nats-server", f'[ "$1" = --version ] && echo v2.11.0 && exit; {lines}')
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    told = r"^nats ended with 3: 2 / 3 / 4 / 5 / \[FTL\] no room for streams$"
    with pytest.raises(StartError, match=told), Nats().start(tmp_path, Mode.DURABLE):
        pass


def test_one_that_never_listens_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(process, "START_SECONDS", 0.2)
    stub(tmp_path, "broker", "echo waiting for a quorum; exec sleep 1000")
    child = Child("deaf", [str(tmp_path / "broker")], tmp_path, {}, others=unused(1))
    with pytest.raises(StartError, match=r"deaf is not up after 0\.2 s.*refused.*for a quorum"):
        child.start()


def test_one_that_lets_nobody_in_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(process, "START_SECONDS", 5)  # an interpreter starts meanwhile
    refusing = SERVER.replace("0x20, 2, 0, 0", "0x20, 2, 0, 5")
    (place,) = unused(1)
    command = [sys.executable, "-c", refusing, place.host, str(place.port), "meek"]
    child = Child("stub", command, tmp_path, {Door.MQTT: place})
    with pytest.raises(StartError, match="answers CONNECT with 20 02 00 05"), child.running():
        pass


def test_what_is_no_program_is_told(tmp_path):
    child = Child("mine", ["no-such-broker", "--port"], tmp_path, {})
    with pytest.raises(StartError, match="mine: no-such-broker is no program"):
        child.start()


def ends_with(code):
    """The server that `code` starts, and whose process id it prints, ends with who runs it."""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment()
    ) as measuring:
        pid = int(measuring.stdout.readline())
        assert lives(pid)
        measuring.send_signal(signal.SIGKILL)
    wait_for(lambda: not lives(pid))


def test_mosquitto_ends_with_who_measures_whoever_that_is(tmp_path):
    code = f"""
import time
from pathlib import Path
from headrace.bench.suite.peers.mosquitto import Mosquitto
from headrace.bench.suite.peers.peer import Mode
with Mosquitto().start(Path({str(tmp_path)!r}), Mode.DURABLE) as running:
    print(running.pid, flush=True)
    time.sleep(1000)
"""
    ends_with(code)


@pytest.mark.parametrize("manner", ["meek", "stubborn"])
def test_it_ends_with_its_children_and_can_be_started_again(tmp_path, monkeypatch, manner):
    monkeypatch.setattr(process, "END_SECONDS", 0.2 if manner == "stubborn" else 30)
    child = server(tmp_path, manner)
    for starts in (1, 2):
        with child.running() as running:
            grandchild = int(child.output.read_text().split()[starts - 1])
            assert lives(running.pid)
            assert lives(grandchild)
        assert not lives(running.pid)
        wait_for(lambda pid=grandchild: not lives(pid))


def test_it_ends_also_where_somebody_is_tired_of_waiting_for_it(tmp_path):
    child = server(tmp_path, "stubborn")
    child.start()
    pid = child.pid
    grandchild = int(child.output.read_text())
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(KeyboardInterrupt):
            child.end()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert not lives(pid)
    wait_for(lambda: not lives(grandchild))


def test_it_ends_with_who_measures(tmp_path):
    code = f"""
import sys, time
sys.argv[1:] = []
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parent)!r})
import test_bench_peers
child = test_bench_peers.server(Path({str(tmp_path)!r}), "meek")
child.start()
print(child.pid, flush=True)
time.sleep(1000)
"""
    ends_with(code)
    os.kill(int((tmp_path / "stub.output").read_text()), signal.SIGKILL)  # nobody else ends it


# --- what is installed ----------------------------------------------------------------------------


class Both:
    """A client that publishes to itself."""

    def __init__(self, address):
        self.client = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id="both")
        self.messages = []
        self.subscribed = False
        self.client.on_subscribe = self._subscribed
        self.client.on_message = lambda _client, _data, message: self.messages.append(message)
        self.client.connect(address.host, address.port)
        self.client.subscribe("site/#", 1)
        self.client.loop_start()

    def _subscribed(self, *_):
        self.subscribed = True

    def __enter__(self):
        wait_for(lambda: self.subscribed)
        return self

    def __exit__(self, *_):
        self.client.disconnect()
        self.client.loop_stop()


def cases():
    for peer in PEERS:
        for mode in Mode:
            # It takes half a minute of both cores to start.
            marks = [pytest.mark.soak] if isinstance(peer, RabbitMq) else []
            yield pytest.param(peer, mode, marks=marks, id=f"{peer.name}-{mode}")


@pytest.mark.slow
@pytest.mark.parametrize(("peer", "mode"), list(cases()))
def test_a_broker_that_is_here_starts_carries_and_ends(peer, mode, tmp_path):
    try:
        print(f"{peer.name} {peer.version()}")
    except LeftOutError as missing:
        pytest.skip(f"{missing}: {peer.install}")
    if peer.promise(Door.MQTT, mode) is None:
        pytest.skip(f"{peer.name} has no mode {mode}")
    with peer.start(tmp_path, mode) as running:
        with Both(running.doors[Door.MQTT]) as both:
            for qos in (0, 1):
                sent = both.client.publish("site/meter", f"at {qos}", qos)
                sent.wait_for_publish(30)
            wait_for(lambda: len(both.messages) == 2)
        assert sorted(message.payload for message in both.messages) == [b"at 0", b"at 1"]
        assert lives(running.pid)
    assert not lives(running.pid)
