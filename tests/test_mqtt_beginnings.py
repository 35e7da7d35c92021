"""Many clients that begin a large packet and do not go on keep nobody out."""

import contextlib
import struct

import pytest

from conftest import wait_for
from rawclient import RawConnection, RawMqtt, varint
from rawwebsocket import BINARY, CLOSE, RawWebSocket, frame

IDLE = 500
BEGUN_BYTES = 100_000
CONNECT = b"\x10\x10\x00\x04MQTT\x05\x02\x00\x00\x00\x00\x03" + b"%03d"
CONNACK_HEAD = b"\x20"
PAYLOAD = b"x" * 1_000_000
NO_PROPERTIES = b"\0"
REFUSED = 'headrace_mqtt_packets_refused_total{reason="memory_full"}'


@pytest.fixture
def node(start_node):
    return start_node(HEADRACE_LIMITS__BUFFERED_BYTES="16MiB")


def publish(packet_id, properties=b""):
    """At QoS 1; 5.0 has properties, which may be none."""
    body = b"\x00\x01t" + struct.pack(">H", packet_id) + properties + PAYLOAD
    return b"\x32" + varint(len(body)) + body


def large_connect():
    """One of more bytes than a connection may hold in any case."""
    body = b"\x00\x04MQTT\x04\xc2\x00\x00\x00\x01l"
    for part in (b"u" * 65_535, b"p" * 60_000):
        body += struct.pack(">H", len(part)) + part
    return b"\x10" + varint(len(body)) + body


def idle(node, number, begun_bytes=BEGUN_BYTES):
    """A 5.0 client that sends the beginning of a publish."""
    client = RawConnection(node.mqtt)
    client.socket.sendall(CONNECT % number)
    head, size = client.read(2)
    assert head == CONNACK_HEAD[0]
    client.read(size)
    client.socket.sendall(publish(1, NO_PROPERTIES)[:begun_bytes])
    return client


def send_in_pieces(client, packet):
    for at in range(0, len(packet), 50_000):
        client.socket.sendall(packet[at : at + 50_000])


def test_idle_beginnings_of_packets_keep_nobody_out(node):
    with contextlib.ExitStack() as opened:
        clients = [opened.enter_context(idle(node, number)) for number in range(IDLE)]
        sent = IDLE * BEGUN_BYTES
        wait_for(lambda: node.metrics()["headrace_mqtt_bytes_received_total"] >= sent)
        before = node.metrics()
        assert before["headrace_mqtt_buffered_bytes"] <= 12 << 20
        assert before[REFUSED] >= IDLE - 130
        other = opened.enter_context(RawMqtt(node.mqtt, "other"))
        for packet_id in (1, 2, 3):
            send_in_pieces(other, publish(packet_id))
            assert other.puback() == packet_id
        late = opened.enter_context(RawConnection(node.mqtt))
        whole = large_connect()
        late.socket.sendall(whole[:70_000])
        late.socket.sendall(whole[70_000:])
        assert late.read(4) == b"\x20\x02\x00\x00"
        assert clients[0].read(3) == b"\xe0\x01\x97", "DISCONNECT: quota exceeded"
        assert clients[0].socket.recv(1) == b""
        ended = node.metrics()[REFUSED] - before[REFUSED]
        assert ended <= 15, "as many as one packet needs room for"
        clients[-1].socket.sendall(publish(1, NO_PROPERTIES)[BEGUN_BYTES:])
        assert clients[-1].read(2)[0] == 0x40, "who began last may go on"


def test_idle_beginnings_of_small_packets_keep_nobody_out(start_node):
    """Each may hold 64 KiB, while all together leave others their room."""
    node = start_node(HEADRACE_LIMITS__BUFFERED_BYTES="4MiB")
    with contextlib.ExitStack() as opened:
        clients = [opened.enter_context(idle(node, number, 60_000)) for number in range(100)]
        wait_for(lambda: node.metrics()["headrace_mqtt_bytes_received_total"] >= 100 * 60_000)
        before = node.metrics()
        assert before["headrace_mqtt_buffered_bytes"] <= 3 << 20
        other = opened.enter_context(RawMqtt(node.mqtt, "other"))
        for packet_id in (1, 2, 3):
            send_in_pieces(other, publish(packet_id))
            assert other.puback() == packet_id
        assert clients[0].read(3) == b"\xe0\x01\x97", "DISCONNECT: quota exceeded"
        assert clients[0].socket.recv(1) == b""
        assert node.metrics()[REFUSED] - before[REFUSED] <= 17, "as many as one packet needs"
        clients[-1].socket.sendall(publish(1, NO_PROPERTIES)[60_000:])
        assert clients[-1].read(2)[0] == 0x40, "who began last may go on"


def test_idle_beginnings_of_websocket_frames_keep_nobody_out(node):
    port = int(node.ready["ws"].rpartition(":")[2])
    ended = 'headrace_connections_refused_total{door="ws",reason="websocket_memory"}'

    def begin(number):
        client = RawWebSocket(port)
        client.upgrade()
        client.send(CONNECT % number)
        assert client.receive().payload[:1] == CONNACK_HEAD
        client.socket.sendall(frame(publish(1, NO_PROPERTIES))[:BEGUN_BYTES])
        return client

    with contextlib.ExitStack() as opened:
        for number in range(IDLE):
            opened.enter_context(begin(number))
        wait_for(lambda: node.metrics().get(ended, 0) >= IDLE - 180)
        before = node.metrics()[ended]
        other = opened.enter_context(RawWebSocket(port))
        other.upgrade()
        other.send(b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01w")
        assert other.receive() == (BINARY, b"\x20\x02\x00\x00")
        for packet_id in (1, 2, 3):
            send_in_pieces(other, frame(publish(packet_id)))
            assert other.receive() == (BINARY, b"\x40\x02" + struct.pack(">H", packet_id))
        assert node.metrics()[ended] - before <= 20


def test_a_websocket_frame_does_not_age_while_its_client_is_read_no_further(start_node):
    node = start_node(
        HEADRACE_LIMITS__BUFFERED_BYTES="1MiB", HEADRACE_LIMITS__MESSAGES_PER_SECOND="1"
    )
    port = int(node.ready["ws"].rpartition(":")[2])
    ended = 'headrace_connections_refused_total{door="ws",reason="websocket_memory"}'
    with contextlib.ExitStack() as opened:

        def begin(number, before=b""):
            client = opened.enter_context(RawWebSocket(port))
            client.upgrade()
            client.send(CONNECT % number)
            assert client.receive().payload[:1] == CONNACK_HEAD
            client.socket.sendall(before + frame(publish(1, NO_PROPERTIES))[:BEGUN_BYTES])
            return client

        publishes = b"\x30\x04\x00\x01t\x00" * 1_000
        first = begin(0, frame(publishes))
        wait_for(lambda: node.metrics()["headrace_mqtt_rate_pauses_total"] >= 1)
        others = [begin(number) for number in range(1, 20)]
        wait_for(lambda: node.metrics().get(ended, 0) >= 10)
        assert others[0].receive().opcode == CLOSE
        first.socket.settimeout(0)
        with pytest.raises(BlockingIOError):
            first.socket.recv(1)
