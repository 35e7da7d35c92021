"""Streams as Kafka's clients see and change them: metadata, topics, partitions, the cluster."""

import uuid

import pytest

from headrace import limits
from headrace.wire.kafka import admin, apis, groups
from headrace.wire.kafka import messages as m
from headrace.wire.kafka.errors import ErrorCode
from kafkaraw import RawConnection, batch


@pytest.fixture
def node(shared):
    return shared


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


@pytest.mark.setting("kafka.num_partitions")
def test_who_says_no_number_gets_the_partitions_of_the_setting(start_node):
    with RawConnection(start_node(HEADRACE_KAFKA__NUM_PARTITIONS="3")) as raw:
        asked, one = (admin.CreateTopic(name=name) for name in ("asked", "one"))
        one.num_partitions = 1
        assert created(raw, asked, one) == [ErrorCode.NONE] * 2
        found = {
            name: len(metadata(raw, name)[name].partitions) for name in ("asked", "one", "new")
        }
        assert found == {"asked": 3, "one": 1, "new": 3}


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
