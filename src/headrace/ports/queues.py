"""What the HTTP door may ask of a node about queues."""

from dataclasses import dataclass
from typing import Protocol

from headrace.kernel.positions import Start
from headrace.ports.queue_messages import Peek, PeekedMessages, Pull, Pulling, Settlement
from headrace.ports.streams import StreamReport
from headrace.queue_settings import QueueSettings


@dataclass(frozen=True, slots=True)
class QueueConsumer:
    """A consumer.

    Attributes:
        client: its client id.
        connected: whether its client is there.
        open: deliveries that it has.
        prefetch: how many it may have.
    """

    client: str
    connected: bool
    open: int
    prefetch: int


@dataclass(frozen=True, slots=True)
class QueuePartition:
    """How far a group is in one partition.

    Attributes:
        partition: its number.
        floor: the first offset that the group still owes.
        depth: messages that it owes, those in flight and at rest included.
        in_flight: of those, delivered and not settled.
        resting: of those, that wait out a back-off or a delay.
        blocked: whether all that it knows wait for others of their keys.
        lag: messages from the floor to the end, settled or not.
        oldest_ms: when the message at the floor was stored, milliseconds since 1970; None: there is
            none, or nobody has looked at it.
    """

    partition: int
    floor: int
    depth: int
    in_flight: int
    resting: int
    blocked: bool
    lag: int
    oldest_ms: int | None


@dataclass(frozen=True, slots=True)
class QueueGroupReport:
    """A group of a queue; `delivered` to `lost` count since the node started.

    `filter` is what it takes of the queue; None: all. `latency` is how many first deliveries had
    waited no longer than so many milliseconds, and `latency_sum_ms` how long all together.
    """

    group: str
    filter: str | None
    consumers: tuple[QueueConsumer, ...]
    partitions: tuple[QueuePartition, ...]
    delivered: int
    redelivered: int
    settled: int
    failed: int
    dead: int
    lost: int
    latency: tuple[tuple[int | None, int], ...]
    latency_sum_ms: int

    @property
    def depth(self) -> int:
        """Messages that it owes."""
        return sum(each.depth for each in self.partitions)

    @property
    def in_flight(self) -> int:
        """Messages that were delivered and are not settled."""
        return sum(each.in_flight for each in self.partitions)

    @property
    def resting(self) -> int:
        """Messages that wait out a back-off or a delay."""
        return sum(each.resting for each in self.partitions)

    @property
    def lag(self) -> int:
        """Messages from the first that it owes of each partition to its end."""
        return sum(each.lag for each in self.partitions)

    @property
    def oldest_ms(self) -> int | None:
        """When the oldest that it owes was stored, milliseconds since 1970, if that is known."""
        known = (each.oldest_ms for each in self.partitions if each.oldest_ms is not None)
        return min(known, default=None)

    @property
    def blocked(self) -> int:
        """Partitions in which it is blocked."""
        return sum(each.blocked for each in self.partitions)


@dataclass(frozen=True, slots=True)
class QueueReport:
    """A queue: the stream that it is, and its groups, by name."""

    stream: StreamReport
    groups: tuple[QueueGroupReport, ...]

    @property
    def is_paused(self) -> bool:
        """Whether it gives nothing out."""
        return QueueSettings.of_queue(self.stream.definition.queue or {}).paused == "on"

    @property
    def size_bytes(self) -> int:
        """Bytes of its logs."""
        return sum(each.size_bytes for each in self.stream.partitions)

    @property
    def depth(self) -> int:
        """What the group owes that owes most; without one, what is kept."""
        kept = sum(each.end - each.start for each in self.stream.partitions)
        return max((each.depth for each in self.groups), default=kept)

    @property
    def in_flight(self) -> int:
        """Of all groups."""
        return sum(each.in_flight for each in self.groups)

    @property
    def consumers(self) -> int:
        """Of all groups."""
        return sum(len(each.consumers) for each in self.groups)


class Queues(Protocol):
    """Queues of a node. They are created, altered and deleted as the streams that they are."""

    def reports(self) -> list[QueueReport]:
        """Every queue, by name."""
        ...

    def report(self, name: str) -> QueueReport:
        """One queue.

        Raises:
            UnknownStreamError: there is none of this name, or it is a stream and no queue.
        """
        ...

    async def forget_group(self, name: str, group: str) -> None:
        """Forgets a group of a queue, and what it has settled; on return that is durable.

        Raises:
            UnknownStreamError: as `report`.
            UnknownGroupError: it has no such group.
            GroupInUseError: the group has consumers.
            UnavailableError: the disk refused.
        """
        ...

    async def seek(self, name: str, group: str | None, start: Start) -> int:
        """Has a group, or all, go on from elsewhere; how many do, once that is durable.

        What is before is settled, what is behind is owed, and what is in flight can no longer be
        settled.

        Raises:
            UnknownStreamError: as `report`.
            UnknownGroupError: it has no such group.
            InvalidStartError: a partition has no such place.
            UnavailableError: the disk refused, or the queue was altered meanwhile.
        """
        ...

    async def purge(self, name: str) -> tuple[int, int]:
        """Lets go of all that is stored at this moment, settled or not, for groups to come too.

        On return that is durable; how many messages went, and how many groups are owed them no
        more. What is in flight can no longer be settled.

        Raises:
            UnknownStreamError: as `report`.
            StorageError, UnavailableError: the disk refused, or the queue was altered meanwhile;
                some of it may be gone.
        """
        ...

    def pull(self, name: str, asked: Pull) -> Pulling:
        """Delivers messages to a group, as many as are there.

        Raises:
            UnknownStreamError: as `report`.
            QueueRequestError: the queue cannot be pulled from, or there can be no such group.
            GroupLimitError: the group is another one, and there are as many as may be.
            UnavailableError: too many wait.
        """
        ...

    async def settle(self, name: str, asked: Settlement) -> list[str]:
        """Ends deliveries; once that is durable, what became of each, in their order.

        One of `settled`, `settled before`, `too late` and `no delivery`.

        Raises:
            UnknownStreamError: as `report`.
            UnknownGroupError: it has no such group.
            QueueRequestError: an id or the delay is none, or the deadline too far away; nothing is
                settled.
            UnavailableError: the disk refused.
        """
        ...

    async def peek(self, name: str, asked: Peek) -> PeekedMessages:
        """Messages as they lie in a queue; nothing changes.

        Raises:
            UnknownStreamError: as `report`.
            UnknownGroupError: it has no such group.
            QueueRequestError: it has no such partition, or the offset is of none.
            StorageError, UnavailableError: the log cannot be read.
        """
        ...
