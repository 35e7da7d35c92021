"""What every round does, and when a record of a schedule is due. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

from headrace.errors import InputError

PAYLOAD_BYTES_MIN: Final = 16
"""The stamp of a record: who sent it, which it is, when, and a checksum."""

PAYLOAD_BYTES_MAX: Final = 1_000_000
"""Of one record, with what is around it, in brokers' own default (`message.max.bytes`)."""

TOPIC_PARTITIONS: Final = 1000
"""Of one topic of `metadata`, at most: what brokers of every make take."""

FLOWS_MAX: Final = 1 << 24
"""Producers times partitions that a stamp tells apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What every round does.

    Attributes:
        payload: bytes of a record's value.
        partitions: of the topic that records go to.
        producers: processes that produce.
        acks: `all`, `1` or `0`.
        idempotent: whether producers' repeats are told.
        compression: `none`, `gzip`, `snappy`, `lz4` or `zstd`.
        linger_ms, batch_bytes: of producers; None is what each client does by itself.
        configs: settings of the topic, by Kafka's names.
        rate: records a second on a schedule, of `latency`; None takes half of what was produced.
        connections: opened by `connections`.
        metadata_partitions: of the topics that `metadata` asks for.
        warm_up, duration, drain: seconds; of silence at the end, the longest.
        prefix: begins every topic.
    """

    payload: int = 100
    partitions: int = 1
    producers: int = 1
    acks: str = "all"
    idempotent: bool = True
    compression: str = "none"
    linger_ms: float | None = None
    batch_bytes: int | None = None
    configs: dict[str, str] = field(default_factory=dict)
    rate: float | None = None
    connections: int = 1000
    metadata_partitions: int = 300
    warm_up: float = 1.0
    duration: float = 5.0
    drain: float = 10.0
    prefix: str = "bench"

    def check(self) -> None:
        """Whether it makes sense.

        Raises:
            InputError: it does not.
        """
        if not PAYLOAD_BYTES_MIN <= self.payload <= PAYLOAD_BYTES_MAX:
            raise InputError(
                f"a payload has {PAYLOAD_BYTES_MIN} to {PAYLOAD_BYTES_MAX:,} bytes; got "
                f"{self.payload:,}"
            )
        if self.producers * self.partitions > FLOWS_MAX:
            raise InputError(f"producers times partitions must not exceed {FLOWS_MAX:,}")
        if self.idempotent and self.acks != "all":
            raise InputError(f"idempotent producers need acks all; got {self.acks}")

    @property
    def metadata_topics(self) -> list[int]:
        """Partitions of each topic that `metadata` asks for."""
        full, rest = divmod(self.metadata_partitions, TOPIC_PARTITIONS)
        return [TOPIC_PARTITIONS] * full + [rest] * (rest > 0)

    @property
    def flows(self) -> int:
        """A flow is what one producer sends to one partition."""
        return self.producers * self.partitions


@dataclass(frozen=True, slots=True)
class Schedule:
    """Records at a steady rate, whatever becomes of those before: no coordinated omission.

    Attributes:
        start_us: when the first is due.
        rate: a second.
    """

    start_us: int
    rate: float

    @property
    def step_us(self) -> float:
        """From one to the next."""
        return 1e6 / self.rate

    def due(self, now_us: int) -> int:
        """How many are due by now."""
        return max(math.floor((now_us - self.start_us) / self.step_us) + 1, 0)

    def at_us(self, number: int) -> int:
        """When the `number`-th, from 0, is due."""
        return self.start_us + int(number * self.step_us)
