"""Who a client of the frame door is, and whether it may still do what it does.

Owns how the gate is asked. Invariant: what changes in users and rules holds for connections that
are open, from their next frames on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.errors import AccessError, AuthenticationError, ForbiddenError
from headrace.kernel.catalog import is_internal
from headrace.native import Principal
from headrace.wire.frame import Mode, Refusal
from headrace.wire.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.kernel.credentials import User
    from headrace.native import AccessRules
    from headrace.node.access import Gate
    from headrace.ports import Link
    from headrace.wire.frame import Opening

DOOR: Final = "frame"

_ACTIONS: Final = {Mode.PRODUCE: "write", Mode.CONSUME: "read"}


class Permit:
    """That a client may produce to one stream, or consume from it."""

    __slots__ = ("_action", "_checked", "_gate", "_host", "_identity", "_stream", "_username")

    def __init__(self, gate: Gate, link: Link, opening: Opening, username: str | None) -> None:
        self._gate = gate
        self._host, self._identity = link.host, link.identity
        self._username = username
        self._action = _ACTIONS[opening.mode]
        self._stream = opening.stream
        self._checked: tuple[AccessRules, User | None] | None = None

    def check(self) -> None:
        """Asks what users and rules say now.

        Raises:
            Refusal: it may not, or not any more.
        """
        if self._gate.is_open:
            return
        user = None if self._username is None else self._gate.get(self._username)
        checked = self._gate.rules, user
        if self._checked is not None and all(
            one is other for one, other in zip(checked, self._checked, strict=True)
        ):
            return
        if not self._gate.rules.check(self._principal(user), "", self._action, self._stream)[0]:
            text = f"you may not {self._action} a stream of this name"
            raise Refusal("unauthorized", ForbiddenError.kafka_code, text)
        self._checked = checked

    def _principal(self, user: User | None) -> Principal:
        if user is not None:
            return self._gate.principal(user, self._host)
        if self._username is not None:
            raise Refusal("unauthenticated", AuthenticationError.kafka_code, "the user has gone")
        certified = self._gate.certified(self._identity, self._host)
        if certified is not None:
            return certified
        if self._gate.settings.anonymous:
            return Principal(host=self._host)
        self._gate.refused[DOOR, "anonymous"] += 1
        text = 'a user is needed: "username" and "password" in the first line'
        raise Refusal("unauthenticated", AuthenticationError.kafka_code, text)


async def permit(gate: Gate, link: Link, opening: Opening) -> Permit:
    """Finds out who a client is, and whether it may do what it asks for.

    Raises:
        Refusal: it may not.
    """
    name, password = opening.username, opening.password
    if is_internal(opening.stream):
        text = "the node's own streams are not served here"
        raise Refusal("internal_stream", ErrorCode.INVALID_TOPIC_EXCEPTION, text)
    try:
        if (name is None) != (password is None):
            gate.failed(DOOR, link.host)
            raise AuthenticationError("username and password belong together")
        if name is not None and password is not None and not gate.is_open:
            await gate.authenticate(DOOR, name, password.encode(), link.host)
        else:
            name = None
    except AccessError as error:
        raise Refusal("unauthenticated", error.kafka_code, str(error)) from None
    permit = Permit(gate, link, opening, name)
    permit.check()
    return permit
