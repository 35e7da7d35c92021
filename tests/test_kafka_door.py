"""The Kafka door, request by request, on real sockets to a real node."""

import random
import socket
import threading
import uuid
from collections import Counter
from struct import pack

import pytest

from conftest import wait_for
from headrace import limits
from headrace.native import build_batch
from headrace.wire.kafka import admin, apis, groups
from headrace.wire.kafka import messages as m
from headrace.wire.kafka.errors import ErrorCode
from kafkaraw import RawConnection, batch, restamped, values


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


# --- Metadata, topics ----------------------------------------------------------------------------


def metadata(raw, *names, version=8, **more):
    topics = [m.MetadataRequestTopic(name=name) for name in names]
    answer = raw.call(apis.METADATA, m.MetadataRequest(topics=topics, **more), version)
    return {topic.name: topic for topic in answer.topics}


def test_metadata_names_the_node_where_the_client_reached_it(node, raw, stream):
    for version in range(9):
        answer = raw.call(
            apis.METADATA, m.MetadataRequest(topics=[m.MetadataRequestTopic(name=stream)]), version
        )
        (broker,) = answer.brokers
        assert (broker.node_id, broker.host, broker.port) == (1, "127.0.0.1", node.kafka)
        (topic,) = answer.topics
        assert [p.partition_index for p in topic.partitions] == [0, 1, 2]
        assert {p.leader_id for p in topic.partitions} == {1}


def test_metadata_of_all_streams(raw, stream):
    every = raw.call(apis.METADATA, m.MetadataRequest(topics=[]), 0)
    assert stream in {topic.name for topic in every.topics}
    every = raw.call(apis.METADATA, m.MetadataRequest(topics=None), 1)
    assert stream in {topic.name for topic in every.topics}
    assert raw.call(apis.METADATA, m.MetadataRequest(topics=[]), 1).topics == []


def test_metadata_creates_a_stream_only_where_the_client_allows_it(raw):
    name = f"auto-{uuid.uuid4().hex[:8]}"
    refused = metadata(raw, name, allow_auto_topic_creation=False)[name]
    assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert len(metadata(raw, name)[name].partitions) == 1
    assert raw.produce(name, batch(b"x")).error_code == 0


@pytest.mark.parametrize("name", ["", "a b", "ä", "x" * 250, "..", "__x"])
def test_metadata_of_what_is_no_name(raw, name):
    assert metadata(raw, name)[name].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.setting("kafka.advertised", "kafka.auto_create_streams")
def test_settings_of_the_door(start_node):
    node = start_node(
        HEADRACE_KAFKA__AUTO_CREATE_STREAMS="false", HEADRACE_KAFKA__ADVERTISED="localhost:19999"
    )
    with RawConnection(node) as raw:
        assert metadata(raw, "new")["new"].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        answer = raw.call(apis.METADATA, m.MetadataRequest(topics=[]))
        assert (answer.brokers[0].host, answer.brokers[0].port) == ("localhost", 19999)
        found = raw.call(apis.FIND_COORDINATOR, groups.FindCoordinatorRequest(key="g"))
        assert (found.host, found.port) == ("localhost", 19999)


def created(raw, *topics, version=4, **more):
    body = admin.CreateTopicsRequest(topics=list(topics), timeout_ms=1000, **more)
    return [each.error_code for each in raw.call(apis.CREATE_TOPICS, body, version).topics]


def test_create_topics_judges_each_on_its_own(raw, stream):
    name = f"c-{uuid.uuid4().hex[:8]}"
    codes = created(
        raw,
        admin.CreateTopic(name=stream),
        admin.CreateTopic(name=name),
        admin.CreateTopic(name="a/b"),
    )
    assert codes == [
        ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.NONE, ErrorCode.INVALID_TOPIC_EXCEPTION
    ]  # fmt: skip
    assert len(metadata(raw, name)[name].partitions) == 1
    assert (
        created(raw, admin.CreateTopic(name="twice"), admin.CreateTopic(name="twice"))
        == [ErrorCode.INVALID_REQUEST] * 2
    )


def test_create_topics_places_partitions_by_hand_only_here(raw):
    def placed(*assignments):
        places = [
            admin.CreateTopicAssignment(partition_index=i, broker_ids=b) for i, b in assignments
        ]
        return admin.CreateTopic(name=f"p-{uuid.uuid4().hex[:8]}", assignments=places)

    assert created(raw, placed((0, [1]), (1, [1]))) == [ErrorCode.NONE]
    for wrong in ([(0, [2])], [(1, [1])], [(0, [1, 2])], [(0, [1]), (0, [1])]):
        assert created(raw, placed(*wrong)) == [ErrorCode.INVALID_REPLICA_ASSIGNMENT]


def created_partitions(raw, name, count, assignments=None, *, times=1, **more):
    """Error code and text of a request to let a stream grow."""
    placed = assignments and [admin.CreatePartitionsAssignment(broker_ids=e) for e in assignments]
    topic = admin.CreatePartitionsTopic(name=name, count=count, assignments=placed)
    body = admin.CreatePartitionsRequest(topics=[topic] * times, timeout_ms=1000, **more)
    answer = raw.call(apis.CREATE_PARTITIONS, body).results[0]
    return answer.error_code, answer.error_message


def test_a_stream_grows_and_never_shrinks(node, raw, stream):
    assert created_partitions(raw, stream, 5, validate_only=True) == (0, None)
    assert len(node.ends(stream)) == 3
    assert created_partitions(raw, stream, 5) == (0, None)
    assert created_partitions(raw, stream, 7, [[1], [1]]) == (0, None)
    assert len(node.ends(stream)) == 7
    assert raw.produce(stream, batch(b"x"), partition=6).base_offset == 0
    for count in (7, 6, 0, -1, limits.STREAM_PARTITIONS_MAX + 1):
        assert created_partitions(raw, stream, count)[0] == ErrorCode.INVALID_PARTITIONS
    for placed in ([[1]], [[2], [1]], [[1, 2], [1]], [[], []]):
        code, why = created_partitions(raw, stream, 9, placed)
        assert (code, "[1]" in why) == (ErrorCode.INVALID_REPLICA_ASSIGNMENT, True)
    assert created_partitions(raw, stream, 9, times=2)[0] == ErrorCode.INVALID_REQUEST
    assert created_partitions(raw, "none", 9)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert created_partitions(raw, "__mqtt", 99)[0] == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert len(node.ends(stream)) == 7


@pytest.mark.parametrize("version", range(4))
def test_an_epoch_ends_where_the_log_does(raw, stream, version):
    raw.produce(stream, batch(b"1", b"2"))

    def asked(partition, epoch, current=-1):
        part = m.EpochPartition(
            partition=partition, leader_epoch=epoch, current_leader_epoch=current
        )
        topics = [m.EpochTopic(topic=stream, partitions=[part])]
        body = m.OffsetForLeaderEpochRequest(topics=topics)
        answer = raw.call(apis.OFFSET_FOR_LEADER_EPOCH, body, version).topics[0].partitions[0]
        return answer.error_code, answer.leader_epoch, answer.end_offset

    assert asked(0, 0) == (0, -1 if version == 0 else 0, 2)
    assert asked(1, 0)[2] == 0
    assert asked(0, 1) == (0, -1, -1)
    assert asked(9, 0)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if version >= 2:
        assert asked(0, 0, current=1)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH


@pytest.mark.parametrize("version", [0, 1])
def test_the_cluster_is_this_node(node, raw, version):
    body = admin.DescribeClusterRequest(include_cluster_authorized_operations=True)
    answer = raw.call(apis.DESCRIBE_CLUSTER, body, version)
    assert [(each.broker_id, each.port) for each in answer.brokers] == [(1, node.kafka)]
    assert (answer.cluster_id, answer.controller_id, answer.error_code) == ("headrace", 1, 0)
    assert answer.cluster_authorized_operations > 0
    assert raw.call(apis.METADATA, m.MetadataRequest(topics=[])).cluster_id == "headrace"
    if version == 1:
        answer = raw.call(apis.DESCRIBE_CLUSTER, admin.DescribeClusterRequest(endpoint_type=2))
        assert answer.error_code == ErrorCode.UNSUPPORTED_ENDPOINT_TYPE


@pytest.mark.parametrize("version", [0, 1])
def test_the_data_folder_says_what_partitions_hold(node, raw, stream, version):
    raw.produce(stream, batch(b"x" * 10_000), partition=1)

    def held(topics):
        (folder,) = raw.call(
            apis.DESCRIBE_LOG_DIRS, admin.DescribeLogDirsRequest(topics=topics), version
        ).results
        assert (folder.error_code, folder.log_dir) == (0, str(node.data))
        return {
            (topic.name, each.partition_index): each.partition_size
            for topic in folder.topics
            for each in topic.partitions
        }

    named = [
        admin.LogDirsTopic(topic=stream, partitions=[1, 2, 99]),
        admin.LogDirsTopic(topic="none", partitions=[0]),
    ]
    found = held(named)
    assert found.keys() == {(stream, 1), (stream, 2)}
    assert found[stream, 1] > 10_000
    assert held(None).items() >= found.items()
    assert held([]) == {}


def test_an_invalid_setting_is_named(raw):
    config = admin.CreateTopicConfig(name="max.mesage.bytes", value="1")
    body = admin.CreateTopicsRequest(
        topics=[admin.CreateTopic(name="odd", configs=[config])], timeout_ms=1000
    )
    (answer,) = raw.call(apis.CREATE_TOPICS, body).topics
    assert answer.error_code == ErrorCode.INVALID_CONFIG
    assert "max.mesage.bytes" in answer.error_message
    assert "max.message.bytes" in answer.error_message


# --- Produce -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(3, 8))
@pytest.mark.parametrize("acks", [1, -1])
def test_produce_answers_with_the_base_offset(raw, stream, version, acks):
    assert raw.produce(stream, batch(b"a", b"b"), acks=acks, version=version).base_offset == 0
    assert raw.produce(stream, batch(b"c"), acks=acks, version=version).base_offset == 2
    assert values(raw.fetch(stream, {0: 0})[0].records) == [b"a", b"b", b"c"]


GOOD = batch(b"x")
WITH_HEADER = build_batch([(None, None, [("h", b"v")], 0)])
SPOILT = GOOD[:-1] + bytes([GOOD[-1] ^ 1])


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (None, ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.INVALID_RECORD),
        (SPOILT, ErrorCode.CORRUPT_MESSAGE),
        (GOOD[:-1], ErrorCode.CORRUPT_MESSAGE),
        (GOOD[:40], ErrorCode.CORRUPT_MESSAGE),
        (GOOD + b"\x00", ErrorCode.CORRUPT_MESSAGE),
        (GOOD + GOOD, ErrorCode.INVALID_RECORD),
        (GOOD[:16] + b"\x01" + GOOD[17:], ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (GOOD[:16] + b"\x03" + GOOD[17:], ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (restamped(GOOD, 21, pack(">h", 0x20)), ErrorCode.INVALID_RECORD),
        (restamped(GOOD, 21, pack(">h", 0x10)), ErrorCode.INVALID_RECORD),
        (restamped(GOOD, 21, pack(">h", 0x40)), ErrorCode.INVALID_RECORD),
        (restamped(GOOD, 21, pack(">h", 0x80)), ErrorCode.INVALID_RECORD),
        (build_batch([(None, b"x", [], 0)], published=True), ErrorCode.INVALID_RECORD),
        (restamped(GOOD, 21, pack(">h", 8)), ErrorCode.INVALID_TIMESTAMP),
        (restamped(GOOD, 57, pack(">i", 2)), ErrorCode.INVALID_RECORD),
        (restamped(GOOD, 57, pack(">i", 0)), ErrorCode.INVALID_RECORD),
        (restamped(GOOD, 23, pack(">i", 1)), ErrorCode.INVALID_RECORD),
        (restamped(GOOD, 61 + 3, b"\x02"), ErrorCode.INVALID_RECORD),
        (restamped(WITH_HEADER, len(WITH_HEADER) - 4, b"\x01"), ErrorCode.INVALID_RECORD),
        (restamped(GOOD + b"\x00", 8, pack(">i", len(GOOD) + 1 - 12)), ErrorCode.INVALID_RECORD),
        (restamped(GOOD, 21, pack(">h", 7)), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (batch(b"x" * 1_200_000), ErrorCode.MESSAGE_TOO_LARGE),
    ],
    ids=[
        "null", "empty", "checksum", "cut off", "cut off in its header", "a byte more",
        "two batches", "format 1", "format 3", "control", "transactional", "compacted",
        "attribute 7", "published", "append time", "count", "no record", "last delta",
        "record delta", "null header name", "trailing byte", "codec 7", "too large",
    ],
)  # fmt: skip
def test_a_bad_batch_is_refused_and_the_connection_lives(raw, stream, records, code):
    assert raw.produce(stream, records).error_code == code
    assert raw.produce(stream, GOOD).base_offset == 0


def test_produce_elsewhere(raw, stream):
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert raw.produce(stream, GOOD, partition=3).error_code == missing
    assert raw.produce(stream, GOOD, partition=-1).error_code == missing
    assert raw.produce("nowhere", GOOD).error_code == missing
    raw.call(apis.INIT_PRODUCER_ID, m.InitProducerIdRequest())
    assert raw.produce("__producers", GOOD).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("version", [0, 1, 2])
def test_produce_of_old_formats_is_answered_with_unsupported_version(raw, stream, version):
    answer = raw.produce(stream, GOOD, version=version)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION


def test_other_acks_and_transactions_are_refused(raw, stream):
    assert raw.produce(stream, GOOD, acks=2).error_code == ErrorCode.INVALID_REQUIRED_ACKS
    answer = raw.produce(stream, GOOD, transactional_id="t")
    assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def send_without_acks(raw, stream, records):
    asked = m.ProducePartition(index=0, records=records)
    topic = m.ProduceTopic(name=stream, partitions=[asked])
    raw.send(apis.PRODUCE, m.ProduceRequest(acks=0, timeout_ms=1000, topics=[topic]))


def test_produce_without_acks_is_stored_and_not_answered(raw, stream):
    send_without_acks(raw, stream, GOOD)
    raw.call(apis.METADATA, m.MetadataRequest(topics=[]))
    assert values(raw.fetch(stream, {0: 0})[0].records) == [b"x"]


def test_produce_without_acks_ends_the_connection_on_an_error(raw, stream):
    send_without_acks(raw, stream, SPOILT)
    assert raw.is_closed()


# --- idempotent producers ------------------------------------------------------------------------


def producer_id(raw, version=1):
    answer = raw.call(apis.INIT_PRODUCER_ID, m.InitProducerIdRequest(), version)
    assert (answer.error_code, answer.producer_epoch) == (0, 0)
    return answer.producer_id


def test_producer_ids_are_never_given_twice(node, raw):
    with RawConnection(node) as other:
        ids = [producer_id(each, version) for each in (raw, other) for version in (0, 1, 1)]
    assert len(set(ids)) == 6
    assert min(ids) >= 0
    refused = raw.call(apis.INIT_PRODUCER_ID, m.InitProducerIdRequest(transactional_id="t"))
    assert refused.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_a_repeated_batch_is_stored_once_and_answered_with_its_offset(raw, stream):
    producer = producer_id(raw)

    def send(sequence, *wanted, epoch=0):
        built = batch(*wanted, producer_id=producer, epoch=epoch, sequence=sequence)
        answer = raw.produce(stream, built)
        return answer.error_code or answer.base_offset

    assert [send(0, b"a", b"b"), send(2, b"c"), send(0, b"a", b"b"), send(2, b"c")] == [0, 2, 0, 2]
    assert send(9, b"z") == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(0, b"d", epoch=1) == 3
    assert send(3, b"z", epoch=0) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert values(raw.fetch(stream, {0: 0})[0].records) == [b"a", b"b", b"c", b"d"]


@pytest.mark.setting("log.producer_expiry")
def test_a_producer_that_was_silent_for_long_is_forgotten(start_node):
    node = start_node(HEADRACE_LOG__PRODUCER_EXPIRY="1ms")
    node.create_stream("a")
    with RawConnection(node) as raw:
        producer = producer_id(raw)
        for sequence in (0, 50):
            built = batch(b"x", producer_id=producer, epoch=0, sequence=sequence)
            while (answer := raw.produce("a", built)).error_code:
                assert answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert node.ends("a") == [2]


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
