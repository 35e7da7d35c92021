"""Properties of MQTT 5.0 packets, as paho takes them.

Owns their ways into bytes: paho's own, by name, and one for publishes that are many. Must not know
what they mean.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from paho.mqtt import MQTTException
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

if TYPE_CHECKING:
    from collections.abc import Iterable

PropertyValues = dict[str, list[object]]
"""By paho's names; `UserProperty` alone may have several."""


class Packed(Properties):
    """Properties that are bytes already: paho's take 55 µs to build, the rest of a publish 45.

    `body` is what follows their length (MQTT 5.0 2.2.2).
    """

    _packed: bytes

    def __init__(self, body: bytes) -> None:  # the base would build what is never read
        object.__setattr__(self, "_packed", variable_byte_integer(len(body)) + body)

    def pack(self) -> bytes:
        """As it stands in the packet."""
        return self._packed


def user_property(name: str, value: str) -> bytes:
    """One pair in bytes (MQTT 5.0 3.3.2.3.7).

    Raises:
        ValueError: one of them is longer than 65,535 bytes, or no text of MQTT (1.5.4).
    """
    return b"\x26" + text(name) + text(value)


def user_properties(pairs: Iterable[tuple[str, str]]) -> bytes:
    """Pairs in bytes; raises as `user_property`."""
    return b"".join(user_property(name, value) for name, value in pairs)


def message_expiry(seconds: int) -> bytes:
    """The Message Expiry Interval in bytes (MQTT 5.0 3.3.2.3.3)."""
    return b"\x02" + seconds.to_bytes(4, "big")


def handed_on(told: Properties) -> bytes:
    """What a publish says of its payload and of an answer, in bytes (MQTT 5.0 3.3.2.3).

    Its user properties and its expiry are left out.
    """
    said = b""
    if (form := getattr(told, "PayloadFormatIndicator", None)) is not None:
        said += b"\x01" + form.to_bytes()
    if (kind := getattr(told, "ContentType", None)) is not None:
        said += b"\x03" + text(kind)
    if (topic := getattr(told, "ResponseTopic", None)) is not None:
        said += b"\x08" + text(topic)
    if (data := getattr(told, "CorrelationData", None)) is not None:
        said += b"\x09" + len(data).to_bytes(2, "big") + data
    return said


def text(value: str) -> bytes:
    """A text in bytes; raises as `user_property`."""
    encoded = value.encode()  # of half of a surrogate pair that is a ValueError
    if len(encoded) > 65_535 or "\0" in value:
        raise ValueError(f"MQTT has texts of 65,535 bytes at most, without NUL; got {value[:40]!r}")
    return len(encoded).to_bytes(2, "big") + encoded


def variable_byte_integer(number: int) -> bytes:
    """A number below 268,435,456 in bytes (MQTT 5.0 1.5.5)."""
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def properties_of(packet: str, values: PropertyValues) -> Properties:
    """Properties of a packet by paho's names.

    Raises:
        ValueError: the packet has no such property, or not with that value.
    """
    properties = Properties(  # type: ignore[no-untyped-call]
        getattr(PacketTypes, "WILLMESSAGE" if packet == "will" else packet.upper())
    )
    for name, several in values.items():
        for value in several:
            try:
                setattr(properties, name, value)
            except MQTTException as error:
                raise ValueError(str(error)) from None
    try:
        properties.pack()  # type: ignore[no-untyped-call]
    except struct.error:
        raise ValueError("a number or a text is larger than the protocol has room for") from None
    return properties
