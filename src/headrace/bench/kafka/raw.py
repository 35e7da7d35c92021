"""One blocking socket to a Kafka broker, which times answers by their last byte, unread."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING, Any, Final, Self

from headrace import limits
from headrace.client.errors import ConnectionLostError
from headrace.client.greeting import Versions, greeting
from headrace.wire.kafka.frames import LENGTH, decode_response, encode_request

if TYPE_CHECKING:
    from headrace.client.login import Login
    from headrace.model import Address
    from headrace.wire.kafka.apis import Api

TIMEOUT_SECONDS: Final = 30.0
"""Longest silence of a broker."""


class RawConnection:
    """A connection that has greeted its broker.

    Raises:
        ClientError: the broker is not reached, or does not let the client in.
    """

    def __init__(self, address: Address, login: Login | None) -> None:
        self._address = address
        self._versions = Versions(address)
        self._sent = 0
        try:
            self._socket = socket.create_connection(address, timeout=TIMEOUT_SECONDS)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            why = error.strerror or error
            raise ConnectionLostError(
                f"{address} is not reached: {why}; is a broker there?"
            ) from error
        try:
            self._greet(login)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hangs up."""
        self._socket.close()

    def _greet(self, login: Login | None) -> None:
        steps = greeting(self._address, self._versions, login)
        asked = next(steps)
        try:
            while True:
                asked = steps.send(self.call(*asked))
        except StopIteration:
            return

    def call(self, api: Api[Any, Any], body: object) -> Any:  # noqa: ANN401
        """The answer to a request."""
        frame, _ = self.timed(api, body)
        return decode_response(api, self._versions.of(api), self._sent, frame)

    def timed(self, api: Api[Any, Any], body: object) -> tuple[bytes, float]:
        """The frame of an answer, and the seconds from its request to its last byte.

        Raises:
            ConnectionLostError: the broker hangs up, is silent, or answers no frame.
        """
        self._sent += 1
        request = encode_request(api, self._versions.of(api), self._sent, "headrace-bench", body)
        started = time.perf_counter()
        try:
            self._socket.sendall(request)
            (length,) = LENGTH.unpack(self._read(LENGTH.size))
            if not 0 <= length <= limits.KAFKA_RESPONSE_BYTES_MAX:
                raise ConnectionLostError(f"{self._address} answered a frame of {length} bytes")
            frame = self._read(length)
        except OSError as error:
            raise ConnectionLostError(f"{self._address} {api.name}: {error}") from error
        return frame, time.perf_counter() - started

    def _read(self, length: int) -> bytes:
        data = bytearray(length)
        view, at = memoryview(data), 0
        while at < length:
            came = self._socket.recv_into(view[at:])
            if not came:
                raise ConnectionLostError(f"{self._address} closed the connection")
            at += came
        return bytes(data)
