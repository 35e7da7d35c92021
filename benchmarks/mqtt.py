"""Rows of the MQTT door against mosquitto, by the load of `headrace bench mqtt`.

Both servers run on one core and the load on another, where there are two; rounds alternate. What
is published and not delivered is lost, whoever acknowledged it.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from servers import Pair, both_servers, both_with_a_user

from headrace import bench
from headrace.model import Address

ROUNDS = 3

LOADS: dict[str, bench.Load] = {
    "pipe": bench.Load(window=8000),
    "ten": bench.Load(publishers=10, subscribers=10, qos=1, window=20),
    "fan": bench.Load(subscribers=100, pattern="all", window=200),
    "in": bench.Load(publishers=100, pattern="all", qos=1, window=20),
    "thousand": bench.Load(publishers=1000, subscribers=1000, rate=1.0),
    "kept": bench.Load(publishers=10, subscribers=10, qos=1, window=20, session_expiry=3600),
    "connects": bench.Load(publishers=0, subscribers=0, idle=10_000, duration=1.0),
    "passwords": bench.Load(publishers=0, subscribers=0, idle=5_000, duration=1.0),
}
"""By row: one to one, ten pairs, one to a hundred, a hundred to one, a thousand pairs at one
message a second, ten pairs whose sessions last, those that only connect, without and with a
password."""

FIGURES = {
    "thousand": ("p50_ms", "p99_ms"),
    "connects": ("connects_per_second", "bytes_per_connection"),
    "passwords": ("connects_per_second",),
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


def row(name: str) -> dict[str, float]:
    """Figures of one row, on a fresh pair of servers."""
    with (both_with_a_user if name == "passwords" else both_servers)() as pair:
        outcomes = outcomes_of(LOADS[name], pair)
    own, peer = (bench.medians(outcomes[server]) for server in ("headrace", "baseline"))
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


def outcomes_of(load: bench.Load, pair: Pair) -> dict[str, list[bench.Outcome]]:
    """Rounds against both."""
    servers = [
        bench.Server(name, Address("127.0.0.1", server.mqtt), server.process, pair.credentials)
        for name, server in (("headrace", pair.node), ("baseline", pair.peer))
    ]
    with on_own_cores([pair.node.process, pair.peer.process]):
        return bench.run(load, servers, ROUNDS)


ROWS: dict[str, Callable[[], dict[str, float]]] = {name: partial(row, name) for name in LOADS}
