"""SIGHUP and `POST /api/v1/config/reload`: what changes live does, the rest is told of."""

import signal
import socket
import threading

import pytest

from conftest import wait_for
from rawclient import RawMqtt
from test_mqtt_routing import Client

PATH = "/api/v1/config/reload"

BEFORE = """
[mqtt]
sys_interval = "0s"
[limits]
session_messages = 1
connections_per_address = 0
[streams.a]
filters = ["a"]
"""

AFTER = """
[mqtt]
receive_maximum = 7
overflow = "drop-newest"
sys_interval = "50ms"
[kafka]
auto_create_streams = false
[log]
retention_bytes = "3MiB"
[logging]
level = "warning"
[limits]
session_messages = 3
connections_per_address = 1
streams = 2
[streams.a]
filters = ["a", "b"]
partitions = 2
[streams.c]
"""


@pytest.fixture
def file(tmp_path):
    file = tmp_path / "headrace.toml"
    file.write_text(BEFORE)
    return file


@pytest.fixture
def node(start_node, file):
    return start_node("--config", str(file), HEADRACE_NODE__DEFAULT_STREAM="false")


def queued(node, count):
    """How many of so many messages wait for a client that is away."""
    with Client(node, "away", expiry_s=300) as client:
        client.subscribe("t", 1)
    for _ in range(count):
        assert node.call("POST", "/api/v1/publish", {"topic": "t", "payload": "x"})[0] == 200
    return node.metrics()["headrace_mqtt_outbound_queued_messages"]


def test_a_reload_changes_what_it_can_and_names_what_it_cannot(node, file):
    assert queued(node, 5) == 1
    file.write_text(AFTER)
    status, answer = node.call("POST", PATH)
    assert (status, answer["restart"]) == (200, ["mqtt.receive_maximum"])
    assert set(answer["changed"]) == {
        "mqtt.overflow", "mqtt.sys_interval", "kafka.auto_create_streams", "log.retention_bytes",
        "logging.level", "limits.session_messages", "limits.connections_per_address",
        "limits.streams", "streams.a", "streams.c",
    }  # fmt: skip
    assert queued(node, 5) == 3
    with Client(node) as client:
        client.subscribe("$SYS/broker/version", 0)
        assert client.receive().payload.startswith(b"headrace")
    streams = {each["name"]: each for each in node.call("GET", "/api/v1/streams")[1]["streams"]}
    assert (len(streams["a"]["partitions"]), streams["a"]["filters"]) == (2, ["a", "b"])
    described = node.call("GET", "/api/v1/streams/c")[1]
    assert described["effective"]["retention.bytes"] == {"value": 3 << 20, "source": "node"}
    assert node.call("POST", "/api/v1/streams", {"name": "d"})[0] == 409
    with RawMqtt(node.mqtt, "one"), socket.create_connection((node.host, node.mqtt)) as second:
        second.settimeout(30)
        assert second.recv(1) == b""
    again = node.call("POST", PATH)[1]
    assert again == {"changed": [], "restart": ["mqtt.receive_maximum"]}
    log = node.log.read_text()
    assert "restart the node to change this: mqtt.receive_maximum is 7, it was 1024" in log
    assert "reloaded: limits.session_messages is 3, it was 1" in log


def test_a_file_that_is_wrong_changes_nothing_and_the_log_says_why(node, file):
    file.write_text("[limits]\nsession_messages = 9\nstal = 3")
    node.process.send_signal(signal.SIGHUP)
    why = f"{file}:3: [limits] stal: unknown; did you mean 'stall'?"
    wait_for(lambda: why in node.log.read_text())
    status, answer = node.call("POST", PATH)
    assert (status, answer["error"], answer["detail"]) == (400, "config", why)
    assert queued(node, 5) == 1
    file.write_text("[limits]\nsession_messages = 2")
    node.process.send_signal(signal.SIGHUP)
    wait_for(lambda: "reloaded: limits.session_messages is 2" in node.log.read_text())
    assert queued(node, 5) == 2


def test_a_stream_that_cannot_be_altered_is_told_of_and_all_else_changes(node, file):
    file.write_text("[streams.a]\npartitions = 3")
    assert node.call("POST", PATH)[0] == 200
    file.write_text("[limits]\nsession_messages = 2\n[streams.a]\npartitions = 2")
    status, answer = node.call("POST", PATH)
    assert (status, answer["error"]) == (400, "partly_reloaded")
    stays = "reloaded but for streams that stay as they are: [streams.a]: stream 'a' has 3 partit"
    assert answer["detail"].startswith(stays)
    assert queued(node, 5) == 2


def test_systemd_is_told(start_node, tmp_path, file):
    address = tmp_path / "notify"
    said = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(address))
        manager.settimeout(60)

        def listen():
            while b"STOPPING=1" not in said:
                said.append(manager.recv(1000))

        listening = threading.Thread(target=listen)
        listening.start()
        node = start_node("--config", str(file), NOTIFY_SOCKET=str(address))
        assert node.call("POST", PATH)[0] == 200
        assert node.stop() == 0
        listening.join(60)
    states = [each.partition(b"\n") for each in said]
    assert [state for state, _, _ in states] == [
        b"READY=1", b"RELOADING=1", b"READY=1", b"STOPPING=1",
    ]  # fmt: skip
    assert states[1][2].startswith(b"MONOTONIC_USEC=")


def test_a_stream_that_cannot_be_so_keeps_no_other_back_and_is_tried_again(node, file):
    def told():
        return [line for line in node.log.read_text().splitlines() if "reloaded" in line]

    def reload(text):
        file.write_text(text)
        node.process.send_signal(signal.SIGHUP)

    reload(BEFORE + "partitions = 3\n[streams.b]\n")
    wait_for(lambda: len(told()) == 2)
    fewer = BEFORE.replace("session_messages = 1", "session_messages = 2")
    reload(fewer + "partitions = 2\n[streams.b]\npartitions = 2\n")
    wait_for(lambda: len(told()) == 4)
    setting, refused = told()[2:]
    assert "reloaded: limits.session_messages is 2, it was 1" in setting
    assert "reloaded but for streams that stay as they are: [streams.a]: " in refused
    streams = {each["name"]: each for each in node.call("GET", "/api/v1/streams")[1]["streams"]}
    assert [len(streams[name]["partitions"]) for name in ("a", "b")] == [3, 2]
    status, answer = node.call("POST", PATH)
    assert (status, answer["error"]) == (400, "partly_reloaded"), "not that nothing has changed"
    reload(fewer + "partitions = 4\n[streams.b]\npartitions = 2\n")
    wait_for(lambda: any("reloaded: [streams.a]" in line for line in told()[4:]))
    streams = {each["name"]: each for each in node.call("GET", "/api/v1/streams")[1]["streams"]}
    assert len(streams["a"]["partitions"]) == 4
