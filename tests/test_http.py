"""The HTTP door on a real node: health, metrics, streams, publish, errors, bounds."""

import base64
import gzip
import http.client
import json
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from prometheus_client.parser import text_string_to_metric_families

from conftest import headrace
from headrace.settings import SETTINGS
from rawclient import RawConnection, RawMqtt

pytestmark = pytest.mark.slow

STREAMS = "/api/v1/streams"
LARGE = "x" * 1_200_000
PUBLISH = "/api/v1/publish"


def test_health_and_ready(shared):
    assert shared.call("GET", "/health") == (200, {"status": "ok", "node": "headrace"})
    assert shared.call("GET", "/ready") == (200, {"status": "ready", "reason": ""})


def test_a_stream_lives(broker):
    body = {"name": "a", "partitions": 2, "filters": ["x/#"], "key": "level:2"}
    status, created = broker.call("POST", STREAMS, body)
    assert status == 201
    assert created["effective"].keys() == SETTINGS.keys()
    assert {key: value for key, value in created.items() if key != "effective"} == {
        "name": "a",
        "kind": "stream",
        "filters": ["x/#"],
        "key": "level:2",
        "settings": {},
        "partitions": [
            {"partition": 0, "start": 0, "end": 0, "size_bytes": 0},
            {"partition": 1, "start": 0, "end": 0, "size_bytes": 0},
        ],
    }
    assert broker.call("GET", f"{STREAMS}/a") == (200, created)
    _, listed = broker.call("GET", STREAMS)
    assert [stream["name"] for stream in listed["streams"]] == ["a", "gpu-telemetry"]

    change = {"partitions": 3, "settings": {"max.message.bytes": "2KiB"}}
    status, altered = broker.call("PATCH", f"{STREAMS}/a", change)
    assert status == 200
    assert len(altered["partitions"]) == 3
    assert altered["settings"] == {"max.message.bytes": 2048}
    assert (altered["filters"], altered["key"]) == (["x/#"], "level:2")

    assert broker.call("DELETE", f"{STREAMS}/a") == (200, {"deleted": "a"})
    assert broker.call("GET", f"{STREAMS}/a")[0] == 404
    assert not (broker.data / "streams" / "a").exists()


def test_a_stream_of_an_old_name_begins_empty(start_node):
    node = start_node()
    node.create_stream("a", filters=["x"])
    assert node.call("POST", PUBLISH, {"topic": "x", "payload": "1"})[1] == {"stored": 1}
    node.call("DELETE", f"{STREAMS}/a")
    node.create_stream("a", filters=["x"])
    assert node.ends("a") == [0]
    node.kill()
    assert start_node.again(node).ends("a") == [0]


def test_filters_change_live(broker):
    broker.create_stream("a", filters=["x"])
    with RawMqtt(broker.mqtt, "c") as client:
        client.publish("y", b"before", 1)
        assert client.puback() == 1
        assert broker.ends("a") == [0]
        broker.call("PATCH", f"{STREAMS}/a", {"filters": ["y"]})
        client.publish("y", b"after", 2)
        assert client.puback() == 2
        assert broker.ends("a") == [1]


def test_publish_is_durable_in_every_stream_that_matches_when_it_answers(start_node):
    node = start_node()
    node.create_stream("a", filters=["t/#"])
    node.create_stream("b", filters=["+/1"])
    publish = {"topic": "t/1", "payload": "hello", "qos": 1, "properties": {"source": "test"}}
    assert node.call("POST", PUBLISH, publish) == (200, {"stored": 2})
    node.kill()
    again = start_node.again(node)
    assert (again.ends("a"), again.ends("b")) == ([1], [1])


def test_a_publish_of_a_replaced_publisher_is_refused(broker):
    broker.create_stream("a", filters=["t"])
    for epoch, sequence, answer in [("2", "0", 200), ("1", "1", 409), ("2", "0", 200)]:
        properties = {"source": "s", "epoch": epoch, "sequence": sequence}
        body = {"topic": "t", "payload": "", "properties": properties}
        status, _ = broker.call("POST", PUBLISH, body)
        assert status == answer
    assert broker.ends("a") == [1]


def test_publish_reaches_subscribers(shared):
    with RawMqtt(shared.mqtt, "c") as client:
        client.socket.sendall(b"\x82\x06\x00\x01\x00\x01t\x01")
        assert client.read(5) == b"\x90\x03\x00\x01\x01"
        encoded = base64.b64encode(b"\x00\xff").decode()
        body = {"topic": "t", "payload_base64": encoded, "qos": 0}
        assert shared.call("POST", PUBLISH, body) == (200, {"stored": 0})
        assert client.read(7) == b"\x30\x05\x00\x01t\x00\xff"


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "error", "detail"),
    [
        ("GET", "/nope", None, 404, "not_found", ""),
        ("POST", "/health", {}, 405, "method_not_allowed", ""),
        ("GET", f"{STREAMS}/nope", None, 404, "unknown_stream", "no stream is named 'nope'"),
        ("PATCH", f"{STREAMS}/nope", {}, 404, "unknown_stream", "no stream is named 'nope'"),
        ("DELETE", f"{STREAMS}/nope", None, 404, "unknown_stream", "no stream is named 'nope'"),
        ("POST", STREAMS, {"name": "gpu-telemetry"}, 409, "stream_exists", "exists"),
        ("POST", STREAMS, {"name": "a/b"}, 400, "invalid_stream", "a stream's name is"),
        ("POST", STREAMS, {"name": "__a"}, 400, "invalid_stream", "the node's own"),
        ("POST", STREAMS, {"name": "a", "partitions": 0}, 400, "invalid_stream", "from 1 to 1024"),
        ("POST", STREAMS, {"name": "a", "partitions": "1"}, 400, "bad_request", "partitions: "),
        ("POST", STREAMS, {"name": "a", "filters": ["a/#/b"]}, 400, "invalid_stream", "a/#/b"),
        ("POST", STREAMS, {"name": "a", "filters": ["$SYS/#"]}, 400, "invalid_stream", "never m"),
        ("POST", STREAMS, {"name": "a", "key": "colour"}, 400, "invalid_stream", "colour"),
        ("POST", STREAMS, {"name": "a", "partition": 1}, 400, "bad_request", "mean 'partitions'"),
        (
            "POST", STREAMS, {"name": "a", "settings": {"retention.ms": True}}, 400, "bad_request",
            "settings.retention.ms: must be a text or a number; got True",
        ),
        ("POST", STREAMS, {}, 400, "bad_request", "name: field required"),
        ("POST", STREAMS, b"{", 400, "bad_request", "the body: invalid JSON"),
        ("POST", STREAMS, b"\xff", 400, "bad_request", "the body: "),
        ("PATCH", f"{STREAMS}/gpu-telemetry", {"partitions": 1}, 400, "invalid_stream", "shrink"),
        ("POST", PUBLISH, {"topic": "a/#", "payload": ""}, 400, "invalid_topic", ""),
        ("POST", PUBLISH, {"topic": "", "payload": ""}, 400, "invalid_topic", ""),
        ("POST", PUBLISH, {"topic": "a"}, 400, "bad_request", "payload_base64"),
        ("POST", PUBLISH, {"topic": "a", "payload": {}}, 400, "bad_request", "payload: "),
        ("POST", PUBLISH, {"topic": "a", "payload": "", "qos": 2}, 400, "bad_request", "qos: "),
        ("POST", PUBLISH, {"topic": "a", "payload_base64": "%"}, 400, "bad_request", "base64"),
        ("POST", PUBLISH, {"topic": "a", "payload_base64": "é"}, 400, "bad_request", "base64"),
        ("DELETE", f"{STREAMS}/gpu-telemetry?group=g", None, 400, "bad_request", "'group': a del"),
        ("DELETE", "/api/v1/groups/g?stream=a", None, 400, "bad_request", "'stream': a deletion"),
        ("POST", PUBLISH, {"topic": "a", "payload": LARGE}, 413, "message_too_large", "packet_b"),
        ("POST", PUBLISH, b"x" * 3_000_000, 413, "request_entity_too_large", ""),
    ],
)  # fmt: skip
def test_errors_say_what_is_wrong(shared, method, path, body, status, error, detail):
    answered, problem = shared.call(method, path, body)
    assert (answered, problem["error"]) == (status, error)
    assert detail in problem["detail"]
    assert "\n" not in problem["detail"]


def test_pages_of_other_sites_may_not_call(shared):
    publish = {"topic": "a", "payload": "x"}
    for origin in ("http://evil.example", "null", "http://[::1"):
        status, problem = shared.call("POST", PUBLISH, publish, Origin=origin)
        assert (status, problem["error"]) == (403, "forbidden")
    status, problem = shared.call("GET", STREAMS, None, Host="evil.example")
    assert (status, problem["error"]) == (403, "forbidden")
    assert shared.call("GET", "/health", None, Host="evil.example")[0] == 200
    assert shared.call("POST", PUBLISH, publish, Origin=shared.url)[0] == 200


@pytest.mark.parametrize(
    ("sent", "status", "detail"),
    [
        (b"GET * HTTP/1.1\r\n", 400, "no HTTP request: *"),
        (b"GET /\x01 HTTP/1.1\r\n", 400, "url path"),
        (b"GET /" + b"x" * 300_000 + b"\r\n", 400, "204800 bytes"),
        (b"GET /health HTTP/1.1\r\nX: " + b"y" * 20_000 + b"\r\n", 400, "8190 bytes"),
        (b"GET /health HTTP/1.1\r\n" + b"X: y\r\n" * 2_000, 400, "Too many headers"),
        (b"G@T /health HTTP/1.1\r\n", 400, "Invalid method"),
        (b"GET /health HTTP/9.1\r\n", 400, "HTTP version"),
        (b"POST /health HTTP/1.1\r\n" + 2 * b"Content-Length: 1\r\n", 400, "Content-Length"),
        (
            b"POST /health HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nz\r\n",
            400,
            "chunk size",
        ),
        (b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nExpect: x\r\n", 417, "Expect: x"),
        (b"\x16\x03\x01\r\n", 400, "HTTPS"),
        (b"?\r\n", 400, "Invalid method"),
    ],
)
def test_what_is_no_request_is_refused_in_one_line_and_leaves_no_trace_in_the_log(
    start_node, sent, status, detail
):
    node = start_node()
    with RawConnection(node.http) as client:
        client.socket.sendall(sent + b"Connection: close\r\n\r\n")
        answered = http.client.HTTPResponse(client.socket)
        answered.begin()
        lines = answered.read().decode().splitlines(keepends=True)
    assert (answered.status, len(lines), lines[0][-1]) == (status, 1, "\n")
    assert answered.getheader("Content-Type") == "application/json; charset=utf-8"
    problem = json.loads(lines[0])
    assert problem["error"] == answered.reason.lower().replace(" ", "_")
    assert detail in problem["detail"]
    assert "\n" not in problem["detail"]
    assert node.stop() == 0
    assert "Traceback" not in node.log.read_text()


def test_who_hangs_up_within_a_body_leaves_no_trace_in_the_log(start_node):
    node = start_node()
    with RawConnection(node.http) as client:
        head = (
            f"POST {PUBLISH} HTTP/1.1\r\nHost: 127.0.0.1:{node.http}\r\nContent-Length: 9\r\n\r\n"
        )
        client.socket.sendall(head.encode() + b"{")
        assert node.call("GET", "/health")[0] == 200
    assert node.call("GET", "/health")[0] == 200
    assert node.stop() == 0
    assert "Traceback" not in node.log.read_text()


def test_a_compressed_body_is_not_unpacked(shared):
    body = gzip.compress(json.dumps({"topic": "a", "payload": "x"}).encode())
    status, problem = shared.call("POST", PUBLISH, body, **{"Content-Encoding": "gzip"})
    assert (status, problem["error"]) == (400, "bad_request")


def test_metrics_are_prometheus(broker):
    with RawMqtt(broker.mqtt, "c") as client:
        client.publish("dcgm/h/u/m", b"1", 1)
        assert client.puback() == 1
        _, text = broker.call("GET", "/metrics")
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert all(name.startswith("headrace_") for name in families)
    samples = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in families.values()
        for sample in family.samples
    }
    assert samples["headrace_connections", ("door", "mqtt")] == 1
    assert samples["headrace_node_state", ("node", "headrace"), ("state", "ready")] == 1
    assert samples[("headrace_mqtt_messages_stored_total",)] == 1
    assert samples[("headrace_process_resident_memory_bytes",)] > 1e6
    assert samples["headrace_log_append_seconds_bucket", ("le", "+Inf")] >= 1
    ends = [value for key, value in samples.items() if key[0] == "headrace_stream_end_offset"]
    assert sum(ends) == 1


# --- the command ----------------------------------------------------------------------------------


def streams(node, *arguments):
    return headrace("streams", *arguments, HEADRACE_URL=node.url)


def test_the_command_manages_streams(broker):
    created = streams(
        broker, "create", "a", "--partitions", "2", "--filter", "x/#", "--filter", "y",
        "--key", "level:2", "--set", "max.message.bytes=1MiB", "--json",
    )  # fmt: skip
    assert created.returncode == 0, created.stderr
    stream = json.loads(created.stdout)
    assert (stream["name"], len(stream["partitions"]), stream["filters"]) == ("a", 2, ["x/#", "y"])
    assert stream["settings"] == {"max.message.bytes": 1_048_576}

    listed = streams(broker, "list")
    assert [
        line.split()[:2] for line in listed.stdout.splitlines() if line.strip()[:1] in {"a", "g"}
    ] == [
        ["a", "2"],
        ["gpu-telemetry", "12"],
    ]
    assert [
        each["name"] for each in json.loads(streams(broker, "list", "--json").stdout)["streams"]
    ] == [
        "a",
        "gpu-telemetry",
    ]

    long = "long-" * 40
    broker.create_stream(long, filters=["x" * 100])
    row = next(line for line in streams(broker, "list").stdout.splitlines() if long in line)
    assert row.split() == [long, "1", "0", "0", "x" * 100, "topic", "stream"], "a pipe cuts nothing"

    shown = [line.split() for line in streams(broker, "describe", "a").stdout.splitlines()]
    assert ["max.message.bytes", "1MiB", "stream"] in shown
    assert ["retention.ms", "unlimited", "node"] in shown, "as the tests' nodes are configured"
    assert ["segment.ms", "7d", "default"] in shown
    described = json.loads(streams(broker, "describe", "a", "--json").stdout)
    assert described["effective"].keys() == SETTINGS.keys()
    assert described["effective"]["retention.ms"] == {"value": -1, "source": "node"}
    altered = streams(
        broker, "alter", "a", "--partitions", "4", "--no-filters", "--key", "topic",
        "--unset", "max.message.bytes", "--json",
    )  # fmt: skip
    stream = json.loads(altered.stdout)
    assert (len(stream["partitions"]), stream["filters"], stream["key"]) == (4, [], "topic")
    assert stream["settings"] == {}
    assert json.loads(streams(broker, "delete", "a", "--json").stdout) == {"deleted": "a"}
    missing = streams(broker, "describe", "a", "--json")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert (
        missing.stderr == "headrace: no stream is named 'a'; known: gpu-telemetry, " + long + "\n"
    )
    for arguments in (["describe"], ["alter", "--key", "topic"], ["delete", "--yes"]):
        near = streams(broker, *arguments, "gpu-telemtry")
        assert near.returncode == 1
        assert near.stderr.endswith("; did you mean 'gpu-telemetry'?\n")


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (["create"], 2, "Missing argument 'NAME'"),
        (["create", "a", "--set", "x"], 2, "--set takes KEY=VALUE"),
        (["create", "a", "--partitions", "0"], 2, "partitions must be from 1 to 1024"),
        (["create", "a", "--set", "min.insync.replicas=2"], 2, "and not served here; remove it"),
        (["create", "gpu-telemetry"], 1, "exists"),
        (
            ["create", "a", "--set", "fsync=os", "--set", "fsync=commit"],
            2,
            "is given twice",
        ),
        (["create", "a", "--key", ""], 2, "key"),
        (["alter", "gpu-telemetry", "--key", ""], 2, "key"),
        (
            ["alter", "gpu-telemetry", "--set", "fsync=os", "--unset", "fsync"],
            2,
            "--set and --unset of fsync contradict each other",
        ),
        (["list", "--url", "ftp://x"], 2, "--url must begin with http://"),
        (["list", "--url", "http://127.0.0.1:1"], 1, "start one with: headrace serve"),
        (["list", "--url", "http://127.0.0.1:x"], 2, "'x'"),
        (["list", "--url", "http://127.0.0.1:99999"], 2, "port out of range 0-65535"),
        (["list", "--url", "http://[::1"], 2, "invalid IPv6 URL"),
        (["list", "--url", "http://"], 2, "--url takes http://HOST:PORT"),
        (["alter", "gpu-telemetry", "--filter", "a", "--no-filters"], 2, "contradict each other"),
        (["alter", "gpu-telemetry"], 2, "nothing to change; give an option"),
        (
            ["create", "a", "--partitions"],
            2,
            "'--partitions' requires an argument.\ntry: headrace streams create --help",
        ),
        ([], 2, "a command is missing\ntry: headrace streams --help"),
    ],
)
def test_the_command_says_what_is_wrong(shared, arguments, code, error):
    refused = streams(shared, *arguments)
    assert refused.returncode == code
    assert error in refused.stderr
    assert 1 <= len(refused.stderr.splitlines()) <= 3
    assert refused.stdout == ""


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_an_answer_of_something_else_is_no_nodes_answer(tmp_path, more):
    (tmp_path / "api" / "v1").mkdir(parents=True)
    (tmp_path / "api" / "v1" / "streams").write_text("[1]")
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as other:
        serving = threading.Thread(target=other.serve_forever)
        serving.start()
        try:
            url = f"http://127.0.0.1:{other.server_port}"
            refused = headrace("streams", "list", *more, HEADRACE_URL=url)
        finally:
            other.shutdown()
            serving.join()
    assert (refused.returncode, refused.stdout) == (1, "")
    assert f"no node answers at {url}: what listens there is something else" in refused.stderr


def test_a_quality_of_service_is_a_number(shared):
    status, answer = shared.call("POST", PUBLISH, {"topic": "t", "payload": "", "qos": True})
    assert (status, answer["error"]) == (400, "bad_request")
    assert answer["detail"].startswith("qos: ")
