"""A process that opens a folder, appends so many bytes, and stops in order or by SIGKILL.

Run as `python filler.py FOLDER BYTES close|kill`. Prints one line of JSON about the start, and one
about all of it once the last append is durable; both tell the peak of resident memory so far.
"""

import json
import os
import select
import signal
import sys
import time
from itertools import cycle
from pathlib import Path

from headrace.native import Store, build_batch

LOGS = 4
VALUES = [b"%06d" % at + b"x" * 94 for at in range(7500)]
"""One batch of about 0.8 MB: as large as clients send them, so that the disk is the bound."""

IN_FLIGHT = 8


def report(**facts: float) -> None:
    # `ru_maxrss` would begin with what the process that started this one holds.
    status = Path("/proc/self/status").read_text()
    peak_kib = int(status.partition("VmHWM:")[2].split()[0])
    print(json.dumps({"peak_mib": peak_kib / 1024, **facts}), flush=True)


def fill(store: Store, logs: list[int], total: int) -> None:
    batch = build_batch([(None, value, [], 1_700_000_000_000) for value in VALUES])
    waiting: set[int] = set()
    log = cycle(logs)
    for ticket in range(2, 2 + -(-total // len(batch))):
        store.append(next(log), batch, ticket, 1_700_000_000_000)
        waiting.add(ticket)
        store.submit()
        while len(waiting) >= IN_FLIGHT:
            wait(store, waiting)
    while waiting:
        wait(store, waiting)


def wait(store: Store, waiting: set[int]) -> None:
    select.select([store.notify_fd()], [], [])
    for end in store.poll():
        assert end.error is None, end.error
        waiting.remove(end.ticket)


def main(folder: str, total: int, then: str) -> None:
    started = time.perf_counter()
    store = Store.open(folder)
    report(seconds=time.perf_counter() - started, clean=store.recovery.clean)
    logs = [store.open_log("large", index, 1, 0) for index in range(LOGS)]
    started = time.perf_counter()
    fill(store, logs, total)
    ends = [store.bounds(log)[1] for log in logs]
    report(seconds=time.perf_counter() - started, records=sum(ends))
    if then == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    store.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
