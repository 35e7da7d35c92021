"""Frames of the Kafka protocol: the cut of a byte stream, request and response headers.

Owns: the length prefix and its bound, header versions, correlation ids. Must not know: sockets, or
what a request does. After a `MalformedError` its byte stream cannot be read on: nothing says where
the next frame begins.
"""

from collections.abc import Iterator
from itertools import groupby
from struct import Struct
from typing import Any, Final, NamedTuple, TypeVar

from headrace import limits
from headrace.errors import MalformedError
from headrace.wire.kafka.apis import (
    API_VERSIONS,
    APIS,
    CREATE_ACLS,
    DELETE_ACLS,
    JOIN_GROUP,
    Api,
)
from headrace.wire.kafka.codec import NO_TAGS, NULLABLE_STRING, Reader, skip_tags

Q = TypeVar("Q")
R = TypeVar("R")

LENGTH: Final = Struct(">i")
"""Length of a frame, which precedes it and does not count itself."""

SHORT: Final = frozenset({JOIN_GROUP, CREATE_ACLS, DELETE_ACLS})
"""Requests that never need to name much; one that does is malformed."""

_PIECE_BYTES: Final = 4096
"""What of a frame is copied to what came before it."""

_APART_BYTES: Final = 16 * limits.KIB
"""What of a response is sent from where it is: less is copied in less time than a piece takes."""

_CORRELATION: Final = Struct(">i")
_PREFIX: Final = Struct(">hhi")


class Request(NamedTuple):
    """One decoded request. `body` is an instance of `api.request`."""

    api: Api[Any, Any]
    version: int
    correlation_id: int
    client_id: str | None
    body: Any


class Framer:
    """Cuts a byte stream into frames, one at a time, each joined once however it came."""

    __slots__ = ("_at", "_buffer", "_chunks", "_chunks_bytes", "_frame_bytes_max", "_length")

    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._buffer = b""
        self._at = 0
        self._chunks: list[bytes | bytearray] = []
        self._chunks_bytes = 0
        self._length: int | None = None  # of the frame that comes, once that is known

    @property
    def held_bytes(self) -> int:
        """Bytes that came in and were not taken out, but for the length of the frame that comes."""
        return len(self._buffer) - self._at + self._chunks_bytes

    def feed(self, data: bytes) -> None:
        """Takes bytes in; small pieces of a frame are put together, each would cost 40 bytes."""
        self._chunks_bytes += len(data)
        if not self._chunks or len(data) > _PIECE_BYTES:
            self._chunks.append(data)
        elif isinstance(last := self._chunks[-1], bytearray):
            last += data
        else:
            self._chunks.append(bytearray(data))

    def take(self) -> bytes | None:
        """The next whole frame, without its length; None where there is none yet.

        Raises:
            MalformedError: the frame claims a negative length or more than the bound.
        """
        if self._length is None:
            if not self._joined(LENGTH.size):
                return None
            length: int = LENGTH.unpack_from(self._buffer, self._at)[0]
            if not 0 <= length <= self._frame_bytes_max:
                bound = f"the bound is {self._frame_bytes_max}"
                raise MalformedError(f"a frame of {length} bytes; {bound}")
            self._at += LENGTH.size
            self._length = length
        if not self._joined(self._length):
            return None
        start, self._at = self._at, self._at + self._length
        self._length = None
        frame = self._buffer[start : self._at]
        if self._at == len(self._buffer):  # an idle connection keeps no large request
            self._buffer, self._at = b"", 0
        return frame

    def _joined(self, length: int) -> bool:
        """Whether `length` bytes are there; if so they are in the buffer now."""
        if self.held_bytes < length:
            return False
        if len(self._buffer) - self._at < length:
            rest = memoryview(self._buffer)[self._at :]
            self._buffer = b"".join((rest, *self._chunks) if rest else self._chunks)
            self._at = 0
            self._chunks.clear()
            self._chunks_bytes = 0
        return True


def decode_request(frame: bytes) -> Request:
    """As `decode_counted`, without the number."""
    return decode_counted(frame)[0]


def decode_counted(
    frame: bytes, elements_max: int = limits.KAFKA_REQUEST_ELEMENTS_MAX
) -> tuple[Request, int]:
    """Reads a request that a client sent; with it, how many elements its arrays have.

    ApiVersions of a version that is not served must be answered, in version 0, so it comes back
    with version 0 and no body: the layout of what it holds is unknown.

    Raises:
        TooManyError: it has more array elements than `elements_max`.
        MalformedError: the request is unknown, of a version that is not served, cut off, or has
            more elements in an array within another than `limits.KAFKA_NESTED_ELEMENTS_MAX`.
    """
    reader = Reader(frame, elements_max, limits.KAFKA_NESTED_ELEMENTS_MAX)
    key, version, correlation_id = _PREFIX.unpack_from(frame, reader.skip(_PREFIX.size))
    api = APIS.get(key)
    if api in SHORT:
        elements_max = reader.elements_left = min(elements_max, limits.KAFKA_NESTED_ELEMENTS_MAX)
    if api is None:
        raise MalformedError(f"request {key} is not served")
    if not api.first <= version <= api.last:
        if api is API_VERSIONS:
            return Request(api, 0, correlation_id, None, None), 0
        served = f"{api.first} to {api.last}"
        raise MalformedError(f"{api.name} {version} is not served, only {served}")
    client_id = NULLABLE_STRING.plain.read(reader)
    if api.flexible(version):
        skip_tags(reader)
    body = api.request_codec(version).read(reader)
    elements = elements_max - reader.elements_left
    return Request(api, version, correlation_id, client_id, body), elements


def encode_response(request: Request, body: object) -> list[bytes]:
    """The response to `request`, as a frame with its length, in pieces.

    What is large stands in it as it is in `body`, be that a memoryview, and is copied nowhere.
    """
    out = [b"", _CORRELATION.pack(request.correlation_id)]
    if request.api.tagged_header(request.version):
        out.append(NO_TAGS)
    request.api.response_codec(request.version).write(out, body)
    sizes = [len(each) for each in out]
    out[0] = LENGTH.pack(sum(sizes))
    return [b"".join(out)] if max(sizes) < _APART_BYTES else list(_pieces(out))


def encode_request(
    api: Api[Q, Any], version: int, correlation_id: int, client_id: str, body: Q
) -> bytes:
    """A request to a broker, as a frame with its length.

    Raises:
        UnfitError: a field cannot hold its value.
    """
    out = [b"", _PREFIX.pack(api.key, version, correlation_id)]
    NULLABLE_STRING.plain.write(out, client_id)
    if api.flexible(version):
        out.append(NO_TAGS)
    api.request_codec(version).write(out, body)
    return _framed(out)


def decode_response(api: Api[Any, R], version: int, correlation_id: int, frame: bytes) -> R:
    """Reads a broker's response to the request of `correlation_id`: an `api.response`.

    Raises:
        MalformedError: it is cut off, answers another request, or claims more array elements
            than `limits.KAFKA_RESPONSE_ELEMENTS_MAX`.
    """
    reader = Reader(frame, limits.KAFKA_RESPONSE_ELEMENTS_MAX)
    (answered,) = _CORRELATION.unpack_from(frame, reader.skip(_CORRELATION.size))
    if answered != correlation_id:
        raise MalformedError(f"response {answered} to request {correlation_id}")
    if api.tagged_header(version):
        skip_tags(reader)
    response: R = api.response_codec(version).read(reader)
    return response


def _framed(out: list[bytes]) -> bytes:
    out[0] = LENGTH.pack(sum(map(len, out)))
    return b"".join(out)


def _pieces(out: list[bytes]) -> Iterator[bytes]:
    """Joins what is small; what is large stays as it is."""
    for is_small, several in groupby(out, lambda each: len(each) < _APART_BYTES):
        if is_small:
            yield b"".join(several)
        else:
            yield from several
