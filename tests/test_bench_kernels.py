"""Workloads inside this process: what each counts, and that none is without figures."""

import pytest

from headrace import native
from headrace.bench.suite import kernel_workloads as kernels
from headrace.bench.suite.peers.peer import Mode
from headrace.bench.suite.workloads import Timing

WORKLOADS = kernels.kernel_workloads(Timing())


IN_PROCESS = [workload for workload in WORKLOADS if workload.figure != "copied"]


@pytest.mark.parametrize("workload", IN_PROCESS, ids=lambda workload: workload.name)
def test_a_workload_has_the_figure_that_counts(workload, monkeypatch):
    monkeypatch.setattr(kernels, "SECONDS", 0.01)
    found = workload.once(None, Mode.MEMORY)
    assert found.trouble is None
    assert found.figures[workload.figure] > 0


@pytest.mark.slow
def test_a_payload_is_copied_once_for_each_subscriber():
    copied = kernels.copies(65_536, None, Mode.MEMORY).figures["copied"]
    assert 1 <= copied < 1.2


def test_without_valgrind_there_is_a_reason_and_no_figure(monkeypatch):
    monkeypatch.setenv("PATH", "")
    found = kernels.copies(100, None, Mode.MEMORY)
    assert found.figures == {}
    assert found.trouble == "valgrind is not installed"


def test_a_kernel_that_there_is_not_is_refused():
    with pytest.raises(ValueError, match='there is no kernel "none"'):
        native.Kernel("none", 1, 1)


def test_names_are_each_workloads_own():
    names = [workload.name for workload in WORKLOADS]
    assert len(set(names)) == len(names)
