"""Consumer groups over HTTP. Translates, never decides."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from aiohttp import web
from pydantic import Field, StrictBool, StrictInt, StrictStr

from headrace import limits
from headrace.adapters.answers import Fields, answer, body, query, refuse_query
from headrace.kernel.groups.reset import Aim, Target

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.ports import Groups


class _ListQuery(Fields):
    limit: Annotated[int, Field(ge=1, le=limits.HTTP_PAGE_MAX)] = limits.HTTP_PAGE
    start: str = ""


class _ResetBody(Fields):
    to: Aim
    value: Annotated[StrictInt, Field(ge=-limits.INT64_MAX, le=limits.INT64_MAX)] = 0
    streams: list[StrictStr] = Field(default_factory=list)
    execute: StrictBool = False


class GroupRoutes:
    """The routes about consumer groups."""

    def __init__(self, groups: Callable[[], Groups]) -> None:
        """`groups` raises `UnavailableError` while the node does not serve."""
        self._groups = groups

    def routes(self) -> list[web.RouteDef]:
        """To add to an application."""
        return [
            web.get("/api/v1/groups", self._list),
            web.get("/api/v1/groups/{group}", self._describe),
            web.delete("/api/v1/groups/{group}", self._delete),
            web.post("/api/v1/groups/{group}/reset", self._reset),
        ]

    async def _list(self, request: web.Request) -> web.Response:
        asked = query(request, _ListQuery)
        found, following = self._groups().page(asked.start, asked.limit)
        return answer({"groups": [asdict(each) for each in found], "next": following})

    async def _describe(self, request: web.Request) -> web.Response:
        return answer(asdict(self._groups().describe(_group(request))))

    async def _delete(self, request: web.Request) -> web.Response:
        refuse_query(request)
        await self._groups().delete(_group(request))
        return answer({"deleted": _group(request)})

    async def _reset(self, request: web.Request) -> web.Response:
        asked = await body(request, _ResetBody)
        moves = await self._groups().reset(
            _group(request), Target(asked.to, asked.value), asked.streams, execute=asked.execute
        )
        told: dict[str, Any] = {
            "group": _group(request),
            "executed": asked.execute,
            "partitions": [asdict(each) for each in moves],
        }
        return answer(told)


def _group(request: web.Request) -> str:
    return request.match_info["group"]
