"""Every setting of the reference takes effect, and a test shows it.

A test that shows the effect of a setting says so, `@pytest.mark.setting("limits.stall")`; one that
no test names fails here. Those that have no other place are shown in this file.
"""

import ast
import contextlib
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import environment
from headrace.config.reference import settings
from headrace.queue_settings import QUEUE_SETTINGS
from headrace.settings import SETTINGS
from rawclient import RawConnection, RawMqtt
from test_mqtt_routing import Client
from test_proxy import TEXT

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parent
QUOTA_EXCEEDED = 0x97


def marks(file):
    """Settings whose effect the tests of a file say that they show."""
    for function in ast.walk(ast.parse(file.read_text())):
        for mark in getattr(function, "decorator_list", ()):
            if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.setting":
                yield from map(ast.literal_eval, mark.args)


def test_every_setting_has_a_test_that_shows_its_effect():
    known = {f"{table}.{key}" for table, key, _ in settings()}
    shape = ("partitions", "filters", "key")
    known |= {f"streams.{name}" for name in (*shape, *SETTINGS)}
    known |= {f"queues.{name}" for name in (*shape, *QUEUE_SETTINGS)}
    shown = {setting for file in TESTS.glob("test_*.py") for setting in marks(file)}
    assert known - shown == set(), "no test shows what these do"
    assert shown - known == set(), "there are no such settings"


def start_with(file, **extra):
    """A node without a word on its command line; the process, and its ready line."""
    variables = environment(HEADRACE_LOG__JOURNAL_BYTES="4MiB", **extra)
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace", "serve", "--config", str(file), "--json"],
        env={name: value for name, value in variables.items() if not name.endswith("_BIND")},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=file.parent,
    )
    assert process.stdout is not None
    return process, json.loads(process.stdout.readline())


@pytest.mark.setting("node.name", "node.data", "mqtt.bind", "mqtt.ws_bind", "kafka.bind")
@pytest.mark.setting("http.bind", "frame.bind")
def test_a_file_alone_says_where_a_node_is(tmp_path):
    file = tmp_path / "headrace.toml"
    file.write_text(
        '[node]\nname = "north"\ndata = "kept/here"\n'
        '[mqtt]\nbind = "127.0.0.2:0"\nws_bind = "127.0.0.3:0"\n'
        '[kafka]\nbind = "127.0.0.4:0"\n[http]\nbind = "127.0.0.5:0"\n'
        '[frame]\nbind = "127.0.0.6:0"\n'
    )
    process, ready = start_with(file)
    try:
        doors = ("mqtt", "ws", "kafka", "http", "frame")
        hosts = [ready[door].partition(":")[0] for door in doors]
        assert hosts == [f"127.0.0.{number}" for number in range(2, 7)]
        assert ready["node"] == "north"
        assert (tmp_path / "kept" / "here" / "headrace.lock").exists()
        for door in doors:
            host, _, port = ready[door].partition(":")
            socket.create_connection((host, int(port)), timeout=30).close()
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


# --- TLS of the doors beside MQTT ----------------------------------------------------------------

API_VERSIONS = b"\x00\x00\x00\x0b\x00\x12\x00\x00\x00\x00\x00\x07\x00\x01c"
HELLO = {
    "kafka": API_VERSIONS,
    "http": b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "frame": b"{}\n",
}


@pytest.fixture
def secure(start_node, authority):
    """Starts a node with one secure door; answers whether that serves a client."""

    def start(door, **extra):
        certificate, key = authority.issue("server", "localhost")
        own = {"TLS_CERTIFICATE": certificate, "TLS_KEY": key, **extra}
        variables = {f"HEADRACE_{door}__{key}".upper(): str(value) for key, value in own.items()}
        node = start_node(**variables)

        def serves(certificate=None, version_max=ssl.TLSVersion.TLSv1_3):
            context = ssl.create_default_context(cafile=authority.file)
            context.maximum_version = version_max
            if certificate is not None:
                context.load_cert_chain(*certificate)
            address = ("127.0.0.1", getattr(node, door))
            try:
                with (
                    socket.create_connection(address, timeout=30) as plain,
                    context.wrap_socket(plain, server_hostname="localhost") as client,
                ):
                    client.sendall(HELLO[door])
                    return client.recv(4) != b""
            except (ssl.SSLError, ConnectionError):
                return False

        return serves

    return start


@pytest.mark.setting("kafka.tls_certificate", "kafka.tls_key", "kafka.tls_version_min")
@pytest.mark.setting("http.tls_certificate", "http.tls_key", "http.tls_version_min")
@pytest.mark.setting("frame.tls_certificate", "frame.tls_key", "frame.tls_version_min")
@pytest.mark.parametrize("door", ["kafka", "http", "frame"])
def test_tls_version_min_of_a_door(secure, door):
    serves = secure(door, TLS_VERSION_MIN="1.3")
    assert serves()
    assert not serves(version_max=ssl.TLSVersion.TLSv1_2)


@pytest.mark.setting("kafka.tls_client_ca", "kafka.tls_client_auth", "kafka.tls_client_crl")
@pytest.mark.setting("http.tls_client_ca", "http.tls_client_auth", "http.tls_client_crl")
@pytest.mark.setting("frame.tls_client_ca", "frame.tls_client_auth", "frame.tls_client_crl")
@pytest.mark.parametrize("door", ["kafka", "http", "frame"])
@pytest.mark.parametrize(("auth", "without"), [("require", False), ("optional", True)])
def test_client_certificates_of_a_door(secure, authority, door, auth, without):
    revoked = authority.issue("revoked", "r.example.org")
    good = authority.issue("good", "g.example.org")
    serves = secure(
        door,
        TLS_CLIENT_CA=authority.file,
        TLS_CLIENT_AUTH=auth,
        TLS_CLIENT_CRL=authority.revoke(revoked[0]),
    )
    assert (serves(good), serves(), serves(revoked)) == (True, without, False)


@pytest.mark.setting("kafka.proxy_protocol", "kafka.proxy_trusted")
def test_the_kafka_door_trusts_some_proxies(start_node):
    trust = {"HEADRACE_KAFKA__PROXY_TRUSTED": "192.0.2.0/24"}
    node = start_node(HEADRACE_KAFKA__PROXY_PROTOCOL="true", **trust)
    with RawConnection(node.kafka) as client:
        client.socket.sendall(TEXT + API_VERSIONS)
        assert client.socket.recv(1) == b""
    refused = 'headrace_connections_refused_total{door="kafka",reason="proxy_untrusted"}'
    assert node.metrics()[refused] == 1


# --- bounds --------------------------------------------------------------------------------------


@pytest.mark.setting("http.body_bytes")
def test_http_body_bytes(start_node):
    node = start_node(HEADRACE_HTTP__BODY_BYTES="1KiB")
    body = {"topic": "t", "payload": "x" * 2000}
    assert node.call("POST", "/api/v1/publish", body)[0] == 413


@pytest.mark.setting("limits.queued_bytes")
def test_queued_bytes(start_node):
    node = start_node(HEADRACE_LIMITS__QUEUED_BYTES="11KiB")
    for name in ("a", "b"):
        with Client(node, name, expiry_s=300) as client:
            client.subscribe("t", 1)
    with Client(node) as publisher:
        for _ in range(4):
            publisher.publish("t", b"x" * 3000, 1)
    metrics = node.metrics()
    assert metrics['headrace_mqtt_messages_dropped_total{reason="memory_full"}'] == 2
    assert 9_000 < metrics["headrace_mqtt_queued_bytes"] <= 11_264


@pytest.mark.setting("limits.buffered_bytes")
def test_buffered_bytes(start_node):
    policy = {"HEADRACE_MQTT__OVERFLOW": "drop-newest"}
    node = start_node(HEADRACE_LIMITS__BUFFERED_BYTES="1MiB", **policy)
    dropped = 'headrace_mqtt_messages_dropped_total{reason="memory_full"}'
    with contextlib.ExitStack() as opened:
        for number in range(4):
            reader = opened.enter_context(RawMqtt(node.mqtt, f"slow-{number}"))
            reader.socket.sendall(b"\x82\x06\x00\x01\x00\x01t\x00")
            assert reader.read(5) == b"\x90\x03\x00\x01\x00"
        publisher = opened.enter_context(Client(node))
        for _ in range(1_000):
            publisher.publish("t", b"x" * 60_000, 1)
            if node.metrics()[dropped] > 10:
                break
        metrics = node.metrics()
    assert metrics[dropped] > 10
    assert metrics["headrace_mqtt_buffered_bytes"] < (1 << 20) + 4 * 130_000
    assert metrics['headrace_mqtt_messages_dropped_total{reason="outbound_full"}'] == 0


@pytest.mark.setting("limits.group_bytes")
def test_group_bytes(start_node):
    node = start_node(HEADRACE_LIMITS__GROUP_BYTES="10KiB")
    with Client(node, "away", expiry_s=300) as member:
        member.subscribe("$share/g/t", 1)
    with Client(node) as publisher:
        for _ in range(4):
            publisher.publish("t", b"x" * 3000, 1)
    assert node.metrics()['headrace_mqtt_messages_dropped_total{reason="group_queue_full"}'] == 1


@pytest.mark.setting("limits.subscriptions", "limits.session_subscriptions")
def test_subscriptions(start_node):
    node = start_node(
        HEADRACE_LIMITS__SUBSCRIPTIONS="3", HEADRACE_LIMITS__SESSION_SUBSCRIPTIONS="2"
    )
    with Client(node) as first, Client(node) as second:
        assert [first.subscribe(topic) for topic in "abc"] == [1, 1, QUOTA_EXCEEDED]
        assert [second.subscribe(topic) for topic in "ab"] == [1, QUOTA_EXCEEDED]
    refused = "headrace_mqtt_subscriptions_refused_total{reason=%s}"
    metrics = node.metrics()
    assert metrics[refused % '"quota_exceeded"'] == 1
    assert metrics[refused % '"subscriptions_full"'] == 1


@pytest.mark.setting("limits.queue_groups")
def test_queue_groups(start_node):
    node = start_node(HEADRACE_LIMITS__QUEUE_GROUPS="1")
    assert node.call("POST", "/api/v1/queues", {"name": "jobs"})[0] == 201
    with Client(node) as client:
        groups = ["a", "b", "a"]
        codes = [client.subscribe(f"$queue/jobs?group={group}") for group in groups]
    assert codes == [1, QUOTA_EXCEEDED, 1]
    status, answer = node.call("POST", "/api/v1/queues/jobs/pull", {"group": "b"})
    assert (status, answer["error"]) == (409, "group_limit")


@pytest.mark.setting("limits.unreleased")
def test_unreleased(start_node):
    node = start_node(HEADRACE_LIMITS__UNRELEASED="1")
    publish = bytes((0x34, 6, 0, 1)) + b"t" + bytes((0, 1)) + b"x"
    with RawConnection(node.mqtt) as holder:
        holder.socket.sendall(bytes((0x10, 13)) + b"\0\4MQTT\4\2\0\0\0\1a")
        holder.socket.sendall(publish)
        assert holder.read(8) == b"\x20\2\0\0" + b"\x50\2\0\1", "and no PUBREL"
        with Client(node) as other:
            other.publish("t", b"x", 2)  # paho takes no PUBREC for a refusal
            assert other.publish("t", b"x", 1) < QUOTA_EXCEEDED
    dropped = 'headrace_mqtt_messages_dropped_total{reason="unreleased_full"}'
    assert node.metrics()[dropped] == 1


# --- defaults of streams --------------------------------------------------------------------------

DEFAULTS_OF_STREAMS = {
    "cleanup.policy": "compact,delete",
    "compression.type": "zstd",
    "delete.retention.ms": 1_000,
    "flush.ms": 2_000,
    "fsync": "interval",
    "max.compaction.lag.ms": 3_000,
    "max.message.bytes": 4_000,
    "min.cleanable.dirty.ratio": 0.25,
    "min.compaction.lag.ms": 5,
    "retention.bytes": 6_000_000,
    "retention.ms": 7_000_000,
    "retention.records": 8_000,
    "segment.bytes": 90_000,
    "segment.index.bytes": 10_000,
    "segment.ms": 11_000,
}


@pytest.mark.setting("log.cleanup_policy", "log.compression_type", "log.delete_retention_ms")
@pytest.mark.setting("log.flush_ms", "log.fsync", "log.max_compaction_lag_ms")
@pytest.mark.setting("log.max_message_bytes", "log.min_cleanable_dirty_ratio")
@pytest.mark.setting("log.min_compaction_lag_ms", "log.retention_bytes", "log.retention_ms")
@pytest.mark.setting("log.retention_records", "log.segment_bytes", "log.segment_index_bytes")
@pytest.mark.setting("log.segment_ms")
def test_defaults_hold_for_what_a_stream_does_not_say(start_node):
    assert DEFAULTS_OF_STREAMS.keys() == SETTINGS.keys()
    variables = {
        f"HEADRACE_LOG__{name.replace('.', '_').upper()}": str(value)
        for name, value in DEFAULTS_OF_STREAMS.items()
    }
    node = start_node(**variables)
    node.create_stream("a", filters=["a"])
    effective = node.call("GET", "/api/v1/streams/a")[1]["effective"]
    assert effective == {
        name: {"value": value, "source": "node"} for name, value in DEFAULTS_OF_STREAMS.items()
    }
    # They reach what acts on them as a stream's own do: here the largest batch and the segment.
    with Client(node) as client:
        assert client.publish("a", b"x" * 5_000) >= 0x80
        for _ in range(40):
            client.publish("a", os.urandom(3_500))
    segments = list((node.data / "streams" / "a" / "0").glob("*.log"))
    assert len(segments) > 1
