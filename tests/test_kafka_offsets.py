"""Offsets by time, offsets that groups commit, and who keeps them."""

import pytest

from headrace.wire.kafka import admin, apis, groups
from headrace.wire.kafka import messages as m
from headrace.wire.kafka.errors import ErrorCode
from kafkaraw import batch


@pytest.fixture
def node(shared):
    return shared


@pytest.mark.parametrize("version", range(1, 5))
def test_list_offsets(raw, stream, version):
    for second in range(5):
        raw.produce(stream, batch(b"x", timestamp=1_700_000_000_000 + second * 1000))

    def ask(timestamp, partition=0):
        asked = m.ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        topics = [m.ListOffsetsTopic(name=stream, partitions=[asked])]
        body = m.ListOffsetsRequest(topics=topics)
        answer = raw.call(apis.LIST_OFFSETS, body, version).topics[0].partitions[0]
        return answer.error_code, answer.offset, answer.timestamp

    assert ask(m.EARLIEST_TIMESTAMP) == (0, 0, -1)
    assert ask(m.LATEST_TIMESTAMP) == (0, 5, -1)
    assert ask(0) == (0, 0, 1_700_000_000_000)
    assert ask(1_700_000_002_500) == (0, 3, 1_700_000_003_000)
    assert ask(1_700_000_004_001) == (0, -1, -1)
    assert ask(-9)[0] == ErrorCode.INVALID_REQUEST
    assert ask(0, partition=9)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# --- committed offsets ---------------------------------------------------------------------------


def commit(raw, group, places, version=7, **more):
    """Commits `{(stream, partition): (offset, metadata)}`: the error codes in that order."""
    topics = [
        groups.OffsetCommitTopic(
            name=stream,
            partitions=[
                groups.OffsetCommitPartition(
                    partition_index=partition, committed_offset=offset, committed_metadata=text
                )
            ],
        )
        for (stream, partition), (offset, text) in places.items()
    ]
    body = groups.OffsetCommitRequest(group_id=group, topics=topics, **more)
    answer = raw.call(apis.OFFSET_COMMIT, body, version)
    return [topic.partitions[0].error_code for topic in answer.topics]


def committed(raw, group, version=5):
    body = groups.OffsetFetchRequest(group_id=group, topics=None)
    answer = raw.call(apis.OFFSET_FETCH, body, version)
    return {
        (topic.name, each.partition_index): (each.committed_offset, each.metadata)
        for topic in answer.topics
        for each in topic.partitions
    }


@pytest.mark.parametrize("version", range(1, 8))
def test_a_commit_is_found_again(raw, stream, version):
    group = f"g-{stream}"
    places = {(stream, 0): (5, "text"), (stream, 2): (6, None)}
    assert commit(raw, group, places, version) == [0, 0]
    assert committed(raw, group) == {(stream, 0): (5, "text"), (stream, 2): (6, "")}
    assert commit(raw, group, {(stream, 0): (4, "")}, version) == [0], "back is allowed"
    assert committed(raw, group)[stream, 0] == (4, "")
    assert committed(raw, f"other-{group}") == {}


@pytest.mark.parametrize("version", range(1, 6))
def test_partitions_without_a_commit_are_minus_1(raw, stream, version):
    commit(raw, "g1", {(stream, 1): (8, "")})
    asked = groups.OffsetFetchTopic(name=stream, partition_indexes=[0, 1, 77])
    body = groups.OffsetFetchRequest(group_id="g1", topics=[asked])
    (topic,) = raw.call(apis.OFFSET_FETCH, body, version).topics
    found = [(each.committed_offset, each.error_code) for each in topic.partitions]
    assert found == [(-1, 0), (8, 0), (-1, 0)]


def test_commits_that_are_refused(raw, stream):
    place, elsewhere = (stream, 0), (stream, 3)
    assert commit(raw, "g2", {place: (1, "")}, generation_id=3) == [ErrorCode.ILLEGAL_GENERATION]
    assert commit(raw, "", {place: (1, "")}) == [ErrorCode.INVALID_GROUP_ID]
    assert commit(raw, "g" * 256, {place: (1, "")}) == [ErrorCode.INVALID_GROUP_ID]
    assert commit(raw, "g2", {place: (1, "x" * 4097), elsewhere: (1, "")}) == [
        ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    ]  # fmt: skip
    assert committed(raw, "g2") == {}


def test_a_deleted_stream_takes_its_offsets_with_it(node, raw, stream):
    assert commit(raw, "g3", {(stream, 0): (5, "")}) == [0]
    body = admin.DeleteTopicsRequest(topic_names=[stream, "nowhere", "__offsets"], timeout_ms=1000)
    codes = [each.error_code for each in raw.call(apis.DELETE_TOPICS, body).responses]
    assert codes == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION]
    node.create_stream(stream)
    assert committed(raw, "g3") == {}


@pytest.mark.parametrize("version", range(3))
def test_this_node_coordinates_every_group(node, raw, version):
    found = raw.call(apis.FIND_COORDINATOR, groups.FindCoordinatorRequest(key="any"), version)
    assert (found.error_code, found.node_id) == (0, 1)
    assert (found.host, found.port) == ("127.0.0.1", node.kafka)
    if version >= 1:
        body = groups.FindCoordinatorRequest(key="t", key_type=1)
        refused = raw.call(apis.FIND_COORDINATOR, body, version)
        assert refused.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
