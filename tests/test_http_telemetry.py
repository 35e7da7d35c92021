"""Telemetry through the HTTP door: who may ask, and what becomes of answers on their way."""

import contextlib
import http.client
import socket
import threading

import pytest

from apiserver import POWER, RunningApi, day
from conftest import unused_ports, wait_for
from test_access import basic, put_users

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    root = tmp_path_factory.mktemp("api") / "tables"
    day(root)
    server = RunningApi(root)
    yield server
    server.close()


PATHS = (
    "/api/v1/gpus?limit=1",
    "/api/v1/gpus/GPU-1",
    f"/api/v1/gpus/GPU-1/telemetry?metric_name={POWER}&window=1m",
    "/api/v1/gpus/GPU%2D1/metrics",
    "/api/v1/detections?open=true",
    "/api/v1/fleet/summary",
    "/api/v1/gpus/none",
    "/api/v1/gpus/GPU-1%2F2",
    "/api/v1/gpus?hots=1",
)


@pytest.mark.setting("pipeline.api")
def test_answers_are_those_of_the_api(api, start_node):
    node = start_node(HEADRACE_PIPELINE__API=api.url)
    for path in PATHS:
        assert node.call("GET", path) == api.get(path), path
    assert node.metrics()['headrace_http_telemetry_requests_total{outcome="answered"}'] == 9
    assert node.call("POST", "/api/v1/gpus", {})[0] == 405
    assert node.call("GET", "/api/docs")[0] == 404


@pytest.mark.parametrize(
    "path",
    ["/api/v1/gpus/../../../metrics", "/api/v1/gpus/x/./y", "/api/v1/fleet/%2e%2e/gpus",
     "/api/v1/gpus/a%2F..%2F..%2F..%2Fhealth"],
)  # fmt: skip
def test_no_path_leads_elsewhere(api, start_node, path):
    node = start_node(HEADRACE_PIPELINE__API=api.url)
    with socket.create_connection(("127.0.0.1", node.http), timeout=60) as client:
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert client.recv(65_536).startswith(b"HTTP/1.1 404 ")
    assert node.metrics()['headrace_http_telemetry_requests_total{outcome="answered"}'] == 0


@pytest.mark.setting("pipeline.api_bind")
def test_the_api_listens_where_the_settings_say(api, tmp_path):
    del api
    port = unused_ports()[0]
    day(tmp_path / "tables", gpus=1, scrapes=10)
    extra = {"HEADRACE_PIPELINE__API_BIND": f"127.0.0.1:{port}"}
    server = RunningApi(tmp_path / "tables", bind=None, **extra)
    try:
        assert server.url == f"http://127.0.0.1:{port}"
        assert len(server.ok("/api/v1/gpus")["gpus"]) == 1
    finally:
        server.close()


def test_a_node_that_knows_no_api_says_what_to_do(broker):
    status, told = broker.call("GET", "/api/v1/gpus")
    assert (status, told["error"]) == (503, "unavailable")
    assert "name its URL in [pipeline] api" in told["detail"]


def test_an_api_that_is_away_is_said_and_comes_by_a_reload(api, start_node, tmp_path):
    port = unused_ports()[0]
    file = tmp_path / "headrace.toml"
    file.write_text(f'[pipeline]\napi = "http://127.0.0.1:{port}"\n')
    node = start_node("--config", str(file))
    status, told = node.call("GET", "/api/v1/detections")
    assert status == 503
    assert f"http://127.0.0.1:{port} cannot be reached" in told["detail"]
    file.write_text(f'[pipeline]\napi = "{api.url}/"\n')
    assert node.call("POST", "/api/v1/config/reload")[1]["changed"] == ["pipeline.api"]
    assert node.call("GET", "/api/v1/detections") == api.get("/api/v1/detections")


def test_a_node_that_is_its_own_api_asks_itself_once(start_node):
    ports = unused_ports()
    node = start_node(ports=ports, HEADRACE_PIPELINE__API=f"http://127.0.0.1:{ports[2]}")
    status, told = node.call("GET", "/api/v1/gpus")
    assert status == 503
    assert "is this node itself" in told["detail"]


RULES = """
[[access.rules]]
deny = ["read"]
users = ["mallory"]
streams = ["gpu-telemetry"]

[[access.rules]]
allow = ["all"]
"""


def test_users_may_ask_where_they_may_read_the_stream(api, start_node, tmp_path):
    put_users(tmp_path / "data", {"ann:horse": ["admin"], "bob:cart": [], "mallory:disc": []})
    file = tmp_path / "headrace.toml"
    file.write_text(f'{RULES}\n[pipeline]\napi = "{api.url}"\n')
    node = start_node("--config", str(file))
    for path in PATHS:
        assert node.call("GET", path)[0] == 401
        assert node.call("GET", path, **basic("bob:cart")) == api.get(path)
        assert node.call("GET", path, **basic("ann:horse")) == api.get(path)
        status, told = node.call("GET", path, **basic("mallory:disc"))
        assert (status, told["error"]) == (403, "forbidden")
        assert "no rule lets you read the stream 'gpu-telemetry'" in told["detail"]
    assert node.call("GET", "/api/v1/sessions", **basic("bob:cart"))[0] == 403


# --- an API that does not do well -----------------------------------------------------------------


@pytest.fixture
def stub():
    """Starts servers that answer each connection with some bytes, and then hang or close."""
    with contextlib.ExitStack() as stack:

        def start(pieces, *, hangs):
            listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            ended = threading.Event()
            stack.callback(ended.set)

            def serve():
                with contextlib.suppress(OSError):
                    while True:
                        client, _ = listening.accept()
                        with client:
                            client.recv(65_536)
                            for piece in pieces:
                                client.sendall(piece)
                            if hangs:
                                ended.wait(60)

            threading.Thread(target=serve, daemon=True).start()
            return f"http://127.0.0.1:{listening.getsockname()[1]}"

        yield start


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


def test_an_answer_that_stops_half_way_ends_the_connection(start_node, stub):
    url = stub([HEAD + b"Content-Length: 100\r\n\r\n", b"half"], hangs=False)
    node = start_node(HEADRACE_PIPELINE__API=url)
    client = http.client.HTTPConnection("127.0.0.1", node.http, timeout=60)
    client.request("GET", "/api/v1/gpus")
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        client.getresponse().read()
    client.close()
    cut = 'headrace_http_telemetry_requests_total{outcome="cut"}'
    wait_for(lambda: node.metrics()[cut] == 1)


def test_an_answer_without_an_end_is_cut_and_holds_no_memory(start_node, stub):
    piece = b"100000\r\n" + b"x" * 0x100000 + b"\r\n"
    url = stub([HEAD + b"Transfer-Encoding: chunked\r\n\r\n", *[piece] * 80], hangs=True)
    node = start_node(HEADRACE_PIPELINE__API=url)
    before = node.resident_bytes()
    client = http.client.HTTPConnection("127.0.0.1", node.http, timeout=60)
    client.request("GET", "/api/v1/gpus")
    response, got = client.getresponse(), 0
    with contextlib.suppress(http.client.IncompleteRead, ConnectionError):
        while data := response.read(1 << 16):
            got += len(data)
    client.close()
    assert (1 << 25) < got <= 1 << 26
    assert node.resident_bytes() - before < 1 << 25


def test_a_silent_api_holds_up_nobody_else(start_node, stub):
    node = start_node(HEADRACE_PIPELINE__API=stub([], hangs=True))
    clients = []
    for _ in range(20):  # more than there are connections to it
        client = http.client.HTTPConnection("127.0.0.1", node.http, timeout=60)
        client.request("GET", "/api/v1/gpus")
        clients.append(client)
    for _ in range(20):
        assert node.call("GET", "/health")[0] == 200
        assert node.call("GET", "/api/v1/streams")[0] == 200
    assert node.stop() == 0
    for client in clients:
        client.close()


def test_an_answer_that_is_no_http_is_503(start_node, stub):
    node = start_node(HEADRACE_PIPELINE__API=stub([b"220 mail\r\n"], hangs=False))
    status, told = node.call("GET", "/api/v1/gpus")
    assert (status, told["error"]) == (503, "unavailable")
