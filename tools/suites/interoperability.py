"""eclipse-paho/paho.mqtt.testing: `client_test.py` and `client_test5.py`.

Each test runs in a process of its own, because some of them wait without a bound when a broker
does not answer as they hope; their option parsers clash with unittest's, so the modules are
imported and told where the broker is.
"""

import subprocess
import sys
from pathlib import Path

from broker import Broker
from outcome import Outcome

SECONDS_MAX = 90

#: Not collected by unittest, as its name does not begin with `test`.
UNCOLLECTED = {"client_test": ["will_message_test"], "client_test5": []}

LISTING = """\
import unittest, {module}
for name in unittest.defaultTestLoader.getTestCaseNames({module}.Test):
    print(name)
"""

ONE = """\
import logging, sys, unittest, {module} as suite
logging.basicConfig(level=logging.CRITICAL)
names = ["TopicA", "TopicA/B", "Topic/C", "TopicA/C", "/TopicA"]
filters = ["TopicA/+", "+/C", "#", "/#", "/+", "+/+", "TopicA/#"]
prefix = "{prefix}"
suite.host, suite.port, suite.topic_prefix = "{host}", {port}, prefix
suite.topics = [prefix + name for name in names]
suite.wildtopics = [prefix + name for name in filters]
suite.setData = lambda: None  # which one of the modules calls again
suite.nosubscribe_topics = ("$test/nosubscribe",)
result = unittest.TextTestRunner(verbosity=0).run(unittest.TestSuite([suite.Test("{test}")]))
sys.exit(0 if result.wasSuccessful() else 1)
"""


def paho3(copy: Path, broker: Broker) -> list[Outcome]:
    """MQTT 3.1.1."""
    return _suite(copy, broker, "client_test", prefix="")


def paho5(copy: Path, broker: Broker) -> list[Outcome]:
    """MQTT 5.0."""
    return _suite(copy, broker, "client_test5", prefix="client_test5/")


def _suite(copy: Path, broker: Broker, module: str, prefix: str) -> list[Outcome]:
    folder = copy / "interoperability"
    listing = subprocess.run(
        [sys.executable, "-c", LISTING.format(module=module)],
        cwd=folder, capture_output=True, text=True, check=True,
    )  # fmt: skip
    tests = [*listing.stdout.split(), *UNCOLLECTED[module]]
    return [_one(folder, broker, module, prefix, test) for test in tests]


def _one(folder: Path, broker: Broker, module: str, prefix: str, test: str) -> Outcome:
    code = ONE.format(module=module, prefix=prefix, host=broker.host, port=broker.port, test=test)
    command = [sys.executable, "-W", "ignore", "-c", code]
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
        )
    except subprocess.TimeoutExpired:
        return Outcome(test, passed=False, detail=f"no end within {SECONDS_MAX} s")
    lines = [line for line in done.stderr.splitlines() if "Error" in line] or [""]
    return Outcome(test, done.returncode == 0, lines[-1])
