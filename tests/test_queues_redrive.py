"""`headrace queues redrive`: dead letters of a real node go back to their queue."""

import asyncio
import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys

import pytest

from conftest import environment, headrace, wait_for
from headrace import Login, Queue
from headrace.client.queues.redrive import Pace, topic_of
from pahoclient import Client, publish_properties
from secure import client_context, port, secure_settings
from test_access import ADMIN, basic, put_users

pytestmark = pytest.mark.slow

QUEUES = "/api/v1/queues"
names = (f"work-{number}" for number in itertools.count())


def make(node, **settings):
    name = next(names)
    own = {each.replace("_", "."): value for each, value in settings.items()}
    assert node.call("POST", QUEUES, {"name": name, "settings": own})[0] == 201
    return name


def of(node, name):
    return Queue(name, f"127.0.0.1:{node.mqtt}", retry_backoff_ms=10)


def depth(node, name, group=None):
    queue = node.call("GET", f"{QUEUES}/{name}")[1]
    owed = [each["depth"] for each in queue.get("groups", ()) if each["group"] == group]
    return owed[0] if owed else queue.get("depth", 0)


async def put(node, name, *payloads, **options):
    async with of(node, name) as queue:
        await asyncio.gather(*(queue.put(each, **options) for each in payloads))


async def die(node, name, many, reject=True, group="worker"):
    """Has the next messages of a queue die."""
    before = depth(node, f"{name}.dlq")
    async with of(node, name) as queue, queue.consume(group=group) as messages:
        for _ in range(many):
            message = await anext(messages)
            await (message.reject("no use") if reject else message.nack())
    await asyncio.to_thread(wait_for, lambda: depth(node, f"{name}.dlq") == before + many)


async def taken(node, name, many, group="worker"):
    """The next messages of a queue, settled."""
    async with of(node, name) as queue, queue.consume(group=group, prefetch=1_000) as messages:
        found = [await anext(messages) for _ in range(many)]
        await asyncio.gather(*(each.ack() for each in found))
    return found


def arguments(node, name, *options):
    return ("queues", "redrive", name, "--mqtt", f"127.0.0.1:{node.mqtt}", "--url", node.url,
            *options)  # fmt: skip


def redrive(node, name, *options):
    done = headrace(*arguments(node, name, *options))
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextlib.contextmanager
def running(node, name, *options):
    command = [sys.executable, "-m", "headrace", *arguments(node, name, *options)]
    with subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


async def test_a_letter_is_the_message_again(shared):
    name = make(shared)
    own = publish_properties(
        ("unit", "W"), ("unit", "kW"), ("partition-key", "k"), ("dedup-id", "job-7"),
        ("source", "sensor-3"),
        ContentType="text/plain", CorrelationData=b"\x00\xff", ResponseTopic="a/b",
    )  # fmt: skip
    with Client(shared) as producer:
        producer.publish(f"$queue/{name}/eu/3", b"one", properties=own)
    await put(shared, name, b"two", key="k", ttl=3600)
    await die(shared, name, 2)
    told = redrive(shared, name)
    assert told == f"2 messages of {name}.dlq are in {name} again; 0 left\n"
    with Client(shared, client_id="watcher") as watcher:
        watcher.subscribe(f"$queue/{name}?group=worker")
        one, two = watcher.receive(), watcher.receive()
    assert (one.topic, one.payload) == (f"$queue/{name}/eu/3", b"one")
    assert (two.topic, two.payload) == (f"$queue/{name}", b"two")
    assert one.properties.ContentType == "text/plain"
    assert one.properties.CorrelationData == b"\x00\xff"
    assert one.properties.ResponseTopic == "a/b"
    of_delivery = ["queue", "partition", "offset", "sequence", "first-enqueued", "x-source-topic",
                   "message-id", "group-id", "attempt"]  # fmt: skip
    assert [pair for pair in one.properties.UserProperty if pair[0] not in of_delivery][:-1] == [
        ("unit", "W"), ("unit", "kW"), ("partition-key", "k"), ("source", "sensor-3")
    ]  # fmt: skip
    assert {each for each, _ in two.properties.UserProperty} == {
        "partition-key", "dedup-id", *of_delivery
    }  # fmt: skip
    ids = [dict(each.properties.UserProperty)["dedup-id"] for each in (one, two)]
    assert [each.rpartition(":")[0] for each in ids] == [
        f"{name}:0:{offset}:redrive" for offset in (0, 1)
    ]
    assert redrive(shared, name) == f"no dead letters: {name}.dlq has nothing to send back\n"


async def test_letters_that_are_not_chosen_stay(shared):
    name = make(shared, retry_attempts=1)
    await put(shared, name, b"rejected")
    await die(shared, name, 1)
    await put(shared, name, b"failed")
    await die(shared, name, 1, reject=False)
    async with of(shared, name) as queue, queue.consume(group="other") as messages:
        await (await anext(messages)).ack()
        await (await anext(messages)).reject()
    wait_for(lambda: depth(shared, f"{name}.dlq") == 3)
    told = redrive(shared, name, "--reason", "attempts", "--reason", "expired", "--json")
    assert json.loads(told) == {
        "queue": name, "dead_letters": f"{name}.dlq", "redriven": 1, "known": 0, "left": 2,
        "refused": 0,
    }  # fmt: skip
    assert redrive(shared, name, "--group", "other") == (
        f"0 messages of {name}.dlq are in {name} again; "
        "1 letter was of what it had already; 1 left\n"
    )
    assert [each.payload for each in await taken(shared, name, 1)] == [b"failed"]
    assert depth(shared, name, "worker") == 0
    groups = shared.call("GET", f"{QUEUES}/{name}.dlq")[1]["groups"]
    assert [(each["group"], each["failed"]) for each in groups] == [("redrive", 0)]


async def test_letters_that_die_again_are_for_a_later_redrive(shared):
    name = make(shared)
    await put(shared, name, *(b"%d" % number for number in range(20)))
    await die(shared, name, 20)

    async def reject_all():
        async with of(shared, name) as queue, queue.consume(group="worker") as messages:
            async for message in messages:
                await message.reject("no use")

    worker = asyncio.create_task(reject_all())
    told = await asyncio.to_thread(redrive, shared, name)
    assert told == f"20 messages of {name}.dlq are in {name} again; 0 left\n"
    await asyncio.to_thread(wait_for, lambda: depth(shared, f"{name}.dlq", "redrive") == 20)
    told = await asyncio.to_thread(redrive, shared, name, "--reason", "depth")
    assert told == f"0 messages of {name}.dlq are in {name} again; 20 left\n"
    worker.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await worker


async def test_a_limit_is_kept_and_the_rest_stays(shared):
    name = make(shared)
    await put(shared, name, *(b"%d" % number for number in range(10)))
    await die(shared, name, 10)
    told = redrive(shared, name, "--limit", "4")
    assert told == f"4 messages of {name}.dlq are in {name} again; 6 left\n"
    assert depth(shared, name, "worker") == 4


async def test_more_letters_are_passed_over_than_one_connection_may_hold(shared):
    name = make(shared, retry_attempts=1)
    await put(shared, name, *(b"%d" % number for number in range(501)))
    await die(shared, name, 501)
    await put(shared, name, b"behind")
    await die(shared, name, 1, reject=False)
    assert "; 501 left" in redrive(shared, name, "--reason", "attempts")
    assert [each.payload for each in await taken(shared, name, 1)] == [b"behind"]


async def test_one_that_is_killed_doubles_and_loses_nothing(shared):
    name = make(shared)
    payloads = [b"%d" % number for number in range(200)]
    await put(shared, name, *payloads)
    await die(shared, name, 200)
    with running(shared, name, "--rate", "50") as process:
        wait_for(lambda: depth(shared, name, "worker") >= 5)
        process.kill()
    assert 0 < depth(shared, f"{name}.dlq", "redrive") < 200
    assert "; 0 left" in redrive(shared, name)
    assert depth(shared, name, "worker") == 200
    found = await taken(shared, name, 200)
    assert sorted(each.payload for each in found) == sorted(payloads)


async def test_a_message_that_is_there_without_its_acknowledgement_is_not_stored_again(shared):
    name = make(shared)
    await put(shared, name, b"one", b"two")
    await die(shared, name, 2)
    (letter, _) = await taken(shared, f"{name}.dlq", 2, group="people")
    known = f"{name}:0:0:redrive:{letter.properties['x-source-enqueued']}"
    with Client(shared) as before:
        properties = publish_properties(("dedup-id", known))
        assert before.publish(f"$queue/{name}", b"one", properties=properties) == 0
    assert redrive(shared, name) == (
        f"1 message of {name}.dlq is in {name} again; 1 letter was of what it had already; 0 left\n"
    )
    assert depth(shared, name, "worker") == 2


async def test_what_was_dead_to_several_groups_comes_back_once(shared):
    name = make(shared)
    await put(shared, name, b"one", b"two")
    await die(shared, name, 2)
    await die(shared, name, 1, group="other")
    told = json.loads(redrive(shared, name, "--json"))
    assert told == {
        "queue": name, "dead_letters": f"{name}.dlq", "redriven": 2, "known": 1, "left": 0,
        "refused": 0,
    }  # fmt: skip
    assert sorted(each.payload for each in await taken(shared, name, 2)) == [b"one", b"two"]
    assert depth(shared, name, "worker") == 0
    await taken(shared, name, 1, "other")
    await die(shared, name, 1, group="other")  # what came back is another message
    assert redrive(shared, name) == f"1 message of {name}.dlq is in {name} again; 0 left\n"


def test_a_letter_of_a_topic_that_nobody_may_publish_to_stays(shared):
    name = make(shared)
    assert shared.call("PATCH", f"{QUEUES}/{name}", {"filters": [f"{name}/#"]})[0] == 200
    with Client(shared) as producer, Client(shared, client_id="taker") as taker:
        producer.publish(f"{name}/$x/1", b"kept")
        producer.publish(f"{name}/y/1", b"sent")
        taker.subscribe(f"$queue/{name}?group=taker/{name}/#")
        for _ in range(2):
            place = dict(taker.receive().properties.UserProperty)["message-id"]
            said = publish_properties(("message-id", place))
            assert taker.publish(f"$queue/{name}/$reject", b"", properties=said) == 0
        wait_for(lambda: depth(shared, f"{name}.dlq") == 2)
        done = headrace(*arguments(shared, name))
        assert done.stdout == f"1 message of {name}.dlq is in {name} again; 1 left\n"
        assert (done.returncode, done.stderr) == (
            1, f"headrace: 1 letter: topic {name}/$x/1 has a level that begins with $: it stays\n"
        )  # fmt: skip
        again = taker.receive()
        assert (again.topic, again.payload) == (f"$queue/{name}/{name}/y/1", b"sent")


async def test_an_interrupt_ends_it_in_order(shared):
    name = make(shared)
    await put(shared, name, *(b"%d" % number for number in range(200)))
    await die(shared, name, 200)
    with running(shared, name, "--rate", "20") as process:
        wait_for(lambda: depth(shared, name, "worker") >= 2)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (1, "headrace: interrupted\n")
    done = depth(shared, name, "worker")
    assert 2 <= done < 200
    left = f"{200 - done} left"
    assert out == f"{done} messages of {name}.dlq are in {name} again; {left}\n"
    group = shared.call("GET", f"{QUEUES}/{name}.dlq")[1]["groups"][0]
    assert (group["failed"], group["in_flight"]) == (0, 0)


async def test_a_second_at_the_same_time_is_refused(shared):
    name = make(shared)
    await put(shared, name, b"one", b"two", b"three")
    await die(shared, name, 3)
    with running(shared, name, "--rate", "0.001") as first:
        wait_for(lambda: depth(shared, name, "worker") == 1)
        second = headrace(*arguments(shared, name))
        assert second.returncode == 1
        assert second.stdout == f"0 messages of {name}.dlq are in {name} again; 2 left\n"
        assert "there is one redrive at a time" in second.stderr
        assert depth(shared, name, "worker") == 1
        first.send_signal(signal.SIGINT)
        told, _ = first.communicate(timeout=30)
    assert told == f"1 message of {name}.dlq is in {name} again; 2 left\n"
    assert redrive(shared, name) == f"2 messages of {name}.dlq are in {name} again; 0 left\n"


async def test_what_the_queue_takes_no_more_stays(shared):
    name = make(shared)
    await put(shared, name, os.urandom(3_000), b"short")
    await die(shared, name, 2)
    change = {"settings": {"max.message.bytes": "1KiB"}}
    assert shared.call("PATCH", f"{QUEUES}/{name}", change)[0] == 200
    done = headrace(*arguments(shared, name))
    assert done.returncode == 1
    assert done.stdout == f"1 message of {name}.dlq is in {name} again; 1 left\n"
    assert "1 letter: " in done.stderr
    assert "max.message.bytes" in done.stderr


def test_it_logs_in_over_tls_and_says_what_is_not_allowed(tmp_path, start_node, server, authority):
    rules = tmp_path / "rules.toml"
    rules.write_text(
        '[[access.rules]]\nallow = ["publish"]\nusers = ["ann"]\ntopics = ["$queue/jobs.dlq"]\n'
        '[[access.rules]]\nallow = ["subscribe"]\nusers = ["ann"]\ntopics = ["$queue/jobs.dlq/#"]\n'
    )
    put_users(tmp_path / "data", {ADMIN: ["admin"]})
    node = start_node("--config", str(rules), **secure_settings(server))
    for name in ("jobs", "jobs.dlq"):
        assert node.call("POST", QUEUES, {"name": name}, **basic(ADMIN))[0] == 201
    user, secret = ADMIN.split(":")
    context = client_context(authority)
    there = f"localhost:{port(node, 'mqtts')}"

    async def put_by_hand():
        login = Login(user, secret)
        async with Queue("jobs.dlq", there, login=login, ssl_context=context) as queue:
            await queue.put(b"x")

    asyncio.run(put_by_hand())
    done = headrace(
        "queues", "redrive", "jobs", "--url", node.url, "--mqtt", there, "--user", user,
        "--cafile", str(authority.file), HEADRACE_PASSWORD=secret,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stdout == "0 messages of jobs.dlq are in jobs again; 1 left\n"
    assert "$queue/jobs: not authorized" in done.stderr


def test_what_cannot_be_done_is_said_in_a_line(shared):
    name = make(shared)
    assert redrive(shared, name) == f"no dead letters: {name}.dlq has nothing to send back\n"
    assert shared.call("POST", QUEUES, {"name": f"{name}.dlq"})[0] == 201
    with Client(shared) as producer:
        producer.publish(f"$queue/{name}.dlq", b"by hand")
    for options, code, error in [
        (("none",), 1, "no queue is named 'none'"),
        ((f"{name}.dlq",), 2, f"name the queue, not its dead letters: {name}"),
        ((name, "--cert", __file__), 2, "--cert and --key belong together"),
    ]:
        refused = headrace(*arguments(shared, *options))
        assert (refused.returncode, error in refused.stderr) == (code, True), refused.stderr
    shared.call("PATCH", f"{QUEUES}/{name}.dlq", {"settings": {"paused": "on"}})
    refused = headrace(*arguments(shared, name))
    assert f"headrace queues resume {name}.dlq" in refused.stderr


def test_a_pace_spreads_what_goes():
    pace = Pace(4.0)
    assert [pace.wait_s(10.0) for _ in range(3)] == [0.0, 0.25, 0.5]
    assert pace.wait_s(20.0) == 0.0, "what was not used is not made up for"
    assert pace.wait_s(20.0) == 0.25
    assert Pace(None).wait_s(1.0) == 0.0


@pytest.mark.parametrize(
    ("source", "topic"),
    [
        (None, "$queue/jobs"),
        ("$queue/jobs", "$queue/jobs"),
        ("$queue/jobs/eu/3", "$queue/jobs/eu/3"),
        ("jobs/$queue/jobs/3", None),
        ("shop/$ack", None),
        ("$queue/jobs.dlq", "$queue/jobs"),
        ("$queue/jobs.dlq/eu", "$queue/jobs/eu"),
        ("$queue/jobs/$ack", None),
        ("shop/7/orders", "$queue/jobs/shop/7/orders"),
        ("$stream/x", None),
    ],
)
def test_a_message_goes_where_its_consumers_look(source, topic):
    assert topic_of("jobs", source) == topic
