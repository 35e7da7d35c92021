"""Bugs that other brokers have had, each as a whole kind, on a real node.

Those that need no node are beside their machines (`Bug N of other brokers`).
"""

import struct

import pytest

from conftest import soaked
from rawclient import RawMqtt, varint
from test_mqtt_routing import Client

pytestmark = pytest.mark.slow

MIB = 1024 * 1024
LARGE = {
    "HEADRACE_MQTT__PACKET_BYTES": "17MiB",
    "HEADRACE_LIMITS__OUTBOUND_BYTES": "64MiB",
    "HEADRACE_LIMITS__SESSION_BYTES": "64MiB",
}


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_payloads_around_each_length_of_the_header_arrive_whole(start_node, qos):
    """activemq#2518: lengths of four bytes were refused."""
    node = start_node(**LARGE)
    with Client(node) as client:
        client.subscribe("large", 2)
        for size in (2 * MIB - 1, 2 * MIB, 2 * MIB + 1, 16 * MIB):
            payload = size.to_bytes(4, "big") * (size // 4) + b"x" * (size % 4)
            client.publish("large", payload, qos)
            assert client.receive().payload == payload


def test_a_payload_is_never_that_of_another_topic(shared):
    """HiveMQ CE#291: topics and payloads of a busy node were mixed up."""
    with Client(shared) as publisher, Client(shared) as all_of_them, Client(shared) as one:
        all_of_them.subscribe("mixed/#", 1)
        one.subscribe("mixed/7", 2)
        for number in range(600):
            topic = f"mixed/{number % 50}"
            publisher.paho.publish(topic, f"{topic} {number}".encode(), number % 3)
        for client, count in ((all_of_them, 600), (one, 12)):
            messages = [client.receive() for _ in range(count)]
            assert all(each.payload.split()[0].decode() == each.topic for each in messages)
            assert len({each.payload for each in messages}) == count


@pytest.mark.parametrize("rounds", [4, soaked(25)])
def test_filters_that_come_and_go_leave_no_memory_behind(start_node, rounds):
    """NanoMQ#768, moquette#752: 40,000 filters a round that nobody had before."""
    node = start_node()
    with RawMqtt(node.mqtt, "churn") as client:
        resident = []
        for number in range(rounds):
            filters = [f"{number}/{each}/+/x".encode() for each in range(40_000)]
            for header, options, ack in ((0x82, b"\0", 0x90), (0xA2, b"", 0xB0)):
                for at in range(0, len(filters), 1_000):
                    part = filters[at : at + 1_000]
                    body = b"\0\1" + b"".join(
                        struct.pack(">H", len(each)) + each + options for each in part
                    )
                    client.socket.sendall(bytes([header]) + varint(len(body)) + body)
                    size = 1_000 if header == 0x82 else 0
                    answer = client.read(1 + len(varint(2 + size)) + 2 + size)
                    assert answer[0] == ack
            resident.append(node.resident_bytes())
        assert node.metrics()["headrace_mqtt_subscriptions"] == 0
        # The first round leaves what the allocator keeps.
        assert resident[-1] - resident[0] < 8 * MIB
