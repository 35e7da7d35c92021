"""What a suite ran on: the facts without which its figures say little."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

WRITE_BYTES: Final = 4096
WRITES: Final = 100
_VOLATILE: Final = ("tmpfs", "ramfs")


def facts(folder: Path) -> dict[str, Any]:
    """`results.Result.machine`; `disk` is the file system of a folder."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "processor": _processor(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": f"{platform.system()} {platform.release()}",
        "disk": file_system(folder),
        "python": platform.python_version(),
        **_commit(),
        "commit_ms": commit_ms(folder),
    }


def file_system(folder: Path) -> str:
    """The type of the file system that a folder is on, and what that is on (proc(5))."""
    path = folder.resolve()
    best = ("", "unknown", "")
    for line in Path("/proc/mounts").read_text().splitlines():
        device, mount, kind = line.split()[:3]
        place = mount.replace(r"\040", " ")
        if path.is_relative_to(place) and len(place) >= len(best[0]):
            best = (place, kind, device)
    return f"{best[1]} on {best[2]}" if best[2].startswith("/") else best[1]


def is_volatile(folder: Path) -> bool:
    """Whether a folder is in memory, where nothing is durable and a sync costs nothing."""
    return file_system(folder).split()[0] in _VOLATILE


def usual_folder() -> Path:
    """Where temporary files are, unless that is memory and there is another place."""
    usual, lasting = Path(tempfile.gettempdir()), Path("/var/tmp")  # noqa: S108 - a folder is made in it
    return lasting if is_volatile(usual) and os.access(lasting, os.W_OK) else usual


def commit_ms(folder: Path) -> float:
    """The median time of a 4 KiB write with fdatasync, over blocks that are there."""
    block = os.urandom(WRITE_BYTES)
    times = []
    with tempfile.TemporaryFile(dir=folder) as file:
        number = file.fileno()
        os.pwrite(number, bytes(WRITE_BYTES * WRITES), 0)
        os.fsync(number)
        for index in range(WRITES):
            began = time.perf_counter()
            os.pwrite(number, block, index * WRITE_BYTES)
            os.fdatasync(number)
            times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e3


def _commit() -> dict[str, str]:
    """Of this package, where it is that of a clone."""
    git = ["git", "-C", str(Path(__file__).parent)]
    try:
        subprocess.run(  # noqa: S603 - only a package that git knows is of its commit
            [*git, "ls-files", "--error-unmatch", __file__], capture_output=True, check=True
        )
        told = subprocess.run(  # noqa: S603
            [*git, "describe", "--always", "--dirty", "--abbrev=12"],
            capture_output=True, check=True, text=True,
        )  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        return {}
    return {"commit": told.stdout.strip()}


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() in {"model name", "Model"}:
            return value.strip()
    return platform.machine()


def need_linux() -> str | None:
    """Why this machine cannot run a suite: processes are read, and pinned, as Linux has it."""
    return None if sys.platform == "linux" else "a suite takes Linux: /proc and processor affinity"
