"""Clients of MQTT that connect or authenticate, and the answer of the gate to each.

Owns what the gate's verdicts look like on the wire, and exchanges of SCRAM that are under way (MQTT
5.0 3.1.4, 4.12). A verdict that is known is given at once; what must be checked is waited for
beside the loop, while the client's further input waits in the switchboard.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from headrace.errors import AccessError, AuthenticationError, BusyError
from headrace.kernel.credentials import MECHANISMS
from headrace.native import Principal

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.kernel.scram import Exchange
    from headrace.native import ConnectRequest, Switchboard
    from headrace.node.access import Gate
    from headrace.ports import Clock, Link

log = logging.getLogger(__name__)

DOOR: Final = "mqtt"

SUCCESS: Final = 0x00
CONTINUE_AUTHENTICATION: Final = 0x18
NOT_AUTHORIZED: Final = 0x87
BAD_AUTHENTICATION_METHOD: Final = 0x8C
"""Reason codes (MQTT 5.0 table 2-6)."""


class Knocks:
    """Answers what the switchboard asks of policy."""

    def __init__(
        self, gate: Gate, switchboard: Switchboard, clock: Clock, wake: Callable[[], None]
    ) -> None:
        self._gate = gate
        self._switchboard = switchboard
        self._clock = clock
        self._wake = wake
        self._exchanges: dict[int, Exchange] = {}  # the last one of each connection
        self._tasks: set[asyncio.Task[None]] = set()

    def decide(self, request: ConnectRequest, link: Link) -> None:
        """Answers now or later."""
        identity = link.identity
        if identity is not None:
            log.debug("its certificate names %s", identity, extra={"client": link.peer})
        try:
            if request.auth_method is not None:
                self._authenticate(request, link.host)
            elif self._gate.is_open:
                self._answer(request, SUCCESS)
            else:
                self._connect(request, identity, link.host)
        except AccessError as error:
            self._refuse(request, link, error)

    def forget(self, connection: int) -> None:
        """The connection is gone."""
        self._exchanges.pop(connection, None)

    def _connect(self, request: ConnectRequest, identity: str | None, host: str | None) -> None:
        """CONNECT with a certificate, a user and password, or nothing.

        Raises:
            AccessError: the client is not let in.
        """
        name, password = request.username, request.password
        if password is None and name in (None, identity):
            certified = self._gate.certified(identity, host)
            if certified is not None:
                return self._answer(request, SUCCESS, certified)
        if name is None and password is None:
            if not self._gate.settings.anonymous:
                self._gate.refused[DOOR, "anonymous"] += 1
                self._answer(request, NOT_AUTHORIZED)
            else:
                self._answer(request, SUCCESS, Principal(host=host))
            return None
        if name is None or password is None:
            self._gate.failed(DOOR, host)
            raise AuthenticationError("a user name and a password belong together")
        user = self._gate.known(DOOR, name, password, host)
        if user is not None:
            return self._answer(request, SUCCESS, self._gate.principal(user, host))
        task = asyncio.get_running_loop().create_task(self._check(request, name, password, host))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return None

    async def _check(
        self, request: ConnectRequest, name: str, password: bytes, host: str | None
    ) -> None:
        try:
            user = await self._gate.authenticate(DOOR, name, password, host)
        except AccessError as error:
            self._answer(request, error.mqtt_code)
        else:
            self._answer(request, SUCCESS, self._gate.principal(user, host))

    def _authenticate(self, request: ConnectRequest, host: str | None) -> None:
        """A step of SCRAM.

        Raises:
            AccessError: the client is not let in, or not any more.
        """
        method, data = request.auth_method, request.auth_data
        if method is None or method not in MECHANISMS:
            self._gate.refused[DOOR, "method"] += 1
            return self._answer(request, BAD_AUTHENTICATION_METHOD)
        if data is None:
            raise AuthenticationError("SCRAM: the client begins")
        before = self._exchanges.get(request.connection)
        if request.asks == "continue":
            assert before is not None, "an exchange goes on that has begun"
            return self._conclude(request, before, data, host)
        self._gate.admit_try(DOOR, host)
        exchange = self._gate.exchange(method)
        answer = exchange.first(data)
        if before is not None and exchange.username != before.username:
            raise AuthenticationError("a client authenticates again as the same user")
        self._exchanges[request.connection] = exchange
        return self._answer(request, CONTINUE_AUTHENTICATION, data=answer)

    def _conclude(
        self, request: ConnectRequest, exchange: Exchange, data: bytes, host: str | None
    ) -> None:
        answer = exchange.final(data)
        user = self._gate.get(exchange.username)
        if user is None:
            raise BusyError("the user has gone meanwhile")
        self._answer(request, SUCCESS, self._gate.principal(user, host), answer)

    def _refuse(self, request: ConnectRequest, link: Link, error: AccessError) -> None:
        log.debug("not let in: %s", error, extra={"client": link.peer})
        if request.auth_method is not None and isinstance(error, AuthenticationError):
            self._gate.failed(DOOR, link.host)
        code = error.mqtt_code
        # DISCONNECT does not know "bad user name or password" (3.14.2.1).
        if request.asks == "reauthenticate" or (
            isinstance(error, AuthenticationError) and request.auth_method is not None
        ):
            code = NOT_AUTHORIZED
        self._answer(request, code)

    def _answer(
        self,
        request: ConnectRequest,
        code: int,
        principal: Principal | None = None,
        data: bytes | None = None,
    ) -> None:
        self._switchboard.decided(request.request, code, *self._clock.now(), data, principal)
        self._wake()
