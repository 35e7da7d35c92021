"""The shell blocks of a document, run as they stand, in a network namespace of their own.

They name the default ports, which on a developer's machine something else may hold; in a fresh
namespace they are free, and nothing can leave it.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from conftest import QUICK_STARTS

ROOT = Path(__file__).resolve().parents[1]
READY = "curl -sf --retry 60 --retry-delay 1 --retry-all-errors http://127.0.0.1:8080/ready"
END = "=== end of block"

Expected = list[tuple[str, ...]]
"""What a reader must see, block by block."""


def blocks_of(document: Path, test: str) -> list[re.Match[str]]:
    """The blocks under the comment that names `test`."""
    mark = re.escape(f"<!-- executed by tests/{test}.py -->")
    block = re.compile(mark + r"\n```(?P<language>sh|python)\n(?P<code>.*?)```", re.DOTALL)
    return list(block.finditer(document.read_text(encoding="utf-8")))


def script(blocks: list[re.Match[str]], folder: Path, before: str) -> str:
    """The blocks as one bash script; each ends with a line that parts its output."""
    lines = ["set -euo pipefail", "set -m", "ip link set lo up", f"cd {folder}", before]
    lines += ["trap 'kill -TERM $(jobs -p) 2>/dev/null || true; wait' EXIT"]
    for number, block in enumerate(blocks):
        if block["language"] == "python":
            (folder / f"block{number}.py").write_text(block["code"], encoding="utf-8")
            lines.append(f"python block{number}.py")
        else:
            lines.append(block["code"])
        if number == 0:
            lines.append(READY)
        lines.append(f"echo '{END}'")
    return "\n".join(lines)


def prepare(folder: Path) -> None:
    """Puts into `folder` what documents name, and commands that are ours."""
    (folder / "tests").mkdir()
    (folder / "tests" / "data").symlink_to(ROOT / "tests" / "data")
    commands = folder / "bin"
    commands.mkdir()
    for name, arguments in (("headrace", " -m headrace"), ("python", "")):
        command = commands / name
        run = f'exec "{sys.executable}"{arguments} "$@"'
        command.write_text(f"#!/bin/sh\n{run}\n", encoding="utf-8")
        command.chmod(0o755)


def run_blocks(
    document: Path,
    test: str,
    expected: Expected,
    folder: Path,
    *,
    before: str = ":",
    quick: bool = True,
    **extra: str,
) -> None:
    """Runs every block, and looks for what each must show.

    `before` starts what the document takes for given. What is not `quick` starts as it does for a
    user.
    """
    blocks = blocks_of(document, test)
    assert len(blocks) == len(expected), "a block was added: say what it must print"
    prepare(folder)
    unshare = shutil.which("unshare")
    assert unshare, "install util-linux"
    isolated = [unshare, "--net"] if os.geteuid() == 0 else [unshare, "--map-root-user", "--net"]
    environment = os.environ | (QUICK_STARTS if quick else {})
    environment |= {
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
    }
    done = subprocess.run(
        [*isolated, "bash", "-c", script(blocks, folder, before)],
        env=environment | extra, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    for number, (output, wanted) in enumerate(zip(done.stdout.split(END), expected, strict=False)):
        for text in wanted:
            assert text in output, f"block {number} does not show {text!r}:\n{output}"
