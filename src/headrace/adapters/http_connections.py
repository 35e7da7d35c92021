"""The connections of the HTTP door: how many, who is idle, who gives way to whom comes.

Owns the bound. Must not know requests. Invariants: a connection is idle from its accept, or its
last answer, until a request is whole, its TLS and its body counted in; where the bound is reached
the one that has been idle for longest is ended, so that silent connections keep nobody out; who is
being answered is never ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import Counter
from typing import TYPE_CHECKING

from headrace import limits
from headrace.ports import Sample

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.adapters.http_refusals import Connection


class Connections:
    """Those of one door.

    Attributes:
        request_s_max: from accept to a whole first request, of connections that come.
        idle_s_max: between an answer and a whole next request, of connections that come.
    """

    def __init__(self, request_ms_max: int, idle_ms_max: int) -> None:
        self.request_s_max = request_ms_max / 1000
        self.idle_s_max = idle_ms_max / 1000
        self._coming: dict[Connection, socket.socket] = {}
        self._open: set[Connection] = set()
        # Who has been for longest, first; without a timer where somebody else keeps the time.
        self._idle: dict[Connection, asyncio.TimerHandle | None] = {}
        self._refused = Counter(connections_limit=0)
        self._ended = Counter(idle=0, silent=0, gave_way=0)

    def has_room(self) -> bool:
        """Whether one more may come; the one that has been idle for longest may give way to it."""
        if len(self._open) + len(self._coming) < limits.HTTP_CONNECTIONS_MAX:
            return True
        if self._idle:
            self._end(next(iter(self._idle)), "gave_way")
            return True
        self._refused["connections_limit"] += 1
        return False

    def coming(self, connection: Connection, sock: socket.socket) -> None:
        """One was accepted, as `sock`; until its TLS is through it has no other handle."""
        self._coming[connection] = sock
        self._idle[connection] = None

    def opened(self, connection: Connection) -> None:
        """One stands, with its layers."""
        self._coming.pop(connection, None)
        self._idle.pop(connection, None)
        self._open.add(connection)
        self._wait(connection, self.request_s_max, "silent")

    def not_opened(self, connection: Connection) -> None:
        """One that came is gone, if it does not stand."""
        if self._coming.pop(connection, None) is not None:
            self._idle.pop(connection, None)

    def begun(self, connection: Connection) -> None:
        """A request of it is whole but for its body, whose time is not kept here."""
        if (timer := self._idle.get(connection)) is not None:
            timer.cancel()
            self._idle[connection] = None

    def busy(self, connection: Connection) -> None:
        """A request of it is whole."""
        if (timer := self._idle.pop(connection, None)) is not None:
            timer.cancel()

    def answered(self, connection: Connection) -> None:
        """A request of it is done."""
        if connection in self._open:
            self.busy(connection)
            self._wait(connection, self.idle_s_max, "idle")

    def closed(self, connection: Connection) -> None:
        """It is gone."""
        self._open.discard(connection)
        self.busy(connection)

    def samples(self) -> Iterator[Sample]:
        """As the other doors tell of theirs."""
        door = (("door", "http"),)
        yield Sample("connections", len(self._open), "Open connections.", door)
        for reason, count in self._refused.items():
            yield Sample(
                "connections_refused_total",
                count,
                "Connections that did not reach their door, or failed below it.",
                (("door", "http"), ("reason", reason)),
            )
        for reason, count in self._ended.items():
            yield Sample(
                "http_connections_ended_total",
                count,
                "Idle connections of the HTTP door that were ended.",
                (("reason", reason),),
            )

    def _wait(self, connection: Connection, seconds: float, reason: str) -> None:
        loop = asyncio.get_running_loop()
        self._idle[connection] = loop.call_later(seconds, self._end, connection, reason)

    def _end(self, connection: Connection, reason: str) -> None:
        self._ended[reason] += 1
        if (sock := self._coming.pop(connection, None)) is not None:
            self._idle.pop(connection, None)
            with contextlib.suppress(OSError):  # the other end was faster
                sock.shutdown(socket.SHUT_RDWR)  # of which its transport hears
            return
        self.closed(connection)
        connection.force_close()
