"""What lies between a socket and a door: the shape of a layer, and how layers are put together.

A layer is a receiver to what is below it and a link to what is above it; TLS, WebSocket and the
PROXY header are layers. Owns the shape. Must not know any protocol. Invariants: the door hears of
a connection only once every layer has let it through, and of nothing that a layer consumes; what
came in one piece leaves a layer in one piece at the most.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias

from headrace.ports import Link, Receiver

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.model import Address
    from headrace.ports import Door


class LowerLink(Link, Protocol):
    """What a layer finds below it: a link, and the listener behind it."""

    @property
    def host(self) -> str | None:
        """The IP address of the other end, or None: bounds per address hold for it."""
        ...

    def arrived(self) -> None:
        """Every layer has let the connection through: no handshake is waited for any more."""
        ...

    def refuse(self, reason: str, text: str) -> None:
        """Ends the connection for a fault of its transport; counted by `reason`, told as `text`."""
        ...

    def known_as(self, source: Address, destination: Address) -> bool:
        """Whom a proxy speaks for, and the address that they reached.

        False where bounds per address, which hold for them, have ended the connection.
        """
        ...


Inner: TypeAlias = Callable[[LowerLink], Receiver]
"""What a layer hands the connection to: the next layer, or the door."""


class Layer:
    """One layer of one connection; on its own it changes nothing.

    As a receiver it takes what the link below brings, as a link it serves the receiver above.
    """

    __slots__ = ("_above", "_below", "_inner")

    def __init__(self, below: LowerLink, inner: Inner) -> None:
        self._below = below
        self._inner = inner
        self._above: Receiver | None = None  # until this layer lets the connection through

    def _pass(self) -> Receiver:
        """Lets the connection through."""
        self._above = self._inner(self)
        return self._above

    # What the link below calls (`ports.Receiver`).

    def received(self, data: bytes) -> None:
        """Bytes came in."""
        assert self._above is not None
        self._above.received(data)

    def ended(self) -> bool:
        """The other end sends no more, and nothing can be said to it through a layer."""
        return False

    def writable(self, ready: bool) -> None:
        """The transport is full, or has room again."""
        if self._above is not None:
            self._above.writable(ready)

    def closed(self) -> None:
        """The link is gone."""
        if self._above is not None:
            self._above.closed()

    # What the receiver above calls (`LowerLink`).

    @property
    def peer(self) -> str:
        """The other end, for logs."""
        return self._below.peer

    @property
    def host(self) -> str | None:
        """The IP address of the other end."""
        return self._below.host

    @property
    def local(self) -> Address:
        """The address that the other end reached."""
        return self._below.local

    @property
    def identity(self) -> str | None:
        """Whom the transport has proved the other end to be."""
        return self._below.identity

    @property
    def secure(self) -> bool:
        """Whether it is encrypted."""
        return self._below.secure

    def write(self, data: bytes) -> None:
        """Queues bytes."""
        self._below.write(data)

    def write_all(self, pieces: Sequence[bytes]) -> None:
        """Queues bytes that come in pieces."""
        self._below.write_all(pieces)

    def pause(self) -> None:
        """Reads no further."""
        self._below.pause()

    def resume(self) -> None:
        """Reads on."""
        self._below.resume()

    def close(self) -> None:
        """Ends it once what was written has arrived."""
        self._below.close()

    def abort(self) -> None:
        """Ends it now."""
        self._below.abort()

    def arrived(self) -> None:
        """Passed on."""
        self._below.arrived()

    def refuse(self, reason: str, text: str) -> None:
        """Passed on."""
        self._below.refuse(reason, text)

    def known_as(self, source: Address, destination: Address) -> bool:
        """Passed on."""
        return self._below.known_as(source, destination)


class MakeLayer(Protocol):
    """Makes a layer of a new connection, from the link below it and what to hand it on to."""

    def __call__(self, below: LowerLink, inner: Inner) -> Layer:
        """The layer."""
        ...


def through(layers: Sequence[MakeLayer], door: Door) -> Inner:
    """A door behind layers, the one next to the socket first."""

    def arrive(link: LowerLink) -> Receiver:
        link.arrived()
        return door(link)

    inner: Inner = arrive
    for make in reversed(layers):
        inner = _behind(make, inner)
    return inner


def _behind(make: MakeLayer, inner: Inner) -> Inner:
    return lambda link: make(link, inner)
