"""How `headrace pipeline run` ends: by signals, and where it cannot begin or go on."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import RunningNode, environment, headrace, soaked, unused_ports
from frames import metric
from headrace.pipeline import tables
from processes import descendants, left_after
from test_access import ADMIN, put_users
from test_pipeline_exactly_once import produce

RULES = """
[[access.rules]]
allow = ["all"]
roles = ["admin"]
"""

MESSAGES = [metric("DCGM_FI_DEV_GPU_UTIL", 50, 15 * n) for n in range(3)]


class Run:
    """A pipeline in a session of its own, that has read what there is."""

    def __init__(self, broker, folder):
        produce(broker, MESSAGES)
        self.process = subprocess.Popen(
            [
                sys.executable, "-m", "headrace", "pipeline", "run", "--kafka", broker.servers,
                "--replay", "--json", "--tables", str(folder / "t"),
                "--checkpoint", str(folder / "c"),
            ],
            env=environment(), stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        assert self.process.stderr.readline().startswith("batch 0: readings 3 ")
        self.family = descendants(self.process.pid)
        [self.jvm] = [pid for pid in self.family if self.command(pid).endswith(b"java")]

    @staticmethod
    def command(pid):
        return Path(f"/proc/{pid}/cmdline").read_bytes().partition(b"\0")[0]

    def end(self):
        """Its exit code and what it has said since; all that it started has ended."""
        told, said = self.process.communicate(timeout=60)
        assert left_after(self.family, 30) == set()
        assert "Traceback" not in said, said
        return self.process.returncode, told, said


@pytest.mark.spark
@pytest.mark.parametrize("number", [signal.SIGTERM, soaked(signal.SIGINT)])
def test_a_signal_to_its_whole_group_ends_it_in_order(broker, tmp_path, number):
    run = Run(broker, tmp_path)
    os.killpg(run.process.pid, number)
    code, told, said = run.end()
    assert (code, said) == (0, "stopping; a second signal ends it at once\n")
    assert '"rows": 3' in told


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_it_at_once(broker, tmp_path, number):
    run = Run(broker, tmp_path)
    run.process.send_signal(number)
    assert run.process.stderr.readline().startswith("stopping;")
    run.process.send_signal(number)
    code, told, said = run.end()
    assert (code, told, said) == (-number, "", "")


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_without_its_jvm_it_ends_with_a_line_and_the_next_goes_on(broker, tmp_path, number):
    run = Run(broker, tmp_path)
    os.kill(run.jvm, number)
    code, told, said = run.end()
    assert (code, told) == (1, "")
    (line,) = said.splitlines()
    assert "Spark's JVM has ended" in line
    assert "run it again" in line
    produce(broker, MESSAGES)
    again = headrace(
        "pipeline", "run", "--once", "--replay", "--kafka", broker.servers,
        "--tables", str(tmp_path / "t"), "--checkpoint", str(tmp_path / "c"), timeout=120,
    )  # fmt: skip
    assert again.returncode == 0, again.stderr
    totals = tables.manifest(tmp_path / "t").totals
    assert (totals.readings, totals.rows, totals.duplicates) == (6, 3, 3)


@pytest.mark.soak
@pytest.mark.spark
def test_a_stop_that_reaches_spark_too_is_told_as_one(broker, tmp_path):
    run = Run(broker, tmp_path)
    os.kill(run.process.pid, signal.SIGSTOP)  # so that Spark is gone first, as it may be
    run.process.send_signal(signal.SIGTERM)
    os.kill(run.jvm, signal.SIGTERM)
    assert left_after({run.jvm}, 30) <= {run.jvm}
    os.kill(run.process.pid, signal.SIGCONT)
    code, told, said = run.end()
    assert (code, told) == (1, "")
    assert said.splitlines()[-2].startswith("headrace: Spark's JVM has ended")
    assert "nothing is lost: run it again" in said.splitlines()[-1]
    assert "KillMode=mixed" in said


# --- what can be known before Spark is started ---------------------------------------------------


def refused(folder, *options, **extra):
    """What a run says that does not begin; Spark was not started for it."""
    folders = ("--tables", str(folder / "t"), "--checkpoint", str(folder / "c"))
    log4j = {"JAVA_HOME": "/nowhere"}  # which it would say
    ran = headrace("pipeline", "run", *folders, *options, **log4j, **extra)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert len(ran.stderr.splitlines()) <= 3
    assert "Traceback" not in ran.stderr
    return ran.stderr.strip()


def test_where_no_broker_answers_that_is_said_before_spark_starts(tmp_path):
    port = unused_ports()[0]
    said = refused(tmp_path, "--kafka", f"127.0.0.1:{port}")
    assert f"gave up after 10 s: 127.0.0.1:{port} is not reached" in said
    assert said.endswith("or name another with --kafka")


def test_where_there_is_no_such_stream_that_is_said_before_spark_starts(broker, tmp_path):
    line = refused(tmp_path, "--kafka", broker.servers, "--stream", "none")
    assert "UNKNOWN_TOPIC_OR_PARTITION; `headrace streams list` shows what is there" in line


def test_who_may_not_read_hears_it_before_spark_starts(tmp_path):
    put_users(tmp_path / "data", {ADMIN: ["admin"], "bob:cart": []})
    rules = tmp_path / "headrace.toml"
    rules.write_text(RULES)
    node = RunningNode(tmp_path / "data", "--config", str(rules))
    try:
        at = ("--kafka", node.servers)
        assert "user" in refused(tmp_path, *at)
        bob = (*at, "--user", "bob")
        assert "password" in refused(tmp_path, *bob, HEADRACE_PASSWORD="wrong")
        line = refused(tmp_path, *bob, HEADRACE_PASSWORD="cart")
        assert "TOPIC_AUTHORIZATION_FAILED; no rule of the broker gives this user" in line
    finally:
        node.close()
