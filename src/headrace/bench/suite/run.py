"""Starts brokers, alternates them round by round, and keeps what each round gave.

Owns processes, cores and folders; decides nothing about figures (`outcome`). The thread that calls
`run` must stay until it returns: what it starts inherits its cores, and ends with it.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from headrace.bench.suite.outcome import measured_of, row_of
from headrace.bench.suite.peers.found import BASELINES, START_SECONDS, STARTS
from headrace.bench.suite.peers.peer import LeftOutError
from headrace.bench.suite.results import OURS
from headrace.bench.suite.workloads import Round
from headrace.errors import HeadraceError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from headrace.bench.suite.peers.peer import Mode, Peer, Running
    from headrace.bench.suite.results import Row
    from headrace.bench.suite.workloads import Workload

ROUNDS_MIN: Final = 3
"""Fewer have no median."""

STARTS_MAX: Final = 2
"""In a mode, one after the other, of a server that does not come up: each may take minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a suite does.

    Attributes:
        workloads: in the order in which they run, in each mode.
        peers: those that are here, ours among them.
        modes: in the order in which they run.
        rounds: of each server and row, `ROUNDS_MIN` or more.
        is_spread: whether the rounds of a row are spread over the run, so that what changes on the
            machine meanwhile is in what they differ by; rows are then done at the end of a mode.
        folder: servers have folders of their own in it.
        server_cores, load_cores: on which the servers run, and what measures them.
        skipped: rows that are not measured, by workload and mode.
    """

    workloads: Sequence[Workload]
    peers: Sequence[Peer]
    modes: Sequence[Mode]
    rounds: int
    is_spread: bool = False
    folder: Path
    server_cores: frozenset[int]
    load_cores: frozenset[int]
    skipped: frozenset[tuple[str, str]] = frozenset()


def split_cores(servers: int = 1) -> tuple[frozenset[int], frozenset[int]]:
    """The first cores for servers and the others for the load; where there is one, that for both.

    Raises:
        InputError: none would be left for the load.
    """
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) == servers == 1:
        return frozenset(cores), frozenset(cores)
    if servers >= len(cores):
        raise InputError(
            f"{servers} cores for servers leave none of {len(cores)} for the load; give fewer"
        )
    return frozenset(cores[:servers]), frozenset(cores[servers:])


def tasks_of(plan: Plan) -> list[tuple[Mode, Workload, list[Peer]]]:
    """The rows of a plan in the order in which they run, and who takes part in each."""
    tasks = []
    for mode in plan.modes:
        for workload in plan.workloads:
            takers = takers_of(workload, mode, plan.peers)
            is_asked = mode in workload.modes and (workload.name, str(mode)) not in plan.skipped
            if is_asked and (workload.door is None or OURS in [peer.name for peer in takers]):
                tasks.append((mode, workload, takers))
    return tasks


def seconds_of(plan: Plan) -> float:
    """How long it takes, roughly: what is slow here or has trouble takes longer."""
    seconds, started = 0.0, set()
    for mode, workload, takers in tasks_of(plan):
        rounds = 1 if workload.is_exact else plan.rounds
        seconds += rounds * workload.seconds * max(len(takers), 1)
        started |= {(mode, peer.name) for peer in takers}
    return seconds + sum(STARTS.get(name, START_SECONDS) for _, name in started)


def run(
    plan: Plan,
    done: Callable[[Row], None],
    watch: Callable[[str], None] = lambda _: None,
) -> None:
    """Measures one workload after the other, in one mode after the other.

    A server that does not start, or ends, or whose round fails has trouble, and the rest goes on.

    Args:
        plan: what to do.
        done: gets each row as it is done, so that an error takes none away.
        watch: is told what goes on, in words.
    """
    for mode in plan.modes:
        tasks = [task for task in tasks_of(plan) if task[0] is mode]
        with _Servers(plan, mode) as servers:
            for together in [tasks] if plan.is_spread else [[task] for task in tasks]:
                for row in _rows(plan, together, servers, watch):
                    done(row)


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


def _rows(
    plan: Plan,
    tasks: Sequence[tuple[Mode, Workload, list[Peer]]],
    servers: _Servers,
    watch: Callable[[str], None],
) -> Iterator[Row]:
    """Goes through some workloads of one mode so many times, a round of each at a time."""
    rounds: list[dict[str, list[Round]]] = [{} for _ in tasks]
    began: list[str] = []
    for index in range(plan.rounds):
        for (mode, workload, takers), found in zip(tasks, rounds, strict=True):
            if index == 0:
                began.append(datetime.now(UTC).isoformat(timespec="seconds"))
            elif workload.is_exact:
                continue
            what = f"round {index + 1} of {1 if workload.is_exact else plan.rounds}"
            if workload.door is None:
                watch(f"{workload.name}: {what}")
                with _on(plan.load_cores):
                    found.setdefault(OURS, []).append(_attempted(workload, None, mode))
                continue
            if workload.is_fresh and (index == 0 or plan.is_spread):
                servers.end_all()
            # Nobody is always the first, or always behind the same other.
            turn = index % len(takers)
            for peer in (*takers[turn:], *takers[:turn]):
                watch(f"{workload.name}, {mode}: {peer.name}, {what}")
                found.setdefault(peer.name, []).append(servers.once(peer, workload))
    for (mode, workload, _), found, since in zip(tasks, rounds, began, strict=True):
        measured = {name: measured_of(workload.figure, each) for name, each in found.items()}
        yield replace(row_of(workload, mode, measured), began=since)


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
    _failed: dict[str, list[str]] = field(default_factory=dict)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end_all()

    def end_all(self) -> None:
        """Ends all, and removes what they have left behind."""
        with ExitStack() as ends:  # all of them, also where one is interrupted
            while self._running:
                _, (stack, _) = self._running.popitem()
                ends.push(stack)

    def once(self, peer: Peer, workload: Workload) -> Round:
        """A round against a server, which is started where it does not run."""
        failed = self._failed.setdefault(peer.name, [])
        if len(failed) == STARTS_MAX:
            return Round(figures={}, trouble=failed[0])
        try:
            running = self._of(peer)
        except (HeadraceError, LeftOutError, OSError) as error:
            failed.append(" ".join(str(error).split()))
            return Round(figures={}, trouble=failed[-1])
        failed.clear()
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
