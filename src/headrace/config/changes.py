"""What a new configuration changes, and how much of that a running node can take.

Pure. Owns the list of settings that change live. Invariant: a setting that cannot keeps its value
until a restart, and is told of at each reload until then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.config.streams import TABLES
from headrace.settings import SETTINGS

if TYPE_CHECKING:
    from headrace.config.schema import Config

_LIVE: Final = {
    "access": frozenset(
        {
            "anonymous",
            "certificates",
            "denied_publish",
            "no_match",
            "password_queue",
            "reveal_refusals",
            "rules",
        }
    ),
    "mqtt": frozenset(
        {
            "connect_timeout",
            "keep_alive_max",
            "overflow",
            "overlapping_subscriptions",
            "response_information",
            "session_expiry_max",
            "shared_strategies",
            "shared_strategy",
            "sys_interval",
        }
    ),
    "kafka": frozenset(
        {
            "advertised",
            "auto_create_streams",
            "group_initial_rebalance_delay",
            "group_max_session_timeout",
            "group_max_size",
            "group_min_session_timeout",
            "idle_timeout",
            "num_partitions",
            "offsets_retention",
            "quotas",
            "tls_advertised",
        }
    ),
    "frame": frozenset({"connect_timeout", "heartbeat_interval", "idle_timeout"}),
    "http": frozenset({"idle_timeout", "request_timeout"}),
    "log": frozenset(
        {"compaction_bytes_per_second", "retention_check"}
        | {name.replace(".", "_") for name in SETTINGS}
    ),
    "logging": frozenset({"format", "level"}),
    "pipeline": frozenset({"api", "stream"}),
    "limits": frozenset(
        {
            "buffered_bytes",
            "connections",
            "connections_overflow",
            "connections_per_address",
            "connects_per_address",
            "group_bytes",
            "group_messages",
            "handshake_timeout",
            "handshakes",
            "messages_per_second",
            "outbound_bytes",
            "partitions",
            "queue_groups",
            "queued_bytes",
            "retained_bytes",
            "retained_messages",
            "session_bytes",
            "session_messages",
            "session_subscriptions",
            "sessions",
            "sessions_kept",
            "stall",
            "streams",
            "subscriptions",
            "unreleased",
            "undurable_bytes",
        }
    ),
}
"""By table. What is agreed on with a client when it connects is not among them, nor what names a
file or an address."""


_NOT_OF_NODES: Final = frozenset({"pipeline"})
"""Tables of other processes: what changes there is not a node's to tell of."""


def is_live(table: str, key: str) -> bool:
    """Whether a running node takes a change of a setting."""
    return table in TABLES or key in _LIVE.get(table, ())


@dataclass(frozen=True, slots=True)
class Change:
    """One setting that a new configuration says otherwise."""

    table: str
    key: str
    before: object
    after: object

    @property
    def name(self) -> str:
        """With a dot, as `limits.stall`."""
        return f"{self.table}.{self.key}"


@dataclass(frozen=True, slots=True)
class Changes:
    """A reload.

    Attributes:
        config: what holds from now on.
        live: what changes.
        restart: what stays as it is until a restart.
    """

    config: Config
    live: tuple[Change, ...]
    restart: tuple[Change, ...]


def changes(before: Config, after: Config) -> Changes:
    """What becomes of a node that serves `before` and is told `after`."""
    live: list[Change] = []
    restart: list[Change] = []
    held: dict[str, object] = {}
    for table in type(before).model_fields:
        old, new = getattr(before, table), getattr(after, table)
        if table in TABLES:
            live += [
                Change(table, name, old.get(name), new.get(name))
                for name in new
                if new.get(name) != old.get(name)
            ]
            held[table] = new
            continue
        found = [
            Change(table, key, getattr(old, key), getattr(new, key))
            for key in type(old).model_fields
            if getattr(old, key) != getattr(new, key)
        ]
        taken = [each for each in found if is_live(table, each.key)]
        live += taken
        if table not in _NOT_OF_NODES:
            restart += [each for each in found if each not in taken]
        held[table] = old.model_copy(update={each.key: each.after for each in taken})
    return Changes(before.model_copy(update=held), tuple(live), tuple(restart))
