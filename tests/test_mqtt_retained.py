"""Retained messages last: through stops, kill -9 and time, clears and wills included."""

import os
import random
import time

import paho.mqtt.client as paho
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from conftest import soaked, wait_for
from headrace import limits
from pahoclient import drop, leave
from rawclient import RawMqtt

pytestmark = pytest.mark.slow

END = "~"
"""A topic behind all others in their order: who has got it has got all."""


def publish(node, messages):
    """Publishes retained messages at QoS 1, in order, and waits until all are acknowledged."""
    with RawMqtt(node.mqtt, "publisher") as client:
        for at, (topic, payload) in enumerate(messages, 1):
            client.publish(topic, payload, at, retain=True)
        for at in range(len(messages)):
            assert client.puback() == at + 1


def retained(node, topic_filter="#"):
    """What a new subscriber is sent."""
    publish(node, [(END, b"end")])
    found = {}
    with RawMqtt(node.mqtt, "subscriber") as client:
        client.subscribe(topic_filter)
        if topic_filter != "#":
            client.subscribe(END)
        while END not in found:
            topic, payload = client.message()
            assert topic not in found
            found[topic] = payload
    del found[END]
    return found


def replayed(node):
    """Records that the start has read: from kept states, from the log."""
    metrics = node.metrics()
    return tuple(
        int(metrics[f'headrace_mqtt_retained_replayed{{from="{place}"}}'])
        for place in ("state", "log")
    )


def test_an_orderly_stop_keeps_a_state_and_the_next_start_reads_no_log(start_node):
    node = start_node()
    messages = {f"t/{n}": b"%d" % n for n in range(100)}
    publish(node, list(messages.items()))
    publish(node, [("t/7", b""), ("t/8", b"new")])
    expected = {**messages, "t/8": b"new"}
    del expected["t/7"]
    assert retained(node) == expected
    assert node.stop() == 0
    node = start_node.again(node)
    assert replayed(node) == (100, 0)
    assert retained(node) == expected
    assert node.metrics()["headrace_mqtt_retained_messages"] == 100


def test_what_was_acknowledged_outlives_a_kill_and_so_do_clears(start_node):
    node = start_node()
    publish(node, [("a", b"1"), ("b", b"1"), ("c", b"1"), ("b", b""), ("c", b"2")])
    for _ in range(2):
        node.kill()
        node = start_node.again(node)
        assert retained(node) == {"a": b"1", "c": b"2"}
    assert node.stop() == 0
    node = start_node.again(node)
    publish(node, [("a", b"")])
    node.kill()
    node = start_node.again(node)
    assert retained(node) == {"c": b"2"}


def test_properties_last_and_what_expires_while_the_node_is_down_is_not_delivered(start_node):
    node = start_node()
    client = connected(node)
    properties = Properties(PacketTypes.PUBLISH)
    properties.ContentType = "text/plain"
    properties.PayloadFormatIndicator = 1
    properties.CorrelationData = b"42"
    properties.UserProperty = [("b", "1"), ("a", "2"), ("b", "3")]
    properties.MessageExpiryInterval = 3600
    client.publish("long", "x", 2, retain=True, properties=properties).wait_for_publish(30)
    brief = Properties(PacketTypes.PUBLISH)
    brief.MessageExpiryInterval = 1
    client.publish("brief", "x", 1, retain=True, properties=brief).wait_for_publish(30)
    published = time.time()
    leave(client)
    node.kill()
    wait_for(lambda: time.time() > published + 1.2)  # nothing says when an interval has passed
    node = start_node.again(node)
    assert retained(node) == {"long": b"x"}
    client = connected(node)
    messages = []
    client.on_message = lambda _client, _data, message: messages.append(message)
    client.subscribe("#", 2)
    wait_for(lambda: len(messages) == 2)
    (message,) = [each for each in messages if each.topic == "long"]
    assert (message.retain, message.qos) == (True, 2)
    assert message.properties.ContentType == "text/plain"
    assert message.properties.PayloadFormatIndicator == 1
    assert message.properties.CorrelationData == b"42"
    assert message.properties.UserProperty == [("b", "1"), ("a", "2"), ("b", "3")]
    assert 0 < message.properties.MessageExpiryInterval <= 3600
    leave(client)
    wait_for(lambda: node.metrics()["headrace_mqtt_retained_expired_total"] == 1)


def connected(node, **will):
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
    if will:
        client.will_set(**will)
    client.connect("127.0.0.1", node.mqtt)
    client.loop_start()
    wait_for(client.is_connected)
    return client


def test_a_will_with_retain_lasts(start_node):
    node = start_node()
    client = connected(node, topic="status/a", payload="gone", qos=1, retain=True)
    drop(client)
    wait_for(lambda: node.metrics()["headrace_mqtt_wills_total"] == 1)
    wait_for(lambda: node.metrics()["headrace_mqtt_retained_undurable"] == 0)
    node.kill()
    node = start_node.again(node)
    assert retained(node) == {"status/a": b"gone"}


def test_a_bound_stream_and_retained_messages_are_kept_apart(start_node):
    """Retention of the stream lets go of the record, and the message stays."""
    node = start_node()
    node.create_stream("s", filters=["t/#"])
    publish(node, [("t/1", b"x")])
    assert node.ends("s") == [1]
    assert node.call("DELETE", "/api/v1/streams/s")[0] == 200
    node.kill()
    node = start_node.again(node)
    assert retained(node) == {"t/1": b"x"}


def test_bounds_hold_across_a_start(start_node):
    few = {"HEADRACE_LIMITS__RETAINED_MESSAGES": "4"}
    node = start_node(**few)
    publish(node, [("a", b"x"), ("b", b"x"), (END, b"end")])
    node.kill()
    node = start_node.again(node, **few)
    publish(node, [("c", b"x")])
    with RawMqtt(node.mqtt, "refused") as client:
        client.publish("d", b"x", 1, retain=True)
        with pytest.raises(ConnectionError):  # 3.1.1 has no answer that says no
            client.puback()
    assert retained(node) == {"a": b"x", "b": b"x", "c": b"x"}


def kept(node):
    """Offsets below which a kept state holds all records."""
    return [int(each.stem) for each in node.data.glob("streams/__retained/*/*.state")]


def test_a_state_is_kept_beside_traffic(start_node):
    node = start_node()
    publish(node, [("few", b"x"), ("gone", b"x"), ("gone", b"")])
    with RawMqtt(node.mqtt, "busy") as client:
        for n in range(limits.STATE_RECORDS):
            client.publish("busy", b"%d" % n, 0, retain=True)
        while max(kept(node), default=0) < limits.STATE_RECORDS:
            client.publish("busy", b"more", 1, retain=True)
            client.puback()
    publish(node, [("busy", b"last")])
    node.kill()
    node = start_node.again(node)
    state, tail = replayed(node)
    assert state >= 1
    assert tail < limits.STATE_RECORDS
    assert retained(node) == {"few": b"x", "busy": b"last"}


@pytest.mark.slow
@pytest.mark.parametrize("round_", [0, *map(soaked, range(1, 50))])
def test_kill_9_at_any_moment_loses_nothing_acknowledged(start_node, round_):
    """Topics go through numbers and clears; a start brings back what is as new as the answers."""
    seed = int(os.environ.get("HEADRACE_TEST_SEED", time.time_ns()))
    print(f"round {round_}: HEADRACE_TEST_SEED={seed}")
    choose = random.Random(seed)
    topics = [f"t/{n}" for n in range(20)]
    history = {topic: [b""] for topic in topics}
    acknowledged = dict.fromkeys(topics, 0)
    node = start_node()
    for _ in range(4):
        unanswered = {}
        with RawMqtt(node.mqtt, "publisher") as client:
            for packet_id in range(1, 1 + choose.randrange(2000)):
                topic = choose.choice(topics)
                clears = choose.random() < 0.3
                payload = b"" if clears else b"%s %d" % (topic.encode(), packet_id)
                history[topic].append(payload)
                unanswered[packet_id] = topic, len(history[topic]) - 1
                client.publish(topic, payload, packet_id, retain=True)
                while len(unanswered) > choose.choice([0, 1, 50]):
                    topic, place = unanswered.pop(client.puback())
                    acknowledged[topic] = max(acknowledged[topic], place)
            node.kill()
        node = start_node.again(node)
        found = retained(node)
        for topic in topics:
            payload = found.pop(topic, b"")
            newer = history[topic][acknowledged[topic] :]
            assert payload in newer, f"{topic}: {payload} of {newer[:3]}"
            history[topic], acknowledged[topic] = [payload], 0
        assert not found


@pytest.mark.soak
def test_a_million_retained_messages(start_node):
    """Prints what they cost: beside the log, in memory, at a start."""
    total, window = 1_000_000, 500
    room = {"HEADRACE_LIMITS__RETAINED_BYTES": "1GiB"}
    node = start_node(**room)
    before = node.resident_bytes()
    begun = time.monotonic()
    with RawMqtt(node.mqtt, "publisher") as client:
        for n in range(total):
            topic = f"site/{n // 1000}/device/{n % 1000}"
            client.publish(topic, b"%064d" % n, n % 65_535 + 1, retain=True)
            if n >= window:
                client.puback()
        for _ in range(window):
            client.puback()
    print(f"retained in {time.monotonic() - begun:.1f} s, {node.resident_bytes() - before:,} bytes")
    for ending in ("kill", "stop", "kill"):
        begun = time.monotonic()
        getattr(node, ending)()
        print(f"{ending}: {time.monotonic() - begun:.2f} s")
        begun = time.monotonic()
        node = start_node.again(node, **room)
        print(f"started in {time.monotonic() - begun:.2f} s, {replayed(node)}")
        print(f"{node.resident_bytes() - before:,} bytes")
        assert node.metrics()["headrace_mqtt_retained_messages"] == total
        assert node.resident_bytes() < 1 << 30
