"""A node under its settings and bounds: each takes effect, and reaching one breaks nothing."""

import json
import os
import random
import resource
import socket
import subprocess
import sys

import aiohttp
import pytest

from conftest import ROOT, environment, headrace
from gates import open_gate
from headrace.adapters.clock import SystemClock
from headrace.adapters.files import FileDefinitions
from headrace.adapters.http import HttpDoor
from headrace.kernel.budget import DescriptorBudget
from headrace.model import Address
from headrace.native import Switchboard
from headrace.node.lifetime import Node, Parts
from rawclient import RawConnection, RawMqtt
from test_mqtt_routing import Client

pytestmark = pytest.mark.slow

DOORS = ["mqtt", "kafka", "http"]
PINGREQ, PINGRESP = b"\xc0\x00", b"\xd0\x00"


@pytest.mark.setting("logging.format", "streams.partitions", "streams.filters", "streams.key")
def test_a_file_sets_what_a_node_does(start_node, tmp_path):
    file = tmp_path / "headrace.toml"
    file.write_text(
        """
        [node]
        name = "north"
        [logging]
        format = "json"
        [streams.declared]
        partitions = 3
        filters = ["a/+"]
        key = "level:2"
        "max.message.bytes" = "2KiB"
        """
    )
    node = start_node("--config", str(file))
    assert node.call("GET", "/health") == (200, {"status": "ok", "node": "north"})
    _, stream = node.call("GET", "/api/v1/streams/declared")
    assert (len(stream["partitions"]), stream["filters"], stream["key"]) == (3, ["a/+"], "level:2")
    assert stream["settings"] == {"max.message.bytes": 2048}
    lines = [json.loads(line) for line in node.log.read_text().splitlines()]
    assert {line["node"] for line in lines} == {"north"}
    created = [line for line in lines if line["message"].startswith("stream created")]
    assert {line["stream"] for line in created} >= {"declared", "gpu-telemetry"}


def test_declared_streams_are_altered_at_a_start_and_never_shrink(start_node, tmp_path):
    file = tmp_path / "headrace.toml"
    file.write_text("[streams.a]\npartitions = 2\nfilters = ['x']")
    node = start_node("--config", str(file))
    node.stop()
    file.write_text("[streams.a]\npartitions = 4\nfilters = ['y']")
    again = start_node.again(node, "--config", str(file))
    _, stream = again.call("GET", "/api/v1/streams/a")
    assert (len(stream["partitions"]), stream["filters"]) == (4, ["y"])
    again.stop()
    file.write_text("[streams.a]\npartitions = 1")
    doors = [part for door in DOORS for part in (f"--{door}", "127.0.0.1:0")]
    refused = headrace("serve", "--config", str(file), "--data", str(node.data), *doors)
    assert refused.returncode == 2
    assert "[streams.a]: stream 'a' has 4 partitions" in refused.stderr.splitlines()[-1]


@pytest.mark.setting("logging.level")
def test_logging_level(start_node):
    node = start_node(HEADRACE_LOGGING__LEVEL="error")
    assert node.log.read_text() == ""


@pytest.mark.setting("log.journal_bytes", "log.index_interval_bytes", "log.direct_write_bytes")
def test_log_sizes(start_node):
    node = start_node(
        HEADRACE_LOG__JOURNAL_BYTES="1MiB",
        HEADRACE_LOG__SEGMENT_BYTES="64KiB",
        HEADRACE_LOG__INDEX_INTERVAL_BYTES="1KiB",
        HEADRACE_LOG__DIRECT_WRITE_BYTES="4KiB",
    )
    node.create_stream("a", filters=["a"])
    with RawMqtt(node.mqtt, "c") as client:
        for packet_id in range(1, 41):
            client.publish("a", os.urandom(8192), packet_id)
            assert client.puback() == packet_id
    journal = sum(file.stat().st_size for file in (node.data / "journal").iterdir())
    assert journal <= 4 * 1024 * 1024
    segments = list((node.data / "streams" / "a" / "0").glob("*.log"))
    assert len(segments) >= 5
    indexes = sum(
        file.stat().st_size for file in (node.data / "streams" / "a" / "0").glob("*.index")
    )
    assert indexes >= 30 * 8


@pytest.mark.setting("mqtt.overlapping_subscriptions")
@pytest.mark.parametrize(
    ("copies", "expected"), [("one", [(1, [1, 2])]), ("each", [(0, [1]), (1, [2])])]
)
def test_overlapping_subscriptions(start_node, copies, expected):
    node = start_node(HEADRACE_MQTT__OVERLAPPING_SUBSCRIPTIONS=copies)
    with Client(node) as client:
        client.subscribe("a/b", 0, identifier=1)
        client.subscribe("a/+", 1, identifier=2)
        client.publish("a/b", b"x", 1)
        messages = [client.receive() for _ in expected]
        client.publish("a/c", b"last", 1)
        assert client.receive().payload == b"last", "no other copy came"
    found = [(each.qos, sorted(each.properties.SubscriptionIdentifier)) for each in messages]
    assert sorted(found) == expected


@pytest.mark.setting("limits.connections")
def test_connections_beyond_the_limit_are_closed_and_counted(start_node):
    node = start_node(HEADRACE_LIMITS__CONNECTIONS="3")
    clients = [RawMqtt(node.mqtt, f"c{number}") for number in range(3)]
    for port in (node.mqtt, node.kafka):
        with RawConnection(port) as fourth, pytest.raises(OSError, match=r"closed after 0|reset"):
            fourth.read(1)
    metrics = node.metrics()
    refused = 'headrace_connections_refused_total{door="%s",reason="connections_limit"}'
    assert metrics[refused % "mqtt"] == 1
    assert metrics[refused % "kafka"] == 1
    assert metrics['headrace_connections{door="mqtt"}'] == 3
    clients.pop().socket.close()
    for client in clients:
        client.socket.sendall(PINGREQ)
        assert client.read(2) == PINGRESP
        client.socket.close()


@pytest.mark.setting("limits.streams", "limits.partitions")
def test_streams_and_partitions_are_bounded(start_node):
    node = start_node(HEADRACE_LIMITS__STREAMS="2", HEADRACE_LIMITS__PARTITIONS="20")
    status, answer = node.call("POST", "/api/v1/streams", {"name": "a", "partitions": 9})
    assert (status, answer["error"]) == (409, "stream_limit")
    node.create_stream("a", partitions=8)
    status, answer = node.call("POST", "/api/v1/streams", {"name": "b"})
    assert (status, answer["error"]) == (409, "stream_limit")


# --- what nobody may do to a node ---------------------------------------------------------------


def idle_connections(node, count):
    """MQTT sessions that do nothing, and the resident bytes that each costs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    sockets = []
    try:
        before = node.resident_bytes()
        for number in range(count):
            sock = socket.create_connection(("127.0.0.1", node.mqtt), timeout=30)
            sockets.append(sock)
            name = f"idle-{number:06}".encode()
            sock.sendall(b"\x10\x17\x00\x04MQTT\x04\x02\x00\x00\x00\x0b" + name)
        for sock in sockets:
            assert sock.recv(4) == b"\x20\x02\x00\x00"
        each = (node.resident_bytes() - before) / count
        assert node.metrics()['headrace_connections{door="mqtt"}'] == count
        for sock in random.Random(1).sample(sockets, 100):
            sock.sendall(PINGREQ)
            assert sock.recv(2) == PINGRESP
        return each
    finally:
        for sock in sockets:
            sock.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_2000_idle_connections(broker):
    assert idle_connections(broker, 2000) < 6 * 1024


def test_10000_idle_connections(broker):
    assert idle_connections(broker, 10_000) < 6 * 1024


@pytest.mark.parametrize("door", DOORS)
def test_random_bytes_leave_the_node_up(broker, door):
    seed = int(os.environ.get("HEADRACE_SEED", "1"))
    rng = random.Random(seed)
    for _ in range(200):
        with socket.create_connection(("127.0.0.1", getattr(broker, door)), timeout=30) as sock:
            try:
                sock.sendall(rng.randbytes(rng.choice([1, 10, 100, 10_000])))
                sock.shutdown(socket.SHUT_WR)
                while sock.recv(65536):
                    pass
            except (ConnectionResetError, BrokenPipeError):
                pass
    with RawMqtt(broker.mqtt, "c") as client:
        client.socket.sendall(PINGREQ)
        assert client.read(2) == PINGRESP
    assert broker.call("GET", "/ready")[0] == 200, f"seed {seed}"


def test_a_data_folder_of_this_source_tree_is_never_made():
    assert not (ROOT / "tests" / "headrace-data").exists()


def test_few_descriptors_are_shared_out_and_never_run_out(start_node):
    # The fewest beside which the first stream and the node's own have room.
    node = start_node(descriptors=680)
    assert "descriptors: 680, of which 280 for connections" in node.log.read_text()
    clients = [RawMqtt(node.mqtt, f"c{number}") for number in range(280)]
    for _ in range(20):
        with RawConnection(node.mqtt) as beyond, pytest.raises(OSError, match=r"closed|reset"):
            beyond.read(1)
    assert node.call("GET", "/ready")[0] == 200
    for client in clients:
        client.socket.sendall(PINGREQ)
        assert client.read(2) == PINGRESP
        client.socket.close()


def test_no_descriptors_for_connections_is_no_start(tmp_path):
    arguments = [part for door in DOORS for part in (f"--{door}", "127.0.0.1:0")]
    command = [sys.executable, "-m", "headrace", "serve", "--data", str(tmp_path / "data")]
    refused = subprocess.run(
        ["prlimit", "--nofile=300:300", *command, *arguments],
        capture_output=True, check=False, env=environment(), text=True, timeout=60,
    )  # fmt: skip
    assert refused.returncode == 2
    assert refused.stderr.count("\n") <= 3
    assert "ulimit -n" in refused.stderr.splitlines()[-1]


def test_who_never_reads_does_not_hold_up_a_stop(broker):
    with RawMqtt(broker.mqtt, "slow") as slow, RawMqtt(broker.mqtt, "fast") as fast:
        slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.socket.sendall(b"\x82\x06\x00\x01\x00\x01t\x00")
        assert slow.read(5) == b"\x90\x03\x00\x01\x00"
        for _ in range(400):
            fast.publish("t", b"x" * 16_384, 0)
        fast.socket.sendall(PINGREQ)
        assert fast.read(2) == PINGRESP
        assert broker.stop() == 0


# --- a disk that fails ----------------------------------------------------------------------------


def fail_disk(node):
    """From now on no file of the node may be written beyond what its log needs."""
    with RawMqtt(node.mqtt, "filler") as client:
        for packet_id in range(1, 11):
            client.publish("dcgm/fill", b"x" * 100_000, packet_id)
            assert client.puback() == packet_id
    node.exit_codes = {1}
    resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE, (500_000, 500_000))


def test_after_a_failed_write_nothing_is_accepted_and_everyone_is_told(broker):
    fail_disk(broker)
    with RawConnection(broker.mqtt) as client:
        client.socket.sendall(b"\x10\x0e\x00\x04MQTT\x05\x02\x00\x00\x00\x00\x01c")
        client.read(client.read(2)[1])
        for packet_id in (1, 2):
            client.socket.sendall(b"\x32\x0a\x00\x04dcgm" + bytes([0, packet_id, 0]) + b"x")
            puback = client.read(client.read(2)[1])
            assert puback[:2] == bytes([0, packet_id])
            assert puback[2] >= 0x80, "never acknowledged as stored"
    status, ready = broker.call("GET", "/ready")
    assert (status, ready["status"]) == (503, "failed")
    assert ready["reason"]
    assert broker.call("GET", "/health")[0] == 200
    publish = {"topic": "dcgm/x", "payload": "x"}
    assert broker.call("POST", "/api/v1/publish", publish)[0] == 503
    assert broker.call("POST", "/api/v1/streams", {"name": "a"})[0] == 503
    assert broker.log.read_text().count("the node has failed, nothing more is accepted") == 1
    assert broker.ends("gpu-telemetry").count(0) == 11, "what was stored is still read"


def test_live_subscribers_are_served_after_a_failed_write(broker):
    fail_disk(broker)
    with RawMqtt(broker.mqtt, "c") as client:
        client.socket.sendall(b"\x82\x06\x00\x01\x00\x01t\x00")
        assert client.read(5) == b"\x90\x03\x00\x01\x00"
        client.publish("dcgm/x", b"x", 0)
        client.publish("t", b"x", 0)
        assert client.read(6) == b"\x30\x04\x00\x01tx"


# --- before it is ready ---------------------------------------------------------------------------


async def test_the_http_door_answers_before_the_log_is_open(tmp_path):
    node = Node("early", parts(tmp_path))
    door = HttpDoor(node, 1024)
    address = await door.open(Address("127.0.0.1", 0))
    async with aiohttp.ClientSession(f"http://{address}") as client:
        assert (await client.get("/health")).status == 200
        ready = await client.get("/ready")
        assert (ready.status, await ready.json()) == (
            503,
            {"status": "starting", "reason": "the log is opening"},
        )
        assert (await client.get("/api/v1/streams")).status == 503
        assert (await client.get("/metrics")).status == 200
        body = {"topic": "a", "payload": "x" * 2048}
        assert (await client.post("/api/v1/publish", json=body)).status == 413
    await door.close()


def parts(data):
    def never(*_):
        raise AssertionError("not opened in this test")

    switchboard = Switchboard((0, 0))
    return Parts(
        clock=SystemClock(),
        definitions=FileDefinitions(data),
        switchboard=switchboard,
        gate=open_gate(data, switchboard),
        open_store=never,
        listen=never,
        budget=DescriptorBudget(1000),
    )
