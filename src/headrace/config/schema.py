"""The settings: names, types, defaults, ranges. Each table is a frozen model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, get_args

from pydantic import Field, ValidationInfo, field_validator, model_validator

from headrace import limits
from headrace.config.access import AccessSettings
from headrace.config.doors import MqttListeners, ProxySettings, TlsSettings
from headrace.config.pipeline import PipelineSettings
from headrace.config.quotas import KafkaQuota  # noqa: TC001 - a model's field
from headrace.config.readers import (
    Bind,
    DataPath,
    Door,
    Flag,
    Text,
    Words,
)
from headrace.config.readers import Table as _Table
from headrace.config.readers import count as _count
from headrace.config.readers import duration as _duration
from headrace.config.readers import size as _size
from headrace.config.streams import QueueTable, StreamSettings  # noqa: TC001 - a model's fields
from headrace.model import Address
from headrace.settings import DEFAULTS, SETTINGS, Settings, contradiction


class NodeSettings(_Table):
    """`[node]`."""

    name: Text = Field(default="headrace", description="Name in logs, metrics and answers.")
    data: DataPath = Field(
        default=Path("headrace-data"), description="Folder of everything durable."
    )
    default_stream: Flag = Field(
        default=True, description="Whether a node without streams begins with `gpu-telemetry`."
    )


Strategy: TypeAlias = Literal[
    "round-robin", "random", "sticky", "hash-topic", "hash-client", "least-in-flight"
]


class MqttSettings(TlsSettings, MqttListeners):
    """`[mqtt]`."""

    packet_bytes: Annotated[int, _size(limits.KIB, limits.PACKET_BYTES_CEILING)] = Field(
        default=limits.PACKET_BYTES_MAX, description="Largest packet from a client."
    )
    receive_maximum: Annotated[int, _count(1, 65_535)] = Field(
        default=limits.RECEIVE_MAXIMUM,
        description="Publishes of a client above QoS 0 that may be on their way.",
    )
    topic_alias_maximum: Annotated[int, _count(0, 65_535)] = Field(
        default=limits.TOPIC_ALIAS_MAXIMUM,
        description="Topic aliases that a client may set; 0 for none.",
    )
    session_expiry_max: Annotated[int, _duration(0, limits.SESSION_EXPIRY_MS_CEILING)] = Field(
        default=limits.SESSION_EXPIRY_MS_MAX,
        description="Longest time for which a session waits for its client.",
    )
    overlapping_subscriptions: Literal["one", "each"] = Field(
        default="one",
        description="What a client gets of a message that several of its subscriptions match: "
        "`one` copy at the highest quality of service with all identifiers, or one for `each`.",
    )
    overflow: Literal["push-back", "drop-oldest", "drop-newest", "disconnect"] = Field(
        default="push-back",
        description="What gives way when a subscriber is full: its publishers (see `limits.stall`) "
        "and then the newest messages, messages alone, or its connection.",
    )
    shared_strategy: Strategy = Field(
        default="round-robin",
        description="Which member of a shared subscription gets the next message. `sticky` gives "
        "all to one member until it goes or is full; then another one gets what follows, and what "
        "the first has yet to finish may be done later than that. `hash-topic` "
        "and `hash-client` give each topic, or all that one client publishes, to one member at a "
        "time, in order: what waits for one holds up no other, and what moves to another member "
        "comes when what the one before has of it is acknowledged or has come back.",
    )
    shared_strategies: Words = Field(
        default=(),
        description='The same for single groups, as `GROUP=STRATEGY`: `["workers=hash-topic"]` '
        "is about `$share/workers/…`.",
    )
    persistence: Flag = Field(
        default=True,
        description="Whether sessions that outlive their connection survive the node, with what "
        "waits for them, and the wills of all clients. Off leaves what is on the disk for when it "
        "is on again.",
    )
    keep_alive_max: Annotated[int, _duration(1000, 65_535_000)] = Field(
        default=limits.KEEP_ALIVE_SECONDS_MAX * 1000, description="Longest keep-alive of a client."
    )
    response_information: Text | None = Field(
        default=None,
        max_length=limits.RESPONSE_INFORMATION_LENGTH_MAX,
        description="What MQTT 5.0 clients are told that ask on which topics they may be answered.",
    )
    sys_interval: Annotated[int, _duration(0, limits.DAY_MS)] = Field(
        default=limits.SYS_INTERVAL_MS,
        description="How often topics below `$SYS/broker` are published that have changed; "
        '"0s": never.',
    )
    connect_timeout: Annotated[int, _duration(100, 600_000)] = Field(
        default=limits.CONNECT_TIMEOUT_MS, description="Time from accept to a whole CONNECT."
    )

    @field_validator("shared_strategies")
    @classmethod
    def _name_strategies(cls, pairs: tuple[str, ...]) -> tuple[str, ...]:
        known = get_args(Strategy)
        for pair in pairs:
            group, _, strategy = pair.rpartition("=")
            if not group or {"/", "+", "#"} & set(group) or strategy not in known:
                raise ValueError(
                    f"must be GROUP=STRATEGY, with one of {', '.join(known)}; got {pair!r}"
                )
        return pairs

    def strategies(self) -> list[tuple[str, str]]:
        """Names of groups, and the strategy of each."""
        split = (pair.rpartition("=") for pair in self.shared_strategies)
        return [(group, strategy) for group, _, strategy in split]


class KafkaSettings(TlsSettings, ProxySettings):
    """`[kafka]`."""

    bind: Bind = Field(
        default=Address("127.0.0.1", 9092), description="HOST:PORT; port 0 picks one."
    )
    advertised: Bind | None = Field(
        default=None,
        description="HOST:PORT that clients are told to use; where it listens if not set.",
    )
    tls_bind: Door = Field(
        default=None,
        description="HOST:PORT for TLS, beside a `bind` that stays plain; without it `bind` "
        "speaks TLS once there is a `tls_certificate`.",
    )
    tls_advertised: Bind | None = Field(
        default=None, description="HOST:PORT that clients of `tls_bind` are told to use."
    )
    auto_create_streams: Flag = Field(
        default=True, description="Whether a client that names an unknown stream creates it."
    )
    num_partitions: Annotated[int, _count(1, limits.STREAM_PARTITIONS_MAX)] = Field(
        default=1,
        description="Partitions of a stream that a client creates without a number; Kafka's "
        "num.partitions.",
    )
    idle_timeout: Annotated[int, _duration(100, 86_400_000)] = Field(
        default=limits.KAFKA_IDLE_MS,
        description="How long a connection may send nothing, and read nothing.",
    )
    group_initial_rebalance_delay: Annotated[int, _duration(0, 600_000)] = Field(
        default=limits.GROUP_INITIAL_DELAY_MS,
        description="How long the first generation of a consumer group waits for more members; "
        "Kafka's group.initial.rebalance.delay.ms.",
    )
    group_min_session_timeout: Annotated[int, _duration(1, 3_600_000)] = Field(
        default=limits.GROUP_SESSION_MS_MIN,
        description="Shortest session timeout of a member; Kafka's group.min.session.timeout.ms.",
    )
    group_max_session_timeout: Annotated[int, _duration(1, limits.DAY_MS)] = Field(
        default=limits.GROUP_SESSION_MS_MAX,
        description="Longest session timeout of a member; Kafka's group.max.session.timeout.ms.",
    )
    group_max_size: Annotated[int, _count(1, limits.GROUP_SIZE_MAX)] = Field(
        default=limits.GROUP_SIZE_MAX,
        description="Members of one consumer group; Kafka's group.max.size.",
    )
    offsets_retention: Annotated[int, _duration(1000, 3650 * limits.DAY_MS)] = Field(
        default=limits.OFFSETS_RETENTION_MS,
        description="How long committed offsets outlive the last member of their group; Kafka's "
        "offsets.retention.minutes.",
    )
    quotas: tuple[KafkaQuota, ...] = Field(
        default=(),
        max_length=1024,
        description="How much clients may ask for in a second, in the order in which it is looked "
        "up ([kafka.md](kafka.md)).",
    )
    proxy_protocol: Flag = Field(
        default=False, description="Whether connections must begin with a PROXY header, v1 or v2."
    )

    @model_validator(mode="after")
    def _agree(self) -> KafkaSettings:
        if self.group_min_session_timeout > self.group_max_session_timeout:
            raise ValueError("group_min_session_timeout must not exceed group_max_session_timeout")
        for name, needs in (("tls_bind", "tls_certificate"), ("tls_advertised", "tls_bind")):
            if getattr(self, name) is not None and getattr(self, needs) is None:
                raise ValueError(f"{name} does nothing without {needs}; set both or neither")
        return self


class FrameSettings(TlsSettings, ProxySettings):
    """`[frame]`."""

    bind: Door = Field(
        default=Address("127.0.0.1", 9192), description='HOST:PORT; port 0 picks one; "off".'
    )
    connect_timeout: Annotated[int, _duration(100, 600_000)] = Field(
        default=limits.FRAME_CONNECT_MS, description="Time from accept to a whole first line."
    )
    idle_timeout: Annotated[int, _duration(100, 86_400_000)] = Field(
        default=limits.FRAME_IDLE_MS,
        description="How long a producer may complete no frame, and a client read nothing.",
    )
    heartbeat_interval: Annotated[int, _duration(100, 3_600_000)] = Field(
        default=limits.FRAME_HEARTBEAT_MS,
        description="Silence after which a consumer is told where it stands.",
    )
    proxy_protocol: Flag = Field(
        default=False, description="Whether connections must begin with a PROXY header, v1 or v2."
    )


class HttpSettings(TlsSettings):
    """`[http]`."""

    bind: Bind = Field(
        default=Address("127.0.0.1", 8080), description="HOST:PORT; port 0 picks one."
    )
    body_bytes: Annotated[int, _size(limits.KIB, limits.GIB)] = Field(
        default=limits.HTTP_BODY_BYTES_MAX, description="Largest request body."
    )
    request_timeout: Annotated[int, _duration(100, 600_000)] = Field(
        default=limits.HTTP_REQUEST_MS,
        description="Time from accept to a whole first request, and for the body of each.",
    )
    idle_timeout: Annotated[int, _duration(100, limits.HTTP_IDLE_MS_CEILING)] = Field(
        default=limits.HTTP_IDLE_MS,
        description="Time from an answer to the next whole request, or without reading any of an "
        "answer, after which a connection is ended. One beyond 128 connections ends the one that "
        "has been idle for longest, or else that has read nothing for longest.",
    )


def _of_streams(name: str) -> Any:  # noqa: ANN401 - a field
    """The node's default of a stream setting, read as the stream's own is."""
    return Field(default=DEFAULTS.of(name), description=SETTINGS[name].summary)


class LogSettings(_Table):
    """`[log]`: the node's files, and what holds for streams that do not say otherwise."""

    journal_bytes: Annotated[int, _size(limits.JOURNAL_BYTES_MIN, limits.JOURNAL_BYTES_CEILING)] = (
        Field(default=limits.JOURNAL_BYTES, description="Size of the node's journal.")
    )
    index_interval_bytes: Annotated[int, _size(1, limits.GIB)] = Field(
        default=limits.INDEX_INTERVAL_BYTES, description="Log bytes between two index entries."
    )
    direct_write_bytes: Annotated[int, _size(limits.DIRECT_WRITE_BYTES_MIN, limits.GIB)] = Field(
        default=limits.DIRECT_WRITE_BYTES, description="Run of batches that bypasses the journal."
    )
    producer_expiry: Annotated[int, _duration(1, 365 * limits.DAY_MS)] = Field(
        default=limits.PRODUCER_EXPIRY_MS,
        description="Silence after which an idempotent producer is forgotten.",
    )
    reserve_bytes: Annotated[int, _size(0, limits.RESERVE_BYTES_CEILING)] = Field(
        default=limits.RESERVE_BYTES,
        description="Left on the disk, and at least a journal file, when appends are refused; "
        "0 refuses none.",
    )
    retention_check: Annotated[int, _duration(10, limits.DAY_MS)] = Field(
        default=limits.RETENTION_CHECK_MS,
        description="How often retention is looked at; also at once when settings change.",
    )
    compaction_bytes_per_second: Annotated[
        int, _size(limits.COMPACTION_BYTES_PER_SECOND_MIN, 1024 * limits.GIB)
    ] = Field(
        default=limits.COMPACTION_BYTES_PER_SECOND,
        description="Bytes that compaction reads and writes in a second, at most.",
    )
    cleanup_policy: str = _of_streams("cleanup.policy")
    compression_type: str = _of_streams("compression.type")
    delete_retention_ms: int = _of_streams("delete.retention.ms")
    flush_ms: int = _of_streams("flush.ms")
    fsync: str = _of_streams("fsync")
    max_compaction_lag_ms: int = _of_streams("max.compaction.lag.ms")
    max_message_bytes: int = _of_streams("max.message.bytes")
    min_cleanable_dirty_ratio: float = _of_streams("min.cleanable.dirty.ratio")
    min_compaction_lag_ms: int = _of_streams("min.compaction.lag.ms")
    retention_bytes: int = _of_streams("retention.bytes")
    retention_ms: int = _of_streams("retention.ms")
    retention_records: int = _of_streams("retention.records")
    segment_bytes: int = _of_streams("segment.bytes")
    segment_index_bytes: int = _of_streams("segment.index.bytes")
    segment_ms: int = _of_streams("segment.ms")

    @field_validator("*", mode="before")
    @classmethod
    def _read_defaults(cls, value: object, info: ValidationInfo) -> object:
        setting = SETTINGS.get(str(info.field_name).replace("_", "."))
        return value if setting is None else setting.read(value)

    @model_validator(mode="after")
    def _agree(self) -> LogSettings:
        why = contradiction(self.of_streams, lambda name: name.replace(".", "_"))
        if why is not None:
            raise ValueError(why)
        return self

    @property
    def of_streams(self) -> Settings:
        """The defaults of streams."""
        names = (name.replace(".", "_") for name in SETTINGS)
        return Settings(**{name: getattr(self, name) for name in names})


class LoggingSettings(_Table):
    """`[logging]`."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least severe level that is written to stderr."
    )
    format: Literal["text", "json"] = Field(default="text", description="Form of a line.")


class LimitSettings(_Table):
    """`[limits]`."""

    connections: Annotated[int, _count(1, 10_000_000)] = Field(
        default=limits.CONNECTIONS_MAX,
        description="Connections of all doors but HTTP; descriptors may allow less.",
    )
    connections_overflow: Literal["close", "wait"] = Field(
        default="close",
        description="Whether connections beyond that are closed, or wait to be accepted.",
    )
    connections_per_address: Annotated[int, _count(0, 10_000_000)] = Field(
        default=0, description="Those of one address, or of one /64 of IPv6; 0: no bound."
    )
    connects_per_address: Annotated[int, _count(0, 1_000_000)] = Field(
        default=0, description="New ones of one address in a second; 0: no bound."
    )
    handshakes: Annotated[int, _count(1, 1_000_000)] = Field(
        default=limits.HANDSHAKES_MAX,
        description="Connections of one listener whose TLS, WebSocket or PROXY header is due.",
    )
    handshake_timeout: Annotated[int, _duration(100, 600_000)] = Field(
        default=limits.HANDSHAKE_MS, description="Time from accept until all of that is done."
    )
    streams: Annotated[int, _count(1, 100_000)] = Field(
        default=limits.STREAMS_MAX, description="Streams of users on the node."
    )
    partitions: Annotated[int, _count(1, 100_000)] = Field(
        default=limits.PARTITIONS_MAX,
        description="Partitions of users' streams on the node; descriptors may allow less.",
    )
    outbound_bytes: Annotated[int, _size(64 * limits.KIB, limits.GIB)] = Field(
        default=limits.OUTBOUND_BYTES_MAX,
        description="Waiting for one connection before messages drop.",
    )
    buffered_bytes: Annotated[int, _size(limits.MIB, 1024 * limits.GIB)] = Field(
        default=limits.BUFFERED_BYTES_MAX,
        description="Held by all MQTT connections, unread or not whole, and as much again in "
        "WebSocket frames that are not whole; beyond it each may hold 64 KiB, and of what is not "
        "whole the oldest goes.",
    )
    session_in_flight: Annotated[int, _count(1, 65_535)] = Field(
        default=limits.SESSION_IN_FLIGHT_MAX,
        description="Sent to one client and not acknowledged, whatever its Receive Maximum.",
    )
    session_messages: Annotated[int, _count(0, 10_000_000)] = Field(
        default=limits.SESSION_MESSAGES_MAX,
        description="Messages that wait for one client while it is away.",
    )
    session_bytes: Annotated[int, _size(0, 64 * limits.GIB)] = Field(
        default=limits.SESSION_BYTES_MAX,
        description="Waiting for one client, with what is in flight and may be sent again.",
    )
    queued_bytes: Annotated[int, _size(0, 1024 * limits.GIB)] = Field(
        default=limits.QUEUED_BYTES_MAX,
        description="All that waits for MQTT clients: each message once, and 128 bytes for "
        "each client that it waits for; and wills.",
    )
    queue_groups: Annotated[int, _count(1, 1_000_000)] = Field(
        default=limits.QUEUE_GROUPS_MAX,
        description="Groups of consumers of all queues; each keeps what it is owed until it is "
        "deleted.",
    )
    sessions: Annotated[int, _count(1, 100_000_000)] = Field(
        default=limits.SESSIONS_MAX, description="MQTT sessions, of clients that are away too."
    )
    sessions_kept: Annotated[int, _count(0, 100_000_000)] = Field(
        default=limits.SESSIONS_MAX,
        description="Those of them that may outlive their connection.",
    )
    session_subscriptions: Annotated[int, _count(1, 10_000_000)] = Field(
        default=limits.SESSION_SUBSCRIPTIONS_MAX,
        description="Subscriptions of one client; 128 bytes of filters for each.",
    )
    subscriptions: Annotated[int, _count(1, 1_000_000_000)] = Field(
        default=limits.SUBSCRIPTIONS_MAX, description="Subscriptions of all clients."
    )
    unreleased: Annotated[int, _count(1, 1_000_000_000)] = Field(
        default=limits.UNRELEASED_MAX,
        description="Packet ids at QoS 2 of all MQTT clients that they have not released.",
    )
    messages_per_second: Annotated[int, _count(0, 1_000_000)] = Field(
        default=0,
        description="Publishes of one MQTT client before it is read no further; 0 for any number.",
    )
    group_messages: Annotated[int, _count(0, 100_000_000)] = Field(
        default=limits.GROUP_MESSAGES_MAX,
        description="Waiting for one group of a shared subscription.",
    )
    group_bytes: Annotated[int, _size(0, 64 * limits.GIB)] = Field(
        default=limits.GROUP_BYTES_MAX, description="Bytes of those."
    )
    retained_messages: Annotated[int, _count(0, 100_000_000)] = Field(
        default=limits.RETAINED_MESSAGES_MAX,
        description="Retained messages; beyond it publishes of new ones are refused.",
    )
    retained_bytes: Annotated[int, _size(0, 64 * limits.GIB)] = Field(
        default=limits.RETAINED_BYTES_MAX,
        description="Bytes of those, with some 160 that each costs beside.",
    )
    stall: Annotated[int, _duration(0, 60_000)] = Field(
        default=limits.STALL_MS_MAX,
        description="How long a full subscriber that takes next to nothing may hold its "
        "publishers; one that takes a 32nd of `outbound_bytes` in that time is waited for.",
    )
    undurable_bytes: Annotated[int, _size(limits.MIB, 64 * limits.GIB)] = Field(
        default=limits.UNDURABLE_BYTES_MAX,
        description="Accepted and not yet durable before publishers are read no further.",
    )


class Config(_Table):
    """All settings of a node."""

    node: NodeSettings = NodeSettings()
    mqtt: MqttSettings = MqttSettings()
    kafka: KafkaSettings = KafkaSettings()
    frame: FrameSettings = FrameSettings()
    http: HttpSettings = HttpSettings()
    log: LogSettings = LogSettings()
    logging: LoggingSettings = LoggingSettings()
    limits: LimitSettings = LimitSettings()
    access: AccessSettings = AccessSettings()
    pipeline: PipelineSettings = PipelineSettings()
    streams: dict[str, StreamSettings] = Field(default_factory=dict)
    queues: dict[str, QueueTable] = Field(default_factory=dict)
