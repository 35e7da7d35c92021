"""A pipeline that goes through hours of a fleet holds no more at their end than near their start.

Six hours of a hundred GPUs are 144,000 scrapes, 4.5 million readings, in some three hundred
micro-batches: what grew with each of them, with files, detections or days, would show. Memory is
that of processes alone (anonymous; not pages of files, which the kernel takes back), by what they
are: the broker, the driver, its JVM, Spark's Python workers.
"""

import asyncio
import json
import statistics
import subprocess
import sys
from importlib.resources import as_file, files
from pathlib import Path

import pytest

from conftest import environment
from headrace.bench.spark.fill import START_US, telemetry
from headrace.collect import CsvFile
from headrace.simulate import Fleet, Settings, pools
from processes import descendants

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(3600)]

STREAM = "fleet"
GPUS = 100
HOURS = 6
MESSAGES_PER_BATCH = 500
SAMPLE_SECONDS = 0.5

SLACK_BYTES = 24 * 1024 * 1024
"""What allocators keep for later, and DuckDB's and Arrow's pools, more or less of it."""


def fleet():
    """GPUs with faults of all kinds, so that detections open and close all the time."""
    with as_file(files("headrace") / "data" / "h200-1hz.csv.gz") as trace:
        samples = pools(CsvFile(trace))
    return Fleet(Settings(GPUS, START_US, HOURS * 3_600_000_000, 15_000_000), samples)


def anonymous_bytes(pid):
    """Memory that the kernel could only swap; 0 where the process has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = [line.split()[1] for line in status.splitlines() if line.startswith("RssAnon:")]
    return int(found[0]) * 1024 if found else 0


def kind_of(pid):
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().partition(b"\0")[0]
    except OSError:
        return None
    return "JVM" if command.endswith(b"java") else "workers" if b"python" in command else None


def held(node, driver):
    """Bytes by what holds them, now."""
    sums = {"broker": anonymous_bytes(node), "driver": anonymous_bytes(driver)}
    for pid in descendants(driver):
        if kind := kind_of(pid):
            sums[kind] = sums.get(kind, 0) + anonymous_bytes(pid)
    return sums


def test_memory_is_flat_over_six_hours(start_node, tmp_path):
    node = start_node(data=tmp_path / "data")
    filled = asyncio.run(
        telemetry(node.servers, STREAM, fleet().scrapes(), 4, messages=GPUS * HOURS * 240)
    )
    assert filled.messages > 0.9 * GPUS * HOURS * 240, "some vanish"
    process = subprocess.Popen(
        [
            sys.executable, "-m", "headrace", "pipeline", "run", "--once", "--replay", "--json",
            "--kafka", node.servers, "--stream", STREAM, "--tables", str(tmp_path / "tables"),
            "--checkpoint", str(tmp_path / "checkpoint"), "--memory", "512m",
            "--messages-per-batch", str(MESSAGES_PER_BATCH),
        ],
        env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    samples = []
    told = None
    while told is None:
        try:
            told = process.communicate(timeout=SAMPLE_SECONDS)
        except subprocess.TimeoutExpired:
            samples.append(held(node.process.pid, process.pid))
    assert process.returncode == 0, told[1]
    assert json.loads(told[0])["messages"] == filled.messages
    quarters = [samples[len(samples) * n // 4 : len(samples) * (n + 1) // 4] for n in range(4)]
    medians = {
        what: [statistics.median(each.get(what, 0) for each in quarter) for quarter in quarters]
        for what in ("broker", "driver", "JVM", "workers")
    }
    for what, each in medians.items():
        print(f"{what}: {[round(held / 2**20) for held in each]} MiB")
    for what, (_, second, _, last) in medians.items():
        assert second > 0, "it was found"
        assert last <= second * 1.1 + SLACK_BYTES, what
