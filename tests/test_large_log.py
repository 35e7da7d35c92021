"""Logs of gigabytes: memory stays flat, and a start after an orderly stop or kill -9 finds all."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import filler
from conftest import environment, soaked
from headrace.native import Store, decode_records

GB = 10**9
PEAK_MIB = 256
"""Resident memory at most, whatever the size: an interpreter (40 MiB), a few rounds of batches
(4 MiB each, held twice), the indexes that are kept in memory, and what a start reads at once."""

ROOM = 1.25
"""Bytes of the disk for each byte stored: the journal, its spare, indexes, the reserve."""


def run(folder: Path, total: int, then: str) -> tuple[dict[str, float], dict[str, float]]:
    """What `filler` tells of its start and of its end."""
    command = [sys.executable, filler.__file__, str(folder), str(total), then]
    done = subprocess.run(command, stdout=subprocess.PIPE, env=environment(), check=False)
    assert done.returncode == (-9 if then == "kill" else 0)
    start, end = (json.loads(line) for line in done.stdout.splitlines())
    assert max(start["peak_mib"], end["peak_mib"]) <= PEAK_MIB, (start, end)
    return start, end


def check(folder: Path, records: float) -> None:
    """The first and the last records of each log are there, and no fewer than were promised."""
    store = Store.open(str(folder))
    logs = [store.open_log("large", index, 1, 0) for index in range(filler.LOGS)]
    ends = [store.bounds(log)[1] for log in logs]
    assert sum(ends) == records
    for log, end in zip(logs, ends, strict=True):
        for offset in (0, end // 2, end - 1):
            batches = store.read(log, offset, 1 << 20)
            found = decode_records(batches, offset, offset + 1, 1 << 20).rows()
            assert [row[3] for row in found] == [filler.VALUES[offset % len(filler.VALUES)]]
    store.close()


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("gigabytes", [0.4, soaked(20)])
def test_logs_of_many_gigabytes_open_in_flat_memory(tmp_path: Path, gigabytes: float) -> None:
    total = int(gigabytes * GB)
    free = shutil.disk_usage(tmp_path).free
    if free < ROOM * total + GB:
        needed = (ROOM * total + GB) / GB
        pytest.fail(f"{tmp_path} has {free / GB:.0f} GB free, and this test writes {needed:.0f}")
    try:
        _, stored = run(tmp_path, total // 2, "close")
        clean, more = run(tmp_path, total - total // 2, "kill")
        killed, _ = run(tmp_path, 0, "close")
        assert (clean["clean"], killed["clean"]) == (True, False)
        check(tmp_path, more["records"])
    finally:
        shutil.rmtree(tmp_path)
    print(
        f"{gigabytes} GB: stored at {total / 2**20 / (stored['seconds'] + more['seconds']):.0f} "
        f"MiB/s, peak {max(stored['peak_mib'], more['peak_mib']):.0f} MiB; opened in "
        f"{clean['seconds']:.2f} s (peak {clean['peak_mib']:.0f} MiB) after an orderly stop, in "
        f"{killed['seconds']:.2f} s (peak {killed['peak_mib']:.0f} MiB) after kill -9"
    )
