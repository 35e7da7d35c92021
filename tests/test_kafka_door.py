"""The Kafka door, request by request, on real sockets to a real node."""

import random
import socket
import threading
from collections import Counter
from struct import pack

import pytest

from conftest import wait_for
from headrace import limits
from headrace.wire.kafka import admin, apis, groups
from headrace.wire.kafka import messages as m
from headrace.wire.kafka.errors import ErrorCode
from kafkaraw import RawConnection, batch, values


@pytest.fixture
def node(shared):
    return shared


@pytest.mark.setting("kafka.idle_timeout")
def test_an_idle_connection_is_ended(start_node):
    node = start_node(HEADRACE_KAFKA__IDLE_TIMEOUT="200ms")
    with socket.create_connection((node.host, node.kafka), timeout=30) as client:
        assert client.recv(1) == b""
    assert node.metrics()['headrace_kafka_closed_total{reason="idle"}'] == 1


# --- ApiVersions, framing ------------------------------------------------------------------------


def test_api_versions_names_every_request_that_is_served(raw):
    for version in range(4):
        answer = raw.call(apis.API_VERSIONS, m.ApiVersionsRequest(), version)
        ranges = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
        assert answer.error_code == 0
        assert ranges == {
            0: (0, 7), 1: (4, 11), 2: (1, 4), 3: (0, 8), 8: (1, 7), 9: (1, 5), 10: (0, 2),
            11: (0, 5), 12: (0, 3), 13: (0, 3), 14: (0, 3), 15: (0, 4), 16: (0, 2), 17: (0, 1),
            18: (0, 3), 19: (0, 4), 20: (0, 3), 21: (0, 1), 22: (0, 1), 23: (0, 3),
            29: (0, 1), 30: (0, 1), 31: (0, 1), 32: (0, 3),
            33: (0, 1), 35: (0, 1), 36: (0, 1), 37: (0, 1), 42: (0, 1), 44: (0, 0), 47: (0, 0),
            60: (0, 1),
        }  # fmt: skip


def test_a_newer_api_versions_is_answered_with_error_35_in_version_0(raw):
    raw.socket.sendall(pack(">ihhi", 12, 18, 4, 77) + b"\xff\xff\x00\x00")
    frame = raw.read_frame()
    assert frame[:6] == pack(">ih", 77, ErrorCode.UNSUPPORTED_VERSION)
    assert len(frame) == 6 + 4 + 6 * len(apis.APIS), (
        "the ranges follow, so that the client can choose"
    )


def test_pipelined_requests_are_answered_in_order(raw, stream):
    sent = []
    for n in range(200):
        asked = m.ProducePartition(index=n % 3, records=batch(b"%d" % n))
        topic = m.ProduceTopic(name=stream, partitions=[asked])
        body = m.ProduceRequest(acks=-1, timeout_ms=30_000, topics=[topic])
        sent.append(raw.send(apis.PRODUCE, body))
        if n % 10 == 0:
            sent.append(raw.send(apis.METADATA, m.MetadataRequest(topics=None)))
            sent.append(raw.send_fetch(stream, {0: 0}))
    offsets = []
    for request in sent:
        answer = raw.receive(request)
        if request.api is apis.PRODUCE:
            offsets.append(answer.topics[0].partitions[0].base_offset)
        elif request.api is apis.FETCH:  # everything before it has ended, nothing after it
            seen = values(answer.topics[0].partitions[0].records)
            assert len(seen) == len([n for n in range(len(offsets)) if n % 3 == 0])
    assert offsets == [n // 3 for n in range(200)]


def test_a_thousand_requests_of_all_kinds_are_answered_in_their_order(raw, stream):
    chance = random.Random(20261128)
    kinds = [
        lambda n: raw.send_produce(stream, batch(b"%d" % n), n % 3, acks=chance.choice([1, -1])),
        lambda _: raw.send_fetch(stream, {0: 0, 2: 0}, max_bytes=1000),
        lambda _: raw.send(apis.API_VERSIONS, m.ApiVersionsRequest(), chance.randrange(4)),
        lambda _: raw.send(apis.METADATA, m.MetadataRequest(topics=[]), chance.randrange(1, 9)),
        lambda _: raw.send(apis.DESCRIBE_CLUSTER, admin.DescribeClusterRequest()),
        lambda _: raw.send(apis.INIT_PRODUCER_ID, m.InitProducerIdRequest()),
        lambda _: raw.send(apis.FIND_COORDINATOR, groups.FindCoordinatorRequest(key="g")),
    ]
    sent = []

    def send():
        sent.extend(chance.choice(kinds)(number) for number in range(1000))

    sending = threading.Thread(target=send)  # whoever writes a thousand without reading waits
    sending.start()
    stored = Counter()
    for number in range(1000):
        wait_for(lambda number=number: len(sent) > number)
        answer = raw.receive(sent[number])  # which is that of this request and of no other
        if sent[number].api is apis.PRODUCE:
            (partition,) = answer.topics[0].partitions
            assert partition.base_offset == stored[partition.index]
            stored[partition.index] += 1
    sending.join()
    assert min(stored.values()) > 10


REFUSED_VERSIONS = [
    pytest.param(api, version, id=f"{api.name}-{version}")
    for api in apis.APIS.values()
    for version in (api.first - 1, api.last + 1)
    if api is not apis.API_VERSIONS
]


@pytest.mark.parametrize(("api", "version"), REFUSED_VERSIONS)
def test_a_version_that_is_not_served_ends_its_connection(raw, api, version):
    """As in Kafka: nothing says how such a request is laid out, nor how its answer would be."""
    raw.socket.sendall(pack(">ihhi", 12, api.key, version, 1) + b"\xff\xff\x00\x00")
    assert raw.is_closed()


@pytest.mark.parametrize(
    "data",
    [
        pack(">i", 100_000_000),
        pack(">i", 2**31 - 1),
        pack(">i", -1),
        pack(">ihhi", 8, 99, 0, 1),
        pack(">ihhi", 8, 1, 99, 1),
        pack(">ihhi", 8, 3, 1, 1),
        pack(">ihhihi", 14, 3, 1, 1, -1, 2**31 - 1),
        pack(">i", 3) + b"abc",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x10\x10\x00\x04MQTT\x04\x02\x00\x3c\x00\x04abcd",
        bytes(range(255, -1, -1)) * 40,
    ],
    ids=[
        "100 MB", "2 GB", "negative", "unknown request", "unknown version", "cut off",
        "hostile count", "no header", "HTTP", "MQTT", "bytes",
    ],
)  # fmt: skip
def test_malformed_requests_end_their_connection_and_nothing_else(node, raw, data):
    with RawConnection(node) as other:
        before = node.log.read_text().count("malformed request")
        raw.socket.sendall(data)
        assert raw.is_closed()
        other.call(apis.METADATA, m.MetadataRequest(topics=[]))
    assert node.log.read_text().count("malformed request") == before + 1, "one line says why"


def test_a_request_before_a_malformed_one_is_answered(raw):
    raw.call(apis.METADATA, m.MetadataRequest(topics=[]))
    raw.socket.sendall(pack(">i", -5))
    assert raw.is_closed()


def test_a_request_may_come_byte_by_byte(raw):
    raw.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for byte in pack(">ihhih", 10, 18, 0, 5, -1):
        raw.socket.sendall(bytes([byte]))
    assert raw.read_frame()[:6] == pack(">ih", 5, 0)


# --- figures -------------------------------------------------------------------------------------


def test_requests_and_closed_connections_are_counted(node, raw):
    raw.call(apis.METADATA, m.MetadataRequest(topics=[]))
    with RawConnection(node) as bad:
        bad.socket.sendall(pack(">i", -1))
        assert bad.is_closed()
    metrics = node.metrics()
    assert metrics['headrace_kafka_requests_total{request="Metadata"}'] >= 1
    assert metrics['headrace_kafka_closed_total{reason="malformed"}'] >= 1


@pytest.mark.parametrize(
    "pad_bytes", [0, pytest.param(2 * limits.CHECKED_AT_ONCE_BYTES_MAX, marks=pytest.mark.slow)]
)
def test_what_a_client_sent_before_it_left_is_stored(node, stream, pad_bytes):
    """With acks 0 a client hears nothing, so it may close as soon as it has sent."""
    for number in range(20):
        with RawConnection(node) as leaving:
            leaving.send_produce(stream, batch(b"%d" % number, bytes(pad_bytes)), acks=0)
    wait_for(lambda: node.ends(stream)[0] == 40)
