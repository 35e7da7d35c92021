"""What is measured and how large it is, and what came of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headrace.bench.kafka.load import PAYLOAD_BYTES_MAX, PAYLOAD_BYTES_MIN
from headrace.errors import InputError

MEASURES: Final = ("source", "pipeline", "cold", "batch", "age")
"""In the order in which they run."""

RATE_MAX: Final = 200_000.0
"""Readings a second that one process of Python offers, and less than it simulates."""

KAFKA_SOURCE: Final = "org.apache.spark:spark-sql-kafka-0-10_2.13"

# What is to be reached on two cores.
RAW_ROWS_PER_SECOND: Final = 800_000.0
RAW_OF_KAFKA_SOURCE: Final = 1.0
READINGS_PER_SECOND: Final = 33_000.0
COLD_START_SECONDS: Final = 12.0
BATCH_MS: Final = 150.0
AGE_P50_MS: Final = 1_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is done.

    Attributes:
        records: of the stream that is read raw.
        payload: bytes of each of their values.
        readings: of telemetry that are stored, at least.
        partitions: of these two streams.
        rounds: of each read of a stream, in turn with its baselines; medians count.
        messages_per_batch: of the pipeline, where it catches up.
        batches: micro-batches of two messages that count.
        rate: readings a second that come live.
        scrape_s: seconds between two scrapes of a GPU.
        every: of the pipeline, from one micro-batch to the next, where readings come live.
        warm_up, duration: of that, in seconds.
        memory: heap of each JVM.
        package: coordinates of Spark's Kafka source.
        jars: paths of it and what it needs, instead.
    """

    records: int = 2_000_000
    payload: int = 100
    readings: int = 500_000
    partitions: int = 4
    rounds: int = 3
    messages_per_batch: int = 2_500
    batches: int = 60
    rate: float = 10_000.0
    scrape_s: float = 1.0
    every: str = "500ms"
    warm_up: float = 5.0
    duration: float = 20.0
    memory: str = "2g"
    package: str = ""
    jars: tuple[str, ...] = ()

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
        if not 0 < self.rate * self.scrape_s <= RATE_MAX:
            raise InputError(
                f"readings of one scrape of all GPUs, rate times scrape, must not exceed "
                f"{RATE_MAX:,.0f}; got {self.rate * self.scrape_s:,.0f}"
            )


@dataclass(frozen=True, slots=True)
class Row:
    """A figure beside its baseline, both of the same run.

    Attributes:
        name: what was measured.
        unit: of the figures.
        figure: None where there is none, which `note` explains.
        baseline: what it stands beside.
        baseline_figure: None where there is none, which `note` explains.
        target: what the figure is to reach, or not to exceed where it is a time.
        target_ratio: what it is to reach of its baseline.
        note: what a reader must know.
    """

    name: str
    unit: str
    figure: float | None
    baseline: str
    baseline_figure: float | None
    target: float | None = None
    target_ratio: float | None = None
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """The figure over its baseline."""
        if self.figure is None or not self.baseline_figure:
            return None
        return self.figure / self.baseline_figure
