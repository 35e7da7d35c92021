"""Bugs that other brokers had, and that a single node can have: a test of each whole kind.

Held elsewhere: KAFKA-19012, a record delivered to the wrong log (`test_histories.py`: every value
belongs to one log); KAFKA-18659, a codec that silently does not apply (`test_kafka_clients.py`,
by client); KAFKA-12520, a crash at each rename (the simulation: a crash between any two effects);
KAFKA-7703, a late answer of where to begin that undoes a seek (`test_fetcher.py`).

For later, with what they need: KAFKA-6361, KAFKA-1211, redpanda#5090, nats#7549, nats#7567,
nats#6944, openraft#1795 (replicas); KAFKA-9807, redpanda#6018 (transactions).
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.errors import StorageError
from headrace.native import (
    OutOfOrderSequenceError,
    StaleProducerEpochError,
    StorageCorruptError,
    Store,
    build_batch,
    decode_records,
)
from storelog import SMALL, Appender, all_bytes, files, produced

DAY_MS = 24 * 3_600_000
TINY = {**SMALL, "segment_bytes": 4096, "index_interval_bytes": 500}


def rows(store: Store, log: int) -> list[tuple[int, int, bytes | None]]:
    """Offset, timestamp and value of everything from the start to the end."""
    data = all_bytes(store, log)
    found = decode_records(data, 0, 2**62, 10**6).rows()
    return [(offset, timestamp, value) for offset, timestamp, _, value, _ in found]


def filled(folder: Path) -> list[tuple[int, int, bytes | None]]:
    """A folder with several segments, closed in order; what it holds."""
    store = Store.open(str(folder), **TINY)
    log = store.open_log("s", 0, 1, 0)
    appender = Appender(store)
    for number in range(60):
        record = (b"k%d" % (number % 7), b"%d" % number * 60, [], 1000 + 10 * number)
        appender.append(log, build_batch([record]))
        if number % 10 == 0:
            appender.append(log, produced(7, 1, number // 10, b"p%d" % number))
    expected = rows(store, log)
    store.close()
    return expected


def sizes(folder: Path) -> dict[Path, int]:
    return {
        path.relative_to(folder): path.stat().st_size
        for path in folder.rglob("*")
        if path.is_file() and path.name != "headrace.lock"
    }


# --- KAFKA-16541: a side file torn by a crash -----------------------------------------------------


def torn(path: Path) -> Iterator[bytes]:
    """What a crash may leave of a file that was being replaced."""
    whole = path.read_bytes()
    step = max(1, len(whole) // 12)
    yield from (whole[:end] for end in range(0, len(whole), step))
    yield bytes(len(whole))
    yield whole[: len(whole) // 2] + b"\xff" * (len(whole) - len(whole) // 2)


@pytest.mark.parametrize(
    "pattern", ["*.index", "*.timeindex", "*.producers", "leader-epoch-checkpoint"]
)
def test_kafka_16541_a_torn_side_file_costs_nothing(tmp_path: Path, pattern: str) -> None:
    expected = filled(tmp_path / "sound")
    path = files(tmp_path / "sound", pattern)[-1].relative_to(tmp_path / "sound")
    for number, content in enumerate(torn(tmp_path / "sound" / path)):
        folder = tmp_path / str(number)
        shutil.copytree(tmp_path / "sound", folder)
        (folder / path).write_bytes(content)
        store = Store.open(str(folder), **TINY)
        log = store.open_log("s", 0, 1, 0)
        assert rows(store, log) == expected
        repeat = store.append(log, produced(7, 1, 5, b"p50"), 1, 0)
        assert repeat.duplicate
        store.close()
        shutil.rmtree(folder)


# --- KAFKA-9144: what a producer was fenced by is forgotten ---------------------------------------


@pytest.mark.parametrize("orderly", [True, False])
def test_kafka_9144_an_epoch_never_goes_back_before_it_expires(
    tmp_path: Path, orderly: bool
) -> None:
    store = Store.open(str(tmp_path), **TINY)
    log = store.open_log("s", 0, 1, 0)
    appender = Appender(store)
    appender.append(log, produced(7, 0, 0, b"old"))
    appender.append(log, produced(7, 1, 0, b"new"))
    if orderly:
        store.close()
    del appender, store
    store = Store.open(str(tmp_path), **TINY)
    log = store.open_log("s", 0, 1, DAY_MS // 2)
    with pytest.raises(StaleProducerEpochError):
        store.append(log, produced(7, 0, 1, b"zombie"), 1, DAY_MS // 2)
    with pytest.raises(OutOfOrderSequenceError):
        store.append(log, produced(7, 1, 9, b"gap"), 2, DAY_MS // 2)
    store.close()


# --- redpanda#25974: an index of a compacted segment counts from the wrong base -------------------


def test_redpanda_25974_lookups_equal_a_scan_after_compaction_and_reopening(
    tmp_path: Path,
) -> None:
    filled(tmp_path)
    for reopened in range(3):
        store = Store.open(str(tmp_path), **TINY)
        log = store.open_log("s", 0, 1, DAY_MS)
        if reopened == 1:
            limits = {"delete_retention_ms": 0, "min_lag_ms": 0, "bytes_per_second": 1 << 30}
            assert store.compact(log, wall_ms=DAY_MS, **limits).removed_records > 0
        expected = rows(store, log)
        start, end = store.bounds(log)
        for offset in range(start, end):
            data = store.read(log, offset, 1)
            found = decode_records(data, offset, 2**62, 10**6).rows()
            next_kept = next(kept for kept in expected if kept[0] >= offset)
            if found:
                assert (found[0][0], found[0][3]) == (next_kept[0], next_kept[2])
        for timestamp in range(990, 1600, 7):
            fits = [(at, ms) for at, ms, _ in expected if ms >= timestamp]
            assert store.offset_for_time(log, timestamp) == (fits[0] if fits else None)
        store.close()


# --- nats#7556: what is damaged is taken for an orphan and deleted --------------------------------


@pytest.mark.parametrize("pattern", ["*.log", "*.journal"])
@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "flipped", "zeros"])
def test_nats_7556_damage_halts_and_deletes_nothing(
    tmp_path: Path, pattern: str, damage: str
) -> None:
    expected = filled(tmp_path)
    path = files(tmp_path, pattern)[0]
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[5] ^= 1
    if damage == "missing":
        path.unlink()
    else:
        contents = {"empty": b"", "cut": whole[:-1], "flipped": flipped, "zeros": bytes(len(whole))}
        path.write_bytes(contents[damage])
    before = sizes(tmp_path)
    try:
        store = Store.open(str(tmp_path), **TINY)
        log = store.open_log("s", 0, 1, 0)
        with pytest.raises(StorageCorruptError) as refused:
            rows(store, log)
        store.close()
    except StorageError as error:
        refused_text = str(error)
    else:
        refused_text = str(refused.value)
    assert path.name in refused_text or "streams/s/0" in refused_text
    assert "restore" in refused_text or "folder away" in refused_text
    after = sizes(tmp_path)
    segments = [name for name in before if name.suffix == ".log"]
    assert {name: after.get(name) for name in segments} == {name: before[name] for name in segments}
    if pattern == "*.log":
        path.write_bytes(whole)
        store = Store.open(str(tmp_path), **TINY)
        assert rows(store, store.open_log("s", 0, 1, 0)) == expected
        store.close()
