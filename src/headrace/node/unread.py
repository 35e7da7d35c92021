"""What clients were written and have not read, of all connections of a door.

Pure. Owns who gives way: a client that reads keeps its place however slow it is, and beyond the
bound the one that has taken nothing for longest is ended. Must not know protocols or sockets.
"""

from __future__ import annotations

from typing import Protocol


class Client(Protocol):
    """A connection whose transport is full."""

    def end_slow(self) -> None:
        """Ends it now, and with it what it holds."""
        ...


class Unread:
    """The bytes that transports hold of one door.

    Attributes:
        total_bytes: of all clients.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._held: dict[Client, int] = {}  # who has taken nothing for longest comes first
        self.total_bytes = 0

    def wrote(self, client: Client, size_bytes: int) -> None:
        """A client whose transport is full was written to."""
        self._held[client] = self._held.get(client, 0) + size_bytes
        self.total_bytes += size_bytes
        while self.total_bytes > self._bytes_max:
            oldest = next(iter(self._held))
            self.took(oldest)
            oldest.end_slow()

    def took(self, client: Client) -> None:
        """A client has taken what it was written, or is gone."""
        self.total_bytes -= self._held.pop(client, 0)
