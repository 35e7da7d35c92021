"""The row of connects with a password against mosquitto, by the load of `headrace bench mqtt`.

Both servers run on one core and the load on another, where there are two; rounds alternate. What
else the MQTT door does is measured by `headrace bench suite`.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from servers import both_with_a_user

from headrace import bench
from headrace.model import Address

ROUNDS = 3
LOAD = bench.Load(publishers=0, subscribers=0, idle=5_000, duration=1.0)


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


def passwords_row() -> dict[str, float]:
    """Rounds against a fresh pair of servers."""
    with both_with_a_user() as pair:
        servers = [
            bench.Server(name, Address("127.0.0.1", server.mqtt), server.process, pair.credentials)
            for name, server in (("headrace", pair.node), ("baseline", pair.peer))
        ]
        with on_own_cores([pair.node.process, pair.peer.process]):
            outcomes = bench.run(LOAD, servers, ROUNDS)
    own, peer = (bench.medians(outcomes[server.name]) for server in servers)
    figures = {}
    for figure in ("connects_per_second", *bench.FAULTS):
        figures[figure] = own[figure] or 0.0
        figures[f"baseline_{figure}"] = peer[figure] or 0.0
    return figures | {
        "ratio": figures["connects_per_second"] / figures["baseline_connects_per_second"]
    }


ROWS: dict[str, Callable[[], dict[str, float]]] = {"passwords": passwords_row}
