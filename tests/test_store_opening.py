"""The store over its lives: opening, crashes, deleted streams, kept states, a disk that refuses."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from conftest import environment, wait_for
from headrace.native import (
    Folder,
    StorageCorruptError,
    StorageError,
    Store,
    build_batch,
    decode_records,
    recode_batches,
)
from storelog import SMALL, Appender, all_bytes, batch, crashed, files, opened


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


def test_a_save_of_sources_that_the_disk_refused_is_none(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        log = store.open_log("s", 0, 1, 0)
        Appender(store).append(log, batch(b"x", source=("a", 1, 7)))
        unkept = store.unkept_bytes(log)
        obstacle = tmp_path / "streams" / "s" / "0" / f"{1:020}.sources.new"
        obstacle.mkdir()
        for _ in range(2):
            with pytest.raises(StorageError, match="creating"):
                store.refresh_sources(log)
            assert store.unkept_bytes(log) == unkept > 0
        obstacle.rmdir()
        store.refresh_sources(log)
        assert store.unkept_bytes(log) == 0
        assert store.failed() is None


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


def test_a_lock_file_that_is_removed_lets_nobody_else_in(tmp_path):
    with opened(tmp_path):
        (tmp_path / "headrace.lock").unlink()
        for another in (partial(Store.open, str(tmp_path)), partial(Folder.open, str(tmp_path))):
            with pytest.raises(StorageError, match="is in use by another process: stop it"):
                another()


def test_a_folder_that_is_moved_away_ends_the_writing(tmp_path):
    data = tmp_path / "data"
    store = Store.open(str(data), journal_bytes=1 << 20)
    data.rename(tmp_path / "moved")
    data.mkdir()
    wait_for(lambda: store.failed() is not None)
    assert str(data) in store.failed()
    with pytest.raises(StorageError):
        store.close()
