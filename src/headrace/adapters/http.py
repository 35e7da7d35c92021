"""The HTTP door: health, metrics, administration, publish. Translates, never decides."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Annotated

from aiohttp import web
from pydantic import Field, StrictBool, StrictInt, StrictStr

from headrace import limits
from headrace.adapters.answers import MessageFields, answer, body
from headrace.adapters.http_access import Guard, UserRoutes, may_publish
from headrace.adapters.http_clients import ClientRoutes
from headrace.adapters.http_groups import GroupRoutes
from headrace.adapters.http_queue_messages import QueueMessageRoutes
from headrace.adapters.http_queues import QueueRoutes
from headrace.adapters.http_server import HttpServer
from headrace.adapters.http_streams import StreamRoutes
from headrace.adapters.http_telemetry import TelemetryRoutes
from headrace.adapters.http_trace import TraceRoutes
from headrace.adapters.metrics import METRICS_TYPE, Exporter
from headrace.ports import NodeState

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from headrace.adapters.tls import Certificates
    from headrace.model import Address
    from headrace.ports import Administration


class _PublishBody(MessageFields):
    topic: StrictStr
    qos: Annotated[StrictInt, Field(ge=0, le=1)] = 1
    retain: StrictBool = False


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
        self.telemetry = TelemetryRoutes(node.gate)
        self._server = HttpServer(
            [
                web.get("/health", self._health),
                web.get("/ready", self._ready),
                web.get("/metrics", self._metrics),
                web.post("/api/v1/publish", self._publish),
                web.post("/api/v1/config/reload", self._reload),
                *StreamRoutes(node).routes(),
                *QueueRoutes(node).routes(),
                *QueueMessageRoutes(node).routes(),
                *ClientRoutes(node.clients).routes(),
                *GroupRoutes(node.groups).routes(),
                *TraceRoutes(node.clients).routes(),
                *UserRoutes(node.gate).routes(),
                *self.telemetry.routes(),
            ],
            Guard(node.gate).check,
            body_bytes_max=body_bytes_max,
            request_ms_max=request_ms_max,
            idle_ms_max=idle_ms_max,
            handshake_ms_max=handshake_ms_max,
        )
        samples = (node.samples, self._server.connections.samples, self.telemetry.samples)
        self._exporter = Exporter(
            lambda: chain.from_iterable(each() for each in samples), node.histograms
        )

    async def open(self, address: Address, certificates: Certificates | None = None) -> Address:
        """Binds and serves, over TLS where there are certificates; the address as bound.

        Raises:
            StartError: the address cannot be bound.
        """
        return await self._server.open(address, certificates)

    def set_timeouts(self, request_ms_max: int, idle_ms_max: int) -> None:
        """Of requests and connections that come from now on."""
        self._server.connections.set_timeouts(request_ms_max, idle_ms_max)

    async def close(self) -> None:
        """Accepts no more, answers what is in flight, closes."""
        await self._server.close()
        await self.telemetry.close()

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
