"""What a process asks of its machine at start."""

import os
import subprocess
import sys

import pytest

FREED_AND_TAKEN_AGAIN = """
import resource
from headrace.adapters.machine import keep_freed_memory

keep_freed_memory()
for _ in range(2):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(100):
        buffers = [bytes(100_000) for _ in range(10)]
        del buffers
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
"""Prints the pages that the second hundred of rounds had to ask the kernel for."""


@pytest.mark.parametrize(
    ("tuned", "pages"),
    [({}, range(1000)), ({"MALLOC_TRIM_THRESHOLD_": "131072"}, range(1000, 10**6))],
)
def test_freed_memory_is_kept_for_what_comes_next(tuned, pages):
    environment = {name: value for name, value in os.environ.items() if "MALLOC" not in name}
    printed = subprocess.run(
        [sys.executable, "-c", FREED_AND_TAKEN_AGAIN],
        env=environment | tuned, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert int(printed.stdout) in pages
