"""Live traces of a real node, over HTTP and by `headrace trace`."""

import http.client
import json
import signal
import subprocess
import sys
from contextlib import closing, contextmanager

import pytest

from conftest import environment, headrace, wait_for
from rawclient import RawMqtt

pytestmark = pytest.mark.slow

SECONDS = 60


@contextmanager
def tracing(node, query):
    """The lines of a trace that has begun; an empty one says that it has."""
    with closing(http.client.HTTPConnection("127.0.0.1", node.http, timeout=SECONDS)) as connection:
        connection.request("GET", f"/api/v1/trace?{query}")
        answer = connection.getresponse()
        assert answer.status == 200
        assert answer.readline() == b"\n"
        yield (json.loads(line) for line in answer if line.strip())


def test_a_client_is_followed(broker):
    with tracing(broker, "client=pump-1&payload=2&seconds=60") as lines:
        with RawMqtt(broker.mqtt, "pump-1") as pump, RawMqtt(broker.mqtt, "other") as other:
            other.publish("a", b"not of it", 0)
            pump.publish("a/1", b"21.5", 7)
            assert pump.puback() == 7
        seen = [next(lines) for _ in range(6)]
    assert all(each.pop("time").endswith("Z") for each in seen)
    assert all(each.pop("client") == "pump-1" for each in seen)
    assert seen[0].pop("text").startswith("MQTT 3.1.1, clean")
    publish = {"topic": "a/1", "qos": 1, "id": 7, "bytes": 13, "payload": "21"}
    assert seen == [
        {"event": "in", "packet": "CONNECT", "bytes": 20},
        {"event": "out", "packet": "CONNACK", "bytes": 4, "reason_code": 0},
        {"event": "in", "packet": "PUBLISH"} | publish,
        {"event": "drop", "topic": "a/1", "bytes": 13, "text": "no_match"},
        {"event": "out", "packet": "PUBACK", "id": 7, "bytes": 4, "reason_code": 0},
        {"event": "close", "text": "gone"},
    ]


def test_a_topic_is_followed_through_other_doors(broker):
    with tracing(broker, "topic=a/%23&seconds=60") as lines:
        broker.call("POST", "/api/v1/publish", {"topic": "a/1", "payload": "x"})
        assert next(lines)["text"] == "another door"
        assert next(lines)["event"] == "drop"


def test_a_trace_ends_with_its_time_with_who_looks_and_with_the_node(broker):
    with tracing(broker, "client=c&seconds=0.2") as lines:
        assert list(lines) == []
    for _ in range(20):  # more than may run at a time
        with tracing(broker, "client=c"):
            pass
        wait_for(lambda: broker.call("GET", "/api/v1/trace?client=c&seconds=0.01")[0] == 200)
    with tracing(broker, "client=c") as lines:
        assert broker.stop() == 0
        assert list(lines) == []


def test_so_many_may_run_at_a_time(broker):
    path = "/api/v1/trace?client=c&seconds=0.01"
    begun = [tracing(broker, "client=c") for _ in range(8)]
    for each in begun:
        each.__enter__()
    status, answer = broker.call("GET", path)
    assert (status, answer["error"]) == (503, "unavailable")
    for each in begun:
        each.__exit__(None, None, None)
    wait_for(lambda: broker.call("GET", path)[0] == 200)


@pytest.mark.parametrize(
    "query", ["", "client=a&topic=b", "topic=a%23", "client=a&seconds=3601", "client=a&payload=-1"]
)
def test_a_wrong_query_is_refused(shared, query):
    assert shared.call("GET", f"/api/v1/trace?{query}")[0] == 400


def test_the_command_prints_lines_until_it_is_told_to_end(broker):
    command = [sys.executable, "-m", "headrace", "trace", "--url", broker.url, "--client", "c"]
    process = subprocess.Popen(
        [*command, "--payload", "60"], stdout=subprocess.PIPE, env=environment()
    )
    try:
        wait_for(lambda: "a trace begins of c" in broker.log.read_text(), SECONDS)
        with RawMqtt(broker.mqtt, "c") as client:
            client.publish("a/1", b"21.5", 7)
            assert client.puback() == 7
        lines = [process.stdout.readline().decode() for _ in range(6)]
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 0
    finally:
        process.kill()
        process.communicate()
    told = [line[14:].rstrip() for line in lines]
    assert told[0].startswith("in     c  CONNECT  15 B  MQTT 3.1.1")
    assert told[2] == 'in     c  PUBLISH  a/1  id 7  QoS 1  13 B  "21.5"'
    assert told[3] == "drop   c  a/1  13 B  no_match"
    assert told[4] == "out    c  PUBACK  id 7  0x00  4 B"
    assert told[5] == "close  c  gone"


def test_a_command_ends_with_its_time_and_is_told_what_is_wrong(shared):
    done = headrace("trace", "--url", shared.url, "--topic", "x", "--for", "100ms", "--json")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    for args, told in [
        ([], "give one of --client and --topic"),
        (["--topic", "a#"], 'filter "a#"'),
        (["--client", "a", "--for", "2h"], "must be up to 1h"),
        (["--client", "a", "--for", "2"], "a duration with its unit"),
    ]:
        done = headrace("trace", "--url", shared.url, *args)
        assert done.returncode == 2
        assert told in done.stderr
