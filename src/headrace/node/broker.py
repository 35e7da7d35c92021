"""The streams of a node, served: definitions made durable, logs opened, publishes bound to them.

Joins the catalog (which judges), the definitions (which last), the store and the switchboard.
Must not know a protocol. Invariant: a stream is served only when its definition is durable, and
changes of streams happen one after the other.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, cast

from headrace import limits
from headrace.errors import (
    CatalogError,
    ConfigError,
    DefinitionError,
    LostWritesError,
    StreamLimitError,
    UnavailableError,
    UnknownStreamError,
)
from headrace.kernel.catalog import DRAWN_BELOW, Change, is_internal
from headrace.model import HeldLog
from headrace.native import LogSettings
from headrace.node.changes import Changes
from headrace.node.disk import on_disk
from headrace.node.partition import Partition, Stream
from headrace.node.sources import SourceKeeper
from headrace.ports import PartitionReport, StreamReport
from headrace.text import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headrace.kernel.catalog import Catalog
    from headrace.model import StreamDefinition, StreamId
    from headrace.native import Switchboard
    from headrace.node.runner import Runner
    from headrace.ports import Clock, Definitions, Store
    from headrace.settings import Settings, Value

log = logging.getLogger(__name__)


class _Log(NamedTuple):
    """An open log: the store's handle, and the last of each MQTT source in it."""

    handle: int
    sources: list[tuple[str, int, int]]


@dataclass(slots=True)
class Trimmed:
    """What was let go for one reason: `records` that readers had, `bytes` that the disk had."""

    records: int = 0
    bytes: int = 0


class Keeper(Protocol):
    """Keeps something beside logs, so that a start need not read them."""

    async def tend(self) -> None:
        """Keeps what is due; called at intervals."""
        ...

    async def close(self) -> None:
        """Keeps all of it; called when nothing is appended any more."""
        ...


class Broker:
    """What every door asks for streams and partitions.

    Attributes:
        catalog: the definitions; read it freely, change it only through this class.
        clock: the node's.
        runner: the node's.
        trimmed: by reason.
        served: called with each stream that was bound, for the first time or anew.
        altered: called after each change of a stream.
        deleted: called with the name of each stream that was deleted.
        shortened: called with each partition that begins later than before.
        keepers: keep states beside logs.
        changes: of streams.
    """

    def __init__(
        self,
        *,
        catalog: Catalog,
        definitions: Definitions,
        store: Store,
        switchboard: Switchboard,
        runner: Runner,
        clock: Clock,
        producer_expiry_ms: int,
    ) -> None:
        self.catalog = catalog
        self.clock = clock
        self.runner = runner
        self._definitions = definitions
        self._store = store
        self._switchboard = switchboard
        self._producer_expiry_ms = producer_expiry_ms
        self._streams: dict[str, Stream] = {}
        self.changes = Changes()
        self.trimmed: defaultdict[str, Trimmed] = defaultdict(Trimmed)
        self.served: list[Callable[[Stream], None]] = []
        self.altered: list[Callable[[], None]] = []
        self.deleted: list[Callable[[str], None]] = []
        self.shortened: list[Callable[[Partition], None]] = []
        self._sources = SourceKeeper(runner, store, switchboard)
        self.keepers: list[Keeper] = [self._sources]

    async def open(self, declared: Mapping[str, Change], first: Mapping[str, Change]) -> None:
        """Opens every stream on disk, then makes `declared` ones what the configuration says.

        `first` are created on a node that has no stream of users.

        Raises:
            ConfigError: a declared stream may not be.
            DefinitionError, StorageError, UnavailableError: the node cannot serve.
        """
        held = [HeldLog(*log) for log in self._store.held_logs()]
        for definition in await asyncio.to_thread(self._definitions.load):
            try:
                self.catalog.check(definition, held)
            except CatalogError as error:
                raise DefinitionError(
                    f"the stream.json of {definition.name!r} is damaged ({error}); restore it from "
                    f"a copy"
                ) from None
            self.catalog.put(definition)
            stream = Stream(definition, self.catalog.settings(definition))
            self._streams[definition.name] = stream
            self._serve(stream, await self._open_logs(stream, definition))
        self._sources.grown()  # after a crash, or another
        has_streams = not all(is_internal(each.name) for each in self.catalog.streams())
        await self.declare(dict(declared) if has_streams else {**first, **declared})

    async def declare(self, declared: Mapping[str, Change]) -> None:
        """Makes streams what a configuration says of them.

        Raises:
            ConfigError: some may not be; all others are.
            UnavailableError: the disk refused; the rest stay as they were.
        """
        wrong = []
        for name, change in declared.items():
            try:
                if name in self.catalog:
                    await self.alter_stream(name, change)
                else:
                    await self.create_stream(name, change)
            except CatalogError as error:
                stored = self._stored(name, change)
                wrong.append(f"[{change.table}.{name}]: {error}{stored}")
        if wrong:
            raise ConfigError("; ".join(wrong))

    def _stored(self, name: str, change: Change) -> str:
        """What to do about settings that stand in the way of a configuration, if some do."""
        in_the_way = self.catalog.in_the_way(name, change)
        if not in_the_way:
            return ""
        definition, table = self.catalog.get(name), change.table
        held = {**definition.settings, **(definition.queue or {})}
        stored = ", ".join(f"{each}={held[each]}" for each in in_the_way)
        unset = " ".join(f"--unset {each}" for each in in_the_way)
        return (
            f"; {stored} is stored and not in the file: write it there, or start without "
            f"[{table}.{name}] and say: headrace {table} alter {name} {unset}"
        )

    async def set_defaults(self, defaults: Settings) -> None:
        """What holds from now on for streams that do not say otherwise."""
        await self.changes.make(partial(self._set_defaults, defaults))

    async def _set_defaults(self, defaults: Settings) -> None:
        self.catalog.defaults = defaults
        for stream in self._streams.values():
            stream.settings = self.catalog.settings(stream.definition)
            self._serve(stream, [])
        for tell in self.altered:
            tell()

    def partition(self, stream: str, index: int) -> Partition:
        """The partition `index` (0-based) of `stream`.

        Raises:
            UnknownStreamError: the stream or the partition is not served.
        """
        served = self._streams.get(stream)
        if served is None or not 0 <= index < len(served.partitions):
            raise UnknownStreamError(f"no partition {index} of a stream named {shown(stream)}")
        return served.partitions[index]

    def serves(self, stream: str, which: StreamId) -> bool:
        """Whether it is still this one that has the name."""
        served = self._streams.get(stream)
        return served is not None and served.definition.id == which

    def partitions(self, stream: str) -> list[Partition]:
        """All partitions of `stream`.

        Raises:
            UnknownStreamError: the stream is not served.
        """
        served = self._streams.get(stream)
        if served is None:
            raise UnknownStreamError(f"no stream is named {shown(stream)}")
        return served.partitions

    def report(self, stream: str) -> StreamReport:
        """A stream and where its partitions stand.

        Raises:
            UnknownStreamError: the stream is not served.
        """
        definition = self.catalog.get(stream)
        return StreamReport(
            definition,
            self.catalog.inherited(definition),
            tuple(
                PartitionReport(each.index, each.start_offset, each.high_watermark, each.size_bytes)
                for each in self.partitions(stream)
            ),
        )

    async def create_stream(self, name: str, change: Change | None = None) -> StreamDefinition:
        """Creates a stream; on return it survives power loss and every door serves it.

        Raises:
            CatalogError: why it may not be.
            UnavailableError: the disk refused.
        """
        return await self.changes.make(partial(self._create, name, change or Change()))

    async def ensure_internal(
        self, name: str, partitions: int, settings: Mapping[str, Value]
    ) -> None:
        """Creates a stream of the node's own, with a reserved name, unless it is there.

        Raises:
            CatalogError, UnavailableError: it cannot be.
        """
        change = Change(partitions=partitions, settings=settings)

        async def ensured() -> None:
            if name not in self.catalog:
                await self._create(name, change, internal=True)

        await self.changes.make(ensured)

    async def alter_stream(self, name: str, change: Change) -> StreamDefinition:
        """Changes a stream; on return the change survives power loss and is in force.

        Raises:
            CatalogError: why it may not be.
            UnavailableError: the disk refused.
        """
        return await self.changes.make(partial(self._alter, name, change))

    async def _alter(self, name: str, change: Change) -> StreamDefinition:
        definition = self.catalog.alter(name, change)
        stream = self._streams[name]
        if definition == stream.definition and definition.partitions == len(stream.partitions):
            return definition
        await self._check_logs(stream, definition)
        await self._save(definition)
        try:
            logs = await self._open_logs(stream, definition)
        except (StreamLimitError, UnavailableError):
            with suppress(UnavailableError):  # then a restart finds the change
                await self._save(stream.definition)
            raise
        stream.definition = definition
        stream.settings = self.catalog.settings(definition)
        self.catalog.put(definition)
        self._serve(stream, logs)
        log.info("stream altered", extra={"stream": name})
        for tell in self.altered:
            tell()
        return definition

    async def delete_stream(self, name: str) -> None:
        """Removes a stream and its records; on return neither comes back.

        Raises:
            CatalogError: why it may not be.
            UnavailableError: the disk refused; the stream serves no more, and may come back
                after a restart.
        """
        await self.changes.make(partial(self._delete, name))

    async def _delete(self, name: str) -> None:
        definition = self.catalog.delete(name)
        self._tell_of_readers(definition)
        self._switchboard.unbind(definition.id)
        self.runner.wake()  # who reads or consumes it is told
        stream = self._streams.pop(name)
        for partition in stream.partitions:
            del self.runner.partitions[definition.id, partition.index]
            partition.advanced()
        self.catalog.remove(name)
        await on_disk(self._store.delete_stream, name)
        for tell in self.deleted:
            tell(name)
        log.info("stream deleted", extra={"stream": name})

    def _tell_of_readers(self, definition: StreamDefinition) -> None:
        """Logs who loses a subscription with a stream: who is away hears of it much later."""
        readers, count = self._switchboard.stream_readers(
            definition.id, limits.STREAM_READERS_TOLD_MAX
        )
        for client, is_connected in readers:
            when = "now" if is_connected else "when it comes back, as it is away"
            log.warning(
                "a client loses its subscription to a stream that is deleted, and is told %s", when,
                extra={"client": client, "stream": definition.name},
            )  # fmt: skip
        if count > len(readers):
            log.warning(
                "%d more clients lose theirs", count - len(readers),
                extra={"stream": definition.name},
            )  # fmt: skip

    async def trim(
        self,
        partition: Partition,
        offset: int,
        reason: str,
        *,
        has_sources: bool = True,
        has_rolled: bool = False,
    ) -> None:
        """Lets a partition begin at `offset`; on return that survives power loss.

        Where it begins there or later already, nothing is done, and nothing kept.

        What its records told of MQTT sources is kept before; of one without, that there are none.
        Where the active segment `has_rolled`, it goes as the closed ones do, now or once the next
        one has begun.

        Raises:
            UnknownStreamError: it was deleted meanwhile.
            UnavailableError: the disk refused.
        """
        start, segments = partition.start_offset, partition.segments
        if offset <= start:
            return
        try:
            if has_sources:
                await self._sources.let_go(partition)
            else:
                await on_disk(self._store.save_sources, partition.log, [])
            await on_disk(self._store.trim, partition.log, offset)
        except ValueError as error:
            raise UnknownStreamError(str(error)) from None
        self._switchboard.queue_trimmed(partition.stream.definition.id, partition.index, offset)
        trimmed = self.trimmed[reason]
        trimmed.records += offset - start
        gone = (each for each in segments if each.next_offset <= offset)
        trimmed.bytes += sum(each.bytes for each in gone if has_rolled or not each.active)
        for tell in self.shortened:
            tell(partition)

    async def load_state(self, partition: Partition) -> tuple[int, bytes, list[str]]:
        """As `Store.load_state`.

        Raises:
            UnavailableError: the disk refused.
        """
        return await on_disk(self._store.load_state, partition.log)

    async def save_state(self, partition: Partition, offset: int, state: bytes) -> None:
        """As `Store.save_state`.

        Raises:
            UnavailableError: the disk refused.
        """
        await on_disk(self._store.save_state, partition.log, offset, state)

    async def keep(self) -> None:
        """Keeps beside the logs what their records come to: the next start reads no records.

        Called when nothing is appended any more.
        """
        for keeper in self.keepers:
            await keeper.close()

    async def _create(
        self, name: str, change: Change, *, internal: bool = False
    ) -> StreamDefinition:
        wall_ms, drawn = self.clock.wall_ms(), secrets.randbelow(DRAWN_BELOW)
        definition = self.catalog.create(name, change, wall_ms, drawn=drawn, internal=internal)
        stream = Stream(definition, self.catalog.settings(definition))
        await self._check_logs(stream, definition)
        try:
            await self._save(definition)
            logs = await self._open_logs(stream, definition)
        except (StreamLimitError, UnavailableError):
            with suppress(UnavailableError):  # then a restart tries again
                await on_disk(self._store.delete_stream, name)
            raise
        self.catalog.put(definition)
        self._streams[name] = stream
        self._serve(stream, logs)
        log.info("stream created, partitions: %d", definition.partitions, extra={"stream": name})
        return definition

    async def _save(self, definition: StreamDefinition) -> None:
        """Replaces the definition on disk.

        Raises:
            UnavailableError: the disk refused; where a sync failed, the store writes nothing more.
        """
        try:
            await on_disk(self._definitions.save, definition)
        except LostWritesError as error:
            self._store.fail(str(error))
            raise

    async def _check_logs(self, stream: Stream, definition: StreamDefinition) -> None:
        """Refuses a change whose logs could not be opened, before anything is made of it.

        Raises:
            StreamLimitError, UnavailableError: why not, for all of them together.
        """
        first = len(stream.partitions)
        if count := definition.partitions - first:
            incarnation = definition.incarnation
            await on_disk(self._store.check_logs, definition.name, first, count, incarnation)

    async def _open_logs(self, stream: Stream, definition: StreamDefinition) -> list[_Log]:
        """Opens the logs that the definition has and the stream has not: all, or none."""
        first = len(stream.partitions)
        count, wall_ms = definition.partitions - first, self.clock.wall_ms()

        def opened() -> list[_Log]:
            logs = self._store.open_logs(
                definition.name, first, count, definition.incarnation, wall_ms
            )
            self._store.created(definition.name)
            return [_Log(handle, self._store.last_sources(handle)) for handle in logs]

        return await on_disk(opened) if count else []

    def _serve(self, stream: Stream, logs: list[_Log]) -> None:
        """Binds filters, adds logs behind those that the stream has, puts settings in force."""
        definition = stream.definition
        self._switchboard.bind(
            definition.id, definition.partitions, list(definition.filters), definition.key
        )
        settings = stream.settings
        self._switchboard.shape(
            definition.id, settings.codec or "none", stream.message_bytes_max, settings.compacts
        )
        for index, each in enumerate(logs, len(stream.partitions)):
            partition = Partition(self.runner, self._store, stream, index, each.handle)
            stream.partitions.append(partition)
            self.runner.partitions[definition.id, index] = partition
            partition.unkept_bytes = self._store.unkept_bytes(each.handle)
            self._switchboard.load_sources(definition.id, index, each.sources)
        of_log = _of_log(settings, self._producer_expiry_ms)
        for partition in stream.partitions:
            self._store.configure(partition.log, of_log)
        for tell in self.served:
            tell(stream)


def _of_log(settings: Settings, producer_expiry_ms: int) -> LogSettings:
    """What the log engine itself has to know."""
    return LogSettings(
        segment_bytes=settings.segment_bytes,
        segment_ms=settings.roll_ms,
        segment_index_bytes=settings.segment_index_bytes,
        fsync=cast("Literal['commit', 'interval', 'os']", settings.fsync),
        flush_ms=settings.flush_ms,
        producer_expiry_ms=producer_expiry_ms,
    )
