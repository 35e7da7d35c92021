"""How far each consumer group has read: a pure machine of committed offsets.

`handle(event)` returns effects and touches nothing else. An offset that a client commits is first
an `Append` (the records that make it last), and counts only once `Stored` has come back: what a
group can read is durable. Groups have no members yet, so a commit that names a generation is
refused.

Owns offsets and their records' layout (Kafka's own). Must not know partitions, streams or clocks:
its owner says which partitions exist. Invariants: a ticket is answered exactly once; offsets of
one group apply in the order in which they were appended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from headrace import limits
from headrace.errors import MalformedError
from headrace.kernel.keyed import Record
from headrace.wire.kafka.codec import decode, encode
from headrace.wire.kafka.errors import ErrorCode
from headrace.wire.kafka.groups import OFFSET_KEY_VERSION, OffsetKey, OffsetValue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

NO_GENERATION: Final = -1
"""What a client without group membership commits under."""


class Place(NamedTuple):
    """One partition of one stream."""

    stream: str
    partition: int


class Committed(NamedTuple):
    """How far a group has read one partition: the offset that it wants next."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_ms: int = 0


# --- events --------------------------------------------------------------------------------------


class Commit(NamedTuple):
    """A client commits; every place of `offsets` is known to exist."""

    ticket: int
    group: str
    generation: int
    offsets: Mapping[Place, Committed]


class Stored(NamedTuple):
    """The records of a ticket are durable."""

    ticket: int


class Refused(NamedTuple):
    """The records of a ticket could not be stored, and never will be."""

    ticket: int
    code: ErrorCode


class Replayed(NamedTuple):
    """A record read back while the node starts, in the order in which it was appended."""

    record: Record


class StreamDeleted(NamedTuple):
    """A stream is gone; a later one of its name begins without offsets."""

    stream: str


Event = Commit | Stored | Refused | Replayed | StreamDeleted


# --- effects -------------------------------------------------------------------------------------


class Append(NamedTuple):
    """Make these records of `group` durable, then hand `Stored` or `Refused` back.

    Without a ticket nobody waits: the event that caused it comes again at the next start.
    """

    ticket: int | None
    group: str
    records: list[Record]


class Answer(NamedTuple):
    """The end of a commit, for each of its places."""

    ticket: int
    codes: Mapping[Place, ErrorCode]


Effect = Append | Answer


class _Pending(NamedTuple):
    """A ticket on its way to the disk, and what it is answered once it is there."""

    group: str
    offsets: dict[Place, Committed]
    codes: dict[Place, ErrorCode]


class Groups:
    """The committed offsets of all groups that this node keeps."""

    __slots__ = ("_count", "_groups", "_offsets_max", "_pending")

    def __init__(self, offsets_max: int = limits.OFFSETS_MAX) -> None:
        self._offsets_max = offsets_max
        self._groups: dict[str, dict[Place, Committed]] = {}
        self._pending: dict[int, _Pending] = {}
        self._count = 0

    @property
    def count(self) -> int:
        """Committed offsets of all groups together."""
        return self._count

    @property
    def streams(self) -> set[str]:
        """Streams that any group has an offset in."""
        return {place.stream for offsets in self._groups.values() for place in offsets}

    def offsets(self, group: str) -> Mapping[Place, Committed]:
        """What a group has committed, durable all of it."""
        return self._groups.get(group, {})

    def records(self, belongs: Callable[[str], bool]) -> Iterator[Record]:
        """What the groups that `belongs` names have committed, as it is now."""
        kept = [
            (group, list(self._groups[group].items())) for group in self._groups if belongs(group)
        ]
        return (
            _record(group, place, committed)
            for group, offsets in kept
            for place, committed in offsets
        )

    def handle(self, event: Event) -> list[Effect]:
        """Takes one event and says what must be done."""
        match event:
            case Commit():
                return self._commit(event)
            case Stored(ticket):
                return self._stored(ticket)
            case Refused(ticket, code):
                return self._refused(ticket, code)
            case Replayed(record):
                return self._replayed(record)
            case StreamDeleted(stream):
                return self._deleted(stream)

    def _commit(self, event: Commit) -> list[Effect]:
        codes = self._verdicts(event)
        accepted = {p: c for p, c in event.offsets.items() if codes[p] is ErrorCode.NONE}
        if not accepted:
            return [Answer(event.ticket, codes)]
        assert event.ticket not in self._pending
        self._pending[event.ticket] = _Pending(event.group, accepted, codes)
        records = [_record(event.group, place, accepted[place]) for place in accepted]
        return [Append(event.ticket, event.group, records)]

    def _verdicts(self, event: Commit) -> dict[Place, ErrorCode]:
        if not 1 <= len(event.group.encode()) <= limits.GROUP_ID_BYTES_MAX:
            return dict.fromkeys(event.offsets, ErrorCode.INVALID_GROUP_ID)
        if event.generation != NO_GENERATION:
            return dict.fromkeys(event.offsets, ErrorCode.ILLEGAL_GENERATION)
        known = self.offsets(event.group)
        room = self._offsets_max - self._count
        codes = {}
        for place, committed in event.offsets.items():
            if len(committed.metadata.encode()) > limits.OFFSET_METADATA_BYTES_MAX:
                codes[place] = ErrorCode.OFFSET_METADATA_TOO_LARGE
            elif place not in known and room <= 0:
                codes[place] = ErrorCode.POLICY_VIOLATION
            else:
                codes[place] = ErrorCode.NONE
                room -= place not in known
        return codes

    def _stored(self, ticket: int) -> list[Effect]:
        pending = self._pending.pop(ticket)
        for place, committed in pending.offsets.items():
            self._put(pending.group, place, committed)
        return [Answer(ticket, pending.codes)]

    def _refused(self, ticket: int, code: ErrorCode) -> list[Effect]:
        codes = self._pending.pop(ticket).codes
        return [Answer(ticket, {p: c or code for p, c in codes.items()})]

    def _replayed(self, record: Record) -> list[Effect]:
        try:
            key = decode(OffsetKey, record.key)
            value = None if record.value is None else decode(OffsetValue, record.value)
        except MalformedError:
            return []
        if key.version != OFFSET_KEY_VERSION:  # Kafka keeps members of groups beside offsets
            return []
        place = Place(key.topic, key.partition)
        if value is None:
            self._drop(key.group, place)
        else:
            committed = Committed(
                value.offset, value.leader_epoch, value.metadata, value.commit_timestamp
            )
            self._put(key.group, place, committed)
        return []

    def _deleted(self, stream: str) -> list[Effect]:
        gone: dict[str, dict[Place, None]] = {}
        for pending in self._pending.values():
            for place in [place for place in pending.offsets if place.stream == stream]:
                del pending.offsets[place]  # its record is on its way; the deletion follows it
                gone.setdefault(pending.group, {})[place] = None
        for group, offsets in list(self._groups.items()):
            for place in [place for place in offsets if place.stream == stream]:
                self._drop(group, place)
                gone.setdefault(group, {})[place] = None
        return [
            Append(None, group, [_record(group, place, None) for place in places])
            for group, places in gone.items()
        ]

    def _put(self, group: str, place: Place, committed: Committed) -> None:
        offsets = self._groups.setdefault(group, {})
        self._count += place not in offsets
        offsets[place] = committed

    def _drop(self, group: str, place: Place) -> None:
        offsets = self._groups.get(group, {})
        if offsets.pop(place, None) is not None:
            self._count -= 1
            if not offsets:
                del self._groups[group]


def _record(group: str, place: Place, committed: Committed | None) -> Record:
    key = OffsetKey(group=group, topic=place.stream, partition=place.partition)
    if committed is None:
        return Record(encode(key), None)
    value = OffsetValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_ms,
    )
    return Record(encode(key), encode(value))
