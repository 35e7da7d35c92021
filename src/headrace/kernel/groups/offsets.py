"""How far each consumer group has read: a part of the machine of groups.

An offset that a client commits is first a record, and counts only once that is durable: what a
group can read is durable. So it is with one that an operator has forgotten. To the bounds it counts
before: many may be on their way at once. Must not know members, streams or clocks. Invariant:
offsets of one group apply in the order in which they were appended.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace import limits
from headrace.kernel.groups import records
from headrace.kernel.groups.events import Answer, Append, Codes, Committed, Place
from headrace.kernel.groups.owners import NOBODY, Shares
from headrace.wire.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterator, KeysView, Mapping

    from headrace.kernel.groups.events import Commit, DeleteOffsets, Effect
    from headrace.kernel.keyed import Record


@dataclass(slots=True)
class _Pending:
    """A ticket on its way to the disk, and what it is answered once it is there.

    Attributes:
        grown, grown_bytes: how many places, and texts beside them, will be more for `owner`.
    """

    group: str
    offsets: dict[Place, Committed | None]
    codes: dict[Place, ErrorCode]
    owner: str = NOBODY
    grown: int = 0
    grown_bytes: int = 0


class Offsets:
    """The committed offsets of all groups that this node keeps."""

    __slots__ = (
        "_groups", "_metadata_bytes", "_offsets_max", "_owners", "_pending", "_places", "_tickets",
        "count",
    )  # fmt: skip

    def __init__(self, offsets_max: int = limits.OFFSETS_MAX) -> None:
        self._offsets_max = offsets_max
        self._groups: dict[str, dict[Place, Committed]] = {}
        self._pending: dict[int, _Pending] = {}
        self._tickets: dict[str, set[int]] = {}  # of `_pending`, by group
        self.count = 0
        self._owners: dict[str, str] = {}  # of `_groups` that are not nobody's
        self._places = Shares()
        self._metadata_bytes = Shares()

    @property
    def groups(self) -> KeysView[str]:
        """Groups that have an offset."""
        return self._groups.keys()

    @property
    def streams(self) -> set[str]:
        """Streams that any group has an offset in."""
        return {place.stream for offsets in self._groups.values() for place in offsets}

    def of(self, group: str) -> Mapping[Place, Committed]:
        """What a group has committed, durable all of it."""
        return self._groups.get(group, {})

    def pending(self, group: str) -> set[Place]:
        """What of a group is on its way to the disk."""
        on_their_way = (self._pending[each].offsets for each in self._tickets.get(group, ()))
        return {place for offsets in on_their_way for place in offsets}

    def commit(self, event: Commit, owner: str) -> list[Effect]:
        """Begins to keep what a client commits that may; of a new group for this owner."""
        if event.group in self._groups:
            owner = self._owners.get(event.group, NOBODY)
        return self._append(event.ticket, self._judged(event, owner))

    def delete(self, event: DeleteOffsets, held: Mapping[Place, ErrorCode]) -> list[Effect]:
        """Begins to forget places, but for those that are `held`."""
        gone = dict.fromkeys(sorted(event.places - held.keys()))
        codes = dict.fromkeys(gone, ErrorCode.NONE) | dict(held)
        return self._append(event.ticket, _Pending(event.group, gone, codes))

    def stored(self, ticket: int) -> list[Effect]:
        """The records of a ticket are durable; nothing where it was no ticket of ours."""
        pending = self._landed(ticket)
        if pending is None:
            return []
        for place, committed in pending.offsets.items():
            self.put(pending.group, place, committed, pending.owner)
        return [Answer(ticket, Codes(pending.codes))]

    def refused(self, ticket: int, code: ErrorCode) -> list[Effect]:
        """The records of a ticket will never be durable."""
        pending = self._landed(ticket)
        if pending is None:
            return []
        return [Answer(ticket, Codes({p: c or code for p, c in pending.codes.items()}))]

    def put(
        self, group: str, place: Place, committed: Committed | None, owner: str = NOBODY
    ) -> None:
        """Says what is durable, of a new group for this owner; None forgets."""
        if committed is None:
            self._drop(group, place)
            return
        if group not in self._groups and owner != NOBODY:
            self._owners[group] = owner
        offsets = self._groups.setdefault(group, {})
        grown = place not in offsets
        grown_bytes = _metadata_bytes(committed) - _metadata_bytes(offsets.get(place))
        offsets[place] = committed
        self.count += grown
        self._hold(self._owners.get(group, NOBODY), grown, grown_bytes)

    def forget_group(self, group: str) -> None:
        """Forgets all of a group, whose records are gone."""
        gone, owner = self._groups.pop(group, {}), self._owners.pop(group, NOBODY)
        self.count -= len(gone)
        self._hold(owner, -len(gone), -sum(map(_metadata_bytes, gone.values())))

    def forget_stream(self, stream: str) -> list[Effect]:
        """Forgets a stream that is gone."""
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
            Append(None, group, records.forget(group, places)) for group, places in gone.items()
        ]

    def records(self, group: str) -> Iterator[Record]:
        """What a group has committed, as it is at the moment of the call."""
        kept = list(self._groups.get(group, {}).items())
        return (records.of_offset(group, place, committed) for place, committed in kept)

    def _append(self, ticket: int, pending: _Pending) -> list[Effect]:
        if not pending.offsets:
            return [Answer(ticket, Codes(pending.codes))]
        assert ticket not in self._pending
        self._pending[ticket] = pending
        self._tickets.setdefault(pending.group, set()).add(ticket)
        self._hold(pending.owner, pending.grown, pending.grown_bytes)
        appended = [records.of_offset(pending.group, *each) for each in pending.offsets.items()]
        return [Append(ticket, pending.group, appended)]

    def _landed(self, ticket: int) -> _Pending | None:
        """A ticket is on its way no more."""
        pending = self._pending.pop(ticket, None)
        if pending is not None:
            tickets = self._tickets[pending.group]
            tickets.remove(ticket)
            if not tickets:
                del self._tickets[pending.group]
            self._hold(pending.owner, -pending.grown, -pending.grown_bytes)
        return pending

    def _judged(self, event: Commit, owner: str) -> _Pending:
        """What of a commit may be kept, and how each of its places is answered."""
        known = self.of(event.group)
        room = self._places.room(owner, self._offsets_max, limits.OFFSETS_OWNED_MAX)
        room_bytes = self._metadata_bytes.room(
            owner, limits.OFFSETS_METADATA_BYTES_MAX, limits.OFFSETS_METADATA_OWNED_BYTES_MAX
        )
        judged = _Pending(event.group, {}, {}, owner)
        for place, committed in event.offsets.items():
            size_bytes = _metadata_bytes(committed)
            grown_bytes = size_bytes - _metadata_bytes(known.get(place))
            if size_bytes > limits.OFFSET_METADATA_BYTES_MAX:
                judged.codes[place] = ErrorCode.OFFSET_METADATA_TOO_LARGE
            elif (place not in known and judged.grown >= room) or grown_bytes > max(
                room_bytes - judged.grown_bytes, 0
            ):
                judged.codes[place] = ErrorCode.POLICY_VIOLATION
            else:
                judged.codes[place] = ErrorCode.NONE
                judged.offsets[place] = committed
                judged.grown += place not in known
                judged.grown_bytes += grown_bytes
        judged.grown_bytes = max(judged.grown_bytes, 0)
        return judged

    def _drop(self, group: str, place: Place) -> None:
        offsets = self._groups.get(group, {})
        gone = offsets.pop(place, None)
        if gone is not None:
            self.count -= 1
            self._hold(self._owners.get(group, NOBODY), -1, -_metadata_bytes(gone))
            if not offsets:
                self.forget_group(group)

    def _hold(self, owner: str, places: int, metadata_bytes: int) -> None:
        self._places.add(owner, places)
        self._metadata_bytes.add(owner, metadata_bytes)


def _metadata_bytes(committed: Committed | None) -> int:
    return 0 if committed is None else len(committed.metadata.encode())
