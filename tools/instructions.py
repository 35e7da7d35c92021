"""Counts the instructions of hot paths under callgrind, beside benchmarks/instructions.json.

    python tools/instructions.py            counts, compares; 1 where a path differs
    python tools/instructions.py --write    keeps what was counted (make instructions)

A path runs for some operations and for twice as many: the difference has nothing of what comes
before and after. A count is of one kind of processor and one compiler (docs/adr/0093-*.md).
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final, NamedTuple

from headrace.native import Kernel

ROOT: Final = Path(__file__).resolve().parents[1]
KEPT: Final = ROOT / "benchmarks" / "instructions.json"

GROWTH_MAX: Final = 0.10
"""Of a path, by the compiler of the file; a fall of as much is to be kept, or it could be lost."""

OTHER_GROWTH_MAX: Final = 0.30
"""The same by another compiler, whose code differs by some percent."""

KEEP: Final = "make instructions"

PATHS: Final = {
    "QoS 0 publish of 100 bytes to one subscriber": ("fan-out", 1, 100, 4_000),
    "QoS 1 publish of 100 bytes into a stream, to its PUBACK": ("store", 0, 100, 4_000),
    "topic matched against 10,000 subscriptions": ("match", 10_000, 0, 20_000),
    "record of 100 bytes into a batch of 100, and out": ("records", 100, 100, 10_000),
    "message of 100 bytes from a queue, settled by $ack": ("deliver", 1, 100, 2_000),
    "record of 100 bytes of a produced batch of 100": ("produce", 100, 100, 40_000),
}
"""Kernels of `headrace_core::testing::kernels`, and for how many operations they run."""

MARK: Final = "getppid"
"""A function of the C library that nothing else calls: callgrind begins a new part at each call."""

COUNTED: Final = """\
import json, os, sys
from headrace.native import Kernel
for name, of, payload, operations in json.loads(sys.argv[1]):
    kernel = Kernel(name, of, payload)
    for times in (1, 2):
        os.getppid()
        done = kernel.run(times * operations)
        os.getppid()
        print(done)
"""
"""Under callgrind. Of each path a part is what comes before, a run, what is between, a run."""


class CountError(Exception):
    """Nothing was counted; the message says why."""


class Counts(NamedTuple):
    """Instructions of one operation by path, and what made them."""

    machine: str
    rustc: str
    instructions: dict[str, float]


def count() -> Counts:
    """Counts all paths of the compiled module.

    Raises:
        CountError: valgrind is missing or failed, or the module was not built for release.
    """
    if not Kernel.OPTIMISED:
        raise CountError("the compiled module was not built for release: tools/setup test")
    found = re.match(r"rustc (\d+\.\d+)", _output("rustc", "--version"))
    assert found, "rustc says its version"
    with tempfile.TemporaryDirectory() as folder:
        parts = Path(folder) / "part"
        callgrind = ("--tool=callgrind", f"--callgrind-out-file={parts}", f"--dump-before={MARK}")
        command = ("valgrind", "--quiet", *callgrind, sys.executable, "-c", COUNTED)
        done = [int(line) for line in _output(*command, json.dumps([*PATHS.values()])).split()]
        runs = [_total(parts.with_suffix(f".{2 * run + 2}")) for run in range(len(done))]
    counted = {
        path: (runs[at + 1] - runs[at]) / (done[at + 1] - done[at])
        for path, at in zip(PATHS, range(0, len(done), 2), strict=True)
    }
    return Counts(platform.machine(), found[1], counted)


def differences(counts: Counts, kept: dict[str, Any]) -> list[str]:
    """What is to be looked at, a line each; nothing for a machine of which nothing is kept."""
    if counts.machine not in kept:
        return []
    before = kept[counts.machine]
    is_same = counts.rustc == before["rustc"]
    growth_max = GROWTH_MAX if is_same else OTHER_GROWTH_MAX
    lines = []
    for path, now in counts.instructions.items():
        was = before["instructions"].get(path)
        if was is None:
            lines.append(f"{path}: {now:,.0f} instructions, and none are kept: {KEEP}")
        elif now > was * (1 + growth_max):
            lines.append(
                f"{path}: {now:,.0f} instructions, {now / was - 1:.0%} more than {was:,.0f}: "
                f"make it cheaper again, or say why in the commit that keeps it: {KEEP}"
            )
        elif is_same and now < was * (1 - GROWTH_MAX):
            lines.append(
                f"{path}: {now:,.0f} instructions, {1 - now / was:.0%} fewer than {was:,.0f}: "
                f"keep that, so that it is not lost again: {KEEP}"
            )
    gone = before["instructions"].keys() - counts.instructions.keys()
    lines += [f"{path}: is kept, and counted no more: {KEEP}" for path in sorted(gone)]
    return lines


def _total(part: Path) -> int:
    """The instructions of a part."""
    total = re.search(r"^summary: (\d+)$", part.read_text(), re.MULTILINE)
    assert total, "each part has a sum"
    return int(total[1])


def _output(*command: str) -> str:
    """What a command prints.

    Raises:
        CountError: it is not there, or failed; its last lines.
    """
    environment = os.environ | {"PYTHONHASHSEED": "0"}
    try:
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise CountError(f"{command[0]} is not installed") from error
    if run.returncode:
        last = "\n".join(run.stderr.splitlines()[-20:])
        raise CountError(f"{command[0]} ended with {run.returncode}: {last}")
    return run.stdout


def main() -> int:
    """Counts; the status to exit with."""
    kept: dict[str, Any] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    counts = count()
    before = kept.get(counts.machine, {}).get("instructions", {})
    for path, now in counts.instructions.items():
        print(f"{now:>10,.1f}  {before.get(path, 0):>10,.1f}  {path}")
    if sys.argv[1:] == ["--write"]:
        rounded = {path: round(now, 1) for path, now in counts.instructions.items()}
        kept[counts.machine] = {"rustc": counts.rustc, "instructions": rounded}
        KEPT.write_text(json.dumps(kept, indent=2) + "\n")
        return 0
    lines = differences(counts, kept)
    print("\n".join(lines))
    return 1 if lines else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except CountError as error:
        sys.exit(f"instructions: {error}")
