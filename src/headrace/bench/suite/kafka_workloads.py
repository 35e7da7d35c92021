"""Shapes of load over Kafka's protocol, by the load of `headrace bench kafka`.

In memory mode both servers acknowledge from the page cache, in durable mode what is synced; that
the servers are started so is theirs (`peers`). Must not know which server it measures.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from headrace.bench.kafka import INSTALL, Load, Outcome, installed, run
from headrace.bench.server import Server
from headrace.bench.suite.peers.peer import Door, Mode
from headrace.bench.suite.workloads import Round, Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headrace.bench.figures import Figures
    from headrace.bench.suite.peers.peer import Running
    from headrace.bench.suite.workloads import Timing

CLIENT: Final = installed()[0]

OWN: Final = "headrace"

NOTE: Final = {
    "confluent": "Client: librdkafka, through confluent-kafka, with its own defaults.",
    OWN: f"Client: headrace's own; librdkafka is not installed ({INSTALL}).",
}[CLIENT]
OWN_NOTE: Final = "Client: headrace's own, which reads a record in less than librdkafka in Python."

BOUNDS: Final[Mapping[str, float]] = {"kafka": 1.0}
SOURCE: Final = "Kafka shapes"
MODES: Final = (Mode.MEMORY, Mode.DURABLE)

BACKLOG_RECORDS: Final = 1_000_000

RETENTION: Final = {"retention.bytes": str(32 << 20), "segment.bytes": str(8 << 20)}
RETENTION_WARM_UP: Final = 5.0
"""Seconds in which more is produced than is kept, and retention, once a second, sees it."""

WARM_AGAIN_SECONDS: Final = 5.0
"""Of another load, which a server has not had that is warm by one before."""

ENDS_SECONDS: Final = 5.0
"""Of a round, beside what its load says: clients start, and all is read."""


@dataclass(frozen=True, slots=True)
class Shape:
    """One measure of one load, as what a workload does.

    Attributes:
        hot: processes that are warm by any load; shapes share it.
    """

    measure: str
    load: Load
    client: str = CLIENT
    hot: set[int] = field(default_factory=set)
    _warm: set[int] = field(default_factory=set)

    def __call__(self, running: Running | None, _mode: Mode) -> Round:
        """A round; before the first against a server that must warm up, one that does not count.

        Raises:
            HeadraceError: the broker is not reached, or refuses.
        """
        assert running is not None, "it has a door"
        if running.warm_up_seconds and running.pid not in self._warm:
            is_hot = running.pid in self.hot
            seconds = WARM_AGAIN_SECONDS if is_hot else running.warm_up_seconds
            self._warm.add(running.pid)
            self.hot.add(running.pid)
            self._once(running, replace(self.load, warm_up=seconds))
        outcome = self._once(running, self.load)
        trouble = outcome.trouble or missing(outcome.figures)
        return Round(figures=outcome.figures, by_second=outcome.by_second, trouble=trouble)

    def _once(self, running: Running, load: Load) -> Outcome:
        server = Server("", running.doors[Door.KAFKA], running.pid)
        return run([self.measure], load, [server], [self.client], 1)[-1]


@dataclass(frozen=True, slots=True)
class AtHalf:
    """Latency on a schedule, at half of what the slowest server so far could do in this mode.

    So the servers get the same load; what the faster one is asked in the first round may be more.
    What a server can do is asked once.
    """

    shape: Shape
    _least: dict[Mode, float] = field(default_factory=dict)
    _asked: set[int] = field(default_factory=set)

    def __call__(self, running: Running | None, mode: Mode) -> Round:
        """A round: produced and read at the same time, as fast as it goes, and then on a schedule.

        Raises:
            HeadraceError: the broker is not reached, or refuses.
        """
        assert running is not None, "it has a door"
        if running.pid not in self._asked:
            shown = self.shape(running, mode)
            rate = shown.figures["records_per_second"]
            if shown.trouble or not rate:
                return replace(shown, trouble=shown.trouble or "nothing was read", figures={})
            self._asked.add(running.pid)
            self._least[mode] = min(rate, self._least.get(mode, rate))
        load = replace(self.shape.load, rate=self._least[mode] / 2)
        return replace(self.shape, measure="latency", load=load)(running, mode)


def missing(figures: Figures) -> str | None:
    """What makes a round meaningless of which no client has told.

    Who read nothing at all has not seen that all is lost, but that the broker did not answer.
    """
    if figures["acknowledged"] and not figures["received"]:
        return "nothing could be read"
    return "retention did not begin" if figures.get("trimmed") == 0 else None


def kafka_workloads(timing: Timing) -> Sequence[Workload]:
    """Produced, read, both at the same time; without, with keys; and on a schedule."""
    load = Load(warm_up=timing.warm_up, duration=timing.duration, drain=2 * timing.drain)
    backlog = replace(load, partitions=4, records=BACKLOG_RECORDS)
    kept = replace(load, payload=1024, configs=RETENTION, warm_up=RETENTION_WARM_UP)
    shape = partial(Shape, hot=set())
    row = partial(_row, seconds=timing.warm_up + timing.duration + ENDS_SECONDS)
    return [
        row(
            "produce",
            "one producer, one partition, 100 B, acks=all",
            shape("produce", load),
        ),
        row(
            "parallel",
            "4 producers, 100 partitions, 1 KiB, acks=all, and 4 consumers beside them",
            shape("together", replace(load, payload=1024, partitions=100, producers=4, readers=4)),
            note="Until all of it is read.",
        ),
        row(
            "drain",
            "a backlog of 1,000,000 records of 100 B in 4 partitions, read by one consumer",
            shape("consume", backlog),
        ),
        row(
            "fetch",
            "the same backlog, by a consumer that takes batches as they are (Arrow)",
            shape("consume", backlog, OWN),
            client=OWN_NOTE,
        ),
        row(
            "keyed",
            "one producer, 10,000 keys over 12 partitions, 100 B, acks=all",
            shape("produce", replace(load, partitions=12, keys=10_000)),
            note="Order is judged by key. The client is the bound, and sends more where answers "
            "take longer, for then it puts more records into a request.",
        ),
        row(
            "retention",
            "one producer, one partition that keeps 32 MiB and is full, 1 KiB, acks=all",
            shape("produce", kept),
            note="Retention is looked at each second; what it took is not lost.",
        ),
        replace(
            row(
                "latency",
                "from due to read, at half of what the slowest server can do, 100 B, acks=all",
                AtHalf(shape("together", replace(load, linger_ms=1.0))),
                note="The producer waits 1 ms for more (linger.ms).",
            ),
            figure="p99_ms",
            unit="ms",
            less_is_better=True,
        ),
    ]


def _row(
    name: str,
    title: str,
    once: Callable[[Running | None, Mode], Round],
    *,
    seconds: float,
    note: str = "",
    client: str = NOTE,
) -> Workload:
    return Workload(
        name=f"kafka-{name}",
        title=f"Kafka: {title}",
        source=SOURCE,
        door=Door.KAFKA,
        modes=MODES,
        figure="records_per_second",
        unit="records/s",
        bounds=BOUNDS,
        seconds=seconds,
        note=" ".join(filter(None, [note, client])),
        once=once,
    )
