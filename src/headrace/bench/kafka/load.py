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
        keys: of each producer, whose records go round them, and to partitions as clients hash
            them; 0 is no keys, and partitions in turn.
        producers: processes that produce.
        readers: processes that read at the same time, of `together`; each has its partitions.
        acks: `all`, `1` or `0`.
        idempotent: whether producers' repeats are told.
        compression: `none`, `gzip`, `snappy`, `lz4` or `zstd`.
        linger_ms, batch_bytes: of producers; None is what each client does by itself.
        configs: settings of the topic, by Kafka's names.
        rate: records a second on a schedule, of `latency`; None takes half of what was produced.
        records: of all producers, without a warm-up, instead of as many as go into `duration`.
        connections: opened by `connections`.
        metadata_partitions: of the topics that `metadata` asks for.
        warm_up, duration, drain: seconds; of silence at the end, the longest.
        prefix: begins every topic.
    """

    payload: int = 100
    partitions: int = 1
    keys: int = 0
    producers: int = 1
    readers: int = 1
    acks: str = "all"
    idempotent: bool = True
    compression: str = "none"
    linger_ms: float | None = None
    batch_bytes: int | None = None
    configs: dict[str, str] = field(default_factory=dict)
    rate: float | None = None
    records: int | None = None
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
        if self.flows > FLOWS_MAX:
            raise InputError(f"producers times partitions, or keys, must not exceed {FLOWS_MAX:,}")
        if self.readers > self.partitions:
            raise InputError(f"{self.readers} readers need as many partitions: {self.partitions}")
        if self.keys and self.readers > 1:
            raise InputError("of keys nobody knows which reader gets them; use one reader")
        if self.idempotent and self.acks != "all":
            raise InputError(f"idempotent producers need acks all; got {self.acks}")

    @property
    def metadata_topics(self) -> list[int]:
        """Partitions of each topic that `metadata` asks for."""
        full, rest = divmod(self.metadata_partitions, TOPIC_PARTITIONS)
        return [TOPIC_PARTITIONS] * full + [rest] * (rest > 0)

    @property
    def lanes(self) -> int:
        """Flows of one producer."""
        return self.keys or self.partitions

    @property
    def flows(self) -> int:
        """A flow is what one producer sends to one partition, or of one key: it has an order."""
        return self.producers * self.lanes

    def share(self, index: int) -> int | None:
        """Of `records`, those of one producer."""
        if self.records is None:
            return None
        each, rest = divmod(self.records, self.producers)
        return each + (index < rest)

    def partitions_of(self, reader: int) -> range:
        """What one of the readers reads."""
        return range(reader, self.partitions, self.readers)


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
