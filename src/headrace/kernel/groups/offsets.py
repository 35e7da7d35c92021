"""How far each consumer group has read: a part of the machine of groups.

An offset that a client commits is first a record, and counts only once that is durable: what a
group can read is durable. So it is with one that an operator has forgotten. Must not know members,
streams or clocks. Invariant: offsets of one group apply in the order in which they were appended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from headrace import limits
from headrace.kernel.groups import records
from headrace.kernel.groups.events import Answer, Append, Codes, Committed, Place
from headrace.wire.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterator, KeysView, Mapping

    from headrace.kernel.groups.events import Commit, DeleteOffsets, Effect
    from headrace.kernel.keyed import Record


class _Pending(NamedTuple):
    """A ticket on its way to the disk, and what it is answered once it is there."""

    group: str
    offsets: dict[Place, Committed | None]
    codes: dict[Place, ErrorCode]


class Offsets:
    """The committed offsets of all groups that this node keeps."""

    __slots__ = ("_groups", "_metadata_bytes", "_offsets_max", "_pending", "_tickets", "count")

    def __init__(self, offsets_max: int = limits.OFFSETS_MAX) -> None:
        self._offsets_max = offsets_max
        self._groups: dict[str, dict[Place, Committed]] = {}
        self._pending: dict[int, _Pending] = {}
        self._tickets: dict[str, set[int]] = {}  # of `_pending`, by group
        self.count = 0
        self._metadata_bytes = 0

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

    def commit(self, event: Commit) -> list[Effect]:
        """Begins to keep what a client commits that may."""
        codes = self._verdicts(event)
        accepted = {p: c for p, c in event.offsets.items() if codes[p] is ErrorCode.NONE}
        return self._append(event.ticket, event.group, accepted, codes)

    def delete(self, event: DeleteOffsets, held: Mapping[Place, ErrorCode]) -> list[Effect]:
        """Begins to forget places, but for those that are `held`."""
        gone = dict.fromkeys(sorted(event.places - held.keys()))
        codes = dict.fromkeys(gone, ErrorCode.NONE) | dict(held)
        return self._append(event.ticket, event.group, gone, codes)

    def stored(self, ticket: int) -> list[Effect]:
        """The records of a ticket are durable; nothing where it was no ticket of ours."""
        pending = self._landed(ticket)
        if pending is None:
            return []
        for place, committed in pending.offsets.items():
            self.put(pending.group, place, committed)
        return [Answer(ticket, Codes(pending.codes))]

    def refused(self, ticket: int, code: ErrorCode) -> list[Effect]:
        """The records of a ticket will never be durable."""
        pending = self._landed(ticket)
        if pending is None:
            return []
        return [Answer(ticket, Codes({p: c or code for p, c in pending.codes.items()}))]

    def put(self, group: str, place: Place, committed: Committed | None) -> None:
        """Says what is durable; None forgets."""
        if committed is None:
            self._drop(group, place)
            return
        offsets = self._groups.setdefault(group, {})
        self.count += place not in offsets
        self._metadata_bytes += _metadata_bytes(committed) - _metadata_bytes(offsets.get(place))
        offsets[place] = committed

    def forget_group(self, group: str) -> None:
        """Forgets all of a group, whose records are gone."""
        gone = self._groups.pop(group, {})
        self.count -= len(gone)
        self._metadata_bytes -= sum(map(_metadata_bytes, gone.values()))

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

    def _append(
        self,
        ticket: int,
        group: str,
        offsets: Mapping[Place, Committed | None],
        codes: dict[Place, ErrorCode],
    ) -> list[Effect]:
        if not offsets:
            return [Answer(ticket, Codes(codes))]
        assert ticket not in self._pending
        self._pending[ticket] = _Pending(group, dict(offsets), codes)
        self._tickets.setdefault(group, set()).add(ticket)
        appended = [records.of_offset(group, *each) for each in offsets.items()]
        return [Append(ticket, group, appended)]

    def _landed(self, ticket: int) -> _Pending | None:
        """A ticket is on its way no more."""
        pending = self._pending.pop(ticket, None)
        if pending is not None:
            tickets = self._tickets[pending.group]
            tickets.remove(ticket)
            if not tickets:
                del self._tickets[pending.group]
        return pending

    def _verdicts(self, event: Commit) -> dict[Place, ErrorCode]:
        known = self.of(event.group)
        room = self._offsets_max - self.count
        room_bytes = limits.OFFSETS_METADATA_BYTES_MAX - self._metadata_bytes
        codes = {}
        for place, committed in event.offsets.items():
            size_bytes = _metadata_bytes(committed)
            grown_bytes = size_bytes - _metadata_bytes(known.get(place))
            if size_bytes > limits.OFFSET_METADATA_BYTES_MAX:
                codes[place] = ErrorCode.OFFSET_METADATA_TOO_LARGE
            elif (place not in known and room <= 0) or grown_bytes > max(room_bytes, 0):
                codes[place] = ErrorCode.POLICY_VIOLATION
            else:
                codes[place] = ErrorCode.NONE
                room -= place not in known
                room_bytes -= grown_bytes
        return codes

    def _drop(self, group: str, place: Place) -> None:
        offsets = self._groups.get(group, {})
        gone = offsets.pop(place, None)
        if gone is not None:
            self.count -= 1
            self._metadata_bytes -= _metadata_bytes(gone)
            if not offsets:
                del self._groups[group]


def _metadata_bytes(committed: Committed | None) -> int:
    return 0 if committed is None else len(committed.metadata.encode())
