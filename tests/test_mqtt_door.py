"""The MQTT door on a real node, with the clients that people use."""

import asyncio
import socket
import struct
import subprocess
from concurrent.futures import ThreadPoolExecutor

import aiomqtt
import pytest
from paho.mqtt.subscribeoptions import SubscribeOptions

from conftest import wait_for
from pahoclient import V5, V311, WAIT, Client, drop, publish_properties
from rawclient import RawConnection, RawMqtt

PINGREQ, PINGRESP = b"\xc0\x00", b"\xd0\x00"


# --- round trips --------------------------------------------------------------------------------


@pytest.mark.parametrize("publisher_version", [V311, V5])
@pytest.mark.parametrize("subscriber_version", [V311, V5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_versions_and_qos_mix(shared, publisher_version, subscriber_version, qos):
    with (
        Client(shared, subscriber_version) as subscriber,
        Client(shared, publisher_version) as client,
    ):
        assert subscriber.subscribe("a/+/c/#", qos) == qos
        client.publish("a/b/c", b"one", qos)
        client.publish("a/b", b"no", qos)
        client.publish("a/b/c/d/e", b"two", qos)
        assert [
            (m.topic, m.payload, m.qos) for m in (subscriber.receive(), subscriber.receive())
        ] == [
            ("a/b/c", b"one", qos),
            ("a/b/c/d/e", b"two", qos),
        ]
        subscriber.unsubscribe("a/+/c/#")
        client.publish("a/b/c", b"three", qos)
        assert subscriber.subscribe("last") == 1
        client.publish("last", b"last", qos)
        assert subscriber.receive().payload == b"last"


@pytest.mark.parametrize(
    ("published", "granted", "delivered"), [(0, 2, 0), (2, 0, 0), (1, 2, 1), (2, 1, 1)]
)
def test_delivery_is_at_the_lower_qos(shared, published, granted, delivered):
    with Client(shared) as client:
        client.subscribe("t", granted)
        client.publish("t", b"x", published)
        assert client.receive().qos == delivered


@pytest.mark.parametrize("version", ["311", "5"])
def test_mosquitto_clients(shared, version):
    to_node = ["-V", version, "-h", shared.host, "-p", str(shared.mqtt)]
    with subprocess.Popen(
        [
            "stdbuf",
            "-oL",
            "mosquitto_sub",
            *to_node,
            "-d",
            "-q",
            "1",
            "-t",
            "a/#",
            "-C",
            "2",
            "-W",
            str(WAIT),
            "-v",
        ],
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    ) as subscriber:
        for line in subscriber.stdout:
            if "Subscribed" in line:
                break
        for qos in ("0", "1"):
            subprocess.run(
                ["mosquitto_pub", *to_node, "-q", qos, "-t", "a/b", "-m", f"hello {qos}"],
                check=True,
                timeout=WAIT,
            )
        received = [line for line in subscriber.stdout if line.startswith("a/b ")]
    assert received == ["a/b hello 0\n", "a/b hello 1\n"]


@pytest.mark.parametrize("protocol", [aiomqtt.ProtocolVersion.V311, aiomqtt.ProtocolVersion.V5])
async def test_aiomqtt(shared, protocol):
    async with (
        asyncio.timeout(WAIT),
        aiomqtt.Client(shared.host, shared.mqtt, protocol=protocol) as client,
    ):
        await client.subscribe("a/#", qos=1)
        await client.publish("a/b", b"hello", qos=1)
        message = await anext(aiter(client.messages))
        assert (str(message.topic), message.payload) == ("a/b", b"hello")


def test_properties_pass_unchanged(shared):
    with Client(shared) as client:
        client.subscribe("t")
        sent = publish_properties(
            ("a", "1"), ("a", "2"), ContentType="text/plain", ResponseTopic="r",
            CorrelationData=b"\0c", PayloadFormatIndicator=1,
        )  # fmt: skip
        client.publish("t", b"x", properties=sent)
        got = client.receive().properties
    assert got.UserProperty == [("a", "1"), ("a", "2")]
    assert (got.ContentType, got.ResponseTopic, got.CorrelationData) == ("text/plain", "r", b"\0c")
    assert got.PayloadFormatIndicator == 1


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_383, 16_384, 300_000, 1_048_576])
def test_payload_sizes(shared, size):
    payload = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    with Client(shared) as client:
        client.subscribe("t")
        client.publish("t", payload)
        assert client.receive().payload == payload


# --- what connect says --------------------------------------------------------------------------


def test_connack_names_what_is_not_served_yet(shared):
    with Client(shared) as client:
        properties = client.properties
    assert not hasattr(properties, "MaximumQoS"), "all of them"
    assert not hasattr(properties, "RetainAvailable")
    assert not hasattr(properties, "SharedSubscriptionAvailable")
    assert properties.AssignedClientIdentifier


@pytest.mark.setting("mqtt.packet_bytes", "mqtt.receive_maximum", "mqtt.keep_alive_max")
def test_settings_of_the_door_are_announced(start_node):
    node = start_node(
        HEADRACE_MQTT__PACKET_BYTES="64KiB",
        HEADRACE_MQTT__RECEIVE_MAXIMUM="7",
        HEADRACE_MQTT__KEEP_ALIVE_MAX="9s",
    )
    with Client(node, keepalive=60) as client:
        assert client.properties.MaximumPacketSize == 65_536
        assert client.properties.ReceiveMaximum == 7
        assert client.properties.ServerKeepAlive == 9
        client.paho.publish("t", b"x" * 70_000, 1)
        assert client.event("disconnect")[3].value == 0x95, "packet too large"


@pytest.mark.setting("mqtt.connect_timeout")
def test_a_client_that_never_connects_is_closed(start_node):
    node = start_node(HEADRACE_MQTT__CONNECT_TIMEOUT="200ms")
    with RawConnection(node.mqtt) as silent:
        assert silent.socket.recv(1) == b""


def test_keep_alive_3_1_2_10(shared):
    with RawConnection(shared.mqtt) as client:
        client.socket.sendall(b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x01\x00\x01c")
        assert client.read(4) == b"\x20\x02\x00\x00"
        assert client.socket.recv(1) == b"", "closed after one and a half of 1 s"


def test_a_newer_connection_takes_the_client_id_over(shared):
    first = Client(shared, client_id="same")
    first.paho.reconnect_on_failure = False
    with Client(shared, client_id="same") as second:
        assert first.event("disconnect")[3].value == 0x8E, "session taken over"
        drop(first.paho)
        assert second.publish("t") == 0x10, "no matching subscribers"


# --- what is not served yet ---------------------------------------------------------------------


def test_subscription_options_are_taken(shared):
    with Client(shared) as client:
        options = SubscribeOptions(qos=1, noLocal=True)
        client.paho.subscribe("t", options=options)
        assert client.event("subscribe")[3][0].value == 1
        with Client(shared) as other:
            client.publish("t", b"mine")
            other.publish("t", b"theirs")
            assert client.receive().payload == b"theirs"


# --- wills --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [V311, V5])
def test_a_will_is_published_when_the_connection_breaks(shared, version):
    with Client(shared) as watcher:
        watcher.subscribe("will")
        client = Client(shared, version, will=("will", b"gone", 1))
        drop(client.paho)
        assert watcher.receive().payload == b"gone"


def test_a_will_is_not_published_after_disconnect_3_14_4(shared):
    with Client(shared) as watcher:
        watcher.subscribe("#")
        with Client(shared, will=("will", b"gone", 1)):
            pass
        watcher.publish("last", b"last")
        assert watcher.receive().topic == "last"


# --- bounds -------------------------------------------------------------------------------------


@pytest.mark.setting("limits.outbound_bytes")
def test_a_slow_subscriber_costs_a_bounded_memory_and_is_counted(start_node):
    node = start_node(HEADRACE_LIMITS__OUTBOUND_BYTES="256KiB", HEADRACE_LIMITS__STALL="10ms")
    with RawMqtt(node.mqtt, "slow") as slow, RawMqtt(node.mqtt, "fast") as fast:
        slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.socket.sendall(b"\x82\x06\x00\x01\x00\x01t\x00")
        assert slow.read(5) == b"\x90\x03\x00\x01\x00"
        before = node.resident_bytes()
        for _ in range(1500):
            fast.publish("t", b"x" * 16_384, 0)
        fast.socket.sendall(PINGREQ)
        assert fast.read(2) == PINGRESP
        assert node.resident_bytes() - before < 16 * 1024 * 1024
        metrics = node.metrics()
        dropped = metrics['headrace_mqtt_messages_dropped_total{reason="outbound_full"}']
        assert dropped > 0
        assert dropped + metrics["headrace_mqtt_messages_delivered_total"] == 1500
        assert metrics["headrace_mqtt_stalls_total"] > 0


@pytest.mark.setting("limits.stall")
def test_a_long_stall_holds_publishers_instead_of_dropping(start_node):
    node = start_node(HEADRACE_LIMITS__OUTBOUND_BYTES="256KiB", HEADRACE_LIMITS__STALL="60s")
    with RawMqtt(node.mqtt, "slow") as slow, RawMqtt(node.mqtt, "fast") as fast:
        slow.socket.sendall(b"\x82\x06\x00\x01\x00\x01t\x00")
        assert slow.read(5) == b"\x90\x03\x00\x01\x00"

        def flood():
            for _ in range(1500):
                fast.publish("t", b"x" * 16_384, 0)

        with ThreadPoolExecutor(1) as pool:
            flooding = pool.submit(flood)
            while not node.metrics()["headrace_mqtt_stalls_total"]:
                pass
            assert len(slow.read(1500 * (16_384 + 7))) == 1500 * (16_384 + 7)
            flooding.result(WAIT)


@pytest.mark.setting("limits.undurable_bytes")
def test_what_waits_for_the_disk_is_bounded(start_node):
    node = start_node(HEADRACE_LIMITS__UNDURABLE_BYTES="1MiB")
    node.create_stream("s", filters=["t"])
    with RawMqtt(node.mqtt, "c") as client:

        def flood():
            for number in range(2000):
                client.publish("t", b"x" * 8192, number + 1)

        with ThreadPoolExecutor(1) as pool:
            flooding = pool.submit(flood)
            waiting = []
            for packet_id in range(1, 2001):
                assert client.puback() == packet_id
                if packet_id % 100 == 0:
                    waiting.append(node.metrics()["headrace_mqtt_undurable_bytes"])
            flooding.result(WAIT)
    assert max(waiting) < 2 * 1024 * 1024
    assert node.ends("s") == [2000]


def test_connect_twice_is_refused_3_1_0_2(shared):
    with RawMqtt(shared.mqtt, "c") as client:
        client.socket.sendall(b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01c")
        assert client.socket.recv(1) == b""


def test_truncated_packets_leave_the_node_up(broker):
    packets = [
        b"\x10\x0e\x00\x04MQTT\x05\x02\x00\x00\x00\x00\x01c",
        b"\x32\x09\x00\x01t\x00\x01\x00abc",
        b"\x82\x07\x00\x02\x00\x00\x01t\x01",
        b"\xe0\x02\x00\x00",
    ]
    stream = b"".join(packets)
    for cut in range(1, len(stream)):
        with RawConnection(broker.mqtt) as client:
            client.socket.sendall(stream[:cut])
            client.socket.shutdown(socket.SHUT_WR)
            while client.socket.recv(4096):
                pass
    with RawMqtt(broker.mqtt, "c") as client:
        client.socket.sendall(PINGREQ)
        assert client.read(2) == PINGRESP
    assert broker.metrics()['headrace_connections{door="mqtt"}'] == 0


def test_who_reads_nothing_leaves_the_kernel_little(start_node):
    """Of what is sent to a client, the kernel of itself would take 2.5 MiB and more."""
    node = start_node()
    with RawMqtt(node.mqtt, "deaf") as deaf, RawMqtt(node.mqtt, "publisher") as publisher:
        deaf.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        deaf.subscribe("t")
        for packet_id in range(1, 9):
            publisher.publish("t", b"x" * 1_000_000, packet_id)
            assert publisher.read(4) == b"\x40\x02" + struct.pack(">H", packet_id)
        wait_for(lambda: node.metrics()["headrace_mqtt_outbound_bytes"] > 7_000_000)
        for _ in range(8):
            assert deaf.message() == ("t", b"x" * 1_000_000)
