"""eclipse-mosquitto/mosquitto, `test/broker/data`: byte sequences and what must come back.

Read leniently where the specification leaves a choice: of a CONNACK only the flags and the reason
code count (its properties are the broker's own), a broker may close without a DISCONNECT before
it or with a CONNACK that refuses, a DISCONNECT may say another reason, and a PUBLISH at QoS 2 may
be passed on before it is answered (4.3.3). Everything else is compared byte for byte.
"""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from broker import Broker
from outcome import Outcome

SECONDS_MAX = 2.0
CONNACK, PUBLISH, DISCONNECT = 0x20, 0x30, 0xE0
ANSWERS = (0x50, 0x70)  # to the two packets of a client that publishes at QoS 2
PINGREQ, PINGRESP = b"\xc0\x00", b"\xd0\x00"


class MismatchError(Exception):
    """The broker did something else."""


def sequences(copy: Path, broker: Broker) -> list[Outcome]:
    """Every sequence that is not disabled."""
    outcomes = []
    for file in sorted((copy / "test/broker/data").glob("*.json")):
        for group in json.loads(file.read_text(encoding="utf-8")):
            if group.get("disable"):
                continue
            for test in group["tests"]:
                name = f"{file.stem}: {group['group']}: {test['name']}"
                outcomes.append(_one(name, {"ver": 4, **group, **test}, broker))
    return outcomes


def _one(name: str, test: dict[str, Any], broker: Broker) -> Outcome:
    try:
        with Client(broker) as client:
            if test.get("connect", True):
                client.connect(test["name"], test["ver"])
            for message in test["msgs"]:
                client.step(message)
            client.finish(ends=test.get("expect_disconnect", True))
    except (MismatchError, OSError) as error:
        return Outcome(name, passed=False, detail=str(error) or type(error).__name__)
    return Outcome(name, passed=True)


class Client:
    """A socket that sends and expects bytes."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._socket = socket.create_connection((broker.host, broker.port), timeout=SECONDS_MAX)
        self._closed = False
        self._early: list[bytes] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def connect(self, client_id: str, version: int) -> None:
        """CONNECT with a clean start, as most sequences begin."""
        self._send(connect_packet(client_id, version))
        packet = self._packet()
        if packet is None or packet[0] != CONNACK or packet[3] != 0:
            raise MismatchError(f"CONNECT answered by {_hex(packet)}")

    def step(self, message: dict[str, Any]) -> None:
        """One line of a sequence."""
        match message["type"]:
            case "send":
                self._send(parse(message["payload"]))
            case "recv":
                self._expect(parse(message["payload"]))
            case "publish" | "external_publish":
                with Client(self._broker) as helper:
                    helper.connect("helper", 4)
                    helper.publish(message)
            case other:
                raise MismatchError(f"the sequence has a step {other!r} unknown to this runner")

    def publish(self, message: dict[str, Any]) -> None:
        """Publishes at the quality of service of a sequence's step, to the end."""
        topic, qos = message["topic"].encode(), message["qos"]
        first = 0x30 | qos << 1 | bool(message.get("retain"))
        packet_id = b"\0\x01" if qos else b""
        body = len(topic).to_bytes(2, "big") + topic + packet_id + message["payload"].encode()
        self._send(bytes([first]) + length(len(body)) + body)
        if qos == 1:
            self._expect(b"\x40\x02\0\x01")
        if qos == 2:
            self._expect(b"\x50\x02\0\x01")
            self._send(b"\x62\x02\0\x01")
            self._expect(b"\x70\x02\0\x01")

    def finish(self, *, ends: bool) -> None:
        """The connection must have ended, or still answer; nothing else may have come."""
        if self._early:
            raise MismatchError(f"not expected: {_hex(self._early[0])}")
        if not ends:
            self._send(PINGREQ)
            self._expect(PINGRESP)
            return
        while (packet := self._packet()) is not None:
            refused = packet[0] == CONNACK and packet[3] != 0
            if packet[0] != DISCONNECT and not refused:
                raise MismatchError(f"still connected: {_hex(packet)}")

    def _send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            self._closed = True  # a sequence may go on after the broker has had enough

    def _expect(self, expected: bytes) -> None:
        for wanted in packets(expected):
            if wanted in self._early:
                self._early.remove(wanted)
                continue
            packet = self._packet()
            while packet is not None and wanted[0] in ANSWERS and packet[0] & 0xF0 == PUBLISH:
                self._early.append(packet)
                packet = self._packet()
            if not _is_as_good(packet, wanted):
                raise MismatchError(f"expected {_hex(wanted)}, got {_hex(packet)}")

    def _packet(self) -> bytes | None:
        """The next packet; None where the connection has ended."""
        if self._closed:
            return None
        head = self._bytes(1)
        remaining, shift = 0, 0
        while head:
            byte = self._bytes(1)
            if not byte:
                break
            head += byte
            remaining |= (byte[0] & 0x7F) << shift
            shift += 7
            if byte[0] < 0x80:
                return head + self._bytes(remaining)
        self._closed = True
        return None

    def _bytes(self, count: int) -> bytes:
        data = b""
        try:
            while len(data) < count and (more := self._socket.recv(count - len(data))):
                data += more
        except ConnectionResetError:
            return b""
        except TimeoutError:
            raise MismatchError(f"no answer within {SECONDS_MAX} s") from None
        return data


def _is_as_good(packet: bytes | None, wanted: bytes) -> bool:
    if packet == wanted:
        return True
    if wanted[0] == DISCONNECT:
        return packet is None or packet[0] == DISCONNECT
    if packet is None or packet[0] != wanted[0]:
        return packet is None and wanted[0] == CONNACK and wanted[-1] != 0
    return packet[0] == CONNACK and _acknowledgement(packet) == _acknowledgement(wanted)


def _acknowledgement(connack: bytes) -> tuple[int, bool]:
    """Session Present, and whether the client was let in."""
    return connack[2], connack[3] == 0


def _hex(packet: bytes | None) -> str:
    return "the end of the connection" if packet is None else packet.hex(" ")


def packets(data: bytes) -> Iterator[bytes]:
    """Splits what a sequence expects in one step."""
    while data:
        remaining, shift, at = 0, 0, 1
        while True:
            remaining |= (data[at] & 0x7F) << shift
            shift, at = shift + 7, at + 1
            if data[at - 1] < 0x80:
                break
        yield data[: at + remaining]
        data = data[at + remaining :]


def length(value: int) -> bytes:
    """A variable byte integer, also one that no packet may hold."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def connect_packet(client_id: str, version: int) -> bytes:
    """CONNECT with a clean start and a keep-alive of 60 s."""
    name = b"\0\x06MQIsdp" if version == 3 else b"\0\x04MQTT"
    properties = b"\0" if version == 5 else b""
    identifier = client_id.encode()
    body = name + bytes([version, 2, 0, 60]) + properties
    body += len(identifier).to_bytes(2, "big") + identifier
    return b"\x10" + length(len(body)) + body


def parse(text: str) -> bytes:
    """The bytes that a sequence writes: hex, and numbers and strings marked by their first letter.

    `i` is a number of 8 bits, `H`, `k`, `m` and `s` of 16, `L` of 32, `v` and `r` of variable
    length; a string stands in single quotes.
    """
    widths = {"i": 1, "H": 2, "k": 2, "m": 2, "s": 2, "L": 4}
    out = bytearray()
    rest = text.strip()
    while rest:
        if rest[0] == "'":
            string, _, rest = rest[1:].partition("'")
            out += string.encode()
        else:
            token, _, rest = rest.partition(" ")
            if token[0] in widths:
                out += int(token[1:]).to_bytes(widths[token[0]], "big")
            elif token[0] in "vr":
                out += length(int(token[1:]))
            else:
                out += bytes.fromhex(token)
        rest = rest.lstrip()
    return bytes(out)
