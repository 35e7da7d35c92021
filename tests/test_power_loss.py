"""A process that appends is killed at random moments, again and again, on the same folder.

SIGKILL keeps the page cache, so this proves what needs no disk: that every state in which the
process can stop is one from which the next start goes on. What a power cut takes besides is
proven on a simulated disk (`headrace.testing`) and by replaying system calls
(`test_durability.py`).
"""

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import appender
from conftest import environment
from headrace.native import Store, decode_records
from storelog import SMALL, files, reads

pytestmark = pytest.mark.slow

KILLS = 20
SEED = int(os.environ.get("HEADRACE_SEED", "20261127"))


class Acknowledged(NamedTuple):
    """One line of `appender`."""

    partition: int
    base_offset: int
    records: int
    seed: int
    ticket: int


def append_until_killed(folder: Path, seed: int, lines: int) -> list[Acknowledged]:
    """Lets a process append, kills it after `lines` acknowledgements; all that it printed."""
    command = [sys.executable, appender.__file__, str(folder), str(seed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment()) as child:
        assert child.stdout is not None
        seen = [child.stdout.readline() for _ in range(lines)]
        child.kill()
        seen += child.stdout.readlines()
    whole = [line.split()[1:] for line in seen if line.endswith(b"\n")]
    assert len(whole) >= lines, "it ended before it was killed"
    return [Acknowledged(*map(int, words)) for words in whole]


def stored_values(store: Store, log: int) -> list[bytes]:
    """The value of every record, by offset."""
    start, end = store.bounds(log)
    assert start == 0
    rows = [
        row
        for data in reads(store, log, 1 << 20)
        for row in decode_records(data, 0, end, 1 << 30).rows()
    ]
    assert [row[0] for row in rows] == list(range(end))
    return [value for row in rows if (value := row[3]) is not None]


def check(folder: Path, promised: list[Acknowledged]) -> None:
    """Opens the folder; every acknowledged record stands where it was said to stand."""
    store = Store.open(str(folder), **SMALL)
    stored = [
        stored_values(store, store.open_log("s", partition, 1, 0))
        for partition in range(appender.LOGS)
    ]
    for found in promised:
        values = stored[found.partition][found.base_offset : found.base_offset + found.records]
        assert values == appender.payload(found.seed, found.ticket), found
    # Not closed: the next process finds what a crash leaves.


@pytest.mark.timeout(600)
def test_every_acknowledged_record_survives_twenty_kills(tmp_path: Path) -> None:
    chosen = random.Random(SEED)
    promised: list[Acknowledged] = []
    for kill in range(KILLS):
        promised += append_until_killed(tmp_path, SEED + kill, chosen.randrange(1, 400))
        check(tmp_path, promised)
    segments = files(tmp_path, "*.log")
    assert len(segments) > 3 * appender.LOGS, "segments rolled between kills"
    newest = max(int(path.stem) for path in files(tmp_path / "journal", "*.journal"))
    assert newest > 3 * KILLS, "the journal went on to other files between kills"


def test_the_check_above_can_fail(tmp_path: Path) -> None:
    promised = append_until_killed(tmp_path, SEED, 50)
    invented = promised[-1]._replace(ticket=promised[-1].ticket - 1)
    with pytest.raises(AssertionError):
        check(tmp_path, [*promised, invented])
