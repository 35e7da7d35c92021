"""Identifiers and records that several layers share.

Owns names and shapes, no behaviour beyond reading and writing their own text. Everything here is
immutable.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, NewType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.settings import Value

StreamId = NewType("StreamId", int)
"""Which stream, whatever its name: its incarnation, so sessions that are kept name it by this."""

Ticket = NewType("Ticket", int)
"""One append on its way to the disk: odd ones are the switchboard's, even ones are Python's."""


class HeldLog(NamedTuple):
    """A log that the journal of a data folder knows.

    Attributes:
        stream: its stream's name.
        partition: its number, from 0.
        incarnation: which stream of that name.
        has_past: it holds records, or has held some.
    """

    stream: str
    partition: int
    incarnation: int
    has_past: bool


class Address(NamedTuple):
    """Where a door listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str, *, such_as: int = 1883) -> Address:
        """Reads `HOST:PORT` or `[IPV6]:PORT`; an error has port `such_as` in its example.

        Raises:
            ValueError: there is no host, none that can have a name, or no port from 0 to 65535.
        """
        host, colon, port = text.rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        host = host[1:-1] if bracketed else host
        if not colon or not host or (":" in host) != bracketed:
            raise ValueError(f"must be HOST:PORT, such as 127.0.0.1:{such_as}; got {text!r}")
        if not (port.isascii() and port.isdigit() and int(port) <= 65_535):
            raise ValueError(f"must end in a port from 0 to 65535; got {text!r}")
        try:
            host.encode("idna")  # as who looks the name up does
        except UnicodeError as error:
            raise ValueError(f"must name a host ({error}); got {text[:80]!r}") from None
        return cls(host, int(port))

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it. Of names only `localhost` counts."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


@dataclass(frozen=True, slots=True)
class StreamDefinition:
    """What a stream is, as its `stream.json` holds it.

    Attributes:
        name: 1 to 249 of `[a-zA-Z0-9._-]`.
        incarnation: no other stream of the node has it, nor had a deleted one of the same name.
        partitions: 1 or more; may grow, never shrink.
        filters: MQTT topic filters whose publishes it stores.
        key: record key of those: `topic`, `level:N` (1-based) or `property:NAME`.
        settings: what was set by hand, by the names of `headrace.settings`.
        queue: what was set of it as a queue, by those of `headrace.queue_settings`; None: it is
            none.
    """

    name: str
    incarnation: int
    partitions: int
    filters: tuple[str, ...] = ()
    key: str = "topic"
    settings: Mapping[str, Value] = field(default_factory=dict)
    queue: Mapping[str, Value] | None = None

    @property
    def id(self) -> StreamId:
        """What the switchboard knows it by. It is the same after a restart."""
        return StreamId(self.incarnation)
