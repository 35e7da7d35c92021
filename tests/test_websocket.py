"""MQTT over WebSocket, byte by byte (MQTT 5.0 6, RFC 6455)."""

import socket
import struct

import pytest

from conftest import RunningNode
from rawclient import RawMqtt
from rawwebsocket import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, RawWebSocket, frame

CONNECT = b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01w"
CONNACK = b"\x20\x02\x00\x00"
PINGREQ, PINGRESP = b"\xc0\x00", b"\xd0\x00"


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    node = RunningNode(
        tmp_path_factory.mktemp("websocket") / "data",
        HEADRACE_MQTT__PACKET_BYTES="64KiB",
        HEADRACE_MQTT__WS_ORIGINS="https://console.example.org",
    )
    yield node
    node.close()


@pytest.fixture
def client(node):
    with RawWebSocket(port(node)) as client:
        yield client


@pytest.fixture
def opened(client):
    client.upgrade()
    return client


@pytest.fixture
def session(opened):
    opened.send(CONNECT)
    assert opened.receive() == (BINARY, CONNACK)
    return opened


def port(node):
    return int(node.ready["ws"].rpartition(":")[2])


def refused(node, reason):
    name = f'headrace_connections_refused_total{{door="ws",reason="{reason}"}}'
    return node.metrics().get(name, 0)


# --- the request to upgrade -----------------------------------------------------------------------


# Holds 5.0: 6.0.0-4.
# Holds 3.1.1: 6.0.0-4.
@pytest.mark.parametrize("name", ["mqtt", "mqttv3.1"])
def test_mqtt_6_0_0_3_the_sub_protocol_is_echoed(client, name):
    assert client.upgrade(Sec_WebSocket_Protocol=name)["sec-websocket-protocol"] == name


def test_mqtt_6_0_0_3_it_is_found_among_others(client):
    answered = client.upgrade(Sec_WebSocket_Protocol="chat, mqtt, soap")
    assert answered["sec-websocket-protocol"] == "mqtt"


def test_compression_is_never_agreed_on(client):
    answered = client.upgrade(Sec_WebSocket_Extensions="permessage-deflate; client_max_window_bits")
    assert "sec-websocket-extensions" not in answered


# Holds 5.0: 6.0.0-3.
# Holds 3.1.1: 6.0.0-3.
@pytest.mark.parametrize(
    ("status", "path", "method", "headers"),
    [
        (404, "/", "GET", {}),
        (404, "/mqtt/x", "GET", {}),
        (405, "/mqtt", "POST", {}),
        (426, "/mqtt", "GET", {"Upgrade": None}),
        (426, "/mqtt", "GET", {"Connection": "close"}),
        (400, "/mqtt", "GET", {"Sec_WebSocket_Protocol": None}),
        (400, "/mqtt", "GET", {"Sec_WebSocket_Protocol": "chat"}),
        (400, "/mqtt", "GET", {"Sec_WebSocket_Key": None}),
        (400, "/mqtt", "GET", {"Sec_WebSocket_Key": "c2hvcnQ="}),
        (400, "/mqtt", "GET", {"Sec_WebSocket_Version": "8"}),
        (403, "/mqtt", "GET", {"Origin": "https://evil.example.org"}),
        (403, "/mqtt", "GET", {"Origin": "null"}),
        (403, "/mqtt", "GET", {"Origin": "http://[::1"}),
        (403, "/mqtt", "GET", {"Host": "rebound.example.org"}),
        (403, "/mqtt", "GET", {"Host": None}),
        (431, "/mqtt", "GET", {"X": "y" * 9000}),
        (431, "/mqtt", "GET", {f"X{number}": "y" * 4000 for number in range(9)}),
        (414, "/mqtt?" + "x" * 9000, "GET", {}),
    ],
)
def test_a_request_that_cannot_be_upgraded_is_answered_and_ended(
    node, client, status, path, method, headers
):
    before = refused(node, "websocket_upgrade")
    client.request(path, method, **headers)
    answered, fields = client.answer()
    assert answered == status
    assert fields["connection"] == "close"
    client.read(int(fields["content-length"]))
    assert client.ended()
    assert refused(node, "websocket_upgrade") == before + 1


@pytest.mark.parametrize(
    "request_",
    [b"\r\n\r\n", b"\0", CONNECT, b"get /", b"GET /mqtt HTTP/1.1\r\nno header\r\n\r\n"],
    ids=["empty lines", "zero", "plain MQTT", "small letters", "broken header"],
)
def test_what_is_no_request_gets_400(client, request_):
    client.socket.sendall(request_)
    assert client.answer()[0] == 400
    assert client.ended()


@pytest.mark.parametrize("early", [frame(CONNECT), frame(b"", PING), frame(b"", CLOSE)])
def test_frames_before_the_answer_get_400(node, early):
    with RawWebSocket(port(node)) as client:
        client.request()
        head = (
            f"GET /mqtt HTTP/1.1\r\nHost: 127.0.0.1:{port(node)}\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Key: {client.key}\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
        )
    with RawWebSocket(port(node)) as client:
        client.socket.sendall(head.encode() + early)
        status, headers = client.answer()
        assert status == 400
        client.read(int(headers["content-length"]))
        assert client.ended()


@pytest.mark.setting("mqtt.ws_origins")
@pytest.mark.parametrize("origin", ["https://console.example.org", "own"])
def test_pages_that_may_connect(node, client, origin):
    client.upgrade(Origin=f"http://127.0.0.1:{port(node)}" if origin == "own" else origin)


def test_pages_of_the_nodes_own_http_door_may_connect(start_node):
    with socket.create_server(("127.0.0.1", 0)) as free:
        http = free.getsockname()[1]
    node = start_node(ports=(0, 0, http))
    for host in ("127.0.0.1", "localhost"):
        with RawWebSocket(port(node)) as client:
            client.upgrade(Origin=f"http://{host}:{http}")
    with RawWebSocket(port(node)) as client:
        client.request(Origin="http://localhost:3000")
        assert client.answer()[0] == 403


def test_a_request_that_comes_byte_by_byte(client):
    sent = client.socket.sendall
    request = []
    client.socket = _Recorder(client.socket, request)
    client.request()
    for byte in b"".join(request):
        sent(bytes([byte]))
    assert client.answer()[0] == 101


class _Recorder:
    """A socket that keeps what it is to send."""

    def __init__(self, socket, sent):
        self._socket = socket
        self.sendall = sent.append

    def __getattr__(self, name):
        return getattr(self._socket, name)


@pytest.mark.setting("mqtt.ws_path")
def test_the_path_is_a_setting(start_node):
    node = start_node(HEADRACE_MQTT__WS_PATH="/broker")
    with RawWebSocket(port(node)) as client:
        client.request("/broker?x=y")
        assert client.answer()[0] == 101


# --- frames ---------------------------------------------------------------------------------------


def subscribe_and_publish(session, publish):
    """Subscribes, lets `publish` send a message of 300 bytes, and reads it back."""
    session.send(b"\x82\x06\x00\x01\x00\x01t\x00")
    assert session.receive() == (BINARY, b"\x90\x03\x00\x01\x00")
    packet = b"\x30\xaf\x02\x00\x01t" + bytes(range(256)) + b"x" * 44
    publish(packet)
    received = b""
    while len(received) < len(packet):
        opcode, payload = session.receive()
        if opcode == BINARY:
            received += payload
    assert received == packet


# Holds 5.0: 6.0.0-2.
# Holds 3.1.1: 6.0.0-2.
def test_mqtt_6_0_0_2_packets_and_frames_do_not_align(session):
    def publish(packet):
        session.send(PINGREQ + packet[:10])
        session.send(packet[10:] + PINGREQ)

    session.send(b"\x82\x06\x00\x01\x00\x01t\x00")
    assert session.receive() == (BINARY, b"\x90\x03\x00\x01\x00")
    packet = b"\x30\x0d\x00\x01t" + b"0123456789"
    publish(packet)
    received = b""
    while len(received) < len(packet) + 4:
        received += session.receive().payload
    assert received.replace(PINGRESP, b"", 2) == packet


def test_one_byte_frames(session):
    subscribe_and_publish(
        session, lambda packet: [session.send(packet[at : at + 1]) for at in range(len(packet))]
    )


def test_empty_frames(session):
    def publish(packet):
        session.send(b"")
        session.send(packet[:100])
        session.send(b"", last=False)
        session.send(b"", CONTINUATION)
        session.send(packet[100:])
        session.send(b"")

    subscribe_and_publish(session, publish)


def test_fragments_with_pings_between(session):
    def publish(packet):
        session.send(packet[:1], last=False)
        for at in range(1, len(packet) - 1):
            session.send(bytes([at % 256]), PING)
            session.send(packet[at : at + 1], CONTINUATION, last=False)
        session.send(packet[-1:], CONTINUATION)

    subscribe_and_publish(session, publish)


def test_many_frames_in_one_segment(session):
    def publish(packet):
        pieces = [frame(packet[at : at + 7]) for at in range(0, len(packet), 7)]
        session.socket.sendall(frame(b"x", PING).join(pieces))

    subscribe_and_publish(session, publish)


def test_a_frame_that_comes_byte_by_byte(session):
    def publish(packet):
        for byte in frame(packet):
            session.socket.sendall(bytes([byte]))

    subscribe_and_publish(session, publish)


def test_a_ping_is_answered_with_its_payload(opened):
    for payload in (b"", b"x", b"y" * 125):
        opened.send(payload, PING)
        assert opened.receive() == (PONG, payload)


def test_a_pong_that_nobody_asked_for_is_nothing(session):
    session.send(b"?", PONG)
    session.send(PINGREQ)
    assert session.receive() == (BINARY, PINGRESP)


@pytest.mark.parametrize("payload", [b"", struct.pack(">H", 1000) + b"bye"])
def test_a_close_is_echoed_and_the_connection_ends(session, payload):
    session.send(payload, CLOSE)
    assert session.receive() == (CLOSE, payload)
    assert session.ended()


def test_what_came_before_a_close_counts(node, session):
    with RawMqtt(node.mqtt, "other") as other:
        other.socket.sendall(b"\x82\x06\x00\x01\x00\x01c\x00")
        assert other.read(5) == b"\x90\x03\x00\x01\x00"
        session.socket.sendall(frame(b"\x30\x04\x00\x01cx") + frame(b"", CLOSE))
        assert other.read(6) == b"\x30\x04\x00\x01cx"


# Holds 5.0: 6.0.0-1.
# Holds 3.1.1: 6.0.0-1.
@pytest.mark.parametrize(
    ("broken", "code", "reason"),
    [
        (frame(b"{}", TEXT), 1003, "websocket_text"),
        (frame(PINGREQ, masked=False), 1002, "websocket_protocol"),
        (frame(PINGREQ, bits=4), 1002, "websocket_protocol"),
        (frame(PINGREQ, 3), 1002, "websocket_protocol"),
        (frame(b"", PING, last=False), 1002, "websocket_protocol"),
        (frame(b"x" * 126, PING), 1002, "websocket_protocol"),
        (frame(b"", CONTINUATION), 1002, "websocket_protocol"),
        (frame(b"a", last=False) + frame(b"b"), 1002, "websocket_protocol"),
        (frame(b"\x03", CLOSE), 1002, "websocket_protocol"),
        (b"\x82\xff" + struct.pack(">Q", 128 * 1024 + 1), 1009, "websocket_too_big"),
        (b"\x82\xff" + b"\xff" * 8, 1009, "websocket_too_big"),
    ],
    ids=[
        "text",
        "not masked",
        "reserved bit",
        "unknown opcode",
        "fragmented ping",
        "long ping",
        "continues nothing",
        "not continued",
        "close with half a code",
        "too big",
        "length too big",
    ],
)
def test_a_broken_frame_ends_the_connection_with_its_code(node, session, broken, code, reason):
    before = refused(node, reason)
    session.socket.sendall(broken)
    opcode, payload = session.receive()
    assert opcode == CLOSE
    assert struct.unpack(">H", payload[:2])[0] == code
    assert session.ended()
    assert refused(node, reason) == before + 1


def test_when_the_broker_ends_it_there_is_a_close_frame(session):
    session.send(b"\xf0\x00")  # AUTH, which 3.1.1 does not have
    assert session.receive() == (CLOSE, struct.pack(">H", 1000))
    assert session.ended()


def test_who_pings_and_does_not_read_makes_nothing_grow(node, session):
    before = node.resident_bytes()
    pings = frame(b"x" * 125, PING) * 1000
    for _ in range(300):  # 40 MB
        session.socket.sendall(pings)
    grown = node.resident_bytes() - before
    assert grown < 8 * 1024 * 1024
