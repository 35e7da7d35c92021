"""Messages of queues for who has no connection: pulls that wait, what they settle, and looks.

Owns how long a pull waits, and who is told. Which messages it gets, when it has enough and what can
still be settled is the switchboard's. Invariants: a pull is answered once, or given back; what was
given back is nobody's.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from headrace import limits, native
from headrace.errors import (
    GroupLimitError,
    HeadraceError,
    QueueRequestError,
    UnavailableError,
    UnknownGroupError,
    UnknownStreamError,
)
from headrace.node.feeds import unpacked
from headrace.ports import Peek, PeekedMessage, PeekedMessages, Pull, QueueMessage, Settlement
from headrace.text import shown

if TYPE_CHECKING:
    from collections.abc import Generator

    from headrace.model import StreamDefinition
    from headrace.native import Switchboard
    from headrace.node.broker import Broker

ENQUEUED: Final = "first-enqueued"
SOURCE_TOPIC: Final = "x-source-topic"
OF_PLACE: Final = frozenset({"queue", "partition", "offset", "sequence", ENQUEUED, SOURCE_TOPIC})
"""User properties that say of a message where it lies, and are no publisher's."""


class Pulling:
    """As `headrace.ports.Pulling`."""

    def __init__(
        self, pulls: Pulls, definition: StreamDefinition, asked: Pull, number: int
    ) -> None:
        self._pulls = pulls
        self.queue, self.stream = definition.name, definition.id
        self.asked = asked
        self.number = number
        self._is_back = False
        loop = asyncio.get_running_loop()
        self.future: asyncio.Future[list[QueueMessage]] = loop.create_future()
        wait_s = asked.wait_ms / 1000
        ends = [wait_s] if wait_s else []
        for seconds in (*ends, wait_s + limits.QUEUE_PULL_LOOK_SECONDS):
            timer = loop.call_later(seconds, pulls.end, number)
            self.future.add_done_callback(partial(_cancel, timer))

    def __await__(self) -> Generator[None, None, list[QueueMessage]]:
        """As the port says."""
        return self.future.__await__()

    def give_back(self) -> None:
        """As the port says."""
        if not self._is_back:
            self._is_back = True
            self._pulls.give_back(self)
            if not self.future.done():
                self.future.set_exception(ConnectionResetError("whoever pulled has gone"))


class Pulls:
    """Those of one node that wait."""

    def __init__(self, broker: Broker, switchboard: Switchboard) -> None:
        self._broker = broker
        self._switchboard = switchboard
        self._waiting: dict[int, Pulling] = {}

    def open(self) -> None:
        """Begins to hear of their ends."""
        runner = self._broker.runner
        runner.pulls, runner.end_pulls = self._waiting, self.collect

    def close(self) -> None:
        """Ends all that wait, with what they have."""
        for number in list(self._waiting):
            self.end(number)
            self.end(number)

    def pull(self, definition: StreamDefinition, asked: Pull) -> Pulling:
        """As `Queues.pull` of the port."""
        if len(self._waiting) >= limits.QUEUE_PULLS_MAX:
            raise UnavailableError("too many pulls wait for messages; try again")
        try:
            number = self._switchboard.pull_queue(
                definition.id,
                asked.group,
                asked.filter,
                asked.messages_max,
                limits.QUEUE_PULL_BYTES,
                asked.deadline_ms,
                asked.wait_ms > 0,
            )
        except ValueError as error:
            raise QueueRequestError(str(error)) from None
        if number is None:
            raise GroupLimitError(
                "queues have as many groups as limits.queue_groups allows; delete some"
            )
        pulling = self._waiting[number] = Pulling(self, definition, asked, number)
        self._broker.runner.wake()
        return pulling

    def end(self, number: int) -> None:
        """A pull waits no longer; one that does not wait, not for the disk either."""
        self._switchboard.end_pull(number)
        self._broker.runner.wake()

    def collect(self) -> None:
        """Answers those that have ended."""
        for number, messages in self._switchboard.pulled():
            pulling = self._waiting.pop(number)
            if pulling.future.done():  # it is about to be given back
                continue
            if messages or self._broker.serves(pulling.queue, pulling.stream):
                pulling.future.set_result(list(map(_message, messages)))
            else:
                gone = UnknownStreamError(f"queue {pulling.queue!r} was deleted meanwhile")
                pulling.future.set_exception(gone)

    def give_back(self, pulling: Pulling) -> None:
        """Whoever pulled has gone."""
        self._waiting.pop(pulling.number, None)
        asked = pulling.asked
        self._switchboard.return_pull(pulling.stream, asked.group, asked.filter, pulling.number)
        self._broker.runner.wake()

    async def settle(self, definition: StreamDefinition, asked: Settlement) -> list[str]:
        """As `Queues.settle` of the port."""
        ask = partial(
            self._switchboard.settle_queue,
            definition.id,
            asked.group,
            asked.filter,
            asked.verb,
            list(asked.message_ids),
            asked.delay,
            asked.reason,
        )
        try:
            ends, durable = self._broker.runner.administer(ask)
        except ValueError as error:
            raise QueueRequestError(str(error)) from None
        await durable
        if ends is None:
            name = definition.name
            which = "" if asked.filter is None else f" of filter {shown(asked.filter)}"
            raise UnknownGroupError(f"queue {name!r} has no group {shown(asked.group)}{which}")
        return ends

    async def peek(self, definition: StreamDefinition, asked: Peek) -> PeekedMessages:
        """As `Queues.peek` of the port."""
        partitions = self._broker.partitions(definition.name)
        group, floors = self._seen_by(definition, asked, len(partitions))
        wanted = range(len(partitions)) if asked.partition is None else (asked.partition,)
        if asked.partition is not None and asked.partition >= len(partitions):
            raise QueueRequestError(
                f"queue {definition.name!r} has partitions 0 to {len(partitions) - 1}"
            )
        if asked.offset is not None and len(wanted) > 1:
            raise QueueRequestError("an offset is of a partition: say which")
        found: list[PeekedMessage] = []
        reads = 0
        for index in wanted:
            partition = partitions[index]
            start, end = partition.bounds
            offset = max(floors[index] if asked.offset is None else asked.offset, start)
            while offset < end:
                if len(found) >= asked.messages_max or reads >= limits.QUEUE_PEEK_READS:
                    return PeekedMessages(found, (index, offset))
                reads += 1
                try:
                    batches = await partition.read(offset, limits.QUEUE_PEEK_BYTES)
                except ValueError:  # retention, or a deletion, was faster
                    break
                piece = await asyncio.to_thread(unpacked, batches, offset)
                clock = self._broker.clock
                try:
                    messages, following = self._switchboard.peek_queue(
                        definition.id,
                        index,
                        piece,
                        group,
                        offset,
                        asked.messages_max - len(found),
                        asked.settled,
                        *clock.now(),
                    )
                except ValueError:
                    raise changed(self._broker, definition) from None
                found.extend(map(_peeked, messages))
                if following <= offset:
                    break
                offset = following
        return PeekedMessages(found, None)

    def _seen_by(
        self, definition: StreamDefinition, asked: Peek, partitions: int
    ) -> tuple[tuple[str, str | None] | None, list[int]]:
        """The group that is asked about, and its floors.

        Raises:
            UnknownGroupError: there is none.
            QueueRequestError: a filter is asked about, and no group.
        """
        if asked.group is None:
            if asked.filter is not None:
                raise QueueRequestError("a filter is of a group: say which")
            return None, [0] * partitions
        named = [
            each
            for each in self._switchboard.queue_groups(definition.id)
            if each.name == asked.group and asked.filter in (None, each.filter)
        ]
        if not named:
            raise UnknownGroupError(f"queue {definition.name!r} has no group {shown(asked.group)}")
        group = min(named, key=lambda each: each.filter or "")
        floors = [floor for floor, *_ in group.partitions]
        return (group.name, group.filter), [0] * partitions if asked.settled else floors


def changed(broker: Broker, definition: StreamDefinition) -> HeadraceError:
    """To raise: the queue has become another one while the disk was read, or is gone."""
    if broker.serves(definition.name, definition.id):
        return UnavailableError(f"queue {definition.name!r} was altered meanwhile; try again")
    return UnknownStreamError(f"no queue is named {shown(definition.name)}")


def _cancel(timer: asyncio.TimerHandle, _: object) -> None:
    timer.cancel()


def _message(message: native.QueueMessage) -> QueueMessage:
    told = {name: value for name, value in message.properties if name in OF_PLACE}
    own = [(name, value) for name, value in message.properties if name not in OF_PLACE]
    return QueueMessage(
        partition=message.partition,
        offset=message.offset,
        attempt=message.attempt,
        topic=message.topic,
        source_topic=told.get(SOURCE_TOPIC),
        enqueued_ms=int(told[ENQUEUED]),
        payload=message.payload,
        properties=tuple(own),
        content_type=message.content_type,
        response_topic=message.response_topic,
        correlation_data=message.correlation_data,
    )


def _peeked(message: native.QueueMessage) -> PeekedMessage:
    return PeekedMessage(
        message=_message(message),
        key=message.key,
        state=message.standing,
        client=message.client,
        until_ms=message.until_ms,
    )
