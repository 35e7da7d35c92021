"""`headrace bench kafka`: what it says of headrace, of a broker with faults, and of no broker."""

import json
import socket
import socketserver
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest

from conftest import environment, headrace, unused_ports
from headrace.bench.kafka import CLIENTS, FAULTS, MEASURES
from headrace.bench.kafka.load import Schedule
from headrace.bench.kafka.probes import quantiles_ms
from headrace.native import Payloads, RecordJudge
from headrace.wire.kafka.apis import PRODUCE
from headrace.wire.kafka.frames import LENGTH, decode_request, encode_response
from headrace.wire.kafka.messages import (
    ProducePartitionResponse,
    ProduceResponse,
    ProduceTopicResponse,
)

pytestmark = [pytest.mark.slow, pytest.mark.clients]

QUICK = ["--duration", "300ms", "--warm-up", "100ms", "--drain", "2s"]


def bench(*args):
    return headrace("bench", "kafka", *args, *QUICK, timeout=240)


def report(kafka, *args):
    ran = bench(*args, "--kafka", f"127.0.0.1:{kafka}", "--json")
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)["measures"]


def medians(entry):
    (server,) = entry["servers"].values()
    return server["medians"]


def test_a_schedule_is_kept_whatever_happens():
    schedule = Schedule(1_000, 1_000.0)
    assert [schedule.due(at) for at in (999, 1_000, 1_999, 2_000, 101_500)] == [0, 1, 1, 2, 101]
    assert [schedule.at_us(n) for n in (0, 1, 100)] == [1_000, 2_000, 101_000]


def test_quantiles_are_values_that_were_seen():
    assert quantiles_ms([0.004, 0.001, 0.002]) == {"p50_ms": 2, "p99_ms": 4, "max_ms": 4}
    assert quantiles_ms([]) == {"p50_ms": None, "p99_ms": None, "max_ms": None}


def test_a_judge_reads_what_senders_have_stamped():
    payloads = Payloads("t", 0, 20)
    values = payloads.take(3, due_us=100, step_us=10.0)
    judge = RecordJudge("t", 1, 20, (100, 200))
    judge.take(values[:2], 150)
    judge.take_joined(b"".join([values[2], values[2]]), 150)
    counts = judge.read([4], [4])
    assert counts["latency"].pop("max") == pytest.approx(50e-6)
    assert {name: counts[name] for name in FAULTS[:-1]} == {
        "lost": 1, "duplicated": 1, "reordered": 0, "corrupted": 0,
    }  # fmt: skip
    with pytest.raises(ValueError, match="contiguous"):
        judge.take_joined(memoryview(b"0123456789")[::2], 0)


def test_the_whole_of_it_on_one_node(shared):
    found = report(
        shared.kafka, "--pid", str(shared.process.pid), "--partitions", "2", "--connections", "50",
        "--metadata-partitions", "20",
    )  # fmt: skip
    assert list(found) == list(MEASURES)
    assert [entry["client"] for entry in found["produce"]] == list(CLIENTS)
    for entry in found["produce"] + found["latency"]:
        counts = medians(entry)
        assert counts["received"] == counts["acknowledged"] == counts["sent"] > 0
        assert [counts[name] for name in FAULTS[:-1]] == [0] * 4
        assert counts["records_per_second"] > 0
    readers = {entry["client"]: medians(entry) for entry in found["consume"]}
    assert set(readers) >= {"confluent consume", "headrace getmany"}
    assert all(each["received"] == each["acknowledged"] > 0 for each in readers.values())
    assert all(each["cpu_seconds_per_million"] >= 0 for each in readers.values())
    for entry, produced in zip(found["latency"], found["produce"], strict=True):
        counts = medians(entry)
        read = next(each for name, each in readers.items() if name.startswith(produced["client"]))
        half = min(medians(produced)["records_per_second"], read["records_per_second"]) / 2
        assert counts["asked_per_second"] == pytest.approx(half)
        assert 0 < counts["p50_ms"] <= counts["p99_ms"] <= counts["p99_9_ms"] <= counts["max_ms"]
    (connections,), (metadata,) = found["connections"], found["metadata"]
    assert medians(connections)["connections"] == 50
    assert medians(connections)["disconnected"] == 0
    assert medians(metadata)["partitions"] == 20
    assert medians(metadata)["beside_p99_ms"] > 0
    _, listed = shared.call("GET", "/api/v1/streams")
    assert not any(each["name"].startswith("bench-") for each in listed["streams"])


class Faulty(socketserver.ThreadingTCPServer):
    """Stands before a broker, and does to produce requests what it is told.

    `fault(number)` is how often the number-th one is handed on; not at all is a lie.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, port, broker, fault):
        super().__init__(("127.0.0.1", port), Session)
        self.broker = broker
        self.fault = fault
        self.number = 0


class Session(socketserver.StreamRequestHandler):
    def handle(self):
        with socket.create_connection(("127.0.0.1", self.server.broker)) as broker:
            answers = broker.makefile("rb")
            while (frame := framed(self.rfile)) is not None:
                answer = b""
                for _ in range(self.times(frame)):
                    broker.sendall(frame)
                    answer = framed(answers)
                self.request.sendall(answer or stored(frame))

    def times(self, frame):
        if int.from_bytes(frame[4:6]) != PRODUCE.key:
            return 1
        self.server.number += 1
        return self.server.fault(self.server.number)


def framed(stream):
    head = stream.read(LENGTH.size)
    return head + stream.read(*LENGTH.unpack(head)) if head else None


def stored(frame):
    """Says of a produce request that it was stored."""
    request = decode_request(frame[LENGTH.size :])
    topics = [
        ProduceTopicResponse(
            name=topic.name,
            partitions=[ProducePartitionResponse(index=e.index) for e in topic.partitions],
        )
        for topic in request.body.topics
    ]
    return b"".join(encode_response(request, ProduceResponse(topics=topics)))


@contextmanager
def faulty(start_node, fault):
    port = unused_ports()[0]
    node = start_node(HEADRACE_KAFKA__ADVERTISED=f"127.0.0.1:{port}")
    with Faulty(port, node.kafka, fault) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield port
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("client", "times", "kind"), [("confluent", 0, "lost"), ("headrace", 2, "duplicated")]
)
def test_what_a_broker_loses_or_stores_twice_is_counted(start_node, client, times, kind):
    """Every third request is acknowledged and thrown away, or stored twice."""
    with faulty(start_node, lambda number: 1 if number % 3 else times) as port:
        found = report(port, "produce", "--client", client, "--no-idempotent")
    counts = medians(found["produce"][0])
    faults = {name: counts[name] for name in FAULTS[:-1]}
    assert counts["acknowledged"] == counts["sent"] > 0
    assert faults.pop(kind) > 0
    assert set(faults.values()) <= {0}
    stored_more = counts["duplicated"] - counts["lost"]
    assert counts["received"] == counts["sent"] + stored_more


@pytest.mark.soak
def test_two_brokers_are_compared_with_settings_of_their_topics(shared, start_node):
    other = start_node()
    found = report(
        shared.kafka, "produce", "--against", f"127.0.0.1:{other.kafka}", "--rounds", "2",
        "--client", "headrace", "--topic-config", "fsync=os", "--acks", "1", "--compression", "lz4",
    )  # fmt: skip
    (entry,) = found["produce"]
    ours, theirs = entry["servers"].values()
    assert len(ours["rounds"]) == len(theirs["rounds"]) == 2
    assert entry["ratios"]["records_per_second"] == pytest.approx(
        ours["medians"]["records_per_second"] / theirs["medians"]["records_per_second"]
    )


def test_without_librdkafka_it_says_what_to_install_and_does_what_it_can(shared):
    hidden = (
        "import sys; sys.modules['confluent_kafka'] = None; from headrace import cli; cli.main()"
    )

    def run(*args):
        command = [sys.executable, "-c", hidden, "bench", "kafka", "produce", *QUICK, *args]
        return subprocess.run(
            [*command, "--kafka", f"127.0.0.1:{shared.kafka}"],
            env=environment(), capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip

    asked = run("--client", "confluent")
    assert (asked.returncode, asked.stdout) == (2, "")
    assert "pip install confluent-kafka" in asked.stderr
    able = run()
    assert able.returncode == 0, able.stderr
    assert "pip install confluent-kafka" in able.stderr
    assert "records_per_second" in able.stdout
    assert "headrace" in able.stdout


def test_what_cannot_be_run_is_said_in_a_line(shared):
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    for code, args, words in [
        (1, ["connections", "--kafka", f"127.0.0.1:{port}"], "is not reached"),
        (2, ["--payload", "15B"], "16 to 1,000,000 bytes"),
        (2, ["--idempotent", "--acks", "1"], "acks all"),
        (2, ["--topic-config", "fsync"], "KEY=VALUE"),
        (2, ["--kafka", "nowhere"], "HOST:PORT"),
        (2, ["upload"], "upload"),
        (2, ["latency", "--rate", "nan"], "nan is no number"),
        (2, ["--pid", "4194304"], "process 4194304"),
        (1, ["produce", "--topic-config", "fsynk=os"], "fsynk"),
    ]:
        where = [] if "--kafka" in args else ["--kafka", f"127.0.0.1:{shared.kafka}"]
        ran = bench(*args, *where)
        assert ran.returncode == code, ran.stderr
        assert words in ran.stderr
        assert len(ran.stderr.splitlines()) <= 3
        assert "Traceback" not in ran.stderr
