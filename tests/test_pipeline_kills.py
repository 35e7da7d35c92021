"""Whatever is killed whenever: the tables become those of a run in which nothing was.

A message is on disk before it is acknowledged, a micro-batch is in the tables once, and what is
made of readings is a function of them. So each table is compared row for row, to the last bit of a
mean, with tables that another run made of the same stream at one go; and Delta's readers see the
same.

What may be claimed of `detections`: a reading that comes later than the watermark changes no
detection that is settled (ADR 0068), and what is settled by then follows from where micro-batches
were cut, which a kill moves. So readings that late are here of a metric that no rule looks at; they
change `readings`, intervals and minutes. All others are as late as the watermark allows. And each
GPU is in one partition, as the stream's key sees to: which of two equal readings in two partitions
is the first also follows from the cuts.
"""

import csv
import gzip
import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from conftest import ROOT, environment, headrace
from headrace.native import build_batch
from headrace.pipeline import Options, run, tables
from headrace.pipeline import manifest as manifests
from headrace.pipeline.rules import DEMO
from headrace.pipeline.schemas import SCHEMAS
from kafkaraw import RawConnection
from processes import descendants, kill_all

TRACE = ROOT / "src/headrace/data/h200-1hz.csv.gz"
STREAM = "gpu-telemetry"
PER_SCRAPE = 31
WATERMARK_SECONDS = 30
HELD_BACK_SECONDS = 10
"""How late some readings come: this and a piece of the trace are within the watermark."""

UNWATCHED = "DCGM_FI_DEV_ENC_UTIL"
"""A metric of `gpu_intervals` that no rule looks at."""

DRIVER = """
import sys
from pathlib import Path
from headrace.pipeline import Options, run
from headrace.pipeline.rules import DEMO
from headrace.spark import session

servers, root = sys.argv[1], Path(sys.argv[2])
spark = session("driver", cores=2, short_run=True, log_file=root / "spark.log")
run(spark, servers, "gpu-telemetry", root / "tables", root / "checkpoint",
    options=Options(interval_s=1, watermark_s=30, now="event_time", messages_per_batch=300,
                    buckets=2, rules=DEMO, format="delta"),
    trigger="100 milliseconds", on_commit=lambda manifest: print(manifest.version, flush=True))
"""

pytestmark = pytest.mark.spark


def seeded():
    """A generator whose seed a failure shows."""
    seed = int(os.environ.get("HEADRACE_TEST_SEED", time.time_ns()))
    print(f"HEADRACE_TEST_SEED={seed}")
    return random.Random(seed)


class Telemetry:
    """Pieces of the shipped trace, sent one by one: a GPU over MQTT, and its like over Kafka.

    Of the second, some readings come again, some late, and some later than the watermark.
    """

    def __init__(self, choose, node, folder, scrapes, pieces):
        self._choose, self._node, self._folder = choose, node, folder
        with gzip.open(TRACE, "rt") as lines:
            rows = list(csv.DictReader(lines))[: PER_SCRAPE * scrapes]
        for row in rows:
            row["pod"], row["namespace"], row["container"] = "train-0", "lab", "main"
        step = PER_SCRAPE * -(-scrapes // pieces)
        assert step // PER_SCRAPE + HELD_BACK_SECONDS < WATERMARK_SECONDS
        self._pieces = [rows[first : first + step] for first in range(0, len(rows), step)]
        self._sent, self._held = [], []
        self.repeated = self.late = 0

    def send(self):
        """The next piece; whether there was one."""
        if not self._pieces:
            return False
        rows = self._pieces.pop(0)
        file = self._folder / "piece.csv"
        with file.open("w") as lines:
            writer = csv.DictWriter(lines, rows[0])
            writer.writeheader()
            writer.writerows(rows)
        mqtt = f"127.0.0.1:{self._node.mqtt}"
        collected = headrace("collect", "csv", str(file), "--mqtt", mqtt)
        assert collected.returncode == 0, collected.stderr
        self._produce([self._message(row) for row in self._reordered(rows)])
        return True

    def _reordered(self, rows):
        now = datetime.fromisoformat(rows[-1]["timestamp"])
        held = timedelta(seconds=HELD_BACK_SECONDS)
        for row in rows:
            draw = self._choose.random()
            if draw < 0.1:
                self._held.append(row)
                continue
            yield row
            if draw < 0.2 and self._sent:
                self.repeated += 1
                yield self._choose.choice(self._sent)
            self._sent.append(row)
        # The oldest could not wait for another piece.
        is_last = not self._pieces
        due = [r for r in self._held if is_last or now - _time(r) > held / 2]
        self._held = [row for row in self._held if row not in due]
        yield from due
        for row in self._sent:
            if row["metric_name"] == UNWATCHED and now - _time(row) > timedelta(
                seconds=WATERMARK_SECONDS + HELD_BACK_SECONDS
            ):
                self.late += 1
                yield {**row, "value": f"{50 + self.late / 1000:.3f}"}

    @staticmethod
    def _message(row):
        return json.dumps(
            {
                "event_time": row["timestamp"], "metric_name": row["metric_name"],
                "gpu_id": "GPU-second", "device": "nvidia1", "hostname": row["Hostname"],
                "raw": row["value"], "pod": "train-1", "namespace": "lab", "container": "main",
                "labels": {"gpu": "1", "model_name": row["modelName"]},
            }
        ).encode()  # fmt: skip

    def _produce(self, messages):
        with RawConnection(self._node) as raw:
            records = [(b"GPU-second", each, [], 1_900_000_000_000) for each in messages]
            assert raw.produce(STREAM, build_batch(records), 0).error_code == 0


def _time(row):
    return datetime.fromisoformat(row["timestamp"])


class Driver:
    """A pipeline that goes on, in a process of its own."""

    def __init__(self, node, root):
        self.process = subprocess.Popen(
            [sys.executable, "-c", DRIVER, node.servers, str(root)],
            env=environment(), stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stdout.readline(), "it did not start"

    def workers(self):
        """Python processes below the driver's JVM."""
        found = []
        for pid in sorted(descendants(self.process.pid)):
            with suppress(OSError):
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
                if b"python" in command.partition(b"\0")[0]:
                    found.append(pid)
        return found

    def kill(self):
        """SIGKILL for the driver, its JVM and all that they started."""
        kill_all(self.process.pid)
        self.process.stdout.close()
        self.process.wait(60)


class World:
    """A broker, a pipeline and what is sent, of which each may be killed."""

    def __init__(self, choose, start_node, folder, *, scrapes, pieces):
        self.choose, self.folder, self._start_node = choose, folder, start_node
        self.broker = start_node(data=folder / "data")
        self.sent = Telemetry(choose, self.broker, folder, scrapes, pieces)
        self.driver = None
        self.kills, self.versions = [], []

    def strike(self, what):
        """Sends a piece to a running pipeline, and kills `what` some time after."""
        if self.driver is None:
            self.driver = Driver(self.broker, self.folder)
        self.sent.send()
        with suppress(subprocess.TimeoutExpired):  # which is the rule: it goes on
            self.driver.process.wait(self.choose.uniform(0, 4))
        if what == "broker":
            self.broker.kill()
            self.broker = self._start_node.again(self.broker)
        elif what == "driver":
            self.driver.kill()
        elif workers := self.driver.workers():
            with suppress(ProcessLookupError):
                os.kill(self.choose.choice(workers), signal.SIGKILL)
            # In local mode Spark retries no task: the query fails, and with it this pipeline.
            with suppress(subprocess.TimeoutExpired):
                self.driver.process.wait(3)
        self.kills.append(what)
        self.versions.append(manifests.newest_version(self.folder / "tables"))
        if self.driver.process.poll() is not None:
            self.end()

    def end(self):
        if self.driver is not None:
            self.driver.kill()
            self.driver = None

    def tables(self, spark, root, messages_per_batch):
        """All rows after a run to the end of the stream, and what became of its messages."""
        totals = run(
            spark, self.broker.servers, STREAM, root / "tables", root / "checkpoint",
            options=Options(
                interval_s=1, watermark_s=WATERMARK_SECONDS, now="event_time", buckets=2,
                rules=DEMO, messages_per_batch=messages_per_batch, format="delta",
            ),
        )  # fmt: skip
        opened = {table: tables.open_arrow(root / "tables", table) for table in SCHEMAS}
        rows = {
            table: sorted(map(str, each.to_table().to_pylist())) for table, each in opened.items()
        }
        for table in SCHEMAS:
            by_delta = DeltaTable(str(root / "tables" / table)).to_pyarrow_table().to_pylist()
            assert sorted(map(str, by_delta)) == rows[table], (table, self.kills)
        return rows, totals


def check(world, spark):
    """An undisturbed run to the end gives what a run of another folder gives at one go."""
    world.end()
    while world.sent.send():
        pass
    print(f"kills: {world.kills}, at versions of the tables: {world.versions}")
    struck, totals = world.tables(spark, world.folder, 1_000)
    calm, at_once = world.tables(spark, world.folder / "calm", 100_000)
    assert totals == at_once
    assert totals.messages == sum(world.broker.ends(STREAM))
    assert totals.balanced
    assert totals.duplicates == world.sent.repeated
    assert all(calm.values()), "each table is tried"
    for table in SCHEMAS:
        assert struck[table] == calm[table], (table, world.kills)
    lates = sum("'late': True" in row for row in calm["readings"])
    assert lates == world.sent.late > 0


def test_a_kill_of_each_changes_no_row(spark, start_node, tmp_path):
    choose = seeded()
    world = World(choose, start_node, tmp_path, scrapes=54, pieces=3)
    for what in ("broker", "worker", "driver"):
        world.strike(what)
    check(world, spark)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_fifty_kills_change_no_row(spark, start_node, tmp_path):
    choose = seeded()
    world = World(choose, start_node, tmp_path, scrapes=228, pieces=50)
    kinds = ["broker"] * 17 + ["worker"] * 17 + ["driver"] * 16
    choose.shuffle(kinds)
    for what in kinds:
        world.strike(what)
    check(world, spark)
