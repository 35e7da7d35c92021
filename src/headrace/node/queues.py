"""Queues of a node: the switchboard is told of them, their dead letters get a stream.

Joins the streams of the broker with what the switchboard makes of those that are queues. Whom a
message is given to, when it comes again and when it is dead is the switchboard's. Invariants: of a
queue that is served the switchboard knows the settings that hold, and of its dead letters the
stream that is there; what a group owes is not let go.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from headrace import limits
from headrace.errors import (
    GroupInUseError,
    HeadraceError,
    StreamExistsError,
    UnknownGroupError,
)
from headrace.kernel import positions
from headrace.kernel.catalog import Change
from headrace.kernel.retention import Owed
from headrace.node.pulls import Pulls, changed
from headrace.ports import (
    Histogram,
    QueueConsumer,
    QueueGroupReport,
    QueuePartition,
    QueueReport,
    Sample,
)
from headrace.queue_settings import DEAD_LETTERS, OF_DEAD_LETTERS, QueueSettings
from headrace.settings import SETTINGS
from headrace.text import counted, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headrace.model import StreamDefinition
    from headrace.native import Effects, QueueGroup, Switchboard
    from headrace.node.broker import Broker
    from headrace.node.partition import Partition, Stream
    from headrace.node.pulls import Pulling
    from headrace.ports import Peek, PeekedMessages, Pull, Settlement

log = logging.getLogger(__name__)

PURGED: Final = "purge"
"""Label of what a purge has let go."""


class Queues:
    """As `headrace.ports.Queues`; a `node.broker.Keeper` of what could not be made yet.

    Args:
        broker: whose streams; made before it opens them.
        switchboard: the node's.
        watch: has the switchboard hear of what is appended to a stream.

    Attributes:
        pulls: who waits for messages without a connection of MQTT.
    """

    def __init__(
        self, broker: Broker, switchboard: Switchboard, watch: Callable[[int], None]
    ) -> None:
        self._broker = broker
        self._switchboard = switchboard
        self._watch = watch
        self._is_open = False
        self._making: dict[int, asyncio.Task[None]] = {}
        self._sized: dict[Partition, Callable[[], None]] = {}
        self._lacking: set[int] = set()
        self.pulls = Pulls(broker, switchboard)
        broker.served.append(self._served)
        broker.deleted.append(self._deleted)
        broker.shortened.append(self._shortened)

    def open(self) -> None:
        """Begins to serve."""
        self._is_open = True
        self._broker.runner.hear_queues = self._hear
        self._broker.keepers.append(self)
        self.pulls.open()
        for definition in self._queues():
            self._watch(definition.id)

    def _queues(self) -> list[StreamDefinition]:
        return [each for each in self._broker.catalog.streams() if each.queue is not None]

    # --- telling the switchboard

    def _served(self, stream: Stream) -> None:
        """A stream was bound, for the first time or anew."""
        definition = stream.definition
        if definition.queue is not None:
            self._tell(definition)
            if self._is_open:
                self._watch(definition.id)
        self._tell_whose_dead(definition.name)

    def _deleted(self, name: str) -> None:
        self._tell_whose_dead(name)

    def _tell_whose_dead(self, name: str) -> None:
        """Tells of a queue anew whose dead letters have come, or are gone."""
        queue, catalog = name.removesuffix(DEAD_LETTERS), self._broker.catalog
        if queue != name and queue in catalog:
            self._tell(catalog.get(queue))

    def _tell(self, definition: StreamDefinition) -> None:
        if definition.queue is None:
            return
        settings = QueueSettings.of_queue(definition.queue)
        catalog, dead_letters = self._broker.catalog, definition.name + DEAD_LETTERS
        self._switchboard.set_queue(
            definition.id,
            definition.name,
            catalog.get(dead_letters).id if dead_letters in catalog else None,
            order=settings.order,
            hash=settings.partition_hash,
            ack_deadline_ms=settings.ack_deadline_ms,
            backoff_initial_ms=settings.retry_backoff_ms,
            backoff_growth_percent=round(settings.retry_backoff_multiplier * 100),
            backoff_max_ms=settings.retry_backoff_max_ms,
            backoff_jitter_percent=round(settings.retry_backoff_jitter * 100),
            attempts_max=_bound(settings.retry_attempts),
            total_ms=_bound(settings.retry_total_ms),
            ttl_ms=_bound(settings.message_ttl_ms),
            prefetch=settings.prefetch,
            read_ahead=settings.read_ahead,
            paused=settings.paused == "on",
            consumers=settings.consumers,
            keeps_dead=settings.keeps_dead,
            prioritises=settings.priorities == "on",
            batch_messages=settings.batch_size,
            depth_messages_max=_bound(settings.depth_max_messages),
            depth_bytes_max=_bound(settings.depth_max_bytes),
            depth_policy=settings.depth_policy,
        )
        self._watch_sizes(definition, settings.is_bounded)
        self._broker.runner.wake()

    def _watch_sizes(self, definition: StreamDefinition, is_bounded: bool) -> None:
        """Has the switchboard hear how much lies in the logs of a queue, where that is bounded."""
        for partition in self._broker.partitions(definition.name):
            if is_bounded and partition not in self._sized:
                self._sized[partition] = partial(self._tell_size, partition)
                partition.watch(self._sized[partition])
                self._tell_size(partition)
            elif not is_bounded and partition in self._sized:
                partition.unwatch(self._sized.pop(partition))

    def _shortened(self, partition: Partition) -> None:
        if partition in self._sized:
            self._tell_size(partition)

    def _tell_size(self, partition: Partition) -> None:
        if not partition.is_served:
            partition.unwatch(self._sized.pop(partition))
            return
        stream = partition.stream.definition.id
        bounds, size_bytes = partition.bounds, partition.size_bytes
        self._switchboard.queue_sized(stream, partition.index, bounds, size_bytes)

    # --- what it wants and tells

    def _hear(self, effects: Effects) -> None:
        for stream in effects.dead_letters:
            self.need_dead_letters(stream)
        for stream, group, index, offset, count, why in effects.lost:
            if (partition := self._broker.runner.partitions.get((stream, index))) is not None:
                log.error(
                    "messages were passed over, as nobody can be given them (%s): %d from offset "
                    "%d, which group %s was owed", why, count, offset, shown(group),
                    extra={"stream": partition.stream.definition.name, "partition": index},
                )  # fmt: skip

    def need_dead_letters(self, stream: int) -> None:
        """Makes the stream of a queue's dead letters, which the switchboard waits for."""
        if stream in self._making or stream in self._lacking:
            return
        task = asyncio.get_running_loop().create_task(self._make(stream))
        self._making[stream] = task
        task.add_done_callback(lambda _: self._making.pop(stream))

    async def _make(self, stream: int) -> None:
        partition = self._broker.runner.partitions.get((stream, 0))
        if partition is None:  # deleted meanwhile
            return
        definition = partition.stream.definition
        name = definition.name + DEAD_LETTERS
        try:
            await self._broker.create_stream(name, self._of_dead_letters(partition.stream))
        except StreamExistsError:
            self._tell(definition)
        except HeadraceError as error:
            self._lacking.add(stream)
            log.warning(
                "dead messages wait, for %s cannot be made, which will be tried again: %s", name,
                error, extra={"stream": definition.name},
            )  # fmt: skip

    def _of_dead_letters(self, stream: Stream) -> Change:
        """A queue that loses nothing, and takes what this one took with what a letter adds."""
        needed = stream.settings.max_message_bytes + limits.QUEUE_LETTER_BYTES
        taken = min(needed, int(SETTINGS["max.message.bytes"].high))
        return Change(settings={"max.message.bytes": taken}, queue=OF_DEAD_LETTERS)

    async def tend(self) -> None:
        """Tries again to make what could not be made."""
        lacking, self._lacking = self._lacking, set()
        for stream in lacking:
            self.need_dead_letters(stream)

    async def close(self) -> None:
        """Waits for what is being made."""
        if self._making:
            await asyncio.wait(self._making.values())

    # --- what is asked

    def owed(self, partition: Partition) -> Owed | None:
        """What a queue owes of a partition; None: it is of no queue."""
        definition = partition.stream.definition
        if definition.queue is None:
            return None
        floors = self._switchboard.queue_floors(definition.id)
        if floors is None:  # no group has begun, and the first may want all
            return Owed(0, settled_go=False)
        keeps = any(name.startswith("retention.") for name in definition.settings)
        return Owed(floors[partition.index], settled_go=not keeps)

    def reports(self) -> list[QueueReport]:
        """As the port says."""
        return [self._report(each) for each in self._queues()]

    def report(self, name: str) -> QueueReport:
        """As the port says."""
        return self._report(self._broker.catalog.get_queue(name))

    def _report(self, definition: StreamDefinition) -> QueueReport:
        groups = self._groups(definition)
        return QueueReport(self._broker.report(definition.name), tuple(groups))

    def _groups(self, definition: StreamDefinition) -> list[QueueGroupReport]:
        found = self._switchboard.queue_groups(definition.id)
        return sorted(map(_group, found), key=lambda each: each.group)

    async def forget_group(self, name: str, group: str) -> None:
        """As the port says."""
        definition = self._broker.catalog.get_queue(name)
        try:
            is_there = self._switchboard.forget_queue_group(definition.id, group)
        except ValueError as error:
            raise GroupInUseError(str(error)) from None
        if not is_there:
            raise UnknownGroupError(f"queue {name!r} has no group {shown(group)}")
        # A settlement of nothing is durable once all before it is.
        ask = partial(
            self._switchboard.settle_queue, definition.id, group, None, "ack", [], None, None
        )
        _, durable = self._broker.runner.administer(ask)
        await durable
        log.info("group %s deleted by an administrator", group, extra={"stream": name})

    async def seek(self, name: str, group: str | None, start: positions.Start) -> int:
        """As the port says."""
        definition = self._broker.catalog.get_queue(name)
        partitions = self._broker.partitions(name)
        found: list[int | None] = []
        if start.base is positions.Base.TIME:
            times = [await each.offset_for_time(start.time_ms) for each in partitions]
            found = [at[0] if at is not None else None for at in times]
        offsets = positions.place(start, [each.bounds for each in partitions], found)
        moved = await self._move(definition, group, offsets)
        if group is not None and not moved:
            raise UnknownGroupError(f"queue {name!r} has no group {shown(group)}")
        whose = "all groups" if group is None else f"group {shown(group)}"
        log.info("%s moved by an administrator", whose, extra={"stream": name})
        return moved

    async def purge(self, name: str) -> tuple[int, int]:
        """As the port says."""
        definition = self._broker.catalog.get_queue(name)
        partitions = self._broker.partitions(name)
        bounds = [each.bounds for each in partitions]
        # The groups first, at this very moment: what they settle from now on stays settled.
        moved = await self._move(definition, None, [end for _, end in bounds])
        for partition, (start, end) in zip(partitions, bounds, strict=True):
            if start < end:
                partition.roll(self._broker.clock.wall_ms())
                await self._broker.trim(partition, end, PURGED, has_rolled=True)
        gone = sum(end - start for start, end in bounds)
        log.info("an administrator purged %s", counted(gone, "message"), extra={"stream": name})
        return gone, moved

    async def _move(
        self, definition: StreamDefinition, group: str | None, offsets: list[int]
    ) -> int:
        """Has groups go on from there; how many do, once that is durable."""
        ask = partial(self._switchboard.seek_queue, definition.id, group, offsets)
        try:
            moved, durable = self._broker.runner.administer(ask)
        except ValueError:
            raise changed(self._broker, definition) from None
        await durable
        return moved

    def pull(self, name: str, asked: Pull) -> Pulling:
        """As the port says."""
        return self.pulls.pull(self._broker.catalog.get_queue(name), asked)

    async def settle(self, name: str, asked: Settlement) -> list[str]:
        """As the port says."""
        return await self.pulls.settle(self._broker.catalog.get_queue(name), asked)

    async def peek(self, name: str, asked: Peek) -> PeekedMessages:
        """As the port says."""
        return await self.pulls.peek(self._broker.catalog.get_queue(name), asked)

    def samples(self) -> Iterator[Sample]:
        """Counters and gauges of each queue and group."""
        now_ms = self._broker.clock.wall_ms()
        for report in self.reports():
            yield from _samples_of_queue(report)
            for group in report.groups:
                yield from _samples(report.stream.definition.name, group, now_ms)

    def histograms(self) -> Iterator[Histogram]:
        """How long messages of each group waited for their first delivery."""
        for definition in self._queues():
            for group in self._groups(definition):
                yield _latency(definition.name, group)


def _bound(value: int) -> int:
    """As the switchboard takes a bound: 0 for none."""
    return max(value, 0)


def _group(group: QueueGroup) -> QueueGroupReport:
    partitions = (QueuePartition(index, *each) for index, each in enumerate(group.partitions))
    return QueueGroupReport(
        group=group.name,
        filter=group.filter,
        consumers=tuple(QueueConsumer(*each) for each in group.consumers),
        partitions=tuple(partitions),
        delivered=group.delivered,
        redelivered=group.redelivered,
        settled=group.settled,
        failed=group.failed,
        dead=group.dead,
        lost=group.lost,
        latency=tuple(group.latency),
        latency_sum_ms=group.latency_sum_ms,
    )


def _seconds(bound_ms: int | None) -> str:
    return "+Inf" if bound_ms is None else f"{bound_ms / 1000:g}"


def _samples_of_queue(report: QueueReport) -> Iterator[Sample]:
    label = (("queue", report.stream.definition.name),)
    ends = sum(each.end for each in report.stream.partitions)
    yield Sample(
        "mqtt_queue_enqueue_total", ends, "Messages enqueued since the queue was made.", label
    )
    yield Sample(
        "mqtt_queue_messages",
        report.depth,
        "Messages that the group is owed that is owed most; without groups, all that are kept.",
        label,
    )
    yield Sample("mqtt_queue_bytes", report.size_bytes, "Bytes of the logs of a queue.", label)
    yield Sample(
        "mqtt_queue_paused", int(report.is_paused), "1 while a queue gives nothing out.", label
    )


def _samples(queue: str, group: QueueGroupReport, now_ms: int) -> Iterator[Sample]:
    # A group with a filter is another than that of its name without.
    label = (("queue", queue), ("group", group.group), ("filter", group.filter or ""))
    yield Sample("mqtt_queue_depth", group.depth, "Messages that a group is owed.", label)
    yield Sample(
        "mqtt_queue_in_flight", group.in_flight, "Deliveries to a group that are not over.", label
    )
    yield Sample(
        "mqtt_queue_resting",
        group.resting,
        "Messages that a group is owed and that wait for a time: in a back-off, or delayed.",
        label,
    )
    yield Sample(
        "mqtt_queue_lag",
        group.lag,
        "Messages from the first that a group is owed to the last.",
        label,
    )
    if group.oldest_ms is not None:
        yield Sample(
            "mqtt_queue_oldest_age_seconds",
            max(now_ms - group.oldest_ms, 0) / 1000,
            "Since the oldest message that a group is owed was stored.",
            label,
        )
    yield Sample(
        "mqtt_queue_blocked_partitions",
        group.blocked,
        "Partitions in which all that a group has looked at waits for others of the same keys.",
        label,
    )
    consumers = sum(each.connected for each in group.consumers)
    yield Sample(
        "mqtt_queue_active_consumers", consumers, "Consumers of a group that are connected.", label
    )
    yield Sample("mqtt_queue_dequeue_total", group.delivered, "Deliveries to a group.", label)
    yield Sample(
        "mqtt_queue_redelivered_total",
        group.redelivered,
        "Deliveries to a group, other than the first of a message.",
        label,
    )
    yield Sample("mqtt_queue_ack_total", group.settled, "Messages that a group settled.", label)
    yield Sample(
        "mqtt_queue_nack_total", group.failed, "Deliveries that failed, or had no answer.", label
    )
    yield Sample("mqtt_queue_dlq_total", group.dead, "Messages that are dead to a group.", label)
    yield Sample(
        "mqtt_queue_lost_total",
        group.lost,
        "Messages that a group was owed and nobody could be given: damaged, or too large.",
        label,
    )


def _latency(queue: str, group: QueueGroupReport) -> Histogram:
    label = (("queue", queue), ("group", group.group), ("filter", group.filter or ""))
    buckets = tuple((_seconds(bound), count) for bound, count in group.latency)
    return Histogram(
        "mqtt_queue_delivery_latency_seconds",
        "From enqueueing, or the time that a message waits for, to its first delivery.",
        buckets,
        group.latency_sum_ms / 1000,
        label,
    )
