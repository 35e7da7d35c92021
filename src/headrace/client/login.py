"""Who a client is, and how it proves it without sending its password (SCRAM-SHA-256).

Owns the client's side of RFC 5802 and 7677. Must not know sockets: the nonce comes from outside.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import dataclass, field
from typing import Final

from headrace.client.errors import RequestError
from headrace.errors import ConfigError
from headrace.wire.kafka.errors import ErrorCode

MECHANISM: Final = "SCRAM-SHA-256"
_HASH: Final = "sha256"

ITERATIONS_MIN: Final = 4096
"""RFC 7677 4: with fewer a password is guessed too easily from what was on the wire."""

ITERATIONS_MAX: Final = 1_000_000
"""Half a second of a core; a server must not keep a client busy for longer."""


@dataclass(frozen=True, slots=True)
class Login:
    """A user name and its password, which no `repr` shows."""

    user: str
    password: str = field(repr=False)

    def __post_init__(self) -> None:
        if not all(isinstance(each, str) for each in (self.user, self.password)):
            raise ConfigError("a login is the text of a user's name and of a password")


class Proof:
    """One authentication.

    Args:
        login: who the client is.
        nonce: printable, without comma, not used before.
    """

    def __init__(self, login: Login, nonce: str) -> None:
        self._login = login
        self._nonce = nonce
        name = login.user.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={nonce}"
        self._verifier = b""

    def first(self) -> bytes:
        """The first message of the client."""
        return f"n,,{self._bare}".encode()

    def final(self, answer: bytes) -> bytes:
        """The last message of the client, to the server's first.

        Raises:
            RequestError: the server does not keep to the protocol.
        """
        nonce, salt, iterations = _read(answer, "r", "s", "i")
        if not nonce.startswith(self._nonce) or not iterations.isdigit():
            raise refused("the server's answer is none")
        count = int(iterations)
        if not ITERATIONS_MIN <= count <= ITERATIONS_MAX:
            raise refused(f"the server asks for {count} iterations")
        salted = hashlib.pbkdf2_hmac(_HASH, self._login.password.encode(), _bytes(salt), count)
        without_proof = f"c=biws,r={nonce}"
        said = b",".join([self._bare.encode(), answer, without_proof.encode()])
        client_key = hmac.digest(salted, b"Client Key", _HASH)
        signature = hmac.digest(hashlib.new(_HASH, client_key).digest(), said, _HASH)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._verifier = hmac.digest(hmac.digest(salted, b"Server Key", _HASH), said, _HASH)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def check(self, answer: bytes) -> None:
        """Holds the server's last message to what only somebody who knows the user can say.

        Raises:
            RequestError: it is somebody else.
        """
        (verifier,) = _read(answer, "v")
        if not hmac.compare_digest(_bytes(verifier), self._verifier):
            raise refused("the server does not know the user; is it the right one?")


def refused(why: str) -> RequestError:
    """An authentication that failed."""
    return RequestError(f"authentication: {why}", ErrorCode.SASL_AUTHENTICATION_FAILED)


def _read(message: bytes, *names: str) -> list[str]:
    attributes = message.decode(errors="replace").split(",")
    values = dict(each.split("=", 1) for each in attributes if "=" in each)
    if not all(name in values for name in names):
        raise refused("the server's answer is none")
    return [values[name] for name in names]


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise refused("the server's answer is none") from None
