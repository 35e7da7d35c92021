"""TCP: an asyncio protocol per connection, shaped as `ports.Link`, and the listener above it.

Performs; knows no protocol. Invariants: a refused connection is closed before its door hears of
it; a closed one ends by itself within `limits.LINGER_SECONDS`, and its last bytes arrive: closing
a socket that holds unread input resets it, and a reset overtakes what was written, so a link first
ends its own half and drops input until the other end has done the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING, cast

from headrace import limits
from headrace.errors import StartError
from headrace.model import Address

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.ports import Door, Receiver


class TcpLink(asyncio.Protocol):
    """One accepted connection."""

    __slots__ = ("_closing", "_listener", "_receiver", "_transport")

    _transport: asyncio.Transport

    def __init__(self, listener: TcpListener) -> None:
        self._listener = listener
        self._receiver: Receiver | None = None
        self._closing = False

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Admits the connection and hands it to the door."""
        self._transport = cast("asyncio.Transport", transport)
        if not self._listener.admitted(self):
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(limits.WRITE_HIGH_BYTES, limits.WRITE_LOW_BYTES)
        self._receiver = self._listener.door(self)

    def data_received(self, data: bytes) -> None:
        """Bytes came in."""
        if self._receiver is not None and not self._closing:
            self._receiver.received(data)

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
        if receiver is not None:
            self._listener.ended(self)
            receiver.closed()

    # What a door calls (`ports.Link`).

    @property
    def peer(self) -> str:
        """`HOST:PORT` of the other end."""
        name = self._transport.get_extra_info("peername")
        return str(Address(*name[:2])) if name else "?"

    @property
    def local(self) -> Address:
        """The address that the other end reached."""
        return Address(*self._transport.get_extra_info("sockname")[:2])

    def write(self, data: bytes) -> None:
        """Queues bytes."""
        if not self._closing:
            self._transport.write(data)

    def pause(self) -> None:
        """Reads no further."""
        if not self._closing and self._transport.is_reading():
            self._transport.pause_reading()

    def resume(self) -> None:
        """Reads on, unless the listener has stopped."""
        if self._listener.serving and not self._closing and not self._transport.is_reading():
            self._transport.resume_reading()

    def close(self) -> None:
        """Ends it once what was written has left and the other end has ended its half."""
        if self._closing or self._transport.is_closing():
            return
        self._closing = True
        self._transport.write_eof()
        if not self._transport.is_reading():
            self._transport.resume_reading()
        asyncio.get_running_loop().call_later(limits.LINGER_SECONDS, self._transport.abort)

    def abort(self) -> None:
        """Ends it now."""
        self._transport.abort()


class TcpListener:
    """An open port that feeds one door (`ports.Listener`).

    Attributes:
        door: takes connections in.
        links: open connections.
        refused: closed on arrival.
        serving: until `stop`.
    """

    def __init__(self, door: Door, admits: Callable[[], bool]) -> None:
        self.door = door
        self.links: set[TcpLink] = set()
        self.refused = 0
        self.serving = True
        self._admits = admits
        self._server: asyncio.Server | None = None
        self._address: Address | None = None
        self._empty: asyncio.Event | None = None

    @classmethod
    async def open(cls, sock: socket.socket, door: Door, admits: Callable[[], bool]) -> TcpListener:
        """Accepts on a bound socket.

        `admits` is asked for each connection; False closes it at once.
        """
        listener = cls(door, admits)
        loop = asyncio.get_running_loop()
        listener._address = listen(sock)
        listener._server = await loop.create_server(
            lambda: TcpLink(listener), sock=sock, backlog=limits.LISTEN_BACKLOG
        )
        return listener

    @property
    def address(self) -> Address:
        """As bound."""
        assert self._address is not None, "a listener is made by `open`"
        return self._address

    @property
    def connections(self) -> int:
        """Open now."""
        return len(self.links)

    def admitted(self, link: TcpLink) -> bool:
        """Counts a new connection in, or out."""
        if not self.serving or not self._admits():
            self.refused += 1
            return False
        self.links.add(link)
        return True

    def ended(self, link: TcpLink) -> None:
        """Counts a connection out."""
        self.links.discard(link)
        if self._empty is not None and not self.links:
            self._empty.set()

    def stop(self) -> None:
        """Accepts no more and reads no further."""
        self.serving = False
        if self._server is not None:
            self._server.close()
        for link in self.links:
            link.pause()

    async def close(self, timeout_s: float) -> None:
        """Closes every connection; resets those that have not ended in time."""
        self.stop()
        for link in tuple(self.links):
            link.close()
        if self.links:
            self._empty = asyncio.Event()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._empty.wait(), timeout_s)
        for link in tuple(self.links):
            link.abort()


def bind(address: Address) -> socket.socket:
    """A bound TCP socket, not yet listening; a restart binds the same port at once.

    Raises:
        StartError: why it cannot be bound, and what to do.
    """
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind(address)
    except OSError as error:
        sock.close()
        raise _cannot_listen(address, error) from None
    return sock


def listen(sock: socket.socket) -> Address:
    """Lets a bound socket listen; the address as bound.

    Two sockets may be bound to one port as long as neither listens, and uvloop takes no notice of
    the refusal that the second then gets.

    Raises:
        StartError: another socket listens there.
    """
    address = Address(*sock.getsockname()[:2])
    try:
        sock.listen(limits.LISTEN_BACKLOG)
    except OSError as error:
        raise _cannot_listen(address, error) from None
    return address


def _cannot_listen(address: Address, error: OSError) -> StartError:
    return StartError(
        f"cannot listen on {address}: {error.strerror or error}; choose another port, or stop "
        f"what uses it"
    )
