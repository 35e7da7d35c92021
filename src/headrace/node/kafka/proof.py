"""Where the authentication of one Kafka connection stands: SASL PLAIN or SCRAM.

Must not know requests. After a refusal the client may begin anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.errors import AuthenticationError
from headrace.kernel.credentials import MECHANISMS

if TYPE_CHECKING:
    from headrace.kernel.scram import Exchange
    from headrace.node.access import Gate

DOOR: Final = "kafka"

PLAIN: Final = "PLAIN"

SERVED: Final = (PLAIN, *MECHANISMS)


class Proof:
    """One connection's authentication.

    Attributes:
        username: who has proved to be a user; None before.
    """

    __slots__ = ("_exchange", "_mechanism", "username")

    def __init__(self) -> None:
        self.username: str | None = None
        self._mechanism: str | None = None
        self._exchange: Exchange | None = None

    def begin(self, mechanism: str) -> bool:
        """Whether a mechanism is served; if so, its first message comes next."""
        if mechanism not in SERVED:
            return False
        self.username, self._mechanism, self._exchange = None, mechanism, None
        return True

    async def step(self, gate: Gate, host: str | None, message: bytes) -> bytes:
        """The answer to a message of the mechanism.

        Raises:
            AccessError: the client is not let in.
        """
        mechanism, self._mechanism = self._mechanism, None
        if mechanism is None:
            raise AuthenticationError("SaslHandshake comes first")
        if mechanism == PLAIN:
            name, password = _plain(message)
            user = await gate.authenticate(DOOR, name, password, host)
            self.username = user.name
            return b""
        exchange, self._exchange = self._exchange, None
        if exchange is None:
            gate.admit_try(DOOR, host)
            exchange = gate.exchange(mechanism)
            answer = exchange.first(message)
            self._mechanism, self._exchange = mechanism, exchange
            return answer
        try:
            proof = exchange.final(message)
        except AuthenticationError:
            gate.failed(DOOR, host)
            raise
        self.username = exchange.username
        return proof


def _plain(message: bytes) -> tuple[str, bytes]:
    """Name and password (RFC 4616).

    Raises:
        AuthenticationError: there are none, or somebody would act for another.
    """
    parts = message.split(b"\0")
    if len(parts) != 3:
        raise AuthenticationError("PLAIN: the message is malformed")
    for_whom, name, password = parts
    if for_whom not in (b"", name):
        raise AuthenticationError("PLAIN: nobody may act for another user")
    try:
        return name.decode(), password
    except UnicodeDecodeError:
        raise AuthenticationError("PLAIN: the name is not UTF-8") from None
