"""The README's commands are typed as they stand, in their own network namespace.

They name the default ports, which on a developer's machine something else may hold; in a fresh
namespace they are free, and nothing can leave it.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MARK = "<!-- executed by tests/test_readme.py -->"
BLOCK = re.compile(re.escape(MARK) + r"\n```(?P<language>sh|python)\n(?P<code>.*?)```", re.DOTALL)
READY = "curl -sf --retry 60 --retry-delay 1 --retry-all-errors http://127.0.0.1:8080/ready"

EXPECTED = [
    (),
    ("rooms[", "7: 21.5"),
    ("rooms", "headrace_mqtt_messages"),
    ("300",),
    ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_POWER_USAGE"),
]
"""What a reader must see, block by block."""


def script(folder: Path) -> str:
    """The blocks as one bash script; each ends with a line that parts its output."""
    blocks = list(BLOCK.finditer((ROOT / "README.md").read_text(encoding="utf-8")))
    assert len(blocks) == len(EXPECTED), "a README block was added: say what it must print"
    lines = ["set -euo pipefail", "ip link set lo up", f"cd {folder}"]
    lines += ["trap 'kill -TERM $(jobs -p) 2>/dev/null; wait' EXIT"]
    for number, block in enumerate(blocks):
        if block["language"] == "python":
            (folder / f"block{number}.py").write_text(block["code"], encoding="utf-8")
            lines.append(f"python block{number}.py")
        else:
            lines.append(block["code"])
        if number == 0:
            lines.append(READY)
        lines.append("echo '=== end of block'")
    return "\n".join(lines)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with what the README names, and a PATH on which `headrace` is ours."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "data").symlink_to(ROOT / "tests" / "data")
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, arguments in (("headrace", " -m headrace"), ("python", "")):
        command = commands / name
        run = f'exec "{sys.executable}"{arguments} "$@"'
        command.write_text(f"#!/bin/sh\n{run}\n", encoding="utf-8")
        command.chmod(0o755)
    return tmp_path


@pytest.mark.spark
def test_every_command_of_the_readme_does_what_it_says(folder: Path) -> None:
    unshare = shutil.which("unshare")
    assert unshare, "install util-linux"
    isolated = [unshare, "--net"] if os.geteuid() == 0 else [unshare, "--map-root-user", "--net"]
    environment = os.environ | {
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
    }
    done = subprocess.run(
        [*isolated, "bash", "-c", script(folder)],
        env=environment, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    for number, (output, wanted) in enumerate(
        zip(done.stdout.split("=== end of block"), EXPECTED, strict=False)
    ):
        for text in wanted:
            assert text in output, f"block {number} does not show {text!r}:\n{output}"
