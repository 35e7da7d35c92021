"""MQTT sessions on a real node, with paho: what outlives a connection, and its bounds.

What the machine decides is tested clause by clause in Rust
(`crates/headrace-core/tests/switchboard/{session,exchange,will,bounds}.rs`); here the clients that
people use meet it, and each setting takes effect.
"""

import queue
import socket
import time

import paho.mqtt.client as paho
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from conftest import wait_for
from pahoclient import drop, leave
from rawclient import RawConnection, RawMqtt

pytestmark = pytest.mark.slow

WAIT = 30
V311, V5 = paho.MQTTv311, paho.MQTTv5
QUOTA_EXCEEDED = 0x97


class Client:
    """paho-mqtt on a session that lives for `expiry` seconds (3.1.1: for as long as any may)."""

    def __init__(self, node, client_id="a", protocol=V5, expiry=60, **options):
        clean, will = options.get("clean", False), options.get("will")
        self.messages: queue.Queue = queue.Queue()
        self.events: queue.Queue = queue.Queue()
        session = {} if protocol == V5 else {"clean_session": clean}
        self.paho = paho.Client(
            paho.CallbackAPIVersion.VERSION2,
            client_id,
            protocol=protocol,
            reconnect_on_failure=options.get("reconnects", False),
            **session,
        )
        self.paho.on_connect = lambda *event: self.events.put(event)
        self.paho.on_subscribe = lambda *event: self.events.put(event)
        self.paho.on_publish = lambda *event: self.events.put(event)
        self.paho.on_message = lambda _client, _data, message: self.messages.put(message)
        if will is not None:
            topic, delay = will
            properties = Properties(PacketTypes.WILLMESSAGE)
            properties.WillDelayInterval = delay
            self.paho.will_set(topic, b"gone", 1, properties=properties)
        if protocol == V5:
            properties = Properties(PacketTypes.CONNECT)
            properties.SessionExpiryInterval = expiry
            properties.RequestResponseInformation = 1
            start = {"clean_start": clean, "properties": properties}
            self.paho.connect(node.host, node.mqtt, **start)
        else:
            self.paho.connect(node.host, node.mqtt)
        self.paho.loop_start()
        _, _, flags, self.reason, self.properties = self.events.get(timeout=WAIT)
        self.present = flags.session_present

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.leave()

    def leave(self):
        """DISCONNECT."""
        leave(self.paho)

    def refused(self):
        """The reason code of a CONNACK that says no."""
        self.leave()
        return self.reason.value

    def vanish(self):
        """The connection is lost."""
        self.paho.socket().shutdown(socket.SHUT_RDWR)
        drop(self.paho)

    def subscribe(self, topic_filter, qos=2):
        self.paho.subscribe(topic_filter, qos)
        assert self.events.get(timeout=WAIT)[3][0].value == qos

    def publish(self, topic, payload, qos):
        self.paho.publish(topic, payload, qos)
        self.events.get(timeout=WAIT)

    def receive(self, count=1):
        """Payloads of so many messages."""
        return [self.messages.get(timeout=WAIT).payload for _ in range(count)]


def publish(node, *payloads, topic="t", qos=1):
    with Client(node, "publisher", expiry=0, clean=True) as client:
        for payload in payloads:
            client.publish(topic, payload, qos)


@pytest.mark.parametrize("before", [V311, V5])
@pytest.mark.parametrize("after", [V311, V5])
def test_a_client_that_comes_back_gets_what_it_missed(shared, before, after):
    name = f"missed-{before}-{after}"
    with Client(shared, name, before) as client:
        assert not client.present
        client.subscribe(name)
    for qos in (0, 1, 2):
        publish(shared, str(qos), topic=name, qos=qos)
    with Client(shared, name, after) as client:
        assert client.present
        assert client.receive(2) == [b"1", b"2"]
    with Client(shared, name, after, clean=True) as client:
        assert not client.present


@pytest.mark.parametrize("protocol", [V311, V5])
def test_qos_1_loses_nothing_over_many_connections(shared, protocol):
    name = f"churn-{protocol}"
    with Client(shared, name, protocol) as client:
        client.subscribe(name, 1)
    publish(shared, *map(str, range(300)), topic=name)
    received: set[bytes] = set()
    while len(received) < 300:
        client = Client(shared, name, protocol)
        received.update(client.receive())
        client.vanish()
        while not client.messages.empty():
            received.update(client.receive())
    assert received == {str(number).encode() for number in range(300)}


@pytest.mark.parametrize("protocol", [V311, V5])
def test_qos_2_arrives_once_though_the_connection_breaks_in_the_middle(shared, protocol):
    name = f"once-{protocol}"
    client = Client(shared, name, protocol, reconnects=True)
    client.subscribe(name)
    client.paho.on_publish = None
    for burst in range(3):
        for number in range(200):
            client.paho.publish(name, str(200 * burst + number), 2)
        client.paho.socket().shutdown(socket.SHUT_RDWR)
        assert client.events.get(timeout=WAIT)[2].session_present
    received = client.receive(600)
    client.paho.publish(name, "last", 2)
    assert client.receive() == [b"last"], "and nothing twice"
    client.leave()
    assert sorted(map(int, received)) == list(range(600))


def test_a_disconnect_may_end_the_session(shared):
    client = Client(shared, "ends")
    properties = Properties(PacketTypes.DISCONNECT)
    properties.SessionExpiryInterval = 0
    client.paho.disconnect(properties=properties)
    client.leave()
    with Client(shared, "ends", expiry=0) as client:
        assert not client.present


def test_a_will_waits_for_its_delay_and_is_forgotten_when_its_client_comes_back(shared):
    with Client(shared, "watcher", expiry=0) as watcher:
        watcher.subscribe("wills/#")
        Client(shared, "returns", will=("wills/returns", 1)).vanish()
        with Client(shared, "returns") as back:
            assert back.present
            began = time.monotonic()
            Client(shared, "stays-away", will=("wills/stays-away", 1)).vanish()
            message = watcher.messages.get(timeout=WAIT)
            assert message.topic == "wills/stays-away"
            assert time.monotonic() - began >= 1, "never before its delay"


# --- settings -----------------------------------------------------------------------------------


@pytest.mark.setting("mqtt.session_expiry_max")
def test_the_longest_expiry_is_told_and_holds(start_node):
    node = start_node(HEADRACE_MQTT__SESSION_EXPIRY_MAX="1s")
    with Client(node, "five", expiry=60) as five, Client(node, "three", V311):
        assert five.properties.SessionExpiryInterval == 1
    assert node.metrics()["headrace_mqtt_sessions"] == 2
    wait_for(lambda: node.metrics()["headrace_mqtt_sessions"] == 0)


@pytest.mark.setting("limits.session_messages", "mqtt.overflow")
def test_the_queue_of_a_session_is_bounded_and_the_oldest_may_give_way(start_node):
    node = start_node(HEADRACE_LIMITS__SESSION_MESSAGES="3", HEADRACE_MQTT__OVERFLOW="drop-oldest")
    with Client(node) as client:
        client.subscribe("t")
    publish(node, *"12345")
    with Client(node) as client:
        assert client.receive(3) == [b"3", b"4", b"5"]
    dropped = node.metrics()['headrace_mqtt_messages_dropped_total{reason="queue_full_oldest"}']
    assert dropped == 2


@pytest.mark.parametrize(
    ("setting", "reason"), [("SESSION_BYTES", "queue_full"), ("QUEUED_BYTES", "memory_full")]
)
def test_bytes_that_wait_are_bounded(start_node, setting, reason):
    node = start_node(**{f"HEADRACE_LIMITS__{setting}": "20KiB"})
    with Client(node) as client:
        client.subscribe("t")
    publish(node, *["x" * 8000] * 4)
    assert node.metrics()["headrace_mqtt_outbound_queued_messages"] == 2
    assert node.metrics()[f'headrace_mqtt_messages_dropped_total{{reason="{reason}"}}'] == 2


@pytest.mark.setting("limits.session_bytes", "limits.session_in_flight")
def test_a_full_client_may_be_disconnected(start_node):
    node = start_node(
        HEADRACE_LIMITS__SESSION_BYTES="300",
        HEADRACE_LIMITS__SESSION_IN_FLIGHT="1",
        HEADRACE_MQTT__OVERFLOW="disconnect",
    )
    with RawMqtt(node.mqtt, "slow") as slow:
        slow.socket.sendall(b"\x82\x06\x00\x01\x00\x01t\x01")
        assert slow.read(5) == b"\x90\x03\x00\x01\x01"
        publish(node, *"123")
        assert slow.read(8) == b"\x32\x06\x00\x01t\x00\x011", "one in flight"
        assert slow.socket.recv(1) == b""


@pytest.mark.setting("limits.sessions", "limits.sessions_kept")
def test_sessions_are_bounded(start_node):
    node = start_node(HEADRACE_LIMITS__SESSIONS="2", HEADRACE_LIMITS__SESSIONS_KEPT="1")
    with Client(node, "a"), RawMqtt(node.mqtt, "b"):
        assert Client(node, "c", expiry=0).refused() == QUOTA_EXCEEDED
    with Client(node, "a") as client:
        assert client.present
    assert Client(node, "b").refused() == QUOTA_EXCEEDED, "one is kept"
    with Client(node, "b", expiry=0) as client:
        assert not client.reason.is_failure


@pytest.mark.setting("mqtt.response_information")
def test_response_information_is_told_to_who_asks(start_node):
    node = start_node(HEADRACE_MQTT__RESPONSE_INFORMATION="reply/")
    with Client(node) as client:
        assert client.properties.ResponseInformation == "reply/"


@pytest.mark.setting("limits.messages_per_second")
def test_a_client_is_held_to_its_rate(start_node):
    node = start_node(HEADRACE_LIMITS__MESSAGES_PER_SECOND="50")
    began = time.monotonic()
    publish(node, *["x"] * 75)
    assert time.monotonic() - began >= 0.5
    assert node.metrics()["headrace_mqtt_rate_pauses_total"] > 0


def test_a_method_of_authentication_is_refused_as_long_as_there_is_none(shared):
    properties = b"\x15\x00\x01M"
    body = b"\x00\x04MQTT\x05\x02\x00\x00" + bytes([len(properties)]) + properties + b"\x00\x01c"
    with RawConnection(shared.mqtt) as client:
        client.socket.sendall(bytes([0x10, len(body)]) + body)
        assert client.read(4)[3] == 0x8C
