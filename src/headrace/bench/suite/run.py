"""Starts brokers, alternates them round by round, and keeps what each round gave.

Owns processes, cores and folders; decides nothing about figures (`outcome`). The thread that calls
`run` must stay until it returns: what it starts inherits its cores, and ends with it.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from headrace.bench.suite.outcome import measured_of, row_of
from headrace.bench.suite.peers.found import BASELINES
from headrace.bench.suite.peers.peer import LeftOutError
from headrace.bench.suite.results import OURS
from headrace.bench.suite.workloads import Round
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from headrace.bench.suite.peers.peer import Mode, Peer, Running
    from headrace.bench.suite.results import Row
    from headrace.bench.suite.workloads import Workload

ROUNDS_MIN: Final = 3
"""Fewer have no median."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a suite does.

    Attributes:
        workloads: in the order in which they run, in each mode.
        peers: those that are here, ours among them.
        modes: in the order in which they run.
        rounds: of each server and row, `ROUNDS_MIN` or more.
        folder: servers have folders of their own in it.
        server_cores, load_cores: on which the servers run, and what measures them.
    """

    workloads: Sequence[Workload]
    peers: Sequence[Peer]
    modes: Sequence[Mode]
    rounds: int
    folder: Path
    server_cores: frozenset[int]
    load_cores: frozenset[int]


def split_cores() -> tuple[frozenset[int], frozenset[int]]:
    """The first core for servers and the others for the load; where there is one, that for both."""
    first, *others = sorted(os.sched_getaffinity(0))
    return frozenset({first}), frozenset(others or {first})


def run(plan: Plan, rows: list[Row], watch: Callable[[str], None] = lambda _: None) -> None:
    """Measures one workload after the other, in one mode after the other.

    A server that does not start, or ends, or whose round fails has trouble, and the rest goes on.

    Args:
        plan: what to do.
        rows: gets them as they are done, so that an error takes none away.
        watch: is told what goes on, in words.

    Raises:
        OSError: this machine gives no folders.
    """
    for mode in plan.modes:
        with _Servers(plan, mode) as servers:
            for workload in plan.workloads:
                if mode not in workload.modes:
                    continue
                takers = takers_of(workload, mode, plan.peers)
                if workload.is_fresh:
                    servers.end_all()
                if workload.door is None:
                    rows.append(_in_process(plan, workload, mode, watch))
                elif OURS in [peer.name for peer in takers]:
                    rows.append(_row(plan, workload, mode, takers, servers, watch))


def takers_of(workload: Workload, mode: Mode, peers: Sequence[Peer]) -> list[Peer]:
    """The servers of a row: those that speak its protocol in the mode, and have what it needs."""
    baselines = [peer.name for peer in BASELINES]
    return [
        peer
        for peer in peers
        if workload.door is not None
        and peer.promise(workload.door, mode) is not None
        and not workload.needs & peer.lacks
        and (peer.name not in baselines or peer.name in workload.beside)
    ]


def _row(
    plan: Plan,
    workload: Workload,
    mode: Mode,
    takers: Sequence[Peer],
    servers: _Servers,
    watch: Callable[[str], None],
) -> Row:
    rounds: dict[str, list[Round]] = {peer.name: [] for peer in takers}
    for index in range(plan.rounds):
        for peer in takers:
            watch(f"{workload.name}, {mode}: {peer.name}, round {index + 1} of {plan.rounds}")
            rounds[peer.name].append(servers.once(peer, workload))
    measured = {name: measured_of(workload.figure, each) for name, each in rounds.items()}
    return row_of(workload, mode, measured)


def _in_process(plan: Plan, workload: Workload, mode: Mode, watch: Callable[[str], None]) -> Row:
    rounds = []
    for index in range(plan.rounds):
        watch(f"{workload.name}: round {index + 1} of {plan.rounds}")
        with _on(plan.load_cores):
            rounds.append(_attempted(workload, None, mode))
    return row_of(workload, mode, {OURS: measured_of(workload.figure, rounds)})


def _attempted(workload: Workload, running: Running | None, mode: Mode) -> Round:
    try:
        return workload.once(running, mode)
    except (HeadraceError, OSError) as error:
        return Round(figures={}, trouble=" ".join(str(error).split()))


@dataclass
class _Servers:
    """Those that run in a mode: started when they are first needed, and kept.

    One that is not measured has no connection, and so next to nothing to do.
    """

    plan: Plan
    mode: Mode
    _running: dict[str, tuple[ExitStack, Running]] = field(default_factory=dict)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end_all()

    def end_all(self) -> None:
        """Ends all, and removes what they have left behind."""
        while self._running:
            _, (stack, _) = self._running.popitem()
            stack.close()

    def once(self, peer: Peer, workload: Workload) -> Round:
        """A round against a server, which is started where it does not run."""
        try:
            running = self._of(peer)
        except (HeadraceError, LeftOutError) as error:
            return Round(figures={}, trouble=str(error))
        with _on(self.plan.load_cores):
            outcome = _attempted(workload, running, self.mode)
        if _is_alive(running.pid):
            return outcome
        self._running.pop(peer.name)[0].close()
        said = f": {outcome.trouble}" if outcome.trouble else ""
        return Round(
            figures=outcome.figures,
            by_second=outcome.by_second,
            trouble=f"the server ended while it was measured{said}",
        )

    def _of(self, peer: Peer) -> Running:
        if peer.name in self._running:
            return self._running[peer.name][1]
        with ExitStack() as stack:
            prefix = f"headrace-bench-{peer.name}-"
            made = tempfile.TemporaryDirectory(prefix=prefix, dir=self.plan.folder)
            folder = Path(stack.enter_context(made))
            with _on(self.plan.server_cores):
                running = stack.enter_context(peer.start(folder, self.mode))
            self._running[peer.name] = (stack.pop_all(), running)
        return running


@contextmanager
def _on(cores: frozenset[int]) -> Iterator[None]:
    """Has this thread, and what it starts meanwhile, run on some cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _is_alive(pid: int) -> bool:
    """Whether a process runs: one that has ended may still be in the table (proc(5))."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in {"Z", "X"}
