"""All workloads of a suite, in the order in which they run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.bench.suite.kafka_workloads import kafka_workloads
from headrace.bench.suite.kernel_workloads import kernel_workloads
from headrace.bench.suite.mqtt_workloads import mqtt_workloads
from headrace.bench.suite.queue_workloads import queue_workloads
from headrace.errors import InputError
from headrace.text import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.bench.suite.workloads import Timing, Workload

SOURCES: Final[tuple[Callable[[Timing], Sequence[Workload]], ...]] = (
    mqtt_workloads,
    queue_workloads,
    kafka_workloads,
    kernel_workloads,
)


def chosen(timing: Timing, only: Sequence[str], *, is_quick: bool) -> list[Workload]:
    """Those of the names; else those of `--quick`, or all.

    Raises:
        InputError: nothing is called so.
    """
    every = [workload for source in SOURCES for workload in source(timing)]
    known = list(dict.fromkeys(workload.name for workload in every))
    for name in only:
        if name not in known:
            raise InputError(f"no workload is called {name}: {nearest(name, known)}")
    if only:
        return [workload for workload in every if workload.name in only]
    return [workload for workload in every if workload.is_quick or not is_quick]
