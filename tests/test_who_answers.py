"""A command that reaches somebody else than it meant says whom."""

import pytest

from conftest import headrace
from secure import port

pytestmark = pytest.mark.slow

AUTHORITY = "the file of the authority"
PUB = ["pub", "-t", "a", "-m", "x", "-p"]


@pytest.mark.parametrize(
    ("url", "listener", "told"),
    [
        ("https://127.0.0.1", "http", "no TLS is spoken there\ntry http://"),
        ("https://127.0.0.1", "mqtt", "no TLS is spoken there\ntry http://"),
        ("https://localhost", "wss", "unable to get local issuer certificate\nname its authority"),
        ("http://127.0.0.1", "wss", "speaks no HTTP\nis that the HTTP door of a node"),
        ("http://127.0.0.1", "mqtt", "speaks no HTTP\nis that the HTTP door of a node"),
    ],
)
def test_a_url_of_something_else(secured, url, listener, told):
    refused(["streams", "list", "--url", f"{url}:{port(secured, listener)}"], told)


def test_a_url_by_another_name_than_the_certificate_has(secured, authority):
    url = f"https://127.1:{port(secured, 'wss')}"
    told = "certificate is not valid for '127.1'\nreach it by a name that its certificate has"
    refused(["streams", "list", "--url", url], told, SSL_CERT_FILE=str(authority.file))


def test_a_url_with_a_path(secured):
    args = ["streams", "describe", "a", "--url", f"{secured.url}/foo"]
    refused(args, "nothing is served at /foo/api/v1/streams")


@pytest.mark.parametrize(
    ("listener", "args", "told"),
    [
        ("mqtt", ["--tls"], "no TLS is spoken there\nname the port with TLS with -p"),
        ("http", ["--tls"], "no TLS is spoken there\nname the port with TLS with -p"),
        ("mqtts", ["--tls"], "unable to get local issuer certificate\nname its authority with"),
        ("mqtts", ["-h", "127.1", "--cafile", AUTHORITY], "reach it by a name that its"),
        ("ws", ["--ws", "--ws-path", "/nope"], "serves no WebSocket at /nope\nname its path"),
        ("mqtt", ["--ws"], "serves no WebSocket at /mqtt\nname its path"),
    ],
)
def test_a_broker_that_is_another(secured, authority, listener, args, told):
    args = [str(authority.file) if each is AUTHORITY else each for each in args]
    refused([*PUB, str(port(secured, listener)), *args], told)


def refused(command, told, **extra):
    done = headrace(*command, **extra)
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert told in done.stderr
    assert "start one with" not in done.stderr
    assert len(done.stderr.splitlines()) <= 3
