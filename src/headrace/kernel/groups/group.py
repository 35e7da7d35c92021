"""The members of one consumer group, and what they ask: Kafka's classic protocol.

Owns who is a member, who may become one, and what is fenced. How members come to share a generation
is below (`headrace.kernel.groups.generation`). Must not know what an assignment says, nor clocks:
deadlines are data, and `tick` is told when they may have passed.

Invariant: a member that waits in `join` or `sync` is alive.

Source: KIP-62 (rebalance timeout), KIP-345 (static members), KIP-394 (MEMBER_ID_REQUIRED).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace import limits
from headrace.kernel.groups.events import NO_GENERATION, Joined, Left, Synced
from headrace.kernel.groups.generation import Generations, State
from headrace.kernel.groups.roster import Member, topics, wants_the_same
from headrace.wire.kafka.errors import ErrorCode
from headrace.wire.kafka.members import CONSUMER

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.kernel.groups.events import (
        Commit,
        GroupSettings,
        Heartbeat,
        Identity,
        Join,
        Leave,
        Now,
        Sync,
    )
    from headrace.wire.kafka.members import GroupValue


class Group(Generations):
    """One group: who is in it, comes and goes."""

    @property
    def is_idle(self) -> bool:
        """Whether nobody is in it, or on the way into it."""
        return self.state is State.EMPTY and not self._expected

    @property
    def size(self) -> int:
        """Members, with those who have an id and are expected."""
        return len(self.members) + len(self._expected)

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

    def _fault(self, who: Identity, generation: int) -> ErrorCode:
        """Why somebody may not speak for a generation."""
        code = self.members.identify(who)
        if code is ErrorCode.NONE and generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return code


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
