"""Who has made which groups, and what each of them holds of what all groups share.

What is bounded for all groups together is open to everybody, so one owner has a share of it: else
one client could shut all others out. Must not know groups. Invariant: what is remembered of an
owner goes with the last of what it holds.
"""

from __future__ import annotations

from typing import Final

from headrace.kernel.admission import network

NOBODY: Final = ""
"""Owns what a start has read back, whose records do not say who made it, and what an operator
makes: it counts to the bound of all groups alone."""


def owner_of(user: str | None, host: str | None) -> str:
    """To whom a group counts that a client makes: its user, or the address that it comes from."""
    return f"user:{user}" if user else f"address:{network(host or '')}"


class Shares:
    """How much there is of something, of each owner and of all together."""

    __slots__ = ("_held", "total")

    def __init__(self) -> None:
        self.total = 0
        self._held: dict[str, int] = {}

    def add(self, owner: str, amount: int) -> None:
        """An owner holds more, or less where `amount` is negative."""
        self.total += amount
        if owner == NOBODY:
            return
        held = self._held.pop(owner, 0) + amount
        assert held >= 0
        if held:
            self._held[owner] = held

    def room(self, owner: str, total_max: int, owner_max: int) -> int:
        """How much more an owner may hold; not above 0 where that is nothing."""
        room = total_max - self.total
        return room if owner == NOBODY else min(room, owner_max - self._held.get(owner, 0))
