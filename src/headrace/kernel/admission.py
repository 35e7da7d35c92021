"""Which connections a node takes of one address: a machine of token buckets and counts.

Pure. Owns what it remembers of addresses, within bounds. Must not know sockets. An IPv6 client
holds a whole /64, so that is what counts as one address. Invariant: what is remembered of an
address goes with its last connection, once its bucket is full again.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Final

from headrace import limits

CONNECT_RATE: Final = "connect_rate"
ADDRESS_LIMIT: Final = "address_limit"
"""Reasons of a refusal, as metrics have them."""

_REFILL_MS: Final = 1000
"""An empty bucket is full again after this long: it holds what comes in a second."""


@dataclass(slots=True)
class _Known:
    tokens: float
    at_ms: int
    connections: int = 0


class Admission:
    """The bounds per address of all listeners of a node together.

    Args:
        connects_per_second: of one address, in bursts of as many; 0 for no bound.
        connections_max: of one address at a time; 0 for no bound.
    """

    def __init__(self, connects_per_second: int = 0, connections_max: int = 0) -> None:
        self._rate = connects_per_second
        self._connections_max = connections_max
        self._known: dict[str, _Known] = {}  # least recently seen first

    def set_bounds(self, connects_per_second: int, connections_max: int) -> None:
        """Other bounds, as of the next arrival; who is there stays.

        What came while there was no bound is not counted.
        """
        self._rate = connects_per_second
        self._connections_max = connections_max

    def __len__(self) -> int:
        return len(self._known)

    def arrive(self, host: str, now_ms: int) -> str | None:
        """Counts a connection in; or the reason why it is refused, and is not counted.

        A refused one takes no token: who hammers is let in again at the rate, not later.
        """
        if not self._rate and not self._connections_max:
            return None
        name = network(host)
        known = self._known.pop(name, None) or _Known(self._rate, now_ms)
        known.tokens = min(known.tokens + (now_ms - known.at_ms) * self._rate / 1000, self._rate)
        known.at_ms = now_ms
        self._known[name] = known
        self._forget(now_ms)
        if self._connections_max and known.connections >= self._connections_max:
            return ADDRESS_LIMIT
        if self._rate:
            if known.tokens < 1:
                return CONNECT_RATE
            known.tokens -= 1
        known.connections += 1
        return None

    def leave(self, host: str) -> None:
        """Counts out a connection that had been counted in."""
        if not self._rate and not self._connections_max:
            return
        name = network(host)
        known = self._known.get(name)
        if known is not None and known.connections:  # else forgotten: too many addresses came
            known.connections -= 1

    def _forget(self, now_ms: int) -> None:
        """Looks at the two least recently seen: what a wave left behind goes with the next one.

        Those that still count go to the back, unless there are too many of them.
        """
        for _ in range(2):
            name = next(iter(self._known))
            known = self._known.pop(name)
            full_again = now_ms - known.at_ms >= _REFILL_MS or not self._rate
            counts = known.connections or not full_again or known.at_ms == now_ms
            if counts and len(self._known) < limits.ADDRESSES_MAX:
                self._known[name] = known


def network(host: str) -> str:
    """What counts as one address: an IPv4 address, mapped or not, or an IPv6 /64."""
    if ":" not in host:
        return host
    address = ipaddress.IPv6Address(host.partition("%")[0])
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Address(int(address) >> 64 << 64))
