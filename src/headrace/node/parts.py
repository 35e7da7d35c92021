"""What clients have sent of something that is not whole, of all connections of a door.

Pure. Owns who gives way: each may hold a share, and of those that hold more, beyond the bound, the
one whose part has been there for longest is ended. So nobody takes the room of others by beginning
and not going on, and who sends on is not the one to go. Must not know protocols or sockets.
"""

from __future__ import annotations

from typing import Protocol


class Beginner(Protocol):
    """A connection that holds a part."""

    def end_part(self) -> None:
        """Ends it now, and with it what it holds."""
        ...


class Parts:
    """The parts of one door.

    Attributes:
        total_bytes: of all that are larger than a share.
    """

    def __init__(self, bytes_max: int, share_bytes: int) -> None:
        self._bytes_max = bytes_max
        self._share_bytes = share_bytes
        self._held: dict[Beginner, int] = {}  # whose part is oldest comes first
        self.total_bytes = 0

    def hold(self, client: Beginner, part_bytes: int) -> None:
        """A client holds so much, which goes on what it held."""
        if part_bytes <= self._share_bytes:
            self.forget(client)
            return
        self.total_bytes += part_bytes - self._held.get(client, 0)
        self._held[client] = part_bytes
        while self.total_bytes > self._bytes_max:
            oldest = next(iter(self._held))
            self.forget(oldest)
            oldest.end_part()

    def forget(self, client: Beginner) -> None:
        """A client has sent the rest, or is gone."""
        self.total_bytes -= self._held.pop(client, 0)
