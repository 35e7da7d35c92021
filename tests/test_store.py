"""The store as Python sees it: each promise of `_native.pyi`, on real files."""

import itertools
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka.record import MemoryRecords

from conftest import environment
from headrace.native import (
    CorruptRecordError,
    LogSettings,
    OutOfOrderSequenceError,
    StaleProducerEpochError,
    StorageCorruptError,
    StorageError,
    Store,
    build_batch,
    decode_records,
    recode_batches,
)
from storelog import SMALL, Appender, all_bytes, batch, files, next_offset, opened, produced


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with opened(tmp_path) as store:
        yield store


def crashed(path: Path, *batches: bytes, **settings: int) -> None:
    """Leaves a folder in which `batches` were acknowledged and no one closed."""
    store = Store.open(str(path), **(SMALL | settings))
    appender = Appender(store)
    log = store.open_log("s", 0, 1, 0)
    for data in batches:
        appender.append(log, data)
    del appender, store


# --- appending ------------------------------------------------------------------------------------


def test_offsets_are_dense_and_read_back(store: Store) -> None:
    appender = Appender(store)
    log = store.open_log("s", 0, 1, 0)
    offsets = [appender.queue(log, batch(*[b"v%d" % at] * (at % 3 + 1))) for at in range(100)]
    appender.flush()
    assert offsets[:4] == [0, 1, 3, 6]
    assert store.bounds(log) == (0, 199)
    records = decode_records(all_bytes(store, log), 0, 199, 1000).rows()
    assert [record[0] for record in records] == list(range(199))
    assert records[-1][3] == b"v99"


def test_each_append_ends_once_in_order_of_its_log(store: Store) -> None:
    logs = [store.open_log("s", partition, 1, 0) for partition in range(3)]
    appender = Appender(store)
    for at in range(300):
        appender.queue(logs[at % 3], batch(b"x" * at))
    appender.flush()
    for log in logs:
        tickets = [ended.ticket for ended in appender.ended.values() if ended.log == log]
        assert tickets == sorted(tickets)
        assert len(tickets) == 100


def test_the_descriptor_is_readable_only_while_poll_has_something(store: Store) -> None:
    log = store.open_log("s", 0, 1, 0)
    assert store.poll() == []
    store.append(log, batch(b"x"), 7, 0)
    store.submit()
    assert select.select([store.notify_fd()], [], [], 60)[0]
    assert [ended.ticket for ended in store.poll()] == [7]
    assert not select.select([store.notify_fd()], [], [], 0)[0]
    assert store.poll() == []


def test_one_round_commits_what_was_submitted_together(tmp_path: Path) -> None:
    with opened(tmp_path, journal_bytes=4 << 20) as store:
        appender = Appender(store)
        logs = [store.open_log("s", partition, 1, 0) for partition in range(100)]
        for log in logs:
            appender.append(log, batch(b"first"))
        before = store.statistics()
        for log in logs:
            appender.queue(log, batch(b"second"))
        appender.flush()
        rounds = store.statistics()["rounds_total"] - before["rounds_total"]
        assert rounds == 1


def test_a_run_of_several_batches_is_one_append(store: Store) -> None:
    log = store.open_log("s", 0, 1, 0)
    appender = Appender(store)
    assert appender.append(log, batch(b"a", b"b") + batch(b"c")) == 0
    assert appender.append(log, batch(b"d")) == 3
    assert store.bounds(log) == (0, 4)


def test_a_malformed_run_is_refused_and_leaves_no_trace(store: Store) -> None:
    log = store.open_log("s", 0, 1, 0)
    for wrong in (batch(b"a")[:-1], batch(b"a") + batch(b"b")[:60]):
        with pytest.raises(CorruptRecordError):
            store.append(log, wrong, 1, 0)
    with pytest.raises(ValueError, match="1 byte"):
        store.append(log, b"", 1, 0)
    assert Appender(store).append(log, batch(b"a")) == 0


def test_an_unknown_log_is_refused(store: Store) -> None:
    for call in (store.bounds, store.size_bytes, store.last_sources):
        with pytest.raises(ValueError, match="there is no log 99"):
            call(99)


# --- idempotent producers (KIP-98) ----------------------------------------------------------------


def test_an_exact_repeat_is_answered_with_the_first_offset(store: Store) -> None:
    log = store.open_log("s", 0, 1, 0)
    appender = Appender(store)
    sent = [produced(5, 0, 2 * at, b"a", b"b") for at in range(6)]
    offsets = [appender.append(log, data) for data in sent]
    for data, offset in zip(sent[1:], offsets[1:], strict=True):
        appended = store.append(log, data, 1000 + offset, 0)
        assert (appended.duplicate, appended.base_offset) == (True, offset)
    store.submit()
    ended: list[int] = []
    while len(ended) < 5:
        select.select([store.notify_fd()], [], [])
        ended += [completion.ticket for completion in store.poll()]
    assert ended == [1000 + offset for offset in offsets[1:]]
    assert store.bounds(log) == (0, 12)


def test_a_gap_and_an_older_epoch_are_refused(store: Store) -> None:
    log = store.open_log("s", 0, 1, 0)
    appender = Appender(store)
    appender.append(log, produced(5, 1, 0, b"a"))
    with pytest.raises(OutOfOrderSequenceError, match="sequence 3 where 1 was due"):
        store.append(log, produced(5, 1, 3, b"x"), 1, 0)
    with pytest.raises(StaleProducerEpochError, match="epoch 0 after epoch 1"):
        store.append(log, produced(5, 0, 1, b"x"), 1, 0)
    assert appender.append(log, produced(5, 1, 1, b"b")) == 1


@pytest.mark.parametrize("orderly", [True, False])
def test_a_repeat_is_known_after_a_restart(tmp_path: Path, orderly: bool) -> None:
    sent = [produced(5, 0, at, b"x" * 3000) for at in range(40)]
    if orderly:
        with opened(tmp_path) as store:
            appender = Appender(store)
            for data in sent:
                appender.append(store.open_log("s", 0, 1, 0), data)
    else:
        crashed(tmp_path, *sent)
    with opened(tmp_path) as store:
        log = store.open_log("s", 0, 1, 0)
        assert store.append(log, sent[-1], 1, 0).duplicate
        with pytest.raises(OutOfOrderSequenceError):
            store.append(log, sent[0], 2, 0)


# --- reading --------------------------------------------------------------------------------------


def test_a_read_gives_whole_batches_and_at_least_one(store: Store) -> None:
    log = store.open_log("s", 0, 1, 0)
    appender = Appender(store)
    for _ in range(50):
        appender.queue(log, batch(b"x" * 900))
    appender.flush()
    one = len(batch(b"x" * 900))
    assert len(store.read(log, 10, 1)) == one
    assert len(store.read(log, 10, 3 * one + 5)) == 3 * one
    assert store.read(log, 10, one)[:8] == (10).to_bytes(8, "big")
    assert store.read(log, 50, 1000) == b""


def test_a_read_outside_the_bounds_is_refused(store: Store) -> None:
    log = store.open_log("s", 0, 1, 0)
    Appender(store).append(log, batch(b"a"))
    for offset in (-1, 2):
        with pytest.raises(ValueError, match=rf"offset {offset} is outside \[0, 1\]"):
            store.read(log, offset, 1000)


def test_an_offset_inside_a_batch_finds_that_batch(store: Store) -> None:
    log = store.open_log("s", 0, 1, 0)
    appender = Appender(store)
    for _ in range(200):
        appender.queue(log, batch(*[b"x" * 100] * 7))
    appender.flush()
    for offset in range(0, 1400, 13):
        data = store.read(log, offset, 1)
        assert int.from_bytes(data[:8], "big") == offset // 7 * 7
        assert next_offset(data) == offset // 7 * 7 + 7


@pytest.mark.parametrize("codec", ["none", "gzip", "zstd"])
def test_times_are_found_as_by_looking_at_every_record(tmp_path: Path, codec: str) -> None:
    times = [1000 + (at * 7919) % 500 for at in range(600)]
    with opened(tmp_path, segment_bytes=8192, index_interval_bytes=256) as store:
        log = store.open_log("s", 0, 1, 0)
        appender = Appender(store)
        for at in range(0, 600, 3):
            records = [(None, b"x" * 90, [], time) for time in times[at : at + 3]]
            appender.queue(log, build_batch(records, codec))
        appender.flush()
        for wanted in (*range(990, 1510, 7), times[0], max(times)):
            found = next(((at, time) for at, time in enumerate(times) if time >= wanted), None)
            assert store.offset_for_time(log, wanted) == found


# --- files ----------------------------------------------------------------------------------------


def test_segments_are_kafkas_own(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        appender = Appender(store)
        for at in range(300):
            appender.queue(store.open_log("s", 3, 1, 0), batch(b"%d" % at * 100))
        appender.flush()
    folder = tmp_path / "streams" / "s" / "3"
    assert (folder / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"
    segments = files(folder, "*.log")
    assert len(segments) > 1
    values = []
    for segment in segments:
        records = MemoryRecords(segment.read_bytes())
        base = int(segment.stem)
        while (found := records.next_batch()) is not None:
            assert found.validate_crc()
            assert found.base_offset == base + len(values) - base
            values += [record.value for record in found]
    assert values == [b"%d" % at * 100 for at in range(300)]


def test_index_files_name_batches_as_kafka_does(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        appender = Appender(store)
        for at in range(400):
            appender.queue(store.open_log("s", 0, 1, 0), batch(b"x" * 500, timestamp=at))
        appender.flush()
    folder = tmp_path / "streams" / "s" / "0"
    for index in files(folder, "*.index"):
        base, entries = int(index.stem), index.read_bytes()
        segment = index.with_suffix(".log").read_bytes()
        assert entries
        for at in range(0, len(entries), 8):
            relative = int.from_bytes(entries[at : at + 4], "big")
            position = int.from_bytes(entries[at + 4 : at + 8], "big")
            assert int.from_bytes(segment[position : position + 8], "big") == base + relative
        times = index.with_suffix(".timeindex").read_bytes()
        assert len(times) % 12 == 0
        assert int.from_bytes(times[-12:-4], "big") == int.from_bytes(times[-4:], "big") + base


def test_a_large_run_goes_straight_to_its_segment(store: Store) -> None:
    log = store.open_log("s", 0, 1, 0)
    appender = Appender(store)
    appender.append(log, batch(b"small"))
    before = store.statistics()
    large = [batch(bytes([at]) * 30_000) for at in range(5)]
    for data in large:
        appender.append(log, data)
        appender.append(log, batch(b"small"))
    after = store.statistics()
    assert after["direct_writes_total"] - before["direct_writes_total"] == 5
    assert after["journal_bytes_total"] - before["journal_bytes_total"] < 100_000
    assert b"\4" * 30_000 in all_bytes(store, log)


def test_an_unreasonable_layout_is_refused(tmp_path: Path) -> None:
    for settings in (
        {"journal_bytes": 4096},
        {"direct_write_bytes": 100},
        {"segment_bytes": 0},
    ):
        with pytest.raises(ValueError, match=next(iter(settings))):
            Store.open(str(tmp_path), **(SMALL | settings))


# --- opening --------------------------------------------------------------------------------------


def test_an_orderly_close_replays_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        assert store.recovery.clean
        appender = Appender(store)
        for at in range(200):
            appender.queue(store.open_log("s", at % 2, 1, 0), batch(b"x" * 1000))
        appender.flush()
        before = [all_bytes(store, log) for log in range(2)]
    with opened(tmp_path) as store:
        assert (store.recovery.clean, store.recovery.logs) == (True, 2)
        assert (store.recovery.replayed_batches, store.recovery.truncated_bytes) == (0, 0)
        assert [all_bytes(store, log) for log in range(2)] == before


def test_what_was_acknowledged_is_there_after_a_crash(tmp_path: Path) -> None:
    crashed(tmp_path, *[batch(b"%d" % at * 700) for at in range(150)])
    with opened(tmp_path) as store:
        assert not store.recovery.clean
        log = store.open_log("s", 0, 1, 0)
        assert store.bounds(log) == (0, 150)
        rows = decode_records(all_bytes(store, log), 0, 150, 1000).rows()
        assert [row[3] for row in rows] == [b"%d" % at * 700 for at in range(150)]


def test_a_torn_segment_is_rewritten_from_the_journal(tmp_path: Path) -> None:
    crashed(tmp_path, *[batch(b"%d" % at * 50) for at in range(20)])
    (segment,) = files(tmp_path, "*.log")
    whole = segment.read_bytes()
    segment.write_bytes(whole[: len(whole) // 2] + b"\xff" * 5000)
    with opened(tmp_path) as store:
        assert store.recovery.replayed_batches > 0
        assert store.recovery.truncated_bytes > 0
        assert all_bytes(store, store.open_log("s", 0, 1, 0)) == whole


def test_damage_below_the_durable_point_is_refused_by_name(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        Appender(store).append(store.open_log("s", 0, 1, 0), batch(b"x" * 9000))
    (segment,) = files(tmp_path, "*.log")
    segment.write_bytes(segment.read_bytes()[:-1])
    size = segment.stat().st_size
    name = segment.relative_to(tmp_path)
    pattern = rf"{name} is damaged at byte {size}.*restore .* headrace log repair"
    for _ in range(2):  # nothing is cut, so it stays damaged
        with pytest.raises(StorageCorruptError, match=pattern):
            Store.open(str(tmp_path), **SMALL)
    assert segment.stat().st_size == size


def test_segments_without_their_journal_are_not_touched(tmp_path: Path) -> None:
    crashed(tmp_path, batch(b"x"))
    for journal in files(tmp_path / "journal", "*"):
        journal.unlink()
    with (
        opened(tmp_path) as store,
        pytest.raises(StorageError, match=r"s/0 .*journal does not know"),
    ):
        store.open_log("s", 0, 1, 0)
    (segment,) = files(tmp_path, "*.log")
    assert segment.stat().st_size > 0


def test_two_processes_on_one_folder_are_refused(tmp_path: Path) -> None:
    code = f"from headrace.native import Store; Store.open({str(tmp_path)!r}, **{SMALL}).close()"

    def another() -> str:
        command = [sys.executable, "-c", code]
        child = subprocess.run(
            command, capture_output=True, check=False, text=True, env=environment()
        )
        return child.stderr

    with opened(tmp_path) as store:
        assert f"{tmp_path} is in use by process {os.getpid()}: stop it" in another()
        store.close()
        assert another() == ""


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"data folder .*file/data"):
        Store.open(str(tmp_path / "file" / "data"))


def test_a_closed_store_refuses_and_closes_twice(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        log = store.open_log("s", 0, 1, 0)
        store.close()
        with pytest.raises(StorageError, match="the store is closed"):
            store.append(log, batch(b"x"), 1, 0)
        assert store.bounds(log) == (0, 0)


def test_close_commits_what_is_queued(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        log = store.open_log("s", 0, 1, 0)
        for ticket in range(500):
            store.append(log, batch(b"x" * 200), ticket, 0)
        store.close()
        assert [ended.ticket for ended in store.poll()] == list(range(500))
    with opened(tmp_path) as store:
        assert store.bounds(store.open_log("s", 0, 1, 0)) == (0, 500)


# --- streams --------------------------------------------------------------------------------------


@pytest.mark.parametrize("orderly", [True, False])
def test_a_deleted_stream_does_not_come_back(tmp_path: Path, orderly: bool) -> None:
    store = Store.open(str(tmp_path), **SMALL)
    appender = Appender(store)
    appender.append(store.open_log("s", 0, 1, 0), batch(b"old" * 50))
    appender.append(store.open_log("other", 0, 2, 0), batch(b"kept"))
    (tmp_path / "streams" / "s" / "stream.json").write_text("{}")
    store.delete_stream("s")
    assert not (tmp_path / "streams" / "s").exists()
    assert list((tmp_path / "trash").iterdir()) == []
    log = store.open_log("s", 0, 3, 0)
    assert store.bounds(log) == (0, 0)
    appender.append(log, batch(b"new"))
    if orderly:
        store.close()
    del appender, store
    with opened(tmp_path) as store:
        assert b"new" in all_bytes(store, store.open_log("s", 0, 3, 0))
        assert b"old" not in all_bytes(store, store.open_log("s", 0, 3, 0))
        assert b"kept" in all_bytes(store, store.open_log("other", 0, 2, 0))


def test_appends_that_wait_for_a_deleted_stream_end_in_an_error(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        log = store.open_log("s", 0, 1, 0)
        store.append(log, batch(b"x"), 9, 0)
        store.delete_stream("s")
        (ended,) = store.poll()
        assert ended.error is None or "stream s was deleted" in ended.error
        with pytest.raises(ValueError, match="there is no log"):
            store.append(log, batch(b"x"), 10, 0)


def test_another_incarnation_is_refused(store: Store) -> None:
    store.open_log("s", 0, 1, 0)
    with pytest.raises(StorageError, match="incarnation 1 of the stream, not 2"):
        store.open_log("s", 0, 2, 0)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\0b", "ä", "x" * 250])
def test_a_name_that_is_no_stream_name_is_refused(store: Store, name: str) -> None:
    with pytest.raises(ValueError, match="no stream name"):
        store.open_log(name, 0, 1, 0)


# --- MQTT sources ---------------------------------------------------------------------------------


def test_sources_are_rebuilt_from_records(tmp_path: Path) -> None:
    crashed(
        tmp_path,
        batch(b"x", source=("a", 1, 5)),
        batch(b"x", source=("b", 0, 9)),
        batch(b"x", source=("a", 1, 6)),
        batch(b"no source"),
        build_batch([(None, b"kafka", [("source", b"c"), ("epoch", b"1"), ("sequence", b"1")], 1)]),
        batch(b"x", source=("b", 1, 0)),
    )
    with opened(tmp_path) as store:
        log = store.open_log("s", 0, 1, 0)
        assert store.last_sources(log) == [("a", 1, 6), ("b", 1, 0)]


def test_sources_that_were_refreshed_are_read_on_from_there(tmp_path: Path) -> None:
    crashed(tmp_path, *(batch(b"x" * 900, source=("a", 1, at)) for at in range(50)))
    store = Store.open(str(tmp_path), **SMALL)
    log = store.open_log("s", 0, 1, 0)
    store.refresh_sources(log)
    Appender(store).append(log, batch(b"x", source=("b", 1, 7)))
    del store
    with opened(tmp_path) as store:
        log = store.open_log("s", 0, 1, 0)
        assert store.last_sources(log) == [("a", 1, 49), ("b", 1, 7)]
    (kept,) = files(tmp_path, "*.sources")
    assert kept.name.startswith(f"{50:020}")


def test_a_state_is_kept_beside_its_log(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        log = store.open_log("s", 0, 1, 0)
        assert store.load_state(log) == (0, b"", [])
        Appender(store).append(log, batch(b"a", b"b"))
        for offset in (-1, 0, 3):
            with pytest.raises(ValueError, match=rf"offset {offset} is outside \[1, 2\]"):
                store.save_state(log, offset, b"")
        store.save_state(log, 2, b"both")
    with opened(tmp_path) as store:
        log = store.open_log("s", 0, 1, 0)
        assert store.load_state(log) == (2, b"both", [])
        (kept,) = files(tmp_path, "*.state")
        kept.write_bytes(kept.read_bytes()[:-1])
        name = kept.relative_to(tmp_path)
        assert store.load_state(log) == (0, b"", [f"{name} is damaged"])


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_sources_of_compressed_records_are_known_after_a_crash(tmp_path: Path, codec: str) -> None:
    sent = [batch(b"x" * 90, source=("a", 1, at)) for at in range(3)]
    crashed(tmp_path, *(recode_batches(each, codec) for each in sent))
    with opened(tmp_path) as store:
        assert store.last_sources(store.open_log("s", 0, 1, 0)) == [("a", 1, 2)]


def test_saved_sources_hold_for_the_records_below_them(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        log = store.open_log("s", 0, 1, 0)
        appender = Appender(store)
        assert store.last_sources(log) == []
        appender.append(log, batch(b"x", source=("a", 1, 5)))
        store.save_sources(log, [("a", 1, 5), ("gone", 7, 7)])
        appender.append(log, batch(b"x", source=("a", 1, 6)))
        assert store.last_sources(log) == [("a", 1, 6), ("gone", 7, 7)]
    (saved,) = files(tmp_path, "*.sources")
    saved.write_bytes(saved.read_bytes()[:-1])
    with opened(tmp_path) as store:
        assert store.last_sources(store.open_log("s", 0, 1, 0)) == [("a", 1, 6)]


# --- a disk that refuses --------------------------------------------------------------------------

REFUSING_DISK = """
import resource, signal, sys
sys.path.insert(0, {tests!r})
from headrace.native import StorageError, Store
from storelog import SMALL, batch
import select
store = Store.open({path!r}, **SMALL)
log = store.open_log("s", 0, 1, 0)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))
acknowledged = failed = 0
for ticket in range(1000):
    try:
        store.append(log, batch(b"x" * 1000), ticket, 0)
    except StorageError as error:
        print(error)
        break
    store.submit()
    select.select([store.notify_fd()], [], [])
    for completion in store.poll():
        acknowledged += completion.error is None
        failed += completion.error is not None
print(store.failed())
print(acknowledged, failed)
"""


def test_after_a_refused_write_nothing_more_is_acknowledged(tmp_path: Path) -> None:
    code = REFUSING_DISK.format(tests=str(Path(__file__).parent), path=str(tmp_path))
    child = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, text=True, env=environment()
    )
    refused, failed, counts = child.stdout.splitlines()
    assert refused == failed
    assert "failed: File too large" in refused
    assert str(tmp_path) in refused
    acknowledged, errors = map(int, counts.split())
    assert errors <= 1
    with opened(tmp_path) as store:
        end = store.bounds(store.open_log("s", 0, 1, 0))[1]
        assert acknowledged <= end <= acknowledged + 1


def test_statistics_are_counters_in_base_units(store: Store) -> None:
    appender = Appender(store)
    log = store.open_log("s", 0, 1, 0)
    for _ in range(100):
        appender.append(log, batch(b"x" * 1000))
    counted = store.statistics()
    assert counted["appended_batches_total"] == 100
    assert counted["appended_bytes_total"] == store.size_bytes(log) == 100 * len(batch(b"x" * 1000))
    assert counted["append_seconds_count"] == 100
    assert counted['append_seconds_bucket{le="+Inf"}'] == 100
    assert 0 < counted["append_seconds_sum"] < 600
    assert counted["segment_rolls_total"] == 1
    assert counted["rounds_total"] >= 100
    assert counted["syncs_total"] >= counted["rounds_total"]
    assert counted["queued_bytes"] == 0
    assert counted["logs"] == 1
    assert counted["open_files"] > 0


# --- what acknowledgements promise ---------------------------------------------------------------


def test_appends_of_a_relaxed_log_wait_for_no_sync(store: Store) -> None:
    log = store.open_log("s", 0, 1, 0)
    store.configure(log, LogSettings(fsync="os"))
    appender = Appender(store)
    appender.append(log, batch(b"a page that the journal can rebuild from now on"))
    before = store.statistics()["syncs_total"]
    for _ in range(100):
        appender.append(log, batch(b"x"))
    assert store.bounds(log) == (0, 101)
    relaxed = store.statistics()["syncs_total"]
    assert relaxed - before < 100, "the keeper's alone"
    store.configure(log, LogSettings())
    for _ in range(100):
        appender.append(log, batch(b"x"))
    assert store.statistics()["syncs_total"] - relaxed >= 100


def test_the_native_thread_syncs_at_intervals(store: Store) -> None:
    log = store.open_log("s", 0, 1, 0)
    store.configure(log, LogSettings(fsync="interval", flush_ms=1))
    appender = Appender(store)
    appender.append(log, batch(b"a page that the journal can rebuild from now on"))
    before = store.statistics()["syncs_total"]
    appender.append(log, batch(b"x"))
    while store.statistics()["syncs_total"] == before:
        time.sleep(0.001)


def test_a_relaxed_log_survives_its_process(tmp_path: Path) -> None:
    store = Store.open(str(tmp_path), **SMALL)
    log = store.open_log("s", 0, 1, 0)
    store.configure(log, LogSettings(fsync="os"))
    appender = Appender(store)
    for at in range(200):
        appender.append(log, batch(b"x" * at))
    del appender, store
    with opened(tmp_path) as store:
        assert store.bounds(store.open_log("s", 0, 1, 0)) == (0, 200)


def test_an_fsync_of_another_name_is_refused() -> None:
    with pytest.raises(ValueError, match='fsync is commit, interval or os, not "never"'):
        LogSettings(fsync="never")  # type: ignore[arg-type]


def test_batches_tell_the_epoch_in_which_they_were_appended(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        log = store.open_log("s", 0, 1, 0)
        appender = Appender(store)
        for epoch in (0, 3, 3, 8):
            store.lead(log, epoch)
            appender.append(log, batch(b"x", b"y"))
        with pytest.raises(ValueError, match="epoch 7 comes after epoch 8"):
            store.lead(log, 7)
    (checkpoint,) = files(tmp_path, "leader-epoch-checkpoint")
    assert checkpoint.read_text() == "0\n3\n0 0\n3 2\n8 6\n"
    checkpoint.write_bytes(b"torn")
    with opened(tmp_path) as store:
        log = store.open_log("s", 0, 1, 0)
        Appender(store).append(log, batch(b"z"))
        stored = all_bytes(store, log)
    assert checkpoint.read_text() == "0\n3\n0 0\n3 2\n8 6\n"
    records, epochs = MemoryRecords(stored), []
    while (each := records.next_batch()) is not None:
        epochs.append(each.leader_epoch)
    assert epochs == [0, 3, 3, 8, 8]


# --- rolling and trimming -------------------------------------------------------------------------

HOUR_MS = 3_600_000


def test_a_segment_rolls_by_age_as_kafkas_do(store: Store) -> None:
    log = store.open_log("s", 0, 1, 10 * HOUR_MS)
    store.configure(log, LogSettings(segment_ms=HOUR_MS))
    appender = Appender(store, wall_ms=10 * HOUR_MS)
    for timestamp in (5 * HOUR_MS, 6 * HOUR_MS, 6 * HOUR_MS + 1):
        appender.append(log, batch(b"x", timestamp=timestamp))
    assert [each.base_offset for each in store.segments(log)] == [0, 2]


def test_timestamps_from_the_future_roll_nothing_and_do_not_stop_the_wall_clock(
    store: Store,
) -> None:
    log = store.open_log("s", 0, 1, 10 * HOUR_MS)
    store.configure(log, LogSettings(segment_ms=HOUR_MS))
    appender = Appender(store, wall_ms=10 * HOUR_MS)
    for years in range(10):
        appender.append(log, batch(b"x", timestamp=10 * HOUR_MS + years * 9000 * HOUR_MS))
    assert len(store.segments(log)) == 1
    appender.wall_ms += HOUR_MS + 1
    appender.append(log, batch(b"x", timestamp=10 * HOUR_MS))
    first, second = store.segments(log)
    assert (first.created_ms, second.created_ms) == (10 * HOUR_MS, 11 * HOUR_MS + 1)
    assert (first.active, second.active) == (False, True)


def test_a_segment_rolls_where_an_index_is_full(tmp_path: Path) -> None:
    with opened(tmp_path, index_interval_bytes=1) as store:
        log = store.open_log("s", 0, 1, 0)
        store.configure(log, LogSettings(segment_index_bytes=60))
        appender = Appender(store)
        for at in range(40):
            appender.append(log, batch(b"x", timestamp=at))
        bases = [each.base_offset for each in store.segments(log)]
        assert len(bases) > 5
        assert {later - base for base, later in itertools.pairwise(bases)} == {5}
    for index in files(tmp_path, "*.index") + files(tmp_path, "*.timeindex"):
        assert index.stat().st_size <= 60


@pytest.mark.parametrize(
    "settings", [{"segment_bytes": 0}, {"segment_ms": 0}, {"segment_index_bytes": 23}]
)
def test_settings_that_cannot_work_are_refused(store: Store, settings: dict[str, int]) -> None:
    log = store.open_log("s", 0, 1, 0)
    with pytest.raises(ValueError, match=next(iter(settings))):
        store.configure(log, LogSettings(**settings))
    with pytest.raises(ValueError, match="no log 9"):
        store.configure(9, LogSettings())


def test_a_log_that_was_trimmed_begins_there_for_everyone(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        log = store.open_log("s", 0, 1, 0)
        appender = Appender(store)
        for at in range(100):
            appender.append(log, batch(b"a" * 3000, b"b" * 3000, timestamp=at))
        before = store.segments(log)
        store.trim(log, 151)
        with pytest.raises(ValueError, match="beyond its high watermark 200"):
            store.trim(log, 201)
        store.trim(log, 3)  # it begins later already
    for _ in range(2):
        with opened(tmp_path) as store:
            log = store.open_log("s", 0, 1, 0)
            assert store.bounds(log) == (151, 200)
            with pytest.raises(ValueError, match=r"offset 150 is outside \[151, 200\]"):
                store.read(log, 150, 1)
            rows = decode_records(store.read(log, 151, 1), 151, 200, 10).rows()
            assert [row[0] for row in rows] == [151]
            assert store.offset_for_time(log, 0) == (151, 75)
            kept = store.segments(log)
            assert kept[0].base_offset <= 151 < kept[0].next_offset
            assert store.size_bytes(log) == sum(each.bytes for each in kept)
    names = {path.name[:20] for path in files(tmp_path, "*.log") + files(tmp_path, "*.index")}
    assert names == {f"{each.base_offset:020}" for each in kept}
    assert len(kept) < len(before)


def test_all_of_a_log_can_go(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        log = store.open_log("s", 0, 1, 0)
        appender = Appender(store, wall_ms=7)
        appender.append(log, batch(b"x", timestamp=5))
        store.roll(log, 9)
        store.trim(log, 1)
        store.roll(log, 9)  # it is empty
        appender.append(store.open_log("other", 0, 1, 0), batch(b"in a round no earlier"))
        (only,) = store.segments(log)
        assert (only.base_offset, only.bytes, only.created_ms) == (1, 0, 9)
        assert only.max_timestamp_ms is None
        assert store.size_bytes(log) == 0
        assert appender.append(log, batch(b"y")) == 1
    assert [path.name for path in files(tmp_path / "streams" / "s", "*.log")] == [f"{1:020}.log"]


@pytest.mark.parametrize("orderly", [True, False])
def test_a_repeat_is_known_where_the_record_is_gone(tmp_path: Path, *, orderly: bool) -> None:
    store = Store.open(str(tmp_path), **SMALL)
    log = store.open_log("s", 0, 1, 0)
    appender = Appender(store)
    sent = produced(7, 0, 0, b"once")
    appender.append(log, sent)
    store.roll(log, 0)
    appender.append(log, batch(b"later"))
    store.trim(log, 2)
    if orderly:
        store.close()
    del appender, store
    with opened(tmp_path) as store:
        log = store.open_log("s", 0, 1, 0)
        repeat = store.append(log, sent, 1, 0)
        assert (repeat.base_offset, repeat.duplicate) == (0, True)
        store.submit()
