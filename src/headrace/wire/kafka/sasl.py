"""SaslHandshake and SaslAuthenticate: one class each, for all their versions.

Source: the message definitions of the Kafka protocol guide.
"""

from dataclasses import field
from typing import Annotated

from headrace.wire.kafka.codec import Int16, Int64, Message, Records, String, message, since


@message
class SaslHandshakeRequest:
    """The client names its mechanism."""

    mechanism: String


@message
class SaslHandshakeResponse:
    """The mechanisms that are served."""

    error_code: Int16 = 0
    mechanisms: list[String] = field(default_factory=list)


@message
class SaslAuthenticateRequest:
    """A message of the mechanism."""

    auth_bytes: Records


@message
class SaslAuthenticateResponse:
    """The mechanism's answer; a session of 0 ms lasts as long as its connection."""

    error_code: Int16 = 0
    error_message: Message = None
    auth_bytes: Records = b""
    session_lifetime_ms: Annotated[Int64, since(1)] = 0
