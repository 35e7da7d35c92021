"""How much Kafka clients may ask of a node, and how long one that asked for more must wait.

A pure machine. Each rate is a bucket that holds what is granted in a second and may be overdrawn:
whoever overdraws it waits until it is even, so that on average nobody gets more than their rate,
however large a single request is. Must not know connections or requests.

Invariant: a bucket that is full again is as good as none, so forgetting it changes nothing.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace import limits

if TYPE_CHECKING:
    from collections.abc import Sequence


NAME_CHARS_MAX: Final = 64
"""Of a name that is kept as it is; of a longer one so many stand for it."""


class Rate(StrEnum):
    """What is bounded, each in a second."""

    PRODUCED = "produced"
    """Bytes of produce requests."""
    FETCHED = "fetched"
    """Bytes of fetch responses."""
    REQUESTS = "requests"
    """Requests of any kind."""


@dataclass(frozen=True, slots=True)
class Quota:
    """Rates of clients.

    Attributes:
        users, clients: names of users and client ids that it is about; `*` at the end stands for
            any rest. All are meant where none is named. Who has the same of what is named here
            shares the rates.
        produced, fetched: bytes in a second; 0 for any number.
        requests: requests in a second; 0 for any number.
    """

    users: tuple[str, ...] = ()
    clients: tuple[str, ...] = ()
    produced: int = 0
    fetched: int = 0
    requests: int = 0

    def of(self, rate: Rate) -> int:
        """One of the rates; 0 where it is not bounded."""
        number: int = getattr(self, rate)
        return number

    def is_about(self, user: str, client: str) -> bool:
        """Whether these rates are theirs."""
        return _matches(self.users, user) and _matches(self.clients, client)


class _Key(NamedTuple):
    """Who shares a bucket: parts that its quota does not name are None."""

    quota: Quota
    rate: Rate
    user: str | None
    client: str | None


@dataclass(slots=True)
class _Bucket:
    """What is left of a second's grant at a moment; below 0 is debt."""

    left: float
    at_ms: int


class Quotas:
    """The quotas of a node, and where their clients stand."""

    def __init__(self, quotas: Sequence[Quota] = ()) -> None:
        self._quotas = tuple(quotas)
        self._buckets: dict[_Key, _Bucket] = {}

    def configure(self, quotas: Sequence[Quota]) -> None:
        """Other quotas hold from now on; those that stay know what was used of them."""
        self._quotas = tuple(quotas)
        held = set(self._quotas)
        self._buckets = {key: each for key, each in self._buckets.items() if key.quota in held}

    def charge(self, user: str, client: str, rate: Rate, amount: int, now_ms: int) -> int:
        """Takes `amount` from who asked; for how many milliseconds they must not ask again.

        The first quota that is about them and bounds this rate decides. At most
        `limits.KAFKA_THROTTLE_MS_MAX`: a debt that is larger stays.
        """
        for quota in self._quotas:
            per_second = quota.of(rate)
            if per_second and quota.is_about(user, client):
                break
        else:
            return 0
        key = _Key(
            quota,
            rate,
            _short(user) if quota.users else None,
            _short(client) if quota.clients else None,
        )
        bucket = self._buckets.get(key)
        if bucket is None:
            self._make_room(now_ms)
            bucket = self._buckets[key] = _Bucket(per_second, now_ms)
        bucket.left = _left(bucket, per_second, now_ms) - amount
        bucket.at_ms = now_ms
        if bucket.left >= 0:
            return 0
        return min(math.ceil(-bucket.left * 1000 / per_second), limits.KAFKA_THROTTLE_MS_MAX)

    def _make_room(self, now_ms: int) -> None:
        """Forgets buckets that are full again, or the oldest where all are in use.

        Client ids are whatever clients call themselves: one that takes a new one for each
        connection has a new bucket already.
        """
        if len(self._buckets) < limits.KAFKA_QUOTA_BUCKETS_MAX:
            return
        self._buckets = {
            key: each
            for key, each in self._buckets.items()
            if _left(each, key.quota.of(key.rate), now_ms) < key.quota.of(key.rate)
        }
        while len(self._buckets) >= limits.KAFKA_QUOTA_BUCKETS_MAX:
            del self._buckets[next(iter(self._buckets))]

    def __len__(self) -> int:
        """Buckets that are kept."""
        return len(self._buckets)


def _short(name: str) -> str:
    """A name, or what stands for it: clients call themselves what they like, in up to 32 KiB."""
    if len(name) <= NAME_CHARS_MAX:
        return name
    return hashlib.blake2b(name.encode(), digest_size=32).hexdigest()


def _left(bucket: _Bucket, per_second: int, now_ms: int) -> float:
    granted = (now_ms - bucket.at_ms) * per_second / 1000
    return min(bucket.left + granted, per_second)


def _matches(patterns: tuple[str, ...], name: str) -> bool:
    return not patterns or any(
        name.startswith(each[:-1]) if each.endswith("*") else name == each for each in patterns
    )
