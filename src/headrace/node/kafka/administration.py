"""Consumer groups for operators (`ports.Groups`), and how far behind they are.

Knows partitions and the coordinator, and decides neither where a group may be sent nor whether.
"""

from __future__ import annotations

from heapq import nsmallest
from itertools import islice
from typing import TYPE_CHECKING

from headrace import limits
from headrace.errors import (
    GroupInUseError,
    UnavailableError,
    UnknownGroupError,
    UnknownStreamError,
)
from headrace.kernel.groups.events import (
    NO_GENERATION,
    Codes,
    Commit,
    Committed,
    DeleteGroup,
    Identity,
    Place,
)
from headrace.kernel.groups.generation import State
from headrace.kernel.groups.reset import Aim, landing
from headrace.ports import GroupMember, GroupMove, GroupPartition, GroupReport, GroupSummary, Sample
from headrace.text import shown
from headrace.wire.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.kernel.groups.coordinator import Described
    from headrace.kernel.groups.reset import Target
    from headrace.node.broker import Broker
    from headrace.node.kafka.coordinator import Coordinator
    from headrace.node.partition import Partition


class GroupAdministration:
    """The groups of a node, seen from outside the Kafka door."""

    def __init__(self, broker: Broker, coordinator: Coordinator) -> None:
        self._broker = broker
        self._coordinator = coordinator
        self._groups = coordinator.groups

    def page(self, start: str, count_max: int) -> tuple[list[GroupSummary], str | None]:
        """A page of groups by name, from `start` on, and where the next begins."""
        names = (name for name in self._groups.names if name >= start)
        page = nsmallest(count_max + 1, names)
        following = page.pop() if len(page) > count_max else None
        return [self._summary(name) for name in page], following

    def describe(self, group: str) -> GroupReport:
        """One group.

        Raises:
            UnknownGroupError: there is none.
        """
        described = self._known(group)
        readers = described.readers()
        places = sorted(self._groups.offsets(group).keys() | readers.keys())
        found = [
            self._partition(group, place, partition, readers.get(place))
            for place in places
            if (partition := self._find(place)) is not None
        ]
        members = tuple(
            GroupMember(each.id, each.instance, each.client_id, each.host)
            for each in described.members
        )
        return GroupReport(
            group,
            described.state,
            described.generation,
            described.protocol,
            members,
            tuple(found),
        )

    async def reset(
        self, group: str, target: Target, streams: Sequence[str], *, execute: bool
    ) -> list[GroupMove]:
        """Sends a group elsewhere, in these streams or in all that it has committed in.

        Raises:
            UnknownGroupError, UnknownStreamError, GroupInUseError, UnavailableError: nothing is
                changed.
        """
        committed = self._groups.offsets(group)
        if not streams:
            streams = sorted({place.stream for place in committed})
            if not streams:
                raise UnknownGroupError(
                    f"the group {shown(group)} has committed nothing yet; name a stream"
                )
        moves = []
        for stream in streams:
            for partition in self._broker.partitions(stream):
                place = Place(stream, partition.index)
                now = committed[place].offset if place in committed else None
                to = await self._landing(target, now, partition)
                if to is not None:
                    moves.append(GroupMove(stream, partition.index, now, to))
        if execute and moves:
            await self._move(group, moves)
        return moves

    async def delete(self, group: str) -> None:
        """Forgets a group and what it has committed, for good.

        Raises:
            UnknownGroupError, GroupInUseError, UnavailableError: it stays.
        """
        code = await self._coordinator.ask(lambda ticket: DeleteGroup(ticket, group))
        assert isinstance(code, ErrorCode)
        self._raise(group, code)

    def samples(self) -> Iterator[Sample]:
        """How far groups are behind, of some thousand partitions."""
        every = (
            (group, place, committed)
            for group in self._groups.names
            for place, committed in self._groups.offsets(group).items()
        )
        for group, place, committed in islice(every, limits.GROUP_LAGS_MAX):
            if (partition := self._find(place)) is not None:
                where = (
                    ("group", group),
                    ("stream", place.stream),
                    ("partition", str(place.partition)),
                )
                lag = _lag(committed, partition)
                yield Sample("kafka_group_lag_records", lag, "Records not read by a group.", where)
        left_out = max(self._groups.count - limits.GROUP_LAGS_MAX, 0)
        yield Sample(
            "kafka_group_lags_left_out",
            left_out,
            "Partitions of groups whose lag is left out, as there are too many.",
        )

    def _known(self, group: str) -> Described:
        described = self._groups.describe(group)
        if described.state is State.DEAD:
            raise UnknownGroupError(f"no consumer group is named {shown(group)}")
        return described

    def _summary(self, name: str) -> GroupSummary:
        described, offsets = self._groups.describe(name), self._groups.offsets(name)
        lags = [
            _lag(committed, partition)
            for place, committed in offsets.items()
            if (partition := self._find(place)) is not None
        ]
        return GroupSummary(name, described.state, len(described.members), len(lags), sum(lags))

    def _partition(
        self, group: str, place: Place, partition: Partition, member: str | None
    ) -> GroupPartition:
        committed = self._groups.offsets(group).get(place)
        return GroupPartition(
            stream=place.stream,
            partition=place.partition,
            committed=None if committed is None else committed.offset,
            end=partition.high_watermark,
            lag=None if committed is None else _lag(committed, partition),
            member=member,
        )

    def _find(self, place: Place) -> Partition | None:
        try:
            return self._broker.partition(*place)
        except UnknownStreamError:
            return None

    async def _landing(
        self, target: Target, committed: int | None, partition: Partition
    ) -> int | None:
        found = None
        if target.aim is Aim.TIMESTAMP:
            found = await partition.offset_for_time(target.value)
        start, end = partition.bounds
        return landing(
            target,
            committed=committed,
            start=start,
            end=end,
            found=None if found is None else found[0],
        )

    async def _move(self, group: str, moves: list[GroupMove]) -> None:
        wall_ms = self._broker.clock.wall_ms()
        offsets = {
            Place(move.stream, move.partition): Committed(move.to, commit_ms=wall_ms)
            for move in moves
        }
        outcome = await self._coordinator.ask(
            lambda ticket: Commit(ticket, group, Identity(), NO_GENERATION, offsets)
        )
        assert isinstance(outcome, Codes)
        for code in outcome.codes.values():
            self._raise(group, code)

    def _raise(self, group: str, code: ErrorCode) -> None:
        """Tells an operator what a client would be told by a code."""
        if code in {ErrorCode.NON_EMPTY_GROUP, ErrorCode.UNKNOWN_MEMBER_ID}:
            raise GroupInUseError(
                f"the group {shown(group)} has members; stop its consumers and try again"
            )
        if code is ErrorCode.GROUP_ID_NOT_FOUND:
            raise UnknownGroupError(f"no consumer group is named {shown(group)}")
        if code is ErrorCode.INVALID_GROUP_ID:
            raise UnknownGroupError(
                f"a group's name has 1 to {limits.GROUP_ID_BYTES_MAX} bytes; got {shown(group)}"
            )
        if code is not ErrorCode.NONE:
            raise UnavailableError(f"the group {shown(group)} could not be changed: {code.name}")


def _lag(committed: Committed, partition: Partition) -> int:
    return max(partition.high_watermark - committed.offset, 0)
