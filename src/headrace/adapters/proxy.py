"""The PROXY header as a layer: the client's address instead of the load balancer's.

Where it is switched on it is required, and only trusted addresses may send it: else anyone could
claim to be anyone.
"""

from __future__ import annotations

import ipaddress
from functools import partial
from typing import TYPE_CHECKING

from headrace.adapters.layers import Layer
from headrace.errors import MalformedError
from headrace.wire.proxy import read_header

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.adapters.layers import Inner, LowerLink, MakeLayer

    Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class ProxyLayer(Layer):
    """Takes the header off."""

    __slots__ = ("_header", "_trusted")

    def __init__(self, below: LowerLink, inner: Inner, trusted: Sequence[Network]) -> None:
        super().__init__(below, inner)
        self._trusted = trusted
        self._header = b""

    def received(self, data: bytes) -> None:
        """The header, or what follows it."""
        if self._above is not None:
            self._above.received(data)
            return
        if not self._header and not self._trusts():
            self._below.refuse("proxy_untrusted", "its address may not send a PROXY header")
            return
        self._header += data
        try:
            header = read_header(self._header)
        except MalformedError as error:
            self._below.refuse("proxy_malformed", str(error))
            return
        if header is None:
            return
        rest, self._header = self._header[header.size_bytes :], b""
        source, destination = header.source, header.destination
        if source and destination and not self._below.known_as(source, destination):
            return
        above = self._pass()
        if rest:
            above.received(rest)

    def ended(self) -> bool:
        """The other end sends no more; whether who is above goes on."""
        return self._above is not None and self._above.ended()

    def _trusts(self) -> bool:
        host = self._below.host
        if host is None:  # a Unix socket: whoever may open its file
            return True
        address = ipaddress.ip_address(host.partition("%")[0])
        mapped = getattr(address, "ipv4_mapped", None) or address
        return any(mapped in network for network in self._trusted)


def proxied(trusted: Sequence[Network]) -> MakeLayer:
    """Makes such layers."""
    return partial(ProxyLayer, trusted=tuple(trusted))
