"""Rows of `run.py` that drive the log engine alone: the compiled store against bare files."""

import json
import os
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from headrace import native

MIB = 1 << 20
RECORD = (None, b"x" * 100, [], 1_700_000_000_000)
BATCH_RECORDS = 150
"""A batch of Kafka's default size (`batch.size`, 16 KiB) holds about as many."""

IN_FLIGHT_BYTES = 8 * MIB
ROUNDS = 3
Row = dict[str, float]


class Appender:
    """Appends to a store, and knows when each append became durable."""

    def __init__(self, store: native.Store) -> None:
        self.store = store
        self.seconds: list[float] = []
        self._begun: dict[int, float] = {}
        self._ticket = 0

    def append(self, log: int, batch: bytes) -> None:
        self._ticket += 1
        self._begun[self._ticket] = time.perf_counter()
        self.store.append(log, batch, self._ticket, 0)

    def wait(self, left: int = 0) -> None:
        """Waits until at most `left` appends are on their way."""
        self.store.submit()
        while len(self._begun) > left:
            select.select([self.store.notify_fd()], [], [])
            now = time.perf_counter()
            for end in self.store.poll():
                assert end.error is None
                self.seconds.append(now - self._begun.pop(end.ticket))


@contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as path:
        yield Path(path)


@contextmanager
def opened(path: Path) -> Iterator[Appender]:
    store = native.Store.open(str(path))
    try:
        yield Appender(store)
    finally:
        store.close()


def disk_rate(path: Path, total: int = 256 * MIB) -> float:
    """Bytes a second of the disk: a mebibyte and an fdatasync in turn, over written blocks."""
    data = os.urandom(MIB)
    file = os.open(path / "bare", os.O_CREAT | os.O_RDWR)
    for position in range(0, total, MIB):
        os.pwrite(file, data, position)
    os.fsync(file)
    started = time.perf_counter()
    for position in range(0, total, MIB):
        os.pwrite(file, data, position)
        os.fdatasync(file)
    rate = total / (time.perf_counter() - started)
    os.close(file)
    (path / "bare").unlink()
    return rate


def append_row() -> Row:
    """One partition, producer batches, durable."""
    batch = native.build_batch([RECORD] * BATCH_RECORDS)
    count = 1_000_000 // BATCH_RECORDS
    ours, theirs = [], []
    with folder() as path:
        for _ in range(ROUNDS):
            with opened(path / "node") as appender:
                log = appender.store.open_log("bench", 0, 1, 0)
                started = time.perf_counter()
                for at in range(count):
                    appender.append(log, batch)
                    if at % 16 == 0:  # as many come in one loop iteration
                        appender.wait(IN_FLIGHT_BYTES // len(batch))
                appender.wait()
                ours.append(count / (time.perf_counter() - started))
            theirs.append(disk_rate(path))
    own, disk = statistics.median(ours), statistics.median(theirs)
    return {
        "per_second": own * BATCH_RECORDS,
        "mib_per_second": own * len(batch) / MIB,
        "baseline_mib_per_second": disk / MIB,
        "ratio": own * len(batch) / disk,
    }


def partitions_row() -> Row:
    """A thousand partitions, a batch for each at once, against as many batches for one."""
    batch = native.build_batch([RECORD] * BATCH_RECORDS)
    ours, theirs, seconds = [], [], []
    with folder() as path, opened(path) as appender:
        many = [appender.store.open_log("many", index, 1, 0) for index in range(1000)]
        one = [appender.store.open_log("one", 0, 1, 0)] * 1000
        first = timed(lambda: wave(appender, many, batch))  # which makes their files
        for _ in range(12 * ROUNDS):
            appender.seconds.clear()
            ours.append(timed(lambda: wave(appender, many, batch)))
            seconds += appender.seconds
            theirs.append(timed(lambda: wave(appender, one, batch)))
    own, single = statistics.median(ours), statistics.median(theirs)
    return {
        "per_second": 1000 * BATCH_RECORDS / own,
        "p99_ms": 1e3 * sorted(seconds)[len(seconds) * 99 // 100],
        "first_ms": 1e3 * first,
        "one_per_second": 1000 * BATCH_RECORDS / single,
        "ratio": single / own,
    }


def wave(appender: Appender, logs: list[int], batch: bytes) -> None:
    for log in logs:
        appender.append(log, batch)
    appender.wait()


def fill(path: Path, total: int, partitions: int = 1) -> None:
    """Logs of `total` bytes together."""
    batch = native.build_batch([RECORD] * (BATCH_RECORDS * 50))
    with opened(path) as appender:
        logs = [appender.store.open_log("bench", index, 1, 0) for index in range(partitions)]
        for at in range(total // len(batch)):
            appender.append(logs[at % partitions], batch)
            appender.wait(8)
        appender.wait()


def read_row() -> Row:
    """One partition from end to end into Arrow buffers, against reading the file."""
    total, ours, theirs = 512 * MIB, [], []
    with folder() as path:
        fill(path, total)
        segment = max(path.glob("streams/bench/0/*.log"), key=lambda file: file.stat().st_size)
        with opened(path) as appender:
            log = appender.store.open_log("bench", 0, 1, 0)
            for _ in range(ROUNDS):
                ours.append(timed(lambda: decoded(appender.store, log)))
                theirs.append(timed(lambda: plain(segment)))
            end = appender.store.bounds(log)[1]
        size = segment.stat().st_size
    own, bare = statistics.median(ours), statistics.median(theirs)
    return {
        "per_second": end / own,
        "mib_per_second": size / own / MIB,
        "baseline_mib_per_second": size / bare / MIB,
        "ratio": bare / own,
    }


def timed(work: Callable[[], None]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def decoded(store: native.Store, log: int) -> None:
    offset, end = store.bounds(log)
    while offset < end:
        batches = store.read(log, offset, 2 * MIB)
        offset = native.decode_records(batches, offset, end, len(batches)).next_offset


def plain(path: Path) -> None:
    with path.open("rb", buffering=0) as file:
        while file.read(2 * MIB):
            pass


def cold_row() -> Row:
    """A thousand readers, each at its own place of a file that is not in memory, against one."""
    rates: dict[int, list[float]] = {1: [], 1000: []}
    with folder() as path:
        fill(path, 512 * MIB)
        with opened(path) as appender:
            log = appender.store.open_log("bench", 0, 1, 0)
            for readers in (1, 1000) * ROUNDS:
                evict(path)
                started = time.perf_counter()
                size = read_at_many_places(appender.store, log, readers)
                rates[readers].append(size / (time.perf_counter() - started))
    many, one = statistics.median(rates[1000]), statistics.median(rates[1])
    return {
        "mib_per_second": many / MIB,
        "one_mib_per_second": one / MIB,
        "ratio": many / one,
    }


def evict(path: Path) -> None:
    """Throws segments out of the page cache."""
    for segment in path.glob("streams/bench/*/*.log"):
        file = os.open(segment, os.O_RDONLY)
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


def read_at_many_places(store: native.Store, log: int, readers: int) -> int:
    """Each reads its part of the log; bytes that were read."""
    _, end = store.bounds(log)
    at = {reader: end * reader // readers for reader in range(readers)}
    stop = {reader: end * (reader + 1) // readers for reader in range(readers)}
    ready, waiting, size = list(at), 0, 0

    def take(reader: int, batches: bytes) -> None:
        nonlocal size
        size += len(batches)
        at[reader] = native.decode_records(batches, 0, end, len(batches)).next_offset
        if at[reader] < stop[reader]:
            ready.append(reader)

    while ready or waiting:
        while ready:
            reader = ready.pop()
            batches = store.fetch(log, at[reader], MIB, reader)
            if batches is None:
                waiting += 1
            else:
                take(reader, batches)
        if waiting:
            select.select([store.notify_fd()], [], [])
        for ended in store.poll_reads():
            waiting -= 1
            found = ended.result()
            assert isinstance(found, bytes)
            take(ended.ticket, found)
    return size


OPEN = """
import json, os, select, signal, sys, time
from pathlib import Path
from headrace import native
started = time.perf_counter()
store = native.Store.open(sys.argv[1])
seconds = time.perf_counter() - started
status = Path("/proc/self/status").read_text()
peak = int(status.partition("VmHWM:")[2].split()[0]) / 1024
print(json.dumps([seconds, peak, store.recovery.clean]), flush=True)
if sys.argv[2] == "kill":
    log = store.open_log("bench", 0, 1, 0)
    store.append(log, native.build_batch([(None, b"x", [], 0)]), 2, 0)
    store.submit()
    select.select([store.notify_fd()], [], [])
    os.kill(os.getpid(), signal.SIGKILL)
store.close()
"""


def open_row() -> Row:
    """Opening a folder of `HEADRACE_BENCH_GB` (2) after an orderly stop, and after kill -9."""
    total = int(float(os.environ.get("HEADRACE_BENCH_GB", "2")) * 1e9)
    partitions = 4  # whose last segments are scanned after the kill

    def open_once(path: Path, then: str) -> tuple[float, float]:
        command = [sys.executable, "-c", OPEN, str(path), then]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
        seconds, peak_mib, clean = json.loads(done.stdout)
        assert clean == (then == "kill")
        return seconds, peak_mib

    with folder() as path:
        fill(path, total, partitions)
        clean_s, clean_mib = open_once(path, "kill")
        killed_s, killed_mib = open_once(path, "close")
    return {
        "gigabytes": total / 1e9,
        "clean_seconds": clean_s,
        "clean_peak_mib": clean_mib,
        "killed_seconds": killed_s,
        "killed_peak_mib": killed_mib,
    }


def compact_row() -> Row:
    """A log whose records are superseded by half, as fast as it goes; then at a pace, beside
    appends to another log."""
    total, pace, rates = 256 * MIB, 100 * MIB, []
    with folder() as path, opened(path) as appender:
        store = appender.store
        for index in range(ROUNDS):
            log = superseded(appender, index, total)
            size = store.size_bytes(log)
            rates.append(size / timed(lambda log=log: compact(store, log, 1 << 40)))
        busy = store.open_log("busy", 0, 1, 0)
        alone, beside, paces = [], [], []
        for index in range(ROUNDS, 2 * ROUNDS):
            log = superseded(appender, index, total)
            alone.append(append_for(appender, busy, 2.0, lambda: False))
            with ThreadPoolExecutor() as threads:
                started = time.perf_counter()
                done = threads.submit(compact, store, log, pace)
                beside.append(append_for(appender, busy, 60.0, done.done))
                report = done.result()
                paces.append((report.read_bytes + report.written_bytes) / timed_since(started))
    before, meanwhile = statistics.median(alone), statistics.median(beside)
    return {
        "mib_per_second": statistics.median(rates) / MIB,
        "paced_mib_per_second": statistics.median(paces) / MIB,
        "appends_mib_per_second": before / MIB,
        "meanwhile_mib_per_second": meanwhile / MIB,
        "ratio": meanwhile / before,
    }


def superseded(appender: Appender, partition: int, total: int) -> int:
    """A log of so many bytes, in which each key stands twice."""
    log = appender.store.open_log("compacted", partition, 1, 0)
    settings = native.LogSettings(segment_bytes=64 * MIB)
    appender.store.configure(log, settings)
    records = total // 120
    for first in range(0, records, BATCH_RECORDS):
        keys = (at % (records // 2) for at in range(first, first + BATCH_RECORDS))
        batch = native.build_batch([(b"%012d" % key, *RECORD[1:]) for key in keys])
        appender.append(log, batch)
        if first % (16 * BATCH_RECORDS) == 0:
            appender.wait(IN_FLIGHT_BYTES // len(batch))
    appender.wait()
    appender.store.roll(log, 0)
    return log


def compact(store: native.Store, log: int, bytes_per_second: int) -> native.Compaction:
    return store.compact(
        log,
        wall_ms=0,
        delete_retention_ms=0,
        min_lag_ms=0,
        bytes_per_second=bytes_per_second,
    )


def append_for(appender: Appender, log: int, seconds: float, is_over: Callable[[], bool]) -> float:
    """Bytes a second that become durable, for so long or until it is over."""
    batch = native.build_batch([RECORD] * BATCH_RECORDS)
    started, count = time.perf_counter(), 0
    while not is_over() and time.perf_counter() - started < seconds:
        for _ in range(16):
            appender.append(log, batch)
        appender.wait(IN_FLIGHT_BYTES // len(batch))
        count += 16
    appender.wait()
    return count * len(batch) / timed_since(started)


def timed_since(started: float) -> float:
    return time.perf_counter() - started


ROWS: dict[str, Callable[[], Row]] = {
    "append": append_row,
    "partitions": partitions_row,
    "read": read_row,
    "cold": cold_row,
    "open": open_row,
    "compact": compact_row,
}
