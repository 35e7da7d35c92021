"""What people are told of queues that cannot do what is asked, or are no more."""

import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from conftest import wait_for
from headrace import limits
from pahoclient import Client, publish_properties
from test_queues import group, make, settle, shown

pytestmark = [pytest.mark.slow, pytest.mark.clients]

NOT_SERVED, NOT_AUTHORIZED, ADMINISTRATIVE = 0x83, 0x87, 0x98


@pytest.fixture
def name(shared, request):
    return make(shared, re.sub(r"\W+", "-", request.node.name))["name"]


def call(node, name, what, **body):
    return node.call("POST", f"/api/v1/queues/{name}/{what}", body)


def answered(client, topic, *user):
    """Reason code and Reason String of PUBACK."""
    client.paho.publish(topic, b"", 1, properties=publish_properties(*user))
    *_, reason, properties = client.event("publish")
    return reason.value, getattr(properties, "ReasonString", None)


def test_a_mistyped_verb_is_told_which_there_are(shared, name):
    with Client(shared) as client:
        for topic in (
            f"$queue/{name}/$foo", f"$queue/{name}/$ack/x", f"$queue/{name}/$dlq", "$queue",
            "$queue/",
        ):  # fmt: skip
            code, text = answered(client, topic)
            assert code == NOT_AUTHORIZED, topic
            assert all(verb in text for verb in ("$ack", "$nack", "$reject", "$extend")), topic


def test_a_group_that_there_is_not_is_told_of(shared, name):
    with Client(shared) as client:
        topic, id_ = f"$queue/{name}/$ack", ("message-id", "0:0:1")
        code, text = answered(client, topic, id_, ("group-id", "nobodys"))
        assert (code, text) == (NOT_SERVED, "the queue has no group of this group-id")
        assert "name group-id" in answered(client, topic, id_)[1]


def test_a_deadline_is_a_year_away_at_most(shared, name):
    day_ms, year = 86_400_000, f"{limits.QUEUE_DEADLINE_MS_MAX // 86_400_000}d"
    with Client(shared) as client:
        client.subscribe(f"$queue/{name}", 1, ("consumer-group", "g"))
        client.publish(f"$queue/{name}")
        message = client.receive()
        assert settle(client, message, "extend", name, ("delay", year)) == 0
        longer = ("delay", str(limits.QUEUE_DEADLINE_MS_MAX + 1))
        id_ = ("message-id", "0:0:1")
        code, text = answered(client, f"$queue/{name}/$extend", id_, longer)
        assert (code, text.startswith("a deadline is 365 days")) == (NOT_SERVED, True)
        asked = {"group": "g", "message_ids": ["0:0:1"], "delay": f"{365 * day_ms + 1}ms"}
        status, answer = call(shared, name, "extend", **asked)
        assert (status, answer["detail"]) == (400, text)
        assert call(shared, name, "pull", group="g", deadline=longer[1])[0] == 400
        assert call(shared, name, "nack", **asked)[0] == 200, "a rest may be longer"


def test_a_group_that_is_named_lasts(shared, name):
    """No other name than a client's own goes with the client."""
    assigned = f"auto-{'a' * 32}"
    assert call(shared, name, "messages", payload="x")[0] == 200
    status, answer = call(shared, name, "pull", group=assigned)
    assert (status, "choose another name" in answer["detail"]) == (400, True)
    with Client(shared) as client:
        for filter_, *user in (
            (f"$queue/{name}", ("consumer-group", assigned)),
            (f"$queue/{name}?group={assigned}",),
        ):
            assert client.subscribe(filter_, 1, *user) == NOT_SERVED
        assert client.subscribe(f"$queue/{name}", 1, ("consumer-group", assigned[:-1])) == 1
    assert [each["group"] for each in shown(shared, name)["groups"]] == [assigned[:-1]]


def test_who_waits_for_a_queue_that_is_deleted_is_told(shared, name):
    client = Client(shared, client_id="worker")
    client.subscribe(f"$queue/{name}", 1, ("consumer-group", "g"))
    with ThreadPoolExecutor(1) as waiting:
        pull = waiting.submit(call, shared, name, "pull", group="h", wait="50s")
        wait_for(lambda: len(shown(shared, name)["groups"]) == 2)
        assert shared.call("DELETE", f"/api/v1/queues/{name}")[0] == 200
        status, answer = pull.result()
    assert (status, answer["detail"]) == (404, f"queue '{name}' was deleted meanwhile")
    *_, reason, properties = client.event("disconnect")
    assert reason.value == ADMINISTRATIVE
    assert properties.ReasonString == "a queue that it consumes was deleted"


def test_a_purge_needs_no_body(shared, name):
    assert call(shared, name, "messages", payload="x")[0] == 200
    assert call(shared, name, "pull", group="g")[0] == 200
    status, answer = shared.call("POST", f"/api/v1/queues/{name}/purge", b"")
    assert (status, answer["moved"]) == (200, 1)
    assert group(shared, "g", name)["depth"] == 0
    assert call(shared, name, "purge", grup="g")[0] == 400
