"""Layers without sockets: however bytes are cut on their way, what arrives is the same."""

import contextlib
import random
import ssl

import pytest

from headrace.adapters.layers import through
from headrace.adapters.proxy import proxied
from headrace.adapters.tls import Certificates, tls
from headrace.adapters.websocket import WebSocketSettings, frame_memory, websocket
from headrace.config import TlsSettings
from headrace.config.readers import Networks
from headrace.model import Address
from rawwebsocket import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, frame

HEADER = b"PROXY TCP4 203.0.113.7 192.0.2.1 4321 8084\r\n"
UPGRADE = (
    b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Protocol: mqtt\r\n\r\n"
)


class Wire:
    """The lower end: what a socket would be (`layers.LowerLink`)."""

    def __init__(self):
        self.sent = b""
        self.refusals = []
        self.source = self.destination = None
        self.has_arrived = self.is_closed = False
        self.host, self.peer, self.identity = "127.0.0.1", "127.0.0.1:1", None
        self.local = Address("127.0.0.1", 8084)

    def write(self, data):
        assert not self.is_closed
        self.sent += data

    def write_all(self, pieces):
        self.write(b"".join(pieces))

    def taken(self):
        sent, self.sent = self.sent, b""
        return sent

    def pause(self):
        """Its far end is the test."""

    resume = pause

    def close(self):
        self.is_closed = True

    def arrived(self):
        self.has_arrived = True

    def refuse(self, reason, text):
        self.refusals.append((reason, text))
        self.close()

    def known_as(self, source, destination):
        self.source, self.destination = source, destination
        return True


class Door:
    """The upper end: remembers pieces, echoes them in upper case."""

    def __init__(self):
        self.pieces = []
        self.link = None
        self.is_closed = False

    def __call__(self, link):
        self.link = link
        return self

    def received(self, data):
        assert type(data) is bytes
        self.pieces.append(data)
        self.link.write(data.upper())

    def ended(self):
        return False

    def writable(self, ready):
        self.is_ready = ready

    def closed(self):
        self.is_closed = True


@pytest.fixture(scope="module")
def certificates(authority):
    certificate, key = authority.issue("server", "localhost")
    return Certificates("mqtt", TlsSettings(tls_certificate=certificate, tls_key=key))


@pytest.fixture(scope="module")
def trusted():
    from pydantic import TypeAdapter  # noqa: PLC0415

    return TypeAdapter(Networks).validate_python("127.0.0.0/8")


def cut(rng, data):
    """`data` in pieces of random sizes: mostly a few bytes, at times many."""
    at = 0
    while at < len(data):
        size = rng.choice([1, 2, 7, 100, 5000, 100_000])
        yield data[at : at + size]
        at += size


def framed(rng, data):
    """`data` in frames: whole, fragmented, empty, with pings between."""
    sent = b""
    for piece in cut(rng, data):
        kind = rng.randrange(4)
        if kind == 0:
            half = len(piece) // 2
            sent += frame(piece[:half], last=False) + frame(b"p", PING)
            sent += frame(piece[half:], CONTINUATION)
        elif kind == 1:
            sent += frame(b"") + frame(piece)
        else:
            sent += frame(piece)
    return sent


def payload_of(frames):
    """What the binary frames of a server hold."""
    payload, at = b"", 0
    while at < len(frames):
        size, at = frames[at + 1], at + 2
        opcode = frames[at - 2] & 0x0F
        if size > 125:
            wide = 2 if size == 126 else 8
            size, at = int.from_bytes(frames[at : at + wide]), at + wide
        payload += frames[at : at + size] if opcode == BINARY else b""
        at += size
    return payload


@pytest.mark.parametrize("seed", range(40))
def test_what_arrives_is_what_was_sent_however_it_was_cut(seed, certificates, authority, trusted):
    rng = random.Random(seed)
    wire, door = Wire(), Door()
    settings = WebSocketSettings("/mqtt", (), 1 << 20)
    top = through([proxied(trusted), tls(certificates), websocket(settings)], door)(wire)

    def deliver(data):
        for piece in cut(rng, data):
            top.received(piece)

    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context(cafile=authority.file)
    client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    to_send = HEADER
    while True:
        with contextlib.suppress(ssl.SSLWantReadError):
            client.do_handshake()
            break
        deliver(to_send + outgoing.read())
        to_send = b""
        incoming.write(wire.taken())

    assert not wire.has_arrived
    client.write(UPGRADE)
    deliver(outgoing.read())
    assert wire.has_arrived
    assert wire.source == Address("203.0.113.7", 4321)

    message = rng.randbytes(rng.choice([1, 1000, 100_000, 500_000])).replace(b"\r\n\r\n", b"")
    sealed = framed(rng, message)
    for at in range(0, len(sealed), 10_000):
        client.write(sealed[at : at + 10_000])
        deliver(outgoing.read())
    assert b"".join(door.pieces) == message

    answers = b""
    incoming.write(wire.taken())
    with contextlib.suppress(ssl.SSLWantReadError):
        while piece := client.read(65536):
            answers += piece
    assert payload_of(answers.partition(b"\r\n\r\n")[2]) == message.upper()

    door.link.close()
    assert wire.is_closed
    door.link.write(b"too late")
    top.closed()
    assert door.is_closed
    assert not wire.refusals


def test_one_piece_in_is_one_piece_out():
    """A door that pauses its link must not be given more of the same read."""
    wire, door = Wire(), Door()
    top = through([websocket(WebSocketSettings("/mqtt", (), 1 << 20))], door)(wire)
    top.received(UPGRADE)
    top.received(b"".join(frame(bytes([number])) for number in range(100)))
    assert door.pieces == [bytes(range(100))]


def spoilt(rng, data):
    """`data` with a few bytes changed, left out or doubled."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(changed))
        changed[at : at + rng.randrange(3)] = rng.randbytes(rng.randrange(3))
    return bytes(changed)


def test_frames_that_are_not_whole_are_bounded_for_all_connections_together():
    settings = WebSocketSettings("/mqtt", (), 1 << 20, memory=frame_memory(150_000))
    wires, tops, doors = [], [], []
    for _ in range(3):
        wire, door = Wire(), Door()
        top = through([websocket(settings)], door)(wire)
        top.received(UPGRADE)
        wires.append(wire)
        tops.append(top)
        doors.append(door)
    whole = frame(b"x" * 100_000, BINARY)
    tops[0].received(whole[:80_000])
    tops[1].received(whole[:30_000])  # the share that everybody has
    tops[2].received(whole[:70_000])
    assert not any(wire.is_closed for wire in wires)
    tops[2].received(whole[70_000:71_000])
    assert [wire.is_closed for wire in wires] == [True, False, False]
    assert [reason for reason, _ in wires[0].refusals] == ["websocket_memory"]
    assert wires[0].sent.partition(b"\r\n\r\n")[2][2:4] == b"\x03\xf5", "Try Again Later"
    tops[0].closed()
    tops[1].received(whole[30_000:] + whole[:70_000])
    assert settings.memory.total_bytes == 141_000 - 2 * 14, "without heads"
    tops[2].received(whole[71_000:] + whole[:90_000])  # another frame, which is younger
    assert [wire.is_closed for wire in wires] == [True, True, False]
    tops[2].received(whole[90_000:])
    assert [len(door.pieces) for door in doors] == [0, 1, 2]
    tops[1].closed()
    assert settings.memory.total_bytes == 0


def test_a_frame_does_not_age_while_the_node_reads_no_further():
    settings = WebSocketSettings("/mqtt", (), 1 << 20, memory=frame_memory(250_000))
    wires, tops, doors = [Wire() for _ in range(7)], [], []
    whole = frame(b"x" * 100_000, BINARY)
    for wire in wires:
        doors.append(Door())
        tops.append(through([websocket(settings)], doors[-1])(wire))
        tops[-1].received(UPGRADE)

    def closed():
        return [number for number, wire in enumerate(wires) if wire.is_closed]

    def begin(number):
        tops[number].received(whole[:80_000])
        return closed()

    begin(0)
    doors[0].link.pause()
    begin(1)
    begin(2)
    assert begin(3) == [1], "of those who could go on the oldest"
    doors[0].link.resume()
    assert begin(4) == [1, 2], "who is read on begins anew"
    tops[3].writable(False)  # noqa: FBT003 - the port's one flag
    doors[3].link.pause()
    assert begin(5) == [1, 2, 3], "who reads nothing has had itself paused"
    doors[0].link.pause()
    tops[0].writable(False)  # noqa: FBT003
    assert begin(6) == [1, 2, 3, 4], "and begins anew where it was paused before"
    tops[0].writable(True)  # noqa: FBT003
    doors[5].link.pause()
    doors[6].link.pause()
    assert closed() == [1, 2, 3, 4, 5], "paused ones have half"
    doors[6].link.resume()
    for number in (0, 6):
        tops[number].received(whole[80_000:])
        assert len(doors[number].pieces) == 1
    for top in tops:
        top.closed()
    assert settings.memory.total_bytes == 0


@pytest.mark.parametrize("seed", range(20))
def test_spoilt_frames_and_requests_end_the_connection_or_pass(seed):
    rng = random.Random(seed)
    for _ in range(100):
        wire, door = Wire(), Door()
        top = through([websocket(WebSocketSettings("/mqtt", (), 1 << 20))], door)(wire)
        kinds = [BINARY, CONTINUATION, PING, TEXT, CLOSE, PONG]
        frames = b"".join(
            frame(rng.randbytes(rng.randrange(200)), rng.choice(kinds), last=rng.random() < 0.8)
            for _ in range(5)
        )
        whole = UPGRADE if rng.random() < 0.8 else spoilt(rng, UPGRADE)
        for piece in [whole, *cut(rng, spoilt(rng, frames))]:
            if not wire.is_closed:  # as a socket would
                top.received(piece)
        top.closed()
        assert door.link is None or door.is_closed


def test_spoilt_records_end_the_connection(certificates, authority):
    rng = random.Random(3)
    context = ssl.create_default_context(cafile=authority.file)
    for _ in range(60):
        wire, door = Wire(), Door()
        top = through([tls(certificates)], door)(wire)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
        spoil_at, flight = rng.randrange(3), 0
        while not wire.is_closed and flight < 3:
            try:
                client.do_handshake()
                client.write(b"a message")
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError:
                break
            records = outgoing.read()
            top.received(spoilt(rng, records) if records and flight == spoil_at else records)
            incoming.write(wire.taken())
            flight += 1
        top.closed()
        assert b"".join(door.pieces) in {b"", b"a message", b"a message" * 2}
        assert door.link is None or door.is_closed
