"""Who calls over HTTP: the guard in front of every route, and the routes about users.

Without users and rules everybody on this machine may do everything; with them, every request but
`/health` and `/ready` needs a user, and whatever manages or tells of others needs the role `admin`.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web
from pydantic import Field, StrictStr

from headrace.adapters.answers import Fields, answer, body, problem
from headrace.errors import AuthenticationError, ForbiddenError
from headrace.kernel import access
from headrace.kernel.credentials import ADMIN

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from headrace.kernel.credentials import User
    from headrace.ports import Gatekeeper

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

DOOR: Final = "http"

OPEN_TO_ALL: Final = frozenset({"/health", "/ready"})

OF_USERS: Final = frozenset(
    {
        ("GET", "/metrics"),
        ("POST", "/api/v1/publish"),
        *(
            ("POST", f"/api/v1/queues/{{name}}/{what}")
            for what in ("messages", "pull", "ack", "nack", "reject", "extend")
        ),
    }
)
"""What users may do who are no admins, beside looking (`FOR_USERS`)."""

FOR_USERS: Final = (
    "/api/v1/streams",
    "/api/v1/queues",
    "/api/v1/gpus",
    "/api/v1/detections",
    "/api/v1/fleet/",
)
"""Beginnings of what users may look at; telemetry where they may read its stream."""

USER: Final = "user"
"""Where a request keeps who calls."""


class Guard:
    """Lets requests in."""

    def __init__(self, gate: Gatekeeper) -> None:
        self._gate = gate

    @web.middleware
    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answers 401 or 403, or lets the request through."""
        if request.path in OPEN_TO_ALL:
            return await handler(request)
        origin = request.headers.get("Origin")
        if self._gate.is_open:
            refusal = access.call(request.host, origin)
        else:
            refusal = access.page(request.host, origin)
        if refusal is not None:
            return problem(403, "forbidden", refusal)
        if not self._gate.is_open:
            try:
                request[USER] = await self._user(request)
            except AuthenticationError as error:
                refused = problem(error.http_status, "authentication", str(error))
                refused.headers["WWW-Authenticate"] = 'Basic realm="headrace", charset="UTF-8"'
                return refused
        return await handler(request)

    async def _user(self, request: web.Request) -> User:
        """Who calls.

        Raises:
            AccessError: nobody who may do that.
        """
        name, password = _credentials(request.headers.get("Authorization", ""))
        user = await self._gate.authenticate(DOOR, name, password, request.remote)
        if not user.is_admin and not _is_for_users(request):
            raise ForbiddenError(f"user {user.name!r} needs the role {ADMIN} for that")
        return user


def _is_for_users(request: web.Request) -> bool:
    is_look = request.method == "GET" and request.path.startswith(FOR_USERS)
    resource = request.match_info.route.resource
    return is_look or (resource is not None and (request.method, resource.canonical) in OF_USERS)


def _credentials(header: str) -> tuple[str, bytes]:
    """Name and password of `Authorization: Basic` (RFC 7617).

    Raises:
        AuthenticationError: there are none.
    """
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        raise AuthenticationError("this node wants a user name and a password")
    try:
        name, colon, password = base64.b64decode(encoded, validate=True).partition(b":")
        if colon:
            return name.decode(), password
    except (binascii.Error, UnicodeDecodeError):
        pass
    raise AuthenticationError("the Authorization header is malformed")


def may_publish(gate: Gatekeeper, request: web.Request, topic: str) -> None:
    """Holds a publish against the rules.

    Raises:
        ForbiddenError: whoever calls may not publish there.
    """
    user: User | None = request.get(USER)
    if not gate.may_publish(user, request.remote, topic):
        raise ForbiddenError(f"no rule lets you publish to {topic!r}")


def may_subscribe(gate: Gatekeeper, request: web.Request, topic_filter: str) -> None:
    """Holds a look at messages against the rules.

    Raises:
        ForbiddenError: whoever calls may not see all that the filter matches.
    """
    user: User | None = request.get(USER)
    if not gate.may_subscribe(user, request.remote, topic_filter):
        raise ForbiddenError(f"no rule lets you subscribe to all of {topic_filter!r}")


class _NewUserBody(Fields):
    name: StrictStr
    password: StrictStr | None = None
    roles: list[StrictStr] = Field(default_factory=list)


class _UserBody(Fields):
    password: StrictStr | None = None
    roles: list[StrictStr] | None = None


class UserRoutes:
    """The routes about users."""

    def __init__(self, gate: Gatekeeper) -> None:
        self._gate = gate

    def routes(self) -> list[web.RouteDef]:
        """To add to an application."""
        return [
            web.get("/api/v1/users", self._list),
            web.post("/api/v1/users", self._add),
            web.patch("/api/v1/users/{name}", self._change),
            web.delete("/api/v1/users/{name}", self._remove),
        ]

    async def _list(self, request: web.Request) -> web.Response:
        del request
        return answer({"users": [_told(user) for user in self._gate.users()]})

    async def _add(self, request: web.Request) -> web.Response:
        asked = await body(request, _NewUserBody)
        await self._gate.add(asked.name, _bytes(asked.password), asked.roles)
        return answer({"added": asked.name}, status=201)

    async def _change(self, request: web.Request) -> web.Response:
        asked, name = await body(request, _UserBody), request.match_info["name"]
        await self._gate.change(name, _bytes(asked.password), asked.roles)
        return answer({"changed": name})

    async def _remove(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        await self._gate.remove(name)
        return answer({"removed": name})


def _bytes(password: str | None) -> bytes | None:
    return None if password is None else password.encode()


def _told(user: User) -> dict[str, Any]:
    return {"name": user.name, "roles": list(user.roles), "password": user.password is not None}
