"""Workloads of the original designs, which ran inside one process: no sockets, no disk, no peers.

Each runs a path of the core by `native.Kernel`, and stands beside the figure that its design
prints, from a machine of its own. What they show is what the core's code alone costs, and no more.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from headrace import native
from headrace.adapters.machine import keep_freed_memory
from headrace.bench.suite.peers.peer import Mode
from headrace.bench.suite.workloads import Round, Workload

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.bench.suite.peers.peer import Running
    from headrace.bench.suite.workloads import Timing

SECONDS: Final = 0.5
"""A round goes on for so long at least, and less than three times that."""

ELSEWHERE: Final = "the figure to reach is what that design prints, from a machine of its own"

UNFIT: Final = "the compiled module was not built for release"

COPYING: Final = """\
import sys
from headrace.native import Kernel
of, payload, operations = map(int, sys.argv[1:])
print(Kernel("fan-out", of, payload).run(operations))
"""
"""What valgrind looks at."""

COPIES_SECONDS: Final = 15.0

COPIES_OF: Final = 10
"""Subscribers that each get a copy, or share one."""


def rate(kernel: str, of: int, payload: int, _server: Running | None, _mode: Mode) -> Round:
    """Operations a second, and nanoseconds for one."""
    if not native.Kernel.OPTIMISED:
        return Round(figures={}, trouble=UNFIT)
    keep_freed_memory()  # as a node does
    path = native.Kernel(kernel, of, payload)
    path.run(1)
    began, done = time.perf_counter(), 0
    while (passed := time.perf_counter() - began) < SECONDS:
        done += path.run(max(1, done))
    return Round(figures={"per_second": done / passed, "nanoseconds": passed / done * 1e9})


def copies(payload: int, _server: Running | None, _mode: Mode) -> Round:
    """Bytes that memcpy and memmove copy for each byte of payload that is delivered.

    Valgrind counts them (DHAT, which has their lengths), once for more and once for fewer messages.
    """
    operations = max(1, 65_536 // payload)
    try:
        (fewer, before), (more, after) = (_copied(payload, operations * times) for times in (1, 3))
    except FileNotFoundError:
        return Round(figures={}, trouble="valgrind is not installed")
    except subprocess.CalledProcessError as error:
        return Round(figures={}, trouble=error.stderr.strip().rpartition("\n")[2])
    delivered = (more - fewer) * COPIES_OF * payload
    return Round(figures={"copied": (after - before) / delivered})


def _copied(payload: int, operations: int) -> tuple[int, int]:
    """How many messages were published, and bytes that were copied in all."""
    with tempfile.TemporaryDirectory() as folder:
        valgrind = ("valgrind", "--tool=dhat", "--mode=copy", f"--dhat-out-file={folder}/out")
        arguments = (str(COPIES_OF), str(payload), str(operations))
        command = (*valgrind, sys.executable, "-c", COPYING, *arguments)
        environment = os.environ | {"PYTHONHASHSEED": "0"}
        run = subprocess.run(  # noqa: S603 - a program of ours, and numbers
            command, env=environment, capture_output=True, text=True, check=True
        )
    total = re.search(r"Total: +([\d,]+) bytes", run.stderr)
    assert total, run.stderr
    return int(run.stdout), int(total[1].replace(",", ""))


def _queue(name: str, title: str, kernel: str, of: int, payload: int, at_least: float) -> Workload:
    return _workload(
        name=f"core-{name}",
        title=title,
        source="original design: queues, in one process",
        figure="per_second",
        unit="messages/s",
        at_least=at_least,
        is_quick=name in ("enqueue-1", "sustained"),
        once=partial(rate, kernel, of, payload),
    )


def _fan_out(subscribers: int, payload: int) -> Workload:
    is_printed = (subscribers, payload) == (1_000, 1_024)
    return _workload(
        name=f"core-fan-out-{subscribers}-{payload}",
        title=f"publishes of {payload} bytes at QoS 0, each to {subscribers} subscribers",
        figure="per_second",
        unit="publishes/s",
        at_least=14_900 if is_printed else None,
        note=ELSEWHERE if is_printed else "no figure is printed for this one",
        once=partial(rate, "fan-out", subscribers, payload),
    )


def _copies(payload: int) -> Workload:
    return _workload(
        name=f"core-copies-{payload}",
        title=f"bytes copied for each that is delivered, of {payload} to {COPIES_OF} subscribers",
        figure="copied",
        unit="bytes",
        less_is_better=True,
        at_least=1.5,
        is_exact=True,
        seconds=COPIES_SECONDS,
        note="once is into what a socket is given; that design says of three that none is left",
        once=partial(copies, payload),
    )


_workload = partial(
    Workload,
    source="original design: routing, in one process",
    door=None,
    modes=(Mode.MEMORY,),
    note=ELSEWHERE,
    seconds=2 * SECONDS,
)

_match = partial(_workload, figure="nanoseconds", unit="ns", less_is_better=True)


def kernel_workloads(_timing: Timing) -> Sequence[Workload]:
    """Those of queues, of fan-out, of matching, and what is copied."""
    to_puback = "25 bytes to a queue, to the PUBACK"
    in_turn = f"{to_puback}: ten clients in turn, ten partitions"
    return [
        _queue("enqueue-1", f"{to_puback}: one partition", "enqueue", 1, 25, 812_000),
        _queue("enqueue-10", f"{to_puback}: ten partitions", "enqueue", 10, 25, 815_000),
        _queue("enqueue-parallel", in_turn, "enqueue-parallel", 10, 25, 678_000),
        _queue("enqueue-4", "4 bytes to a queue, to the PUBACK", "enqueue", 1, 4, 887_000),
        _queue("enqueue-64k", "64 KiB to a queue, to the PUBACK", "enqueue", 1, 65_536, 725_000),
        _queue("deliver-1", "from the log to a consumer, settled by $ack", "deliver", 1, 25, 3_320),
        _queue("deliver-10", "from the log to one of ten consumers", "deliver", 10, 25, 7_670),
        _queue("sustained", "enqueued, delivered and settled", "sustained", 10, 25, 53_665),
        *(_fan_out(count, size) for size in (256, 1_024) for count in (1, 10, 100, 500, 1_000)),
        _match(
            name="core-match",
            title="a topic against 10,000 subscriptions",
            at_least=100,
            is_quick=True,
            once=partial(rate, "match", 10_000, 0),
        ),
        _match(
            name="core-match-mixed",
            title="the same, where every twentieth subscribes or unsubscribes",
            at_least=540,
            note=f"{ELSEWHERE}, whose 16 cores share the subscriptions",
            once=partial(rate, "match-mixed", 10_000, 0),
        ),
        *(_copies(payload) for payload in (100, 1_024, 10_240, 65_536)),
    ]
