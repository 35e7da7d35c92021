"""Which partition a record goes to: by its key as Kafka's own producer, in turn, or by batches.

Owns the choice. Must not know: batches, brokers. It is told when a batch is closed.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from headrace.errors import ConfigError
from headrace.native import murmur2

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.client.config import Partitioner

_POSITIVE = 0x7FFF_FFFF
"""Kafka takes the sign from a hash before it divides (`Utils.toPositive`)."""


class Sticky:
    """One partition of a stream keeps getting records while a batch of it is open (KIP-480)."""

    __slots__ = ("_chosen",)

    def __init__(self) -> None:
        self._chosen: dict[str, int] = {}

    def __call__(self, stream: str, key: bytes | None, partitions: int) -> int:
        """The partition that `stream` is at."""
        del key
        return self.at(stream) % partitions

    def at(self, stream: str) -> int:
        """Where `stream` is; it begins by its name, so that streams differ and runs repeat."""
        chosen = self._chosen.get(stream)
        if chosen is None:
            chosen = self._chosen[stream] = zlib.crc32(stream.encode())
        return chosen

    def closed(self, stream: str) -> None:
        """The batch that got the records of `stream` gets no more: the next partition is next."""
        if stream in self._chosen:
            self._chosen[stream] += 1


class Murmur2(Sticky):
    """By the key's hash as Kafka's default partitioner; records without a key as `Sticky`."""

    __slots__ = ()

    def __call__(self, stream: str, key: bytes | None, partitions: int) -> int:
        """The partition of `key`."""
        if key is None:
            return self.at(stream) % partitions
        return (murmur2(key) & _POSITIVE) % partitions


class RoundRobin:
    """One partition after the other, whatever the key."""

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def __call__(self, stream: str, key: bytes | None, partitions: int) -> int:
        """The partition whose turn it is."""
        del key
        turn = self._next.get(stream, 0)
        self._next[stream] = turn + 1
        return turn % partitions


def partitioner(named: str | Partitioner) -> Partitioner:
    """The partitioner of that name; a function is one.

    Raises:
        ConfigError: there is none of that name.
    """
    made: dict[str, Callable[[], Partitioner]] = {
        "murmur2": Murmur2,
        "sticky": Sticky,
        "round_robin": RoundRobin,
    }
    if callable(named):
        return named
    if named not in made:
        raise ConfigError(f"partitioner must be one of {', '.join(made)}; got {named!r}")
    return made[named]()
