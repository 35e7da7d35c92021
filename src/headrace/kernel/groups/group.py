"""The members of one consumer group, and the generation that they share: Kafka's classic protocol.

Members that want into a group, or back into it, wait in `Join` until all have come or the time for
that is over; then a generation begins, its leader shares partitions out, and `Sync` tells each
member its part, once that is durable. Owns who is a member and what is fenced. Must not know what
an assignment says, nor clocks: deadlines are data, and `tick` is told when they may have passed.

Invariants: a member that waits in `join` or `sync` is alive; nothing is assigned in a generation
that is not durable; a generation is never given to two sets of members that know of it.

Source: KIP-62 (rebalance timeout), KIP-345 (static members), KIP-394 (MEMBER_ID_REQUIRED).
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from headrace import limits
from headrace.kernel.groups import records
from headrace.kernel.groups.events import (
    NO_GENERATION,
    Answer,
    Append,
    Identity,
    Joined,
    Left,
    Synced,
)
from headrace.kernel.groups.roster import (
    MEMBER_BYTES,
    Member,
    Roster,
    topics,
    wants_the_same,
)
from headrace.wire.kafka.errors import ErrorCode
from headrace.wire.kafka.members import CONSUMER, GroupValue

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace.kernel.groups.events import (
        Commit,
        Effect,
        GroupSettings,
        Heartbeat,
        Join,
        Leave,
        Now,
        Outcome,
        Sync,
    )


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


class Group:
    """One group. What a call has to do waits in it until `take`.

    Attributes:
        state, generation, leader: as Kafka's tools show them.
        protocol_type: what the members are, `consumer` mostly.
        protocol: the way of sharing out of this generation.
        members: by id, in the order in which they came.
        since_ms: when it became what it is, by the wall clock.
        last: what its newest record says, whether or not that is durable.
    """

    def __init__(self, name: str) -> None:
        self.name = name
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
    def is_idle(self) -> bool:
        """Whether nobody is in it, or on the way into it."""
        return self.state is State.EMPTY and not self._expected

    @property
    def size(self) -> int:
        """Members, with those who have an id and are expected."""
        return len(self.members) + len(self._expected)

    @property
    def held_bytes(self) -> int:
        """What it takes of the memory of the node."""
        return self.members.held_bytes + MEMBER_BYTES * len(self._expected)

    def take(self) -> list[Effect]:
        """What must be done, in this order."""
        taken, self._effects = self._effects, []
        return taken

    def next_ms(self) -> int | None:
        """When it must be told that time has passed."""
        moments = [each.deadline_ms for each in self.members if not each.waits]
        moments += self._expected.values()
        if self._deadline_ms is not None:
            moments.append(self._deadline_ms)
        return min(moments, default=None)

    # Requests.

    def join(self, event: Join, now: Now, settings: GroupSettings, room_bytes: int) -> None:
        """A client wants into the next generation; `room_bytes` is what it may add to memory."""
        refusal = self._refusal(event, settings, room_bytes)
        if refusal is not None:
            self._answer(event.ticket, Joined(refusal, event.who.member))
        elif event.who.member:
            self._rejoin(event, now, settings)
        elif self.members.find(event.who) is not None:
            self._replace(event, now)
        elif event.must_know_id:
            self._expected[event.fresh_id] = now.mono_ms + event.session_ms
            self._answer(event.ticket, Joined(ErrorCode.MEMBER_ID_REQUIRED, event.fresh_id))
        else:
            self._add(event, event.fresh_id, now, settings)

    def sync(self, event: Sync, now: Now, room_bytes: int) -> None:
        """A member asks for its assignment; `room_bytes` is what all of them may add to memory."""
        code = self._fault(event.who, event.generation)
        if code is ErrorCode.NONE and self.state is State.PREPARING:
            code = ErrorCode.REBALANCE_IN_PROGRESS
        if code is not ErrorCode.NONE:
            self._answer(event.ticket, Synced(code))
            return
        member = self.members[event.who.member]
        self._touch(member, now)
        member.owes_sync = False
        if self.state is State.STABLE:
            self._answer(event.ticket, Synced(ErrorCode.NONE, member.assignment))
            return
        self._end_waits(member, ErrorCode.REBALANCE_IN_PROGRESS)
        member.sync = event.ticket
        if member.id == self.leader and self._storing is None:
            self._assign(event.ticket, event.assignments, now, room_bytes)

    def heartbeat(self, event: Heartbeat, now: Now) -> None:
        """A member is alive."""
        code = self._fault(event.who, event.generation)
        if code is ErrorCode.NONE:
            self._touch(self.members[event.who.member], now)
            if self.state is State.PREPARING:
                code = ErrorCode.REBALANCE_IN_PROGRESS
        self._answer(event.ticket, code)

    def leave(self, event: Leave, now: Now) -> None:
        """Members leave."""
        codes = []
        gone: dict[str, Member] = {}
        for who in event.who:
            member = self.members.find(who)
            code = ErrorCode.NONE
            if member is not None and who.member not in {member.id, ""}:
                code = ErrorCode.FENCED_INSTANCE_ID
            elif member is not None and member.id not in gone:
                gone[member.id] = member
            elif self._expected.pop(who.member, None) is None:
                code = ErrorCode.UNKNOWN_MEMBER_ID
            codes.append((who, code))
        self._answer(event.ticket, Left(tuple(codes)))
        self._lose(gone.values(), now)

    def fence(self, event: Commit, now: Now) -> ErrorCode:
        """Whether a client may commit; a member that may is alive.

        Who is no member may as long as there are none. Between the beginning of a generation and
        its assignments nobody may: what a member then reads is not said yet.
        """
        if self.state is State.EMPTY and event.generation == NO_GENERATION:
            return ErrorCode.NONE
        code = self._fault(event.who, event.generation)
        if code is ErrorCode.NONE:
            self._touch(self.members[event.who.member], now)
            if self.state is State.COMPLETING:
                code = ErrorCode.REBALANCE_IN_PROGRESS
        return code

    # What else happens.

    def forgotten(self, ticket: int, now: Now) -> None:
        """Whoever waited in a ticket has gone; one who was never told its id is no member."""
        self._replacing.pop(ticket, None)
        for member in list(self.members):
            if ticket not in {member.join, member.sync}:
                continue
            was_new = ticket == member.join and not member.knows and member.instance is None
            member.join = member.sync = None
            self._touch(member, now)
            if was_new:
                self._lose([member], now)

    def stored(self, ticket: int, now: Now) -> None:
        """The record of a ticket is durable."""
        if ticket in self._replacing:
            member_id, leader = self._replacing.pop(ticket)
            self._touch(self.members[member_id], now)
            joined = self._joined(self.members[member_id])
            self._answer(ticket, joined._replace(leader=leader))
        elif ticket == self._storing:
            self._storing = None
            self._become(State.STABLE, now)
            for member in self.members:
                if member.sync is not None:
                    self._touch(member, now)
                    self._answer(member.sync, Synced(ErrorCode.NONE, member.assignment))
                    member.sync = None

    def refused(self, ticket: int, code: ErrorCode, now: Now) -> None:
        """The record of a ticket will never be durable."""
        if ticket in self._replacing:
            member_id, _ = self._replacing.pop(ticket)
            self._touch(self.members[member_id], now)
            self._answer(ticket, Joined(code, ""))
        elif ticket == self._storing:
            self._give_up(code, now)

    def tick(self, now: Now) -> None:
        """Time has passed."""
        late = [who for who, at_ms in self._expected.items() if at_ms <= now.mono_ms]
        for member_id in late:
            del self._expected[member_id]
        silent = [
            each for each in self.members if not each.waits and each.deadline_ms <= now.mono_ms
        ]
        self._lose(silent, now)
        if self._deadline_ms is None or self._deadline_ms > now.mono_ms:
            return
        if self.state is State.PREPARING:
            self._collected(now)
        else:  # who has not asked what it may read does not read it
            self._deadline_ms = None
            self._lose([each for each in self.members if each.owes_sync], now)

    def die(self) -> None:
        """It is being forgotten."""
        assert self.is_idle
        self.state = State.DEAD

    def revive(self) -> None:
        """It could not be forgotten."""
        assert self.state is State.DEAD
        self.state = State.EMPTY

    # What lasts.

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

    @classmethod
    def of(cls, name: str, value: GroupValue) -> Group:
        """A group as its record says; `open` begins its members' sessions."""
        group = cls(name)
        group.protocol_type, group.protocol = value.protocol_type, value.protocol
        group.generation, group.leader = value.generation, value.leader
        group.since_ms = value.current_state_timestamp
        for each in value.members:
            group.members.add(Member.of(each, value.protocol))
        if group.members:
            group.state = State.STABLE
        group.last = value
        return group

    def open(self, now: Now) -> None:
        """Members have one session from now to show themselves."""
        for member in self.members:
            self._touch(member, now)

    def subscribed(self) -> frozenset[str] | None:
        """Streams that members want to read; None where that cannot be said."""
        if not self.members:
            return frozenset()
        if self.protocol_type != CONSUMER or self.state is not State.STABLE:
            return None
        found: set[str] = set()
        for member in self.members:
            wanted = topics(member.metadata(self.protocol))
            if wanted is None:
                return None
            found |= wanted
        return frozenset(found)

    # Who comes and goes.

    def _refusal(self, event: Join, settings: GroupSettings, room_bytes: int) -> ErrorCode | None:
        """Why a client may not join."""
        if not settings.session_ms_min <= event.session_ms <= settings.session_ms_max:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        who, own = event.who, self.members.find(event.who)
        is_expected = who.member in self._expected
        if is_expected and who.instance is not None:  # who is static is given no id in advance
            return ErrorCode.UNKNOWN_MEMBER_ID
        if who.member and not is_expected:
            code = self.members.identify(who)
            if code is not ErrorCode.NONE:
                return code
        if not self._agrees(event, own):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if own is None and not is_expected and self.size >= settings.size_max:
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        is_large = self._is_large(event, own, room_bytes)
        return ErrorCode.POLICY_VIOLATION if is_large else None

    def _is_large(self, event: Join, own: Member | None, room_bytes: int) -> bool:
        """Whether what a client says of itself is too much for the group, or for all groups."""
        asked = _member(event, event.who.member or event.fresh_id)
        was_record_bytes = was_held_bytes = 0
        if own is not None:
            asked.assignment = own.assignment
            was_record_bytes, was_held_bytes = own.record_bytes, own.held_bytes
        record_bytes = self.members.record_bytes - was_record_bytes + asked.record_bytes
        grown_bytes = asked.held_bytes - was_held_bytes
        held_bytes = self.members.held_bytes + grown_bytes
        return (
            len(event.protocols) > limits.GROUP_PROTOCOLS_MAX
            or len(event.protocol_type.encode()) > limits.GROUP_ID_BYTES_MAX
            or record_bytes > limits.GROUP_RECORD_BYTES_MAX
            or held_bytes > limits.GROUP_HELD_BYTES_MAX
            or grown_bytes > max(room_bytes, 0)
        )

    def _agrees(self, event: Join, own: Member | None) -> bool:
        """Whether the others share out in a way that this client knows, too."""
        is_alone = len(self.members) == (own is not None)
        if not is_alone and event.protocol_type != self.protocol_type:
            return False
        is_said = event.protocol_type and event.protocols
        return bool(is_said) and self.members.agrees(event.protocols, own)

    def _rejoin(self, event: Join, now: Now, settings: GroupSettings) -> None:
        """A client comes back with the id that it was given."""
        if self._expected.pop(event.who.member, None) is not None:
            self._add(event, event.who.member, now, settings)
            return
        member = self.members[event.who.member]
        is_news = member.protocols != event.protocols
        is_lost = self.state is State.COMPLETING  # it did not hear the answer
        if not is_news and (is_lost or (self.state is State.STABLE and member.id != self.leader)):
            self._update(member, event)
            self._touch(member, now)
            self._answer(event.ticket, self._joined(member))
            return
        self._update(member, event)
        self._wait(member, event.ticket, now)

    def _replace(self, event: Join, now: Now) -> None:
        """A static member comes back without its id: it gets another, and the old one is fenced.

        What it reads stays as it is unless it wants to read something else.
        """
        member = self.members.find(event.who)
        assert member is not None
        said, leader = member.metadata(self.protocol), self.leader or ""
        self._end_waits(member, ErrorCode.FENCED_INSTANCE_ID)
        if leader == member.id:
            self.leader = event.fresh_id
        self.members.rename(member, event.fresh_id)
        self._update(member, event)
        is_same = self.members.chosen() == self.protocol and wants_the_same(
            said, member.metadata(self.protocol)
        )
        if self.state is not State.STABLE or not is_same:
            self._wait(member, event.ticket, now)
            return
        self._touch(member, now)
        # Named by its old id, a leader does not share out anew what nobody has asked for.
        self._replacing[event.ticket] = member.id, leader
        self._append(event.ticket)

    def _add(self, event: Join, member_id: str, now: Now, settings: GroupSettings) -> None:
        member = _member(event, member_id)
        self.members.add(member)
        self.protocol_type = event.protocol_type
        member.join = event.ticket
        self._grew = True
        if self.state is State.EMPTY:
            self._collect_first(now, settings.initial_delay_ms)
        else:
            self._wait(member, event.ticket, now)

    def _update(self, member: Member, event: Join) -> None:
        self.members.update(member, event)
        if len(self.members) == 1:
            self.protocol_type = event.protocol_type

    def _wait(self, member: Member, ticket: int, now: Now) -> None:
        """A member waits for the next generation, which must come."""
        if member.join != ticket:
            self._end_waits(member, ErrorCode.REBALANCE_IN_PROGRESS)
        member.join = ticket
        if self.state is State.PREPARING:
            if self._deadline_ms is None:  # the first of static members that were all away
                self._deadline_ms = now.mono_ms + self._patience_ms()
            self._advance(now)
        else:
            self._rebalance(now)

    def _lose(self, members: Iterable[Member], now: Now) -> None:
        """Members are no longer; the others share out what they had."""
        has_lost = False
        for member in members:
            has_lost = True
            self._end_waits(member, ErrorCode.UNKNOWN_MEMBER_ID)
            self.members.remove(member)
        if has_lost and self.state in {State.STABLE, State.COMPLETING}:
            self._rebalance(now)
        else:
            self._advance(now)

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

    def _fault(self, who: Identity, generation: int) -> ErrorCode:
        """Why somebody may not speak for a generation."""
        code = self.members.identify(who)
        if code is ErrorCode.NONE and generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return code

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
            members = tuple((each.identity, each.metadata(self.protocol)) for each in self.members)
        return Joined(
            ErrorCode.NONE,
            member.id,
            self.generation,
            self.protocol or "",
            self.leader or "",
            members,
        )

    def _append(self, ticket: int | None) -> None:
        self.last = self.value()
        self._effects.append(Append(ticket, self.name, [records.of_group(self.name, self.last)]))

    def _answer(self, ticket: int, outcome: Outcome) -> None:
        self._effects.append(Answer(ticket, outcome))


def _member(event: Join, member_id: str) -> Member:
    """A client as it says that it is."""
    return Member(
        id=member_id,
        instance=event.who.instance,
        client_id=event.client_id,
        host=event.host,
        session_ms=event.session_ms,
        rebalance_ms=event.rebalance_ms,
        protocols=event.protocols,
        knows=bool(event.who.member),
    )
