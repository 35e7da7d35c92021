"""The HTTP door: health, metrics, administration, publish. Translates, never decides.

Answers are JSON; errors are `{"error": kind, "detail": one line}` with the status of the error's
class. Bodies, connections and names are bounded.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import re
from typing import TYPE_CHECKING, Annotated, Any

from aiohttp import web
from pydantic import Field, StrictBool, StrictInt, StrictStr

from headrace import limits
from headrace.adapters.answers import Fields, answer, bad_request, body, problem
from headrace.adapters.http_access import Guard, UserRoutes, may_publish
from headrace.adapters.http_clients import ClientRoutes
from headrace.adapters.http_connections import Connections
from headrace.adapters.http_groups import GroupRoutes
from headrace.adapters.http_refusals import Connection
from headrace.adapters.http_trace import TraceRoutes
from headrace.adapters.metrics import Exporter
from headrace.adapters.sockets import bind, listen
from headrace.config.readers import SettingOfStream  # noqa: TC001 - pydantic reads it
from headrace.errors import HeadraceError
from headrace.kernel.catalog import Change
from headrace.model import Address
from headrace.ports import NodeState
from headrace.settings import effective
from headrace.text import remedy

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable

    from headrace.adapters.tls import Certificates
    from headrace.ports import Administration, StreamReport

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

log = logging.getLogger(__name__)


METRICS_TYPE = "text/plain; version=1.0.0; charset=utf-8"


class _StreamBody(Fields):
    partitions: StrictInt | None = None
    filters: list[StrictStr] | None = None
    key: StrictStr | None = None
    settings: dict[str, SettingOfStream | None] | None = None

    def change(self) -> Change:
        return Change(self.partitions, self.filters, self.key, self.settings)


class _NewStreamBody(_StreamBody):
    name: StrictStr


class _PublishBody(Fields):
    topic: StrictStr
    payload: StrictStr | None = None
    payload_base64: StrictStr | None = None
    qos: Annotated[StrictInt, Field(ge=0, le=1)] = 1
    retain: StrictBool = False
    properties: dict[StrictStr, StrictStr] = Field(default_factory=dict)

    def content(self) -> bytes:
        if (self.payload is None) == (self.payload_base64 is None):
            raise bad_request("give one of payload (text) and payload_base64")
        if self.payload is not None:
            return self.payload.encode()
        try:
            return base64.b64decode(self.payload_base64 or "", validate=True)
        except binascii.Error as error:
            raise bad_request(f"payload_base64: {error}") from None


class HttpDoor:
    """A node's HTTP server."""

    def __init__(
        self,
        node: Administration,
        body_bytes_max: int,
        request_ms_max: int = limits.HTTP_REQUEST_MS,
        idle_ms_max: int = limits.HTTP_IDLE_MS,
        handshake_ms_max: int = limits.HANDSHAKE_MS,
        reload: Callable[[], Awaitable[dict[str, list[str]]]] | None = None,
    ) -> None:
        self._node = node
        self._reload_settings = reload
        self._connections = Connections(request_ms_max, idle_ms_max)
        self._exporter = Exporter(node, self._connections.samples)
        self._handshake_s_max = handshake_ms_max / 1000
        app = web.Application(
            middlewares=[_answer_errors, Guard(node.gate).check, self._in_time],
            client_max_size=body_bytes_max,
        )
        app.add_routes(
            [
                web.get("/health", self._health),
                web.get("/ready", self._ready),
                web.get("/metrics", self._metrics),
                web.get("/api/v1/streams", self._list_streams),
                web.post("/api/v1/streams", self._create_stream),
                web.get("/api/v1/streams/{name}", self._describe_stream),
                web.patch("/api/v1/streams/{name}", self._alter_stream),
                web.delete("/api/v1/streams/{name}", self._delete_stream),
                web.post("/api/v1/publish", self._publish),
                web.post("/api/v1/config/reload", self._reload),
                *ClientRoutes(node.clients).routes(),
                *GroupRoutes(node.groups).routes(),
                *TraceRoutes(node.clients).routes(),
                *UserRoutes(node.gate).routes(),
            ]
        )
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

    def set_timeouts(self, request_ms_max: int, idle_ms_max: int) -> None:
        """Of requests and connections that come from now on."""
        self._connections.set_timeouts(request_ms_max, idle_ms_max)

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
            if not self._connections.has_room():
                sock.close()
                continue
            connection = self._make()
            self._connections.coming(connection, sock)
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
            self._connections.not_opened(connection)

    def _make(self) -> Connection:
        server = self._runner.server
        assert server is not None, "set up before it listens"
        return Connection.of(
            self._connections,
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
        self._connections.begun(request.protocol)
        request_s_max = self._connections.request_s_max
        try:
            async with asyncio.timeout(request_s_max):
                await request.read()  # which the request keeps
        except TimeoutError:
            request.protocol.close()  # once it is answered
            raise web.HTTPRequestTimeout(
                text=f"the body did not come within {request_s_max:g} s"
            ) from None
        _still_there(request)
        self._connections.busy(request.protocol)
        return await handler(request)

    async def _health(self, request: web.Request) -> web.Response:
        del request
        return answer({"status": "ok", "node": self._node.name})

    async def _ready(self, request: web.Request) -> web.Response:
        del request
        state, reason = self._node.state, self._node.reason
        status = 200 if state is NodeState.READY else 503
        return answer({"status": state, "reason": reason}, status=status)

    async def _metrics(self, request: web.Request) -> web.Response:
        del request
        return web.Response(body=self._exporter.render(), headers={"Content-Type": METRICS_TYPE})

    async def _list_streams(self, request: web.Request) -> web.Response:
        del request
        return answer({"streams": [_report(each) for each in self._node.streams()]})

    async def _create_stream(self, request: web.Request) -> web.Response:
        asked = await body(request, _NewStreamBody)
        await self._node.create_stream(asked.name, asked.change())
        return answer(_described(self._node.stream(asked.name)), status=201)

    async def _describe_stream(self, request: web.Request) -> web.Response:
        return answer(_described(self._node.stream(request.match_info["name"])))

    async def _alter_stream(self, request: web.Request) -> web.Response:
        asked = await body(request, _StreamBody)
        name = request.match_info["name"]
        await self._node.alter_stream(name, asked.change())
        return answer(_described(self._node.stream(name)))

    async def _delete_stream(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        await self._node.delete_stream(name)
        return answer({"deleted": name})

    async def _publish(self, request: web.Request) -> web.Response:
        asked = await body(request, _PublishBody)
        may_publish(self._node.gate, request, asked.topic)
        properties = list(asked.properties.items())
        published = await self._node.publish(
            asked.topic, asked.content(), asked.qos, properties, retain=asked.retain
        )
        return answer({"stored": published.stored})

    async def _reload(self, request: web.Request) -> web.Response:
        del request
        assert self._reload_settings is not None, (
            "a node that serves HTTP was started with settings"
        )
        return answer(await self._reload_settings())


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
        return problem(500, "internal", "a fault of the node; its log says more")


def _report(report: StreamReport) -> dict[str, Any]:
    definition = report.definition
    return {
        "name": definition.name,
        "filters": list(definition.filters),
        "key": definition.key,
        "settings": dict(definition.settings),
        "partitions": [
            {
                "partition": each.partition,
                "start": each.start,
                "end": each.end,
                "size_bytes": each.size_bytes,
            }
            for each in report.partitions
        ],
    }


def _described(report: StreamReport) -> dict[str, Any]:
    """With what holds for it, whoever says so."""
    settings = effective(report.definition.settings, report.defaults)
    held = {name: each._asdict() for name, each in settings.items()}
    return {**_report(report), "effective": held}
