"""What each client has a node hold of one kind, with a bound for all: who gives way beyond it.

Pure. Of a request or a frame that is not whole, of answers that nobody reads. A client that goes on
(sends the rest, reads) is forgotten, and begins anew. Beyond the bound the one gives way that has
held for longest: so nobody takes the room of others by beginning and not going on, and who goes on,
however slowly, is not the one to go. Must not know what is held, or what it is to give way.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

C = TypeVar("C")

SMALL_PART: Final = 4
"""Of all that may be held, a quarter is for those who hold a share at most in any case."""

PAUSED_PART: Final = 2
"""Half of it at most is for those whom the node itself reads no further, who may wish for that."""


class Holdings(Generic[C]):
    """Those of one kind.

    Attributes:
        bytes_max: of all together.
        total_bytes: of all, now.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._held: dict[C, int] = {}  # who has held for longest comes first
        self.total_bytes = 0

    def hold(self, client: C, held_bytes: int) -> list[C]:
        """A client holds so much now; who must end at once, and is forgotten."""
        if held_bytes:
            self.total_bytes += held_bytes - self._held.get(client, 0)
            self._held[client] = held_bytes
        else:
            self.forget(client)
        oldest = []
        while self.total_bytes > self.bytes_max:
            oldest.append(next(iter(self._held)))
            self.forget(oldest[-1])
        return oldest

    def add(self, client: C, more_bytes: int) -> list[C]:
        """As `hold`, of a client that holds so much more."""
        return self.hold(client, self._held.get(client, 0) + more_bytes)

    def forget(self, client: C) -> None:
        """A client has gone on, or is gone."""
        self.total_bytes -= self._held.pop(client, 0)


class Beginnings(Generic[C]):
    """What is not whole: of those who hold more than a share, and of all others.

    Large ones give way to large ones, where they hold more than the bound; small ones to small
    ones, where all do and they hold more than a quarter of it. So many that hold little take nobody
    the room for what is large, and who holds much takes nobody the little that each may hold.
    Together they hold five quarters of the bound at most.

    Attributes:
        bytes_max: the bound.
    """

    def __init__(self, bytes_max: int, share_bytes: int) -> None:
        self.bytes_max = bytes_max
        self._share_bytes = share_bytes
        self._large: Holdings[C] = Holdings(bytes_max)
        self._small: Holdings[C] = Holdings(bytes_max)

    @property
    def total_bytes(self) -> int:
        """Of all, now."""
        return self._large.total_bytes + self._small.total_bytes

    def hold(self, client: C, held_bytes: int) -> list[C]:
        """A client holds so much now; who must end at once, and is forgotten."""
        is_large = held_bytes > self._share_bytes
        self._large.bytes_max = self.bytes_max
        oldest = self._large.hold(client, held_bytes if is_large else 0)
        free_bytes = self.bytes_max - self._large.total_bytes
        self._small.bytes_max = max(free_bytes, self.bytes_max // SMALL_PART)
        return oldest + self._small.hold(client, 0 if is_large else held_bytes)

    def forget(self, client: C) -> None:
        """A client has gone on, or is gone."""
        self._large.forget(client)
        self._small.forget(client)


class PausableBeginnings(Generic[C]):
    """Beginnings of clients that a node itself may read no further for a time.

    Who is paused cannot go on, and does not age: it gives way to others who are paused, where they
    hold more than half of the bound, and begins anew when it is read on. Who is read has what is
    left.

    Attributes:
        bytes_max: the bound of both together.
    """

    def __init__(self, bytes_max: int, share_bytes: int) -> None:
        self.bytes_max = bytes_max
        self._read: Beginnings[C] = Beginnings(bytes_max, share_bytes)
        self._paused: Beginnings[C] = Beginnings(bytes_max // PAUSED_PART, share_bytes)

    @property
    def total_bytes(self) -> int:
        """Of all, now."""
        return self._read.total_bytes + self._paused.total_bytes

    def hold(self, client: C, held_bytes: int, *, is_paused: bool = False) -> list[C]:
        """A client holds so much now; who must end at once, and is forgotten."""
        here, there = (self._paused, self._read) if is_paused else (self._read, self._paused)
        there.forget(client)
        self._paused.bytes_max = self.bytes_max // PAUSED_PART
        self._read.bytes_max = self.bytes_max - self._paused.total_bytes
        return here.hold(client, held_bytes)

    def forget(self, client: C) -> None:
        """A client has gone on, or is gone."""
        self._read.forget(client)
        self._paused.forget(client)
