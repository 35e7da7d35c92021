"""The settings of a stream: names, types, defaults, ranges, and how people and Kafka write them.

Owns one table, `Settings`: every setting is one field of it. Its name with dots is Kafka's, where
Kafka has one; so are default and meaning. Configuration, catalog, doors and reference read the
table. Must not know what a setting does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields, replace
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from headrace import limits
from headrace.text import nearest, parse_duration_ms, parse_size, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Value: TypeAlias = int | float | str
"""Of a setting, once read: a number, or one of the words that it takes."""

UNLIMITED: Final = -1
"""What Kafka writes for no limit."""

_NUMBER: Final = re.compile(r"-?\d{1,30}", re.ASCII)
"""Longer ones are out of any range, and Python refuses to read very long ones."""


class Kind(Enum):
    """How a setting is written; the value is its Kafka type in DescribeConfigs."""

    COUNT = "long"
    SIZE = "bytes"
    DURATION = "ms"
    RATIO = "double"
    CHOICE = "string"
    CHOICES = "list"

    @property
    def unit(self) -> str:
        """What a number of it counts: `bytes`, `milliseconds`, or nothing."""
        return {Kind.SIZE: "bytes", Kind.DURATION: "milliseconds"}.get(self, "")


_SIZE_UNITS: Final = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
_DURATION_UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000))


def quantity(number: float, unit: str) -> int | float | str:
    """A number in the largest of its units, `bytes` or `milliseconds`, that divides it."""
    if number in {-1, limits.INT64_MAX} or not unit:
        return number
    units, smallest = (_SIZE_UNITS, "B") if unit == "bytes" else (_DURATION_UNITS, "ms")
    for name, size in units:
        if number and number % size == 0:
            return f"{int(number) // size}{name}"
    return f"{int(number)}{smallest}"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of a stream.

    Attributes:
        name: with dots.
        kind: how it is written.
        default: of a node that does not say otherwise.
        summary: what it does, in a line.
        low, high: range of a number, both included.
        unlimited: whether -1 stands for no limit.
        words: those it takes.
        broker_name: of the default, as Kafka's brokers call it.
    """

    name: str
    kind: Kind
    default: Value
    summary: str
    low: float = 0
    high: float = 0
    unlimited: bool = False
    words: tuple[str, ...] = ()
    broker_name: str = ""

    def read(self, value: object) -> Value:
        """What `value` means: text or a number, with a unit or as Kafka writes it.

        Raises:
            ValueError: it is neither, or out of range; the message says what is expected.
        """
        if self.kind is Kind.CHOICE:
            return self._word(str(value).strip(), value)
        if self.kind is Kind.CHOICES:
            words = {self._word(each.strip(), value) for each in str(value).split(",")}
            return ",".join(each for each in self.words if each in words)
        number = _number(self.kind, value)
        if self.unlimited and number == UNLIMITED:
            return UNLIMITED
        if not self.low <= number <= self.high:
            or_none = ", or -1 for no limit" if self.unlimited else ""
            raise ValueError(f"must be from {self.low} to {self.high}{or_none}; got {shown(value)}")
        return number

    def _word(self, word: str, value: object) -> str:
        word = _SYNONYMS.get((self.name, word), word)
        if word not in self.words:
            several = ", or several with commas" if self.kind is Kind.CHOICES else ""
            raise ValueError(f"must be one of {', '.join(self.words)}{several}; got {shown(value)}")
        return word


_SYNONYMS: Final = {("compression.type", "none"): "uncompressed"}
"""Words of Kafka's clients for words of its brokers."""


def _number(kind: Kind, value: object) -> int | float:
    if kind is Kind.RATIO:
        try:
            return float(value)  # type: ignore[arg-type]  # what is no number raises
        except (TypeError, ValueError):
            raise ValueError(f"must be a number, such as 0.5; got {shown(value)}") from None
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        return int(value)
    if kind is Kind.SIZE:
        return parse_size(value)
    if kind is Kind.DURATION:
        return parse_duration_ms(value)
    raise ValueError(f"must be a whole number; got {shown(value)}")


def setting_field(kind: Kind, default: Value, summary: str, **parts: Any) -> Any:  # noqa: ANN401 - a field
    """A field that is a setting, for `table_of`; `parts` are more of `Setting`."""
    return field(default=default, metadata={"setting": (kind, default, summary, parts)})


def _size(default: int, low: int, high: int, summary: str, **parts: Any) -> Any:  # noqa: ANN401
    return setting_field(Kind.SIZE, default, summary, low=low, high=high, **parts)


def duration_field(default: int, low: int, summary: str, **parts: Any) -> Any:  # noqa: ANN401
    """The same of a time in milliseconds, from `low` on."""
    high = limits.INT64_MAX
    return setting_field(Kind.DURATION, default, summary, low=low, high=high, **parts)


class SettingTable:
    """A dataclass whose fields are settings."""

    __slots__ = ()

    def of(self, name: str) -> Value:
        """The value of a setting by its name with dots."""
        value: Value = getattr(self, name.replace(".", "_"))
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(SettingTable):
    """What holds for one stream: its own settings over the node's defaults.

    Source: Kafka's `TopicConfig` and `LogConfig`; `retention.records` and `fsync` are headrace's.
    """

    cleanup_policy: str = setting_field(
        Kind.CHOICES, "delete", "`delete` old segments, `compact` to the last record of each key, "
        "or `compact,delete`.", words=("compact", "delete"), broker_name="log.cleanup.policy",
    )  # fmt: skip
    compression_type: str = setting_field(
        Kind.CHOICE, "producer", "`producer` keeps batches as they were sent; else they are "
        "recoded: `uncompressed`, `gzip`, `snappy`, `lz4`, `zstd`.",
        words=("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        broker_name="compression.type",
    )  # fmt: skip
    delete_retention_ms: int = duration_field(
        limits.DELETE_RETENTION_MS, 0, "How long compaction keeps a tombstone.",
        broker_name="log.cleaner.delete.retention.ms",
    )  # fmt: skip
    flush_ms: int = duration_field(
        limits.FLUSH_MS, 1, 'Longest time without an fdatasync where `fsync` is "interval".',
        broker_name="log.flush.interval.ms",
    )  # fmt: skip
    fsync: str = setting_field(
        Kind.CHOICE, "commit", "`commit` syncs before it acknowledges, `interval` every "
        "`flush.ms`, `os` leaves it to the kernel.", words=("commit", "interval", "os"),
        broker_name="log.fsync",
    )  # fmt: skip
    max_compaction_lag_ms: int = duration_field(
        limits.INT64_MAX, 1, "Compacted at the latest when a record is this old.",
        broker_name="log.cleaner.max.compaction.lag.ms",
    )  # fmt: skip
    max_message_bytes: int = _size(
        limits.MESSAGE_BYTES_MAX, 1, limits.MESSAGE_BYTES_CEILING, "Largest record batch.",
        broker_name="message.max.bytes",
    )  # fmt: skip
    min_cleanable_dirty_ratio: float = setting_field(
        Kind.RATIO, 0.5, "Compacted when more than this part of the log has not been, 0 to 1.",
        low=0, high=1, broker_name="log.cleaner.min.cleanable.ratio",
    )  # fmt: skip
    min_compaction_lag_ms: int = duration_field(
        0, 0, "Records younger than this are not compacted.",
        broker_name="log.cleaner.min.compaction.lag.ms",
    )  # fmt: skip
    retention_bytes: int = _size(
        UNLIMITED, 0, limits.INT64_MAX, "Kept of each partition, in whole segments; -1: all.",
        unlimited=True, broker_name="log.retention.bytes",
    )  # fmt: skip
    retention_ms: int = duration_field(
        limits.RETENTION_MS, 0, "How long records are kept, in whole segments; -1: for ever.",
        unlimited=True, broker_name="log.retention.ms",
    )  # fmt: skip
    retention_records: int = setting_field(
        Kind.COUNT, UNLIMITED, "Records kept of each partition, in whole segments; -1: all.",
        low=0, high=limits.INT64_MAX, unlimited=True, broker_name="log.retention.records",
    )  # fmt: skip
    segment_bytes: int = _size(
        limits.SEGMENT_BYTES, limits.SEGMENT_BYTES_MIN, limits.SEGMENT_BYTES_CEILING,
        "Size at which a segment is closed and the next begun.", broker_name="log.segment.bytes",
    )  # fmt: skip
    segment_index_bytes: int = _size(
        limits.SEGMENT_INDEX_BYTES, limits.SEGMENT_INDEX_BYTES_MIN, limits.SEGMENT_BYTES_CEILING,
        "Size of an index at which its segment is closed.", broker_name="log.index.size.max.bytes",
    )  # fmt: skip
    segment_ms: int = duration_field(
        limits.SEGMENT_MS, 1, "Age at which a segment is closed.", broker_name="log.roll.ms"
    )

    def over(self, own: Mapping[str, Value]) -> Settings:
        """These, and over them what a stream has set, by names with dots."""
        read: dict[str, Any] = {
            name.replace(".", "_"): SETTINGS[name].read(value) for name, value in own.items()
        }
        return replace(self, **read)

    @property
    def codec(self) -> str | None:
        """The codec that every batch is stored in, or None: in the one that it was sent in."""
        if self.compression_type == "producer":
            return None
        return "none" if self.compression_type == "uncompressed" else self.compression_type

    @property
    def compacts(self) -> bool:
        """Whether only the last record of each key is kept in the end, so that each needs one."""
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        """Whether retention holds."""
        return "delete" in self.cleanup_policy

    @property
    def roll_ms(self) -> int:
        """Age at which a segment is closed: only closed ones are compacted (Kafka's rule)."""
        return (
            min(self.segment_ms, self.max_compaction_lag_ms) if self.compacts else self.segment_ms
        )


def table_of(model: type[SettingTable]) -> Mapping[str, Setting]:
    """The settings that are the fields of a dataclass, by names with dots."""
    table = {}
    for each in fields(model):  # type: ignore[arg-type]  # each such class is a dataclass
        kind, default, summary, parts = each.metadata["setting"]
        name = each.name.replace("_", ".")
        table[name] = Setting(name, kind, default, summary, **parts)
    return table


SETTINGS: Final = table_of(Settings)
"""By name with dots."""

DEFAULTS: Final = Settings()

NOT_SERVED: Final = frozenset(
    {
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.zstd.level",
        "file.delete.delay.ms",
        "flush.messages",
        "follower.replication.throttled.replicas",
        "index.interval.bytes",
        "leader.replication.throttled.replicas",
        "local.retention.bytes",
        "local.retention.ms",
        "message.downconversion.enable",
        "message.format.version",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.difference.max.ms",
        "message.timestamp.type",
        "min.insync.replicas",
        "preallocate",
        "remote.storage.enable",
        "segment.jitter.ms",
        "unclean.leader.election.enable",
    }
)
"""Kafka's other topic settings (Kafka 4.0 `TopicConfig`): refused by saying so, not as unknown."""


def find(name: str) -> Setting:
    """The setting of this name.

    Raises:
        ValueError: there is none, or it is one of Kafka's that headrace has not.
    """
    if name in NOT_SERVED:
        raise ValueError(f"setting {name!r} is Kafka's and not served here; remove it")
    if name not in SETTINGS:
        raise ValueError(f"no stream setting {shown(name)}; {nearest(name, SETTINGS)}")
    return SETTINGS[name]


class Source(StrEnum):
    """Who says what holds for a stream."""

    STREAM = "stream"
    NODE = "node"
    DEFAULT = "default"


class Effective(NamedTuple):
    """What holds, and who says so."""

    value: Value
    source: Source


def effective(
    own: Mapping[str, Value], inherited: SettingTable, builtin: SettingTable = DEFAULTS
) -> dict[str, Effective]:
    """Every setting of a stream that has set `own`, by name.

    Args:
        own: what it has set.
        inherited: what holds on this node where it has not.
        builtin: what would hold there on a node that says nothing.
    """

    def one(name: str) -> Effective:
        if name in own:
            return Effective(own[name], Source.STREAM)
        value = inherited.of(name)
        return Effective(value, Source.DEFAULT if value == builtin.of(name) else Source.NODE)

    return {name: one(name) for name in table_of(type(builtin))}


def contradiction(settings: Settings, spelled: Callable[[str], str] = str) -> str | None:
    """Why these settings cannot hold together, or None; `spelled` writes a name with dots."""
    high, low = "max.compaction.lag.ms", "min.compaction.lag.ms"
    if settings.max_compaction_lag_ms < settings.min_compaction_lag_ms:
        return (
            f"{spelled(high)} ({settings.max_compaction_lag_ms}) must not be less than "
            f"{spelled(low)} ({settings.min_compaction_lag_ms})"
        )
    return None
