"""Settings of the Python clients: Kafka's names in snake_case, ranges, defaults and their reasons.

Owns: what a client may be told, and the one line for what it may not. Must not know: what a setting
does. Sources of names and, unless a comment says otherwise, of defaults: Apache Kafka's producer,
consumer and admin client configuration.
"""

from __future__ import annotations

import difflib
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal, Self, TypeAlias

from headrace.client.login import Login
from headrace.errors import ConfigError
from headrace.limits import KIB, MIB
from headrace.model import Address

Partitioner: TypeAlias = Callable[[str, bytes | None, int], int]
"""`(stream, key, partitions)` to the number of one of them."""

Serializer: TypeAlias = Callable[[Any], bytes | None]
Deserializer: TypeAlias = Callable[[bytes | None], Any]

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONERS: Final = ("murmur2", "round_robin", "sticky")
ASSIGNORS: Final = ("range", "roundrobin", "sticky", "cooperative-sticky")

ISOLATION_LEVELS: Final = ("read_uncommitted", "read_committed")

INT32_MAX: Final = 2**31 - 1


def _number(default: int, least: int, most: int = INT32_MAX) -> int:
    bounds: int = field(default=default, metadata={"range": (least, most)})
    return bounds


def _choice(default: str, choices: Sequence[str]) -> str:
    chosen: str = field(default=default, metadata={"choices": choices})
    return chosen


def _is_switch(value: object) -> bool:
    return type(value) is bool


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _are_servers(value: object) -> bool:
    many = [value] if isinstance(value, str) else value
    return isinstance(many, Sequence) and all(isinstance(each, str) for each in many)


_FUNCTION: Final = {"what": "a function", "may_be": callable}
_NAME: Final = {"what": "text that is not empty", "may_be": _is_name}
_SWITCH: Final = {"what": "True or False", "may_be": _is_switch}
_SERVERS: Final = {"what": "HOST:PORT, or a list of them", "may_be": _are_servers}
_TEXT: Final = {"what": "text", "may_be": lambda value: isinstance(value, str)}
_LOGIN: Final = {"what": "a headrace.Login", "may_be": lambda value: isinstance(value, Login)}
_TLS: Final = {
    "what": "an ssl.SSLContext", "may_be": lambda value: isinstance(value, ssl.SSLContext)
}  # fmt: skip
"""Values of settings that are neither numbers nor choices. What has another type is told here,
where its name is known, and not by what stumbles over it later. None is one where it is the
default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What every client is told, of queues too. Times are in milliseconds.

    Attributes:
        client_id: how the brokers' logs and metrics name the client.
        login: user and password, where the brokers ask for them; over the Kafka protocol proved by
            SCRAM-SHA-256, over MQTT sent as they are.
        ssl_context: for brokers that speak TLS, such as `ssl.create_default_context()`.
        request_timeout_ms: longest silence of a broker, 1 or more; where `default_api_timeout_ms`
            is less, that.
        default_api_timeout_ms: how long a call that sends no records is retried. An attempt that is
            under way then may still take `request_timeout_ms`.
        retry_backoff_ms: wait before the first retry, 1 or more; each further one doubles it.
        retry_backoff_max_ms: longest wait between retries.
    """

    client_id: str = field(default="headrace", metadata=_TEXT)
    login: Login | None = field(default=None, metadata=_LOGIN)
    ssl_context: ssl.SSLContext | None = field(default=None, metadata=_TLS)
    request_timeout_ms: int = _number(30_000, 1)
    default_api_timeout_ms: int = _number(60_000, 1)
    retry_backoff_ms: int = _number(100, 1)
    retry_backoff_max_ms: int = _number(1_000, 1)

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if "range" in each.metadata:
                least, most = each.metadata["range"]
                if type(value) is not int or not least <= value <= most:
                    raise ConfigError(
                        f"{each.name} must be a whole number from {least} to {most}; got {value!r}"
                    )
            may_be = each.metadata.get("may_be")
            if may_be and not may_be(value) and not (value is None and each.default is None):
                raise ConfigError(f"{each.name} must be {each.metadata['what']}; got {value!r}")
            choices = each.metadata.get("choices", (value,))
            if value not in choices and not (each.name == "partitioner" and callable(value)):
                raise ConfigError(f"{each.name} must be one of {', '.join(choices)}; got {value!r}")
        _ = self.addresses
        self._check()

    @property
    def addresses(self) -> list[Address]:
        """The brokers, one by one.

        Raises:
            ConfigError: one is malformed, or there is none.
        """
        raise NotImplementedError

    def backoff_s(self, failures: int) -> float:
        """How long to wait after so many failures, 1 or more, before the next attempt."""
        wait_ms = min(self.retry_backoff_ms << min(failures - 1, 20), self.retry_backoff_max_ms)
        return wait_ms / 1000

    def _check(self) -> None:
        """Relations between settings.

        Raises:
            ConfigError: one does not hold.
        """

    @classmethod
    def of_settings(cls, settings: dict[str, Any]) -> Self:
        """The configuration of a call's keyword arguments.

        Raises:
            ConfigError: a name is unknown, or a value out of its range.
        """
        known = [each.name for each in fields(cls)]
        for name in settings:
            if name not in known:
                near = difflib.get_close_matches(name.replace(".", "_"), known, 1)
                hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(known)}"
                raise ConfigError(f"{cls.__name__} has no setting {name}{hint}")
        return cls(**settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueConfig(Config):
    """What a client of a queue is told: what every client is, and where MQTT 5.0 is spoken.

    Attributes:
        mqtt: brokers, `HOST:PORT` separated by commas or one by one, tried in turn.
    """

    mqtt: str | Sequence[str] = field(default="127.0.0.1:1883", metadata=_SERVERS)

    @property
    def addresses(self) -> list[Address]:
        """`mqtt`, one by one."""
        return _addresses("mqtt", self.mqtt, 1883)

    @classmethod
    def of(cls, mqtt: str | Sequence[str] | None, settings: dict[str, Any]) -> Self:
        """The configuration of a call's arguments, as `of_settings`."""
        return cls.of_settings(settings if mqtt is None else {**settings, "mqtt": mqtt})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig(Config):
    """What every client of the Kafka protocol is told, beside what every client is.

    Attributes:
        bootstrap_servers: brokers, `HOST:PORT` separated by commas or one by one; one that lives is
            enough.
        metadata_max_age_ms: how long is believed who leads which partition.
    """

    bootstrap_servers: str | Sequence[str] = field(default="127.0.0.1:9092", metadata=_SERVERS)
    metadata_max_age_ms: int = _number(300_000, 1)

    @property
    def addresses(self) -> list[Address]:
        """`bootstrap_servers`, one by one."""
        return _addresses("bootstrap_servers", self.bootstrap_servers, 9092)

    @classmethod
    def of(cls, bootstrap_servers: str | Sequence[str] | None, settings: dict[str, Any]) -> Self:
        """The configuration of a call's arguments, as `of_settings`."""
        if bootstrap_servers is not None:
            settings = {**settings, "bootstrap_servers": bootstrap_servers}
        return cls.of_settings(settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig(ClientConfig):
    """What a producer is told, beside what every client is.

    Attributes:
        acks: `"all"` (or -1), 1 or 0: what a record waits for. 0 waits for nothing: it counts as
            sent once it is written to the socket, and its offset is -1.
        enable_idempotence: whether brokers tell repeats of this producer; None does so where `acks`
            allows it.
        max_in_flight_requests_per_connection: 1 or more; at most 5 with idempotence, for brokers
            remember as many.
        retries: attempts after the first, bounded by `delivery_timeout_ms` before.
        delivery_timeout_ms: from `send` to success or failure, at least `linger_ms` and
            `request_timeout_ms` together.
        batch_size: estimated bytes of records at which a batch is full. A record alone may be
            larger. 256 KiB, for a batch takes memory only as it fills.
        linger_ms: how long a batch that is not full waits for more. 0 sends what one turn of the
            event loop has brought; batches grow by themselves while earlier ones are under way.
        compression_type: `none`, `gzip`, `snappy`, `lz4` or `zstd`.
        max_request_size: largest record and, estimated, largest request.
        buffer_memory: estimated bytes of records that may wait to be acknowledged.
        max_block_ms: how long `send` waits for room, or for a stream to be known.
        partitioner: for records without a partition: `murmur2` as Kafka's own (by key; without one
            a partition keeps a batch's worth of records), `round_robin`, `sticky` (the same without
            looking at keys), or a function of stream, key and number of partitions.
        key_serializer, value_serializer: make bytes of what `send` is given.
    """

    acks: Literal["all", -1, 0, 1] = "all"
    enable_idempotence: bool | None = field(default=None, metadata=_SWITCH)
    max_in_flight_requests_per_connection: int = _number(5, 1, 1_000)
    retries: int = _number(INT32_MAX, 0)
    delivery_timeout_ms: int = _number(120_000, 1)
    batch_size: int = _number(256 * KIB, 1)
    linger_ms: int = _number(0, 0)
    compression_type: str = _choice("none", CODECS)
    max_request_size: int = _number(MIB, 1)
    buffer_memory: int = _number(32 * MIB, 1, 2**63 - 1)
    max_block_ms: int = _number(60_000, 0)
    partitioner: str | Partitioner = field(default="murmur2", metadata={"choices": PARTITIONERS})
    key_serializer: Serializer | None = field(default=None, metadata=_FUNCTION)
    value_serializer: Serializer | None = field(default=None, metadata=_FUNCTION)

    @property
    def required_acks(self) -> int:
        """`acks` as the wire has it."""
        return -1 if self.acks == "all" else self.acks

    @property
    def is_idempotent(self) -> bool:
        """Whether brokers are to tell repeats."""
        if self.enable_idempotence is None:
            return self.required_acks == -1 and self.max_in_flight_requests_per_connection <= 5
        return self.enable_idempotence

    def _check(self) -> None:
        if type(self.acks) not in {int, str} or self.acks not in {"all", -1, 0, 1}:
            raise ConfigError(f"acks must be 'all', 1 or 0; got {self.acks!r}")
        if self.enable_idempotence and self.required_acks != -1:
            raise ConfigError(f"enable_idempotence needs acks 'all'; got {self.acks!r}")
        if self.enable_idempotence and self.max_in_flight_requests_per_connection > 5:
            raise ConfigError(
                "enable_idempotence allows at most 5 max_in_flight_requests_per_connection; got "
                f"{self.max_in_flight_requests_per_connection}"
            )
        if self.delivery_timeout_ms < self.linger_ms + self.request_timeout_ms:
            raise ConfigError(
                f"delivery_timeout_ms is {self.delivery_timeout_ms}, less than linger_ms and "
                f"request_timeout_ms together, {self.linger_ms + self.request_timeout_ms}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig(ClientConfig):
    """What a consumer is told, beside what every client is.

    Attributes:
        group_id: the group to be a member of, or to commit offsets for; None for neither.
        group_instance_id: a name that stays over restarts, so that these move no partitions.
        auto_offset_reset: where to begin without a committed offset, or where its records are gone:
            `earliest`, `latest`, or `none`, which raises.
        enable_auto_commit: whether what was handed out is committed by itself: every
            `auto_commit_interval_ms` while records are asked for, before partitions go to another
            member, and at the end. What was handed out last counts as done with the next call.
        auto_commit_interval_ms: 1 or more.
        session_timeout_ms: silence after which the group goes on without this member.
        heartbeat_interval_ms: less than a third of it is usual.
        max_poll_interval_ms: how long a handler may take between two calls for records; beyond it
            the member leaves, so that others get its partitions.
        partition_assignment_strategy: assignors that this member takes part in, best first:
            `range`, `roundrobin`, `sticky`, `cooperative-sticky`.
        max_poll_records: most records of one `getmany`.
        fetch_min_bytes: a broker waits for so many, for `fetch_max_wait_ms` at most.
        fetch_max_wait_ms: 0 or more.
        fetch_max_bytes: of one answer; a batch that is larger comes whole.
        max_partition_fetch_bytes: of one partition in it.
        queued_max_bytes: fetched and not yet handed out, of all partitions; fetching stops there.
            No key of Kafka's Java client; librdkafka has it as `queued.max.messages.kbytes`.
        isolation_level: `read_committed` leaves out what transactions did not commit. A headrace
            node has no transactions: there it reads the same. Where Apache Kafka has records of
            transactions that were aborted, it raises `RequestError` (UNSUPPORTED_VERSION) rather
            than hand them out.
        allow_auto_create_topics: whether to subscribe may create a stream where brokers do so.
        key_deserializer, value_deserializer: make of bytes what records hold.
    """

    group_id: str | None = field(default=None, metadata=_NAME)
    group_instance_id: str | None = field(default=None, metadata=_NAME)
    auto_offset_reset: str = _choice("latest", ("earliest", "latest", "none"))
    enable_auto_commit: bool = field(default=True, metadata=_SWITCH)
    auto_commit_interval_ms: int = _number(5_000, 1)
    session_timeout_ms: int = _number(45_000, 1)
    heartbeat_interval_ms: int = _number(3_000, 1)
    max_poll_interval_ms: int = _number(300_000, 1)
    partition_assignment_strategy: Sequence[str] = ("range", "cooperative-sticky")
    max_poll_records: int = _number(500, 1)
    fetch_min_bytes: int = _number(1, 0)
    fetch_max_wait_ms: int = _number(500, 0)
    fetch_max_bytes: int = _number(50 * MIB, 1)
    max_partition_fetch_bytes: int = _number(MIB, 1)
    queued_max_bytes: int = _number(16 * MIB, 1, 2**63 - 1)
    isolation_level: str = _choice("read_uncommitted", ISOLATION_LEVELS)
    allow_auto_create_topics: bool = field(default=True, metadata=_SWITCH)
    key_deserializer: Deserializer | None = field(default=None, metadata=_FUNCTION)
    value_deserializer: Deserializer | None = field(default=None, metadata=_FUNCTION)

    @property
    def isolation(self) -> int:
        """`isolation_level` as the wire has it."""
        return ISOLATION_LEVELS.index(self.isolation_level)

    def _check(self) -> None:
        strategies = self.partition_assignment_strategy
        if type(strategies) not in {list, tuple} or not strategies:
            raise ConfigError(
                f"partition_assignment_strategy must be a list of {', '.join(ASSIGNORS)}; got "
                f"{strategies!r}"
            )
        for name in strategies:
            if name not in ASSIGNORS:
                raise ConfigError(
                    f"partition_assignment_strategy knows {', '.join(ASSIGNORS)}; got {name!r}"
                )
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ConfigError(
                f"heartbeat_interval_ms is {self.heartbeat_interval_ms}; it must be less than "
                f"session_timeout_ms, {self.session_timeout_ms}"
            )
        if self.group_instance_id is not None and self.group_id is None:
            raise ConfigError("group_instance_id needs a group_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminConfig(ClientConfig):
    """What an admin client is told: what every client is."""


def _addresses(name: str, servers: str | Sequence[str], such_as: int) -> list[Address]:
    texts = servers.split(",") if isinstance(servers, str) else servers
    try:
        return [Address.parse(text.strip(), such_as=such_as) for text in texts or [""]]
    except ValueError as error:
        raise ConfigError(f"{name} {error}") from None
