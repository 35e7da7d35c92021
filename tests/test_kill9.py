"""kill -9 of the broker: what was acknowledged is there once, whatever the moment."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from conftest import RunningNode, environment, soaked
from headrace.cli.demo.broker import Broker
from headrace.client import FetchClient
from headrace.collect import CsvFile, Origin, Publisher, narrow, replayed
from headrace.errors import StartError
from headrace.native import decode_records
from processes import descendants, left_after

pytestmark = pytest.mark.slow

STREAM = "gpu-telemetry"
TRACE = Path(__file__).parent.parent / "src/headrace/data/h200-1hz.csv.gz"
PID = re.compile(r"\d+")
MOMENT = threading.Event()
"""Never set: waiting for it is letting time pass."""


def seeded(seed):
    """A generator from `seed`, or from a new one that a failure shows."""
    seed = int(os.environ.get("HEADRACE_TEST_SEED", seed or time.time_ns()))
    print(f"HEADRACE_TEST_SEED={seed}")
    return random.Random(seed)


def stored(servers):
    """`(source, epoch, sequence)` and value of each record of the stream, as it stands."""
    with FetchClient(servers) as client:
        starts = client.earliest_offsets(STREAM)
        for partition, end in client.latest_offsets(STREAM).items():
            at = starts[partition]
            while at < end:
                columns = decode_records(
                    client.fetch(STREAM, partition, at, 1 << 20, 0), at, end, 100_000
                )
                for _, _, _, value, headers in columns.rows():
                    named = dict(headers)
                    origin = named["source"].decode(), int(named["epoch"])
                    yield (*origin, int(named["sequence"])), value
                at = columns.next_offset


# --- the broker and the collector alone ----------------------------------------------------------


@pytest.mark.parametrize("round_", [0, *map(soaked, range(1, 20))])
def test_every_acknowledged_reading_is_stored_once(tmp_path, monkeypatch, round_):
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    choose = seeded(round_)
    gpus = 4
    trace = list(CsvFile(TRACE))
    moments = sorted(choose.sample(range(1, gpus * len(trace)), 4))
    restart_kills = choose.randrange(2)
    print(f"round {round_}: kills after {moments} acknowledgements, {restart_kills} at a restart")
    changes = []

    def changed(what):
        nonlocal restart_kills
        changes.append(what)
        if what == "broker restarted" and restart_kills:
            restart_kills -= 1
            os.kill(broker.pid, signal.SIGKILL)

    broker = Broker(tmp_path / "data", tmp_path / "log", changed)
    broker.start()
    try:
        acknowledged = {}
        payloads = {}

        def messages():
            for number, message in enumerate(narrow(replayed(trace, gpus, loop=False), clock), 1):
                payloads[number] = message.payload
                yield message

        def acknowledge(sequence, readings):
            assert sequence not in acknowledged
            acknowledged[sequence] = readings
            if moments and len(acknowledged) >= moments[0]:
                moments.pop(0)
                os.kill(broker.pid, signal.SIGKILL)

        origin = Origin("kill9", time.time_ns())
        publisher = Publisher(broker.address("mqtt"), origin, on_acknowledged=acknowledge)
        broker.failure.add_done_callback(lambda _: publisher.stop())
        counts = publisher.run(messages())
        assert not broker.failure.done(), broker.failure.exception()
        found = list(stored(str(broker.address("kafka"))))
    finally:
        broker.close()

    print(counts, changes)
    assert not moments
    assert counts.resent > 0
    assert counts.acknowledged == gpus * len(trace)
    keys = [key for key, _ in found]
    assert sorted(keys) == [(*origin, sequence) for sequence in sorted(acknowledged)]
    for (_, _, sequence), value in found:
        assert value == payloads[sequence]


def test_no_connection_takes_a_port_of_a_broker_that_comes_back(tmp_path):
    """The kernel gives connections ports of another range."""
    first, _ = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    broker = Broker(tmp_path / "data", tmp_path / "log", print)
    ports = [broker.address(door).port for door in ("mqtt", "kafka", "http")]
    assert len(set(ports)) == 3
    assert max(ports) < first


def test_a_broker_that_somebody_else_restarts_is_used(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    changes = []
    others = []
    used, restarted = threading.Event(), threading.Event()

    def changed(what):
        changes.append(what)
        if what == "broker ended by signal 9" and not others:
            ports = tuple(broker.address(door).port for door in ("mqtt", "kafka", "http"))
            others.append(RunningNode(tmp_path / "data", ports=ports))
        if "somebody else" in what:
            used.set()
        if what == "broker restarted":
            restarted.set()

    trace = list(CsvFile(TRACE))
    broker = Broker(tmp_path / "data", tmp_path / "log", changed)
    broker.start()
    try:
        acknowledged = []

        def acknowledge(sequence, _readings):
            acknowledged.append(sequence)
            if len(acknowledged) == 1000:
                os.kill(broker.pid, signal.SIGKILL)
            if len(acknowledged) == 5000:
                assert used.wait(60)
                others[0].process.kill()

        origin = Origin("kill9", time.time_ns())
        publisher = Publisher(broker.address("mqtt"), origin, on_acknowledged=acknowledge)
        publisher.run(narrow(trace, clock))
        assert restarted.wait(60)
        found = [sequence for (_, _, sequence), _ in stored(str(broker.address("kafka")))]
    finally:
        broker.close()
        for other in others:
            other.close()
    print(changes)
    assert sorted(found) == sorted(acknowledged) == list(range(1, len(trace) + 1))


def test_a_broker_that_cannot_come_back_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    monkeypatch.setattr("headrace.cli.demo.broker._REFUSALS_MAX", 1)
    broker = Broker(tmp_path / "data", tmp_path / "log", lambda _: None)
    broker.start()
    try:
        definition = tmp_path / "data/streams/gpu-telemetry/stream.json"
        definition.write_text("no JSON")
        os.kill(broker.pid, signal.SIGKILL)
        with pytest.raises(StartError, match=r"does not start again: .*stream\.json"):
            broker.failure.result(60)
    finally:
        broker.close()


def test_a_broker_that_does_not_start_says_why(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    (tmp_path / "data").write_text("no folder")
    broker = Broker(tmp_path / "data", tmp_path / "log", lambda _: None)
    with pytest.raises(StartError, match=r"did not start: .*data"):
        broker.start()


def clock():
    return time.time_ns() // 1000


# --- the whole path ------------------------------------------------------------------------------


class Demo:
    """A `headrace demo --json` whose progress can be awaited."""

    def __init__(self, folder, *args):
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-m", "headrace", "demo", "--json", "--data", str(folder), *args],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.said = []
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self):
        for line in self.process.stderr:
            with self._news:
                self.said.append(line.rstrip())
                self._news.notify_all()

    def wait_for(self, text, times=1):
        with self._news:
            done = self._news.wait_for(
                lambda: sum(text in line for line in self.said) >= times, timeout=120
            )
        assert done, f"never said {text!r}: {self.said}"

    def wait_for_acknowledgements(self, lines):
        """Blocks until the journal has `lines` lines. A file wakes nobody, so it is looked at."""
        journal = self.folder / "acknowledged.txt"
        with journal.open() as file:
            seen = 0
            while seen < lines and self.process.poll() is None:
                seen += len(file.read().splitlines())
                MOMENT.wait(0.005)

    def kill_broker(self):
        pid = int(PID.search((self.folder / "broker/headrace.lock").read_text())[0])
        os.kill(pid, signal.SIGKILL)

    def result(self):
        output = self.process.stdout.read()
        code = self.process.wait(120)
        self._reader.join()
        self.process.stdout.close()
        self.process.stderr.close()
        print("\n".join(self.said))
        assert code == 0, self.said
        return json.loads(output)


@pytest.mark.spark
@pytest.mark.soak
@pytest.mark.parametrize("round_", range(4))
def test_the_line_holds_when_the_broker_is_killed_on_the_way(tmp_path, round_):
    choose = seeded(round_)
    gpus = 3
    total = gpus * 7068
    demo = Demo(tmp_path / "demo", "--gpus", str(gpus))
    demo.wait_for("broker ready")
    first = choose.randrange(1, total - 1000)
    print(f"round {round_}: first kill after {first} acknowledgements, then when Spark reads")
    demo.wait_for_acknowledgements(first)
    demo.kill_broker()
    demo.wait_for("broker restarted")
    demo.wait_for("Spark is up")
    MOMENT.wait(choose.uniform(0.0, 3.0))  # a random moment is what is asked for
    if demo.process.poll() is None:
        demo.kill_broker()
    family = descendants(demo.process.pid)
    result = demo.result()
    assert left_after(family, 0) == set()
    assert result["published"] == total
    assert result["published"] + result["resent"] == result["stored"]
    ended = result["rows"] + result["quarantined"] + result["duplicates"]
    assert result["stored"] == ended
    assert result["resent"] == result["duplicates"] == 0
    assert (result["rows"], result["quarantined"]) == (total - gpus, gpus)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("number", "moment"),
    [
        (signal.SIGKILL, "Spark is up"),
        soaked(signal.SIGTERM, "Spark is up"),
        soaked(signal.SIGINT, "Spark is up"),
        (signal.SIGINT, "broker ready"),
    ],
)
def test_nothing_outlives_the_demo(tmp_path, number, moment):
    demo = Demo(tmp_path / "demo")
    demo.wait_for(moment)
    family = descendants(demo.process.pid)
    assert len(family) >= 2, "a broker and a JVM at least"
    demo.process.send_signal(number)
    code = demo.process.wait(60)
    demo._reader.join()
    assert code == (-number if number == signal.SIGKILL else 128 + number)
    assert left_after(family, 30) == set()
    demo.process.stdout.close()
    demo.process.stderr.close()
