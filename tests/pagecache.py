"""Files that are on the disk and not in memory."""

import errno
import os
from pathlib import Path

import pytest


def evict(*files: Path) -> None:
    """Throws the files out of the page cache; skips the test where that cannot be done."""
    for file in files:
        if not any(is_evicted(file) for _ in range(20)):  # pages in use stay for a moment
            pytest.skip(f"{file} cannot be thrown out of the page cache")


def is_evicted(file: Path) -> bool:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.preadv(descriptor, [bytearray(1)], 0, os.RWF_NOWAIT)
    except BlockingIOError:
        return True
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
    finally:
        os.close(descriptor)
    return False
