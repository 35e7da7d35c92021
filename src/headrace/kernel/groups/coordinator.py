"""All consumer groups of a node: a pure machine, events in, effects out.

`handle(event, now)` returns effects and touches nothing else; `next_ms` says when a `Tick` is due.
Joins the members of each group with what all groups have committed: who may commit, what is
forgotten and when. Must not know partitions, streams or clocks: its owner says which partitions
exist. Invariants: a ticket is answered once, or forgotten; what a client has been told is durable.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace import limits
from headrace.errors import MalformedError
from headrace.kernel.groups import records
from headrace.kernel.groups.events import (
    NO_GENERATION,
    Answer,
    Append,
    Codes,
    Commit,
    Configured,
    DeleteGroup,
    DeleteOffsets,
    Forgotten,
    GroupSettings,
    Heartbeat,
    Join,
    Joined,
    Leave,
    Left,
    Opened,
    Place,
    Refused,
    Replayed,
    Request,
    Stored,
    StreamDeleted,
    Sync,
    Synced,
    Tick,
)
from headrace.kernel.groups.generation import State
from headrace.kernel.groups.group import Group
from headrace.kernel.groups.offsets import Offsets
from headrace.kernel.groups.owners import Shares
from headrace.kernel.groups.records import GroupRecord, OffsetRecord
from headrace.wire.kafka.errors import ErrorCode
from headrace.wire.kafka.members import CONSUMER, ConsumerAssignment, consumers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from headrace.kernel.groups.events import Committed, Effect, Event, Now, Outcome
    from headrace.kernel.groups.roster import Member
    from headrace.kernel.keyed import Record


SPARE_ALARMS: Final = 1000
"""Of groups that have gone or ring earlier, before they are cleared away."""


class Described(NamedTuple):
    """A group as operators see it.

    Attributes:
        protocol_type, protocol: empty where there is none.
        members: with their metadata and assignments as bytes, which hold if `state` is stable.
    """

    name: str
    state: State
    generation: int = 0
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[Member, ...] = ()

    def readers(self) -> dict[Place, str]:
        """Which member reads which partition, as far as members say so."""
        if self.protocol_type != CONSUMER or self.state is not State.STABLE:
            return {}
        found: dict[Place, str] = {}
        for member in self.members:
            try:
                said = consumers(ConsumerAssignment, member.assignment)
            except MalformedError:
                continue
            for each in said.assigned_partitions:
                found |= {Place(each.topic, index): member.id for index in each.partitions}
        return found


class Groups:
    """The consumer groups that this node keeps.

    Attributes:
        settings: what holds for requests from now on.
        generations: begun, of all groups.
        expired: offsets that were kept long enough.
    """

    def __init__(
        self, settings: GroupSettings | None = None, offsets_max: int = limits.OFFSETS_MAX
    ) -> None:
        self.settings = settings or GroupSettings()
        self.generations = 0
        self.expired = 0
        self._offsets = Offsets(offsets_max)
        self._groups: dict[str, Group] = {}
        self._places = Shares()  # as many as `_groups`
        self._held_bytes = Shares()
        self._deleting: dict[int, str] = {}
        self._alarms: list[tuple[int, str]] = []  # no later than each group's next_ms
        self._armed: dict[str, int] = {}
        self._look_ms: int | None = None  # when offsets are looked at for their age
        self._looking: list[str] = []

    # What is there.

    @property
    def count(self) -> int:
        """Committed offsets of all groups together."""
        return self._offsets.count

    @property
    def members(self) -> int:
        """Members of all groups together."""
        return sum(len(group.members) for group in self._groups.values())

    @property
    def streams(self) -> set[str]:
        """Streams that any group has an offset in."""
        return self._offsets.streams

    @property
    def names(self) -> Iterator[str]:
        """Every group, in no order; to be gone through before anything happens."""
        yield from self._offsets.groups
        yield from self._without_offsets

    def __len__(self) -> int:
        """How many groups there are."""
        return len(self._offsets.groups) + sum(1 for _ in self._without_offsets)

    @property
    def _without_offsets(self) -> Iterator[str]:
        known = self._offsets.groups
        return (name for name in self._groups if name not in known)

    def describe(self, name: str) -> Described:
        """A group; one that is not there is dead."""
        group = self._groups.get(name)
        if group is None:
            known = name in self._offsets.groups
            return Described(name, State.EMPTY if known else State.DEAD)
        return Described(
            name,
            group.state,
            group.generation,
            group.protocol_type,
            group.protocol or "",
            tuple(group.members),
        )

    def protocol_type(self, name: str) -> str:
        """What the members of a group are; empty where it never had any."""
        group = self._groups.get(name)
        return "" if group is None else group.protocol_type

    def offsets(self, group: str) -> Mapping[Place, Committed]:
        """What a group has committed, durable all of it."""
        return self._offsets.of(group)

    def records(self, name: str) -> Iterator[Record]:
        """What the records of a group come to, with what is appended last."""
        group = self._groups.get(name)
        if group is not None and group.last is not None:
            yield records.of_group(name, group.last)
        yield from self._offsets.records(name)

    def next_ms(self) -> int | None:
        """When a `Tick` is due, by the monotonic clock."""
        moments = [moment for moment, _ in self._alarms[:1]]
        moments += [] if self._look_ms is None else [self._look_ms]
        return min(moments, default=None)

    # What happens.

    def handle(self, event: Event, now: Now) -> list[Effect]:
        """Takes one event and says what must be done."""
        if isinstance(event, Request):
            return self._refuses(event) or self._asked(event, now)
        match event:
            case Tick():
                return self._ticked(now)
            case Stored() | Refused():
                return self._ended(event, now)
            case Forgotten(ticket, name):
                return self._on(name, lambda group: group.forgotten(ticket, now))
            case StreamDeleted(stream):
                return self._offsets.forget_stream(stream)
            case Replayed(record):
                self._replayed(record)
            case Configured(settings):
                self.settings = settings
                self._look_later(now)
            case Opened():
                for name in self._groups:
                    self._on(name, lambda group: group.open(now))
                self._look_later(now)
        return []

    def _refuses(self, event: Request) -> list[Effect]:
        """How a request is refused whatever it asks."""
        name = event.group
        if not 1 <= len(name.encode()) <= limits.GROUP_ID_BYTES_MAX:
            return _refused(event, ErrorCode.INVALID_GROUP_ID)
        group = self._groups.get(name)
        if group is not None and group.state is State.DEAD:
            return _refused(event, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if group is None and isinstance(event, Sync | Leave | Heartbeat):
            return _refused(event, ErrorCode.UNKNOWN_MEMBER_ID)
        return []

    def _asked(self, event: Request, now: Now) -> list[Effect]:
        match event:
            case Join():
                return self._join(event, now)
            case Sync():
                room_bytes = self._room_bytes(self._groups[event.group].owner)
                return self._on(event.group, lambda group: group.sync(event, now, room_bytes))
            case Heartbeat():  # which makes no deadline earlier
                group = self._groups[event.group]
                group.heartbeat(event, now)
                return group.take()
            case Leave():
                return self._on(event.group, lambda group: group.leave(event, now))
            case Commit():
                return self._commit(event, now)
            case _:
                return self._deleted(event)

    def _deleted(self, event: DeleteOffsets | DeleteGroup) -> list[Effect]:
        if isinstance(event, DeleteGroup):
            return self._delete(event)
        return self._delete_offsets(event)

    def _join(self, event: Join, now: Now) -> list[Effect]:
        name, group = event.group, self._groups.get(event.group)
        owner = event.owner if group is None else group.owner
        if group is None:
            if event.who.member:
                return _refused(event, ErrorCode.UNKNOWN_MEMBER_ID)
            if self._places.room(owner, limits.GROUPS_MAX, limits.GROUPS_OWNED_MAX) <= 0:
                return _refused(event, ErrorCode.POLICY_VIOLATION)
        room_bytes = self._room_bytes(owner)
        if room_bytes <= 0 and not event.who.member:
            return _refused(event, ErrorCode.POLICY_VIOLATION)
        if group is None:
            self._put(Group(name, owner))
        return self._on(name, lambda group: group.join(event, now, self.settings, room_bytes))

    def _commit(self, event: Commit, now: Now) -> list[Effect]:
        group = self._groups.get(event.group)
        if group is not None:
            code = group.fence(event, now)
        elif event.generation == NO_GENERATION:
            code = ErrorCode.NONE
        else:
            code = ErrorCode.ILLEGAL_GENERATION
        if code is not ErrorCode.NONE:
            return _refused(event, code)
        return self._offsets.commit(event, event.owner if group is None else group.owner)

    def _delete_offsets(self, event: DeleteOffsets) -> list[Effect]:
        group = self._groups.get(event.group)
        if event.group not in self._offsets.groups and group is None:
            return _refused(event, ErrorCode.GROUP_ID_NOT_FOUND)
        read = frozenset[str]() if group is None else group.subscribed()
        if read is None:
            return _refused(event, ErrorCode.NON_EMPTY_GROUP)
        held = [place for place in event.places if place.stream in read]
        return self._offsets.delete(event, dict.fromkeys(held, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC))

    def _delete(self, event: DeleteGroup) -> list[Effect]:
        name = event.group
        group = self._groups.get(name)
        if group is None:
            if name not in self._offsets.groups:
                return _refused(event, ErrorCode.GROUP_ID_NOT_FOUND)
            group = self._put(Group(name))
        if not group.is_idle:
            return _refused(event, ErrorCode.NON_EMPTY_GROUP)
        group.die()
        self._deleting[event.ticket] = name
        # What is on its way is stored before, and must not outlive this.
        places = self._offsets.of(name).keys() | self._offsets.pending(name)
        return [Append(event.ticket, name, self._tombstones(group, sorted(places)))]

    def _ended(self, event: Stored | Refused, now: Now) -> list[Effect]:
        ticket, name = event.ticket, event.group
        code = event.code if isinstance(event, Refused) else ErrorCode.NONE
        if self._deleting.pop(ticket, None) is not None:
            if code is ErrorCode.NONE:
                self._offsets.forget_group(name)
                self._forget(name)
            else:
                self._on(name, Group.revive)
            return [Answer(ticket, code)]
        if isinstance(event, Refused):
            return self._offsets.refused(ticket, code) or self._on(
                name, lambda group: group.refused(ticket, code, now)
            )
        return self._offsets.stored(ticket) or self._on(
            name, lambda group: group.stored(ticket, now)
        )

    def _replayed(self, record: Record) -> None:
        match records.read(record):
            case OffsetRecord(name, place, committed):
                self._offsets.put(name, place, committed)
            case GroupRecord(name, value):
                self._forget(name)
                if value is not None:
                    self._put(Group.of(name, value))

    # Time.

    def _ticked(self, now: Now) -> list[Effect]:
        effects: list[Effect] = []
        while self._alarms and self._alarms[0][0] <= now.mono_ms:
            moment, name = heapq.heappop(self._alarms)
            if self._armed.get(name) == moment:
                del self._armed[name]
                effects += self._on(name, lambda group: group.tick(now))
        if self._look_ms is not None and self._look_ms <= now.mono_ms:
            effects += self._look(now)
        return effects

    def _look_later(self, now: Now) -> None:
        self._look_ms = now.mono_ms + min(limits.OFFSETS_CHECK_MS, self.settings.retention_ms)

    def _look(self, now: Now) -> list[Effect]:
        """Forgets what was kept long enough, of some groups; a further tick goes on."""
        effects: list[Effect] = []
        looked_at = 0
        self._looking = self._looking or list(self.names)
        while self._looking and looked_at < limits.OFFSETS_CHECKED_AT_ONCE:
            name = self._looking.pop()
            looked_at += 1 + len(self._offsets.of(name))
            effects += self._expire(name, now)
        if self._looking:
            self._look_ms = now.mono_ms
        else:
            self._look_later(now)
        return effects

    def _expire(self, name: str, now: Now) -> list[Effect]:
        group = self._groups.get(name)
        if self._offsets.pending(name) or (group is not None and group.state is State.DEAD):
            return []  # in an hour it is old, too
        read = frozenset[str]() if group is None else group.subscribed()
        if read is None:
            return []
        since_ms = 0 if group is None or group.members else group.since_ms
        last_ms = now.wall_ms - self.settings.retention_ms
        places = [
            place
            for place, committed in self._offsets.of(name).items()
            if place.stream not in read and max(committed.commit_ms, since_ms) <= last_ms
        ]
        gone = group if group is not None and group.is_idle else None
        if len(places) < len(self._offsets.of(name)):
            gone = None
        appended = self._tombstones(gone, places) if gone else records.forget(name, places)
        for place in places:
            self._offsets.put(name, place, None)
        self.expired += len(places)
        if gone:
            self._forget(name)
        return [Append(None, name, appended)] if appended else []

    # What is shared.

    def _on(self, name: str, act: Callable[[Group], None]) -> list[Effect]:
        """Has a group do something; what comes of it. Nothing where there is no such group."""
        group = self._groups.get(name)
        if group is None:
            return []
        held_bytes, generation = group.held_bytes, group.generation
        act(group)
        self._held_bytes.add(group.owner, group.held_bytes - held_bytes)
        self.generations += group.generation - generation
        if group.is_idle and group.last is None:
            self._forget(name)  # it never was
            return group.take()
        moment, armed = group.next_ms(), self._armed.get(name)
        if moment is not None and (armed is None or moment < armed):
            self._arm(name, moment)
        return group.take()

    def _arm(self, name: str, moment: int) -> None:
        self._armed[name] = moment
        if len(self._alarms) > 2 * len(self._groups) + SPARE_ALARMS:  # most of no use any more
            self._alarms = [(moment, name) for name, moment in self._armed.items()]
            heapq.heapify(self._alarms)
        else:
            heapq.heappush(self._alarms, (moment, name))

    def _room_bytes(self, owner: str) -> int:
        """What the groups of an owner may hold in memory beside what they do."""
        return self._held_bytes.room(owner, limits.GROUPS_BYTES_MAX, limits.GROUPS_OWNED_BYTES_MAX)

    def _tombstones(self, group: Group, places: Iterable[Place]) -> list[Record]:
        """Records after which nothing is left of a group."""
        own = [] if group.last is None else [records.of_group(group.name, None)]
        return own + records.forget(group.name, places)

    def _put(self, group: Group) -> Group:
        self._groups[group.name] = group
        self._places.add(group.owner, 1)
        self._held_bytes.add(group.owner, group.held_bytes)
        return group

    def _forget(self, name: str) -> None:
        group = self._groups.pop(name, None)
        self._armed.pop(name, None)
        if group is not None:
            self._places.add(group.owner, -1)
            self._held_bytes.add(group.owner, -group.held_bytes)


def _refused(event: Request, code: ErrorCode) -> list[Effect]:
    """How a request hears that all of it is refused."""
    outcome: Outcome
    match event:
        case Join():
            outcome = Joined(code, event.who.member)
        case Sync():
            outcome = Synced(code)
        case Leave():
            outcome = Left(tuple((who, code) for who in event.who))
        case Commit():
            outcome = Codes(dict.fromkeys(event.offsets, code))
        case DeleteOffsets():
            outcome = Codes(dict.fromkeys(event.places, code))
        case Heartbeat() | DeleteGroup():
            outcome = code
    return [Answer(event.ticket, outcome)]
