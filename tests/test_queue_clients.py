"""Queues with the clients that people have: paho, aiomqtt, mosquitto's, MQTT.js, Kafka's."""

import asyncio
import contextlib
import json
import re
import shutil
import subprocess
import sys

import aiomqtt
import confluent_kafka
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from conftest import headrace, wait_for
from pahoclient import V5, V311, Client, drop, publish_properties, user_property
from test_mqttjs import CLIENTS
from test_queues import group, make, settle, shown

pytestmark = [pytest.mark.slow, pytest.mark.clients]

SETTLED_BEFORE, TOO_LATE, NO_SUCH_DELIVERY, NO_QUEUE = 0x10, 0x83, 0x83, 0x90
UNKNOWN_QUEUE, NOT_SERVED, SHARED_NOT_SERVED = 0x8F, 0x83, 0x9E
WAIT = 30
AT_ONCE = 5  # the node looks around every 10 s in any case


@pytest.fixture
def name(shared, request):
    """A queue of the test's own."""
    return make(shared, re.sub(r"\W+", "-", request.node.name))["name"]


def alter(node, name, **settings):
    names = {key.replace("_", "."): value for key, value in settings.items()}
    status, answer = node.call("PATCH", f"/api/v1/queues/{name}", {"settings": names})
    assert status == 200, answer


def depth(node, name, group_name="g"):
    return group(node, group_name, name)["depth"]


def payloads(client, count):
    return [client.receive().payload for _ in range(count)]


# --- paho -----------------------------------------------------------------------------------------


def test_two_members_of_a_group_share_the_work(shared, name):
    """One names the group by a user property, the other, of 3.1.1, in its filter."""
    with Client(shared) as producer, Client(shared) as new, Client(shared, V311) as old:
        terms = (("consumer-group", "g"), ("prefetch", "1"))
        assert new.subscribe(f"$queue/{name}", 1, *terms) == 1
        assert old.subscribe(f"$queue/{name}?group=g&prefetch=1") == 1
        for payload in (b"1", b"2"):
            assert producer.publish(f"$queue/{name}/any/key", payload) == 0
        mine, theirs = new.receive(), old.receive()
        assert {mine.payload, theirs.payload} == {b"1", b"2"}
        assert mine.topic == theirs.topic == f"$queue/{name}/any/key"
        wait_for(lambda: depth(shared, name) == 1)
        assert settle(new, mine, queue=name) == 0
        assert depth(shared, name) == 0
        assert new.messages.empty()


def test_a_lone_consumer_gets_what_it_failed_at_when_it_said(shared, name):
    with Client(shared, client_id="alone") as client:
        client.subscribe(f"$queue/{name}")
        client.publish(f"$queue/{name}", b"work")
        first = client.receive()
        assert settle(client, first, "nack", name, ("delay", "1ms")) == 0
        again = client.receive()
        assert (user_property(again, "attempt"), again.payload) == ("2", b"work")
        assert settle(client, again, "nack", name, ("delay", "1h"), ("reason", "busy")) == 0
        assert group(shared, "alone", name)["resting"] == 1
        client.publish(f"$queue/{name}", b"next")
        assert client.receive().payload == b"next", "the other one rests"


@pytest.mark.setting("queues.ack.deadline.ms")
def test_what_nobody_answers_comes_again(shared, name):
    alter(shared, name, ack_deadline_ms="200ms", retry_backoff_ms=0)
    with Client(shared) as client:
        client.subscribe(f"$queue/{name}", 1, ("consumer-group", "g"))
        client.publish(f"$queue/{name}", b"work")
        client.receive()
        alter(shared, name, ack_deadline_ms="1h")
        again = client.receive()
        assert (user_property(again, "message-id"), again.payload) == ("0:0:2", b"work")
        assert group(shared, "g", name)["failed"] == 1
        assert settle(client, again, queue=name) == 0
        assert depth(shared, name) == 0


def test_extend_moves_a_deadline(shared, name):
    alter(shared, name, ack_deadline_ms="1h", retry_backoff_ms=0)
    with Client(shared) as client:
        client.subscribe(f"$queue/{name}", 1, ("consumer-group", "g"))
        client.publish(f"$queue/{name}", b"work")
        assert settle(client, client.receive(), "extend", name, ("delay", "1ms")) == 0
        again = client.receive()
        assert user_property(again, "attempt") == "2"
        assert settle(client, again, queue=name) == 0


def test_many_are_settled_by_one_publish(shared, name):
    with Client(shared) as client:
        client.subscribe(f"$queue/{name}", 1, ("consumer-group", "g"))
        for payload in (b"1", b"2", b"3"):
            client.publish(f"$queue/{name}", payload)
        ids = [("message-id", user_property(client.receive(), "message-id")) for _ in range(3)]
        properties = publish_properties(*ids)
        assert client.publish(f"$queue/{name}/$ack", b"", properties=properties) == 0
        assert depth(shared, name) == 0


def test_what_is_refused(shared, name):
    with Client(shared) as client:
        assert client.publish("$queue/none", b"x") == NO_QUEUE
        assert client.subscribe("$queue/none") == UNKNOWN_QUEUE
        assert client.subscribe(f"$queue/{name}", 1, ("prefetch", "many")) == NOT_SERVED
    with Client(shared, V311) as old:
        assert old.subscribe(f"$queue/{name}", 0) == 0x80, "it could not settle"
        old.paho.publish("$queue/none", b"x", 1)
        assert old.event("disconnect"), "3.1.1 has no other answer"


def test_what_settles_nothing_is_answered_at_once(shared, name):
    alter(shared, name, ack_deadline_ms="1h", retry_backoff_ms=0)
    with Client(shared) as client:
        client.subscribe(f"$queue/{name}", 1, ("consumer-group", "g"))
        client.publish(f"$queue/{name}", b"1")
        client.publish(f"$queue/{name}", b"2")
        first, done = client.receive(), client.receive()
        settle(client, first, "nack", name)
        client.receive()
        settle(client, done, "ack", name)
        own = user_property(first, "message-id"), user_property(done, "message-id")
        for verb, message_id, code in (
            ("ack", own[0], TOO_LATE),
            ("extend", own[0], TOO_LATE),
            ("extend", "0:0:2", 0),
            ("ack", own[1], SETTLED_BEFORE),
            ("ack", "0:9:1", NO_SUCH_DELIVERY),
            ("ack", "?", NO_SUCH_DELIVERY),
        ):
            properties = publish_properties(("message-id", message_id))
            client.paho.publish(f"$queue/{name}/${verb}", b"", 1, properties=properties)
            _, event = client.events.get(timeout=AT_ONCE)
            assert event[3].value == code, (verb, message_id)


def test_no_publisher_speaks_for_the_broker(shared, name):
    with Client(shared) as client:
        client.subscribe(f"$queue/{name}", 1, ("consumer-group", "g"))
        false = publish_properties(("message-id", "9:9:9"), ("attempt", "7"), ("unit", "W"))
        client.publish(f"$queue/{name}", b"work", properties=false)
        told = client.receive().properties.UserProperty
        assert ("unit", "W") in told
        names = [key for key, _ in told]
        assert [key for key in set(names) if names.count(key) > 1] == []


def test_a_queue_is_not_consumed_by_a_shared_subscription(shared, name):
    with Client(shared) as client:
        assert client.subscribe(f"$share/g/$queue/{name}") == SHARED_NOT_SERVED


@pytest.mark.parametrize("protocol", [V5, V311])
def test_puback_settles_and_what_has_none_goes_to_another(shared, name, protocol):
    where, terms = f"$queue/{name}?group=g", ()
    if protocol == V5:
        where, terms = f"$queue/{name}", (("consumer-group", "g"), ("settle", "puback"))
    first = Client(shared, protocol, "first", manual_ack=True)
    first.subscribe(where, 1, *terms)
    with Client(shared) as producer, Client(shared, protocol) as second:
        for payload in (b"1", b"2"):
            producer.publish(f"$queue/{name}", payload)
        done, held = first.receive(), first.receive()
        first.puback(done)
        wait_for(lambda: depth(shared, name) == 1)
        second.subscribe(where, 1, *terms)
        drop(first.paho)
        assert second.receive().payload == held.payload
        wait_for(lambda: depth(shared, name) == 0)
        assert second.messages.empty()


# --- aiomqtt --------------------------------------------------------------------------------------


def subscribing(*user):
    properties = Properties(PacketTypes.SUBSCRIBE)
    properties.UserProperty = list(user)
    return properties


@pytest.mark.setting("queues.order")
async def test_a_key_is_in_order_and_blocks_itself_alone(shared, name):
    alter(shared, name, order="key")
    where = f"$queue/{name}"
    async with (
        asyncio.timeout(WAIT),
        aiomqtt.Client("127.0.0.1", shared.mqtt, protocol=aiomqtt.ProtocolVersion.V5) as client,
    ):
        await client.subscribe(where, 1, properties=subscribing(("consumer-group", "g")))
        for key, payload in (("a", "a1"), ("a", "a2"), ("b", "b1"), ("b", "b2")):
            properties = publish_properties(("partition-key", key))
            await client.publish(where, payload, 1, properties=properties)
        given = []

        async def settled(message, verb="ack", *more):
            user = ("message-id", user_property(message, "message-id"))
            await client.publish(
                f"{where}/${verb}", b"", 1, properties=publish_properties(user, *more)
            )

        async for message in client.messages:
            payload = message.payload.decode()
            given.append(payload)
            if payload == "a1" and given.count("a1") == 1:
                await settled(message, "nack", ("delay", "50ms"))
            else:
                await settled(message)
            if payload == "a2":
                break
    assert [each for each in given if each.startswith("a")] == ["a1", "a1", "a2"]
    assert [each for each in given if each.startswith("b")] == ["b1", "b2"]


async def test_a_session_goes_on_with_its_queue(shared, name):
    """The subscription is the session's: who comes back is given work without asking again."""
    options = Properties(PacketTypes.CONNECT)
    options.SessionExpiryInterval = 300

    def connected():
        return aiomqtt.Client(
            "127.0.0.1", shared.mqtt, identifier="stays", protocol=aiomqtt.ProtocolVersion.V5,
            clean_start=False, properties=options,
        )  # fmt: skip

    async with asyncio.timeout(WAIT):
        async with connected() as client:
            terms = subscribing(("consumer-group", "g"), ("settle", "puback"))
            await client.subscribe(f"$queue/{name}", 1, properties=terms)
        wait_for(lambda: not group(shared, "g", name)["consumers"][0]["connected"])
        async with connected() as client:
            await client.publish(f"$queue/{name}", b"work", 1)
            assert (await anext(client.messages)).payload == b"work"


async def test_dead_letters_are_consumed_as_a_queue_is(shared, name):
    async with (
        asyncio.timeout(WAIT),
        aiomqtt.Client("127.0.0.1", shared.mqtt, protocol=aiomqtt.ProtocolVersion.V5) as client,
    ):
        await client.subscribe(f"$queue/{name}", 1, properties=subscribing(("consumer-group", "g")))
        own = publish_properties(("unit", "W"), ContentType="text/plain")
        await client.publish(f"$queue/{name}/eu", "bad", 1, properties=own)
        message = await anext(client.messages)
        assert message.properties.ContentType == "text/plain"
        told = (("message-id", user_property(message, "message-id")), ("reason", "no such model"))
        reject = f"$queue/{name}/$reject"
        await client.publish(reject, b"", 1, properties=publish_properties(*told))
        while shared.call("GET", f"/api/v1/queues/{name}.dlq")[0] == 404:
            await asyncio.to_thread(shown, shared, name)
        await client.subscribe(
            f"$queue/{name}/$dlq", 1, properties=subscribing(("settle", "puback"))
        )
        dead = await anext(client.messages)
    assert (dead.payload, dead.properties.ContentType) == (b"bad", "text/plain")
    for key, value in {
        "unit": "W",
        "reason": "rejected",
        "reason-detail": "no such model",
        "x-source-queue": name,
        "x-source-message": "0:0",
        "x-source-topic": f"$queue/{name}/eu",
        "attempts": "1",
        "queue": f"{name}.dlq",
    }.items():
        assert user_property(dead, key) == value, key
    assert ("x-source-group", "g") in dead.properties.UserProperty


# --- mosquitto's clients --------------------------------------------------------------------------


def mosquitto(node, program, *arguments):
    path = shutil.which(f"mosquitto_{program}")
    assert path, "install mosquitto-clients"
    return [path, "-h", "127.0.0.1", "-p", str(node.mqtt), "-q", "1", *arguments]


def of(packet, *user):
    """-D for each pair."""
    return [part for pair in user for part in ("-D", packet, "user-property", *pair)]


def test_mosquitto_sub_and_pub_work_a_queue_off(shared, name):
    """What one prints is what the other settles by."""
    where = f"$queue/{name}"
    for payload in ("one", "two"):
        publish = mosquitto(shared, "pub", "-V", "mqttv5", "-t", where, "-m", payload)
        subprocess.run([*publish, *of("publish", ("unit", "W"))], timeout=WAIT, check=True)
    terms = of("subscribe", ("consumer-group", "g"), ("prefetch", "1"))
    consume = mosquitto(shared, "sub", "-V", "mqttv5", "-t", where, "-F", "%p %P", *terms)
    with subprocess.Popen(consume, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        try:
            for payload, verb in (("one", "ack"), ("two", "reject")):
                line = worker.stdout.readline().split()
                assert line[:2] == [payload, "unit:W"]
                (message_id,) = (
                    part.removeprefix("message-id:") for part in line if "message-id:" in part
                )
                whose = ("group-id", "g")  # for this client is in none
                told = of("publish", ("message-id", message_id), whose, ("reason", "no"))
                there = ("-V", "mqttv5", "-t", f"{where}/${verb}", "-n")
                settling = mosquitto(shared, "pub", *there, *told)
                subprocess.run(settling, timeout=WAIT, check=True)
        finally:
            worker.terminate()
    wait_for(lambda: depth(shared, name) == 0)
    dead = mosquitto(shared, "sub", "-t", f"{where}/$dlq", "-C", "1", "-W", str(WAIT))
    # 3.1.1, which settles by PUBACK.
    done = subprocess.run(dead, capture_output=True, text=True, timeout=2 * WAIT, check=True)
    assert done.stdout == "two\n"


@pytest.mark.parametrize("who", [(), ("-i", "named"), ("-I", "named")], ids=str)
def test_headrace_sub_without_an_id_of_its_own_leaves_no_group(shared, name, who):
    with Client(shared) as producer:
        producer.publish(f"$queue/{name}", b"one")
    where = ("-p", str(shared.mqtt), "-q", "1", "-t", f"$queue/{name}", "-C", "1")
    done = headrace("sub", *where, *who, timeout=WAIT)
    assert (done.returncode, done.stdout) == (0, "one\n"), done.stderr
    wait_for(lambda: len(shown(shared, name)["groups"]) == bool(who))


@pytest.mark.parametrize("goes_on", [False, True], ids=["group-gone", "group-named"])
def test_headrace_sub_prints_nothing_again_after_its_connection_broke(shared, name, goes_on):
    with Client(shared) as producer:
        producer.publish(f"$queue/{name}", b"one")
        terms = "group=g&settle=puback" if goes_on else "settle=puback"
        where = ("-p", str(shared.mqtt), "-q", "1", "-t", f"$queue/{name}?{terms}", "-C", "2")
        command = [sys.executable, "-m", "headrace", "sub", *where]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as consumer:
            try:
                assert consumer.stdout is not None
                assert consumer.stdout.readline() == "one\n"
                wait_for(lambda: shown(shared, name)["depth"] == 0)
                (whose,) = shown(shared, name)["groups"][0]["consumers"]
                shared.call("POST", f"/api/v1/sessions/{whose['client']}/disconnect")
                if goes_on:
                    producer.publish(f"$queue/{name}", b"two")
                told, complaint = consumer.communicate(timeout=WAIT)
            finally:
                consumer.kill()
    expected = (0, "two\n") if goes_on else (1, "")
    assert (consumer.returncode, told) == expected, complaint
    assert ("?group=NAME" in complaint) is not goes_on


# --- MQTT.js --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [4, 5])
def test_mqttjs_settles_by_puback(shared, name, version):
    alter(shared, name, retry_backoff_ms=1)
    with Client(shared) as producer:
        for payload in (b"again", b"once"):
            producer.publish(f"$queue/{name}", payload)
    node = shutil.which("node")
    assert node, "install nodejs"
    refused = version == 5
    arguments = [f"mqtt://127.0.0.1:{shared.mqtt}", str(version), name, str(2 + refused)]
    done = subprocess.run(
        [node, str(CLIENTS / "mqttjs_queue.js"), *arguments],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["granted"] == [1]
    given = [(payload, message_id) for _, payload, message_id in told["given"]]
    if refused:
        assert sorted(given) == [("again", "0:0:1"), ("again", "0:0:2"), ("once", "0:1:1")]
    else:
        assert given == [("again", None), ("once", None)]
    wait_for(lambda: depth(shared, name, "js") == 0)
    assert group(shared, "js", name)["failed"] == refused


# --- the Kafka door -------------------------------------------------------------------------------


def test_a_queue_is_a_topic_of_kafka(shared, name):
    """Kafka reads what MQTT enqueues, settled or not, and enqueues itself."""
    settings = {"bootstrap.servers": shared.servers, "group.id": "k", "enable.auto.commit": False}
    reader = confluent_kafka.Consumer(settings | {"auto.offset.reset": "earliest"})
    producer = confluent_kafka.Producer({"bootstrap.servers": shared.servers})
    with Client(shared) as client, contextlib.closing(reader):
        client.subscribe(f"$queue/{name}", 1, ("consumer-group", "g"))
        properties = publish_properties(("partition-key", "k1"), ("unit", "W"))
        client.publish(f"$queue/{name}/eu", b"by mqtt", properties=properties)
        assert settle(client, client.receive(), queue=name) == 0
        producer.produce(name, b"by kafka", b"k2", headers=[("unit", b"V")])
        assert producer.flush(WAIT) == 0
        message = client.receive()
        assert (message.topic, message.payload) == (f"$queue/{name}/k2", b"by kafka")
        assert user_property(message, "unit") == "V"
        assert user_property(message, "partition-key") == "k2"
        reader.assign([confluent_kafka.TopicPartition(name, 0, 0)])
        records = []
        while len(records) < 2:
            records += reader.consume(2, WAIT)
        assert [(each.key(), each.value()) for each in records] == [
            (b"k1", b"by mqtt"), (b"k2", b"by kafka"),
        ]  # fmt: skip
        assert ("mqtt.topic", f"$queue/{name}/eu".encode()) in records[0].headers()


# --- kill -9 --------------------------------------------------------------------------------------


def test_a_crash_between_delivery_and_ack_loses_nothing_and_repeats_nothing_settled(start_node):
    node = start_node()
    make(node, partitions=2)
    terms = ("consumer-group", "g")
    worker = Client(node)
    worker.subscribe("$queue/jobs", 1, terms)
    for number in range(20):
        assert worker.publish("$queue/jobs", b"%d" % number) == 0
    messages = [worker.receive() for _ in range(20)]
    done, owed = messages[:10], messages[10:]
    for message in done:
        assert settle(worker, message) == 0
    assert settle(worker, owed[0], "nack") == 0
    node.kill()
    drop(worker.paho)
    node = start_node.again(node)
    assert depth(node, "jobs") == 10
    with Client(node) as worker:
        worker.subscribe("$queue/jobs", 1, terms)
        again = [worker.receive() for _ in range(10)]
        assert {each.payload for each in again} == {each.payload for each in owed}
        attempts = {each.payload: user_property(each, "attempt") for each in again}
        assert attempts.pop(owed[0].payload) == "2", "its failure was noted"
        assert set(attempts.values()) == {"1"}, "no delivery of these had ended"
        for message in again:
            assert settle(worker, message) == 0
        assert depth(node, "jobs") == 0
        worker.publish("$queue/jobs", b"last")
        assert worker.receive().payload == b"last"
