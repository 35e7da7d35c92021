"""Files that are on the disk and not in memory."""

import ctypes
import errno
import mmap
import os
from pathlib import Path

import pytest

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)


def evict(*files: Path) -> None:
    """Throws the files out of the page cache; skips the test where that cannot be done."""
    for file in files:
        if not any(is_evicted(file) for _ in range(20)):  # pages in use stay for a moment
            pytest.skip(f"{file} cannot be thrown out of the page cache")


def is_evicted(file: Path) -> bool:
    descriptor = os.open(file, os.O_RDWR)
    try:
        os.fsync(descriptor)
        os.preadv(descriptor, [bytearray(1)], 0, os.RWF_NOWAIT)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        return resident_pages(descriptor) == 0
    except BlockingIOError:  # it has been, and this read may bring it back
        return False
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        return False
    finally:
        os.close(descriptor)


def resident_pages(descriptor: int) -> int:
    """Pages of a file that are in memory (mincore(2)).

    To ask by a read that does not wait would begin to read what is not there.
    """
    size = os.fstat(descriptor).st_size
    if size == 0:
        return 0
    with mmap.mmap(descriptor, size, flags=mmap.MAP_PRIVATE) as mapped:
        pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
        first = ctypes.c_char.from_buffer(mapped)
        try:
            if _libc.mincore(ctypes.addressof(first), size, pages):
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        finally:
            del first  # a mapping with a view of it cannot be closed
        return sum(page & 1 for page in pages)
