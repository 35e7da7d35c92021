"""`headrace pipeline run` as a process of its own, seen by the versions of its tables."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace.bench.spark.load import COLD_START_SECONDS, READINGS_PER_SECOND, Row
from headrace.errors import UnavailableError
from headrace.pipeline import manifest as manifests

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from headrace.bench.spark.fill import Filled
    from headrace.bench.spark.load import Load
    from headrace.pipeline.manifest import Manifest

LOOK_SECONDS: Final = 0.005
SILENCE_SECONDS: Final = 120.0
"""Without another version, after which it is not waited for."""

END_SECONDS: Final = 60.0

BARE: Final = """
from pathlib import Path
from headrace.spark import close, session
spark = session(memory={memory!r}, log_file=Path({log!r}))
spark.range(1).mapInArrow(lambda batches: batches, "id long").collect()
print("row", flush=True)
close(spark)
"""
"""What any program does that runs Python on Spark: a session, and one row through a worker."""


class Seen(NamedTuple):
    """A version of the tables, and when it was first seen, in seconds since 1970."""

    at: float
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A running `headrace pipeline run`.

    Attributes:
        process: its process.
        tables: folder of its tables.
        log: takes what it says.
        started: in seconds since 1970.
    """

    process: subprocess.Popen[bytes]
    tables: Path
    log: Path
    started: float

    def versions(self) -> Iterator[Seen | None]:
        """Each version of the tables once it is there, None while there is no other.

        Ends with the process.

        Raises:
            UnavailableError: the process fails, or there is no version for too long.
        """
        version, silent_since = -1, time.monotonic()
        while True:
            ended = self.process.poll() is not None  # before the look, which then sees all
            newest = manifests.newest_version(self.tables)
            while version < newest:
                at = time.time()
                version, silent_since = version + 1, time.monotonic()
                yield Seen(at, manifests.load(self.tables, version))
            if ended:
                break
            if time.monotonic() - silent_since > SILENCE_SECONDS:
                raise UnavailableError(
                    f"the pipeline has committed nothing for {SILENCE_SECONDS:g} s"
                )
            yield None
            time.sleep(LOOK_SECONDS)
        if self.process.returncode:
            words = self.log.read_text(errors="replace").strip().splitlines() or ["no word"]
            raise UnavailableError(f"the pipeline has failed: {words[-1]}")


@contextlib.contextmanager
def pipeline(folder: Path, servers: str, load: Load, *options: str) -> Iterator[Pipeline]:
    """Starts one on empty folders, and stops it in order.

    Args:
        folder: new; takes tables, checkpoint and logs.
        servers: Kafka door.
        load: its `memory` counts.
        options: further ones of the command.
    """
    folder.mkdir()
    places = ["--tables", str(folder / "tables"), "--checkpoint", str(folder / "checkpoint")]
    asked = ["--kafka", servers, "--memory", load.memory, *options]
    log = folder / "log"
    with log.open("wb") as output:
        started = time.time()
        process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-P", "-m", "headrace", "pipeline", "run", *places, *asked],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment(folder),
        )
    try:
        yield Pipeline(process, folder / "tables", log, started)
    finally:
        process.terminate()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def environment(folder: Path) -> dict[str, str]:
    """Variables of a child: no settings of headrace, and temporary files in our folder."""
    kept = {name: os.environ[name] for name in os.environ if not name.startswith("HEADRACE_")}
    return kept | {"TMPDIR": str(folder)}


def sustained_row(
    servers: str, filled: Filled, load: Load, folder: Path, copied: float | None
) -> Row:
    """Readings a second from the first version on, to the last one that makes all that is due."""
    options = ["--stream", filled.stream, "--once", "--replay"]
    options += ["--messages-per-batch", str(load.messages_per_batch)]
    with pipeline(folder / "sustained", servers, load, *options) as running:
        seen = [each for each in running.versions() if each is not None]
    first, last = seen[0], seen[-1]
    totals = last.manifest.totals
    if totals.readings != filled.readings or not totals.balanced:
        raise UnavailableError(f"the tables have {totals}, of {filled.readings:,} readings")
    later = totals.readings - first.manifest.totals.readings
    rate = later / (last.at - first.at) if later else None
    note = f"{later:,} readings after the first micro-batch"
    if not later:
        note = "one micro-batch held all: give more --readings, or fewer --messages-per-batch"
    words = "Spark copying the stream's readings to Parquet"
    return Row(
        "pipeline, catching up", "readings/s", rate, words, copied, READINGS_PER_SECOND, note=note
    )


def cold_row(servers: str, filled: Filled, load: Load, folder: Path) -> Row:
    """Seconds from nothing to the first row of `readings`."""
    seconds = _first_row(servers, filled, load, folder)
    program = BARE.format(memory=load.memory, log=str(folder / "bare.log"))
    started = time.time()
    with subprocess.Popen(  # noqa: S603
        [sys.executable, "-P", "-c", program],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment(folder),
    ) as bare:
        assert bare.stdout is not None
        said = bare.stdout.readline()
        baseline = time.time() - started if said else None
    words = "Spark alone: one row through a Python worker"
    return Row("cold start to first row", "s", seconds, words, baseline, COLD_START_SECONDS)


def _first_row(servers: str, filled: Filled, load: Load, folder: Path) -> float:
    options = ["--stream", filled.stream, "--once", "--replay"]
    with pipeline(folder / "cold", servers, load, *options) as running:
        for seen in running.versions():
            if seen is not None and seen.manifest.totals.rows:
                return seen.at - running.started
    raise UnavailableError(f"the pipeline has found no readings in {filled.stream}")
