"""Performs what the machine of consumer groups says: appends records, answers, wakes it in time.

Groups live in `__offsets`; `KeyedStream` makes their records last. The partition follows from the
group's name, so the order of its records is the order of the log. Must not know a request's form.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final

from headrace import limits, native
from headrace.errors import HeadraceError
from headrace.kernel.groups.coordinator import Groups
from headrace.kernel.groups.events import (
    Answer,
    Append,
    Configured,
    Forgotten,
    Now,
    Opened,
    Refused,
    Replayed,
    Stored,
    StreamDeleted,
    Tick,
    codes_of,
)
from headrace.node.keyed import KeyedStream, OfTable
from headrace.ports import Sample
from headrace.wire.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from headrace.kernel.groups.events import (
        Effect,
        Event,
        GroupSettings,
        Outcome,
        Request,
    )
    from headrace.kernel.keyed import Record
    from headrace.node.broker import Broker

STREAM: Final = "__offsets"
SETTINGS: Final = {"cleanup.policy": "compact", "fsync": "commit"}

CODES: Final = {
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}
"""What clients know of a commit for what the internal stream says: to any code of an append they
give up (Kafka's `GroupMetadataManager`). COORDINATOR_NOT_AVAILABLE for all others."""

ORDINARY: Final = frozenset(
    {ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.REBALANCE_IN_PROGRESS}
)
"""What members hear who do all as they should."""


class Coordinator:
    """The groups of a node.

    Attributes:
        groups: the machine; ask it what there is, change it only through this class.
        refused: requests that ended in an error, by its name.
    """

    def __init__(self, broker: Broker, settings: GroupSettings) -> None:
        self.groups = Groups(settings)
        self.refused: Counter[str] = Counter()
        self._broker = broker
        self._ticket = 0
        self._answers: dict[int, asyncio.Future[Outcome]] = {}
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_ms: int | None = None
        broker.keepers.append(self)
        self._stream = KeyedStream(
            broker, STREAM, limits.OFFSETS_PARTITIONS, SETTINGS, OfTable(self)
        )
        broker.deleted.append(self._stream_deleted)

    @property
    def replayed(self) -> Mapping[str, int]:
        """Records that the start has read, by where they were: `state` or `log`."""
        return self._stream.replayed

    async def open(self) -> None:
        """Reads the internal stream back, and forgets what streams that are gone have left.

        Raises:
            HeadraceError: it cannot be read.
        """
        await self._stream.replay()
        for stream in self.groups.streams:
            if stream not in self._broker.catalog:
                self._stream_deleted(stream)
        self._handle(Opened())

    def configure(self, settings: GroupSettings) -> None:
        """Other settings hold from now on."""
        self._handle(Configured(settings))

    async def tend(self) -> None:
        """Nothing is due that an alarm does not tell of."""

    async def close(self) -> None:
        """Looks at no clock any more."""
        if self._alarm is not None:
            self._alarm.cancel()

    def replay(self, record: Record) -> None:
        """Takes a record back in."""
        self._handle(Replayed(record))

    def records(self, index: int) -> Iterator[Record]:
        """What the groups of one partition have come to."""
        for name in self.groups.names:
            if _partition_of(name) == index:
                yield from self.groups.records(name)

    async def ask(
        self, request: Callable[[int], Request], kept: Callable[[], None] | None = None
    ) -> Outcome:
        """How a request ends; it is made with its ticket. Whoever gives up is forgotten.

        `kept` is called once the groups have, and count, what they keep of it.

        Raises:
            HeadraceError: the internal stream cannot be created.
        """
        if STREAM not in self._broker.catalog:
            await self._stream.create()
        self._ticket += 1
        event = request(self._ticket)
        answer: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._answers[event.ticket] = answer
        self._handle(event)
        if kept is not None:
            kept()
        try:
            return await answer
        except asyncio.CancelledError:
            if self._answers.pop(event.ticket, None) is not None:
                self._handle(Forgotten(event.ticket, event.group))
            raise

    def samples(self) -> Iterator[Sample]:
        """Counters and gauges."""
        groups = self.groups
        yield Sample("kafka_groups", len(groups), "Groups with members or offsets.")
        yield Sample("kafka_group_members", groups.members, "Members of all groups.")
        yield Sample(
            "kafka_group_generations_total", groups.generations, "Generations begun by groups."
        )
        yield Sample("kafka_committed_offsets", groups.count, "Offsets that groups have committed.")
        yield Sample(
            "kafka_expired_offsets_total", groups.expired, "Offsets kept long enough and forgotten."
        )
        for reason, count in self.refused.items():
            why = (("reason", reason),)
            yield Sample("kafka_group_refused_total", count, "Refused to members of groups.", why)
        for place in ("state", "log"):
            replayed, origin = self.replayed.get(place, 0), (("from", place),)
            yield Sample(
                "kafka_replayed_offsets", replayed, "Records of groups read at the start.", origin
            )

    def _stream_deleted(self, stream: str) -> None:
        self._handle(StreamDeleted(stream))

    def _handle(self, event: Event) -> None:
        clock = self._broker.clock
        for effect in self.groups.handle(event, Now(*clock.now())):
            self._perform(effect)
        self._set_alarm()

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Append(ticket, group, records):
                self._append(ticket, group, records)
            case Answer(ticket, outcome):
                self.refused.update(
                    code.name.lower() for code in codes_of(outcome) if code not in ORDINARY
                )
                answer = self._answers.pop(ticket, None)
                if answer is not None and not answer.done():  # else its client went away
                    answer.set_result(outcome)

    def _append(self, ticket: int | None, group: str, records: list[Record]) -> None:
        ended = partial(self._appended, ticket, group)
        try:
            self._stream.append(_partition_of(group), records, ended)
        except HeadraceError as error:
            ended(error)

    def _appended(self, ticket: int | None, group: str, error: HeadraceError | None) -> None:
        if ticket is None:
            return
        if error is None:
            self._handle(Stored(ticket, group))
        else:
            self._handle(Refused(ticket, group, code_of(error)))

    def _set_alarm(self) -> None:
        moment = self.groups.next_ms()
        if moment == self._alarm_ms:
            return
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._alarm_ms = moment
        if moment is not None:
            wait_ms = max(moment - self._broker.clock.mono_ms(), 0) + 1
            self._alarm = asyncio.get_running_loop().call_later(wait_ms / 1000, self._ring)

    def _ring(self) -> None:
        self._alarm = self._alarm_ms = None
        self._handle(Tick())


def code_of(error: HeadraceError) -> ErrorCode:
    """What a client is told where the internal stream refuses."""
    return CODES.get(ErrorCode.of(error.kafka_code), ErrorCode.COORDINATOR_NOT_AVAILABLE)


def _partition_of(group: str) -> int:
    return native.murmur2(group.encode()) % limits.OFFSETS_PARTITIONS
