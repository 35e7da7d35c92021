"""The places of a door that has few: who has one, and who gives it up.

Pure. The node waits for whoever has a place to send something (idle), or to read what it is sent
(slow), or it is at work for it. Where all places are taken, who comes gets that of the one that has
been idle for longest; where nobody is idle, that of the slow one that has read nothing for longest;
where all are worked for, none. Who is idle, or reads nothing, for too long is ended in any case.
Must not know what is sent.
"""

from __future__ import annotations

from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

C = TypeVar("C")


class Ended(StrEnum):
    """Why a client has lost its place."""

    GAVE_WAY = "gave_way"
    IDLE = "idle"
    SILENT = "silent"
    SLOW = "slow"


class _Idle(NamedTuple):
    """What is waited for, until when; None where somebody else keeps the time."""

    ends_as: Ended
    until_ms: int | None


class _Slow(NamedTuple):
    """What a client has not read, and until when it must have read some of it."""

    unread_bytes: int
    until_ms: int


class Places(Generic[C]):
    """Those of one door.

    Attributes:
        request_ms_max: from the begin of a connection to its first request, of those that open.
        idle_ms_max: from an answer to the next request, and without reading anything of an answer,
            from now on.
    """

    def __init__(self, count_max: int, request_ms_max: int, idle_ms_max: int) -> None:
        self._count_max = count_max
        self.request_ms_max = request_ms_max
        self.idle_ms_max = idle_ms_max
        self._taken: set[C] = set()
        self._idle: dict[C, _Idle] = {}  # who has been for longest comes first
        self._slow: dict[C, _Slow] = {}  # so here

    def __len__(self) -> int:
        return len(self._taken)

    def is_full(self) -> bool:
        """Whether somebody must give way to who comes."""
        return len(self._taken) >= self._count_max

    def give_way(self) -> C | None:
        """Who does, and has no place any more; None where nobody may."""
        client = next(chain(self._idle, self._slow), None)
        if client is not None:
            self.leave(client)
        return client

    def come(self, client: C) -> None:
        """One has come, and its handshake is waited for."""
        assert not self.is_full(), "somebody has given way"
        self._taken.add(client)
        self._idle[client] = _Idle(Ended.SILENT, None)

    def open(self, client: C, now_ms: int) -> None:
        """Its handshake is over, and its first request is waited for."""
        self._wait(client, _Idle(Ended.SILENT, now_ms + self.request_ms_max))

    def begin(self, client: C) -> None:
        """The head of a request has come, and its body is waited for."""
        if (idle := self._idle.get(client)) is not None:  # its age stays
            self._idle[client] = idle._replace(until_ms=None)

    def work(self, client: C) -> None:
        """A request is whole."""
        self._idle.pop(client, None)

    def answer(self, client: C, now_ms: int) -> None:
        """A request is done, and the next one is waited for."""
        self._wait(client, _Idle(Ended.IDLE, now_ms + self.idle_ms_max))

    def unread(self, client: C, unread_bytes: int, now_ms: int) -> None:
        """So much waits for it to read, more than its transport takes; 0: no more than that.

        What is less than before has been read.
        """
        slow = self._slow.get(client)
        if slow is not None and unread_bytes >= slow.unread_bytes:
            self._slow[client] = slow._replace(unread_bytes=unread_bytes)
            return
        self._slow.pop(client, None)
        if unread_bytes and client in self._taken:
            self._slow[client] = _Slow(unread_bytes, now_ms + self.idle_ms_max)

    def slow(self) -> tuple[C, ...]:
        """Those who have not read what they were sent, when that was last looked at."""
        return tuple(self._slow)

    def leave(self, client: C) -> None:
        """It is gone."""
        self._taken.discard(client)
        self._idle.pop(client, None)
        self._slow.pop(client, None)

    def expire(self, now_ms: int) -> list[tuple[C, Ended]]:
        """Who has been waited for too long, and has no place any more."""
        overdue = [(client, ended) for client, ended, at in self._deadlines() if at <= now_ms]
        for client, _ in overdue:
            self.leave(client)
        return overdue

    def wake_ms(self) -> int | None:
        """When somebody will have been; None for never."""
        return min((at for *_, at in self._deadlines()), default=None)

    def _wait(self, client: C, idle: _Idle) -> None:
        self._idle.pop(client, None)
        if client in self._taken:
            self._idle[client] = idle

    def _deadlines(self) -> Iterator[tuple[C, Ended, int]]:
        """Of all, one for each."""
        for client, slow in self._slow.items():
            yield client, Ended.SLOW, slow.until_ms
        for client, idle in self._idle.items():
            if client not in self._slow and idle.until_ms is not None:
                yield client, idle.ends_as, idle.until_ms
