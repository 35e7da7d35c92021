"""Queues of a real node: made, told to the data plane, shown, kept, and their dead letters."""

import json
import os
import time
from contextlib import closing
from functools import partial

import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from conftest import RunningNode, headrace, wait_for
from headrace.queue_settings import OF_DEAD_LETTERS, QUEUE_SETTINGS
from headrace.settings import SETTINGS
from pahoclient import Client, drop, publish_properties, user_property

pytestmark = pytest.mark.slow

QUEUES = "/api/v1/queues"

METRICS = {
    "depth": 1, "lag": 1, "in_flight": 1, "resting": 0, "blocked_partitions": 0,
    "active_consumers": 1, "dequeue_total": 2, "redelivered_total": 0, "ack_total": 1,
    "nack_total": 0, "dlq_total": 0,
}  # fmt: skip


def make(node, name="jobs", **body):
    status, queue = node.call("POST", QUEUES, {"name": name, **body})
    assert status == 201, queue
    return queue


def shown(node, name="jobs"):
    status, queue = node.call("GET", f"{QUEUES}/{name}")
    assert status == 200, queue
    return queue


def group(node, name="worker", queue="jobs"):
    (found,) = (each for each in shown(node, queue)["groups"] if each["group"] == name)
    return found


def settle(client, message, verb="ack", queue="jobs", *more):
    """Settles a delivery, saying more of it in user properties; the reason code."""
    properties = publish_properties(("message-id", user_property(message, "message-id")), *more)
    return client.publish(f"$queue/{queue}/${verb}", b"", properties=properties)


@pytest.fixture
def node(tmp_path):
    with closing(RunningNode(tmp_path / "data", HEADRACE_LOG__RETENTION_CHECK="100ms")) as node:
        yield node


def test_a_queue_lives(node):
    created = make(node, partitions=2, settings={"order": "key", "retention.ms": "1d"})
    assert created["effective"].keys() == {*QUEUE_SETTINGS, *SETTINGS}
    assert created["effective"]["order"] == {"value": "key", "source": "stream"}
    assert created["effective"]["prefetch"] == {"value": 100, "source": "default"}
    assert created["effective"]["retention.bytes"] == {"value": -1, "source": "default"}
    assert (created["key"], created["groups"], created["depth"]) == (
        "property:partition-key", [], 0,
    )  # fmt: skip
    assert shown(node) == created
    (listed,) = node.call("GET", QUEUES)[1]["queues"]
    assert listed == {name: created[name] for name in created if name != "effective"}

    change = {"partitions": 3, "settings": {"order": None, "ack.deadline.ms": "2m"}}
    status, altered = node.call("PATCH", f"{QUEUES}/jobs", change)
    assert status == 200
    assert len(altered["partitions"]) == 3
    assert altered["settings"] == {"ack.deadline.ms": 120_000, "retention.ms": 86_400_000}
    assert node.call("GET", "/api/v1/streams/jobs")[1]["settings"] == {"retention.ms": 86_400_000}

    assert node.call("DELETE", f"{QUEUES}/jobs") == (200, {"deleted": "jobs"})
    assert node.call("GET", f"{QUEUES}/jobs")[0] == 404
    assert not (node.data / "streams" / "jobs").exists()


def test_a_group_is_shown_and_forgotten(node):
    make(node)
    with Client(node) as producer, Client(node, client_id="worker") as worker:
        producer.publish("$queue/jobs", b"one")
        began = time.time() - 0.01
        producer.publish("$queue/jobs", b"two")
        queue = shown(node)
        assert queue["depth"] == 2, "what no group has read is all there is"
        metrics = node.metrics()
        assert metrics['headrace_mqtt_queue_messages{queue="jobs"}'] == 2
        size_bytes = queue["partitions"][0]["size_bytes"]
        assert metrics['headrace_mqtt_queue_bytes{queue="jobs"}'] == size_bytes > 0
        assert worker.subscribe("$queue/jobs") == 1
        first = worker.receive()
        worker.receive()
        assert settle(worker, first) < 0x80
        told = group(node)
        assert (told["depth"], told["in_flight"], told["settled"]) == (1, 1, 1)
        assert told["consumers"] == [
            {"client": "worker", "connected": True, "open": 1, "prefetch": 100}
        ]
        (partition,) = told["partitions"]
        assert (partition["floor"], partition["depth"]) == (1, 1)
        lines = headrace("queues", "list", HEADRACE_URL=node.url).stdout.splitlines()
        (row,) = (line.split() for line in lines if "jobs" in line)
        assert row[:6] == ["jobs", "1", "1", "1", "1", "1"]
        described = headrace("queues", "describe", "jobs", HEADRACE_URL=node.url).stdout
        assert "group worker: 2 deliveries, 0 of them again; 1 settled" in described
        metrics = node.metrics()
        labels = 'filter="",group="worker",queue="jobs"'
        assert {
            name: metrics[f"headrace_mqtt_queue_{name}{{{labels}}}"] for name in METRICS
        } == METRICS
        assert metrics['headrace_mqtt_queue_enqueue_total{queue="jobs"}'] == 2
        latency = "headrace_mqtt_queue_delivery_latency_seconds"
        assert metrics[f"{latency}_count{{{labels}}}"] == 2
        assert 0 <= metrics[f"{latency}_sum{{{labels}}}"] <= 60
        age = metrics[f"headrace_mqtt_queue_oldest_age_seconds{{{labels}}}"]
        assert 0 <= age <= time.time() - began
        status, answer = node.call("DELETE", f"{QUEUES}/jobs/groups/worker")
        assert (status, answer["error"]) == (409, "group_in_use")
        worker.unsubscribe("$queue/jobs")
    done = headrace("queues", "delete", "jobs", "--group", "worker", HEADRACE_URL=node.url)
    assert (done.returncode, done.stdout) == (0, "deleted worker\n"), done.stderr
    assert shown(node)["groups"] == []
    status, answer = node.call("DELETE", f"{QUEUES}/jobs/groups/worker")
    assert (status, answer["detail"]) == (404, "queue 'jobs' has no group 'worker'")


def test_dead_letters_are_a_queue_that_is_made_when_one_is_there(node):
    make(node)
    with Client(node) as producer, Client(node, client_id="worker") as worker:
        worker.subscribe("$queue/jobs")
        producer.publish("$queue/jobs", b"bad")
        assert settle(worker, worker.receive(), "reject") < 0x80
        wait_for(lambda: node.call("GET", f"{QUEUES}/jobs.dlq")[0] == 200)
        wait_for(lambda: shown(node, "jobs.dlq")["depth"] == 1)
        assert shown(node, "jobs.dlq")["settings"].items() >= OF_DEAD_LETTERS.items()
        assert node.call("DELETE", f"{QUEUES}/jobs.dlq")[0] == 200
        producer.publish("$queue/jobs", b"worse")
        settle(worker, worker.receive(), "reject")
        wait_for(lambda: node.call("GET", f"{QUEUES}/jobs.dlq")[0] == 200)
        wait_for(lambda: shown(node, "jobs.dlq")["depth"] == 1)


def test_dead_letters_are_where_a_user_made_them(node):
    make(node)
    make(node, "jobs.dlq", partitions=3)
    with Client(node) as producer, Client(node, client_id="worker") as worker:
        worker.subscribe("$queue/jobs")
        producer.publish("$queue/jobs", b"bad")
        settle(worker, worker.receive(), "reject")
        wait_for(lambda: shown(node, "jobs.dlq")["depth"] == 1)
        assert len(shown(node, "jobs.dlq")["partitions"]) == 3


def starts(node):
    return [each["start"] for each in shown(node)["partitions"]]


def segments(node):
    return len(list((node.data / "streams" / "jobs" / "0").glob("*.log")))


def test_what_is_owed_stays_and_what_is_settled_goes(node):
    """With retention that would take all of it, and then with none."""
    make(node, settings={"segment.bytes": "64KiB", "retention.bytes": 0, "retention.ms": 0})
    with Client(node) as producer, Client(node, client_id="worker") as worker:
        for _ in range(50):
            producer.publish("$queue/jobs", os.urandom(4_000))
        before = segments(node)
        node.call("PATCH", f"{QUEUES}/jobs", {"settings": {"segment.ms": "20ms"}})
        wait_for(lambda: segments(node) > before)
        assert starts(node) == [0], "it was looked at, and no group has read it"
        worker.subscribe("$queue/jobs")
        messages = [worker.receive() for _ in range(50)]
        for message in messages[:40]:
            settle(worker, message)
        wait_for(lambda: starts(node) > [0])
        assert starts(node) <= [40]
        unset = dict.fromkeys(("retention.bytes", "retention.ms"))
        node.call("PATCH", f"{QUEUES}/jobs", {"settings": unset})
        for message in messages[40:]:
            settle(worker, message)
        wait_for(lambda: starts(node) == [50])


def test_a_queue_of_the_configuration_survives_and_changes_live(tmp_path):
    file = tmp_path / "headrace.toml"
    file.write_text('[queues.jobs]\npartitions = 2\norder = "key"\n')
    with closing(RunningNode(tmp_path / "data", "--config", str(file))) as node:
        assert shown(node)["settings"] == {"order": "key"}
        file.write_text('[queues.jobs]\npartitions = 2\norder = "none"\nprefetch = 3\n')
        status, told = node.call("POST", "/api/v1/config/reload")
        assert (status, told["changed"]) == (200, ["queues.jobs"])
        with Client(node) as producer, Client(node, client_id="worker") as worker:
            worker.subscribe("$queue/jobs")
            producer.publish("$queue/jobs", b"one")
            worker.receive()
            assert group(node)["consumers"][0]["prefetch"] == 3
        node.kill()
    with closing(RunningNode(tmp_path / "data")) as node:
        queue = shown(node)
        assert (queue["settings"], len(queue["partitions"])) == (
            {"order": "none", "prefetch": 3},
            2,
        )
        assert json.loads((node.data / "streams/jobs/stream.json").read_text())["queue"]


def test_a_queue_is_paused_replayed_and_purged(node):
    make(node, settings={"retention.ms": "1d"})
    command = partial(headrace, "queues", HEADRACE_URL=node.url)
    with Client(node) as producer, Client(node, client_id="worker") as worker:
        paused = command("pause", "jobs").stdout
        assert paused.startswith("queue jobs, paused: ")
        assert "paused = on" in paused
        assert shown(node)["paused"]
        assert command("list").stdout.splitlines()[3].split()[-1] == "paused"
        assert command("describe", "jobs").stdout.startswith("queue jobs, paused: ")
        assert node.metrics()['headrace_mqtt_queue_paused{queue="jobs"}'] == 1
        worker.subscribe("$queue/jobs")
        for payload in (b"one", b"two"):
            producer.publish("$queue/jobs", payload)
        assert group(node)["delivered"] == 0
        assert command("resume", "jobs").returncode == 0
        assert not shown(node)["paused"]
        assert node.metrics()['headrace_mqtt_queue_paused{queue="jobs"}'] == 0
        for _ in range(2):
            assert settle(worker, worker.receive()) == 0
        assert shown(node)["depth"] == 0
        moved = command("seek", "jobs", "--group", "worker", "--offset", "0:1")
        assert moved.stdout == "1 group of jobs goes on from there; depth now 1\n", moved.stderr
        assert worker.receive().payload == b"two"
        purged = command("purge", "jobs", "--json")
        told = json.loads(purged.stdout)
        assert (told["moved"], told["depth"], told["in_flight"]) == (1, 0, 0)
        for body, status, detail in [
            ({"group": "none", "offset": "earliest"}, 404, "queue 'jobs' has no group 'none'"),
            ({"offset": "0:9"}, 400, "partition 0 can be read from offset 2 to 2, not from 9"),
            ({}, 400, "say where to: offset, or time"),
        ]:
            got, answer = node.call("POST", f"{QUEUES}/jobs/seek", body)
            assert (got, answer["detail"][: len(detail)]) == (status, detail)


def test_of_a_queue_with_one_consumer_at_a_time_the_next_takes_over(node):
    make(node, settings={"consumers": "single"})
    with (
        Client(node) as producer,
        Client(node, client_id="first") as first,
        Client(node, client_id="second") as second,
    ):
        for client in (first, second):
            client.subscribe("$queue/jobs?group=g")
        producer.publish("$queue/jobs", b"one")
        assert first.receive().payload == b"one"
        drop(first.paho)
        assert second.receive().payload == b"one"


@pytest.mark.parametrize("consumers", ["single", "exclusive"])
def test_who_comes_back_takes_no_queue_from_who_consumes_it_by_now(node, consumers):
    make(node, settings={"consumers": consumers})
    lasting = Properties(PacketTypes.CONNECT)
    lasting.SessionExpiryInterval = 300
    with (
        Client(node) as producer,
        Client(node, client_id="first", properties=lasting) as first,
        Client(node, client_id="second") as second,
    ):
        assert first.subscribe("$queue/jobs?group=g") == 1
        first.paho.disconnect()
        first.event("disconnect")
        wait_for(lambda: not group(node, "g")["consumers"][0]["connected"])
        assert second.subscribe("$queue/jobs?group=g") == 1
        drop(first.paho)
        first.paho.reconnect()
        first.paho.loop_start()
        assert first.event("connect")[2].session_present
        if consumers == "exclusive":
            assert first.event("disconnect")[3].value == 0x97
        producer.publish("$queue/jobs", b"one")
        assert second.receive().payload == b"one"
        assert first.messages.empty()


def test_a_dedup_id_is_known_after_a_crash(tmp_path):
    once = publish_properties(("dedup-id", "job-7"))
    with closing(RunningNode(tmp_path / "data")) as node:
        make(node, partitions=3)
        with Client(node) as producer:
            for _ in range(2):
                assert producer.publish("$queue/jobs", b"one", properties=once) == 0
        assert shown(node)["depth"] == 1
        node.kill()
    with closing(RunningNode(tmp_path / "data")) as node:
        with Client(node) as producer:
            assert producer.publish("$queue/jobs", b"again", properties=once) == 0
            producer.publish("$queue/jobs", b"two", properties=publish_properties(("delay", "1h")))
        assert shown(node)["depth"] == 2


def test_the_dead_letter_of_a_message_as_large_as_the_queue_takes_is_stored(start_node):
    node = start_node(HEADRACE_LOG__MAX_MESSAGE_BYTES="64KiB")
    make(node, settings={"max.message.bytes": "512KiB"})
    with Client(node, client_id="worker") as worker:
        worker.subscribe("$queue/jobs")
        assert worker.publish("$queue/jobs", bytes((512 << 10) - 300)) == 0
        assert settle(worker, worker.receive(), "reject", "jobs", ("reason", "x" * 60_000)) == 0
        wait_for(lambda: shown(node)["depth"] == 0)
    assert node.ends("jobs.dlq") == [1]
