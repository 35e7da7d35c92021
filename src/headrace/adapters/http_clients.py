"""Sessions and retained messages over HTTP. Translates, never decides."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from aiohttp import web
from pydantic import Field

from headrace import limits
from headrace.adapters.answers import Fields, answer, query

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.native import RetainedMessage, SessionReport, SessionSummary
    from headrace.ports import Clients, Origin, StreamReading

VERSIONS: Final = {4: "3.1.1", 5: "5.0"}

_Limit = Annotated[int, Field(ge=1, le=limits.HTTP_PAGE_MAX)]


class _SessionsQuery(Fields):
    client: Annotated[str, Field(min_length=1)] = "*"
    state: Literal["connected", "away"] | None = None
    limit: _Limit = limits.HTTP_PAGE
    start: Annotated[int, Field(ge=0, lt=2**32)] = 0


class _RetainedQuery(Fields):
    filter: str = "#"
    limit: _Limit = limits.HTTP_PAGE
    start: str = ""
    excerpt: Annotated[int, Field(ge=0, le=limits.HTTP_EXCERPT_BYTES_MAX)] = 0


class _FilterQuery(Fields):
    filter: str


class ClientRoutes:
    """The routes about MQTT clients and retained messages."""

    def __init__(self, clients: Callable[[], Clients]) -> None:
        """`clients` raises `UnavailableError` while the node does not serve."""
        self._clients = clients

    def routes(self) -> list[web.RouteDef]:
        """To add to an application."""
        return [
            web.get("/api/v1/sessions", self._list_sessions),
            web.get("/api/v1/sessions/{client}", self._describe_session),
            web.delete("/api/v1/sessions/{client}", self._delete_session),
            web.post("/api/v1/sessions/{client}/disconnect", self._disconnect),
            web.get("/api/v1/retained", self._list_retained),
            web.delete("/api/v1/retained", self._delete_retained),
            web.get("/api/v1/retained/count", self._count_retained),
            web.get("/api/v1/retained/topics/{topic}", self._retained_message),
        ]

    async def _list_sessions(self, request: web.Request) -> web.Response:
        asked = query(request, _SessionsQuery)
        connected = None if asked.state is None else asked.state == "connected"
        found, following = self._clients().sessions(
            asked.client, connected, asked.start, asked.limit
        )
        sessions = [_summary(summary, origin) for summary, origin in found]
        return answer({"sessions": sessions, "next": following})

    async def _describe_session(self, request: web.Request) -> web.Response:
        client = request.match_info["client"]
        found = self._clients().session(client)
        if found is None:
            raise _no_session(client)
        return answer(_report(*found))

    async def _delete_session(self, request: web.Request) -> web.Response:
        client = request.match_info["client"]
        if not await self._clients().delete_session(client):
            raise _no_session(client)
        return answer({"deleted": client})

    async def _disconnect(self, request: web.Request) -> web.Response:
        client = request.match_info["client"]
        done = await self._clients().disconnect(client)
        if done is None:
            raise _no_session(client)
        if not done:
            raise web.HTTPConflict(text=f"client {client!r} is not connected; its session waits")
        return answer({"disconnected": client})

    async def _list_retained(self, request: web.Request) -> web.Response:
        asked = query(request, _RetainedQuery)
        found, following = self._clients().retained(
            asked.filter, asked.start, asked.limit, asked.excerpt
        )
        messages = [_retained(message, excerpt=asked.excerpt > 0) for message in found]
        return answer({"messages": messages, "next": following})

    async def _retained_message(self, request: web.Request) -> web.Response:
        topic = request.match_info["topic"]
        message = self._clients().retained_message(topic)
        if message is None:
            raise web.HTTPNotFound(text=f"nothing is retained for topic {topic!r}")
        return answer(_retained(message, excerpt=True))

    async def _count_retained(self, request: web.Request) -> web.Response:
        asked = query(request, _FilterQuery)
        return answer({"count": await self._clients().count_retained(asked.filter)})

    async def _delete_retained(self, request: web.Request) -> web.Response:
        asked = query(request, _FilterQuery)
        return answer({"deleted": await self._clients().delete_retained(asked.filter)})


def _no_session(client: str) -> web.HTTPNotFound:
    return web.HTTPNotFound(text=f"no session is named {client!r}")


def _summary(summary: SessionSummary, origin: Origin | None) -> dict[str, Any]:
    return {
        "client": summary.client_id,
        "connected": summary.connection is not None,
        "address": None if origin is None else origin.address,
        "version": VERSIONS.get(summary.protocol_level or 0),
        "expiry_seconds": summary.expiry_s,
        "ends_in_seconds": summary.ends_in_s,
        "subscriptions": summary.subscriptions,
        "queued_messages": summary.queued_messages,
        "held_bytes": summary.held_bytes,
        "in_flight": summary.in_flight,
        "unreleased": summary.unreleased,
        "has_will": summary.has_will,
    }


def _report(
    report: SessionReport, origin: Origin | None, streams: list[StreamReading]
) -> dict[str, Any]:
    will, connection = report.will, report.connection
    names = ("filter", "qos", "no_local", "retain_as_published", "identifier")
    return {
        **_summary(report.summary, origin),
        "filters": [dict(zip(names, each, strict=True)) for each in report.subscriptions],
        "streams": [_reading(each) for each in streams],
        "will": None
        if will is None
        else {
            "topic": will.topic,
            "qos": will.qos,
            "retain": will.retain,
            "bytes": will.bytes,
            "delay_seconds": will.delay_s,
            "due_in_seconds": will.due_in_s,
        },
        "connection": None
        if connection is None or origin is None
        else {
            "identity": origin.identity,
            "keep_alive_seconds": connection.keep_alive_s,
            "silent_ms": connection.silent_ms,
            "outbound_bytes": connection.outbound_bytes,
            "receive_maximum": connection.receive_maximum,
            "rests": connection.rests,
        },
    }


def _reading(reading: StreamReading) -> dict[str, Any]:
    return {
        "filter": reading.filter,
        "stream": reading.stream,
        "deleted": reading.is_deleted,
        "lag": None if reading.is_deleted else sum(each.lag for each in reading.partitions),
        "partitions": [
            {
                "partition": each.partition,
                "position": each.position,
                "end": each.end,
                "lag": each.lag,
            }
            for each in reading.partitions
        ],
    }


def _retained(message: RetainedMessage, *, excerpt: bool) -> dict[str, Any]:
    told = {
        "topic": message.topic,
        "qos": message.qos,
        "bytes": message.bytes,
        "expires_in_seconds": message.expiry_s,
    }
    return told | payload(message.payload, message.bytes) if excerpt else told


def payload(data: bytes, whole_bytes: int) -> dict[str, str]:
    """As text where it is some, else in base64; an excerpt may end within a character."""
    try:
        return {"payload": data.decode()}
    except UnicodeDecodeError as error:
        if len(data) < whole_bytes and error.reason == "unexpected end of data":
            return {"payload": data[: error.start].decode()}
        return {"payload_base64": base64.b64encode(data).decode()}
