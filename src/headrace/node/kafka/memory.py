"""What requests of all Kafka connections hold, and who waits for it to become less.

Owns the three bounds: of all requests, of beginnings, of what is in work. Must not know requests.
Invariants: beyond the bound of all nobody is read further who holds more than a share; a long
request is read when those in work hold less than they may, one at a time; nobody who waits for
records keeps others from that.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace import limits
from headrace.kernel.holdings import Beginnings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headrace.node.kafka.connection import KafkaConnection


class Memory:
    """The requests of one door.

    Attributes:
        held_bytes: of all, unfinished or in work.
        work_bytes: of those in work that wait for no other, but for batches before them.
        parts: of those that are not whole.
        reading: held by who reads a long request, so that they become large one by one.
        short: called once all hold less than they may.
    """

    def __init__(self) -> None:
        self.held_bytes = 0
        self.work_bytes = 0
        self.parts: Beginnings[KafkaConnection] = Beginnings(
            limits.KAFKA_PARTS_BYTES_MAX, limits.KAFKA_PART_BYTES
        )
        self.reading = asyncio.Lock()
        self.short: set[Callable[[], None]] = set()
        self._fetches: set[Callable[[], None]] = set()
        self._room: asyncio.Event | None = None  # while somebody waits for less to be in work

    @property
    def is_crowded(self) -> bool:
        """Whether all hold more than they may together."""
        return self.held_bytes > limits.KAFKA_BUFFERED_BYTES_MAX

    @property
    def is_busy(self) -> bool:
        """Whether those in work hold more than they may."""
        return self.work_bytes > limits.KAFKA_WORK_BYTES_MAX

    def hold(self, held_bytes: int) -> None:
        """Counts what a connection holds more, or less."""
        self.held_bytes += held_bytes
        if self.short and not self.is_crowded:
            short, self.short = self.short, set()
            for go_on in short:
                asyncio.get_running_loop().call_soon(go_on)

    def work(self, held_bytes: int) -> None:
        """Counts a request that begins, or ends."""
        self.work_bytes += held_bytes
        if self._room is not None and not self.is_busy:
            self._room.set()
            self._room = None

    async def has_room(self) -> None:
        """Waits until requests in work hold less than they may."""
        while self.is_busy:
            self.hurry()
            if self._room is None:
                self._room = asyncio.Event()
            await self._room.wait()

    def hurry(self) -> None:
        """Ends the waits of all fetches: what they hold is needed."""
        fetches, self._fetches = self._fetches, set()
        for end in fetches:
            end()

    @contextmanager
    def waits(self, end: Callable[[], None]) -> Iterator[None]:
        """A fetch waits for records, until `end` is called."""
        self._fetches.add(end)
        try:
            yield
        finally:
            self._fetches.discard(end)
