"""`headrace sessions` and `headrace retained` on a real node."""

import json
import re

import pytest

from conftest import headrace
from rawclient import RawMqtt

pytestmark = pytest.mark.slow

URL = "HEADRACE_URL"


@pytest.fixture
def command(broker):
    def run(*args):
        done = headrace(*args, **{URL: broker.url})
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_sessions_are_listed_shown_disconnected_and_deleted(broker, command):
    with RawMqtt(broker.mqtt, "pump-1") as pump, RawMqtt(broker.mqtt, "other"):
        pump.socket.sendall(b"\x82\x08\x00\x01\x00\x03a/#\x01")
        assert pump.read(5) == b"\x90\x03\x00\x01\x01"
        listed = command("sessions", "list")
        assert "pump-1" in listed
        assert "other" in listed
        told = json.loads(command("sessions", "list", "pump-*", "--connected", "--json"))
        assert [each["client"] for each in told["sessions"]] == ["pump-1"]
        assert told["complete"]
        shown = command("sessions", "show", "pump-1")
        assert "session pump-1: connected" in shown
        assert "MQTT 3.1.1" in shown
        assert "a/#" in shown
        told = json.loads(command("sessions", "show", "pump-1", "--json"))
        assert told["filters"][0]["filter"] == "a/#"
        assert (
            json.loads(command("sessions", "list", "--limit", "1", "--json"))["complete"] is False
        )
        assert command("sessions", "disconnect", "pump-1") == "disconnected pump-1\n"
        assert pump.socket.recv(1) == b""
        assert command("sessions", "delete", "other") == "deleted other\n"


def test_times_are_told_in_days_and_hours(broker, command):
    place = ("--mqtt", f"127.0.0.1:{broker.mqtt}")
    session = ("-i", "for-days", "-c", "-x", str(14 * 86_400), "-t", "days/#", "-E")
    assert headrace("sub", *place, *session).returncode == 0
    shown = command("sessions", "show", "for-days")
    assert re.search(r"session for-days: away, ends in (14 d|13 d 23 h)\n", shown)
    assert "expires 14 d after its connection" in shown
    command("sessions", "delete", "for-days")


def test_retained_messages_are_listed_shown_counted_and_deleted(broker, command):
    headrace(
        "pub", "--mqtt", f"127.0.0.1:{broker.mqtt}", "-t", "a/1", "-m", "x\ny", "-r", "-q", "1"
    )
    headrace("pub", "--mqtt", f"127.0.0.1:{broker.mqtt}", "-t", "a/2", "-m", "z" * 99, "-r",
             "-q", "1", "-D", "publish", "message-expiry-interval", "3600")  # fmt: skip
    listed = command("retained", "list", "a/+")
    assert "x·y" in listed
    assert "z" * 60 + "…" in listed
    assert "never" in listed
    assert command("retained", "show", "a/1") == "x\ny"
    assert json.loads(command("retained", "show", "a/2", "--json"))["payload"] == "z" * 99
    assert command("retained", "count") == "2\n"
    assert json.loads(command("retained", "count", "a/1", "--json")) == {"count": 1}
    assert command("retained", "delete", "a/#") == "deleted 2\n"
    assert json.loads(command("retained", "list", "--json")) == {"messages": [], "complete": True}


@pytest.mark.parametrize(
    ("args", "code", "told"),
    [
        (["sessions", "show", "x/y"], 1, "no session is named 'x/y'"),
        (["sessions", "disconnect", "x"], 1, "no session is named 'x'"),
        (["retained", "show", "a/b"], 1, "nothing is retained for topic 'a/b'"),
        (["retained", "count", "a#"], 2, 'filter "a#"'),
        (["retained", "delete"], 2, "Missing argument 'FILTER'"),
    ],
    ids=str,
)
def test_what_is_not_there_is_told(shared, args, code, told):
    done = headrace(*args, **{URL: shared.url})
    assert done.returncode == code
    assert told in done.stderr
    assert done.stdout == ""
