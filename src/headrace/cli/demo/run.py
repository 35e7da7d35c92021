"""The demo's run: broker, collector and pipeline side by side, then the accounting.

Owns who starts when and who is stopped when. The collector publishes while Spark starts; the
pipeline runs over what is stored, again and again, until it has run once after the collector
ended.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeVar

from headrace.cli.demo.broker import Broker
from headrace.client import FetchClient
from headrace.collect import Publisher
from headrace.pipeline import Options
from headrace.pipeline import run as run_pipeline
from headrace.pipeline.audit import Ends, stored_messages, stored_readings
from headrace.pipeline.rules import DEMO, DEMO_STALENESS_SECONDS
from headrace.spark import close, session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from headrace.collect import Counts, Message, Origin
    from headrace.pipeline import Progress
    from headrace.pipeline.audit import Account

STREAM: Final = "gpu-telemetry"

T = TypeVar("T")


class Watcher(Protocol):
    """Who is told how a run goes; called from several threads."""

    def note(self, text: str) -> None:
        """Something happened."""

    def collected(self, counts: Counts, doing: str) -> None:
        """The collector got on."""

    def piped(self, progress: Progress) -> None:
        """A micro-batch is in the tables."""


@dataclass(frozen=True, slots=True)
class Job:
    """What to run.

    Attributes:
        messages: makes the messages to publish; iterated once.
        origin: who publishes them.
        wide: whether a message may hold several readings.
        interval_s: length of the intervals of `gpu_intervals`, in seconds.
    """

    messages: Callable[[], Iterator[Message]]
    origin: Origin
    wide: bool
    interval_s: float


@dataclass(frozen=True, slots=True)
class Folder:
    """Where a run leaves what."""

    root: Path

    @property
    def tables(self) -> Path:
        """Tables with their manifests, as the pipeline writes them."""
        return self.root / "tables"

    @property
    def journal(self) -> Path:
        """Sequence and readings of each acknowledged message, as the acknowledgements came."""
        return self.root / "acknowledged.txt"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to.

    Attributes:
        account: the line.
        problems: what is not as it must be, one sentence each.
        seconds: of the collector, of Spark's start, and of the pipeline after both.
    """

    account: Account
    problems: Sequence[str]
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def good(self) -> bool:
        """Whether the line holds and every acknowledged reading is accounted for."""
        return self.account.holds and not self.problems


def execute(job: Job, folder: Folder, watcher: Watcher) -> Outcome:
    """Runs `job`; whatever was started has ended on return.

    Raises:
        HeadraceError: broker or collector failed.
        SparkSideError: Spark or the pipeline failed.
    """
    begun = time.monotonic()
    with ExitStack() as running:
        journal = running.enter_context(_Journal(folder.journal))
        starting = _spawn("spark", lambda: session("headrace demo", short_run=True,
                          log_file=folder.root / "spark.log"))  # fmt: skip
        running.callback(_stop_spark, starting)
        broker = Broker(folder.root / "broker", folder.root / "broker.log", watcher.note)
        running.callback(broker.close)
        broker.start()
        watcher.note(
            f"broker ready: mqtt {broker.address('mqtt')}, kafka {broker.address('kafka')}"
        )
        publisher = Publisher(
            broker.address("mqtt"),
            job.origin,
            on_acknowledged=journal.add,
            on_progress=watcher.collected,
        )
        running.callback(publisher.stop)
        collecting = _spawn("collector", lambda: _timed(lambda: publisher.run(job.messages())))
        servers = str(broker.address("kafka"))
        piping = _spawn(
            "pipeline", lambda: _pipe(starting, collecting, servers, job, folder, watcher)
        )
        _await(collecting, piping, broker.failure)
        (counts, collect_s), spark_at = collecting.result(), piping.result()
        seconds = {
            "collect": collect_s,
            "spark_start": spark_at - begun,
            "pipeline": time.monotonic() - max(spark_at, begun + collect_s),
        }
        return _judge(job, folder, counts, servers, seconds)


def _pipe(
    starting: Future[SparkSession],
    collecting: Future[tuple[Counts, float]],
    servers: str,
    job: Job,
    folder: Folder,
    watcher: Watcher,
) -> float:
    """Runs the pipeline until all is in the tables; when Spark was up, on the monotonic clock."""
    spark = starting.result()
    up = time.monotonic()
    watcher.note("Spark is up")
    while True:
        last = collecting.done()
        run_pipeline(
            spark,
            servers,
            STREAM,
            folder.tables,
            folder.root / "checkpoint",
            options=Options(
                interval_s=job.interval_s,
                staleness_s=max(DEMO_STALENESS_SECONDS, 2 * job.interval_s),
                now="event_time",
                rules=DEMO,
            ),
            on_progress=watcher.piped,
        )
        if last:
            return up


def _judge(
    job: Job, folder: Folder, counts: Counts, servers: str, seconds: dict[str, float]
) -> Outcome:
    ends = Ends(folder.tables)
    with FetchClient(servers, client_id="headrace-demo") as client:
        messages = stored_messages(client, STREAM)
        stored = stored_readings(client, STREAM) if job.wide else messages
    account = ends.account(counts.acknowledged, stored)
    acknowledged = _Journal.read(folder.journal)
    missing = ends.missing(*job.origin, acknowledged)
    problems = []
    if ends.messages != messages:
        problems.append(f"{messages} messages are stored and {ends.messages} are in the tables")
    if sum(acknowledged.values()) != counts.acknowledged:
        problems.append(f"the journal {folder.journal} does not hold every acknowledgement")
    if missing:
        named = ", ".join(map(str, missing[:10]))
        problems.append(f"{len(missing)} acknowledged messages are not in the tables: {named}")
    return Outcome(account, problems, seconds)


class _Journal:
    """The collector's acknowledgements, one line each: sequence and readings."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("x", encoding="ascii")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, sequence: int, readings: int) -> None:
        self._file.write(f"{sequence} {readings}\n")
        self._file.flush()

    @staticmethod
    def read(path: Path) -> dict[int, int]:
        lines = path.read_text(encoding="ascii").splitlines()
        return {int(sequence): int(readings) for sequence, readings in map(str.split, lines)}


def _spawn(name: str, work: Callable[[], T]) -> Future[T]:
    """Runs `work` on a thread that does not keep the process alive."""
    future: Future[T] = Future()

    def body() -> None:
        try:
            future.set_result(work())
        except BaseException as fault:  # noqa: BLE001 - whoever waits for the result gets it
            future.set_exception(fault)

    threading.Thread(target=body, name=name, daemon=True).start()
    return future


def _await(collecting: Future[Any], piping: Future[Any], failure: Future[Any]) -> None:
    """Waits for the first two, or raises what the first of all three to fail raised."""
    pending = {collecting, piping, failure}
    while not (collecting.done() and piping.done()):
        done, pending = wait(pending, return_when=FIRST_COMPLETED)
        for each in done:
            each.result()


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    begun = time.monotonic()
    return work(), time.monotonic() - begun


def _stop_spark(starting: Future[SparkSession]) -> None:
    """Ends Spark where it is up; a JVM that still starts ends with this process's pipe to it."""
    if starting.done() and starting.exception() is None:
        close(starting.result())
