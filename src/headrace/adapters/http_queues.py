"""Queues over HTTP: the streams that they are, and their groups. Translates, never decides."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from aiohttp import web
from pydantic import BeforeValidator, StrictStr

from headrace.adapters.answers import Fields, answer, body, refuse_query
from headrace.adapters.http_streams import StreamBody, held, told
from headrace.errors import InvalidStartError
from headrace.kernel import positions
from headrace.kernel.catalog import Change
from headrace.queue_settings import QUEUE_DEFAULTS, split
from headrace.settings import effective

if TYPE_CHECKING:
    from headrace.ports import Administration, QueueGroupReport, QueueReport


class _QueueBody(StreamBody):
    def change(self) -> Change:
        """As the catalog takes it, which knows settings of queues from those of streams."""
        of_queue, of_stream = split(self.settings or {})
        return Change(self.partitions, self.filters, self.key, of_stream, of_queue)


class _NewQueueBody(_QueueBody):
    name: StrictStr


class _GroupBody(Fields):
    group: StrictStr | None = None
    """None: all groups."""


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


class _SeekBody(_GroupBody):
    offset: Annotated[list[StrictStr] | None, BeforeValidator(_listed)] = None
    time: StrictStr | None = None

    def properties(self) -> list[tuple[str, str]]:
        """The words of a subscription to a stream, which mean the same."""
        times = [] if self.time is None else [(positions.TIME, self.time)]
        asked = [*((positions.OFFSET, each) for each in self.offset or ()), *times]
        if not asked:
            raise InvalidStartError("say where to: offset, or time")
        return asked


class QueueRoutes:
    """The routes about queues. What is a stream and no queue is not there."""

    def __init__(self, node: Administration) -> None:
        self._node = node

    def routes(self) -> list[web.RouteDef]:
        """To add to an application."""
        return [
            web.get("/api/v1/queues", self._list),
            web.post("/api/v1/queues", self._create),
            web.get("/api/v1/queues/{name}", self._describe),
            web.patch("/api/v1/queues/{name}", self._alter),
            web.delete("/api/v1/queues/{name}", self._delete),
            web.post("/api/v1/queues/{name}/seek", self._seek),
            web.post("/api/v1/queues/{name}/purge", self._purge),
            web.delete("/api/v1/queues/{name}/groups/{group}", self._delete_group),
        ]

    async def _list(self, request: web.Request) -> web.Response:
        del request
        return answer(
            {"queues": [_told(each) for each in self._node.queues(only_told=True).reports()]}
        )

    async def _create(self, request: web.Request) -> web.Response:
        asked = await body(request, _NewQueueBody)
        await self._node.create_stream(asked.name, asked.change())
        return answer(_described(self._node.queues(only_told=True).report(asked.name)), status=201)

    async def _describe(self, request: web.Request) -> web.Response:
        return answer(_described(self._node.queues(only_told=True).report(_name(request))))

    async def _alter(self, request: web.Request) -> web.Response:
        asked, name = await body(request, _QueueBody), _name(request)
        self._node.queues(only_told=True).report(name)
        await self._node.alter_stream(name, asked.change())
        return answer(_described(self._node.queues(only_told=True).report(name)))

    async def _delete(self, request: web.Request) -> web.Response:
        name = _name(request)
        refuse_query(request, f"; a group goes by DELETE /api/v1/queues/{name}/groups/GROUP")
        self._node.queues(only_told=True).report(name)
        await self._node.delete_stream(name)
        return answer({"deleted": name})

    async def _seek(self, request: web.Request) -> web.Response:
        asked = await body(request, _SeekBody)
        return await self._moved(request, asked.group, positions.parse(asked.properties()))

    async def _purge(self, request: web.Request) -> web.Response:
        asked, name = await body(request, _GroupBody, b"{}"), _name(request)
        if asked.group is not None:
            return await self._moved(request, asked.group, positions.Start())
        purged, moved = await self._node.queues().purge(name)
        told = _told(self._node.queues(only_told=True).report(name))
        return answer({"purged": purged, "moved": moved, **told})

    async def _moved(
        self, request: web.Request, group: str | None, start: positions.Start
    ) -> web.Response:
        name = _name(request)
        moved = await self._node.queues().seek(name, group, start)
        return answer({"moved": moved, **_told(self._node.queues(only_told=True).report(name))})

    async def _delete_group(self, request: web.Request) -> web.Response:
        group = request.match_info["group"]
        refuse_query(request)
        await self._node.queues().forget_group(_name(request), group)
        return answer({"deleted": group})


def _name(request: web.Request) -> str:
    return request.match_info["name"]


def _told(report: QueueReport) -> dict[str, Any]:
    stream = told(report.stream)
    own = report.stream.definition.queue or {}
    return {
        **stream,
        "settings": {**own, **stream["settings"]},
        "paused": report.is_paused,
        "depth": report.depth,
        "in_flight": report.in_flight,
        "consumers": report.consumers,
        "groups": [_group(each) for each in report.groups],
    }


def _described(report: QueueReport) -> dict[str, Any]:
    """With what holds for it, whoever says so."""
    own = effective(report.stream.definition.queue or {}, QUEUE_DEFAULTS, QUEUE_DEFAULTS)
    of_queue = {name: each._asdict() for name, each in own.items()}
    return {**_told(report), "effective": {**of_queue, **held(report.stream)}}


def _group(group: QueueGroupReport) -> dict[str, Any]:
    told = asdict(group)
    del told["latency"], told["latency_sum_ms"]  # a distribution, which /metrics has
    return {
        **told,
        "depth": group.depth,
        "lag": group.lag,
        "oldest_ms": group.oldest_ms,
        "in_flight": group.in_flight,
        "resting": group.resting,
        "blocked": group.blocked > 0,
    }
