"""What is published over MQTT as records of streams."""

import struct

import pytest

from headrace.client import FetchClient
from headrace.native import decode_records
from pahoclient import V311, Client, publish_properties


def records(node, stream, partition=0):
    """`(key, value, headers)` of every record of a partition."""
    with FetchClient(node.servers) as client:
        end = node.ends(stream)[partition]
        found = []
        offset = 0
        while offset < end:
            data = client.fetch(stream, partition, offset, 1 << 20, 1000)
            columns = decode_records(data, offset, end, 1_000_000)
            found += _rows(columns)
            offset = columns.next_offset
        return found


def _rows(columns):
    keys, values = _binary(columns.keys), _binary(columns.values)
    names, contents = _binary(columns.header_keys), _binary(columns.header_values)
    lists = struct.unpack(f"<{columns.records + 1}i", bytes(columns.header_lists))
    headers = [
        [(names[at].decode(), contents[at]) for at in range(lists[row], lists[row + 1])]
        for row in range(columns.records)
    ]
    return list(zip(keys, values, headers, strict=True))


def _binary(column):
    validity, offsets, data = (None if part is None else bytes(part) for part in column)
    bounds = struct.unpack(f"<{len(offsets) // 4}i", offsets)
    return [
        None
        if validity is not None and not validity[row // 8] >> row % 8 & 1
        else data[bounds[row] : bounds[row + 1]]
        for row in range(len(bounds) - 1)
    ]


def test_a_stored_message_is_a_record(broker):
    broker.create_stream("s", filters=["t/#"])
    properties = publish_properties(
        ("colour", "red"), ContentType="text/plain", ResponseTopic="r", CorrelationData=b"c"
    )
    with Client(broker) as client:
        assert client.publish("t/1", b"payload", properties=properties) == 0
        assert client.publish("t/2", b"", qos=1) == 0
    first, second = records(broker, "s")
    assert first == (
        b"t/1",
        b"payload",
        [
            ("mqtt.topic", b"t/1"),
            ("mqtt.content-type", b"text/plain"),
            ("mqtt.response-topic", b"r"),
            ("mqtt.correlation-data", b"c"),
            ("colour", b"red"),
        ],
    )
    assert second == (b"t/2", b"", [("mqtt.topic", b"t/2")])


@pytest.mark.parametrize(
    ("key", "expected"),
    [("topic", b"a/b/c"), ("level:2", b"b"), ("level:9", b"a/b/c"), ("property:host", b"h1")],
)
def test_the_key_rule_names_the_key(broker, key, expected):
    broker.create_stream("s", filters=["#"], key=key)
    with Client(broker) as client:
        client.publish("a/b/c", b"x", properties=publish_properties(("host", "h1")))
    assert records(broker, "s")[0][0] == expected


def test_one_key_is_one_partition_in_order(broker):
    broker.create_stream("s", partitions=8, filters=["t/#"])
    with Client(broker, V311) as client:
        for number in range(400):
            client.paho.publish(f"t/{number % 20}", str(number), 1)
        for _ in range(400):
            client.event("publish")
    found: dict[bytes, list[int]] = {}
    homes: dict[bytes, set[int]] = {}
    for partition in range(8):
        for key, value, _ in records(broker, "s", partition):
            found.setdefault(key, []).append(int(value))
            homes.setdefault(key, set()).add(partition)
    assert {len(home) for home in homes.values()} == {1}
    assert found == {f"t/{k}".encode(): list(range(k, 400, 20)) for k in range(20)}


def sequenced(epoch, sequence):
    return publish_properties(("source", "s1"), ("epoch", str(epoch)), ("sequence", str(sequence)))


def test_a_repeat_is_acknowledged_and_not_stored_also_after_a_kill(start_node):
    node = start_node()
    node.create_stream("s", filters=["t"])
    with Client(node) as client:
        for sequence in (1, 2, 2, 1, 3):
            assert client.publish("t", properties=sequenced(1, sequence)) == 0
    assert node.ends("s") == [3]
    node.kill()
    node = start_node.again(node)
    with Client(node) as client:
        assert client.publish("t", properties=sequenced(1, 3)) == 0
        assert node.ends("s") == [3]
        assert client.publish("t", properties=sequenced(2, 1)) == 0
        assert client.publish("t", properties=sequenced(1, 4)) == 0x83, "stale epoch"
    assert node.ends("s") == [4]
    assert node.stop() == 0
    node = start_node.again(node)
    with Client(node) as client:
        assert client.publish("t", properties=sequenced(2, 1)) == 0
    assert node.ends("s") == [4]


def test_a_deleted_streams_publishers_go_on(broker):
    broker.create_stream("s", filters=["t"])
    with Client(broker) as client:
        assert client.publish("t") == 0
        broker.call("DELETE", "/api/v1/streams/s")
        assert client.publish("t") in (0, 0x10)


def test_a_publish_without_payload_removes_its_key_from_a_compacted_stream(broker):
    compacts = {"cleanup.policy": "compact"}
    broker.create_stream("state", filters=["t/#"], settings=compacts)
    broker.create_stream("all", filters=["t/#"])
    with Client(broker) as client:
        client.publish("t/1", b"on", qos=1)
        client.publish("t/1", b"", qos=1)
    assert broker.call("POST", "/api/v1/publish", {"topic": "t/1", "payload": ""})[0] == 200

    def stored(stream):
        return [(key, value) for key, value, _ in records(broker, stream)]

    assert stored("state") == [(b"t/1", b"on"), (b"t/1", None), (b"t/1", None)]
    assert stored("all") == [(b"t/1", b"on"), (b"t/1", b""), (b"t/1", b"")]
    settings = {"settings": {"cleanup.policy": "delete"}}
    assert broker.call("PATCH", "/api/v1/streams/state", settings)[0] == 200
    with Client(broker) as client:
        client.publish("t/1", b"", qos=1)
    assert stored("state")[-1] == (b"t/1", b"")
