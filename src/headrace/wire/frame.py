"""What stands around the frames of the frame door: the lines that open a connection, and the ends.

Pure. Owns these bytes; those of frames and acknowledgements are the compiled module's. Must not
know streams or users. Source: docs/frame.md, ADR 0042.

A connection begins with one line of JSON each way. Then a producer sends frames, and is sent
acknowledgements, 16 bytes each, that begin with how many frames they are about: 0 of them is an
ending. A consumer is sent offsets, each with its frame behind it: -1 is a mark, which says only
where it stands, and -2 an ending. An ending is `code i32, text length u16, text`; then the
connection closes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from enum import StrEnum
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from headrace import limits
from headrace.text import nearest, shown
from headrace.wire.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

ALL: Final = -1
"""`acks` of who waits for every replica; written "all"."""

_MARK: Final = Struct(">qq")
_MARKED: Final = -1
_ENDED: Final = -2
_PRODUCER_ENDING: Final = Struct(">IiH")
_CONSUMER_ENDING: Final = Struct(">qiH")


class Mode(StrEnum):
    """What a connection is for."""

    PRODUCE = "produce"
    CONSUME = "consume"


class Place(StrEnum):
    """An offset that is not said as a number."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class At:
    """The first record at or after a time.

    Attributes:
        timestamp: milliseconds since 1970.
    """

    timestamp: int


class Refusal(Exception):  # noqa: N818 - an answer, not a fault of ours
    """Ends a connection; the client is told why.

    Attributes:
        reason: one word, a metric label.
        code: an error code of the Kafka protocol.
    """

    def __init__(self, reason: str, code: int, text: str) -> None:
        super().__init__(text)
        self.reason = reason
        self.code = ErrorCode.of(code)


@dataclass(frozen=True, slots=True)
class Opening:
    """What a client's line asks for.

    Attributes:
        stream: its name.
        mode: which way records go.
        acks: of a producer: 0, 1 or `ALL`.
        partition: of a producer, None where keys say; of a consumer, None where there is only one.
        offset: where a consumer begins; None of a producer.
        username, password: both, or none of them.
    """

    stream: str
    mode: Mode
    acks: int = ALL
    partition: int | None = None
    offset: int | Place | At | None = None
    username: str | None = None
    password: str | None = None


_MEMBERS: Final = tuple(each.name for each in fields(Opening))


def parse(line: bytes) -> Opening:
    """Reads a client's line, with or without its end.

    Raises:
        Refusal: it asks for nothing that there is; the text says what is expected.
    """
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        raise _wrong('the first line must be a JSON object: {"stream": "NAME", "mode": "produce"}')
    for name in said:
        if name not in _MEMBERS:
            raise _wrong(f"{shown(name)} is unknown; {nearest(name, _MEMBERS)}")
    said = {name: value for name, value in said.items() if value is not None}
    mode = said.get("mode")
    if mode not in list(Mode):
        raise _wrong(f'mode must be "produce" or "consume"; got {_given(said, "mode")}')
    other = "acks" if mode == Mode.CONSUME else "offset"
    if other in said:
        raise _wrong(f"{other} means nothing to who wants to {mode}; leave it out")
    return Opening(
        stream=_text(said, "stream"),
        mode=Mode(mode),
        acks=_acks(said),
        partition=_number(said, "partition") if "partition" in said else None,
        offset=_offset(said) if mode == Mode.CONSUME else None,
        username=_text(said, "username") if "username" in said else None,
        password=_text(said, "password") if "password" in said else None,
    )


def _wrong(text: str) -> Refusal:
    return Refusal("line_malformed", ErrorCode.INVALID_REQUEST, text)


def _given(said: Mapping[str, Any], name: str) -> str:
    if name == "password":
        return "something else"
    return shown(said[name]) if name in said else "none"


def _text(said: Mapping[str, Any], name: str) -> str:
    value = said.get(name)
    if not isinstance(value, str):
        raise _wrong(f"{name} must be a string; got {_given(said, name)}")
    try:
        value.encode()
    except UnicodeEncodeError:  # JSON can say it, and nothing has such a name
        raise _wrong(f"{name} holds half of a surrogate pair, which is no text") from None
    return value


def _number(said: Mapping[str, Any], name: str) -> int:
    value = said.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= limits.INT64_MAX:
        raise _wrong(f"{name} must be a number from 0 on; got {_given(said, name)}")
    return value


def _acks(said: Mapping[str, Any]) -> int:
    value = said.get("acks", "all")
    if value == "all":
        return ALL
    if isinstance(value, int) and not isinstance(value, bool) and value in {0, 1, ALL}:
        return value
    text = f'acks must be 0, 1 or "all"; got {_given(said, "acks")}'
    raise Refusal("line_malformed", ErrorCode.INVALID_REQUIRED_ACKS, text)


def _offset(said: Mapping[str, Any]) -> int | Place | At:
    value = said.get("offset")
    if isinstance(value, str) and value in list(Place):
        return Place(value)
    if isinstance(value, dict) and list(value) == ["timestamp"]:
        return At(_number(value, "timestamp"))
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= limits.INT64_MAX:
        return value
    raise _wrong(
        'offset must be a number, "earliest", "latest" or {"timestamp": MILLISECONDS}; '
        f"got {_given(said, 'offset')}"
    )


def accepted(members: Mapping[str, object]) -> bytes:
    """The line that lets a client go on."""
    return _line({"ok": True, **members})


def refused(refusal: Refusal) -> bytes:
    """The line that does not."""
    return _line(
        {
            "ok": False,
            "code": int(refusal.code),
            "name": refusal.code.name,
            "retriable": refusal.code.retriable,
            "error": str(refusal),
        }
    )


def _line(value: Mapping[str, object]) -> bytes:
    return json.dumps(value).encode() + b"\n"


def mark(next_offset: int) -> bytes:
    """Tells a consumer that nothing stands below `next_offset` that it was not sent."""
    return _MARK.pack(_MARKED, next_offset)


def ending_of_producer(refusal: Refusal) -> bytes:
    """Tells a producer why its connection ends, behind all acknowledgements."""
    text = _told(refusal)
    return _PRODUCER_ENDING.pack(0, refusal.code, len(text)) + text


def ending_of_consumer(refusal: Refusal) -> bytes:
    """Tells a consumer why its connection ends, behind all records."""
    text = _told(refusal)
    return _CONSUMER_ENDING.pack(_ENDED, refusal.code, len(text)) + text


def _told(refusal: Refusal) -> bytes:
    return str(refusal).encode()[: limits.FRAME_TEXT_BYTES_MAX]
