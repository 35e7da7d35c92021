"""How the members of one consumer group come to share a generation: Kafka's classic protocol.

Members wait in `join` until all have come or the time for that is over; then a generation begins,
its leader shares partitions out, and what each member reads is told once that is durable. Owns what
state a group is in and what its record says. Must not know who may join (`headrace.kernel.groups.
group`), what an assignment says, nor clocks: deadlines are data.

Invariants: nothing is assigned in a generation that is not durable; a generation is never given to
two sets of members that know of it.

Source: KIP-62 (rebalance timeout), KIP-345 (static members).
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from headrace import limits
from headrace.kernel.groups import records
from headrace.kernel.groups.events import Answer, Append, Joined, Synced
from headrace.kernel.groups.owners import NOBODY
from headrace.kernel.groups.roster import MEMBER_BYTES, Roster
from headrace.wire.kafka.errors import ErrorCode
from headrace.wire.kafka.members import GroupValue

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.kernel.groups.events import Effect, Identity, Now, Outcome
    from headrace.kernel.groups.roster import Member


class State(StrEnum):
    """Where a group is, by the names that Kafka's tools show."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


TRANSITIONS: Final = {
    State.EMPTY: {State.PREPARING, State.DEAD},
    State.PREPARING: {State.COMPLETING, State.EMPTY},
    State.COMPLETING: {State.STABLE, State.PREPARING},
    State.STABLE: {State.PREPARING},
    State.DEAD: {State.EMPTY},
}
"""A dead group is being forgotten; it lives on where the disk refuses that."""


class Generations:
    """The generations of one group, one after the other. What a call has to do waits until `take`.

    Attributes:
        owner: who has made it; keeps it whoever joins.
        state, generation, leader: as Kafka's tools show them.
        protocol_type: what the members are, `consumer` mostly.
        protocol: the way of sharing out of this generation.
        members: by id, in the order in which they came.
        since_ms: when it became what it is, by the wall clock.
        last: what its newest record says, whether or not that is durable.
    """

    def __init__(self, name: str, owner: str = NOBODY) -> None:
        self.name = name
        self.owner = owner
        self.state = State.EMPTY
        self.generation = 0
        self.protocol_type = ""
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members = Roster()
        self.since_ms = 0
        self.last: GroupValue | None = None
        self._effects: list[Effect] = []
        self._expected: dict[str, int] = {}  # ids given out, and until when they hold
        self._deadline_ms: int | None = None  # of the rebalance
        self._first_ms: int | None = None  # since when a first generation collects members
        self._delay_ms = 0
        self._grew = False
        self._storing: int | None = None  # ticket of the generation's record
        # Static members that came back, by ticket: their ids, and the leader that they are told.
        self._replacing: dict[int, tuple[str, str]] = {}

    @property
    def held_bytes(self) -> int:
        """What it takes of the memory of the node."""
        return self.members.held_bytes + MEMBER_BYTES * len(self._expected)

    def take(self) -> list[Effect]:
        """What must be done, in this order."""
        taken, self._effects = self._effects, []
        return taken

    def value(self) -> GroupValue:
        """What its record says."""
        return GroupValue(
            protocol_type=self.protocol_type,
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            current_state_timestamp=self.since_ms,
            members=[each.record(self.protocol) for each in self.members],
        )

    # How it goes from state to state.

    def _become(self, state: State, now: Now) -> None:
        assert state in TRANSITIONS[self.state], f"{self.name}: {self.state} to {state}"
        self.state = state
        self.since_ms = now.wall_ms

    def _collect_first(self, now: Now, delay_ms: int) -> None:
        """The first generation waits for members that start at about the same time."""
        self._become(State.PREPARING, now)
        self._first_ms = now.mono_ms
        self._delay_ms, self._grew = delay_ms, False
        self._deadline_ms = now.mono_ms + delay_ms
        if delay_ms == 0:
            self._begin(now)

    def _rebalance(self, now: Now) -> None:
        """Collects members for the next generation."""
        self._storing = None
        for ticket, (member_id, _) in self._replacing.items():
            self.members[member_id].join = ticket
        self._replacing.clear()
        for member in self.members:
            if member.sync is not None:
                self._touch(member, now)
                self._answer(member.sync, Synced(ErrorCode.REBALANCE_IN_PROGRESS))
                member.sync = None
        self._become(State.PREPARING, now)
        self._deadline_ms = now.mono_ms + self._patience_ms()
        self._advance(now)

    def _advance(self, now: Now) -> None:
        """Begins a generation where nobody is waited for."""
        if self.state is not State.PREPARING or self._expected:
            return
        if not self.members or (
            self._first_ms is None and all(each.join is not None for each in self.members)
        ):
            self._begin(now)

    def _collected(self, now: Now) -> None:
        """The time to join is over, but for a first generation that still grows."""
        if self._first_ms is not None and self._grew:
            last_ms = self._first_ms + self._patience_ms()
            self._grew = False
            self._deadline_ms = min(now.mono_ms + self._delay_ms, last_ms)
            if self._deadline_ms > now.mono_ms:
                return
        self._begin(now)

    def _begin(self, now: Now) -> None:
        """Begins a generation of those who have come, and of static members that are away."""
        self._first_ms = None
        for member in list(self.members):
            if member.join is None and member.instance is None:
                self.members.remove(member)
            member.owes_sync = member.join is not None
        present = [each for each in self.members if each.join is not None]
        if self.members and not present:  # they have their sessions to come back
            self._deadline_ms = None
            return
        self.generation += 1
        self._deadline_ms = self.protocol = None
        if not present:
            self.leader = None
            self._become(State.EMPTY, now)
            self._append(None)
            return
        if all(each.id != self.leader for each in present):
            self.leader = present[0].id
        self.protocol = self.members.chosen()
        self._become(State.COMPLETING, now)
        self._deadline_ms = now.mono_ms + self._patience_ms()
        for member in present:
            ticket, member.join = member.join, None
            member.knows = True
            self._touch(member, now)
            assert ticket is not None
            self._answer(ticket, self._joined(member))

    def _assign(
        self, ticket: int, assignments: Mapping[str, bytes], now: Now, room_bytes: int
    ) -> None:
        """Keeps what the leader has shared out."""
        most_bytes = self.held_bytes + max(room_bytes, 0)
        for member in self.members:
            self.members.assign(member, assignments.get(member.id, b""))
        is_large = self.members.record_bytes > limits.GROUP_RECORD_BYTES_MAX
        if is_large or self.held_bytes > most_bytes:
            self._give_up(ErrorCode.UNKNOWN_SERVER_ERROR, now)
        else:
            self._storing = ticket
            self._append(ticket)

    def _give_up(self, code: ErrorCode, now: Now) -> None:
        """What was shared out cannot be kept."""
        for member in self.members:
            self.members.assign(member, b"")
            if member.sync is not None:
                self._end_waits(member, code)
                self._touch(member, now)
        self._rebalance(now)

    def _patience_ms(self) -> int:
        """How long a rebalance waits for its members."""
        return max((each.rebalance_ms for each in self.members), default=0)

    def _touch(self, member: Member, now: Now) -> None:
        """A member has shown itself."""
        member.deadline_ms = now.mono_ms + member.session_ms

    def _joined(self, member: Member) -> Joined:
        """How a member hears of the generation."""
        members: tuple[tuple[Identity, bytes], ...] = ()
        if member.id == self.leader and self.state is State.COMPLETING:
            # Any order will do for most, but kafka-python (3.0) as the leader gives nothing to
            # members that are not static and stand before one that is ("range").
            ordered = sorted(self.members, key=lambda each: each.instance is None)
            members = tuple((each.identity, each.metadata(self.protocol)) for each in ordered)
        return Joined(
            ErrorCode.NONE,
            member.id,
            self.generation,
            self.protocol or "",
            self.leader or "",
            members,
        )

    # What is told, and kept.

    def _end_waits(self, member: Member, code: ErrorCode) -> None:
        """Whatever a member waits for ends so."""
        if member.join is not None:
            self._answer(member.join, Joined(code, member.id))
        if member.sync is not None:
            self._answer(member.sync, Synced(code))
        member.join = member.sync = None
        for ticket, (member_id, _) in list(self._replacing.items()):
            if member_id == member.id:
                del self._replacing[ticket]
                self._answer(ticket, Joined(code, member.id))

    def _append(self, ticket: int | None) -> None:
        self.last = self.value()
        self._effects.append(Append(ticket, self.name, [records.of_group(self.name, self.last)]))

    def _answer(self, ticket: int, outcome: Outcome) -> None:
        self._effects.append(Answer(ticket, outcome))
