"""PROXY headers, as a parser and on a node (HAProxy's proxy-protocol.txt)."""

import contextlib
import random
import socket
import ssl
import struct

import pytest

from authority import Authority
from conftest import wait_for
from headrace.errors import MalformedError
from headrace.model import Address
from headrace.wire.proxy import SIGNATURE, ProxyHeader, read_header
from rawclient import RawConnection
from rawwebsocket import BINARY, RawWebSocket

pytestmark = pytest.mark.slow

CONNECT = b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01p"
CONNACK = b"\x20\x02\x00\x00"


def version_2(family, addresses, command=1, extensions=b""):
    length = struct.pack(">H", len(addresses) + len(extensions))
    return SIGNATURE + bytes([0x20 | command, family]) + length + addresses + extensions


IPV4 = (
    socket.inet_aton("203.0.113.7") + socket.inet_aton("192.0.2.1") + struct.pack(">HH", 4321, 1883)
)
IPV6 = bytes.fromhex("20010db8" + "0" * 23 + "1") * 2 + struct.pack(">HH", 4321, 1883)
CLIENT, REACHED = Address("203.0.113.7", 4321), Address("192.0.2.1", 1883)
TEXT = b"PROXY TCP4 203.0.113.7 192.0.2.1 4321 1883\r\n"

WHOLE = [
    (TEXT, CLIENT, REACHED),
    (
        b"PROXY TCP6 2001:db8::1 2001:db8::2 65535 0\r\n",
        Address("2001:db8::1", 65535),
        Address("2001:db8::2", 0),
    ),
    (b"PROXY UNKNOWN\r\n", None, None),
    (b"PROXY UNKNOWN ffff::1 what ever 1\r\n", None, None),
    (version_2(0x11, IPV4), CLIENT, REACHED),
    (version_2(0x11, IPV4, extensions=b"\x04\x00\x03abc\x20\x00\x00"), CLIENT, REACHED),
    (version_2(0x21, IPV6), Address("2001:db8::1", 4321), Address("2001:db8::1", 1883)),
    (version_2(0x31, bytes(216)), None, None),
    (version_2(0x00, b""), None, None),
    (version_2(0x00, b"any thing", command=0), None, None),
    (version_2(0x11, IPV4, command=0), None, None),
]


@pytest.mark.parametrize(("header", "source", "destination"), WHOLE)
def test_a_header_is_read_and_what_follows_is_left(header, source, destination):
    expected = ProxyHeader(len(header), source, destination)
    assert read_header(header) == expected
    assert read_header(header + b"\x10rest") == expected


@pytest.mark.parametrize("header", [whole[0] for whole in WHOLE])
def test_a_header_cut_anywhere_is_waited_for(header):
    assert all(read_header(header[:size]) is None for size in range(len(header)))


@pytest.mark.parametrize(
    "header",
    [
        CONNECT,
        b"GET / HTTP/1.1\r\n",
        b"PROXY TCP5 203.0.113.7 192.0.2.1 1 1\r\n",
        b"PROXY TCP4 2001:db8::1 192.0.2.1 1 1\r\n",
        b"PROXY TCP4 203.0.113.7  192.0.2.1 1 1\r\n",
        b"PROXY TCP4 203.0.113.07 192.0.2.1 1 1\r\n",
        b"PROXY TCP4 203.0.113.7 192.0.2.1 65536 1\r\n",
        b"PROXY TCP4 203.0.113.7 192.0.2.1 01 1\r\n",
        b"PROXY TCP4 203.0.113.7 192.0.2.1 1\r\n",
        b"PROXY UNKNOWNS\r\n",
        b"PROXY " + b"x" * 101,
        SIGNATURE[:-1] + b"X",
        SIGNATURE + b"\x11\x11\x00\x00",
        SIGNATURE + b"\x22\x11\x00\x00",
        version_2(0x12, IPV4),
        version_2(0x41, IPV4),
        version_2(0x11, IPV4[:-1]),
        version_2(0x21, IPV4),
        version_2(0x11, IPV4, extensions=b"\x04\x00"),
        version_2(0x11, IPV4, extensions=b"\x04\x00\x04abc"),
        SIGNATURE + b"\x21\x11\xff\xff",
    ],
)
def test_a_broken_header_is_refused(header):
    with pytest.raises(MalformedError, match="PROXY"):
        read_header(header)


def test_random_headers_are_read_waited_for_or_refused():
    rng = random.Random(1)
    for _ in range(20_000):
        data = bytearray(rng.choice(WHOLE)[0])
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        with contextlib.suppress(MalformedError):
            header = read_header(bytes(data))
            assert header is None or 0 < header.size_bytes <= len(data)


# --- on a node ------------------------------------------------------------------------------------


def port(node, listener):
    return int(node.ready[listener].rpartition(":")[2])


def refused(node, listener, reason):
    name = f'headrace_connections_refused_total{{door="{listener}",reason="{reason}"}}'
    return node.metrics().get(name, 0)


@pytest.fixture
def proxied(start_node):
    def start(listeners="mqtt", **settings):
        return start_node(
            HEADRACE_MQTT__PROXY_PROTOCOL=listeners, HEADRACE_LOGGING__LEVEL="debug", **settings
        )

    return start


@pytest.mark.parametrize("header", [TEXT, version_2(0x11, IPV4)])
def test_the_log_names_the_client_and_not_the_proxy(proxied, header):
    node = proxied()
    with RawConnection(node.mqtt) as client:
        client.socket.sendall(header + CONNECT)
        assert client.read(4) == CONNACK
        client.socket.sendall(b"\0\0")
        assert client.socket.recv(1) == b""
    wait_for(lambda: "client=203.0.113.7:4321" in node.log.read_text())


def test_a_header_that_comes_byte_by_byte(proxied):
    node = proxied()
    with RawConnection(node.mqtt) as client:
        for byte in version_2(0x11, IPV4) + CONNECT:
            client.socket.sendall(bytes([byte]))
        assert client.read(4) == CONNACK


@pytest.mark.setting("mqtt.proxy_protocol")
def test_it_is_required_where_it_is_switched_on_and_nowhere_else(proxied):
    node = proxied()
    with RawConnection(node.mqtt) as client:
        client.socket.sendall(CONNECT)
        assert client.socket.recv(1) == b""
    assert refused(node, "mqtt", "proxy_malformed") == 1
    assert "no PROXY header" in node.log.read_text()
    with RawWebSocket(port(node, "ws")) as client:
        client.upgrade()


@pytest.mark.setting("mqtt.proxy_trusted")
def test_only_trusted_addresses_may_send_it(proxied):
    node = proxied(HEADRACE_MQTT__PROXY_TRUSTED="10.0.0.0/8, 192.0.2.1")
    with RawConnection(node.mqtt) as client:
        client.socket.sendall(TEXT + CONNECT)
        assert client.socket.recv(1) == b""
    assert refused(node, "mqtt", "proxy_untrusted") == 1


def test_bounds_hold_for_the_client_and_not_for_the_proxy(proxied):
    node = proxied(HEADRACE_LIMITS__CONNECTIONS_PER_ADDRESS="1")
    with contextlib.ExitStack() as opened:
        for host in (b"203.0.113.7", b"203.0.113.8", b"203.0.113.9"):
            client = opened.enter_context(RawConnection(node.mqtt))
            client.socket.sendall(TEXT.replace(b"203.0.113.7", host) + CONNECT)
            assert client.read(4) == CONNACK
        again = opened.enter_context(RawConnection(node.mqtt))
        again.socket.sendall(TEXT + CONNECT)
        with contextlib.suppress(ConnectionError):
            assert again.socket.recv(1) == b""
    assert refused(node, "mqtt", "address_limit") == 1


def test_websocket_behind_a_proxy(proxied):
    node = proxied("ws")
    with RawWebSocket(port(node, "ws")) as client:
        client.socket.sendall(TEXT)
        client.upgrade()
        client.send(CONNECT)
        assert client.receive() == (BINARY, CONNACK)


def test_tls_behind_a_proxy_also_where_the_hello_comes_with_the_header(proxied, tmp_path):
    authority = Authority(tmp_path / "authority")
    certificate, key = authority.issue("server", "localhost")
    node = proxied(
        "mqtts",
        HEADRACE_MQTT__TLS_CERTIFICATE=str(certificate),
        HEADRACE_MQTT__TLS_KEY=str(key),
        HEADRACE_MQTT__TLS_BIND="127.0.0.1:0",
        HEADRACE_MQTT__WSS_BIND="off",
    )
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context(cafile=authority.file)
    tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with RawConnection(port(node, "mqtts")) as client:

        def until(step):
            while True:
                try:
                    return step()
                except ssl.SSLWantReadError:
                    client.socket.sendall(outgoing.read())
                    incoming.write(client.socket.recv(65536))

        with contextlib.suppress(ssl.SSLWantReadError):
            tls.do_handshake()
        client.socket.sendall(TEXT + outgoing.read())
        until(tls.do_handshake)
        tls.write(CONNECT)
        client.socket.sendall(outgoing.read())
        assert until(lambda: tls.read(4)) == CONNACK


def test_kafka_behind_a_proxy(start_node):
    node = start_node(HEADRACE_KAFKA__PROXY_PROTOCOL="true")
    with RawConnection(node.kafka) as client:
        versions = b"\x00\x12\x00\x00\x00\x00\x00\x07\x00\x01c"
        client.socket.sendall(TEXT + struct.pack(">i", len(versions)) + versions)
        assert client.read(8)[4:] == b"\x00\x00\x00\x07"
