"""SCRAM over AUTH (MQTT 5.0 4.12), byte by byte: no client library at hand speaks it."""

import struct

import pytest

from conftest import wait_for
from rawclient import RawConnection
from test_access import ADMIN, add, basic
from test_access_machines import Client as Scram

pytestmark = pytest.mark.slow

CONNACK, DISCONNECT, AUTH, PINGREQ, PINGRESP = 0x20, 0xE0, 0xF0, b"\xc0\x00", b"\xd0\x00"
AGAIN, CONTINUE, SUCCESS, NOT_AUTHORIZED = 0x19, 0x18, 0x00, 0x87
METHOD, DATA = 0x15, 0x16


def field(data: bytes) -> bytes:
    return struct.pack(">H", len(data)) + data


class Raw5(RawConnection):
    """MQTT 5.0 with enhanced authentication."""

    def __init__(self, port: int, method: str, data: bytes | None, client_id: bytes = b"") -> None:
        super().__init__(port)
        self.method = method
        properties = self._properties(data)
        body = b"\0\x04MQTT\x05\x02\0\0" + properties + field(client_id)
        self._send(0x10, body)

    def _properties(self, data: bytes | None) -> bytes:
        properties = bytes([METHOD]) + field(self.method.encode())
        if data is not None:
            properties += bytes([DATA]) + field(data)
        return _varint(len(properties)) + properties

    def _send(self, first: int, body: bytes) -> None:
        self.socket.sendall(bytes([first]) + _varint(len(body)) + body)

    def auth(self, reason: int, data: bytes) -> None:
        self._send(AUTH, bytes([reason]) + self._properties(data))

    def hears(self) -> tuple[int, int, bytes]:
        """Packet, reason code, Authentication Data."""
        first, length, shift = self.read(1)[0], 0, 0
        while True:
            byte = self.read(1)[0]
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        body = self.read(length)
        body = body[1:] if first == CONNACK else body
        marked = bytes([METHOD]) + field(self.method.encode()) + bytes([DATA])
        at = body.find(marked)
        if at < 0:
            return first, body[0] if body else 0, b""
        at += len(marked)
        (size,) = struct.unpack_from(">H", body, at)
        return first, body[0], body[at + 2 : at + 2 + size]


def _varint(number: int) -> bytes:
    out = bytearray()
    while True:
        number, digit = divmod(number, 128)
        out.append(digit | (0x80 if number else 0))
        if not number:
            return bytes(out)


@pytest.fixture
def guarded(start_node):
    node = start_node()
    assert add(node, ADMIN, "admin")[0] == 201
    assert add(node, "bob:cart")[0] == 201
    return node


def prove(raw: Raw5, client: Scram, packet: int) -> tuple[int, int]:
    """Answers the challenge; what came of it."""
    kind, code, challenge = raw.hears()
    assert (kind, code) == (AUTH, CONTINUE)
    raw.auth(CONTINUE, client.final(challenge))
    kind, code, proof = raw.hears()
    if code == SUCCESS:
        assert kind == packet
        assert proof == client.expects, "the node knows the password, too"
    return kind, code


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_mqtt_4_12_a_password_is_proved_and_not_sent(guarded, mechanism):
    client = Scram("ann", b"horse", mechanism)
    with Raw5(guarded.mqtt, mechanism, client.first()) as raw:
        assert prove(raw, client, CONNACK) == (CONNACK, SUCCESS)
        raw.socket.sendall(PINGREQ)
        assert raw.read(2) == PINGRESP
    for name, password in (("ann", b"cart"), ("eve", b"horse")):
        client = Scram(name, password, mechanism)
        with Raw5(guarded.mqtt, mechanism, client.first()) as raw:
            assert prove(raw, client, CONNACK) == (CONNACK, NOT_AUTHORIZED)


def test_mqtt_4_12_1_a_client_authenticates_again_as_the_same_user(guarded):
    client = Scram("ann", b"horse", "SCRAM-SHA-256")
    with Raw5(guarded.mqtt, "SCRAM-SHA-256", client.first()) as raw:
        assert prove(raw, client, CONNACK) == (CONNACK, SUCCESS)
        for _ in range(2):
            client = Scram("ann", b"horse", "SCRAM-SHA-256")
            raw.auth(AGAIN, client.first())
            assert prove(raw, client, AUTH) == (AUTH, SUCCESS)
        client = Scram("bob", b"cart", "SCRAM-SHA-256")
        raw.auth(AGAIN, client.first())
        assert raw.hears()[:2] == (DISCONNECT, NOT_AUTHORIZED)


@pytest.mark.parametrize(
    ("method", "data", "code"),
    [
        ("SCRAM-SHA-1", b"n,,n=ann,r=x", 0x8C),
        ("GS2-KRB5", b"", 0x8C),
        ("SCRAM-SHA-256", None, NOT_AUTHORIZED),
        ("SCRAM-SHA-256", b"p=tls-unique,,n=ann,r=x", NOT_AUTHORIZED),
        ("SCRAM-SHA-256", b"\xff", NOT_AUTHORIZED),
    ],
)
def test_what_is_no_beginning_is_refused(guarded, method, data, code):
    with Raw5(guarded.mqtt, method, data) as raw:
        assert raw.hears()[:2] == (CONNACK, code)


def test_an_exchange_goes_with_its_connection(guarded):
    client = Scram("ann", b"horse", "SCRAM-SHA-256")
    with Raw5(guarded.mqtt, "SCRAM-SHA-256", client.first()) as raw:
        assert raw.hears()[:2] == (AUTH, CONTINUE)

    def connections() -> float:
        text = guarded.call("GET", "/metrics", **basic(ADMIN))[1]
        return float(text.partition("\nheadrace_mqtt_connections ")[2].partition("\n")[0])

    wait_for(lambda: connections() == 0)
