"""Sessions that read streams: where they stand, and what they are told of streams that went."""

import paho.mqtt.client as paho
import pytest

from conftest import headrace, wait_for
from test_streams_mqtt import WAIT, Reader, Sender, payloads

pytestmark = [pytest.mark.clients, pytest.mark.slow]

LAG = 'headrace_mqtt_stream_lag_records{state="%s",stream="s"}'


def lags(node):
    """Of the stream `s`: of those that are connected, and of those that are away."""
    metrics = node.metrics()
    return metrics.get(LAG % "connected"), metrics.get(LAG % "away")


def shown(node, client):
    status, session = node.call("GET", f"/api/v1/sessions/{client}")
    assert status == 200
    return session["streams"]


def test_where_a_session_stands_in_a_stream_is_shown_and_measured(start_node):
    node = start_node()
    node.create_stream("s", partitions=2)
    sender = Sender(node)
    sender.send("s", *range(3), partition=0)
    assert lags(node) == (None, None)
    with Reader(node, "reader", lasts=1000) as client:
        assert client.subscribe("$stream/s/#") == (1, "")
        client.subscribe("a")
        assert [each["lag"] for each in shown(node, "reader")] == [0]
        sender.send("s", "x", partition=1)
        client.receive()
        wait_for(lambda: node.metrics()["headrace_mqtt_outbound_in_flight"] == 0)
        assert lags(node) == (0, 0)
    sender.send("s", *range(5), partition=0)
    sender.send("s", *range(2), partition=1)
    place = {
        "filter": "$stream/s/#",
        "stream": "s",
        "deleted": False,
        "lag": 7,
        "partitions": [
            {"partition": 0, "position": 3, "end": 8, "lag": 5},
            {"partition": 1, "position": 1, "end": 3, "lag": 2},
        ],
    }
    assert shown(node, "reader") == [place]
    assert lags(node) == (0, 7)
    wait_for(lambda: node.metrics()["headrace_mqtt_undurable_bytes"] == 0)
    node.kill()
    node = start_node.again(node)
    assert shown(node, "reader") == [place]
    assert lags(node) == (0, 7)
    with Reader(node, "slow", receive=2, manual=True) as slow:
        slow.subscribe("$stream/s/#", ("stream-offset", "earliest"))
        slow.receive(2)
        assert lags(node) == (9, 7)
    command = headrace("sessions", "show", "reader", "--url", node.url)
    assert command.returncode == 0, command.stderr
    assert "reads $stream/s/#: 7 records behind, in 2 partitions" in command.stdout
    rows = [line.split() for line in command.stdout.splitlines()]
    assert ["$stream/s/#", "0", "3", "8", "5"] in rows
    assert ["$stream/s/#", "1", "1", "3", "2"] in rows
    with Reader(node, "reader", lasts=1000) as client:
        client.receive(7)
        assert shown(node, "reader")[0]["lag"] == 0


def test_it_is_said_that_not_all_places_of_a_session_are_shown(start_node):
    node = start_node()
    node.create_stream("wide", partitions=1000)
    with Reader(node, "reader") as client:
        for number in range(5):
            assert client.subscribe(f"$stream/wide/{number}") == (1, "")
        assert len(shown(node, "reader")) == 4
        command = headrace("sessions", "show", "reader", "--url", node.url)
    assert command.stderr == "places of the first 4 subscriptions to streams\n"
    assert command.stdout.count("reads $stream/wide/") == 4


@pytest.mark.parametrize("restart", ["none", "stop", "kill"])
def test_who_was_away_when_a_stream_was_deleted_is_told_once_on_return(start_node, restart):
    node = start_node()
    node.create_stream("s")
    node.create_stream("other")
    with Reader(node, "reader", lasts=1000) as client:
        assert client.subscribe("$stream/s/#") == (1, "")
        assert client.subscribe("$stream/other/#") == (1, "")
        assert client.subscribe("a") == (1, "")
    assert node.call("DELETE", "/api/v1/streams/s")[0] == 200
    assert "told when it comes back, as it is away client=reader stream=s" in node.log.read_text()
    if restart == "none":
        Sender(node).send("other", "waits")
    else:
        node.kill() if restart == "kill" else node.stop()
        node = start_node.again(node)
        Sender(node).send("other", "waits")
    node.create_stream("s")
    Sender(node).send("s", "of another stream")
    found = {each["stream"]: each for each in shown(node, "reader")}
    assert found["s"] == {
        "filter": "$stream/s/#", "stream": "s", "deleted": True, "lag": None, "partitions": [],
    }  # fmt: skip
    assert found["other"]["lag"] == 1
    command = headrace("sessions", "show", "reader", "--url", node.url)
    assert "read $stream/s/#: deleted while it was away" in command.stdout
    with Reader(node, "reader", lasts=1000) as client:
        _, _, _, code, properties = client.gone.get(timeout=WAIT)
        assert code.value == 0x98
        assert properties.ReasonString == "a stream that it reads was deleted"
    with Reader(node, "reader", lasts=1000) as client:
        client.paho.publish("a", b"kept", 1)
        assert sorted(payloads(client.receive(2))) == ["kept", "waits"]
        assert client.subscribe("$stream/s/#", ("stream-offset", "earliest")) == (1, "")
        assert payloads(client.receive()) == ["of another stream"]
    assert [each["stream"] for each in shown(node, "reader")] == ["other", "s"]


def test_an_older_client_that_was_away_notices_too(start_node):
    node = start_node()
    node.create_stream("s")
    with Reader(node, "older", protocol=paho.MQTTv311, stays=True) as client:
        assert client.subscribe("$stream/s/#") == (1, "")
    node.call("DELETE", "/api/v1/streams/s")
    with Reader(node, "older", protocol=paho.MQTTv311, stays=True) as client:
        client.gone.get(timeout=WAIT)
    with Reader(node, "older", protocol=paho.MQTTv311, stays=True) as client:
        client.subscribe("a")
        client.paho.publish("a", b"on", 1)
        assert payloads(client.receive()) == ["on"]
        assert client.gone.empty()


def test_a_session_reads_its_own_stream_after_a_restart_whatever_others_came(start_node):
    node = start_node()
    node.create_stream("m")
    with Reader(node, "reader", lasts=1000) as client:
        assert client.subscribe("$stream/m/#", ("stream-offset", "earliest")) == (1, "")
    node.create_stream("a")
    assert node.stop() == 0
    node = start_node.again(node)
    sender = Sender(node)
    sender.send("a", "of another")
    sender.send("m", "its own")
    with Reader(node, "reader", lasts=1000) as client:
        assert payloads(client.receive()) == ["its own"]
