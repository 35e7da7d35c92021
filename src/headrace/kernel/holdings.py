"""What each client has a node hold of one kind, with a bound for all: who gives way beyond it.

Pure. Of a request or a frame that is not whole, of answers that nobody reads. A client that goes on
(sends the rest, reads) is forgotten, and begins anew; one that holds no more than a share is not
counted. Beyond the bound the one gives way that has held for longest: so nobody takes the room of
others by beginning and not going on, and who goes on, however slowly, is not the one to go. Must
not know what is held, or what it is to give way.
"""

from __future__ import annotations

from typing import Generic, TypeVar

C = TypeVar("C")


class Holdings(Generic[C]):
    """Those of one kind.

    Attributes:
        bytes_max: of all that hold more than a share.
        total_bytes: of those, now.
    """

    def __init__(self, bytes_max: int, share_bytes: int = 0) -> None:
        self.bytes_max = bytes_max
        self._share_bytes = share_bytes
        self._held: dict[C, int] = {}  # who has held for longest comes first
        self.total_bytes = 0

    def hold(self, client: C, held_bytes: int) -> list[C]:
        """A client holds so much now; who must end at once, and is forgotten."""
        if held_bytes <= self._share_bytes:
            self.forget(client)
            return []
        self.total_bytes += held_bytes - self._held.get(client, 0)
        self._held[client] = held_bytes
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
