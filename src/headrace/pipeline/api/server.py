"""`headrace api` as a process: a server, and the newest version of the tables for it.

Owns sockets, threads and time. Invariant: an answer is made of one version; where its files have
gone meanwhile, as after a long halt of the process, it is made again of the newest.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from headrace import job_limits, limits
from headrace.adapters import process
from headrace.adapters.answers import answer, problem, query
from headrace.adapters.http_access import OPEN_TO_ALL
from headrace.adapters.http_server import HttpServer
from headrace.adapters.metrics import METRICS_TYPE, Exporter
from headrace.errors import HeadraceError, UnavailableError
from headrace.kernel import access
from headrace.pipeline.api.document import openapi, page
from headrace.pipeline.api.routes import Routes
from headrace.pipeline.api.snapshot import Snapshots
from headrace.pipeline.folder import Folder
from headrace.ports import Histogram, Sample
from headrace.spark.session import core_count

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from headrace.model import Address
    from headrace.pipeline.api.routes import Route
    from headrace.pipeline.api.snapshot import Snapshot
    from headrace.pipeline.folder import Location

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

log = logging.getLogger(__name__)

_STATUSES: Final = ("2xx", "4xx", "5xx")


@web.middleware
async def _guard(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Holds off pages of other sites, as the HTTP door of a node without users does."""
    refusal = access.call(request.host, request.headers.get("Origin"))
    if refusal is None or request.path in OPEN_TO_ALL:
        return await handler(request)
    return problem(403, "forbidden", refusal)


class ApiServer:
    """Answers about one folder of tables.

    Args:
        tables_dir: the folder, which may be empty still.

    Raises:
        PipelineError: it is the URI of nothing that is known.
    """

    def __init__(self, tables_dir: Location) -> None:
        self._folder = Folder.at(tables_dir)
        self._snapshots = Snapshots(self._folder)
        self._snapshot: Snapshot | None = None
        self._trouble = ""
        self._routes = Routes(self._folder)
        self._pool = ThreadPoolExecutor(core_count(), "answer")
        self._looker = ThreadPoolExecutor(1, "look")
        self._looking: asyncio.Task[None] | None = None
        routes = self._routes.all()
        self._document = openapi(routes)
        self._page = page(routes)
        self._answers = Counter({(r.path, status): 0 for r in routes for status in _STATUSES})
        self._took = process.Durations()
        self._refreshed = 0
        self._server = HttpServer(
            [
                web.get("/health", self._health),
                web.get("/ready", self._ready),
                web.get("/metrics", self._metrics),
                web.get("/api/v1/openapi.json", self._openapi),
                web.get("/api/docs", self._docs),
                *(web.get(route.path, self._handler(route)) for route in routes),
            ],
            _guard,
            body_bytes_max=limits.KIB,
        )
        self._exporter = Exporter(
            lambda: chain(process.samples(), self._server.connections.samples(), self._samples()),
            self._histograms,
        )

    async def open(self, address: Address) -> Address:
        """Looks at the tables and serves; the address as bound.

        Raises:
            PipelineError: the tables cannot be read.
            StartError: the address cannot be bound.
        """
        bound = await self._server.open(address)
        try:
            await self._look()
        except BaseException:
            await self._server.close()
            raise
        self._looking = asyncio.create_task(self._keep_looking())
        return bound

    async def close(self) -> None:
        """Accepts no more, answers what is in flight, closes."""
        await self._server.close()
        if self._looking is not None:
            self._looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._looking
        for pool in (self._pool, self._looker):
            pool.shutdown()
        self._routes.close()

    @property
    def version(self) -> int:
        """Of the tables that answers are made of; -1 where nothing was committed."""
        return -1 if self._snapshot is None else self._snapshot.manifest.version

    async def _look(self) -> Snapshot:
        """Takes the newest version, if there is a newer one."""
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._looker, self._snapshots.newer, self._snapshot)
        if found is not None:
            self._snapshot = found
            self._refreshed += 1
        assert self._snapshot is not None, "a folder without a version gives an empty snapshot"
        return self._snapshot

    async def _keep_looking(self) -> None:
        is_near = self._folder.is_local
        while True:
            await asyncio.sleep(
                job_limits.API_REFRESH_SECONDS if is_near else job_limits.API_REFRESH_FAR_SECONDS
            )
            try:
                await self._look()
            except (HeadraceError, OSError, ValueError) as error:
                if str(error) != self._trouble:
                    log.warning("the tables cannot be read, version %d is shown: %s",
                                self.version, error)  # fmt: skip
                self._trouble = str(error)
            else:
                if self._trouble:
                    log.info("the tables can be read again")
                self._trouble = ""

    def _handler(self, route: Route) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            begun = time.perf_counter()
            status = 500
            try:
                asked = query(request, route.asked)
                told = await self._told(route, request.match_info.get("id", ""), asked)
                status = 200
                return web.Response(body=told, content_type="application/json")
            except HeadraceError as error:
                status = error.http_status
                raise
            except web.HTTPException as error:
                status = error.status
                raise
            finally:
                self._took.add(time.perf_counter() - begun)
                self._answers[route.path, f"{status // 100}xx"] += 1

        return handle

    async def _told(self, route: Route, name: str, asked: Any) -> bytes:  # noqa: ANN401 - its query
        loop = asyncio.get_running_loop()
        if self._snapshot is None:
            raise UnavailableError("the tables are read for the first time; ask again in a moment")
        try:
            return await loop.run_in_executor(self._pool, _make, route, self._snapshot, name, asked)
        except FileNotFoundError:
            newest = await self._look()
        try:
            return await loop.run_in_executor(self._pool, _make, route, newest, name, asked)
        except FileNotFoundError as error:
            raise UnavailableError(
                f"{error.filename} is gone though a version names it: restore the tables"
            ) from None

    async def _health(self, request: web.Request) -> web.Response:
        del request
        return answer({"status": "ok", "node": "headrace api"})

    async def _ready(self, request: web.Request) -> web.Response:
        del request
        reason = self._trouble
        if self._snapshot is None:
            reason = "the tables are read for the first time"
        elif not self._snapshots.is_written:
            reason = f"{self._folder} holds no tables yet; the pipeline is to write them"
        status = "failed" if reason else "ready"
        told = {"status": status, "reason": reason, "version": self.version}
        return answer(told, status=503 if reason else 200)

    async def _metrics(self, request: web.Request) -> web.Response:
        del request
        return web.Response(body=self._exporter.render(), headers={"Content-Type": METRICS_TYPE})

    async def _openapi(self, request: web.Request) -> web.Response:
        del request
        return answer(self._document)

    async def _docs(self, request: web.Request) -> web.Response:
        del request
        return web.Response(
            text=self._page, content_type="text/html",
            headers={"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"},
        )  # fmt: skip

    def _samples(self) -> Iterator[Sample]:
        yield Sample("api_tables_version", self.version, "Version of the tables that is shown.")
        yield Sample(
            "api_refreshes_total", self._refreshed, "Newer versions of the tables that were taken."
        )
        for (path, status), count in self._answers.items():
            yield Sample(
                "api_answers_total", count, "Answers by path and class of status.",
                (("path", path), ("status", status)),
            )  # fmt: skip

    def _histograms(self) -> Iterator[Histogram]:
        yield Histogram(
            "api_answer_seconds",
            "From a whole request to its answer, of questions about GPUs.",
            self._took.buckets,
            self._took.sum,
        )


def _make(route: Route, snapshot: Snapshot, name: str, asked: Any) -> bytes:  # noqa: ANN401
    return (json.dumps(route.answer(snapshot, name, asked)) + "\n").encode()
