"""Live traces over HTTP, a JSON object a line. Translates, never decides."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

from aiohttp import web
from pydantic import Field

from headrace import limits
from headrace.adapters.answers import Fields, bad_request, query
from headrace.adapters.http_clients import payload
from headrace.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.native import TraceLine
    from headrace.ports import Clients, Trace


class _TraceQuery(Fields):
    client: Annotated[str, Field(min_length=1)] | None = None
    topic: str | None = None
    seconds: Annotated[float, Field(gt=0, le=limits.TRACE_SECONDS_MAX)] = 60
    payload: Annotated[int, Field(ge=0, le=limits.TRACE_PAYLOAD_BYTES_MAX)] = 0


class TraceRoutes:
    """The route of live traces."""

    def __init__(self, clients: Callable[[], Clients]) -> None:
        """`clients` raises `UnavailableError` while the node does not serve."""
        self._clients = clients

    def routes(self) -> list[web.RouteDef]:
        """To add to an application."""
        return [web.get("/api/v1/trace", self._trace)]

    async def _trace(self, request: web.Request) -> web.StreamResponse:
        asked = query(request, _TraceQuery)
        if (asked.client is None) == (asked.topic is None):
            raise bad_request("give one of client and topic: what to trace")
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        with self._clients().trace(asked.client, asked.topic, asked.payload) as trace:
            await response.prepare(request)
            # Who looked has left, or the node stops.
            with suppress(ConnectionError, UnavailableError):
                await self._stream(request, response, trace, asked)
        return response

    async def _stream(
        self,
        request: web.Request,
        response: web.StreamResponse,
        trace: Trace,
        asked: _TraceQuery,
    ) -> None:
        """Writes what is seen, until the time is over or nobody looks any more."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + asked.seconds
        spoken_at = -limits.TRACE_BEAT_SECONDS * 1.0  # the first line says that it stands
        while (now := loop.time()) < ends_at:
            self._clients()
            if request.transport is None or request.transport.is_closing():
                return
            lines, lost = trace.take()
            told = [{"event": "lost", "lines": lost}] if lost else []
            told += [_line(line, shows_payload=asked.payload > 0) for line in lines]
            if told or now - spoken_at >= limits.TRACE_BEAT_SECONDS:
                text = "\n".join(json.dumps(each) for each in told) + "\n"
                await response.write(text.encode())
                spoken_at = now
            await asyncio.sleep(min(limits.TRACE_POLL_MS / 1000, max(ends_at - now, 0.0)))


def _line(line: TraceLine, *, shows_payload: bool) -> dict[str, Any]:
    """What is there to be told, and nothing else."""
    time = datetime.fromtimestamp(line.wall_ms / 1000, UTC)
    told: dict[str, Any] = {
        "time": time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "event": line.way,
        "client": line.client_id,
        "packet": line.packet,
        "id": line.packet_id,
        "topic": line.topic,
    }
    if line.packet == "PUBLISH":
        told |= {"qos": line.qos, "retain": line.retain, "dup": line.dup}
    told |= {"bytes": line.bytes, "text": line.text}
    told = {name: value for name, value in told.items() if value not in {"", 0} or name == "qos"}
    if line.reason_code is not None:
        told["reason_code"] = line.reason_code
    if shows_payload and line.packet == "PUBLISH":
        told |= payload(line.payload, line.bytes)
    return told
