"""Streams over HTTP, and how one is told. Translates, never decides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiohttp import web
from pydantic import StrictInt, StrictStr  # noqa: TC002 - pydantic reads them

from headrace.adapters.answers import Fields, answer, body, refuse_query
from headrace.config.readers import SettingOfStream  # noqa: TC001 - pydantic reads it
from headrace.kernel.catalog import Change, refuse_queue
from headrace.queue_settings import kept
from headrace.settings import DEFAULTS, effective

if TYPE_CHECKING:
    from headrace.ports import Administration, StreamReport


class StreamBody(Fields):
    """What of a stream changes."""

    partitions: StrictInt | None = None
    filters: list[StrictStr] | None = None
    key: StrictStr | None = None
    settings: dict[str, SettingOfStream | None] | None = None

    def change(self) -> Change:
        """As the catalog takes it."""
        return Change(self.partitions, self.filters, self.key, self.settings)


class _NewStreamBody(StreamBody):
    name: StrictStr


class StreamRoutes:
    """The routes about streams."""

    def __init__(self, node: Administration) -> None:
        self._node = node

    def routes(self) -> list[web.RouteDef]:
        """To add to an application."""
        return [
            web.get("/api/v1/streams", self._list),
            web.post("/api/v1/streams", self._create),
            web.get("/api/v1/streams/{name}", self._describe),
            web.patch("/api/v1/streams/{name}", self._alter),
            web.delete("/api/v1/streams/{name}", self._delete),
        ]

    async def _list(self, request: web.Request) -> web.Response:
        del request
        return answer({"streams": [told(each) for each in self._node.streams()]})

    async def _create(self, request: web.Request) -> web.Response:
        asked = await body(request, _NewStreamBody)
        await self._node.create_stream(asked.name, asked.change())
        return answer(_described(self._node.stream(asked.name)), status=201)

    async def _describe(self, request: web.Request) -> web.Response:
        return answer(_described(self._node.stream(request.match_info["name"])))

    async def _alter(self, request: web.Request) -> web.Response:
        asked = await body(request, StreamBody)
        name = request.match_info["name"]
        await self._node.alter_stream(name, asked.change())
        return answer(_described(self._node.stream(name)))

    async def _delete(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        refuse_query(request)
        refuse_queue(self._node.stream(name).definition)
        await self._node.delete_stream(name)
        return answer({"deleted": name})


def told(report: StreamReport) -> dict[str, Any]:
    """A stream, as a list has it."""
    definition = report.definition
    return {
        "name": definition.name,
        "kind": "stream" if definition.queue is None else "queue",
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


def held(report: StreamReport) -> dict[str, Any]:
    """Every setting that holds for a stream, and who says so."""
    definition = report.definition
    builtin = DEFAULTS if definition.queue is None else kept(DEFAULTS)
    settings = effective(definition.settings, report.defaults, builtin)
    return {name: each._asdict() for name, each in settings.items()}


def _described(report: StreamReport) -> dict[str, Any]:
    """With what holds for it, whoever says so."""
    return {**told(report), "effective": held(report)}
