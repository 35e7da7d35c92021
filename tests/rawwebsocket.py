"""A WebSocket client of a few lines, for tests that must know each byte of RFC 6455."""

import base64
import hashlib
import os
import struct
from typing import NamedTuple

from rawclient import RawConnection

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
MASK = b"\x37\xfa\x21\x3d"
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Frame(NamedTuple):
    opcode: int
    payload: bytes


def frame(
    payload: bytes, opcode: int = BINARY, *, last: bool = True, masked: bool = True, bits: int = 0
) -> bytes:
    """One frame; `bits` are the reserved ones."""
    size, mask_bit = len(payload), 0x80 if masked else 0
    head = bytes([last << 7 | bits << 4 | opcode])
    if size < 126:
        head += bytes([mask_bit | size])
    elif size < 65_536:
        head += bytes([mask_bit | 126]) + struct.pack(">H", size)
    else:
        head += bytes([mask_bit | 127]) + struct.pack(">Q", size)
    if not masked:
        return head + payload
    stream = MASK * (size // 4 + 1)
    mixed = int.from_bytes(payload) ^ int.from_bytes(stream[:size])
    return head + MASK + mixed.to_bytes(size)


class RawWebSocket(RawConnection):
    """Sends what it is told; reads answers and frames."""

    def request(self, path: str = "/mqtt", method: str = "GET", **headers: str | None) -> None:
        """Sends a request to upgrade; a header that is None is left out."""
        self.key = base64.b64encode(os.urandom(16)).decode()
        sent = {
            "Host": f"127.0.0.1:{self.socket.getpeername()[1]}",
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Key": self.key,
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Protocol": "mqtt",
        } | {name.replace("_", "-"): value for name, value in headers.items()}
        lines = [f"{method} {path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in sent.items() if value is not None]
        self.socket.sendall("\r\n".join([*lines, "", ""]).encode())

    def answer(self) -> tuple[int, dict[str, str]]:
        """Status and headers, by lower-case name."""
        text = bytearray()
        while not text.endswith(b"\r\n\r\n"):
            text += self.read(1)
        status, *lines = text.decode().split("\r\n")
        pairs = (line.partition(": ") for line in lines if line)
        return int(status.split()[1]), {name.lower(): value for name, _, value in pairs}

    def upgrade(self, **headers: str | None) -> dict[str, str]:
        """A whole handshake; the headers of its answer."""
        self.request(**headers)
        status, answered = self.answer()
        assert status == 101, answered
        digest = hashlib.sha1(self.key.encode() + GUID).digest()
        assert answered["sec-websocket-accept"] == base64.b64encode(digest).decode()
        return answered

    def send(self, payload: bytes, opcode: int = BINARY, **parts: bool | int) -> None:
        self.socket.sendall(frame(payload, opcode, **parts))

    def receive(self) -> Frame:
        """The next frame of the server, which is whole and not masked."""
        first, size = self.read(2)
        assert first & 0xF0 == 0x80, "one frame, no extension"
        assert size < 128, "a server does not mask (RFC 6455 5.1)"
        if size == 126:
            (size,) = struct.unpack(">H", self.read(2))
        elif size == 127:
            (size,) = struct.unpack(">Q", self.read(8))
        return Frame(first & 0x0F, self.read(size))

    def ended(self) -> bool:
        """Whether nothing but the end of the stream follows."""
        return self.socket.recv(1) == b""
