"""The MQTT door over TLS, WebSocket and a Unix socket, with the clients that people use."""

import asyncio
import contextlib
import json
import os
import queue
import random
import shutil
import socket
import ssl
import stat
import subprocess

import aiomqtt
import paho.mqtt.client as paho
import pytest

from conftest import headrace, wait_for
from pahoclient import leave
from rawclient import RawMqtt
from rawwebsocket import BINARY, CLOSE, RawWebSocket
from secure import (
    CONNACK,
    CONNECT,
    PINGREQ,
    PINGRESP,
    WAIT,
    client_context,
    port,
    secure_settings,
    tls_socket,
)
from test_mqttjs import CLIENTS

pytestmark = pytest.mark.slow

V311, V5 = paho.MQTTv311, paho.MQTTv5


@pytest.fixture
def node(secured):
    return secured


# --- every client on every listener ---------------------------------------------------------------


def paho_client(listener, protocol, authority):
    client = paho.Client(
        paho.CallbackAPIVersion.VERSION2,
        protocol=protocol,
        transport={"ws": "websockets", "wss": "websockets", "unix": "unix"}.get(listener, "tcp"),
    )
    if listener in {"mqtts", "wss"}:
        client.tls_set_context(client_context(authority))
    return client


def paho_connect(client, node, listener):
    if listener == "unix":
        client.connect(node.ready["unix"], 1883)
    else:
        client.connect("127.0.0.1", port(node, listener))


# Holds 5.0: 4.2-1.
@pytest.mark.parametrize("protocol", [V311, V5])
@pytest.mark.parametrize("listener", ["mqtt", "mqtts", "ws", "wss", "unix"])
def test_paho_makes_its_round_trip(node, authority, listener, protocol):
    messages, events = queue.Queue(), queue.Queue()
    client = paho_client(listener, protocol, authority)
    client.on_message = lambda _client, _data, message: messages.put(message)
    client.on_subscribe = lambda *event: events.put(event)
    paho_connect(client, node, listener)
    client.loop_start()
    client.subscribe("a/#", 1)
    events.get(timeout=WAIT)
    sizes = [0, 1, 125, 126, 16_384, 65_535, 65_536, 200_000, 1_048_576, 1_048_576, 20_000, 1]
    payloads = [random.Random(size).randbytes(size) for size in sizes]
    for payload in payloads:
        client.publish("a/b", payload, 1)
    assert [messages.get(timeout=WAIT).payload == payload for payload in payloads] == [True] * 12
    leave(client)


@pytest.mark.parametrize("listener", ["mqtts", "ws", "wss"])
async def test_aiomqtt_makes_its_round_trip(node, authority, listener):
    context = client_context(authority) if listener in {"mqtts", "wss"} else None
    transport = "tcp" if listener == "mqtts" else "websockets"
    async with (
        asyncio.timeout(WAIT),
        aiomqtt.Client(
            "127.0.0.1", port(node, listener), transport=transport, tls_context=context
        ) as client,
    ):
        await client.subscribe("b/#", qos=1)
        await client.publish("b/c", b"hello", qos=1)
        assert (await anext(aiter(client.messages))).payload == b"hello"


@pytest.mark.clients
@pytest.mark.parametrize("version", ["4", "5"])
@pytest.mark.parametrize("listener", ["mqtts", "ws", "wss"])
def test_mqttjs_makes_its_round_trip(node, authority, listener, version):
    path = "" if listener == "mqtts" else "/mqtt"
    url = f"{listener}://localhost:{port(node, listener)}{path}"
    script = [shutil.which("node"), str(CLIENTS / "mqttjs_round_trip.js")]
    done = subprocess.run(
        [*script, url, version, "1", f"js/{listener}/{version}", "21.5", str(authority.file)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["payload"] == "21.5"


# --- a Unix socket --------------------------------------------------------------------------------


def unix_client(path):
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(WAIT)
    client.connect(str(path))
    return client


@pytest.mark.setting("mqtt.unix_path", "mqtt.unix_mode")
def test_a_unix_socket_has_its_mode_and_goes_with_the_node(start_node, tmp_path):
    path = tmp_path / "mqtt.sock"
    node = start_node(HEADRACE_MQTT__UNIX_PATH=str(path), HEADRACE_MQTT__UNIX_MODE="0600")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with unix_client(path) as client:
        client.sendall(CONNECT)
        assert client.recv(4) == CONNACK
    assert node.stop() == 0
    assert not path.exists()


@pytest.mark.slow
def test_a_stale_unix_socket_is_replaced_and_a_live_one_is_not(start_node, tmp_path):
    path = tmp_path / "mqtt.sock"
    settings = {"HEADRACE_MQTT__UNIX_PATH": str(path)}
    node = start_node(**settings)
    node.kill()
    assert path.exists()
    again = start_node.again(node, **settings)
    doors = ["--mqtt", "127.0.0.1:0", "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    second = headrace("serve", "--data", str(tmp_path / "other"), *doors, **settings)
    assert second.returncode == 1
    assert f"cannot listen on {path}: another process does" in second.stderr
    with unix_client(path) as client:
        client.sendall(CONNECT)
        assert client.recv(4) == CONNACK
    assert again.stop() == 0
    path.write_text("mine")
    third = headrace("serve", "--data", str(tmp_path / "other"), *doors, **settings)
    assert f"{path} is there and is no socket" in third.stderr
    assert path.read_text() == "mine"


def test_the_log_names_the_user_of_a_unix_socket(start_node, tmp_path):
    path = tmp_path / "mqtt.sock"
    settings = {"HEADRACE_MQTT__UNIX_PATH": str(path), "HEADRACE_LOGGING__LEVEL": "debug"}
    node = start_node(**settings)
    with unix_client(path) as client:
        client.sendall(b"\0\0")
        assert client.recv(16) == b""
    wait_for(lambda: "client=unix uid=" in node.log.read_text())


# --- doors that are off ---------------------------------------------------------------------------


@pytest.mark.setting("mqtt.wss_bind")
def test_a_listener_can_be_off(start_node, server):
    node = start_node(
        **secure_settings(server, HEADRACE_MQTT__WS_BIND="off", HEADRACE_MQTT__WSS_BIND="off")
    )
    assert {"ws", "wss"}.isdisjoint(node.ready)
    assert {"mqtt", "mqtts", "kafka", "http"} <= node.ready.keys()


# --- ends -----------------------------------------------------------------------------------------


def test_a_stop_says_goodbye_in_every_language(start_node, server, authority):
    node = start_node(**secure_settings(server))
    connect = b"\x10\x0e\x00\x04MQTT\x05\x02\x00\x00\x00\x00\x01"
    with (
        tls_socket(node, client_context(authority)) as secure,
        RawWebSocket(port(node, "ws")) as browser,
    ):
        secure.sendall(connect + b"s")
        assert secure.recv(100)[0] == 0x20
        browser.upgrade()
        browser.send(connect + b"b")
        assert browser.receive().payload[0] == 0x20
        node.process.terminate()
        assert secure.recv(100) == b"\xe0\x01\x8b", "server shutting down"
        assert secure.recv(100) == b"", "close_notify, no cut"
        assert browser.receive() == (BINARY, b"\xe0\x01\x8b")
        assert browser.receive().opcode == CLOSE
        assert browser.ended()
    assert node.process.wait(60) == 0


def test_what_came_before_the_goodbye_of_tls_counts(node, authority):
    with RawMqtt(node.mqtt, "other") as other:
        other.socket.sendall(b"\x82\x06\x00\x01\x00\x01g\x00")
        assert other.read(5) == b"\x90\x03\x00\x01\x00"
        with tls_socket(node, client_context(authority)) as client:
            client.sendall(CONNECT)
            assert client.recv(4) == CONNACK
            client.sendall(b"\x30\x04\x00\x01gx")
            client.unwrap().close()
        assert other.read(6) == b"\x30\x04\x00\x01gx"


def test_an_answer_that_is_due_after_the_goodbye_of_tls_is_dropped(start_node, server, authority):
    node = start_node(**secure_settings(server))
    node.create_stream("s", filters=["s"])
    for number in range(50):
        with (
            contextlib.suppress(ssl.SSLError),  # its PUBACK may come before the goodbye
            tls_socket(node, client_context(authority)) as client,
        ):
            client.sendall(CONNECT)
            assert client.recv(4) == CONNACK
            client.sendall(b"\x32\x06\x00\x01s\x00\x01x")
            client.unwrap().close()
        wait_for(lambda stored=number + 1: node.ends("s") == [stored])
    assert node.call("GET", "/ready")[0] == 200


@pytest.mark.parametrize("listener", ["mqtt", "mqtts", "ws", "wss"])
def test_random_bytes_leave_the_node_up(node, listener):
    seed = int(os.environ.get("HEADRACE_SEED", "1"))
    rng = random.Random(seed)
    begun = {"mqtts": b"\x16\x03\x01", "wss": b"\x16\x03\x03", "ws": b"GET /mqtt HTTP/1.1\r\n"}
    for number in range(100):
        with (
            socket.create_connection(("127.0.0.1", port(node, listener)), timeout=WAIT) as client,
            contextlib.suppress(ConnectionError),
        ):
            client.sendall(begun.get(listener, b"") * (number % 2))
            client.sendall(rng.randbytes(rng.choice([1, 10, 100, 10_000])))
            client.shutdown(socket.SHUT_WR)
            while client.recv(65536):
                pass
    assert node.call("GET", "/ready")[0] == 200, f"seed {seed}"
    with RawMqtt(node.mqtt, "c") as client:
        client.socket.sendall(PINGREQ)
        assert client.read(2) == PINGRESP


@pytest.mark.slow
@pytest.mark.parametrize("listener", ["mqtts", "ws"])
def test_a_slow_reader_is_held_to_its_bound(start_node, server, authority, listener):
    """What waits for one who does not read stays within `limits.outbound_bytes`."""
    node = start_node(**secure_settings(server, HEADRACE_LIMITS__OUTBOUND_BYTES="1MiB"))
    with contextlib.ExitStack() as opened:
        if listener == "mqtts":
            slow = opened.enter_context(tls_socket(node, client_context(authority)))
            slow.sendall(CONNECT + b"\x82\x06\x00\x01\x00\x01t\x00")
            assert slow.recv(4) == CONNACK
        else:
            slow = opened.enter_context(RawWebSocket(port(node, "ws")))
            slow.upgrade()
            slow.send(CONNECT + b"\x82\x06\x00\x01\x00\x01t\x00")
            assert slow.receive().payload.startswith(CONNACK)
        fast = opened.enter_context(RawMqtt(node.mqtt, "fast"))
        before = node.resident_bytes()
        for _ in range(2000):  # 32 MB
            fast.publish("t", b"x" * 16_000, 0)
        fast.socket.sendall(PINGREQ)
        assert fast.read(2) == PINGRESP, "it holds nobody up"
        assert node.resident_bytes() - before < 12 * 1024 * 1024


@pytest.mark.slow
@pytest.mark.parametrize(("listener", "bytes_max"), [("ws", 12 * 1024), ("mqtts", 32 * 1024)])
def test_an_idle_connection_is_small(start_node, server, authority, listener, bytes_max):
    node = start_node(**secure_settings(server))
    context = client_context(authority)
    with contextlib.ExitStack() as opened:

        def connect(number):
            if listener == "ws":
                client = opened.enter_context(RawWebSocket(port(node, "ws")))
                client.upgrade()
                client.send(b"\x10\x10" + CONNECT[2:-2] + b"\x04%04d" % number)
                client.receive()
            else:
                client = opened.enter_context(tls_socket(node, context))
                client.sendall(b"\x10\x10" + CONNECT[2:-2] + b"\x04%04d" % number)
                assert client.recv(4) == CONNACK

        for number in range(100):  # what the first ones bring with them is not theirs
            connect(number)
        before = node.resident_bytes()
        for number in range(100, 500):
            connect(number)
        assert (node.resident_bytes() - before) / 400 < bytes_max
