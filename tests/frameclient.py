"""A client of the frame door by the page alone: nothing of headrace's own code is used."""

import json
import socket
import zlib
from struct import pack, unpack
from typing import NamedTuple

SECONDS = 30
"""How long a test waits for an answer before it fails."""


class Ack(NamedTuple):
    frames: int
    partition: int
    offset: int


class Ending(NamedTuple):
    code: int
    text: str


class Record(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list


class Mark(NamedTuple):
    next_offset: int


def frame(key, value, headers=(), timestamp=1_700_000_000_000, *, magic=1, attributes=0):
    body = pack(">BBq", magic, attributes, timestamp) + field(key) + field(value)
    body += pack(">i", len(headers))
    for name, content in headers:
        body += pack(">h", len(name)) + name + field(content)
    return sealed(body)


def field(content):
    return pack(">i", -1) if content is None else pack(">i", len(content)) + content


def sealed(body):
    return pack(">II", len(body) + 4, zlib.crc32(body)) + body


class FrameConnection:
    """One blocking socket to a node's frame door.

    Attributes:
        answer: the node's line; None where the connection ended without one.
    """

    def __init__(
        self, node, stream="", mode="produce", *, line=None, then=b"", sock=None, **members
    ):
        self.socket = sock or socket.create_connection(("127.0.0.1", node.frame), timeout=SECONDS)
        self.buffer = b""
        if line is None:
            line = json.dumps({"stream": stream, "mode": mode, **members}).encode()
        self.socket.sendall(line + b"\n" + then)
        answer = self.line()
        self.answer = json.loads(answer) if answer else None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def more(self):
        """False at the end."""
        try:
            data = self.socket.recv(1 << 16)
        except ConnectionResetError:
            data = b""
        self.buffer += data
        return bool(data)

    def line(self):
        while b"\n" not in self.buffer:
            if not self.more():
                return b""
        line, _, self.buffer = self.buffer.partition(b"\n")
        return line

    def take(self, size):
        """None at the end of the stream."""
        while len(self.buffer) < size:
            if not self.more():
                assert not self.buffer, "it ended within something"
                return None
        data, self.buffer = self.buffer[:size], self.buffer[size:]
        return data

    def send(self, *frames):
        self.socket.sendall(b"".join(frames))

    def answered(self):
        """The next acknowledgement, or ending; None at the end of the connection."""
        first = self.take(4)
        if first is None:
            return None
        (frames,) = unpack(">I", first)
        if frames:
            return Ack(frames, *unpack(">iq", self.take(12)))
        return self.ending()

    def ending(self):
        code, length = unpack(">iH", self.take(6))
        return Ending(code, self.take(length).decode())

    def acknowledged(self, frames):
        """Reads until so many are acknowledged: `(partition, offset)` of each, in order."""
        places = []
        while len(places) < frames:
            ack = self.answered()
            assert isinstance(ack, Ack), ack
            places += [(ack.partition, ack.offset + number) for number in range(ack.frames)]
        assert len(places) == frames
        return places

    def rest(self):
        """All that is still to come: places, and the ending or None."""
        places = []
        while isinstance(answer := self.answered(), Ack):
            places += [(answer.partition, answer.offset + n) for n in range(answer.frames)]
        assert answer is None or self.answered() is None, "something follows the ending"
        return places, answer

    def next(self):
        """What a consumer is sent: a record, a mark, an ending; None at the end."""
        first = self.take(8)
        if first is None:
            return None
        (offset,) = unpack(">q", first)
        if offset == -1:
            return Mark(*unpack(">q", self.take(8)))
        if offset == -2:
            return self.ending()
        length, crc = unpack(">II", self.take(8))
        body = self.take(length - 4)
        assert zlib.crc32(body) == crc
        return Record(offset, *opened(body))

    def records(self, number):
        """So many records, without the marks between them."""
        found = []
        while len(found) < number:
            each = self.next()
            assert isinstance(each, Record | Mark), each
            found += [each] if isinstance(each, Record) else []
        return found


def opened(body):
    magic, attributes, timestamp = unpack(">BBq", body[:10])
    assert (magic, attributes) == (1, 0)
    key, at = taken(body, 10)
    value, at = taken(body, at)
    (count,) = unpack(">i", body[at : at + 4])
    at, headers = at + 4, []
    for _ in range(count):
        (length,) = unpack(">h", body[at : at + 2])
        name = body[at + 2 : at + 2 + length]
        content, at = taken(body, at + 2 + length)
        headers.append((name, content))
    assert at == len(body)
    return timestamp, key, value, headers


def taken(body, at):
    (length,) = unpack(">i", body[at : at + 4])
    return (None, at + 4) if length == -1 else (body[at + 4 : at + 4 + length], at + 4 + length)
