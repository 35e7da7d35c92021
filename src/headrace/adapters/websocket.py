"""WebSocket as a layer: MQTT's bytes in binary frames (MQTT 5.0 6, RFC 6455).

The protocol is the machine of `websockets`, which does no I/O; here it gets its bytes. Where
packets begin and frames end has nothing to do with each other (6.0.0-2), so what one read brings
goes up as one piece. Invariants: compression is never agreed on, so that no small frame becomes a
large one; a client that pings and does not read makes nothing grow; frames that are not whole are
bounded for one connection and for all of them, where the oldest gives way.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from websockets.datastructures import MultipleValuesError
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import Event, State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from headrace import limits
from headrace.adapters.layers import Layer
from headrace.kernel import access
from headrace.kernel.holdings import PausableBeginnings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.adapters.layers import Inner, LowerLink, MakeLayer

SUBPROTOCOLS: Final = [Subprotocol("mqtt"), Subprotocol("mqttv3.1")]
"""MQTT 5.0 6.0.0-3 and -4; the second is what MQTT 3.1 clients say."""

_REASONS: Final[dict[int, str]] = {
    CloseCode.UNSUPPORTED_DATA: "websocket_text",
    CloseCode.MESSAGE_TOO_BIG: "websocket_too_big",
    CloseCode.TRY_AGAIN_LATER: "websocket_memory",
}
"""Why a connection ended, as metrics have it."""

_PONG: Final = 0x80 | Opcode.PONG


def _bare(status: str) -> bytes:
    return f"HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n".encode()


_NO_REQUEST: Final = _bare("400 Bad Request")
_LONG_REQUEST: Final = _bare("431 Request Header Fields Too Large")

_QUIET: Final = logging.getLogger("websockets.server")
_QUIET.setLevel(logging.ERROR)  # a line for each connection is not what anyone wants


def frame_memory(bytes_max: int = limits.BUFFERED_BYTES_MAX) -> PausableBeginnings[WebSocketLayer]:
    """What all connections together hold of frames that are not whole; empty."""
    return PausableBeginnings(bytes_max, limits.FRAME_SHARE_BYTES)


@dataclass(frozen=True, slots=True)
class WebSocketSettings:
    """What holds for the upgrade.

    Attributes:
        path: that clients must name.
        origins: of web pages that may connect, beside those of this host; `*` for all.
        frame_bytes_max: the largest frame.
        is_open: whether nobody needs a password; pages of other names are then held off.
        memory: for frames that are not whole.
    """

    path: str
    origins: Sequence[str]
    frame_bytes_max: int
    is_open: Callable[[], bool] = lambda: True
    memory: PausableBeginnings[WebSocketLayer] = field(default_factory=frame_memory)


class WebSocketLayer(Layer):
    """One connection's WebSocket."""

    __slots__ = ("_is_paused", "_protocol", "_ready", "_request_bytes", "_settings")

    def __init__(self, below: LowerLink, inner: Inner, settings: WebSocketSettings) -> None:
        super().__init__(below, inner)
        self._settings = settings
        self._request_bytes = 0
        self._ready = True
        self._is_paused = False  # by the node, and not because the client does not read
        self._protocol = ServerProtocol(
            subprotocols=SUBPROTOCOLS, max_size=(None, settings.frame_bytes_max), logger=_QUIET
        )

    def received(self, data: bytes) -> None:
        """The request to upgrade, or frames."""
        protocol = self._protocol
        if self._above is None:
            self._request(data)
            return
        protocol.receive_data(data)
        frames = protocol.events_received()
        payload = self._payload(frames)
        self._flush()
        if payload:
            self._above.received(payload)
        if protocol.close_expected():
            self._end()
        else:
            self._hold(goes_on=not frames)

    def _request(self, data: bytes) -> None:
        """The request to upgrade, or a part of it."""
        if not self._request_bytes and not data[:1].isupper():  # no method; its line may not end
            self._decline(_NO_REQUEST, f"no HTTP request begins with {data[:12]!r}")
            return
        self._request_bytes += len(data)
        if self._request_bytes > limits.UPGRADE_BYTES_MAX:
            self._decline(_LONG_REQUEST, "the request is too long")
            return
        self._protocol.receive_data(data)
        self._upgrade()

    def _hold(self, *, goes_on: bool) -> None:
        """Counts what waits for the rest of its frame, with which the last one may go on."""
        memory = self._settings.memory
        if not goes_on:
            memory.forget(self)
        held_bytes = len(self._protocol.reader.buffer)
        for oldest in memory.hold(self, held_bytes, is_paused=self._is_paused):
            oldest.end_part()

    def end_part(self) -> None:
        """Ends it: what it holds of a frame is needed for others."""
        why = "too many frames are not whole, and this one is the oldest"
        self._protocol.fail(CloseCode.TRY_AGAIN_LATER, why)
        self._flush()
        self._end()

    def pause(self) -> None:
        """Reads no further."""
        super().pause()
        self._wait(for_node=self._ready)

    def resume(self) -> None:
        """Reads on."""
        super().resume()
        self._wait(for_node=False)

    def _wait(self, *, for_node: bool) -> None:
        """Who is to go on with the frame at hand is the node now, or the client."""
        if for_node != self._is_paused:
            self._is_paused = for_node
            self._hold(goes_on=True)

    def closed(self) -> None:
        """The link is gone."""
        self._settings.memory.forget(self)
        super().closed()

    def _payload(self, frames: Sequence[Event]) -> bytes:
        """What frames brought, as one piece."""
        pieces: list[bytes | bytearray | memoryview] = []
        for frame in frames:
            assert isinstance(frame, Frame), "the request was the first event"
            if frame.opcode is Opcode.TEXT:
                self._protocol.fail(CloseCode.UNSUPPORTED_DATA, "MQTT comes in binary frames")
                break
            if frame.opcode in {Opcode.BINARY, Opcode.CONT}:
                pieces.append(frame.data)
        only = pieces[0] if len(pieces) == 1 else None
        return only if isinstance(only, bytes) else b"".join(pieces)

    def _end(self) -> None:
        protocol = self._protocol
        if protocol.close_rcvd is None and protocol.close_sent is not None:
            reason = _REASONS.get(int(protocol.close_sent.code), "websocket_protocol")
            self._below.refuse(reason, f"WebSocket failed: {protocol.close_sent.reason}")
        self._below.close()

    def _upgrade(self) -> None:
        protocol = self._protocol
        events = protocol.events_received()
        if not events:
            if protocol.handshake_exc is not None:  # else there is more to come
                answer = b"".join(protocol.data_to_send()) or _NO_REQUEST
                self._decline(answer, str(protocol.handshake_exc))
            return
        request = events[0]
        assert isinstance(request, Request), "frames come after the request"
        refusal = self._refusal(request)
        if len(events) > 1 or protocol.eof_sent:
            refusal = HTTPStatus.BAD_REQUEST, "frames came before the answer to the request\n"
        response = protocol.accept(request) if refusal is None else protocol.reject(*refusal)
        if response.status_code == HTTPStatus.SWITCHING_PROTOCOLS:
            protocol.send_response(response)
            self._flush()
            self._pass()
        else:
            said = response.body.decode().partition("\n")[0]
            self._decline(response.serialize(), f"{response.status_code}: {said}")

    def _refusal(self, request: Request) -> tuple[HTTPStatus, str] | None:
        """What stands against a request beside what makes it none for WebSocket."""
        if request.path.partition("?")[0] != self._settings.path:
            return HTTPStatus.NOT_FOUND, f"MQTT is at {self._settings.path}\n"
        try:
            host, origin = request.headers.get("Host", ""), request.headers.get("Origin")
        except MultipleValuesError as error:
            return HTTPStatus.BAD_REQUEST, f"more than one header: {error}\n"
        settings = self._settings
        refused = access.upgrade(host, origin, settings.origins, is_open=settings.is_open())
        return None if refused is None else (HTTPStatus.FORBIDDEN, f"{refused}\n")

    def _decline(self, answer: bytes, why: str) -> None:
        self._below.write(answer)
        self._below.refuse("websocket_upgrade", f"no upgrade to WebSocket: {why}")

    def writable(self, ready: bool) -> None:
        """The transport is full, or has room again."""
        self._ready = ready
        if not ready:
            self._wait(for_node=False)
        super().writable(ready)

    def write(self, data: bytes) -> None:
        """Queues bytes as one frame."""
        if self._protocol.state is State.OPEN:
            self._protocol.send_binary(data)
            self._flush()

    def write_all(self, pieces: Sequence[bytes]) -> None:
        """Queues them as one frame."""
        self.write(b"".join(pieces))

    def close(self) -> None:
        """Says goodbye, and ends the connection."""
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(CloseCode.NORMAL_CLOSURE)
            self._flush()
        self._below.close()

    def _flush(self) -> None:
        """Sends what the protocol has to say; while the transport is full, no answers to pings."""
        for data in self._protocol.data_to_send():
            if data and (self._ready or data[0] != _PONG):
                self._below.write(data)


def websocket(settings: WebSocketSettings) -> MakeLayer:
    """Makes such layers."""
    return partial(WebSocketLayer, settings=settings)
