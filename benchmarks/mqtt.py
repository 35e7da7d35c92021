"""Rows of the MQTT door against mosquitto, by the load of `headrace bench mqtt`.

Both servers run on one core and the load on another, where there are two; rounds alternate. What
is published and not delivered is lost, whoever acknowledged it.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from headrace import bench
from headrace.model import Address

ROUNDS = 3

LOADS: dict[str, bench.Load] = {
    "pipe": bench.Load(window=8000),
    "ten": bench.Load(publishers=10, subscribers=10, qos=1, window=20),
    "fan": bench.Load(subscribers=100, pattern="all", window=200),
    "in": bench.Load(publishers=100, pattern="all", qos=1, window=20),
    "thousand": bench.Load(publishers=1000, subscribers=1000, rate=1.0),
    "connects": bench.Load(publishers=0, subscribers=0, idle=10_000, duration=1.0),
}
"""By row: one to one, ten pairs, one to a hundred, a hundred to one, a thousand pairs at one
message a second, ten thousand that only connect."""

FIGURES = {
    "thousand": ("p50_ms", "p99_ms"),
    "connects": ("connects_per_second", "bytes_per_connection"),
}
"""What a row prints; others the rate, latencies and the cost in processor time."""


@contextlib.contextmanager
def on_own_cores(pids: Sequence[int]) -> Iterator[None]:
    """Puts these processes on the first core and this one on the second."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) > 1:
        for pid in pids:
            for thread in Path(f"/proc/{pid}/task").iterdir():
                os.sched_setaffinity(int(thread.name), {cores[0]})
        os.sched_setaffinity(0, {cores[1]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def row(name: str, ours: tuple[int, int], theirs: tuple[int, int]) -> dict[str, float]:
    """Figures of one row; servers are (pid, port)."""
    servers = [
        bench.Server(label, Address("127.0.0.1", port), pid)
        for label, (pid, port) in (("headrace", ours), ("baseline", theirs))
    ]
    with on_own_cores([ours[0], theirs[0]]):
        outcomes = bench.run(LOADS[name], servers, ROUNDS)
    own, peer = (bench.medians(outcomes[server.name]) for server in servers)
    shown = FIGURES.get(
        name, ("delivered_per_second", "p50_ms", "p99_ms", "cpu_seconds_per_million")
    )
    figures = {}
    for figure in (*shown, *bench.FAULTS):
        figures[figure] = own[figure] or 0.0
        figures[f"baseline_{figure}"] = peer[figure] or 0.0
    first, second = own[shown[0]] or 0.0, peer[shown[0]] or 0.0
    # Of a time the other way round: above 1 is better in every row.
    better = second / first if shown[0].endswith("_ms") else first / second
    return figures | {"ratio": better}


def rows(
    servers: Callable[[], contextlib.AbstractContextManager[tuple[tuple[int, int], ...]]],
) -> dict[str, Callable[[], dict[str, float]]]:
    """Every row, on a fresh pair of servers."""

    def measured(name: str) -> Callable[[], dict[str, float]]:
        def measure() -> dict[str, float]:
            with servers() as (ours, theirs):
                return row(name, ours, theirs)

        return measure

    return {name: measured(name) for name in LOADS}
