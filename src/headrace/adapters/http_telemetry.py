"""Telemetry over the HTTP door: requests that `headrace api` answers, a process of its own.

Owns who may ask, and what becomes of an answer on its way. Must not know what is in it. The node's
loop only moves bytes, as fast as the client takes them; nothing waits without an end.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import aiohttp
from aiohttp import web
from yarl import URL

from headrace import limits
from headrace.adapters.http_access import USER
from headrace.adapters.http_refusals import Connection
from headrace.errors import ForbiddenError, UnavailableError
from headrace.ports import Sample

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.kernel.credentials import User
    from headrace.ports import Gatekeeper

_PASSED_BY: Final = "1.1 headrace"
"""`Via` (RFC 9110, 7.6.3) of what this door passes on: a loop shows by it."""

_TIMES: Final = aiohttp.ClientTimeout(
    total=limits.HTTP_PROXIED_SECONDS, sock_connect=limits.HTTP_PROXIED_CONNECT_SECONDS
)


class TelemetryRoutes:
    """The routes about GPUs, their detections, and the fleet."""

    def __init__(self, gate: Gatekeeper) -> None:
        self._gate = gate
        self._api: URL | None = None
        self._stream = ""
        self._session: aiohttp.ClientSession | None = None
        self._outcomes = Counter({"answered": 0, "unset": 0, "unreachable": 0, "cut": 0})

    def configure(self, api: str | None, stream: str) -> None:
        """Where answers come from, and of which stream they tell."""
        self._api, self._stream = None if api is None else URL(api), stream

    def routes(self) -> list[web.RouteDef]:
        """To add to an application."""
        return [
            web.get("/api/v1/gpus", self._pass),
            web.get("/api/v1/gpus/{rest:.+}", self._pass),
            web.get("/api/v1/detections", self._pass),
            web.get("/api/v1/fleet/{rest:.+}", self._pass),
        ]

    async def close(self) -> None:
        """Ends what is open to the other process."""
        if self._session is not None:
            await self._session.close()

    def samples(self) -> Iterator[Sample]:
        """What became of requests."""
        for outcome, count in self._outcomes.items():
            yield Sample(
                "http_telemetry_requests_total",
                count,
                "Requests for telemetry by what became of them at pipeline.api.",
                (("outcome", outcome),),
            )

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        if {".", ".."} & set(request.path.split("/")):
            # It would leave what is passed on: the other end, or a URL, may put such a path right.
            raise web.HTTPNotFound(text=f"nothing is served at {request.path}")
        user: User | None = request.get(USER)
        if not self._gate.may_read(user, request.remote, self._stream):
            raise ForbiddenError(f"no rule lets you read the stream {self._stream!r}")
        if self._api is None:
            self._outcomes["unset"] += 1
            raise UnavailableError(
                "this node shows no telemetry: run headrace api, and name its URL in [pipeline] api"
            )
        if _PASSED_BY in request.headers.getall("Via", ()):
            raise UnavailableError(
                f"{self._api} is this node itself; [pipeline] api must name a headrace api"
            )
        url = self._api.join(URL(request.rel_url.raw_path_qs, encoded=True))
        try:
            answered = await self._open().get(
                url, headers={"Via": _PASSED_BY}, allow_redirects=False
            )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._outcomes["unreachable"] += 1
            why = "it did not answer in time" if isinstance(error, TimeoutError) else str(error)
            raise UnavailableError(
                f"{self._api} cannot be reached: {why or type(error).__name__}; is headrace api "
                "running, as [pipeline] api says?"
            ) from None
        async with answered:
            return await self._stream_back(request, answered)

    async def _stream_back(
        self, request: web.Request, answered: aiohttp.ClientResponse
    ) -> web.StreamResponse:
        response = web.StreamResponse(
            status=answered.status, headers={"Content-Type": answered.headers["Content-Type"]}
        )
        response.content_length = answered.content_length
        await response.prepare(request)
        passed = 0
        try:
            async for piece in answered.content.iter_chunked(limits.HTTP_PROXIED_PIECE_BYTES):
                passed += len(piece)
                if passed > limits.HTTP_PROXIED_BYTES_MAX:
                    raise aiohttp.ClientPayloadError("longer than any answer")
                await response.write(piece)
        except (aiohttp.ClientError, TimeoutError):
            # Its status is sent: that it is not whole only its end can say.
            self._outcomes["cut"] += 1
            assert isinstance(request.protocol, Connection), "made by this door"
            request.protocol.end()
            return response
        self._outcomes["answered"] += 1
        await response.write_eof()
        return response

    def _open(self) -> aiohttp.ClientSession:
        """Connections to the other process, of which few do much."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=limits.HTTP_PROXIED_CONNECTIONS),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=_TIMES,
                auto_decompress=False,
            )
        return self._session
