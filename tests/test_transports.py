"""The MQTT door over TLS, WebSocket and a Unix socket, with the clients that people use."""

import asyncio
import contextlib
import datetime as dt
import json
import os
import queue
import random
import shutil
import signal
import socket
import ssl
import stat
import subprocess
import time
import urllib.request

import aiomqtt
import paho.mqtt.client as paho
import pytest

from authority import Authority
from conftest import RunningNode, headrace, wait_for
from headrace.cli.listeners import Listeners
from headrace.config import load
from headrace.errors import ConfigError
from rawclient import RawMqtt
from rawwebsocket import BINARY, CLOSE, RawWebSocket
from test_mqttjs import CLIENTS

WAIT = 30
V311, V5 = paho.MQTTv311, paho.MQTTv5
CONNECT = b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01c"
CONNACK = b"\x20\x02\x00\x00"
PINGREQ, PINGRESP = b"\xc0\x00", b"\xd0\x00"


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def server(authority):
    """Certificate and key of the node."""
    return authority.issue("server", "localhost", "127.0.0.1")


def secure_settings(server, **extra):
    certificate, key = server
    return {
        "HEADRACE_MQTT__TLS_CERTIFICATE": str(certificate),
        "HEADRACE_MQTT__TLS_KEY": str(key),
        "HEADRACE_MQTT__TLS_BIND": "127.0.0.1:0",
        "HEADRACE_MQTT__WSS_BIND": "127.0.0.1:0",
    } | extra


@pytest.fixture(scope="module")
def node(tmp_path_factory, server):
    """One with every listener, for tests that leave it as they found it."""
    folder = tmp_path_factory.mktemp("transports")
    unix = {"HEADRACE_MQTT__UNIX_PATH": str(folder / "mqtt.sock")}
    node = RunningNode(folder / "data", **secure_settings(server, **unix))
    yield node
    node.close()


def port(node, listener):
    return int(node.ready[listener].rpartition(":")[2])


def client_context(authority, certificate=None):
    context = ssl.create_default_context(cafile=authority.file)
    if certificate is not None:
        context.load_cert_chain(*certificate)
    return context


def tls_socket(node, context, listener="mqtts"):
    plain = socket.create_connection(("127.0.0.1", port(node, listener)), timeout=WAIT)
    return context.wrap_socket(plain, server_hostname="localhost")


def is_served(node, context):
    """Whether a TLS client gets its CONNACK."""
    try:
        with tls_socket(node, context) as client:
            client.sendall(CONNECT)
            return client.recv(4) == CONNACK
    except (ssl.SSLError, ConnectionError):
        return False


def refused(node, listener, reason):
    name = f'headrace_connections_refused_total{{door="{listener}",reason="{reason}"}}'
    return node.metrics().get(name, 0)


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
    sizes = [0, 1, 125, 126, 65_535, 65_536, 1_048_576]
    for size in sizes:
        client.publish("a/b", b"x" * size, 1)
    assert [len(messages.get(timeout=WAIT).payload) for _ in sizes] == sizes
    client.disconnect()
    client.loop_stop()


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


# --- TLS ------------------------------------------------------------------------------------------


@pytest.mark.setting(
    "mqtt.tls_version_min", "mqtt.tls_bind", "mqtt.tls_certificate", "mqtt.tls_key"
)
@pytest.mark.parametrize("minimum", ["1.2", "1.3"])
def test_tls_version_min(start_node, server, authority, minimum):
    node = start_node(**secure_settings(server, HEADRACE_MQTT__TLS_VERSION_MIN=minimum))
    context = client_context(authority)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    if minimum == "1.2":
        with tls_socket(node, context) as client:
            assert client.version() == "TLSv1.2"
            client.sendall(CONNECT)
            assert client.recv(4) == CONNACK
    else:
        with pytest.raises(ssl.SSLError, match="PROTOCOL_VERSION"):
            tls_socket(node, context)
        assert refused(node, "mqtts", "tls_handshake") == 1


@pytest.mark.setting("mqtt.tls_client_ca", "mqtt.tls_client_auth")
@pytest.mark.parametrize(("auth", "without"), [("require", False), ("optional", True)])
def test_client_certificates_are_asked_for_and_name_the_client(
    start_node, server, authority, auth, without
):
    node = start_node(
        **secure_settings(
            server,
            HEADRACE_MQTT__TLS_CLIENT_CA=str(authority.file),
            HEADRACE_MQTT__TLS_CLIENT_AUTH=auth,
            HEADRACE_LOGGING__LEVEL="debug",
        )
    )
    certificate = authority.issue("client", "device-7.example.org", common_name="device-7")
    with tls_socket(node, client_context(authority, certificate)) as client:
        client.sendall(CONNECT)
        assert client.recv(4) == CONNACK
    wait_for(lambda: "its certificate names device-7 " in node.log.read_text())
    assert is_served(node, client_context(authority)) is without
    assert refused(node, "mqtts", "tls_handshake") == (0 if without else 1)


@pytest.mark.setting("mqtt.tls_identity")
@pytest.mark.parametrize(
    ("part", "name"),
    [("cn", "device-8"), ("san", "device-8.example.org"), ("subject", "CN=device-8,")],
)
def test_tls_identity(start_node, server, authority, part, name):
    settings = secure_settings(
        server,
        HEADRACE_MQTT__TLS_CLIENT_CA=str(authority.file),
        HEADRACE_MQTT__TLS_IDENTITY=part,
        HEADRACE_LOGGING__LEVEL="debug",
    )
    node = start_node(**settings)
    certificate = authority.issue("c8", "device-8.example.org", common_name="device-8")
    with tls_socket(node, client_context(authority, certificate)) as client:
        client.sendall(CONNECT)
        assert client.recv(4) == CONNACK
    wait_for(lambda: f"its certificate names {name}" in node.log.read_text())


@pytest.mark.clients
def test_mosquitto_clients_with_a_certificate(start_node, server, authority):
    node = start_node(**secure_settings(server, HEADRACE_MQTT__TLS_CLIENT_CA=str(authority.file)))
    certificate, key = authority.issue("mosquitto", "m.example.org", common_name="m")
    to_node = ["-h", "localhost", "-p", str(port(node, "mqtts")), "--cafile", str(authority.file)]
    to_node += ["--cert", str(certificate), "--key", str(key), "-q", "1", "-t", "t"]
    with subprocess.Popen(
        ["stdbuf", "-oL", "mosquitto_sub", *to_node, "-d", "-C", "1", "-W", str(WAIT)],
        stdout=subprocess.PIPE, text=True,
    ) as subscriber:  # fmt: skip
        assert any("Subscribed" in line for line in subscriber.stdout)
        subprocess.run(["mosquitto_pub", *to_node, "-m", "over TLS"], check=True, timeout=WAIT)
        assert any(line == "over TLS\n" for line in subscriber.stdout)


@pytest.mark.setting("mqtt.tls_client_crl")
def test_a_revoked_certificate_is_refused(start_node, server, authority):
    revoked = authority.issue("revoked", "r.example.org")
    good = authority.issue("good", "g.example.org")
    node = start_node(
        **secure_settings(
            server,
            HEADRACE_MQTT__TLS_CLIENT_CA=str(authority.file),
            HEADRACE_MQTT__TLS_CLIENT_CRL=str(authority.revoke(revoked[0])),
        )
    )
    assert is_served(node, client_context(authority, good))
    assert not is_served(node, client_context(authority, revoked))
    assert refused(node, "mqtts", "tls_handshake") == 1
    assert "TLS handshake failed: certificate revoked" in node.log.read_text()


def served_serial(node, context):
    with tls_socket(node, context) as client:
        return client.getpeercert()["serialNumber"]


def test_sighup_reads_certificates_again_and_drops_nobody(start_node, tmp_path):
    mine = Authority(tmp_path / "own")
    server = mine.issue("server", "localhost")
    node = start_node(**secure_settings(server))
    context = client_context(mine)
    first = served_serial(node, context)
    with tls_socket(node, context) as open_before:
        open_before.sendall(CONNECT)
        assert open_before.recv(4) == CONNACK
        mine.issue("server", "localhost")
        node.process.send_signal(signal.SIGHUP)
        wait_for(lambda: "were read again" in node.log.read_text())
        second = served_serial(node, context)
        assert second != first
        server[1].write_text("-----BEGIN PRIVATE KEY-----\nnone\n-----END PRIVATE KEY-----\n")
        node.process.send_signal(signal.SIGHUP)
        wait_for(lambda: "the certificates of before stay in use" in node.log.read_text())
        assert served_serial(node, context) == second
        open_before.sendall(PINGREQ)
        assert open_before.recv(2) == PINGRESP


@pytest.mark.slow
def test_the_end_of_a_certificate_is_a_metric_and_near_it_a_warning(start_node, tmp_path, server):
    node = start_node(**secure_settings(server))
    name = 'headrace_tls_certificate_expiry_seconds{door="mqtt"}'
    assert node.metrics()[name] > time.time() + 7 * 86_400
    assert "WARNING" not in node.log.read_text()
    mine = Authority(tmp_path / "own")
    now = dt.datetime.now(dt.UTC)
    for days, said in ((3, "server.pem expires in 3.0 days; renew it"), (-1, "certificate has")):
        own = mine.issue("server", "localhost", not_after=now + dt.timedelta(days=days))
        data = tmp_path / f"data{days}"
        near = start_node(data=data, **secure_settings(own))
        assert said in near.log.read_text()
        assert (name in near.metrics()) is (days > 0)


def test_a_client_without_tls_on_the_tls_port_is_told_of_in_the_log(node):
    before = refused(node, "mqtts", "no_tls")
    with socket.create_connection(("127.0.0.1", port(node, "mqtts")), timeout=WAIT) as client:
        client.sendall(CONNECT)
        assert client.recv(16) == b""
    assert refused(node, "mqtts", "no_tls") == before + 1
    assert "it does not speak TLS, and this port does" in node.log.read_text()


@pytest.mark.parametrize("listener", ["mqtt", "ws", "kafka"])
def test_a_tls_client_on_a_plain_port_is_told_of_in_the_log(node, authority, listener):
    before = refused(node, listener, "unexpected_tls")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        tls_socket(node, client_context(authority), listener)
    assert refused(node, listener, "unexpected_tls") == before + 1
    assert "it speaks TLS, and this port does not" in node.log.read_text()


def test_kafka_over_tls(start_node, server, authority):
    certificate, key = server
    node = start_node(
        HEADRACE_KAFKA__TLS_CERTIFICATE=str(certificate), HEADRACE_KAFKA__TLS_KEY=str(key)
    )
    node.create_stream("s")
    done = subprocess.run(
        ["kcat", "-b", f"localhost:{node.kafka}", "-X", "security.protocol=ssl", "-X",
         f"ssl.ca.location={authority.file}", "-P", "-t", "s"],
        input="hello\n", text=True, timeout=WAIT, check=True, capture_output=True,
    )  # fmt: skip
    assert done.stderr == ""
    assert node.ends("s") == [1]


def test_http_over_tls_and_new_certificates(start_node, tmp_path):
    mine = Authority(tmp_path / "own")
    certificate, key = mine.issue("server", "127.0.0.1")
    node = start_node(
        HEADRACE_HTTP__TLS_CERTIFICATE=str(certificate), HEADRACE_HTTP__TLS_KEY=str(key)
    )
    url = f"https://127.0.0.1:{node.http}"
    context = client_context(mine)

    def serial():
        with (
            socket.create_connection(("127.0.0.1", node.http), timeout=WAIT) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as client,
        ):
            return client.getpeercert()["serialNumber"]

    with urllib.request.urlopen(f"{url}/ready", context=context, timeout=WAIT) as answer:
        assert answer.status == 200
    listed = headrace("streams", "list", "--url", url, SSL_CERT_FILE=str(mine.file))
    assert listed.returncode == 0, listed.stderr
    first = serial()
    mine.issue("server", "127.0.0.1")
    node.process.send_signal(signal.SIGHUP)
    wait_for(lambda: serial() != first)


@pytest.mark.parametrize("door", ["kafka", "http"])
def test_the_other_doors_ask_for_client_certificates_too(start_node, server, authority, door):
    certificate, key = server
    table = f"HEADRACE_{door.upper()}__"
    node = start_node(
        **{
            f"{table}TLS_CERTIFICATE": str(certificate),
            f"{table}TLS_KEY": str(key),
            f"{table}TLS_CLIENT_CA": str(authority.file),
            f"{table}TLS_VERSION_MIN": "1.3",
        }
    )

    def answered(context):
        try:
            with tls_socket(node, context, door) as client:
                if door == "http":
                    client.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                else:
                    client.sendall(b"\0\0\0\x0b\x00\x12\x00\x00\x00\x00\x00\x07\x00\x01c")
                return client.recv(8) != b""
        except (ssl.SSLError, ConnectionError):
            return False

    shown = client_context(authority, authority.issue("d", "d.example.org"))
    assert answered(shown)
    assert not answered(client_context(authority))
    shown.maximum_version = ssl.TLSVersion.TLSv1_2
    assert not answered(shown)


# --- wrong settings -------------------------------------------------------------------------------


def start_refusal(tmp_path, **settings):
    doors = ["--mqtt", "127.0.0.1:0", "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    done = headrace("serve", "--data", str(tmp_path / "data"), *doors, **settings)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) <= 3
    return done.stderr


def test_files_that_cannot_be_used_are_one_line(tmp_path, server, authority):
    certificate, key = server
    other = authority.issue("other", "localhost")[1]
    (tmp_path / "none.pem").write_text("nothing")
    (tmp_path / "locked.key").write_text("-----BEGIN ENCRYPTED PRIVATE KEY-----\n")
    (tmp_path / "cut.pem").write_text(certificate.read_text()[:200])
    for settings, said in (
        ({"TLS_CERTIFICATE": "/no.pem"}, "[mqtt] tls_certificate: /no.pem cannot be read: No such"),
        ({"TLS_CERTIFICATE": tmp_path / "none.pem"}, "none.pem holds no certificate in PEM format"),
        ({"TLS_CERTIFICATE": tmp_path / "cut.pem", "TLS_KEY": key}, "are they whole?"),
        ({"TLS_CERTIFICATE": certificate}, "server.pem holds no private key in PEM format"),
        ({"TLS_CERTIFICATE": certificate, "TLS_KEY": other}, "is not the key of the certificate"),
        ({"TLS_CERTIFICATE": certificate, "TLS_KEY": tmp_path / "locked.key"}, "is encrypted"),
        ({"TLS_KEY": key}, "tls_key does nothing without tls_certificate; set both or neither"),
        (
            {"TLS_CERTIFICATE": certificate, "TLS_KEY": key, "TLS_CLIENT_CA": key},
            "[mqtt] tls_client_ca: ",
        ),
    ):
        environment = {f"HEADRACE_MQTT__{name}": str(value) for name, value in settings.items()}
        with pytest.raises(ConfigError) as refusal:
            Listeners(load(None, environment), is_open=lambda: True)
        assert said in str(refusal.value)
        assert "\n" not in str(refusal.value)
    # All of them reach a person as this one does.
    assert "none.pem holds no" in start_refusal(
        tmp_path, **environment | {"HEADRACE_MQTT__TLS_CLIENT_CA": str(tmp_path / "none.pem")}
    )


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


@pytest.mark.parametrize(
    ("setting", "remedy"),
    [("TLS_BIND", 'mqtt.tls_bind = "127.0.0.1:1"'), ("WS_BIND", "--ws 127.0.0.1:1")],
)
def test_every_listener_stays_on_loopback(tmp_path, server, setting, remedy):
    settings = secure_settings(server, **{f"HEADRACE_MQTT__{setting}": "0.0.0.0:1"})
    assert remedy in start_refusal(tmp_path, **settings)


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


# --- who does not finish --------------------------------------------------------------------------


@pytest.mark.setting("limits.handshake_timeout")
@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"])
def test_a_handshake_has_a_time_limit(start_node, server, sent):
    node = start_node(**secure_settings(server, HEADRACE_LIMITS__HANDSHAKE_TIMEOUT="200ms"))
    for listener in ("mqtts", "wss"):
        with socket.create_connection(("127.0.0.1", port(node, listener)), timeout=WAIT) as slow:
            slow.sendall(sent)
            with contextlib.suppress(ConnectionError):
                assert slow.recv(16) == b""
        assert refused(node, listener, "handshake_timeout") == 1


def test_a_slow_drip_of_a_handshake_is_ended_too(start_node, server):
    node = start_node(**secure_settings(server, HEADRACE_LIMITS__HANDSHAKE_TIMEOUT="300ms"))
    dripping = b"GET /mqtt HTTP/1.1\r\n" + b"X: y\r\n" * 1000
    with socket.create_connection(("127.0.0.1", port(node, "ws")), timeout=WAIT) as slow:
        slow.settimeout(0.05)
        with pytest.raises(ConnectionError):  # noqa: PT012
            for at in range(len(dripping)):
                slow.sendall(dripping[at : at + 1])
                with contextlib.suppress(TimeoutError):
                    if not slow.recv(1):
                        raise ConnectionError
    assert refused(node, "ws", "handshake_timeout") == 1


@pytest.mark.setting("limits.handshakes")
def test_handshakes_at_a_time_are_bounded(start_node, server):
    node = start_node(**secure_settings(server, HEADRACE_LIMITS__HANDSHAKES="3"))
    address = ("127.0.0.1", port(node, "mqtts"))
    waiting = [socket.create_connection(address, timeout=WAIT) for _ in range(3)]
    wait_for(lambda: node.metrics()['headrace_connections{door="mqtts"}'] == 3)
    with (
        socket.create_connection(address, timeout=WAIT) as fourth,
        contextlib.suppress(ConnectionError),
    ):
        assert fourth.recv(1) == b""
    assert refused(node, "mqtts", "handshakes_limit") == 1
    for each in waiting:
        each.close()
    with RawMqtt(node.mqtt, "c") as client:  # another door
        client.socket.sendall(PINGREQ)
        assert client.read(2) == PINGRESP


def test_a_client_that_closes_its_tls_half_way_is_forgotten(node, authority):
    for _ in range(20):
        with tls_socket(node, client_context(authority)) as client:
            client.sendall(CONNECT[:5])
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", port(node, "mqtts")), timeout=WAIT) as half:
            half.sendall(b"\x16\x03\x01")
    wait_for(lambda: node.metrics()['headrace_connections{door="mqtts"}'] == 0)
