"""Logs that cannot be made: who wants them is told why, and the store goes on."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.errors import StorageError
from storelog import Appender, batch, opened


@contextmanager
def no_descriptors_left() -> Iterator[None]:
    """No file can be opened meanwhile."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(each.name) for each in Path("/proc/self/fd").iterdir())
    spare = [os.open("/dev/null", os.O_RDONLY)]
    while spare[-1] <= highest:  # fill the holes below the highest
        spare.append(os.open("/dev/null", os.O_RDONLY))
    resource.setrlimit(resource.RLIMIT_NOFILE, (spare[-1] + 1, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in spare:
            os.close(descriptor)


def test_a_log_for_which_no_descriptor_is_left_is_refused_and_all_others_go_on(
    tmp_path: Path,
) -> None:
    with opened(tmp_path):
        pass  # makes the journal's second file, which takes a descriptor, on a thread of its own
    with opened(tmp_path) as store:
        sound = store.open_log("sound", 0, 1, 0)
        store.created("sound")
        appender = Appender(store)
        appender.append(sound, batch(b"before"))
        with no_descriptors_left():
            log = store.open_log("s", 0, 1, 0)
            with pytest.raises(StorageError, match=r"creating .*/streams/s/0/.*ulimit -n"):
                store.created("s")
            with pytest.raises(ValueError, match="there is no log"):
                store.bounds(log)
            appender.append(sound, batch(b"meanwhile"))
        assert store.failed() is None
        log = store.open_log("s", 0, 1, 0)
        store.created("s")
        appender.append(log, batch(b"after"))
        assert (store.bounds(sound), store.bounds(log)) == ((0, 2), (0, 1))
    with opened(tmp_path) as store:
        assert store.recovery.clean
        assert store.bounds(store.open_log("s", 0, 1, 0)) == (0, 1)
