"""The settings of a queue: a second table beside that of the stream that it is.

Owns `QueueSettings`, whose fields are settings as those of `headrace.settings`, and what a queue
asks of its stream. Must not know what a setting does. No name is in both tables, so that people
write them side by side.
"""

from __future__ import annotations

from collections import ChainMap
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from headrace import limits, settings
from headrace.settings import (
    NOT_SERVED,
    SETTINGS,
    UNLIMITED,
    Kind,
    Setting,
    Settings,
    SettingTable,
    duration_field,
    quantity,
    setting_field,
    table_of,
)
from headrace.text import nearest, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.settings import Value

KEY: Final = "property:partition-key"
"""Record key of a queue that names none."""

DEAD_LETTERS: Final = ".dlq"
"""What the name of a queue's dead letters ends with, behind its own (CONTRACT)."""

NONE, BY_KEY, STRICT = "none", "key", "strict"

REFUSE, DROP, DEAD_LETTER = "refuse", "drop-oldest", "dead-letter-oldest"


def _count(default: int, low: int, high: int, summary: str, **parts: Any) -> Any:  # noqa: ANN401
    return setting_field(Kind.COUNT, default, summary, low=low, high=high, **parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings(SettingTable):
    """What holds for one queue. The node has no defaults of its own for them."""

    ack_deadline_ms: int = duration_field(
        limits.QUEUE_ACK_DEADLINE_MS, 1,
        "Time from a delivery to the next one, to whichever consumer, unless it is settled.",
    )  # fmt: skip
    batch_size: int = _count(
        limits.QUEUE_BATCH_SIZE, 1, limits.QUEUE_READ_AHEAD_MAX,
        "Messages that a group is given before other groups and queues have their turn.",
    )  # fmt: skip
    consumers: str = setting_field(
        Kind.CHOICE, "shared", "Who of a group is given messages: `shared` all of them, in turn; "
        "`single` who of those that are connected came first, and the others stand by; "
        "`exclusive` one, and no other may subscribe while it is connected.",
        words=("shared", "single", "exclusive"),
    )  # fmt: skip
    dead_letters: str = setting_field(
        Kind.CHOICE, "on", "`on` keeps what is rejected, or has failed too often, or is too old, "
        "in the queue `NAME.dlq`; `off` drops and counts it.", words=("on", "off"),
    )  # fmt: skip
    depth_max_bytes: int = setting_field(
        Kind.SIZE, UNLIMITED, "What the messages that a queue owes may take of its log, at most; "
        "-1: no bound.", low=1, high=limits.INT64_MAX, unlimited=True,
    )  # fmt: skip
    depth_max_messages: int = _count(
        UNLIMITED, 1, limits.INT64_MAX,
        "Messages that a queue owes to the group that it owes most, at most; -1: no bound.",
        unlimited=True,
    )  # fmt: skip
    depth_policy: str = setting_field(
        Kind.CHOICE, REFUSE, "What becomes of more: `refuse` takes none (0x97) until something is "
        "settled, `drop-oldest` makes room by the oldest that nobody has, and counts it, "
        "`dead-letter-oldest` keeps that in `NAME.dlq`.", words=(REFUSE, DROP, DEAD_LETTER),
    )  # fmt: skip
    message_ttl_ms: int = duration_field(
        limits.QUEUE_MESSAGE_TTL_MS, 1,
        "Age at which a message that is not settled is dead; -1: never.", unlimited=True,
    )  # fmt: skip
    order: str = setting_field(
        Kind.CHOICE, NONE, "`none` gives messages out as they come, `key` one of each key at a "
        "time, so that what failed comes before what follows of its key; `strict` one at a time, "
        "of one partition.", words=(NONE, BY_KEY, STRICT),
    )  # fmt: skip
    partition_hash: str = setting_field(
        Kind.CHOICE, "fnv1a", "Which partition a message with a `partition-key` goes to: by "
        "`fnv1a` of it, or by `murmur2`, as Kafka's producers choose.", words=("fnv1a", "murmur2"),
    )  # fmt: skip
    paused: str = setting_field(
        Kind.CHOICE, "off", "`on` gives nothing out; the queue goes on taking messages.",
        words=("on", "off"),
    )  # fmt: skip
    prefetch: int = _count(
        limits.QUEUE_PREFETCH, 1, 65_535,
        "Deliveries that a consumer may have open where it does not say how many.",
    )  # fmt: skip
    priorities: str = setting_field(
        Kind.CHOICE, "off", "`on` has messages overtake others of a lower user property "
        "`priority`, 0 to 9, 4 without one; of `order` none alone.", words=("on", "off"),
    )  # fmt: skip
    read_ahead: int = _count(
        limits.QUEUE_READ_AHEAD, 1, limits.QUEUE_READ_AHEAD_MAX,
        "Messages of a partition that a group knows and has not given out, at most; where all of "
        "them wait for others of their keys, the group is blocked.",
    )  # fmt: skip
    retry_attempts: int = _count(
        limits.QUEUE_RETRY_ATTEMPTS, 1, limits.QUEUE_RETRY_ATTEMPTS_MAX,
        "Failures after which a message is dead; -1: no bound.", unlimited=True,
    )  # fmt: skip
    retry_backoff_jitter: float = setting_field(
        Kind.RATIO, 0.2, "Part of a back-off that is taken off by chance, at most, 0 to 1.",
        low=0, high=1,
    )  # fmt: skip
    retry_backoff_max_ms: int = duration_field(
        limits.QUEUE_RETRY_BACKOFF_MAX_MS, 0, "Longest back-off.",
    )  # fmt: skip
    retry_backoff_ms: int = duration_field(
        limits.QUEUE_RETRY_BACKOFF_MS, 0, "How long a message rests after its first failure.",
    )  # fmt: skip
    retry_backoff_multiplier: float = setting_field(
        Kind.RATIO, 2.0, "By how much each further back-off is longer.", low=1, high=100,
    )  # fmt: skip
    retry_total_ms: int = duration_field(
        UNLIMITED, 1, "Time from its first delivery after which a message that fails is dead; -1: "
        "no bound.", unlimited=True,
    )  # fmt: skip

    @classmethod
    def of_queue(cls, own: Mapping[str, Value]) -> QueueSettings:
        """The defaults, and over them what a queue has set, by names with dots."""
        read: dict[str, Any] = {name.replace(".", "_"): value for name, value in own.items()}
        return cls(**read)

    @property
    def is_bounded(self) -> bool:
        """Whether there is an end to what it may owe."""
        return (self.depth_max_messages, self.depth_max_bytes) != (UNLIMITED, UNLIMITED)

    @property
    def keeps_dead(self) -> bool:
        """Whether there is a queue of its dead letters."""
        return self.dead_letters == "on"


QUEUE_SETTINGS: Final = table_of(QueueSettings)
"""By name with dots."""

QUEUE_DEFAULTS: Final = QueueSettings()

BOTH: Final[Mapping[str, Setting]] = ChainMap(dict(QUEUE_SETTINGS), dict(SETTINGS))
"""What may be set of a queue: its own settings, and those of its stream."""

assert not QUEUE_SETTINGS.keys() & SETTINGS.keys()

OF_DEAD_LETTERS: Final[Mapping[str, Value]] = {
    "dead.letters": "off",
    "message.ttl.ms": UNLIMITED,
    "retry.attempts": UNLIMITED,
}
"""Of `NAME.dlq` where the node makes it: nothing is lost there."""


ORIGINAL: Final[Mapping[str, str]] = {
    "batch_size": "batch.size",
    "delivery_timeout": "ack.deadline.ms",
    "max_queue_depth": "depth.max.messages",
    "message_ttl": "message.ttl.ms",
    "ring_buffer_size": "read.ahead",
}
"""Names of the design that queues began with, and those that they have here."""

OF_CLUSTER: Final = frozenset(
    {
        "ack_timeout",
        "min_in_sync_replicas",
        "partition_strategy",
        "replication_ack_policy",
        "replication_factor",
        "replication_mode",
        "routing_mode",
    }
)
"""Names of that design that say how several nodes share a queue."""

NAMES: Final = frozenset({*BOTH, *ORIGINAL, *OF_CLUSTER})
"""What people may write."""


def find(name: str) -> Setting:
    """The setting of a queue, and not of its stream, of this name.

    Raises:
        ValueError: there is none, or a single node has not.
    """
    if name in OF_CLUSTER:
        raise ValueError(f"setting {shown(name)} needs a cluster, and this is one node; remove it")
    name = ORIGINAL.get(name, name)
    if name not in QUEUE_SETTINGS:
        raise ValueError(f"no queue setting {shown(name)}; {nearest(name, BOTH)}")
    return QUEUE_SETTINGS[name]


def find_either(name: str) -> Setting:
    """The setting of this name, of a queue or of its stream.

    Raises:
        ValueError: there is none, or it is one of Kafka's that headrace has not.
    """
    return settings.find(name) if _is_of_stream(name) else find(name)


def _is_of_stream(name: str) -> bool:
    return name in SETTINGS or name in NOT_SERVED


def split(
    both: Mapping[str, Value | None],
) -> tuple[dict[str, Value | None], dict[str, Value | None]]:
    """What is said of the queue, unknown names included, and what of its stream."""
    of_stream = {name: value for name, value in both.items() if _is_of_stream(name)}
    return {name: both[name] for name in both if name not in of_stream}, of_stream


def kept(defaults: Settings) -> Settings:
    """What a queue inherits of a node's defaults: nothing by which owed messages would be lost."""
    return replace(
        defaults,
        cleanup_policy="delete",
        retention_bytes=UNLIMITED,
        retention_ms=UNLIMITED,
        retention_records=UNLIMITED,
    )


def record_bytes_max(name: str, of_stream: Settings) -> int:
    """Largest record of a queue, decompressed: it and its dead letter can be given to consumers."""
    for_letter = 0 if name.endswith(DEAD_LETTERS) else limits.QUEUE_LETTER_BYTES
    return min(of_stream.max_message_bytes, limits.STREAM_RECORD_BYTES_MAX - for_letter)


def contradiction(queue: QueueSettings, of_stream: Settings, partitions: int) -> str | None:
    """Why these cannot hold together, or None."""
    if queue.order == STRICT and partitions != 1:
        return (
            f"order strict is of one partition, and there are {partitions}; choose order key, "
            f"or 1 partition"
        )
    if queue.priorities == "on" and queue.order != NONE:
        return (
            f"order {queue.order} keeps messages in order, and priorities have them overtake each "
            f"other; choose order none, or priorities off"
        )
    if queue.depth_policy == DEAD_LETTER and not queue.keeps_dead:
        return f"depth.policy {DEAD_LETTER} needs dead.letters on; choose {DROP}, or {REFUSE}"
    if queue.retry_backoff_max_ms < queue.retry_backoff_ms:
        return (
            f"retry.backoff.max.ms ({queue.retry_backoff_max_ms}) must not be less than "
            f"retry.backoff.ms ({queue.retry_backoff_ms})"
        )
    if of_stream.compacts:
        return "a queue is not compacted, for each message is owed; take cleanup.policy=delete"
    return None


def read(name: str, value: object) -> str:
    """A value of a setting of a queue, or of a stream, as a person reads it.

    >>> read("retention.ms", 604_800_000), read("retention.bytes", -1)
    ('7d', 'unlimited')
    """
    setting = BOTH.get(name)
    if setting is None or isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if value in {-1, limits.INT64_MAX}:
        return "unlimited"
    return str(quantity(value, setting.kind.unit))
