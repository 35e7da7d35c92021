"""Reading what is not in memory: nobody but the reader waits for the disk."""

import select
from pathlib import Path

import pytest

from headrace.errors import StorageCorruptError
from headrace.native import Buffer, Store
from pagecache import evict
from storelog import Appender, batch, opened

MIB = 1 << 20


ATTEMPTS = 100
"""What is in memory is the kernel's to say: to ask for what is not there begins to read it, which a
quick disk may have done at once, and what was read may go again."""


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("streams/s/0/*.log"))


def ends(store: Store, count: int) -> dict[int, object]:
    """The ends of `count` reads, by ticket; an error in its place."""
    found: dict[int, object] = {}
    while len(found) < count:
        assert select.select([store.notify_fd()], [], [], 30)[0], "a read never ended"
        for end in store.poll_reads():
            try:
                found[end.ticket] = plain(end.result())
            except StorageCorruptError as error:
                found[end.ticket] = error
    return found


def plain(found: object) -> object:
    """Batches as bytes."""
    return bytes(found) if isinstance(found, Buffer) else found


def fetched(store: Store, log: int, offset: int, max_bytes: int, ticket: int) -> object:
    """What comes at once, as bytes, or None."""
    return plain(store.fetch(log, offset, max_bytes, ticket))


def fill(store: Store, batches: int, value: bytes = b"x" * 1000) -> int:
    log = store.open_log("s", 0, 1, 0)
    appender = Appender(store)
    for _ in range(batches):
        appender.queue(log, batch(value))
    appender.flush()
    return log


def test_what_is_in_memory_comes_at_once(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        log = fill(store, 100)
        store.read(log, 0, 1)  # from now on the file is open
        for offset in range(0, 100, 7):
            assert fetched(store, log, offset, 5000, 2) == store.read(log, offset, 5000)
        assert fetched(store, log, 100, 5000, 2) == b""
        assert store.poll_reads() == []


def test_what_is_on_the_disk_comes_later(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        log = fill(store, 1000)
        first, *_ = segments(tmp_path)
        wanted = store.read(log, 0, 10_000)
        for _ in range(ATTEMPTS):
            evict(first)
            found = fetched(store, log, 0, 10_000, 2)
            if found is None:
                break
            assert found == wanted
        assert found is None
        assert ends(store, 1) == {2: wanted}
        assert not select.select([store.notify_fd()], [], [], 0)[0]
        for ticket in range(4, 4 + 2 * ATTEMPTS, 2):
            found = fetched(store, log, 0, 10_000, ticket)
            if found is not None:
                break
            assert ends(store, 1) == {ticket: wanted}
        assert found == wanted, "it is in memory now"


def test_reads_that_wait_do_not_hold_up_appends_and_end_each_on_its_own(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        log = fill(store, 2000)
        offsets = dict(zip(range(2, 2000, 2), range(0, 2000, 2), strict=False))
        wanted = {ticket: store.read(log, offset, 3000) for ticket, offset in offsets.items()}
        for _ in range(ATTEMPTS):
            evict(*segments(tmp_path))
            found = {
                ticket: fetched(store, log, offset, 3000, ticket)
                for ticket, offset in offsets.items()
            }
            if None in found.values():
                break
            assert found == wanted
        assert None in found.values()
        Appender(store).append(log, batch(b"beside them"))
        waiting = [ticket for ticket, batches in found.items() if batches is None]
        assert {**found, **ends(store, len(waiting))} == wanted


def test_a_reader_that_leaves_gives_its_place_up(tmp_path: Path) -> None:
    with opened(tmp_path, segment_bytes=64 * MIB) as store:
        log = fill(store, 40, b"x" * MIB)
        wanted = store.read(log, 39, 1)
        evict(*segments(tmp_path))
        tickets = range(1, 60)
        for ticket in tickets:
            assert fetched(store, log, ticket % 32, 8 * MIB, ticket) is None
        assert fetched(store, log, 39, 8 * MIB, 1000) is None
        # 64 MiB lie ready at most, and each of four threads reads once more.
        left = [ticket for ticket in tickets if ticket > 64 // 8 + 4]
        for ticket in left:
            store.cancel_read(ticket)
        found: dict[int, object] = {}
        while 1000 not in found:
            found |= ends(store, 1)
        assert found[1000] == wanted
        assert not found.keys() & set(left)


def test_the_index_of_a_closed_segment_is_loaded_beside_the_caller(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        fill(store, 300)
    with opened(tmp_path) as store:
        log = store.open_log("s", 0, 1, 0)
        assert len(segments(tmp_path)) > 2
        assert fetched(store, log, 10, 3000, 2) is None
        found = ends(store, 1)[2]
        assert found == store.read(log, 10, 3000)
        assert fetched(store, log, 20, 3000, 4) == store.read(log, 20, 3000)


def test_what_a_read_can_bring_is_known_before(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        fill(store, 300)
    with opened(tmp_path) as store:
        log = store.open_log("s", 0, 1, 0)
        for _ in range(2):  # before and after the indexes are in memory
            for offset in range(301):
                readable = store.readable_bytes(log, offset)
                assert len(store.read(log, offset, 2**40)) <= readable <= store.size_bytes(log)
        assert store.readable_bytes(log, 300) == 0
        with pytest.raises(ValueError, match="offset 301 is outside"):
            store.readable_bytes(log, 301)


def test_a_time_is_looked_for_beside_the_caller(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        log = store.open_log("s", 0, 1, 0)
        appender = Appender(store)
        for at in range(300):
            appender.queue(log, batch(b"x" * 1000, timestamp=at))
        appender.flush()
        for at in (0, 123, 299, 300):
            store.seek(log, at, 2 * at)
        assert ends(store, 4) == {0: (0, 0), 246: (123, 123), 598: (299, 299), 600: None}
        with pytest.raises(ValueError, match="there is no log 7"):
            store.seek(7, 0, 2)


def test_damage_ends_the_read_that_meets_it_and_no_other(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        log = fill(store, 100)
        wanted = store.read(log, 0, 1)
        with segments(tmp_path)[0].open("r+b") as file:
            file.seek(50 * len(wanted) + 16)
            file.write(b"\7")  # the format of batch 50
        assert fetched(store, log, 50, 1, 2) is None
        end = ends(store, 1)[2]
        assert isinstance(end, StorageCorruptError)
        assert "is damaged at byte" in str(end)
        assert fetched(store, log, 0, 1, 4) == wanted


def test_a_file_that_was_replaced_is_not_read_again(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        log = fill(store, 3)
        store.read(log, 0, 1)
        store.delete_stream("s")
        again = store.open_log("s", 0, 2, 0)
        Appender(store).append(again, batch(b"another"))
        assert b"another" in store.read(again, 0, 1)
        assert b"another" in bytes(store.fetch(again, 0, 1, 2) or b"")
