"""Connections of the HTTP door: who is ended, and who gives way to whom comes."""

import asyncio
import contextlib
import json
import socket
import urllib.request
from functools import partial
from pathlib import Path

import pytest

from conftest import wait_for
from headrace import limits
from headrace.adapters.http import HttpDoor
from headrace.kernel.catalog import Change
from headrace.model import Address
from nodes import running, settle
from secure import client_context

pytestmark = pytest.mark.slow

PUBLISH = "/api/v1/publish"
LARGE = "x" * 900_000
ENDED = 'headrace_http_connections_ended_total{reason="%s"}'


def keep_large(node):
    """Has `node` keep a message that fits into no socket's buffers."""
    kept = {"topic": "large", "payload": LARGE, "retain": True}
    assert node.call("POST", PUBLISH, kept)[0] == 200


def unread(node):
    """A connection that is being answered with that message, and reads none of it yet."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(30)
    client.connect((node.host, node.http))
    asking = b"GET /api/v1/retained/topics/large HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    client.sendall(asking + b"Connection: close\r\n\r\n")
    assert client.recv(4, socket.MSG_PEEK)
    return client


def rest(client):
    """What comes until the end of a connection."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    return b"".join(iter(partial(client.recv, 1 << 20), b""))


def begun(node, length):
    """A connection whose request is there but for its body of `length` bytes."""
    client = socket.create_connection((node.host, node.http), timeout=30)
    head = f"POST /api/v1/publish HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {length}\r\n"
    client.sendall(f"{head}Expect: 100-continue\r\n\r\n".encode())
    assert client.recv(4096).startswith(b"HTTP/1.1 100 ")
    return client


@pytest.mark.setting("http.request_timeout")
@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /health HT",
        b"POST /api/v1/publish HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n{",
    ],
    ids=["nothing", "half a head", "half a body"],
)
def test_a_request_that_does_not_come_frees_its_connection(start_node, sent):
    node = start_node(HEADRACE_HTTP__REQUEST_TIMEOUT="200ms")
    with socket.create_connection((node.host, node.http), timeout=30) as client:
        client.sendall(sent)
        answer = b"".join(iter(partial(client.recv, 4096), b""))  # to its end
    if b"POST" in sent:
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"the body did not come within 0.2 s" in answer
    else:
        assert answer == b""
    assert node.call("GET", "/health")[0] == 200


def asked(node):
    """A connection that was answered once and stays."""
    client = socket.create_connection((node.host, node.http), timeout=30)
    client.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    assert client.recv(4096).startswith(b"HTTP/1.1 200 ")
    return client


@pytest.mark.setting("http.idle_timeout")
def test_a_connection_that_asks_no_more_is_ended(start_node):
    node = start_node(HEADRACE_HTTP__IDLE_TIMEOUT="200ms")
    with asked(node) as client:
        assert client.recv(1) == b""
    assert node.metrics()[ENDED % "idle"] >= 1


@pytest.mark.setting("http.idle_timeout")
def test_a_connection_that_reads_nothing_of_its_answer_is_ended(start_node):
    node = start_node(HEADRACE_HTTP__IDLE_TIMEOUT="200ms")
    keep_large(node)
    with unread(node) as client:
        wait_for(lambda: node.metrics()[ENDED % "slow"] == 1)
        with contextlib.suppress(ConnectionResetError):
            assert len(rest(client)) < len(LARGE), "what was on its way"


def test_a_connection_that_reads_nothing_of_its_answer_over_tls_is_ended(
    start_node, server, authority
):
    """As an idle one: what it has not read is with uvloop."""
    certificate, key = server
    node = start_node(
        HEADRACE_HTTP__TLS_CERTIFICATE=str(certificate),
        HEADRACE_HTTP__TLS_KEY=str(key),
        HEADRACE_HTTP__IDLE_TIMEOUT="200ms",
    )
    url, context = f"https://127.0.0.1:{node.http}", client_context(authority)
    kept = json.dumps({"topic": "large", "payload": LARGE, "retain": True}).encode()

    def got(path, data=None):
        with urllib.request.urlopen(f"{url}{path}", data, context=context, timeout=30) as answer:
            return answer.read().decode()

    got("/api/v1/publish", kept)
    with socket.socket() as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.settimeout(30)
        raw.connect(("127.0.0.1", node.http))
        with context.wrap_socket(raw, server_hostname="127.0.0.1") as deaf:
            deaf.sendall(b"GET /api/v1/retained/topics/large HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            wait_for(lambda: f"{ENDED % 'idle'} 1" in got("/metrics"))


def test_a_connection_that_gives_way_over_tls_is_gone(start_node, server, authority):
    """A close would wait for the client's own, and nobody counts the connection meanwhile."""
    certificate, key = server
    node = start_node(
        HEADRACE_HTTP__TLS_CERTIFICATE=str(certificate), HEADRACE_HTTP__TLS_KEY=str(key)
    )
    context = client_context(authority)

    def silent():
        raw = socket.create_connection(("127.0.0.1", node.http), timeout=30)
        client = context.wrap_socket(raw, server_hostname="127.0.0.1")
        client.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert client.recv(4096).startswith(b"HTTP/1.1 200 ")
        return client

    descriptors = Path(f"/proc/{node.process.pid}/fd")
    with contextlib.ExitStack() as stack:
        stack.enter_context(silent())
        before = len(list(descriptors.iterdir()))
        for _ in range(limits.HTTP_CONNECTIONS_MAX + 60):
            stack.enter_context(silent())
        more = len(list(descriptors.iterdir())) - before
        assert more <= limits.HTTP_CONNECTIONS_MAX + 10


def test_connections_that_read_nothing_keep_nobody_out(start_node):
    """Whoever has read nothing for longest gives way, and not who goes on."""
    node = start_node()
    keep_large(node)
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(unread(node)) for _ in range(limits.HTTP_CONNECTIONS_MAX)]
        slow = clients[0]
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        begin = b"".join(slow.recv(1 << 16, socket.MSG_WAITALL) for _ in range(5))
        assert [node.call("GET", path)[0] for path in ("/health", "/ready")] == [200, 200]
        assert 1 <= node.metrics()[ENDED % "gave_way"] <= 3
        assert len(begin + rest(slow)) > len(LARGE), "it was not ended"
        with contextlib.suppress(ConnectionResetError):
            assert len(rest(clients[1])) < len(LARGE)
        assert len(rest(clients[-1])) > len(LARGE)
    assert "Traceback" not in node.log.read_text()


async def test_connections_that_are_worked_for_stay(tmp_path):
    """Beyond as many as there may be, all of whom wait for the disk, who comes is not let in."""
    body = b'{"topic": "t", "payload": ""}'
    head = b"POST /api/v1/publish HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
    request = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
    async with running(tmp_path, a=Change(filters=["t"])) as (node, store):
        door = HttpDoor(node, limits.HTTP_BODY_BYTES_MAX)
        address = await door.open(Address("127.0.0.1", 0))

        async def ask():
            reader, writer = await asyncio.open_connection(address.host, address.port)
            writer.write(request)
            try:
                return await reader.read()
            except ConnectionResetError:
                return b""
            finally:
                writer.close()

        store.held = True
        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            there = [group.create_task(ask()) for _ in range(limits.HTTP_CONNECTIONS_MAX)]
            while len(node._broker.runner._publishes) < limits.HTTP_CONNECTIONS_MAX:
                await settle()
            assert await ask() == b""
            store.held = False
            store.submit()
        assert all(each.result().startswith(b"HTTP/1.1 200 ") for each in there)
        await door.close()


def test_idle_connections_keep_nobody_out(start_node):
    node = start_node()
    keep_large(node)
    with contextlib.ExitStack() as stack:
        busy = stack.enter_context(unread(node))
        clients = [stack.enter_context(asked(node)) for _ in range(limits.HTTP_CONNECTIONS_MAX - 1)]
        assert [node.call("GET", path)[0] for path in ("/health", "/ready")] == [200, 200]
        metrics = node.metrics()
        assert metrics['headrace_connections{door="http"}'] >= limits.HTTP_CONNECTIONS_MAX - 3
        assert 1 <= metrics[ENDED % "gave_way"] <= 3
        assert clients[0].recv(1) == b"", "idle for longest"
        clients[-1].sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert clients[-1].recv(4096).startswith(b"HTTP/1.1 200 ")
        assert len(rest(busy)) > len(LARGE), "idle ones go before who does not read"


def test_requests_whose_body_does_not_come_keep_nobody_out(start_node):
    node = start_node()
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(begun(node, 34)) for _ in range(limits.HTTP_CONNECTIONS_MAX)]
        assert [node.call("GET", path)[0] for path in ("/health", "/ready")] == [200, 200]
        assert node.metrics()[ENDED % "gave_way"] >= 1
        assert clients[0].recv(1) == b"", "silent for longest"
        clients[-1].sendall(b'{"topic": "t", "payload": "a"    }')
        assert clients[-1].recv(4096).startswith(b"HTTP/1.1 200 "), "its body came in time"
    assert "Traceback" not in node.log.read_text()
