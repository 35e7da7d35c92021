"""Clients of a few lines for tests that must know each byte: MQTT 3.1.1 and a Kafka producer.

They share nothing with headrace's own codecs, so a fault there cannot hide here.
"""

import socket
import struct
from typing import Self

from headrace.native import build_batch


class RawConnection:
    """A blocking socket that reads exactly."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.local_port: int = self.socket.getsockname()[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            chunk = self.socket.recv(size - len(data))
            if not chunk:
                raise ConnectionError(f"closed after {len(data)} of {size} bytes")
            data += chunk
        return bytes(data)


class RawMqtt(RawConnection):
    """MQTT 3.1.1 with a clean session, and maybe a will: topic and payload, at QoS 1."""

    def __init__(self, port: int, client_id: str, will: tuple[str, bytes] | None = None) -> None:
        super().__init__(port)
        flags = 0x02 if will is None else 0x0E
        body = b"\x00\x04MQTT\x04" + bytes([flags]) + b"\x00\x00"
        for part in (client_id.encode(), *([] if will is None else [will[0].encode(), will[1]])):
            body += struct.pack(">H", len(part)) + part
        try:
            self.socket.sendall(b"\x10" + varint(len(body)) + body)
            assert self.read(4) == b"\x20\x02\x00\x00"
        except BaseException:  # nobody else has it to close it
            self.socket.close()
            raise

    def publish(self, topic: str, payload: bytes, packet_id: int, *, retain: bool = False) -> None:
        """Sends a PUBLISH at QoS 1, or at QoS 0 with packet id 0."""
        name = topic.encode()
        body = struct.pack(">H", len(name)) + name
        body += struct.pack(">H", packet_id) if packet_id else b""
        body += payload
        first = (0x32 if packet_id else 0x30) | retain
        self.socket.sendall(bytes([first]) + varint(len(body)) + body)

    def disconnect(self) -> None:
        """Says good-bye, and waits for the end of the connection."""
        self.socket.sendall(b"\xe0\x00")
        assert self.socket.recv(1) == b""

    def subscribe(self, topic_filter: str) -> None:
        """Subscribes at QoS 0 and reads SUBACK."""
        name = topic_filter.encode()
        body = b"\x00\x01" + struct.pack(">H", len(name)) + name + b"\x00"
        self.socket.sendall(b"\x82" + varint(len(body)) + body)
        assert self.read(5) == b"\x90\x03\x00\x01\x00"

    def message(self) -> tuple[str, bytes]:
        """Reads a PUBLISH at QoS 0: topic and payload."""
        assert self.read(1)[0] & 0xF6 == 0x30
        size, shift = 0, 0
        while True:
            digit = self.read(1)[0]
            size |= (digit & 0x7F) << shift
            shift += 7
            if digit < 0x80:
                break
        body = self.read(size)
        end = 2 + struct.unpack(">H", body[:2])[0]
        return body[2:end].decode(), body[end:]

    def puback(self) -> int:
        """Reads a PUBACK and gives its packet id."""
        packet = self.read(4)
        assert packet[:2] == b"\x40\x02", packet
        return struct.unpack(">H", packet[2:])[0]


class RawProducer(RawConnection):
    """Kafka Produce version 3, acks all, one record a request."""

    def send(self, topic: str, partition: int, value: bytes, correlation_id: int) -> int:
        """Produces and gives the base offset."""
        name = topic.encode()
        batch = build_batch([(None, value, [], 1_700_000_000_000)])
        header = struct.pack(">hhih", 0, 3, correlation_id, 3) + b"raw"
        body = struct.pack(">hhii", -1, -1, 30_000, 1) + struct.pack(">h", len(name)) + name
        body += struct.pack(">iii", 1, partition, len(batch)) + batch
        self.socket.sendall(struct.pack(">i", len(header + body)) + header + body)
        response = self.read(struct.unpack(">i", self.read(4))[0])
        assert struct.unpack(">i", response[:4])[0] == correlation_id
        after_name = 4 + 4 + 2 + len(name)
        _, index, error, offset = struct.unpack(">iihq", response[after_name : after_name + 18])
        assert (index, error) == (partition, 0), response
        return offset


def varint(number: int) -> bytes:
    out = bytearray()
    while True:
        number, digit = divmod(number, 128)
        out.append(digit | (0x80 if number else 0))
        if not number:
            return bytes(out)
