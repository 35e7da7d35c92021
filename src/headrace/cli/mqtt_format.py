"""How `headrace sub` writes a message: as it is, as JSON, or by a format like mosquitto_sub's.

Pure: a message and the time in, bytes out.
"""

from __future__ import annotations

import base64
import json
import re
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from paho.mqtt.client import MQTTMessage

    Write = Callable[["MQTTMessage", float], bytes]
    Shown = Callable[[bytes], bytes]

_ESCAPES: Final = {
    "\\": "\\", "0": "\0", "a": "\a", "e": "\x1b", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
}  # fmt: skip
_PART: Final = re.compile(
    r"%(?P<flags>[-0]*)(?P<width>\d*)(?:\.(?P<precision>\d+))?(?P<letter>[%A-Za-z])"
    r"|@(?P<time>[@A-Za-z])|\\(?P<escape>.)",
    re.DOTALL,
)
_PROPERTIES: Final = {
    "A": "TopicAlias",
    "C": "ContentType",
    "D": "CorrelationData",
    "E": "MessageExpiryInterval",
    "F": "PayloadFormatIndicator",
    "R": "ResponseTopic",
    "S": "SubscriptionIdentifier",
}
_TELLS: Final[dict[str, Callable[[MQTTMessage], object]]] = {
    "%": lambda _: "%",
    "l": lambda message: len(message.payload),
    "m": lambda message: message.mid,
    "p": lambda message: message.payload,
    "q": lambda message: message.qos,
    "r": lambda message: int(message.retain),
    "t": lambda message: message.topic,
    "x": lambda message: message.payload.hex(),
    "X": lambda message: message.payload.hex().upper(),
}
_TIMES: Final = "IU"
_JSON: Final = "jJ"


def plain(*, with_topic: bool, end: bytes, shown: Shown = bytes) -> Write:
    """Payloads as they are, each behind its topic where asked.

    An empty one leaves no line, or `(null)` behind its topic. `shown` has the last word on what a
    message says: a terminal does not obey it.
    """

    def write(message: MQTTMessage, _now: float) -> bytes:
        if with_topic:
            said = message.topic.encode() + b" " + (message.payload or b"(null)")
            return shown(said) + end
        return shown(bytes(message.payload)) + end if message.payload else b""

    return write


def as_json(*, end: bytes, indent: int | None = None) -> Write:
    """One object a message; `indent` spreads it over lines."""
    return lambda message, now: json.dumps(_object(message, now), indent=indent).encode() + end


def formatted(text: str, *, end: bytes, shown: Shown = bytes, indent: int | None = None) -> Write:
    """By a format; `shown` as for `plain`, `indent` as for `as_json`.

    Raises:
        ValueError: it asks for what there is not.
    """
    parts: list[Callable[[MQTTMessage, float], bytes]] = []
    at = 0
    for match in _PART.finditer(text):
        parts.append(_constant(text[at : match.start()]))
        parts.append(_part(match, shown, indent))
        at = match.end()
    tail = text[at:]
    if tail.endswith(("%", "\\", "@")):
        raise ValueError(f"ends in the middle of {tail[-1]!r}")
    parts.append(_constant(tail))
    return lambda message, now: b"".join(part(message, now) for part in parts) + end


def _constant(text: str) -> Write:
    data = text.encode()
    return lambda _message, _now: data


def _part(match: re.Match[str], shown: Shown, indent: int | None) -> Write:
    if match["escape"] is not None:
        if match["escape"] not in _ESCAPES:
            raise ValueError(f"knows no \\{match['escape']}")
        return _constant(_ESCAPES[match["escape"]])
    if match["time"] is not None:
        return _time(match["time"])
    letter = match["letter"]
    if letter in _JSON:
        return lambda message, now: json.dumps(
            _object(message, now, reads_payload=letter == "J"), indent=indent
        ).encode()
    if letter not in {*_TELLS, *_PROPERTIES, *_TIMES, "P"}:
        known = " ".join(sorted({*_TELLS, *_PROPERTIES, *_TIMES, *_JSON, "P"}))
        raise ValueError(f"knows no %{letter}; known: {known}")
    return lambda message, now: shown(_padded(_tell(letter, message, now), match))


def _padded(data: bytes, match: re.Match[str]) -> bytes:
    if match["precision"] is not None and match["letter"] in "tCRP":
        data = data[: int(match["precision"])]
    width = int(match["width"] or 0)
    if "-" in match["flags"]:
        return data.ljust(width)
    return data.rjust(width, b"0" if "0" in match["flags"] else b" ")


def _tell(letter: str, message: MQTTMessage, now: float) -> bytes:
    value: object
    if letter == "I":
        value = _local(now).strftime("%Y-%m-%dT%H:%M:%S%z")
    elif letter == "U":
        value = f"{now:.9f}"
    elif letter == "P":
        pairs = getattr(message.properties, "UserProperty", [])
        value = " ".join(f"{name}:{text}" for name, text in pairs)
    elif letter in _PROPERTIES:
        value = getattr(message.properties, _PROPERTIES[letter], "")
        value = value[0] if isinstance(value, list) else value
    else:
        value = _TELLS[letter](message)
    return value if isinstance(value, bytes) else str(value).encode()


def _time(letter: str) -> Write:
    """A letter of strftime; @N is nanoseconds."""
    if letter == "@":
        return _constant("@")
    if letter == "N":
        return lambda _message, now: f"{int(now % 1 * 1e9):09d}".encode()
    return lambda _message, now: _local(now).strftime(f"%{letter}").encode()


def _local(now: float) -> datetime:
    return datetime.fromtimestamp(now).astimezone()


def _object(message: MQTTMessage, now: float, *, reads_payload: bool = False) -> dict[str, Any]:
    """A message as JSON: its payload as text where it is some, else in base64.

    With `reads_payload` a payload that is JSON itself is put in as such.
    """
    told: dict[str, Any] = {
        "tst": _local(now).isoformat(timespec="microseconds"),
        "topic": message.topic,
        "qos": message.qos,
        "retain": int(message.retain),
        "payloadlen": len(message.payload),
    }
    if message.qos:
        told["mid"] = message.mid
    properties = {}
    if message.properties is not None:
        properties = message.properties.json()  # type: ignore[no-untyped-call]
    if properties:
        told["properties"] = properties
    return told | _payload(bytes(message.payload), reads_payload=reads_payload)


def _payload(data: bytes, *, reads_payload: bool) -> dict[str, Any]:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return {"payload_base64": base64.b64encode(data).decode()}
    if reads_payload and text:
        try:
            return {"payload": json.loads(text)}
        except ValueError:
            pass
    return {"payload": text}
