"""Who may produce and consume at the frame door: users, rules, certificates, proxies."""

import base64
import contextlib
import signal
import socket

import pytest

from conftest import headrace
from frameclient import Ending, FrameConnection, Mark, frame
from secure import client_context
from test_proxy import TEXT

RULES = """
[[access.rules]]
allow = ["all"]
roles = ["admin"]

[[access.rules]]
allow = ["write"]
users = ["meter"]
streams = ["readings"]

[[access.rules]]
allow = ["read"]
users = ["view", "d.example.org"]
streams = ["readings"]
"""


@pytest.fixture
def guarded(tmp_path, start_node):
    """A node with users and rules, and more settings."""

    def start(**extra):
        data, file = tmp_path / "data", tmp_path / "headrace.toml"
        for name, options in (("ann", ["--role", "admin"]), ("meter", []), ("view", [])):
            secret = tmp_path / "secret"
            secret.write_text(f"{name}-secret")
            path = ["--data", str(data), "--password-file", str(secret)]
            done = headrace("users", "add", name, *options, *path)
            assert done.returncode == 0, done.stderr
        file.write_text(RULES)
        node = start_node("--config", str(file), data=data, **extra)
        for name in ("readings", "others"):
            status, answer = call(node, "POST", "/api/v1/streams", {"name": name, "partitions": 1})
            assert status == 201, answer
        return node, file

    return start


def call(node, method, path, body):
    basic = base64.b64encode(b"ann:ann-secret").decode()
    return node.call(method, path, body, Authorization=f"Basic {basic}")


def login(name):
    return {"username": name, "password": f"{name}-secret"}


def test_users_and_rules(guarded):
    node, file = guarded()
    with FrameConnection(node, "readings", **login("meter")) as client:
        client.send(frame(b"k", b"v"))
        client.acknowledged(1)
        for members, code in (
            ({}, 58),
            ({"username": "meter"}, 58),
            ({"password": "meter-secret"}, 58),
            ({"username": "meter", "password": "wrong"}, 58),
            ({"username": "nobody", "password": "wrong"}, 58),
            (login("view"), 29),
        ):
            with FrameConnection(node, "readings", **members) as other:
                assert other.answer["code"] == code, other.answer
        for name in ("others", "none"):  # there or not
            with FrameConnection(node, name, **login("meter")) as other:
                assert other.answer["code"] == 29
        with FrameConnection(node, "__offsets", **login("ann")) as other:
            assert other.answer["code"] == 17
        with FrameConnection(node, "readings", "consume", offset=0, **login("view")) as reader:
            assert reader.next().value == b"v"
            assert reader.next() == Mark(1)
            # What changes holds for who is connected.
            file.write_text(RULES.replace('users = ["meter"]', 'users = ["no-one"]'))
            node.process.send_signal(signal.SIGHUP)
            ending = None
            while ending is None:
                client.send(frame(b"k", b"v"))
                answer = client.answered()
                ending = answer if isinstance(answer, Ending) else None
            assert ending == (29, "you may not write a stream of this name")
            status, _ = call(node, "DELETE", "/api/v1/users/view", None)
            assert status in {200, 204}
            with FrameConnection(node, "readings", **login("ann")) as admin:
                admin.send(frame(b"k", b"last"))
                admin.acknowledged(1)
            *_, last = iter(reader.next, None)
            assert last == Ending(58, "the user has gone")
    refused = 'headrace_access_refused_total{door="frame",reason="%s"}'
    _, text = call(node, "GET", "/metrics", None)
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")
    assert float(lines[refused % "wrong"]) == 4
    assert float(lines[refused % "anonymous"]) == 1


def test_a_certificate_names_who_a_client_is(guarded, authority, server):
    certificate, key = server
    node, _ = guarded(
        HEADRACE_FRAME__TLS_CERTIFICATE=str(certificate),
        HEADRACE_FRAME__TLS_KEY=str(key),
        HEADRACE_FRAME__TLS_CLIENT_CA=str(authority.file),
        HEADRACE_FRAME__TLS_CLIENT_AUTH="optional",
        HEADRACE_ACCESS__CERTIFICATES="any",
    )
    own = authority.issue("device", "d.example.org", common_name="d.example.org")

    def connect(context, *arguments, **members):
        plain = socket.create_connection(("127.0.0.1", node.frame), timeout=30)
        secure = context.wrap_socket(plain, server_hostname="localhost")
        return FrameConnection(node, *arguments, sock=secure, **members)

    with connect(client_context(authority, own), "readings", "consume", offset=0) as client:
        assert client.answer["ok"]
        assert client.next() == Mark(0)
        with connect(client_context(authority), "readings", **login("meter")) as writer:
            writer.send(*(frame(b"k", b"%d" % number) for number in range(3000)))
            writer.acknowledged(3000)
        assert [each.value for each in client.records(3000)] == [b"%d" % n for n in range(3000)]
    with connect(client_context(authority, own), "readings") as client:
        assert client.answer["code"] == 29


@pytest.mark.setting("frame.proxy_protocol", "frame.proxy_trusted")
def test_the_frame_door_trusts_some_proxies(start_node):
    node = start_node(HEADRACE_FRAME__PROXY_PROTOCOL="true")
    node.create_stream("s", partitions=1)
    with socket.create_connection(("127.0.0.1", node.frame), timeout=30) as sock:
        sock.sendall(TEXT)
        with FrameConnection(node, "s", sock=sock) as client:
            client.send(frame(b"k", b"v"))
            sock.shutdown(socket.SHUT_WR)  # which passes the header's layer
            assert client.rest() == ([(0, 0)], None)
    settings = {
        "HEADRACE_FRAME__PROXY_PROTOCOL": "true",
        "HEADRACE_FRAME__PROXY_TRUSTED": "192.0.2.0/24",
    }
    node = start_node(data=node.data.with_name("other"), **settings)
    with (
        socket.create_connection(("127.0.0.1", node.frame), timeout=30) as sock,
        contextlib.suppress(ConnectionError),
    ):
        sock.sendall(TEXT)
        assert sock.recv(1) == b""
    refused = 'headrace_connections_refused_total{door="frame",reason="proxy_untrusted"}'
    assert node.metrics()[refused] == 1
