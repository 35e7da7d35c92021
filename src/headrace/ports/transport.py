"""Byte streams, as ports: what a listener hands to a node, and what a node may do to it.

A door decides nothing about sockets and an adapter nothing about protocols; they meet here.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from headrace.model import Address
from headrace.ports.meter import Sample


class Link(Protocol):
    """One accepted byte stream."""

    @property
    def peer(self) -> str:
        """`HOST:PORT` of the other end, or what is known of it, for logs."""
        ...

    @property
    def host(self) -> str | None:
        """The IP address of the other end, or of whom a proxy speaks for; None without one."""
        ...

    @property
    def identity(self) -> str | None:
        """Whom the transport has proved the other end to be, as by a certificate."""
        ...

    @property
    def local(self) -> Address:
        """The address that the other end reached."""
        ...

    @property
    def secure(self) -> bool:
        """Whether it is encrypted."""
        ...

    def write(self, data: bytes) -> None:
        """Queues bytes; never blocks. After `close` it does nothing."""
        ...

    def write_all(self, pieces: Sequence[bytes]) -> None:
        """As `write` of all of them together, which are not copied for that.

        So each must stay as it is.
        """
        ...

    def pause(self) -> None:
        """Reads no further until `resume`; twice is once."""
        ...

    def resume(self) -> None:
        """Reads on."""
        ...

    def close(self) -> None:
        """Ends it once what was written has arrived, or after `limits.LINGER_SECONDS`."""
        ...

    def abort(self) -> None:
        """Ends it now."""
        ...


class Receiver(Protocol):
    """One connection of a door. Called on the loop, never re-entered."""

    def received(self, data: bytes) -> None:
        """Bytes came in; `data` is the receiver's to keep."""
        ...

    def ended(self) -> bool:
        """The other end sends no more, and may still read; False ends the connection."""
        ...

    def writable(self, ready: bool) -> None:
        """Tells that the transport holds too much (False) or has room again (True).

        The bounds are `limits.WRITE_HIGH_BYTES` and `limits.WRITE_LOW_BYTES`. A new connection
        is writable and is not told so.
        """
        ...

    def closed(self) -> None:
        """The link is gone, whoever ended it; nothing is called after this."""
        ...


Door = Callable[[Link], Receiver]
"""Takes a new connection in."""


class MeteredDoor(Protocol):
    """A door that counts."""

    def __call__(self, link: Link) -> Receiver:
        """Takes a new connection in."""
        ...

    def samples(self) -> Iterable[Sample]:
        """Its counters and gauges now."""
        ...


class Listener(Protocol):
    """An open port, or socket file, that feeds one door."""

    @property
    def address(self) -> Address | Path:
        """As bound; a port given as 0 is the real one here."""
        ...

    @property
    def connections(self) -> int:
        """Open now."""
        ...

    @property
    def refused(self) -> Mapping[str, int]:
        """Connections that its door never got, or lost to a fault of transport, by reason."""
        ...

    def stop(self) -> None:
        """Accepts no more and reads no further; open connections may still be written to."""
        ...

    async def close(self, timeout_s: float) -> None:
        """Closes every connection; those that have not ended after `timeout_s` are reset."""
        ...
