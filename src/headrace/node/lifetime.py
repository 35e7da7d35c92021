"""Life of a node: starting, ready, failed, draining; and what its HTTP door may ask meanwhile.

Owns the order in which parts open and close. Must not know how any of them is made: the wiring
hands in `Parts`. Invariants: no door is open before every stream is; the store closes last.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from headrace import limits
from headrace.errors import (
    HeadraceError,
    InvalidTopicError,
    MessageTooLargeError,
    StartError,
    UnavailableError,
)
from headrace.kernel.catalog import Catalog, is_internal
from headrace.node import statistics
from headrace.node.announcing import Announcing
from headrace.node.broker import Broker
from headrace.node.clients import Clients
from headrace.node.compaction import Compactions
from headrace.node.feeds import Feeds
from headrace.node.housekeeping import Housekeeping
from headrace.node.kafka import KafkaDoor
from headrace.node.knock import Knocks
from headrace.node.mqtt import MqttDoor
from headrace.node.queues import Queues
from headrace.node.retained import RetainedStore
from headrace.node.runner import Runner
from headrace.node.sessions import SessionLog
from headrace.ports import NodeState, Published
from headrace.settings import DEFAULTS, Settings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from headrace.kernel.budget import DescriptorBudget
    from headrace.kernel.catalog import Change
    from headrace.model import StreamDefinition
    from headrace.native import Switchboard
    from headrace.node.access import Gate
    from headrace.ports import (
        Clock,
        Definitions,
        Door,
        Groups,
        Histogram,
        Listener,
        MeteredDoor,
        Sample,
        Store,
        StreamReport,
    )

log = logging.getLogger(__name__)

SERVER_SHUTTING_DOWN = 0x8B
"""MQTT 5.0 table 2-6."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What a node is made of.

    Attributes:
        clock, definitions, switchboard: as their ports say.
        gate: who is let in.
        open_store: blocks while the log recovers; raises `StorageError`.
        listen: opens a listener by its name for a door, admitting connections while the callable
            says so.
        listeners: names of those that feed a door, by its name; without, one of the same name.
        meters: of what the node does not know itself.
        budget: descriptors.
        streams_max: `limits.streams`.
        defaults: what holds for streams that do not say otherwise.
        retention_check_ms: `log.retention_check`.
        producer_expiry_ms: `log.producer_expiry`.
        compaction_bytes_per_second: `log.compaction_bytes_per_second`.
        packet_bytes_max: `mqtt.packet_bytes`; other doors publish no larger messages.
        keeps_sessions: `mqtt.persistence`.
        declared: streams of the configuration.
        first: streams that a node without any begins with.
        version: what it calls itself.
        sys_interval_ms: `mqtt.sys_interval`.
        distributions: histograms of what the node does not know itself.
        before_batch: slows the node down, for tests of what measures it.
        extra: makes further doors once the broker serves, by name.
    """

    clock: Clock
    definitions: Definitions
    switchboard: Switchboard
    gate: Gate
    open_store: Callable[[], Store]
    listen: Callable[[str, Door, Callable[[], bool]], Listener]
    budget: DescriptorBudget
    listeners: Mapping[str, Sequence[str]] = field(default_factory=dict)
    meters: Sequence[Callable[[], Iterable[Sample]]] = ()
    extra: Mapping[str, Callable[[Broker], Awaitable[MeteredDoor]]] = field(default_factory=dict)
    streams_max: int = limits.STREAMS_MAX
    defaults: Settings = DEFAULTS
    retention_check_ms: int = limits.RETENTION_CHECK_MS
    producer_expiry_ms: int = limits.PRODUCER_EXPIRY_MS
    compaction_bytes_per_second: int = limits.COMPACTION_BYTES_PER_SECOND
    packet_bytes_max: int = limits.PACKET_BYTES_MAX
    keeps_sessions: bool = False
    declared: Mapping[str, Change] = field(default_factory=dict)
    first: Mapping[str, Change] = field(default_factory=dict)
    version: str = "headrace"
    sys_interval_ms: int = limits.SYS_INTERVAL_MS
    distributions: Sequence[Callable[[], Iterable[Histogram]]] = ()
    before_batch: Callable[[], None] | None = None


class Node:
    """One broker process, without its machine.

    Attributes:
        name: the node's name.
        state: where in its life it is.
        reason: why it is not ready, or stores nothing at the moment; empty where neither is so.
        listeners: open doors by name.
        doors: those beside MQTT.
    """

    def __init__(self, name: str, parts: Parts) -> None:
        self.name = name
        self.state = NodeState.STARTING
        self.reason = "the log is opening"
        self.listeners: dict[str, Listener] = {}
        self._parts = parts
        self._store: Store | None = None
        self._broker: Broker | None = None
        self._queues: Queues | None = None
        self._retained: RetainedStore | None = None
        self._compactions: Compactions | None = None
        self._housekeeping: Housekeeping | None = None
        self._announcing: Announcing | None = None
        self.doors: list[MeteredDoor] = []
        parts.gate.on_lost = self._lost

    async def open(self) -> None:
        """Recovers the log, opens every stream, then every door.

        Raises:
            ConfigError, StorageError, DefinitionError, UnavailableError, StartError: it cannot
                serve; call `close` before leaving.
        """
        parts = self._parts
        self._store = await asyncio.to_thread(parts.open_store)
        runner = Runner(
            parts.clock, parts.switchboard, self._store, self._failed, self._tell_of_room
        )
        runner.before_batch = parts.before_batch
        self._broker = Broker(
            catalog=Catalog(
                streams_max=parts.streams_max,
                partitions_max=parts.budget.partitions_max,
                defaults=parts.defaults,
            ),
            definitions=parts.definitions,
            store=self._store,
            switchboard=parts.switchboard,
            runner=runner,
            clock=parts.clock,
            producer_expiry_ms=parts.producer_expiry_ms,
        )
        feeds = Feeds(self._broker, parts.switchboard)
        self._queues = Queues(self._broker, parts.switchboard, feeds.watch)
        self._opens("streams")
        await self._broker.open(parts.declared, parts.first)
        self._retained = RetainedStore(self._broker, parts.switchboard)
        await self._retained.open()
        if parts.keeps_sessions:
            self._opens("sessions")
            await SessionLog(self._broker, parts.switchboard).open()
            parts.gate.hold()  # whose sessions they are is known; what those may, now
        feeds.open()
        self._queues.open()
        partitions = self._broker.catalog.partitions
        log.info(parts.budget.describe(partitions))
        if parts.budget.connections_max(partitions) < 1:
            raise StartError(
                f"{parts.budget.descriptors} descriptors leave none for connections; raise the "
                f"limit, for instance: ulimit -n 20000"
            )
        self._opens("doors")
        knocks = Knocks(parts.gate, parts.switchboard, parts.clock, runner.wake)
        runner.decide = knocks.decide
        parts.gate.on_change = runner.wake
        mqtt = MqttDoor(parts.clock, parts.switchboard, runner, knocks)
        self._listen("mqtt", mqtt)
        for name, make in parts.extra.items():
            door = await make(self._broker)
            self.doors.append(door)
            self._listen(name, door)
        self._compactions = Compactions(self._store, parts.clock, parts.compaction_bytes_per_second)
        self._housekeeping = Housekeeping(
            self._broker, self._compactions, self._queues.owed, parts.retention_check_ms
        )
        self._housekeeping.start()
        self._announcing = Announcing(
            parts.version, parts.sys_interval_ms, parts.clock, parts.switchboard, runner
        )
        self._announcing.start()
        runner.look_at_store()
        self._opens("clients")
        self.state, self.reason = NodeState.READY, ""
        if runner.full is not None:
            self._tell_of_room(runner.full)

    def _listen(self, name: str, door: Door) -> None:
        for listener in self._parts.listeners.get(name, (name,)):
            self.listeners[listener] = self._parts.listen(listener, door, self._admits)

    def _opens(self, what: str) -> None:
        """Goes on to what comes next on the way to ready.

        Raises:
            StartError: the node has failed meanwhile.
        """
        if self.state is NodeState.FAILED:
            raise StartError(self.reason)
        self.reason = f"{what} are opening"

    async def reconfigure(self, parts: Parts, limits_of_switchboard: Mapping[str, Any]) -> None:
        """Goes on with other bounds, defaults and declared streams.

        Of `parts` may differ what `open` does not hand on for good: `budget`, `streams_max`,
        `defaults`, `retention_check_ms`, `compaction_bytes_per_second`, `sys_interval_ms` and
        `declared`.

        Raises:
            ConfigError, UnavailableError: a declared stream could not be altered; the rest holds.
        """
        before, self._parts = self._parts, parts
        if self._broker is None or self.state is not NodeState.READY:
            raise UnavailableError(f"the node is {self.state}: {self.reason}")
        clock = parts.clock
        parts.switchboard.configure(*clock.now(), **limits_of_switchboard)
        self._broker.runner.wake()
        self._broker.catalog.set_bounds(parts.streams_max, parts.budget.partitions_max)
        if self._announcing is not None and parts.sys_interval_ms != before.sys_interval_ms:
            self._announcing.set_interval(parts.sys_interval_ms)
        if self._compactions is not None:
            self._compactions.bytes_per_second = parts.compaction_bytes_per_second
        if parts.defaults != before.defaults:
            await self._broker.set_defaults(parts.defaults)
        if self._housekeeping is not None and parts.retention_check_ms != before.retention_check_ms:
            self._housekeeping.set_interval(parts.retention_check_ms)
        declared = {
            name: change
            for name, change in parts.declared.items()
            if before.declared.get(name) != change
        }
        try:
            await self._broker.declare(declared)
        except HeadraceError:
            self._parts = replace(parts, declared=before.declared)  # to be tried again
            raise

    async def close(self) -> None:
        """Drains and closes.

        What was accepted is stored and acknowledged, then clients are told to go, then the log
        is marked clean.

        Raises:
            StorageError: the log could not be closed in order; a start will recover it.
        """
        orderly = self.state is NodeState.READY
        self.state, self.reason = NodeState.DRAINING, "the node is stopping"
        for listener in self.listeners.values():
            listener.stop()
        if self._queues is not None:
            self._queues.pulls.close()
        if self._announcing is not None:
            self._announcing.stop()
        if self._housekeeping is not None:
            await self._housekeeping.stop()
        if self._broker is not None and self._store is not None:
            runner, clock = self._broker.runner, self._parts.clock
            runner.stop_reading()
            await self._drain(runner)
            self._parts.switchboard.disconnect_all(SERVER_SHUTTING_DOWN, *clock.now())
            runner.wake()
            orderly &= await self._drain(runner)
        await asyncio.gather(
            *(listener.close(limits.LINGER_SECONDS) for listener in self.listeners.values())
        )
        if self._broker is not None and self._store is not None:
            await self._broker.changes.quiet()
            await self._parts.gate.quiet()
            self._broker.runner.close()
            if orderly and self._store.failed() is None:  # else not all known, or not all durable
                await self._broker.keep()
        if self._store is not None:
            await asyncio.to_thread(self._store.close)
        if self._compactions is not None:
            await self._compactions.quiet()
        self._parts.gate.close()

    async def _drain(self, runner: Runner) -> bool:
        """Whether everything reached the disk."""
        try:
            async with asyncio.timeout(limits.DRAIN_SECONDS):
                await runner.quiet()
        except TimeoutError:
            log.warning("the disk did not end within %s s; stopping", limits.DRAIN_SECONDS)
            return False
        return True

    def _failed(self, reason: str) -> None:
        """Nothing more is accepted until a restart."""
        if self.state is not NodeState.FAILED:
            log.error("the node has failed, nothing more is accepted: %s", reason)
            self.state, self.reason = NodeState.FAILED, reason
            self._parts.gate.ended = reason
            if self._housekeeping is not None:
                self._housekeeping.end()

    def _lost(self, reason: str) -> None:
        """A sync beside the log has failed, and the kernel tells of that once."""
        if self._store is not None:
            self._store.fail(reason)
        self._failed(reason)

    def _tell_of_room(self, full: str | None) -> None:
        """A disk that is nearly full stops appends and nothing else."""
        if self.state is not NodeState.READY:
            return
        self.reason = full or ""
        if full is None:
            log.info("there is room on the disk again: messages are stored")
        else:
            log.warning(full)

    def _admits(self) -> bool:
        assert self._broker is not None, "doors open after the broker"
        opened = sum(listener.connections for listener in self.listeners.values())
        return opened < self._parts.budget.connections_max(self._broker.catalog.partitions)

    def _serving(self) -> Broker:
        if self._broker is None or self.state is NodeState.DRAINING:
            raise UnavailableError(f"the node is {self.state}: {self.reason}")
        return self._broker

    def _writing(self) -> Broker:
        if self.state is not NodeState.READY:
            raise UnavailableError(f"the node is {self.state}: {self.reason}")
        return self._serving()

    # What the HTTP door asks (`ports.Administration`).

    def streams(self) -> list[StreamReport]:
        """Every stream of users, by name."""
        broker = self._serving()
        names = [each.name for each in broker.catalog.streams()]
        return [broker.report(name) for name in names if not is_internal(name)]

    def stream(self, name: str) -> StreamReport:
        """One stream.

        Raises:
            UnknownStreamError: there is none.
        """
        return self._serving().report(name)

    async def create_stream(self, name: str, change: Change) -> StreamDefinition:
        """As `Broker.create_stream`."""
        return await self._writing().create_stream(name, change)

    async def alter_stream(self, name: str, change: Change) -> StreamDefinition:
        """As `Broker.alter_stream`."""
        return await self._writing().alter_stream(name, change)

    async def delete_stream(self, name: str) -> None:
        """As `Broker.delete_stream`."""
        await self._writing().delete_stream(name)

    async def publish(
        self,
        topic: str,
        payload: bytes,
        qos: int,
        properties: list[tuple[str, str]],
        *,
        retain: bool = False,
    ) -> Published:
        """Publishes as an MQTT client would.

        Raises:
            InvalidTopicError: the topic is no topic name.
            MessageTooLargeError: no MQTT client could send it either, or a stream does not take it.
            RetainedLimitError, StaleEpochError, UnknownStreamError, UnavailableError: it is not
                stored.
        """
        size, size_max = len(topic) + len(payload), self._parts.packet_bytes_max
        if size > size_max:
            raise MessageTooLargeError(f"{size} bytes exceed mqtt.packet_bytes, {size_max}")
        try:
            future = self._writing().runner.publish(topic, payload, qos, properties, retain=retain)
        except ValueError as error:
            raise InvalidTopicError(str(error)) from None
        return Published(stored=await future)

    @property
    def gate(self) -> Gate:
        """Who is let in."""
        return self._parts.gate

    def clients(self) -> Clients:
        """MQTT clients and retained messages.

        Raises:
            UnavailableError: nothing is served yet, or any more.
        """
        return Clients(self._parts.clock, self._parts.switchboard, self._serving().runner)

    def groups(self) -> Groups:
        """Consumer groups.

        Raises:
            UnavailableError: nothing is served yet, or any more.
        """
        self._serving()
        for door in self.doors:
            if isinstance(door, KafkaDoor):
                return door.groups
        raise UnavailableError(f"the node is {self.state}: {self.reason}")

    def queues(self, *, only_told: bool = False) -> Queues:
        """Queues; `only_told` before their groups are restored, too, for reports and nothing else.

        Raises:
            UnavailableError: nothing is served yet, or any more.
        """
        if only_told:
            self._serving()
        else:
            self._writing()  # a group that is not there yet would begin anew
        assert self._queues is not None, "they are made beside the broker"
        return self._queues

    def samples(self) -> Iterable[Sample]:
        """Counters and gauges of all parts."""
        yield from statistics.of_node(self.name, self.state, self.listeners)
        if self._broker is not None and self._store is not None:
            yield from statistics.of_switchboard(self._parts.switchboard)
            yield from statistics.of_store(self._store)
            yield from statistics.of_streams(self._broker)
            yield from statistics.of_stream_readers(self._broker, self._parts.switchboard)
            yield from statistics.of_retention(self._broker)
            yield from statistics.of_failed_reads(self._broker.runner.failed_reads)
        if self._queues is not None:
            yield from self._queues.samples()
        if self._retained is not None:
            yield from self._retained.samples()
        if self._housekeeping is not None:
            yield from self._housekeeping.samples()
        if self._compactions is not None:
            yield from self._compactions.samples()
        yield from self._parts.gate.samples()
        for door in self.doors:
            yield from door.samples()
        for meter in self._parts.meters:
            yield from meter()

    def histograms(self) -> Iterable[Histogram]:
        """Distributions of durations."""
        if self._store is not None:
            yield from statistics.histograms(self._store)
        if self._queues is not None:
            yield from self._queues.histograms()
        for distribution in self._parts.distributions:
            yield from distribution()
