"""Who gets what on a real node: subscription options, retained messages, shared subscriptions."""

import contextlib
import queue

import paho.mqtt.client as paho
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from pahoclient import leave
from rawclient import RawConnection

pytestmark = pytest.mark.slow

WAIT = 30
V311, V5 = paho.MQTTv311, paho.MQTTv5


class Client:
    """paho-mqtt; what it is sent comes out of `receive`."""

    def __init__(self, node, client_id="", protocol=V5, *, expiry_s=0, clean=True, ack=True):
        self.messages: queue.Queue = queue.Queue()
        self.answers: queue.Queue = queue.Queue()
        version = paho.CallbackAPIVersion.VERSION2
        options = {"clean_session": clean} if protocol == V311 else {}
        self.paho = paho.Client(
            version, client_id, protocol=protocol, manual_ack=not ack, **options
        )
        self.paho.on_connect = lambda *event: self.answers.put(event[4])
        self.paho.on_subscribe = lambda *event: self.answers.put(event[3])
        self.paho.on_unsubscribe = lambda *event: self.answers.put(event[3])
        self.paho.on_publish = lambda *event: self.answers.put(event[3])
        self.paho.on_message = lambda _client, _data, message: self.messages.put(message)
        options = {}
        if protocol == V5:
            properties = Properties(PacketTypes.CONNECT)
            properties.SessionExpiryInterval = expiry_s
            options = {"clean_start": clean, "properties": properties}
        self.paho.connect("127.0.0.1", node.mqtt, **options)
        self.paho.loop_start()
        self.properties = self.answers.get(timeout=WAIT)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        leave(self.paho)

    def subscribe(self, topic_filter, qos=1, identifier=None, **options):
        properties = Properties(PacketTypes.SUBSCRIBE)
        if identifier is not None:
            properties.SubscriptionIdentifier = identifier
        if self.paho.protocol == V5:
            options = {"options": SubscribeOptions(qos, **options), "properties": properties}
            self.paho.subscribe(topic_filter, **options)
        else:
            self.paho.subscribe(topic_filter, qos)
        return self.answers.get(timeout=WAIT)[0].value

    def publish(self, topic, payload=b"x", qos=1, **options):
        self.paho.publish(topic, payload, qos, **options)
        return self.answers.get(timeout=WAIT).value

    def receive(self):
        return self.messages.get(timeout=WAIT)

    def payloads(self, count):
        return [self.receive().payload for _ in range(count)]


def test_mqtt_3_3_4_one_copy_carries_all_identifiers(shared):
    with Client(shared) as client:
        client.subscribe("ids/#", 1, identifier=268_435_455)
        client.subscribe("ids/+", 2, identifier=1)
        client.publish("ids/a", b"one", 2)
        client.publish("ids", b"last", 1)
        first, last = client.receive(), client.receive()
        assert (first.payload, first.qos) == (b"one", 2)
        assert sorted(first.properties.SubscriptionIdentifier) == [1, 268_435_455]
        assert last.properties.SubscriptionIdentifier == [268_435_455]


@pytest.mark.parametrize("protocol", [V311, V5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_mqtt_3_3_1_3_retained_messages_are_kept_replaced_and_cleared(shared, protocol, qos):
    topic = f"retained/{protocol}/{qos}"
    with Client(shared, protocol=protocol) as publisher:
        for payload in (b"old", b"new"):
            publisher.publish(topic, payload, qos, retain=True)
        publisher.publish("flush", b"", 1)
        with Client(shared, protocol=protocol) as late:
            late.subscribe(topic, 2)
            message = late.receive()
            assert (message.payload, message.retain, message.qos) == (b"new", True, qos)
            publisher.publish(topic, b"", qos, retain=True)
            message = late.receive()
            assert (message.payload, message.retain) == (b"", False)
        publisher.publish("flush", b"", 1)
        with Client(shared, protocol=protocol) as later:
            later.subscribe(topic)
            publisher.publish(topic, b"live", 1)
            assert later.receive().payload == b"live"


def test_mqtt_3_8_3_1_retain_options(shared):
    with Client(shared) as publisher, Client(shared) as client:
        publisher.publish("options/a", b"kept", 1, retain=True)
        never = {"retainHandling": SubscribeOptions.RETAIN_DO_NOT_SEND}
        client.subscribe("options/#", 1, retainAsPublished=True, **never)
        publisher.publish("options/a", b"live", 1, retain=True)
        message = client.receive()
        assert (message.payload, message.retain) == (b"live", True)
        # The subscription is there already.
        client.subscribe("options/#", 1, retainHandling=SubscribeOptions.RETAIN_SEND_IF_NEW_SUB)
        client.subscribe("options/a", 1, retainHandling=SubscribeOptions.RETAIN_SEND_IF_NEW_SUB)
        message = client.receive()
        assert (message.payload, message.retain) == (b"live", True)
        publisher.publish("options/b", b"last", 1)
        assert client.receive().payload == b"last"
        publisher.publish("options/a", b"", 1, retain=True)


@pytest.mark.setting("limits.retained_messages", "limits.retained_bytes")
def test_retained_messages_are_bounded_by_the_settings(start_node):
    node = start_node(
        HEADRACE_LIMITS__RETAINED_MESSAGES="2", HEADRACE_LIMITS__RETAINED_BYTES="64KiB"
    )
    with Client(node) as client:
        assert client.publish("a", b"x" * 65_536, 1, retain=True) == 0x97
        answers = [client.publish(topic, b"x", 1, retain=True) for topic in ("a", "b", "c")]
        assert [answer & 0x80 for answer in answers] == [0, 0, 0x80]
        assert client.publish("a", b"", 1, retain=True) < 0x80
        assert client.publish("c", b"x", 1, retain=True) < 0x80
    assert node.metrics()['headrace_mqtt_messages_dropped_total{reason="retained_full"}'] == 2
    assert node.metrics()["headrace_mqtt_retained_messages"] == 2


def test_a_fleet_of_retained_messages_reaches_whoever_subscribes(shared):
    with Client(shared) as publisher, Client(shared) as client:
        for number in range(3_000):
            publisher.paho.publish(f"fleet/{number}/status", b"on", 1, retain=True)
        for _ in range(3_000):
            assert not publisher.answers.get(timeout=WAIT).is_failure
        client.subscribe("fleet/+/status", 1)
        topics = {client.receive().topic for _ in range(3_000)}
        assert len(topics) == 3_000
        for topic in topics:
            publisher.paho.publish(topic, b"", 1, retain=True)
        for _ in range(3_000):
            publisher.answers.get(timeout=WAIT)


def test_mqtt_4_8_2_members_share_the_work(shared):
    with contextlib.ExitStack() as stack:
        members = [stack.enter_context(Client(shared)) for _ in range(3)]
        for member in members:
            assert member.subscribe("$share/turns/share/#", 1) == 1
        publisher = stack.enter_context(Client(shared))
        for number in range(30):
            publisher.publish(f"share/{number}", str(number).encode(), 1)
        shares = [member.payloads(10) for member in members]
        numbers = sorted(int(payload) for share in shares for payload in share)
        assert numbers == list(range(30))


def test_what_a_member_leaves_unfinished_goes_to_the_others(shared):
    with Client(shared) as publisher, Client(shared, ack=False) as idle:
        idle.subscribe("$share/leave/left/+", 1)
        for number in range(5):
            publisher.publish("left/x", str(number).encode(), 1)
        assert len(idle.payloads(5)) == 5
        with Client(shared) as diligent:
            diligent.subscribe("$share/leave/left/+", 1)
            idle.paho.disconnect()
            assert diligent.payloads(5) == [b"0", b"1", b"2", b"3", b"4"]


def test_work_waits_for_a_group_whose_members_are_away(shared):
    name = {"client_id": "night-shift", "expiry_s": 300}
    with Client(shared, **name) as member:
        member.subscribe("$share/night/work/#", 1)
    with Client(shared) as publisher:
        for number in range(20):
            publisher.publish("work/a", str(number).encode(), 1)
    with Client(shared, clean=False, **name) as member:
        assert [int(payload) for payload in member.payloads(20)] == list(range(20))
    with Client(shared, **name):
        """Ends the session."""


@pytest.mark.setting("mqtt.shared_strategy", "limits.group_messages")
def test_the_strategy_and_the_bounds_of_groups_are_settings(start_node):
    node = start_node(HEADRACE_MQTT__SHARED_STRATEGY="sticky", HEADRACE_LIMITS__GROUP_MESSAGES="3")
    with Client(node) as first, Client(node) as second, Client(node) as publisher:
        heard: queue.Queue = queue.Queue()
        for member in (first, second):
            member.paho.on_message = lambda client, _data, _message: heard.put(client)
            member.subscribe("$share/g/t", 1)
        for number in range(10):
            publisher.publish("t", str(number).encode(), 1)
        assert len({heard.get(timeout=WAIT) for _ in range(10)}) == 1
    with Client(node, "away", expiry_s=300) as member:
        member.subscribe("$share/g/u", 1)
    with Client(node) as publisher:
        for number in range(10):
            publisher.publish("u", str(number).encode(), 1)
    assert node.metrics()['headrace_mqtt_messages_dropped_total{reason="group_queue_full"}'] == 7
    assert node.metrics()["headrace_mqtt_shared_queued_messages"] == 3


@pytest.mark.setting("mqtt.shared_strategies")
def test_a_group_may_have_a_strategy_of_its_own(start_node, tmp_path):
    file = tmp_path / "headrace.toml"
    file.write_text('[mqtt]\nshared_strategies = ["one=sticky"]\n')
    node = start_node("--config", str(file))
    with Client(node) as first, Client(node) as second, Client(node) as publisher:
        heard: queue.Queue = queue.Queue()
        for member in (first, second):
            member.paho.on_message = lambda client, _data, message: heard.put(
                (message.topic, client)
            )
            member.subscribe("$share/one/sticky", 1)
            member.subscribe("$share/all/turns", 1)

        def members(topic):
            for number in range(10):
                publisher.publish(topic, str(number).encode(), 1)
            found = [heard.get(timeout=WAIT) for _ in range(10)]
            assert {of for of, _ in found} == {topic}
            return len({client for _, client in found})

        assert (members("sticky"), members("turns")) == (1, 2)
        file.write_text('[mqtt]\nshared_strategies = ["all=sticky"]\n')
        status, answer = node.call("POST", "/api/v1/config/reload")
        assert (status, answer["changed"]) == (200, ["mqtt.shared_strategies"])
        assert (members("sticky"), members("turns")) == (2, 1)
    file.write_text('[mqtt]\nshared_strategies = ["all=sticki"]\n')
    status, answer = node.call("POST", "/api/v1/config/reload")
    assert status == 400
    assert "must be GROUP=STRATEGY" in answer["detail"]


def alias_properties(alias):
    properties = Properties(PacketTypes.PUBLISH)
    properties.TopicAlias = alias
    return properties


def test_mqtt_3_3_2_3_4_a_client_may_name_its_topic_by_an_alias(shared):
    with Client(shared) as publisher, Client(shared, protocol=V311) as subscriber:
        assert publisher.properties.TopicAliasMaximum == 32
        subscriber.subscribe("aliased/#", 1)
        publisher.publish("aliased/topic", b"one", 1, properties=alias_properties(32))
        publisher.publish("", b"two", 1, properties=alias_properties(32))
        heard = [subscriber.receive() for _ in range(2)]
        assert [(message.topic, message.payload) for message in heard] == [
            ("aliased/topic", b"one"),
            ("aliased/topic", b"two"),
        ]


@pytest.mark.setting("mqtt.topic_alias_maximum")
def test_the_most_topic_aliases_are_a_setting(start_node):
    node = start_node(HEADRACE_MQTT__TOPIC_ALIAS_MAXIMUM="2")
    with Client(node) as client:
        assert client.properties.TopicAliasMaximum == 2
        ended: queue.Queue = queue.Queue()
        client.paho.on_disconnect = lambda *event: ended.put(event[3].value)
        client.paho.publish("topic", b"x", 1, properties=alias_properties(3))
        assert ended.get(timeout=WAIT) == 0x94


def test_the_broker_names_topics_by_aliases_where_the_client_allows(shared):
    with RawConnection(shared.mqtt) as client, Client(shared) as publisher:
        client.socket.sendall(b"\x10\x11\x00\x04MQTT\x05\x02\x00\x00\x03\x22\x00\x05\x00\x01z")
        client.read(client.read(2)[1])
        client.socket.sendall(b"\x82\x12\x00\x01\x00\x00\x0calias/topics\x00")
        client.read(client.read(2)[1])
        for payload in (b"a", b"b"):
            publisher.publish("alias/topics", payload, 1)
        first = b"\x00\x0calias/topics" + b"\x03\x23\x00\x01" + b"a"
        assert client.read(2 + len(first)) == bytes([0x30, len(first)]) + first
        second = b"\x00\x00" + b"\x03\x23\x00\x01" + b"b"
        assert client.read(2 + len(second)) == bytes([0x30, len(second)]) + second
