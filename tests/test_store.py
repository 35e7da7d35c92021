"""The store as Python sees it: each promise of `_native.pyi`, on real files."""

import select
from pathlib import Path

import pytest
from kafka.record import MemoryRecords

from headrace.native import (
    CorruptRecordError,
    OutOfOrderSequenceError,
    StaleProducerEpochError,
    Store,
    build_batch,
    decode_records,
)
from storelog import (
    SMALL,
    Appender,
    all_bytes,
    batch,
    crashed,
    files,
    next_offset,
    opened,
    produced,
)


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
