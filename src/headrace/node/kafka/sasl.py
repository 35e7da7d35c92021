"""SaslHandshake and SaslAuthenticate (KIP-152)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import AccessError
from headrace.node.kafka.connection import HangUp
from headrace.node.kafka.proof import DOOR, SERVED
from headrace.wire.kafka.errors import ErrorCode
from headrace.wire.kafka.sasl import SaslAuthenticateResponse, SaslHandshakeResponse

if TYPE_CHECKING:
    from headrace.node.kafka.connection import KafkaConnection
    from headrace.node.kafka.door import KafkaDoor
    from headrace.wire.kafka.frames import Request


async def handshake(
    door: KafkaDoor, connection: KafkaConnection, request: Request
) -> SaslHandshakeResponse:
    """Which mechanisms there are, and whether the client's is one.

    Raises:
        HangUp: messages of the mechanism would follow without requests around them.
    """
    if request.version == 0:
        raise HangUp("sasl_version", "SaslHandshake 0 is not served, only 1")
    begun = connection.proof.begin(request.body.mechanism)
    if not begun:
        door.gate.refused[DOOR, "method"] += 1
    code = ErrorCode.NONE if begun else ErrorCode.UNSUPPORTED_SASL_MECHANISM
    return SaslHandshakeResponse(error_code=code, mechanisms=list(SERVED))


async def authenticate(
    door: KafkaDoor, connection: KafkaConnection, request: Request
) -> SaslAuthenticateResponse:
    """A step of the mechanism; why the client is not let in is told, but not what was wrong."""
    message = request.body.auth_bytes or b""
    try:
        answer = await connection.proof.step(door.gate, connection.host, message)
    except AccessError as error:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=str(error)
        )
    return SaslAuthenticateResponse(auth_bytes=answer)
