"""Who the members of one group are, and what they have in common. A part of `group`.

Invariants: a static member has one entry, whatever ids it had; what is held is what is counted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.errors import MalformedError
from headrace.kernel.groups.events import Identity
from headrace.wire.kafka.errors import ErrorCode
from headrace.wire.kafka.members import (
    ConsumerSubscription,
    GroupValueMember,
    consumers,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from headrace.kernel.groups.events import Join

MEMBER_BYTES: Final = 600
"""Of a member in memory beside what it says."""

RECORD_BYTES: Final = 100
"""Of a member's record beside its names and what it says: its address, numbers and lengths."""

PROTOCOL_BYTES: Final = 200
"""Of a protocol in memory beside what it says: a pair of two objects with their heads (150 bytes),
and its votes, where no other member knows it."""

CHARACTER_BYTES: Final = 4
"""Of each character of a name in memory, at most: one that is wide makes all of them so."""


@dataclass(slots=True)
class Member:
    """One member.

    Attributes:
        knows: whether its client has been told its id.
        owes_sync: whether it has heard of the generation and not asked what it may read.
        deadline_ms: when its session ends, unless it waits.
        join, sync: the ticket in which it waits.
    """

    id: str
    instance: str | None
    client_id: str
    host: str
    session_ms: int
    rebalance_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    knows: bool = True
    owes_sync: bool = False
    deadline_ms: int = 0
    join: int | None = None
    sync: int | None = None

    @property
    def identity(self) -> Identity:
        """Who it is."""
        return Identity(self.id, self.instance)

    @property
    def waits(self) -> bool:
        """Whether its client waits for an answer, and so is alive."""
        return self.join is not None or self.sync is not None

    @property
    def record_bytes(self) -> int:
        """What it takes at most of the record of a generation."""
        said = max((len(said) for _, said in self.protocols), default=0)
        names = sum(len(name.encode()) for name in self._names)
        return RECORD_BYTES + names + said + len(self.assignment)

    @property
    def held_bytes(self) -> int:
        """What it takes of memory."""
        names = CHARACTER_BYTES * sum(map(len, self._names))
        said = sum(
            PROTOCOL_BYTES + CHARACTER_BYTES * len(name) + len(said)
            for name, said in self.protocols
        )
        return MEMBER_BYTES + names + said + len(self.assignment)

    @property
    def _names(self) -> tuple[str, str, str]:
        """What it is called, as long as clients like."""
        return self.id, self.client_id, self.instance or ""

    def metadata(self, protocol: str | None) -> bytes:
        """What it says of itself under a protocol."""
        return next((said for name, said in self.protocols if name == protocol), b"")

    def record(self, protocol: str | None) -> GroupValueMember:
        """What the record of a generation says of it."""
        return GroupValueMember(
            member_id=self.id,
            group_instance_id=self.instance,
            client_id=self.client_id,
            client_host=self.host,
            rebalance_timeout_ms=self.rebalance_ms,
            session_timeout_ms=self.session_ms,
            subscription=self.metadata(protocol),
            assignment=self.assignment,
        )

    @classmethod
    def of(cls, value: GroupValueMember, protocol: str | None) -> Member:
        """A member as a record says; its session has not begun."""
        rebalance_ms = value.rebalance_timeout_ms
        return cls(
            id=value.member_id,
            instance=value.group_instance_id,
            client_id=value.client_id,
            host=value.client_host,
            session_ms=value.session_timeout_ms,
            rebalance_ms=value.session_timeout_ms if rebalance_ms < 0 else rebalance_ms,
            protocols=((protocol or "", value.subscription),),
            assignment=value.assignment,
        )


class Roster:
    """The members of one group, in the order in which they came.

    Attributes:
        record_bytes: what they take of the record of a generation, at most.
        held_bytes: what they take of memory.
    """

    def __init__(self) -> None:
        self.record_bytes = self.held_bytes = 0
        self._members: dict[str, Member] = {}
        self._statics: dict[str, str] = {}
        self._votes: Counter[str] = Counter()

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, member_id: object) -> bool:
        return member_id in self._members

    def __getitem__(self, member_id: str) -> Member:
        return self._members[member_id]

    def find(self, who: Identity) -> Member | None:
        """Whom a client means: itself, or the static member that it says it is."""
        member_id = self._statics.get(who.instance) if who.instance else who.member
        return self._members.get(member_id or "")

    def identify(self, who: Identity) -> ErrorCode:
        """Whether somebody is the member that they say."""
        found = self.find(who)
        if found is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if found.id == who.member else ErrorCode.FENCED_INSTANCE_ID

    def add(self, member: Member) -> None:
        """One more."""
        self._members[member.id] = member
        self._count(member)

    def remove(self, member: Member) -> None:
        """One less."""
        self._discount(member)
        del self._members[member.id]

    def update(self, member: Member, event: Join) -> None:
        """What a member says of itself now."""
        self._discount(member)
        member.protocols = event.protocols
        member.client_id, member.host = event.client_id, event.host
        member.session_ms, member.rebalance_ms = event.session_ms, event.rebalance_ms
        member.knows = member.knows or bool(event.who.member)
        self._count(member)

    def rename(self, member: Member, member_id: str) -> None:
        """Another id for a member, which keeps its place."""
        self._weigh(member, -1)
        before, member.id = list(self), member_id
        self._weigh(member, 1)
        self._members = {each.id: each for each in before}
        assert member.instance is not None
        self._statics[member.instance] = member_id

    def assign(self, member: Member, assignment: bytes) -> None:
        """What a member may read."""
        self._weigh(member, -1)
        member.assignment = assignment
        self._weigh(member, 1)

    def agrees(self, protocols: Iterable[tuple[str, bytes]], own: Member | None) -> bool:
        """Whether there is a way to share out that all others than `own` know, too."""
        others = len(self) - (own is not None)
        known = {name for name, _ in own.protocols} if own else set()
        return any(self._votes[name] - (name in known) == others for name, _ in protocols)

    def chosen(self) -> str | None:
        """The way to share out that most like best, of those that all know."""
        shared = {name for name, votes in self._votes.items() if votes == len(self)}
        firsts = Counter(
            next(name for name, _ in each.protocols if name in shared) for each in self if shared
        )
        return max(firsts, key=lambda name: firsts[name], default=None)

    def _count(self, member: Member) -> None:
        if member.instance is not None:
            self._statics[member.instance] = member.id
        self._votes.update({name for name, _ in member.protocols})
        self._weigh(member, 1)

    def _discount(self, member: Member) -> None:
        if member.instance is not None:
            del self._statics[member.instance]
        for name in {name for name, _ in member.protocols}:
            self._votes[name] -= 1
            if not self._votes[name]:
                del self._votes[name]
        self._weigh(member, -1)

    def _weigh(self, member: Member, sign: int) -> None:
        self.record_bytes += sign * member.record_bytes
        self.held_bytes += sign * member.held_bytes


def topics(said: bytes) -> frozenset[str] | None:
    """Streams that a consumer wants to read; None where it says something else."""
    try:
        return frozenset(consumers(ConsumerSubscription, said).topics)
    except MalformedError:
        return None


def wants_the_same(before: bytes, after: bytes) -> bool:
    """Whether a member that came back wants to read what it wanted before."""
    wanted = topics(before)
    return before == after or (wanted is not None and wanted == topics(after))
