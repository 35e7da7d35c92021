"""What is remembered of passwords that were tried: verdicts, and who fails too often.

Pure machines of bounded size. A verdict is kept under a keyed hash of name and password, with a key
that dies with the process: what is in memory proves nothing to anybody else. It holds as long as
the user whom it is about is the same.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace import limits
from headrace.kernel.admission import network

if TYPE_CHECKING:
    from headrace.kernel.credentials import User

_FREE: Final = 10
"""Failures of an address before it must wait: a person mistypes, a fleet behind one address has
members that were set up wrong."""


class Verdicts:
    """Passwords that were checked.

    Args:
        key: 32 random bytes.
        expiry_ms: how long a verdict holds; 0 keeps none.
    """

    def __init__(self, key: bytes, expiry_ms: int) -> None:
        self._key = key
        self._expiry_ms = expiry_ms
        self._known: dict[bytes, tuple[User | None, bool, int]] = {}  # oldest first

    def __len__(self) -> int:
        return len(self._known)

    def digest(self, name: str, password: bytes) -> bytes:
        """Under which a verdict is kept."""
        encoded = name.encode()
        message = b"%d:%b%b" % (len(encoded), encoded, password)
        return hmac.digest(self._key, message, "sha256")

    def get(self, digest: bytes, user: User | None, now_ms: int) -> bool | None:
        """What was found of the password while the user was this one; None where nothing was."""
        known = self._known.get(digest)
        if known is None or known[0] is not user or now_ms >= known[2]:
            return None
        return known[1]

    def put(self, digest: bytes, user: User | None, *, is_right: bool, now_ms: int) -> None:
        """Remembers a verdict; the oldest goes where there are too many."""
        self._known.pop(digest, None)
        if self._expiry_ms == 0:
            return
        self._known[digest] = user, is_right, now_ms + self._expiry_ms
        if len(self._known) > limits.VERDICTS_MAX:
            del self._known[next(iter(self._known))]


@dataclass(slots=True)
class _Failing:
    failures: int = 0
    until_ms: int = 0
    at_ms: int = 0


class Failures:
    """How often an address has failed, and how long it must wait.

    The first failures are free; then each doubles the wait, from a second up to
    `AUTHENTICATION_WAIT_MS_MAX`. An address without failures for ten times that is forgotten.
    """

    def __init__(self) -> None:
        self._known: dict[str, _Failing] = {}  # least recently failed first

    def __len__(self) -> int:
        return len(self._known)

    def waits_ms(self, host: str | None, now_ms: int) -> int:
        """How long nothing of an address is checked yet."""
        known = self._known.get(network(host)) if host else None
        return 0 if known is None else max(known.until_ms - now_ms, 0)

    def failed(self, host: str | None, now_ms: int) -> None:
        """A password was wrong."""
        if not host:
            return
        name, wait_max = network(host), limits.AUTHENTICATION_WAIT_MS_MAX
        known = self._known.pop(name, None)
        if known is None or now_ms - known.at_ms > 10 * wait_max:
            known = _Failing()
        known.failures += 1
        known.at_ms = now_ms
        over = known.failures - _FREE
        if over > 0:
            known.until_ms = now_ms + min(1000 << min(over - 1, 20), wait_max)
        self._known[name] = known
        if len(self._known) > limits.ADDRESSES_MAX:
            del self._known[next(iter(self._known))]
