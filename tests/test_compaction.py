"""Compaction as Python sees it: each promise of `Store.compact`, on real files, beside traffic."""

import contextlib
import os
import shutil
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from conftest import wait_for
from headrace import limits
from headrace.native import Compaction, StorageError, Store, build_batch, decode_records
from storelog import Appender, all_bytes, files, next_offset, opened

pytestmark = pytest.mark.slow

HOUR_MS = 3_600_000
FAST = 1 << 40
SLOW = 2_000
"""Bytes a second at which the logs of these tests take minutes."""

Rows = list[tuple[int, bytes | None, bytes | None]]


def keyed(*pairs: tuple[bytes | None, bytes | None], timestamp: int = 1000) -> bytes:
    return build_batch([(key, value, [], timestamp) for key, value in pairs])


def fill(store: Store, log: int, batches: int, keys: int = 10, *, wall_ms: int = 0) -> Appender:
    """Appends batches of 1 KiB under so many keys, then begins a new segment, at `wall_ms`."""
    appender = Appender(store, wall_ms=wall_ms)
    for at in range(batches):
        appender.queue(log, keyed((b"k%d" % (at % keys), b"%d " % at + bytes(1000))))
    appender.flush()
    store.roll(log, wall_ms)
    appender.append(log, keyed((b"last", b"")))
    return appender


def compact(
    store: Store,
    log: int,
    *,
    wall_ms: int = 0,
    delete_retention_ms: int = HOUR_MS,
    min_lag_ms: int = 0,
    bytes_per_second: int = FAST,
) -> Compaction:
    return store.compact(
        log,
        wall_ms=wall_ms,
        delete_retention_ms=delete_retention_ms,
        min_lag_ms=min_lag_ms,
        bytes_per_second=bytes_per_second,
    )


def rows(store: Store, log: int) -> Rows:
    data = all_bytes(store, log)
    found = decode_records(data, 0, 1 << 62, len(data)).rows()
    return [(offset, key, value) for offset, _, key, value, _ in found]


def test_of_each_key_the_last_record_stays_at_its_offset(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        log = store.open_log("s", 0, 1, 0)
        fill(store, log, 500)
        before = store.size_bytes(log)
        done = compact(store, log)
        assert (done.kept_records, done.removed_records) == (10, 490)
        assert done.read_bytes > before
        assert done.written_bytes < 20_000
        assert done.clean_to == 500
        found = rows(store, log)
        assert [offset for offset, _, _ in found] == [*range(490, 501)]
        assert store.size_bytes(log) < before / 20
        assert [(facts.clean, facts.active) for facts in store.segments(log)][-2:] == [
            (True, False),
            (False, True),
        ]
        assert next_offset(store.read(log, 3, 1)) > 3, "the next one, where a record is gone"
        assert compact(store, log).read_bytes == 0, "there is nothing to do"
    with opened(tmp_path) as store:
        assert rows(store, store.open_log("s", 0, 1, 0)) == found


def test_a_tombstone_goes_in_the_pass_after_its_retention(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        log = store.open_log("s", 0, 1, 0)
        appender = Appender(store)
        appender.append(log, keyed((b"a", b"1"), (b"b", b"1"), (b"a", None), (None, b"keyless")))
        store.roll(log, 0)
        appender.append(log, keyed((b"last", b"")))
        for wall_ms, kept in [(0, [1, 2, 4]), (HOUR_MS - 1, [1, 2, 4]), (HOUR_MS, [1, 4])]:
            compact(store, log, wall_ms=wall_ms)
            assert [offset for offset, _, _ in rows(store, log)] == kept
            horizon = store.segments(log)[0].horizon_ms
            assert horizon == (HOUR_MS if wall_ms < HOUR_MS else None)


def test_young_segments_are_left_alone(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        log = store.open_log("s", 0, 1, 0)
        fill(store, log, 100, wall_ms=1500)
        assert compact(store, log, wall_ms=2000, min_lag_ms=1001).clean_to == 0
        assert compact(store, log, wall_ms=2000, min_lag_ms=1000).clean_to == 100


def test_readers_and_appenders_go_on_beside_it(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        log = store.open_log("s", 0, 1, 0)
        appender = fill(store, log, 2000, keys=1500)
        wanted = {key: value for _, key, value in rows(store, log)}
        over = threading.Event()

        def read() -> int:
            times = 0
            while not over.is_set() or not times:
                assert {key: value for _, key, value in rows(store, log)}.items() >= wanted.items()
                assert store.offset_for_time(log, 0) is not None
                times += 1
            return times

        with ThreadPoolExecutor() as threads:
            readers = [threads.submit(read) for _ in range(2)]
            done = threads.submit(compact, store, log)
            while not done.done():
                appender.append(log, keyed((b"meanwhile", b"")))
            over.set()
            assert done.result().removed_records == 500
            assert all(reader.result() for reader in readers)
        bound = {b"%020d" % facts.base_offset for facts in store.segments(log)}
    left = {path.name.encode().split(b".")[0] for path in files(tmp_path, "*.log")}
    assert left == bound, "old segments are gone once the store has closed"


def compactor_waits() -> bool:
    """Its thread has yielded to all others and waits to be allowed to read more."""
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            name, _, rest = (task / "stat").read_text().rpartition(") ")
            if name.endswith("(compactor"):
                fields = rest.split()
                return fields[0] == "S" and int(fields[16]) > 0  # state, niceness
    return False


def started(store: Store, log: int, threads: ThreadPoolExecutor) -> "Future[Compaction]":
    """A compaction that is at its first file, and stays there for long."""
    running = threads.submit(compact, store, log, bytes_per_second=SLOW)
    wait_for(compactor_waits)
    appender = Appender(store)
    for _ in range(20):
        assert not running.done()
        appender.append(log, keyed((b"meanwhile", b"")))
    return running


def test_a_clean_close_ends_it(tmp_path: Path) -> None:
    with ThreadPoolExecutor() as threads:
        with opened(tmp_path) as store:
            log = store.open_log("s", 0, 1, 0)
            fill(store, log, 500)
            found = rows(store, log)
            running = started(store, log, threads)
        with pytest.raises(StorageError, match="the store is closed"):
            running.result()
    with opened(tmp_path) as store:
        assert store.recovery.clean
        assert rows(store, store.open_log("s", 0, 1, 0))[:501] == found
    assert not files(tmp_path, "*.1.*")


def test_a_deletion_and_a_trim_end_it(tmp_path: Path) -> None:
    with opened(tmp_path) as store, ThreadPoolExecutor() as threads:
        for incarnation in (1, 2):
            log = store.open_log("s", 0, incarnation, 0)
            fill(store, log, 500)
            running = started(store, log, threads)
            store.delete_stream("s")
            assert running.result().removed_records == 0
        assert not files(tmp_path, "streams/s/**/*")
        log = store.open_log("s", 0, 3, 0)
        fill(store, log, 2000, keys=2000)
        running = threads.submit(compact, store, log, bytes_per_second=20_000_000)
        store.refresh_sources(log)  # as who trims does
        store.trim(log, 1999)
        running.result()
        assert [offset for offset, _, _ in rows(store, log)] == [1999, 2000]
        assert compact(store, log).clean_to == 2000


def test_a_sync_that_fails_beside_the_rounds_ends_all_writing(tmp_path: Path) -> None:
    with contextlib.suppress(StorageError), opened(tmp_path) as store:
        log = store.open_log("s", 0, 1, 0)
        appender = fill(store, log, 100)
        # A device takes every byte, and cannot be synced.
        (tmp_path / "streams/s/0/00000000000000000000.1.log").symlink_to("/dev/null")
        with pytest.raises(StorageError, match=r"syncing .*\.1\.log failed: Invalid argument"):
            compact(store, log)
        assert "syncing" in (store.failed() or "")
        with pytest.raises(StorageError, match="syncing"):
            appender.append(log, keyed((b"a", b"1")))


def test_it_gives_up_where_the_disk_fills_and_comes_back_when_there_is_room(
    memory_folder: Path,
) -> None:
    reserve = shutil.disk_usage(memory_folder).free - 48 * limits.MIB
    data, filler = memory_folder / "data", memory_folder / "filler"
    sizes = {"reserve_bytes": reserve, "segment_bytes": limits.MIB}
    with opened(data, **sizes) as store, ThreadPoolExecutor() as threads:
        log = store.open_log("s", 0, 1, 0)
        fill(store, log, 500, keys=400)
        found = rows(store, log)
        # It pays for what it writes before it does: meanwhile the disk fills.
        running = threads.submit(compact, store, log, bytes_per_second=200_000)
        wait_for(lambda: files(data, "*.1.log"))
        with filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, 64 * limits.MIB)
        wait_for(lambda: store.full() is not None)
        assert running.result().clean_to == 0
        assert not files(data, "*.1.*")
        assert compact(store, log).clean_to == 0, "nor does it begin"
        assert store.failed() is None
        assert rows(store, log) == found
        filler.unlink()
        wait_for(lambda: store.full() is None)
        assert compact(store, log).clean_to == 500


def test_what_cannot_work_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        log = store.open_log("s", 0, 1, 0)
        with pytest.raises(ValueError, match="bytes_per_second is positive"):
            compact(store, log, bytes_per_second=0)
        with pytest.raises(ValueError, match="there is no log 99"):
            compact(store, 99)


def test_sources_survive_the_records_that_told_of_them(tmp_path: Path) -> None:
    def published(sequence: int, source: bytes) -> bytes:
        headers = [("source", source), ("epoch", b"1"), ("sequence", b"%d" % sequence)]
        return build_batch([(b"key", b"value", headers, 1000)], published=True)

    with closing(Store.open(str(tmp_path))) as store:
        log = store.open_log("s", 0, 1, 0)
        appender = Appender(store)
        for sequence in range(5):
            appender.append(log, published(sequence, b"a"))
        appender.append(log, published(7, b"b"))
        store.roll(log, 0)
        appender.append(log, published(8, b"b"))
        compact(store, log)
        assert [offset for offset, _, _ in rows(store, log)] == [5, 6]
        assert sorted(store.last_sources(log)) == [("a", 1, 4), ("b", 1, 8)]
