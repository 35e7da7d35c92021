"""TLS at every door: versions, client certificates, new certificates, and who does not finish."""

import asyncio
import contextlib
import datetime as dt
import signal
import socket
import ssl
import subprocess
import time
import urllib.request

import aiokafka
import aiokafka.helpers
import confluent_kafka
import kafka
import pytest

from authority import Authority
from conftest import headrace, wait_for
from headrace import limits
from headrace.cli.listeners import Listeners
from headrace.config import load
from headrace.errors import ConfigError
from rawclient import RawMqtt
from secure import (
    CONNACK,
    CONNECT,
    PINGREQ,
    PINGRESP,
    WAIT,
    client_context,
    is_served,
    port,
    refused,
    secure_settings,
    tls_socket,
)

pytestmark = pytest.mark.slow


@pytest.fixture
def node(secured):
    return secured


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


@pytest.mark.shows("kcat", "TLS")
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


@pytest.mark.shows("confluent-kafka", "TLS")
@pytest.mark.shows("kafka-python", "TLS")
@pytest.mark.shows("aiokafka", "TLS")
async def test_kafkas_python_clients_over_tls(start_node, server, authority):
    certificate, key = server
    node = start_node(
        HEADRACE_KAFKA__TLS_CERTIFICATE=str(certificate), HEADRACE_KAFKA__TLS_KEY=str(key)
    )
    node.create_stream("s")
    servers, file = f"localhost:{node.kafka}", str(authority.file)
    confluent = confluent_kafka.Producer(
        {"bootstrap.servers": servers, "security.protocol": "ssl", "ssl.ca.location": file}
    )
    confluent.produce("s", b"one")
    assert await asyncio.to_thread(confluent.flush, WAIT) == 0

    def blocking():
        with kafka.KafkaProducer(
            bootstrap_servers=servers, security_protocol="SSL", ssl_cafile=file
        ) as producer:
            return producer.send("s", b"two").get(WAIT).offset

    assert await asyncio.to_thread(blocking) == 1
    async with aiokafka.AIOKafkaProducer(
        bootstrap_servers=servers,
        security_protocol="SSL",
        ssl_context=aiokafka.helpers.create_ssl_context(cafile=file),
    ) as producer:
        assert (await producer.send_and_wait("s", b"three")).offset == 2
    assert node.ends("s") == [3]


@pytest.mark.setting("kafka.tls_bind", "kafka.tls_advertised")
def test_kafka_in_plain_text_and_over_tls_side_by_side(start_node, server, authority, tmp_path):
    certificate, key = server
    tables = (
        f'[kafka]\ntls_certificate = "{certificate}"\ntls_key = "{key}"\ntls_bind = "127.0.0.1:0"\n'
    )
    file = tmp_path / "headrace.toml"
    file.write_text(tables)
    node = start_node("--config", str(file))
    node.create_stream("s")
    tls = {"security.protocol": "ssl", "ssl.ca.location": str(authority.file)}

    def told(listener, settings):
        """Where a client is told to find the node, once it has stored a record there."""
        settings = {"bootstrap.servers": f"localhost:{port(node, listener)}", **settings}
        producer = confluent_kafka.Producer(settings)
        producer.produce("s", b"one")
        assert producer.flush(WAIT) == 0
        (broker,) = producer.list_topics(timeout=WAIT).brokers.values()
        return f"{broker.host}:{broker.port}"

    assert told("kafka", {}) == node.ready["kafka"]
    assert told("kafkas", tls) == node.ready["kafkas"]
    advertised = f"localhost:{port(node, 'kafka')}"
    file.write_text(f'{tables}advertised = "{advertised}"\n')
    assert node.call("POST", "/api/v1/config/reload")[0] == 200
    assert told("kafka", {}) == advertised
    assert told("kafkas", tls) == node.ready["kafkas"]
    secure = f"localhost:{port(node, 'kafkas')}"
    file.write_text(f'{tables}advertised = "{advertised}"\ntls_advertised = "{secure}"\n')
    assert node.call("POST", "/api/v1/config/reload")[0] == 200
    assert told("kafkas", tls) == secure
    assert node.ends("s") == [5]


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


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02\0"], ids=["nothing", "half a hello"])
def test_who_does_not_finish_a_handshake_keeps_nobody_out_of_http(
    start_node, server, authority, sent
):
    certificate, key = server
    node = start_node(
        HEADRACE_HTTP__TLS_CERTIFICATE=str(certificate), HEADRACE_HTTP__TLS_KEY=str(key)
    )
    url, context = f"https://127.0.0.1:{node.http}", client_context(authority)

    def got(path):
        with urllib.request.urlopen(f"{url}{path}", context=context, timeout=WAIT) as answer:
            return answer.read().decode()

    with contextlib.ExitStack() as stack:
        silent = [
            stack.enter_context(socket.create_connection(("127.0.0.1", node.http), timeout=WAIT))
            for _ in range(limits.HTTP_CONNECTIONS_MAX)
        ]
        for client in silent:
            client.sendall(sent)
        assert '"ok"' in got("/health")
        assert silent[0].recv(1) == b"", "it came first"
        assert 'http_connections_ended_total{reason="gave_way"} 0' not in got("/metrics")


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


@pytest.mark.parametrize(
    ("setting", "remedy"),
    [("TLS_BIND", 'mqtt.tls_bind = "127.0.0.1:1"'), ("WS_BIND", "--ws 127.0.0.1:1")],
)
def test_every_listener_stays_on_loopback(tmp_path, server, setting, remedy):
    settings = secure_settings(server, **{f"HEADRACE_MQTT__{setting}": "0.0.0.0:1"})
    assert remedy in start_refusal(tmp_path, **settings)


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
