"""An HTTP server of ours: answers are its routes', how it stands up to clients is here.

Owns accepting, the time that a request may take, and the words of every refusal. Answers are JSON;
errors are `{"error": kind, "detail": one line}` with the status of the error's class. Bodies,
connections and names are bounded.
"""

from __future__ import annotations

import asyncio
import logging
import re
from typing import TYPE_CHECKING

from aiohttp import web

from headrace import limits
from headrace.adapters.answers import problem
from headrace.adapters.http_connections import Connections
from headrace.adapters.http_refusals import Connection
from headrace.adapters.sockets import bind, listen
from headrace.errors import HeadraceError
from headrace.model import Address
from headrace.text import remedy

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable, Iterable

    from aiohttp.typedefs import Middleware

    from headrace.adapters.tls import Certificates

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

log = logging.getLogger(__name__)


class HttpServer:
    """Serves routes.

    Args:
        routes: what is answered.
        guard: asked before anything of a request's body is read.
        body_bytes_max: larger bodies are refused.
        request_ms_max: from accept to a whole first request, and for the body of each.
        idle_ms_max: from an answer to the next whole request.
        handshake_ms_max: of TLS.
    """

    def __init__(
        self,
        routes: Iterable[web.RouteDef],
        guard: Middleware,
        *,
        body_bytes_max: int,
        request_ms_max: int = limits.HTTP_REQUEST_MS,
        idle_ms_max: int = limits.HTTP_IDLE_MS,
        handshake_ms_max: int = limits.HANDSHAKE_MS,
    ) -> None:
        self.connections = Connections(request_ms_max, idle_ms_max)
        self._handshake_s_max = handshake_ms_max / 1000
        app = web.Application(
            middlewares=[_answer_errors, guard, self._in_time], client_max_size=body_bytes_max
        )
        app.add_routes(routes)
        self._runner = web.AppRunner(app, shutdown_timeout=limits.LINGER_SECONDS)
        self._socket: socket.socket | None = None
        self._certificates: Certificates | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._arrivals: set[asyncio.Task[None]] = set()

    async def open(self, address: Address, certificates: Certificates | None = None) -> Address:
        """Binds and serves, over TLS where there are certificates; the address as bound.

        Raises:
            StartError: the address cannot be bound.
        """
        await self._runner.setup()
        self._socket = bind(address)
        bound = listen(self._socket)
        assert isinstance(bound, Address), "a TCP socket"
        self._certificates = certificates
        self._accepting = asyncio.create_task(self._accept(self._socket))
        return bound

    async def close(self) -> None:
        """Accepts no more, answers what is in flight, closes."""
        ending = list(self._arrivals)
        if self._accepting is not None:
            ending.append(self._accepting)
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        if self._socket is not None:
            self._socket.close()
        await self._runner.cleanup()

    async def _accept(self, listening: socket.socket) -> None:
        """Takes connections; by itself, for a server of the loop hands none out before its TLS."""
        loop = asyncio.get_running_loop()
        listening.settimeout(0)
        while True:
            try:
                sock, _ = await loop.sock_accept(listening)
            except OSError as error:
                what = remedy(error, "it is tried again")
                log.warning("no HTTP connection can be taken: %s; %s", error.strerror, what)
                await asyncio.sleep(limits.HTTP_ACCEPT_PAUSE_SECONDS)
                continue
            if not self.connections.has_room():
                sock.close()
                continue
            connection = self._make()
            self.connections.coming(connection, sock)
            arrival = asyncio.create_task(self._arrive(connection, sock))
            self._arrivals.add(arrival)
            arrival.add_done_callback(self._arrivals.discard)

    async def _arrive(self, connection: Connection, sock: socket.socket) -> None:
        """Puts its layers on one connection, with the certificates as they are now."""
        certificates = self._certificates
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection,
                sock,
                ssl=certificates.context if certificates else None,
                ssl_handshake_timeout=self._handshake_s_max if certificates else None,
            )
        except OSError as error:  # ssl.SSLError is one
            log.debug("an HTTP connection came to nothing: %s", error)
        finally:
            self.connections.not_opened(connection)

    def _make(self) -> Connection:
        server = self._runner.server
        assert server is not None, "set up before it listens"
        return Connection.of(
            self.connections,
            server,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=2 * limits.HTTP_IDLE_MS_CEILING / 1000,  # it is ended before
            access_log=None,
            max_line_size=limits.HTTP_LINE_BYTES_MAX,
            auto_decompress=False,  # that would be work of the event loop
            lingering_time=limits.LINGER_SECONDS,
        )

    @web.middleware
    async def _in_time(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Reads the body before anything is done, and gives up on one that does not come."""
        assert isinstance(request.protocol, Connection), "made by this door"
        _still_there(request)
        self.connections.begun(request.protocol)
        request_s_max = self.connections.request_s_max
        try:
            async with asyncio.timeout(request_s_max):
                await request.read()  # which the request keeps
        except TimeoutError:
            request.protocol.close()  # once it is answered
            raise web.HTTPRequestTimeout(
                text=f"the body did not come within {request_s_max:g} s"
            ) from None
        _still_there(request)
        self.connections.busy(request.protocol)
        return await handler(request)


def _still_there(request: web.Request) -> None:
    if request.transport is None:
        raise ConnectionResetError("it gave way before its request was whole")


@web.middleware
async def _answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except HeadraceError as error:
        kind = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(error).__name__.removesuffix("Error"))
        return problem(error.http_status, kind.lower(), str(error))
    except web.HTTPException as error:
        if request.match_info.http_exception is error and error.status == 404:
            return problem(404, "not_found", f"nothing is served at {request.path}")
        return problem(error.status, error.reason.lower().replace(" ", "_"), error.text or "")
    except ConnectionError:  # it hung up before its body was whole: nobody hears this
        return problem(408, "request_timeout", "the connection is gone")
    except Exception:
        log.exception("%s %s failed", request.method, request.path)
        return problem(500, "internal", "a fault of the server; its log says more")
