"""SCRAM, the server's side: a client proves a password that neither side sends (RFC 5802, 7677).

A machine of two messages each way. Pure: the nonce comes from outside, and so does the secret that
makes up a salt for those who are no users, so that they cannot be told from others. MQTT carries it
in AUTH, Kafka in SaslAuthenticate. There is no channel binding: TLS may end before the node does.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import TYPE_CHECKING, Final

from headrace.errors import AuthenticationError
from headrace.kernel.credentials import MECHANISMS, SCRAM_ITERATIONS, ScramKeys

if TYPE_CHECKING:
    from collections.abc import Callable

_MESSAGE_BYTES_MAX: Final = 4096
"""Names have 256 bytes, nonces a few dozen."""


class Exchange:
    """One authentication.

    Args:
        mechanism: of `MECHANISMS`.
        keys_of: what is known of a user; None for those who are none.
        nonce: printable, without comma, not used before.
        secret: makes up salts.

    Attributes:
        username: whom the client claims to be, once the first message has come; whom it is, once
            the last one has been answered.
    """

    def __init__(
        self, mechanism: str, keys_of: Callable[[str], ScramKeys | None], nonce: str, secret: bytes
    ) -> None:
        self._hash = MECHANISMS[mechanism]
        self._keys_of = keys_of
        self._nonce = nonce
        self._secret = secret
        self._header = ""
        self._begun = ""
        self._keys: ScramKeys | None = None
        self._known = False
        self.username = ""

    @property
    def is_begun(self) -> bool:
        """Whether the first message has come."""
        return self._keys is not None

    def first(self, message: bytes) -> bytes:
        """The answer to client-first-message: nonce, salt and iterations.

        Raises:
            AuthenticationError: it is none, or asks for what is not served.
        """
        flag, authzid, bare = _split(_text(message), ",", 2)
        if flag not in ("n", "y"):
            raise AuthenticationError("SCRAM: channel binding is not served")
        self._header = f"{flag},{authzid},"
        name, nonce = _split(bare, ",", 1)
        self.username = _name(_value(name, "n"))
        if authzid and _name(_value(authzid, "a")) != self.username:
            raise AuthenticationError("SCRAM: nobody may act for another user")
        self._nonce = _value(nonce.partition(",")[0], "r") + self._nonce
        keys = self._keys_of(self.username)
        self._known = keys is not None
        self._keys = keys or self._made_up()
        salt = base64.b64encode(self._keys.salt).decode()
        answer = f"r={self._nonce},s={salt},i={self._keys.iterations}"
        self._begun = f"{bare},{answer}"
        return answer.encode()

    def final(self, message: bytes) -> bytes:
        """The answer to client-final-message: the server's own proof.

        Raises:
            AuthenticationError: the proof is wrong, or there is no such user.
        """
        assert self._keys is not None, "the first message comes before"
        without_proof, _, proof = _text(message).rpartition(",")
        binding, nonce = _split(without_proof, ",", 1)
        if _decoded(_value(binding, "c")) != self._header.encode():
            raise AuthenticationError("SCRAM: the channel binding is not that of the beginning")
        # librdkafka before 2.8 puts its own nonce in front once more, which Kafka lets pass, too.
        if not _value(nonce.partition(",")[0], "r").endswith(self._nonce):
            raise AuthenticationError("SCRAM: the nonce is not that of the beginning")
        said = f"{self._begun},{without_proof}".encode()
        signature = hmac.digest(self._keys.stored_key, said, self._hash)
        given = _decoded(_value(proof, "p"))
        client_key = bytes(a ^ b for a, b in zip(given, signature, strict=False))
        proved = hashlib.new(self._hash, client_key).digest()
        if not hmac.compare_digest(proved, self._keys.stored_key) or not self._known:
            raise AuthenticationError("user name or password is wrong")
        verifier = hmac.digest(self._keys.server_key, said, self._hash)
        return b"v=" + base64.b64encode(verifier)

    def _made_up(self) -> ScramKeys:
        """Keys that are the same each time one asks for a name, and that no password has."""
        drawn = hmac.digest(self._secret, self.username.encode(), self._hash)
        return ScramKeys(drawn[:16], SCRAM_ITERATIONS, drawn, drawn)


def _text(message: bytes) -> str:
    if len(message) > _MESSAGE_BYTES_MAX:
        raise AuthenticationError("SCRAM: the message is too long")
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise AuthenticationError("SCRAM: the message is not UTF-8") from None


def _split(text: str, separator: str, times: int) -> list[str]:
    parts = text.split(separator, times)
    if len(parts) <= times:
        raise AuthenticationError("SCRAM: the message is cut off")
    return parts


def _value(attribute: str, name: str) -> str:
    if attribute[:2] != f"{name}=" or len(attribute) == 2:
        raise AuthenticationError(f"SCRAM: the message has no {name}= where it must stand")
    return attribute[2:]


def _name(escaped: str) -> str:
    """RFC 5802 5.1: a comma is `=2C`, an equals sign `=3D`."""
    return escaped.replace("=2C", ",").replace("=3D", "=")


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise AuthenticationError("SCRAM: what must be base64 is not") from None
