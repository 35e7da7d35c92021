"""Listeners: accept, admit, and one asyncio protocol per connection, shaped as `ports.Link`.

Performs; knows no protocol. Invariants: a refused connection costs an accept and a close, and its
door never hears of it; what came is accepted a few at a time, so that a storm of connects never
keeps those who are connected waiting; one that does not get through its layers in time is ended; a
closed one ends by itself within `limits.LINGER_SECONDS`, and its last bytes arrive: closing a
socket that holds unread input resets it, and a reset overtakes what was written, so a link first
ends its own half and drops input until the other end has done the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from headrace import limits
from headrace.adapters.layers import through
from headrace.adapters.sockets import listen, peer_user
from headrace.kernel.admission import Admission
from headrace.model import Address

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence

    from headrace.adapters.layers import MakeLayer
    from headrace.ports import Door, Receiver

log = logging.getLogger(__name__)

TLS_HELLO = b"\x16\x03"
"""What every TLS client begins with, and no MQTT or Kafka client may: a handshake record of TLS
(RFC 8446 5.1), which would be an MQTT CONNECT with reserved bits or a Kafka request of 350 MB."""

NOWHERE = Address("", 0)
"""Both ends of a Unix socket."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admittance:
    """What holds for the connections of a listener before its door has them.

    Attributes:
        admission: the bounds per address, of all listeners together.
        handshake_ms: from accept until every layer has let a connection through.
        handshakes_max: connections of a listener that are between the two.
        waits: whether connections beyond the node's bound wait to be accepted, or are closed.
        behind_proxy: whether a layer tells the address of the client later.
        tls: whether a layer speaks TLS.
    """

    admission: Admission = field(default_factory=Admission)
    handshake_ms: int = limits.HANDSHAKE_MS
    handshakes_max: int = limits.HANDSHAKES_MAX
    waits: bool = False
    behind_proxy: bool = False
    tls: bool = False


class SocketLink(asyncio.Protocol):
    """One accepted connection (`layers.LowerLink`).

    Attributes:
        counted_for: the host of which it is one of so many connections.
    """

    __slots__ = (
        "_address", "_begun", "_closing", "_half_open", "_listener", "_local", "_receiver",
        "_transport", "counted_for",
    )  # fmt: skip

    identity = None
    _transport: asyncio.Transport

    def __init__(self, listener: Listener, address: Address | str) -> None:
        self.counted_for: str | None = None
        self._listener = listener
        self._address = address
        self._local: Address | None = None
        self._receiver: Receiver | None = None
        self._closing = False
        self._begun = False
        self._half_open = False

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Hands the connection to the door."""
        self._transport = cast("asyncio.Transport", transport)
        if not self._listener.opened(self):
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(limits.WRITE_HIGH_BYTES, limits.WRITE_LOW_BYTES)
        self._receiver = self._listener.door(self)

    def data_received(self, data: bytes) -> None:
        """Bytes came in."""
        if self._receiver is None or self._closing:
            return
        if not self._begun:
            self._begun = True
            if self._listener.plain_text and data.startswith(TLS_HELLO):
                self.refuse("unexpected_tls", "it speaks TLS, and this port does not")
                return
        self._receiver.received(data)

    def eof_received(self) -> bool:
        """The other end sends no more; whether the connection goes on."""
        if not self._closing and self._receiver is not None:
            self._half_open = self._receiver.ended()
        return self._half_open

    def pause_writing(self) -> None:
        """The transport holds `limits.WRITE_HIGH_BYTES`."""
        if self._receiver is not None:
            self._receiver.writable(False)  # noqa: FBT003 - the port's one flag

    def resume_writing(self) -> None:
        """The transport holds less than `limits.WRITE_LOW_BYTES`."""
        if self._receiver is not None:
            self._receiver.writable(True)  # noqa: FBT003 - the port's one flag

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone; whose fault it was makes no difference."""
        del exc
        receiver, self._receiver = self._receiver, None
        self._listener.ended(self)
        if receiver is not None:
            receiver.closed()

    # What a door calls (`ports.Link`).

    @property
    def peer(self) -> str:
        """`HOST:PORT` of the other end, or the user at the other end of a Unix socket."""
        return str(self._address)

    @property
    def host(self) -> str | None:
        """The IP address of the other end."""
        return None if isinstance(self._address, str) else self._address.host

    @property
    def local(self) -> Address:
        """The address that the other end reached."""
        if self._local is None:
            name = self._transport.get_extra_info("sockname")
            self._local = NOWHERE if isinstance(name, str) or not name else Address(*name[:2])
        return self._local

    @property
    def secure(self) -> bool:
        """It is not encrypted, unless a layer above says so."""
        return False

    def write(self, data: bytes) -> None:
        """Queues bytes."""
        if not self._closing:
            self._transport.write(data)

    def write_all(self, pieces: Sequence[bytes]) -> None:
        """Queues bytes that come in pieces."""
        if not self._closing:
            self._transport.writelines(pieces)

    def pause(self) -> None:
        """Reads no further."""
        if not self._closing and self._transport.is_reading():
            self._transport.pause_reading()

    def resume(self) -> None:
        """Reads on, unless the listener has stopped, or there is nothing more to come."""
        if not self._listener.serving or self._closing or self._half_open:
            return
        if not self._transport.is_reading():
            self._transport.resume_reading()

    def close(self) -> None:
        """Ends it once what was written has left and the other end has ended its half."""
        if self._closing or self._transport.is_closing():
            return
        self._closing = True
        if self._half_open:  # nothing unread can reset what was written
            self._transport.close()
            return
        self._transport.write_eof()
        if not self._transport.is_reading():
            self._transport.resume_reading()
        asyncio.get_running_loop().call_later(limits.LINGER_SECONDS, self._transport.abort)

    def abort(self) -> None:
        """Ends it now."""
        self._transport.abort()

    # What a layer calls (`layers.LowerLink`).

    def arrived(self) -> None:
        """No handshake is waited for any more."""
        self._listener.arrived(self)

    def refuse(self, reason: str, text: str) -> None:
        """Ends the connection for a fault of its transport."""
        if not self._closing:
            self._listener.turned_away(reason, text, self.peer)
            self.close()

    def known_as(self, source: Address, destination: Address) -> bool:
        """Takes the place of the proxy's own addresses."""
        self._address, self._local = source, destination
        if not self._listener.admits_address(self):
            self._closing = True
            self._transport.abort()
            return False
        return True


class Listener:
    """An open port or socket file that feeds one door (`ports.Listener`).

    Attributes:
        door: takes connections in, behind the layers.
        plain_text: whether a client that speaks TLS is at the wrong port.
        refused: connections that ended before their door had them, by reason.
        serving: until `stop`.
    """

    def __init__(
        self,
        sock: socket.socket,
        door: Door,
        admits: Callable[[], bool],
        layers: Sequence[MakeLayer],
        admittance: Admittance,
    ) -> None:
        self.address: Address | Path = listen(sock)
        self.door = through(layers, door)
        self.plain_text = not (admittance.tls or admittance.behind_proxy)
        self.refused: Counter[str] = Counter()
        self.serving = True
        self._admits = admits
        self._admittance = admittance
        self._layered = bool(layers)
        self._accepted = 0  # and not ended
        self._links: set[SocketLink] = set()
        self._arriving: dict[SocketLink, float] = {}  # by deadline, as all wait equally long
        self._deadline: asyncio.TimerHandle | None = None
        self._empty: asyncio.Event | None = None
        self._adopting: set[asyncio.Task[None]] = set()
        self._told: dict[str, float] = {}
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self._file = _file_of(self.address)
        sock.settimeout(0)
        self._loop.add_reader(sock.fileno(), self._accept)

    @classmethod
    def open(
        cls,
        sock: socket.socket,
        door: Door,
        admits: Callable[[], bool],
        layers: Sequence[MakeLayer] = (),
        admittance: Admittance | None = None,
    ) -> Listener:
        """Accepts on a bound socket.

        `admits` is asked for each connection; False refuses it, or lets it wait.

        Raises:
            StartError: another socket listens there.
        """
        return cls(sock, door, admits, layers, admittance or Admittance())

    def set_admittance(self, admittance: Admittance) -> None:
        """What holds for connections that come from now on."""
        self._admittance = admittance

    @property
    def connections(self) -> int:
        """Open now."""
        return self._accepted

    # Accepting.

    def _accept(self) -> None:
        for _ in range(limits.ACCEPTS_AT_ONCE):
            if self._admittance.waits and not self._admits():
                self._pause()
                return
            try:
                sock, name = self._sock.accept()
            except BlockingIOError:
                return
            except ConnectionError:  # it left before we came
                continue
            except OSError as error:  # no descriptor, no memory: it will be so in a moment, too
                self.turned_away("accept_error", f"cannot accept: {error.strerror}", "?")
                self._pause()
                return
            self._take(sock, name)

    def _pause(self) -> None:
        """Leaves what comes in the accept queue for a moment."""
        self._loop.remove_reader(self._sock.fileno())
        self._loop.call_later(limits.ACCEPT_PAUSE_SECONDS, self._unpause)

    def _unpause(self) -> None:
        if self.serving:
            self._loop.add_reader(self._sock.fileno(), self._accept)
            self._accept()

    def _take(self, sock: socket.socket, name: Any) -> None:  # noqa: ANN401 - as sockets name it
        address = Address(*name[:2]) if isinstance(name, tuple) else f"unix uid={peer_user(sock)}"
        if not self._admits():
            self.turned_away("connections_limit", "the node takes no more", address)
        elif self._layered and len(self._arriving) >= self._admittance.handshakes_max:
            self.turned_away("handshakes_limit", "too many handshakes are going on", address)
        else:
            link = SocketLink(self, address)
            if self._admittance.behind_proxy or self.admits_address(link):
                self._accepted += 1
                adopting = self._loop.create_task(self._adopt(link, sock))
                self._adopting.add(adopting)
                adopting.add_done_callback(self._adopting.discard)
                return
        sock.close()

    async def _adopt(self, link: SocketLink, sock: socket.socket) -> None:
        sock.settimeout(0)
        try:
            await self._loop.connect_accepted_socket(lambda: link, sock)
        except OSError:  # it left before we came
            sock.close()
            self.ended(link)

    def admits_address(self, link: SocketLink) -> bool:
        """Whether the bounds per address let a connection in; it then counts for its address."""
        host = link.host
        if host is None:
            return True
        reason = self._admittance.admission.arrive(host, time.monotonic_ns() // 1_000_000)
        if reason is None:
            link.counted_for = host
            return True
        self.turned_away(reason, "its address has its share", link.peer)
        return False

    def turned_away(self, reason: str, text: str, peer: object) -> None:
        """Counts a connection that its door does not get; a line a second for each reason."""
        self.refused[reason] += 1
        now = self._loop.time()
        if now >= self._told.get(reason, 0.0):
            self._told[reason] = now + limits.REFUSAL_LOG_SECONDS
            extra = {"client": str(peer)}
            log.info("connection refused at %s: %s", self.address, text, extra=extra)

    # From accept to the door.

    def opened(self, link: SocketLink) -> bool:
        """A link has its transport; False where it must end at once."""
        self._links.add(link)
        if self._layered:
            self._arriving[link] = self._loop.time() + self._admittance.handshake_ms / 1000
            if self._deadline is None:
                self._look_later()
        return self.serving

    def _look_later(self) -> None:
        first = next(iter(self._arriving.values()), None)
        self._deadline = None if first is None else self._loop.call_at(first, self._look)

    def _look(self) -> None:
        """Ends those whose time is over."""
        now = self._loop.time()
        late = [link for link, deadline in self._arriving.items() if deadline <= now]
        for link in late:
            del self._arriving[link]
            self.turned_away("handshake_timeout", "its handshake took too long", link.peer)
            link.abort()
        self._look_later()

    def arrived(self, link: SocketLink) -> None:
        """Every layer has let it through."""
        self._arriving.pop(link, None)

    def ended(self, link: SocketLink) -> None:
        """Counts a connection out."""
        self._accepted -= 1
        self._links.discard(link)
        self._arriving.pop(link, None)
        if link.counted_for is not None:
            self._admittance.admission.leave(link.counted_for)
            link.counted_for = None
        if self._empty is not None and not self._links:
            self._empty.set()

    # The end.

    def stop(self) -> None:
        """Accepts no more and reads no further."""
        if not self.serving:
            return
        self.serving = False
        self._loop.remove_reader(self._sock.fileno())
        self._sock.close()
        if isinstance(self.address, Path) and _file_of(self.address) == self._file:
            self.address.unlink(missing_ok=True)
        for link in self._links:
            link.pause()

    async def close(self, timeout_s: float) -> None:
        """Closes every connection; resets those that have not ended in time."""
        self.stop()
        await asyncio.gather(*self._adopting)
        for link in tuple(self._links):
            link.close()
        if self._links:
            self._empty = asyncio.Event()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._empty.wait(), timeout_s)
        for link in tuple(self._links):
            link.abort()
        if self._deadline is not None:
            self._deadline.cancel()


def _file_of(address: Address | Path) -> tuple[int, int] | None:
    """Which file a Unix socket has, so that nobody else's is removed."""
    if isinstance(address, Address):
        return None
    try:
        status = address.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
