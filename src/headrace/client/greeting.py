"""How a connection to a broker begins, and which version of a request it then speaks.

Owns: the first requests in their order, the ranges of versions that the broker named, the proof of
who the client is. Must not know sockets: `greeting` yields what to ask and is sent the answer.
"""

import secrets
from collections.abc import Generator
from typing import Any, Final

from headrace.client.errors import RequestError
from headrace.client.login import MECHANISM, Login, Proof, refused
from headrace.model import Address
from headrace.wire.kafka.apis import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE, Api
from headrace.wire.kafka.errors import ErrorCode
from headrace.wire.kafka.messages import ApiVersionsRequest
from headrace.wire.kafka.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
)

Ask = tuple[Api[Any, Any], Any]
"""A request to send."""

UNAUTHENTICATED: Final = (
    "the broker closed the connection before its first answer; does it ask for a user and a "
    "password, or for TLS?"
)
"""What a hang-up means until the broker has answered something."""


class Versions:
    """The requests that a broker takes; before it was asked, ApiVersions 0, which all answer."""

    __slots__ = ("_address", "_ranges")

    def __init__(self, address: Address) -> None:
        self._address = address
        self._ranges = {API_VERSIONS.key: (0, 0)}

    def learn(self, ranges: dict[int, tuple[int, int]]) -> None:
        """What the broker said: first and last version by key."""
        self._ranges = ranges

    def of(self, api: Api[Any, Any]) -> int:
        """The highest version of `api` that both sides speak.

        Raises:
            RequestError: there is none.
        """
        first, last = self._ranges.get(api.key, (0, -1))
        if max(first, api.first) > min(last, api.last):
            theirs = "none" if last < first else f"{first} to {last}"
            raise RequestError(
                f"{self._address} speaks {api.name} {theirs}, not {api.first} to {api.last}",
                ErrorCode.UNSUPPORTED_VERSION,
            )
        return min(last, api.last)


def greeting(
    address: Address, versions: Versions, login: Login | None
) -> Generator[Ask, Any, None]:
    """Negotiates versions, then proves who the client is.

    Raises:
        RequestError: the broker does not let it in, or is another.
    """
    offered = yield API_VERSIONS, ApiVersionsRequest()
    versions.learn({o.api_key: (o.min_version, o.max_version) for o in offered.api_keys})
    if login is None:
        return
    handshake = yield SASL_HANDSHAKE, SaslHandshakeRequest(mechanism=MECHANISM)
    if handshake.error_code != ErrorCode.NONE:
        served = ", ".join(handshake.mechanisms) or "nothing"
        raise refused(f"{address} serves {served}, and not {MECHANISM}")
    proof = Proof(login, secrets.token_urlsafe(24))
    answer = yield SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=proof.first())
    final = proof.final(_said(address, answer))
    answer = yield SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=final)
    proof.check(_said(address, answer))


def _said(address: Address, answer: SaslAuthenticateResponse) -> bytes:
    if answer.error_code != ErrorCode.NONE:
        raise refused(f"{address}: {answer.error_message or 'it was refused'}")
    return bytes(answer.auth_bytes or b"")
