"""Processes of a test: who descends from whom, and waiting until they are gone."""

import contextlib
import os
import select
import signal
from pathlib import Path


def descendants(pid: int) -> set[int]:
    """Every process below `pid`, by `/proc`."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:  # it ended while we looked
            continue
        parents.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found: set[int] = set()
    todo = [pid]
    while todo:
        children = parents.get(todo.pop(), [])
        found.update(children)
        todo.extend(children)
    return found


def kill_all(pid: int) -> None:
    """SIGKILL for a process and all below it, of whatever group: a driver, its JVM, its workers."""
    for each in (pid, *descendants(pid)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)


def left_after(pids: set[int], seconds: float) -> set[int]:
    """Those of `pids` that have not ended within `seconds` each."""
    left = set()
    for pid in pids:
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        if not poll.poll(seconds * 1000):
            left.add(pid)
        os.close(handle)
    return left
