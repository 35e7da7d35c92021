"""The store by its settings: what acknowledgements promise, when segments roll, what trims take."""

import itertools
import time
from pathlib import Path

import pytest
from kafka.record import MemoryRecords

from headrace.native import (
    LogSettings,
    Store,
    decode_records,
)
from storelog import (
    SMALL,
    Appender,
    all_bytes,
    batch,
    files,
    opened,
    produced,
)


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
