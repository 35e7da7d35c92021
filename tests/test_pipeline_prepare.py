"""`headrace pipeline prepare`: the class archive of Spark's JVM."""

import re
import subprocess
import sys

import pytest

from conftest import environment, headrace

pytestmark = pytest.mark.spark

RUN = """
import sys
from headrace.cli import main
sys.prefix, sys.argv[1:] = sys.argv[1], ["pipeline", "prepare"]
main()
"""
SESSION = """
import sys
from pathlib import Path
from headrace.spark import close, session
sys.prefix = sys.argv[1]
spark = session(log_file=Path(sys.argv[2], "spark.log"))
assert spark.range(3).count() == 3
close(spark)
"""


def python(program, *args, **extra):
    command = [sys.executable, "-c", program, *map(str, args)]
    return subprocess.run(
        command, env=environment(**extra), capture_output=True, text=True, timeout=250, check=False
    )


def shared(prefix, tmp_path):
    """How many classes a session has from an archive that is not the JVM's own."""
    loaded = tmp_path / "loaded"
    ran = python(SESSION, prefix, tmp_path, JAVA_TOOL_OPTIONS=f"-Xlog:class+load:file={loaded}")
    assert ran.returncode == 0, ran.stderr
    return len(re.findall(r"source: shared objects file \(top\)", loaded.read_text()))


def test_a_session_uses_what_was_prepared(tmp_path):
    ran = headrace("pipeline", "prepare", timeout=250)
    assert ran.returncode == 0, ran.stderr
    assert re.fullmatch(r"/.*\.jsa: \d+ MB; starts of Spark use it\n", ran.stdout)
    assert shared(sys.prefix, tmp_path) > 8000


@pytest.mark.soak
def test_it_is_made_once_and_whole(tmp_path):
    first = python(RUN, tmp_path)
    assert first.returncode == 0, first.stderr
    (made,) = (tmp_path / "share" / "headrace").iterdir()
    assert first.stdout.startswith(f"{made}: ")
    assert "half a minute" in first.stderr
    assert shared(tmp_path, tmp_path) > 8000
    again = python(RUN, tmp_path)
    assert (again.stdout, again.stderr) == (first.stdout, "")


@pytest.mark.soak
def test_a_damaged_one_stops_no_start(tmp_path):
    """The JVM looks at its head, and goes on without it."""
    found = python("from headrace.spark.archive import archive_path; print(archive_path().name)")
    archive = tmp_path / "share" / "headrace" / found.stdout.strip()
    archive.parent.mkdir(parents=True)
    archive.write_bytes(b"no archive")
    assert shared(tmp_path, tmp_path) == 0


def test_a_prefix_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "share").write_text("a file")
    ran = python(RUN, tmp_path)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert len(ran.stderr.splitlines()) == 2
    assert "prepare as the user who installed headrace" in ran.stderr
