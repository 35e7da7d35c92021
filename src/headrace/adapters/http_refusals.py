"""One connection of the HTTP door, and what the library refuses by itself, before any route.

Owns the words for bytes that are no request. Must not know routes.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, cast

from aiohttp import web
from aiohttp.http import HttpProcessingError

from headrace.adapters.answers import problem

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from headrace.adapters.http_connections import Connections

log = logging.getLogger(__name__)

DETAIL_LENGTH_MAX = 200
"""Of the library's own words, which may quote what came."""


class Connection(web.RequestHandler):
    """One connection of the door.

    Whatever goes wrong outside of the routes is one line of JSON, and no matter for the log where
    the other end is at fault.
    """

    __slots__ = ("_connections", "_transport", "on_gone")

    on_gone: Callable[[], None] | None
    """Called once it is gone: what is in work for its client may be of use to others."""

    _connections: Connections
    _transport: asyncio.Transport  # the library forgets its own once it closes it

    @classmethod
    def of(
        cls,
        connections: Connections,
        server: web.Server,
        **more: Any,  # noqa: ANN401 - the library's
    ) -> Connection:
        """One that tells `connections` what becomes of it."""
        made = cls(server, **more)
        made._connections = connections
        made.on_gone = None
        return made

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Its layers stand."""
        self._transport = cast("asyncio.Transport", transport)
        super().connection_made(transport)
        self._connections.opened(self)

    @property
    def unread_bytes(self) -> int:
        """What the transport could not send yet.

        Over TLS uvloop takes all of an answer at once and says 0: who does not read it is idle.
        """
        return self._transport.get_write_buffer_size()

    def pause_writing(self) -> None:
        """The transport is full."""
        super().pause_writing()
        self._connections.unread(self)

    def resume_writing(self) -> None:
        """It has room again."""
        super().resume_writing()
        self._connections.read(self)

    def end(self) -> None:
        """Ends it, with what is not sent of an answer: a close would wait for it to be read.

        Over TLS a close would also wait for the client's own, half a minute, for which nobody would
        count the connection.
        """
        self.force_close()
        if self.unread_bytes or self._transport.get_extra_info("ssl_object") is not None:
            self._transport.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        """It is gone."""
        self._connections.closed(self)
        super().connection_lost(exc)
        if self.on_gone is not None:
            self.on_gone()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The last answer of this connection: where a request ended is not known any more."""
        if request.writer.output_size > 0:
            raise ConnectionError("an answer has begun, and there is no other")
        if isinstance(exc, HttpProcessingError):
            answered = problem(status, "bad_request", f"this is no HTTP request: {_line(message)}")
        elif status < 500:
            answered = problem(status, "bad_request", _line(message))
        else:
            log.error("a request failed outside of its route", exc_info=exc)
            answered = problem(status, "internal", "a fault of the server; its log says more")
        answered.force_close()
        return answered

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[Any, bool]:
        """Sends an answer; a refusal that no middleware has seen has the library's own words."""
        if isinstance(resp, web.HTTPException):
            kind = resp.reason.lower().replace(" ", "_")
            resp = problem(resp.status, kind, _line(resp.text))
        try:
            return await super().finish_response(request, resp, start_time)
        finally:
            self._connections.answered(self)


def _line(text: str | None) -> str:
    """What a text says, without the picture below it that points at a byte."""
    lines = [line.strip().rstrip(":") for line in (text or "").splitlines()]
    said = ": ".join(line for line in lines if line and line.strip("^"))
    return said[:DETAIL_LENGTH_MAX]
