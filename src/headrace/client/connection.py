"""One blocking connection to a broker: one request at a time, versions as negotiated.

Owns: the socket, correlation ids, the choice of versions, authentication. Must not know: leaders,
retries. Once a call fails the connection is of no more use, for what it would read next is unknown.
"""

import secrets
import socket
from typing import Any, Final, TypeVar

from headrace import limits
from headrace.client.errors import ConnectionLostError, RequestError
from headrace.client.login import MECHANISM, Login, Proof, refused
from headrace.errors import MalformedError
from headrace.model import Address
from headrace.wire.kafka.apis import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE, Api
from headrace.wire.kafka.errors import ErrorCode
from headrace.wire.kafka.frames import LENGTH, decode_response, encode_request
from headrace.wire.kafka.messages import ApiVersionsRequest
from headrace.wire.kafka.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

Q = TypeVar("Q")
R = TypeVar("R")

_NEGOTIATION_VERSION: Final = 0
"""ApiVersions in the one version that every broker since 0.10 answers."""


class Connection:
    """A connection to the broker at `address`, negotiated and authenticated once it is made.

    Raises:
        ConnectionLostError: the broker is not reached within `timeout_s`, or hangs up.
        RequestError: it does not let the client in.
    """

    __slots__ = (
        "_client_id", "_correlation_id", "_ranges", "_silence", "_socket", "_stream", "address",
    )  # fmt: skip

    def __init__(
        self, address: Address, client_id: str, timeout_s: float, login: Login | None = None
    ) -> None:
        self.address = address
        self._client_id = client_id
        self._correlation_id = 0
        self._silence = "the broker closed the connection"
        try:
            self._socket = socket.create_connection(address, timeout=timeout_s)
        except OSError as error:
            raise ConnectionLostError(f"{address} is not reached: {error}") from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = self._socket.makefile("rb")
        self._ranges = {API_VERSIONS.key: (_NEGOTIATION_VERSION, _NEGOTIATION_VERSION)}
        offered = self.call(API_VERSIONS, ApiVersionsRequest(), timeout_s)
        self._ranges = {o.api_key: (o.min_version, o.max_version) for o in offered.api_keys}
        if login is None:
            self._silence += " before its first answer; does it ask for a user and a password?"
        else:
            try:
                self._authenticate(login, timeout_s)
            except RequestError:
                self.close()
                raise

    def _authenticate(self, login: Login, timeout_s: float) -> None:
        """Proves who the client is.

        Raises:
            RequestError: the broker does not let it in, or is another.
        """
        request = SaslHandshakeRequest(mechanism=MECHANISM)
        handshake = self.call(SASL_HANDSHAKE, request, timeout_s)
        if handshake.error_code != ErrorCode.NONE:
            served = ", ".join(handshake.mechanisms) or "nothing"
            raise refused(f"{self.address} serves {served}, and not {MECHANISM}")
        proof = Proof(login, secrets.token_urlsafe(24))
        proof.check(self._step(proof.final(self._step(proof.first(), timeout_s)), timeout_s))

    def _step(self, message: bytes, timeout_s: float) -> bytes:
        request = SaslAuthenticateRequest(auth_bytes=message)
        answer = self.call(SASL_AUTHENTICATE, request, timeout_s)
        if answer.error_code != ErrorCode.NONE:
            raise refused(f"{self.address}: {answer.error_message or 'it was refused'}")
        return bytes(answer.auth_bytes or b"")

    def version(self, api: Api[Any, Any]) -> int:
        """The highest version of `api` that both sides speak.

        Raises:
            RequestError: there is none.
        """
        first, last = self._ranges.get(api.key, (0, -1))
        if max(first, api.first) > min(last, api.last):
            theirs, ours = f"{first} to {last}", f"{api.first} to {api.last}"
            raise RequestError(
                f"{self.address} speaks {api.name} {theirs}, not {ours}",
                ErrorCode.UNSUPPORTED_VERSION,
            )
        return min(last, api.last)

    def call(self, api: Api[Q, R], body: Q, timeout_s: float) -> R:
        """Sends a request and waits for its response, at most `timeout_s` for each part.

        Raises:
            ConnectionLostError: the connection broke or the broker is silent; it is closed.
            RequestError: the broker does not speak this request.
        """
        version = self.version(api)
        self._correlation_id += 1
        request = encode_request(api, version, self._correlation_id, self._client_id, body)
        try:
            self._socket.settimeout(timeout_s)
            self._socket.sendall(request)
            frame = self._read_frame()
            if api is not API_VERSIONS:
                self._silence = "the broker closed the connection"
            return decode_response(api, version, self._correlation_id, frame)
        except (OSError, MalformedError) as error:
            self.close()
            raise ConnectionLostError(f"{self.address} {api.name}: {error}") from error

    def _read_frame(self) -> bytes:
        (length,) = LENGTH.unpack(self._read(LENGTH.size))
        if not 0 <= length <= limits.KAFKA_RESPONSE_BYTES_MAX:
            raise MalformedError(f"a response of {length} bytes")
        return self._read(length)

    def _read(self, length: int) -> bytes:
        data = self._stream.read(length)
        if len(data) < length:
            raise ConnectionResetError(self._silence)
        return data

    def close(self) -> None:
        """Ends the connection; twice is once."""
        self._stream.close()
        self._socket.close()
