"""The streams of a node: what may be created, altered and deleted, and what is.

A pure machine in two halves. `create`, `alter` and `delete` judge a request and return the
definition that would hold; nothing changes. `put` and `remove` apply what its owner has made
durable meanwhile. So a definition never serves before it survives power loss, and a replicated
catalog can stand between the halves later.

Must not know files, stores or connections. Invariants: names and ids are unique, ids never recur,
partitions never shrink, every definition held here is valid.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from headrace import limits, queue_settings
from headrace.errors import (
    CatalogError,
    InvalidStreamError,
    StreamExistsError,
    StreamLimitError,
    UnknownStreamError,
)
from headrace.model import StreamDefinition
from headrace.native import Switchboard
from headrace.queue_settings import DEAD_LETTERS, QueueSettings
from headrace.settings import DEFAULTS, Settings, contradiction, find
from headrace.text import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from headrace.model import HeldLog
    from headrace.settings import Setting, Value

KAFKA_INVALID_TOPIC: Final = 17
KAFKA_INVALID_PARTITIONS: Final = 37

DRAWN_BELOW: Final = 1 << 20
"""What a new stream's incarnation is drawn from, behind the moment and all incarnations there are.
Those of deleted streams are remembered by sessions that read them and not here: by the clock alone
a later stream would have one of them again, where that stands behind after a restart."""

_NAME: Final = re.compile(rf"[a-zA-Z0-9._-]{{1,{limits.STREAM_NAME_LENGTH_MAX}}}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Change:
    """What is asked of a stream; None leaves a part as it is, or at its default.

    Attributes:
        partitions: 1 to `limits.STREAM_PARTITIONS_MAX`.
        filters: replace all filters.
        key: `topic`, `level:N` or `property:NAME`.
        settings: set these; a value of None takes the setting back to its default.
        queue: the same of a queue; a new stream is one where this is not None.
    """

    partitions: int | None = None
    filters: Sequence[str] | None = None
    key: str | None = None
    settings: Mapping[str, Value | None] | None = None
    queue: Mapping[str, Value | None] | None = None

    @property
    def table(self) -> str:
        """Of a configuration that declares such a stream."""
        return "streams" if self.queue is None else "queues"


class Catalog:
    """Definitions of the streams that one node serves.

    Attributes:
        defaults: what holds where a stream of users has set nothing.
    """

    def __init__(
        self,
        *,
        streams_max: int = limits.STREAMS_MAX,
        partitions_max: int = limits.PARTITIONS_MAX,
        defaults: Settings = DEFAULTS,
    ) -> None:
        self.defaults = defaults
        self._streams_max = streams_max
        self._partitions_max = partitions_max
        self._streams: dict[str, StreamDefinition] = {}
        self._last_incarnation = 0
        # Judges filters and keys with the very code that will bind them; holds no connection.
        self._judge = Switchboard((0, 0))

    def __contains__(self, name: object) -> bool:
        return name in self._streams

    @property
    def partitions(self) -> int:
        """Partitions of all streams together."""
        return sum(stream.partitions for stream in self._streams.values())

    def streams(self) -> list[StreamDefinition]:
        """All definitions, by name."""
        return sorted(self._streams.values(), key=lambda stream: stream.name)

    def get(self, name: str) -> StreamDefinition:
        """The definition of `name`.

        Raises:
            UnknownStreamError: there is none.
        """
        try:
            return self._streams[name]
        except KeyError:
            raise UnknownStreamError(f"no stream is named {shown(name)}") from None

    def settings(self, definition: StreamDefinition) -> Settings:
        """What holds for a stream: its own settings over what it inherits."""
        return self.inherited(definition).over(definition.settings)

    def inherited(self, definition: StreamDefinition) -> Settings:
        """What holds where a stream has set nothing.

        The node's defaults are for the streams of users: what it keeps in its own must not depend
        on them. Nor does a queue lose by them what it owes.
        """
        defaults = DEFAULTS if is_internal(definition.name) else self.defaults
        return defaults if definition.queue is None else queue_settings.kept(defaults)

    def get_queue(self, name: str) -> StreamDefinition:
        """The definition of a queue.

        Raises:
            UnknownStreamError: there is none of this name, or it is a stream and no queue.
        """
        if name not in self._streams:
            raise UnknownStreamError(f"no queue is named {shown(name)}")
        definition = self._streams[name]
        if definition.queue is None:
            raise UnknownStreamError(f"{shown(name)} is a stream and no queue")
        return definition

    @property
    def partitions_max(self) -> int:
        """Partitions that streams of users may have, all together."""
        return self._partitions_max

    def set_bounds(self, streams_max: int, partitions_max: int) -> None:
        """Other bounds; streams that are there stay."""
        self._streams_max = streams_max
        self._partitions_max = partitions_max

    def create(
        self,
        name: str,
        change: Change,
        wall_ms: int,
        *,
        drawn: int = 0,
        internal: bool = False,
    ) -> StreamDefinition:
        """Judges a new stream; an `internal` one is the node's own and may have a reserved name.

        `drawn` is a random number below `DRAWN_BELOW`.

        Raises:
            InvalidStreamError, StreamExistsError, StreamLimitError: why it may not be.
        """
        if not internal:
            check_name(name)
        if name in self._streams:
            raise StreamExistsError(f"a stream named {name!r} exists; alter it, or delete it first")
        held = len(self._of_users)
        if held >= self._streams_max and not internal:
            raise StreamLimitError(
                f"the node holds {held} streams, its limit; raise limits.streams"
            )
        partitions = 1 if change.partitions is None else change.partitions
        if not internal:
            self._check_partitions(partitions, 0)
        definition = StreamDefinition(
            name=name,
            incarnation=max(wall_ms, self._last_incarnation + 1) + drawn,
            partitions=partitions,
            filters=tuple(dict.fromkeys(change.filters or ())),
            key=_first_key(change),
            settings=_settings({}, change.settings or {}),
            queue=None if change.queue is None else _queue_settings({}, change.queue),
        )
        self._check(definition)
        self._check_dead_letters(definition)
        _check_filters(name, change.filters or ())
        return definition

    def alter(self, name: str, change: Change) -> StreamDefinition:
        """Judges a change of a stream.

        Raises:
            InvalidStreamError, UnknownStreamError, StreamLimitError: why it may not be.
        """
        old = self.get(name)
        check_name(name)
        partitions = old.partitions if change.partitions is None else change.partitions
        if partitions < old.partitions:
            raise InvalidStreamError(
                f"stream {name!r} has {old.partitions} partitions and partitions never shrink; "
                f"got {partitions}",
                KAFKA_INVALID_PARTITIONS,
            )
        self._check_partitions(partitions, old.partitions)
        if change.queue is not None and old.queue is None:
            raise InvalidStreamError(
                f"stream {name!r} is no queue and does not become one; choose another name, or "
                f"delete it first"
            )
        new = replace(
            old,
            partitions=partitions,
            filters=old.filters if change.filters is None else tuple(dict.fromkeys(change.filters)),
            key=old.key if change.key is None else change.key,
            settings=_settings(old.settings, change.settings or {}),
            queue=old.queue
            if old.queue is None
            else _queue_settings(old.queue, change.queue or {}),
        )
        self._check(new)
        if _keeps_dead(new) and not _keeps_dead(old):
            self._check_dead_letters(new)
        _check_filters(name, change.filters or ())
        return new

    def in_the_way(self, name: str, change: Change) -> list[str]:
        """Settings that a stream has and a change does not name, and without which it could be."""
        of_queue, of_stream = change.queue or {}, change.settings or {}
        try:
            old = self.get(name)
            named = {queue_settings.find_either(each).name for each in (*of_queue, *of_stream)}
        except (UnknownStreamError, ValueError):
            return []
        unnamed = [each for each in (*(old.queue or ()), *old.settings) if each not in named]
        for tried in (*([each] for each in unnamed), unnamed):
            less_of_queue, less_of_stream = queue_settings.split(dict.fromkeys(tried))
            queue = None if change.queue is None else {**less_of_queue, **of_queue}
            with suppress(CatalogError):
                self.alter(
                    name, replace(change, settings={**less_of_stream, **of_stream}, queue=queue)
                )
                return tried
        return []

    def delete(self, name: str) -> StreamDefinition:
        """Judges the end of a stream.

        Raises:
            InvalidStreamError, UnknownStreamError: why it may not be.
        """
        definition = self.get(name)
        check_name(name)
        return definition

    def check(self, definition: StreamDefinition, held: Iterable[HeldLog]) -> None:
        """Judges a definition that comes from a disk, beside the logs that the journal there knows.

        Raises:
            InvalidStreamError: no stream can be served so, or records would go with it in silence.
        """
        _settings({}, definition.settings)
        _queue_settings({}, definition.queue or {})
        for other in self._streams.values():
            is_other = other.name != definition.name
            if is_other and other.incarnation == definition.incarnation:
                raise InvalidStreamError(
                    f"it says incarnation {definition.incarnation}, as that of {other.name!r} "
                    f"does: one is a copy of the other"
                )
        self._check_binding(definition)  # defaults of the node may have changed; they say nothing
        logs = [log for log in held if log.stream == definition.name]
        others = {log.incarnation for log in logs} - {definition.incarnation}
        if others:
            raise InvalidStreamError(
                f"it says incarnation {definition.incarnation}, and its partitions are of "
                f"{min(others)}: the files of two streams of one name were mixed"
            )
        # A crash may leave logs of a stream that was to have more; they hold nothing yet.
        named = 1 + max((log.partition for log in logs if log.has_past), default=-1)
        if named > definition.partitions:
            raise InvalidStreamError(
                f"it says {definition.partitions} partitions, and there are records in {named}",
                KAFKA_INVALID_PARTITIONS,
            )

    def put(self, definition: StreamDefinition) -> None:
        """Holds a definition that is durable."""
        old = self._streams.get(definition.name)
        assert old is None or old.id == definition.id, "one stream to a name"
        self._streams[definition.name] = definition
        self._last_incarnation = max(self._last_incarnation, definition.incarnation)

    def remove(self, name: str) -> None:
        """Forgets a stream whose data is gone."""
        del self._streams[name]

    @property
    def _of_users(self) -> list[StreamDefinition]:
        return [each for each in self._streams.values() if not is_internal(each.name)]

    def _check_partitions(self, partitions: int, held: int) -> None:
        if not 1 <= partitions <= limits.STREAM_PARTITIONS_MAX:
            raise InvalidStreamError(
                f"partitions must be from 1 to {limits.STREAM_PARTITIONS_MAX}; got {partitions}",
                KAFKA_INVALID_PARTITIONS,
            )
        all_held = sum(stream.partitions for stream in self._of_users)
        if all_held - held + partitions > self._partitions_max:
            raise StreamLimitError(
                f"{partitions - held} more partitions would exceed the node's limit of "
                f"{self._partitions_max}; raise limits.partitions, or the limit of open files "
                f"(ulimit -n)"
            )

    def _check(self, definition: StreamDefinition) -> None:
        settings = self.settings(definition)
        if settings.compacts and definition.filters and definition.key.startswith("property:"):
            raise InvalidStreamError(
                f"stream {definition.name!r} compacts by key, and publishes without the property "
                f"of {definition.key!r} have none; choose key topic or level:N"
            )
        why = contradiction(settings)
        if why is not None:
            raise InvalidStreamError(f"stream {definition.name!r}: {why}")
        if definition.queue is not None:
            self._check_queue(definition, QueueSettings.of_queue(definition.queue), settings)
        self._check_binding(definition)

    def _check_queue(
        self, definition: StreamDefinition, queue: QueueSettings, settings: Settings
    ) -> None:
        why = queue_settings.contradiction(queue, settings, definition.partitions)
        if why is not None:
            raise InvalidStreamError(f"queue {definition.name!r}: {why}")
        length_max = limits.STREAM_NAME_LENGTH_MAX - len(DEAD_LETTERS)
        if queue.keeps_dead and len(definition.name) > length_max:
            raise InvalidStreamError(
                f"the name of a queue has at most {length_max} characters, for its dead letters "
                f"have it with {DEAD_LETTERS!r} behind; got {len(definition.name)}",
                KAFKA_INVALID_TOPIC,
            )

    def _check_dead_letters(self, definition: StreamDefinition) -> None:
        """The dead letters of a queue are a queue."""
        name = definition.name
        queue = self._streams.get(name.removesuffix(DEAD_LETTERS))
        is_taken = name.endswith(DEAD_LETTERS) and queue is not None and queue.queue is not None
        if is_taken and definition.queue is None:
            raise InvalidStreamError(
                f"stream {name!r} would be in the place of the dead letters of a queue; choose "
                f"another name, or create it as a queue",
                KAFKA_INVALID_TOPIC,
            )
        letters = self._streams.get(name + DEAD_LETTERS)
        if _keeps_dead(definition) and letters is not None and letters.queue is None:
            raise InvalidStreamError(
                f"queue {name!r} would have its dead letters in {letters.name!r}, which is a "
                f"stream and no queue; choose another name, or dead.letters off",
                KAFKA_INVALID_TOPIC,
            )

    def _check_binding(self, definition: StreamDefinition) -> None:
        if len(definition.filters) > limits.STREAM_FILTERS_MAX:
            raise InvalidStreamError(
                f"a stream has at most {limits.STREAM_FILTERS_MAX} filters; "
                f"got {len(definition.filters)}"
            )
        try:
            self._judge.bind(0, definition.partitions, list(definition.filters), definition.key)
        except ValueError as error:
            raise InvalidStreamError(f"stream {definition.name!r}: {error}") from None
        self._judge.unbind(0)


def is_internal(name: str) -> bool:
    """Whether a stream is the node's own: users neither change it nor write to it."""
    return name.startswith("__")


def refuse_queue(definition: StreamDefinition) -> None:
    """Lets nobody delete a queue who means a stream.

    Raises:
        InvalidStreamError: it is one.
    """
    if definition.queue is not None:
        name = definition.name
        raise InvalidStreamError(
            f"{shown(name)} is a queue; delete it by headrace queues delete {name}, over HTTP by "
            f"DELETE /api/v1/queues/{name}"
        )


def check_name(name: str) -> None:
    """Refuses what is no name for a stream of a user.

    Raises:
        InvalidStreamError: why not.
    """
    if not _NAME.fullmatch(name) or name in {".", ".."}:
        raise InvalidStreamError(
            f"a stream's name is 1 to {limits.STREAM_NAME_LENGTH_MAX} of a-z A-Z 0-9 . _ - and "
            f"neither '.' nor '..'; got {shown(name)}",
            KAFKA_INVALID_TOPIC,
        )
    if is_internal(name):
        raise InvalidStreamError(
            f"names that begin with '__' are the node's own; got {name!r}", KAFKA_INVALID_TOPIC
        )


def _check_filters(name: str, filters: Iterable[str]) -> None:
    """Refuses filters that never match; a definition from a disk may have one.

    Nobody publishes below `$`, and what the broker says there is not stored (MQTT 5.0 4.7.2).

    Raises:
        InvalidStreamError: which.
    """
    for each in filters:
        if each.startswith("$"):
            raise InvalidStreamError(
                f"stream {name!r}: the filter {shown(each)} never matches, for topics that begin "
                f"with $ are the broker's own and are not stored; subscribe to them over MQTT"
            )


def _first_key(change: Change) -> str:
    if change.key is not None:
        return change.key
    return "topic" if change.queue is None else queue_settings.KEY


def _keeps_dead(definition: StreamDefinition) -> bool:
    of_queue = definition.queue
    return of_queue is not None and QueueSettings.of_queue(of_queue).keeps_dead


def _queue_settings(
    old: Mapping[str, Value], changes: Mapping[str, Value | None]
) -> Mapping[str, Value]:
    return _settings(old, changes, queue_settings.find)


def _settings(
    old: Mapping[str, Value],
    changes: Mapping[str, Value | None],
    find: Callable[[str], Setting] = find,
) -> Mapping[str, Value]:
    new = dict(old)
    named: dict[str, str] = {}
    for name, value in changes.items():
        try:
            setting = find(name)
        except ValueError as error:
            raise InvalidStreamError(str(error)) from None
        if (other := named.setdefault(setting.name, name)) != name:
            raise InvalidStreamError(f"says twice {shown(setting.name)}: {other} and {name} are it")
        if value is None:
            new.pop(setting.name, None)
            continue
        try:
            new[setting.name] = setting.read(value)
        except ValueError as error:
            raise InvalidStreamError(f"setting {shown(name)} {error}") from None
    return new
