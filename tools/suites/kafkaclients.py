"""Suites of Kafka's Python clients: pytest, with a stand-in for the Kafka that they start.

Neither suite is changed. What it would start Kafka with is ours: for kafka-python the scripts of a
Kafka distribution (`KAFKA_ROOT`), for aiokafka the module `docker`. Both then start headrace with
what the suite's own settings of Kafka ask for. The clients tested are those that are installed; of
a copy only its tests are used.
"""

import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from tempfile import TemporaryDirectory

from outcome import Outcome

STANDIN = Path(__file__).parent / "standin"

VERSION = "2.3"
"""What kafka-python takes headrace for: the newest Kafka of whose protocol it serves all."""

SECONDS_MAX = 3600

SCRIPTS = [
    "kafka-configs.sh",
    "kafka-run-class.sh",
    "kafka-storage.sh",
    "kafka-topics.sh",
    "zookeeper-shell.sh",
]


BROKERED = [
    "admin",
    "client",
    "conn",
    "consumer",
    "coordinator",
    "pep492",
    "producer",
    "sasl",
    "sender",
    "transactional_consumer",
    "transactional_producer",
]
"""Files of aiokafka's tests that want a broker."""


def kafka_python(copy: Path) -> list[Outcome]:
    """The integration tests of dpkp/kafka-python; `servers` holds the settings of its brokers."""
    with TemporaryDirectory(prefix="headrace-suite-") as name:
        folder = Path(name)
        for part in ("test", "servers"):
            shutil.copytree(copy / part, folder / part)
        scripts = folder / "kafka" / "bin"
        scripts.mkdir(parents=True)
        for script in SCRIPTS:
            _script(scripts / script, f'exec {sys.executable} {STANDIN}/scripts.py {script} "$@"')
        return _pytest(
            folder,
            "test/integration",
            KAFKA_VERSION=VERSION,
            KAFKA_ROOT=str(scripts.parent),
            PROJECT_ROOT=str(folder),
        )


def aiokafka(copy: Path) -> list[Outcome]:
    """The tests of aio-libs/aiokafka that want a broker."""
    with TemporaryDirectory(prefix="headrace-suite-") as name:
        folder = Path(name)
        shutil.copytree(copy / "tests", folder / "tests")
        shutil.copyfile(copy / "pyproject.toml", folder / "pyproject.toml")
        programs = folder / "programs"
        programs.mkdir()
        # Each test class prepares Kerberos, which only the tests that then need it can miss.
        _script(programs / "ktutil", "exit 0")
        return _pytest(
            folder,
            *(f"tests/test_{name}.py" for name in BROKERED),
            "--override-ini=asyncio_default_fixture_loop_scope=function",
            f"--docker-image=headrace:kafka_{VERSION}.0",
            "--no-pull",
            PATH=os.pathsep.join([str(programs), os.environ["PATH"]]),
        )


def _script(file: Path, text: str) -> None:
    file.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    file.chmod(0o755)


def _pytest(folder: Path, *arguments: str, **variables: str) -> list[Outcome]:
    """What became of the tests that pytest runs in `folder`, without those that are skipped."""
    paths = [str(STANDIN), str(STANDIN.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    report = folder / "report.xml"
    # Warnings of newer tools than the suite was written for are no failures.
    calm = ["-p", "no:cacheprovider", "--override-ini=filterwarnings=default", "--tb=short"]
    command = [sys.executable, "-m", "pytest", "-v", *calm]
    subprocess.run(
        [*command, f"--junit-xml={report}", "--timeout=300", *arguments],
        check=False,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **variables},
        stdout=sys.stderr,
        timeout=SECONDS_MAX,
    )
    if not report.exists():
        sys.exit("pytest made no report; what it says above tells why")
    outcomes: dict[str, Outcome] = {}
    for case in ET.parse(report).getroot().iter("testcase"):
        _, _, where = case.get("classname", "").partition("test_")
        test = f"test_{where}::{case.get('name')}"
        faults = [each for each in case if each.tag in {"failure", "error"}]
        if faults:
            lines = (faults[0].get("message") or faults[0].text or "").strip().splitlines() or [""]
            outcomes[test] = Outcome(test, passed=False, detail=lines[0][:300])
        elif case.find("skipped") is None and test not in outcomes:
            outcomes[test] = Outcome(test, passed=True)
    return list(outcomes.values())
