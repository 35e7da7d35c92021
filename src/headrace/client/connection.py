"""One connection to a broker: requests in, their answers as futures, in order.

Owns: the socket, correlation ids, what waits for an answer. Must not know: leaders, retries, what
a request means. Once an answer is late, or is none, the connection is of no more use, and all that
waits fails with it: the fate of those requests is unknown.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from headrace import limits
from headrace.client.errors import ClientError, ConnectionLostError
from headrace.client.greeting import UNAUTHENTICATED, Versions, greeting
from headrace.client.login import refused
from headrace.client.tls import why_no_tls
from headrace.errors import MalformedError
from headrace.wire.kafka.frames import Framer, decode_response, encode_request

if TYPE_CHECKING:
    from headrace.client.login import Login
    from headrace.model import Address
    from headrace.wire.kafka.apis import Api

Q = TypeVar("Q")
R = TypeVar("R")

_HUNG_UP: Final = "the broker closed the connection"

_NEVER_ANSWERED: Final = (
    f"{_HUNG_UP} before its first answer; does it speak Kafka's protocol there, and without TLS?"
)
_NO_TLS: Final = "it hung up in the TLS handshake; does it speak TLS there?"


class _Asked(NamedTuple):
    """A request that was sent."""

    api: Api[Any, Any]
    version: int
    correlation_id: int
    answer: asyncio.Future[Any]


class Connection(asyncio.Protocol):
    """A connection to the broker at `address`; `open` makes one that is of use."""

    __slots__ = (
        "_asked", "_client_id", "_correlation_id", "_framer", "_gone", "_lost", "_silence",
        "_transport", "_versions", "address",
    )  # fmt: skip

    def __init__(self, address: Address, client_id: str) -> None:
        self.address = address
        self._client_id = client_id
        self._correlation_id = 0
        self._framer = Framer(limits.KAFKA_RESPONSE_BYTES_MAX)
        self._asked: deque[_Asked] = deque()
        self._lost: ClientError | None = None
        self._silence = _NEVER_ANSWERED
        self._transport: asyncio.Transport | None = None
        self._gone = asyncio.Event()
        self._versions = Versions(address)

    @classmethod
    async def open(
        cls,
        address: Address,
        client_id: str,
        timeout_s: float,
        login: Login | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> Connection:
        """Connects, negotiates versions and authenticates.

        Raises:
            ConnectionLostError: the broker is not reached within `timeout_s`, or hangs up.
            RequestError: it does not let the client in.
        """
        connection = cls(address, client_id)
        try:
            await connection._connect(timeout_s, ssl_context)
            await connection._greet(login, timeout_s)
        except BaseException:  # who gives up waiting leaves no socket behind
            connection.abort()
            raise
        return connection

    async def _connect(self, timeout_s: float, ssl_context: ssl.SSLContext | None) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_s):
                await loop.create_connection(lambda: self, *self.address, ssl=ssl_context)
        except ssl.SSLCertVerificationError as error:
            raise refused(f"{self.address}: {error.verify_message}") from error
        except TimeoutError as error:
            why = f"no answer within {timeout_s:g} s"
            raise ConnectionLostError(f"{self.address} is not reached: {why}") from error
        except ssl.SSLError as error:
            why = "; ".join(why_no_tls(error, "", "is that its port with TLS?").split("\n"))
            raise ConnectionLostError(f"{self.address} is not reached: {why}") from error
        except OSError as error:
            why = str(error) or _NO_TLS  # asyncio says nothing of a handshake that breaks off
            raise ConnectionLostError(f"{self.address} is not reached: {why}") from error

    async def _greet(self, login: Login | None, timeout_s: float) -> None:
        steps = greeting(self.address, self._versions, login)
        asked = next(steps)
        try:
            while True:
                asked = steps.send(await self.call(*asked, timeout_s))
        except StopIteration:
            if login is None:
                self._silence = UNAUTHENTICATED

    @property
    def is_open(self) -> bool:
        """Whether requests may be sent."""
        return self._lost is None

    def send(self, api: Api[Q, R], body: Q) -> asyncio.Future[R]:
        """Sends a request; its answer is awaited by whoever wants to, in any order.

        The future raises ConnectionLostError where the connection breaks before the answer.

        Raises:
            ConnectionLostError: the connection is broken.
            RequestError: the broker does not speak this request.
        """
        version = self._write(api, body)
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._asked.append(_Asked(api, version, self._correlation_id, answer))
        return answer

    def tell(self, api: Api[Q, Any], body: Q) -> None:
        """Sends a request that the broker does not answer (Produce with `acks` 0).

        Raises:
            ConnectionLostError, RequestError: as `send`.
        """
        self._write(api, body)

    def _write(self, api: Api[Q, Any], body: Q) -> int:
        if self._lost is not None:
            raise self._lost
        assert self._transport is not None
        version = self._versions.of(api)
        self._correlation_id += 1
        request = encode_request(api, version, self._correlation_id, self._client_id, body)
        self._transport.write(request)
        return version

    async def call(self, api: Api[Q, R], body: Q, timeout_s: float) -> R:
        """Sends a request and waits for its answer, at most `timeout_s`.

        Raises:
            ConnectionLostError: the connection broke or the broker is silent; it is closed.
            RequestError: the broker does not speak this request.
        """
        return await self.within(timeout_s, api, self.send(api, body))

    async def within(self, timeout_s: float, api: Api[Any, R], answer: asyncio.Future[R]) -> R:
        """The answer to a request that was sent, where it comes in time.

        Raises:
            ConnectionLostError: as `call`.
        """
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError as error:
            self._fail(f"{api.name}: no answer within {timeout_s:g} s")
            assert self._lost is not None
            raise self._lost from error

    async def close(self) -> None:
        """Ends the connection once what was sent has left, or `LINGER_SECONDS` have passed."""
        if self._transport is None:
            return
        self._transport.close()
        try:
            async with asyncio.timeout(limits.LINGER_SECONDS):
                await self._gone.wait()
        except TimeoutError:
            self.abort()
            await self._gone.wait()

    def abort(self) -> None:
        """Ends the connection now."""
        self._fail("the connection was closed")

    def _fail(self, why: str) -> None:
        if self._lost is None:
            self._lost = ConnectionLostError(f"{self.address} {why}")
        if self._transport is not None:
            self._transport.abort()
        while self._asked:
            waiting = self._asked.popleft().answer
            if not waiting.done():
                waiting.set_exception(self._lost)
                waiting.exception()  # who sent it need not wait for it

    # What asyncio tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is connected."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answers came in, or parts of some."""
        self._framer.feed(data)
        try:
            while self._lost is None and (frame := self._framer.take()) is not None:
                self._answered(frame)
        except MalformedError as error:
            self._fail(f"answered what cannot be read: {error}")

    def _answered(self, frame: bytes) -> None:
        if not self._asked:
            raise MalformedError("an answer that nobody asked for")
        asked = self._asked[0]
        answer = decode_response(asked.api, asked.version, asked.correlation_id, frame)
        self._asked.popleft()
        self._silence = _HUNG_UP
        if not asked.answer.done():
            asked.answer.set_result(answer)

    def connection_lost(self, error: Exception | None) -> None:
        """The socket is gone."""
        why = str(error or self._silence)
        self._fail(f"{self._asked[0].api.name}: {why}" if self._asked else why)
        self._gone.set()
