"""A device on a session that lasts: MQTT 3.1.1, QoS 1 and 2 both ways, with a record of packets.

It keeps its side of every exchange however often its connection breaks (3.1.1 4.3, 4.4), which no
client library that we know does: paho-mqtt forgets at its second try to connect that it has had a
PUBREC, and publishes again what the broker has released. It shares nothing with headrace's codecs.
"""

import socket
import struct
import threading
from contextlib import suppress

from rawclient import varint

PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK = 0x30, 0x40, 0x50, 0x62, 0x70, 0x90
NAMES = {0x40: "PUBACK", 0x50: "PUBREC", 0x60: "PUBREL", 0x70: "PUBCOMP", 0x20: "CONNACK"}
IDS = 0xFFFF


class Device:
    """Reads on a thread of its own; whoever waits looks at its attributes.

    Attributes:
        taken: payloads in the order in which they came, at QoS 2 once each by packet id.
        sent: publishes whose exchange is not over, by packet id, in their order.
        record: a line for each packet of all connections.
    """

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self.taken: list[str] = []
        self.sent: dict[int, tuple[int, str, str]] = {}
        self.record: list[str] = []
        self.is_subscribed = False
        self._released: set[int] = set()  # of `sent`: PUBREC has come
        self._unreleased: set[int] = set()  # packet ids at QoS 2 that it has taken
        self._last_id = 0
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._reader: threading.Thread | None = None

    def connect(self, port: int) -> None:
        """Goes on with the session: what is owed is sent again, in its order."""
        self.close()
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        name = self.client_id.encode()
        body = b"\x00\x04MQTT\x04\x00\x00\x00" + struct.pack(">H", len(name)) + name
        self._send(0x10, body, "CONNECT")
        connack = self._socket.recv(4, socket.MSG_WAITALL)
        assert connack[:2] + connack[3:] == b"\x20\x02\x00", connack
        self.record.append(f"< CONNACK present {connack[2]}")
        assert connack[2] or not self.is_subscribed, "its session is there"
        with self._lock:
            for packet_id in self.sent:
                self._publish(packet_id, again=True)
        self._reader = threading.Thread(target=self._read, args=[self._socket], daemon=True)
        self._reader.start()

    def close(self) -> None:
        """Without a good-bye."""
        if self._socket is not None and self._reader is not None:
            self._reader.join(60)
            assert not self._reader.is_alive(), "the node has ended its connections"
            self._socket.close()
            self._socket = self._reader = None

    def hang_up(self) -> None:
        """Ends the connection from this side."""
        if self._socket is not None:
            with suppress(OSError):  # the node was first
                self._socket.shutdown(socket.SHUT_RDWR)
        self.close()

    def subscribe(self, topic_filter: str) -> None:
        """At QoS 2; SUBACK sets `is_subscribed`."""
        name = topic_filter.encode()
        self._send(0x82, b"\x00\x01" + struct.pack(">H", len(name)) + name + b"\x02", "SUBSCRIBE")

    def publish(self, qos: int, topic: str, payload: str) -> None:
        """Takes a place in `sent` until the exchange is over."""
        with self._lock:
            self._last_id = self._last_id % IDS + 1
            assert self._last_id not in self.sent
            self.sent[self._last_id] = qos, topic, payload
            self._publish(self._last_id, again=False)

    def of(self, payload: str) -> list[str]:
        """What the record says of the exchanges of a payload, and of connections."""
        with_id = [line.split()[2] for line in self.record if line.endswith(f" {payload!r}")]
        about = {"CONNECT", "CONNACK", "END"}
        return [
            line
            for line in self.record
            if (said := line.split())[1] in about or (said[2:] and said[2] in with_id)
        ]

    def _publish(self, packet_id: int, *, again: bool) -> None:
        if packet_id in self._released:
            self._ack(PUBREL, packet_id)
            return
        qos, topic, payload = self.sent[packet_id]
        name = topic.encode()
        body = struct.pack(">H", len(name)) + name + struct.pack(">H", packet_id)
        first = PUBLISH | qos << 1 | (8 if again else 0)
        self._send(first, body + payload.encode(), f"PUBLISH {packet_id} {payload!r}")

    def _ack(self, kind: int, packet_id: int) -> None:
        self._send(kind, struct.pack(">H", packet_id), f"{NAMES[kind & 0xF0]} {packet_id}")

    def _send(self, first: int, body: bytes, line: str) -> None:
        assert self._socket is not None
        self.record.append(f"> {line}")
        try:
            self._socket.sendall(bytes([first]) + varint(len(body)) + body)
        except OSError:  # its reader tells
            self.record.append("> lost")

    def _read(self, connection: socket.socket) -> None:
        with connection.makefile("rb") as stream:
            try:
                while (first := stream.read(1)) != b"":
                    self._packet(first[0], self._body(stream))
            except OSError:
                pass
        self.record.append("< END")

    @staticmethod
    def _body(stream) -> bytes:
        size = shift = 0
        while True:
            if not (byte := stream.read(1)):
                raise ConnectionError("the connection ended within a packet")
            (digit,) = byte
            size |= (digit & 0x7F) << shift
            shift += 7
            if digit < 0x80:
                break
        body = stream.read(size)
        if len(body) < size:
            raise ConnectionError("the connection ended within a packet")
        return body

    def _packet(self, first: int, body: bytes) -> None:
        kind = first & 0xF0
        if kind == PUBLISH:
            self._take(first, body)
            return
        (packet_id,) = struct.unpack(">H", body[:2])
        self.record.append(f"< {NAMES.get(kind, 'SUBACK')} {packet_id}")
        with self._lock:
            if kind == SUBACK:
                self.is_subscribed = True
            elif kind == PUBREC:
                self._released.add(packet_id)
                self._ack(PUBREL, packet_id)
            elif kind == PUBREL & 0xF0:
                self._unreleased.discard(packet_id)
                self._ack(PUBCOMP, packet_id)
            else:
                self._released.discard(packet_id)
                self.sent.pop(packet_id, None)

    def _take(self, first: int, body: bytes) -> None:
        end = 2 + struct.unpack(">H", body[:2])[0]
        (packet_id,) = struct.unpack(">H", body[end : end + 2])
        payload = body[end + 2 :].decode()
        self.record.append(f"< PUBLISH {packet_id} {payload!r}")
        with self._lock:
            if first & 0x06 == 0x02:
                self.taken.append(payload)
                self._ack(PUBACK, packet_id)
                return
            if packet_id not in self._unreleased:
                self._unreleased.add(packet_id)
                self.taken.append(payload)
            self._ack(PUBREC, packet_id)
