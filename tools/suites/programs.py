"""Suites that are programs of their own: run, and their reports read."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from broker import Broker
from outcome import Outcome

SECONDS_MAX = 1800

#: What the suite of mqtt-lib is told about the broker under test.
DESCRIPTION = """\
name = "headrace"
address = "mqtt://{broker}"

[capabilities]
max_qos = 2
topic_alias_maximum = 32
server_receive_maximum = 1024
maximum_packet_size = 1114112
dollar_sys_publish = false
"""


#: Its client waits for an acknowledgement only once it has sent the request, so it misses one that
#: comes at once. What timed out is run again, by itself.
RUNS_MAX = 5


def conformance(program: Path, broker: Broker) -> list[Outcome]:
    """`mqtt5-conformance`: each test names the statements that it holds.

    Built with `CARGO_PROFILE_RELEASE_PANIC=unwind`, or its first failure ends it.
    """
    with TemporaryDirectory() as folder:
        description = Path(folder) / "broker.toml"
        description.write_text(DESCRIPTION.format(broker=broker), encoding="utf-8")
        # Two at a time: the suite has time limits that a starved client misses.
        command = [str(program), "--sut", str(description), "--test-threads", "2"]
        outcomes = _statements(command)
        for _ in range(RUNS_MAX - 1):
            late = [test for test, each in outcomes.items() if "Timeout(" in each.detail]
            for test in late:
                outcomes |= _statements([*command, "--exact", test])
    return list(outcomes.values())


def _statements(command: list[str]) -> dict[str, Outcome]:
    """What became of the tests that a command runs, by their whole names."""
    text = _run(command)
    found = re.findall(r"^test (\S+::(\w+).*?) +\.\.\. (ok|FAILED)$", text, re.MULTILINE)
    reasons = dict(re.findall(r"^---- \S+::(\w+) .*----\n(.*)$", text, re.MULTILINE))
    return {
        whole: Outcome(test, state == "ok", "" if state == "ok" else reasons.get(test, ""))
        for whole, test, state in found
    }


def rmqtt(program: Path, broker: Broker) -> list[Outcome]:
    """`mqtt_harness`: the functional suites of all versions that need no setting of theirs."""
    outcomes = []
    for suite in ("functional_v3", "functional_v311", "functional_v5"):
        with TemporaryDirectory() as folder:
            report = Path(folder) / "report.json"
            options = ["--no-broker", "--addr", str(broker), "--json", str(report)]
            _run([str(program), *options, "--suites", suite], cwd=folder)
            value = json.loads(report.read_text(encoding="utf-8"))
        outcomes += [
            Outcome(f"{suite}/{case['name']}", case["status"] == "passed", case["reason"] or "")
            for case in value["cases"]
            if "@" not in case["suite"]  # those want a broker with a configuration of its own
        ]
    return outcomes


def gmqtt(copy: Path, broker: Broker) -> list[Outcome]:
    """The tests of the client gmqtt, which talk to a broker."""
    environment = {**os.environ, "HOST": broker.host, "PORT": str(broker.port)}
    if broker.authority:
        environment["SSL_CERT_FILE"] = str(broker.authority)
    text = _run(
        [sys.executable, "-m", "pytest", "-q", "-rA", "--tb=line", "tests/test_mqtt5.py"],
        cwd=str(copy),
        env=environment,
    )
    found = re.findall(r"^(PASSED|FAILED|ERROR) \S+::(\w+)(?: - (.*))?$", text, re.MULTILINE)
    return [Outcome(test, state == "PASSED", detail) for state, test, detail in found]


def _run(command: list[str], cwd: str | None = None, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command, cwd=cwd, env=env, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    if done.returncode < 0:  # what it has printed so far is not what the suite comes to
        last = (done.stderr or done.stdout).strip().rpartition("\n")[2]
        sys.exit(f"{command[0]} was ended by signal {-done.returncode}: {last:.300}")
    return done.stdout + done.stderr
