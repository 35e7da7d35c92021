"""The connections of the HTTP door: tells `kernel.places` of them, and ends whom it says.

Owns their sockets and the timer. Must not know requests, nor decide who gives way.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import Counter
from typing import TYPE_CHECKING

from headrace import limits
from headrace.kernel.places import Ended, Places
from headrace.ports import Sample

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.adapters.http_refusals import Connection


class Connections:
    """Those of one door."""

    def __init__(self, request_ms_max: int, idle_ms_max: int) -> None:
        count_max = limits.HTTP_CONNECTIONS_MAX
        self._places: Places[Connection] = Places(count_max, request_ms_max, idle_ms_max)
        self._coming: dict[Connection, socket.socket] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._refused = Counter(connections_limit=0)
        self._ended = Counter(dict.fromkeys(Ended, 0))

    @property
    def request_s_max(self) -> float:
        """From accept to a whole first request, of connections that come."""
        return self._places.request_ms_max / 1000

    def set_timeouts(self, request_ms_max: int, idle_ms_max: int) -> None:
        """Of requests and connections that come from now on."""
        self._places.request_ms_max = request_ms_max
        self._places.idle_ms_max = idle_ms_max

    def has_room(self) -> bool:
        """Whether one more may come, to which another one may give way."""
        if not self._places.is_full():
            return True
        self._look()
        client = self._places.give_way()
        if client is None:
            self._refused["connections_limit"] += 1
            return False
        self._end(client, Ended.GAVE_WAY)
        return True

    def coming(self, connection: Connection, sock: socket.socket) -> None:
        """One was accepted, as `sock`; until its TLS is through it has no other handle."""
        self._coming[connection] = sock
        self._places.come(connection)

    def opened(self, connection: Connection) -> None:
        """One stands, with its layers."""
        self._coming.pop(connection, None)
        self._places.open(connection, _now_ms())
        self._set_timer()

    def not_opened(self, connection: Connection) -> None:
        """One that came is gone, if it does not stand."""
        if self._coming.pop(connection, None) is not None:
            self._places.leave(connection)

    def begun(self, connection: Connection) -> None:
        """A request of it is whole but for its body, whose time is not kept here."""
        self._places.begin(connection)

    def busy(self, connection: Connection) -> None:
        """A request of it is whole."""
        self._places.work(connection)

    def unread(self, connection: Connection) -> None:
        """Its transport takes no more until it reads."""
        self._places.unread(connection, connection.unread_bytes, _now_ms())
        self._set_timer()

    def read(self, connection: Connection) -> None:
        """It does, so that its transport takes more."""
        self._places.unread(connection, 0, _now_ms())

    def answered(self, connection: Connection) -> None:
        """A request of it is done."""
        self._places.answer(connection, _now_ms())
        self._set_timer()

    def closed(self, connection: Connection) -> None:
        """It is gone."""
        self._places.leave(connection)

    def samples(self) -> Iterator[Sample]:
        """As the other doors tell of theirs."""
        door = (("door", "http"),)
        count = len(self._places) - len(self._coming)
        yield Sample("connections", count, "Open connections.", door)
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
                "Connections of the HTTP door that were ended: idle, or reading no answer.",
                (("reason", reason),),
            )

    def _look(self) -> None:
        """Tells what clients have read meanwhile, of which a transport says nothing."""
        for each in self._places.slow():
            self._places.unread(each, each.unread_bytes, _now_ms())

    def _set_timer(self) -> None:
        """Has one that is due when the first one ends, or before that."""
        wake_ms = self._places.wake_ms()
        if wake_ms is None:
            return
        loop, at = asyncio.get_running_loop(), wake_ms / 1000
        if self._timer is not None:
            if self._timer.when() <= at:
                return
            self._timer.cancel()
        self._timer = loop.call_at(at, self._expire)

    def _expire(self) -> None:
        self._timer = None
        self._look()
        for connection, why in self._places.expire(_now_ms()):
            self._end(connection, why)
        self._set_timer()

    def _end(self, connection: Connection, why: Ended) -> None:
        self._ended[why] += 1
        if (sock := self._coming.pop(connection, None)) is not None:
            with contextlib.suppress(OSError):  # the other end was faster
                sock.shutdown(socket.SHUT_RDWR)  # of which its transport hears
            return
        connection.end()


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)
