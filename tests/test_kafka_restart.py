"""What the Kafka door has acknowledged survives kill -9."""

import resource

import confluent_kafka
import pytest

from headrace.wire.kafka import admin, apis, groups
from headrace.wire.kafka import messages as m
from headrace.wire.kafka.errors import ErrorCode
from kafkaraw import RawConnection, batch, values

pytestmark = pytest.mark.slow


@pytest.fixture
def node(start_node):
    return start_node()


def commit(raw, group, stream, offset):
    each = groups.OffsetCommitPartition(
        partition_index=0, committed_offset=offset, committed_metadata=f"at {offset}"
    )
    topic = groups.OffsetCommitTopic(name=stream, partitions=[each])
    answer = raw.call(
        apis.OFFSET_COMMIT, groups.OffsetCommitRequest(group_id=group, topics=[topic])
    )
    assert answer.topics[0].partitions[0].error_code == 0


def committed(raw, group):
    body = groups.OffsetFetchRequest(group_id=group, topics=None)
    return {
        topic.name: (topic.partitions[0].committed_offset, topic.partitions[0].metadata)
        for topic in raw.call(apis.OFFSET_FETCH, body).topics
    }


def test_committed_offsets_survive(node, start_node):
    node.create_stream("s")
    node.create_stream("gone")
    with RawConnection(node) as raw:
        for n in range(40):
            commit(raw, f"g{n}", "s", n)
        commit(raw, "g0", "s", 100)
        commit(raw, "g0", "gone", 7)
        raw.call(
            apis.DELETE_TOPICS, admin.DeleteTopicsRequest(topic_names=["gone"], timeout_ms=1000)
        )
    node.kill()
    node = start_node.again(node)
    node.create_stream("gone")
    with RawConnection(node) as raw:
        assert committed(raw, "g0") == {"s": (100, "at 100")}
        assert [committed(raw, f"g{n}") for n in range(1, 40)] == [
            {"s": (n, f"at {n}")} for n in range(1, 40)
        ]
        commit(raw, "g0", "s", 101)
    assert node.stop() == 0
    node = start_node.again(node)
    with RawConnection(node) as raw:
        assert committed(raw, "g0") == {"s": (101, "at 101")}


def test_producer_ids_are_not_given_again(node, start_node):
    ids = []
    for _ in range(3):
        with RawConnection(node) as raw:
            for _ in range(5):
                answer = raw.call(apis.INIT_PRODUCER_ID, m.InitProducerIdRequest())
                ids.append(answer.producer_id)
        node.kill()
        node = start_node.again(node)
    assert len(set(ids)) == 15


def test_a_repeat_after_the_crash_is_still_a_repeat(node, start_node):
    node.create_stream("s")
    with RawConnection(node) as raw:
        producer = raw.call(apis.INIT_PRODUCER_ID, m.InitProducerIdRequest()).producer_id
        sent = [batch(b"%d" % n, producer_id=producer, epoch=0, sequence=n) for n in range(6)]
        assert [raw.produce("s", each).base_offset for each in sent] == list(range(6))
    node.kill()
    node = start_node.again(node)
    with RawConnection(node) as raw:
        assert [raw.produce("s", each).base_offset for each in sent[-3:]] == [3, 4, 5]
        more = batch(b"6", producer_id=producer, epoch=0, sequence=6)
        assert raw.produce("s", more).base_offset == 6
        assert values(raw.fetch("s", {0: 0})[0].records) == [b"%d" % n for n in range(7)]


def test_streams_that_metadata_created_survive(node, start_node):
    with RawConnection(node) as raw:
        body = m.MetadataRequest(topics=[m.MetadataRequestTopic(name="auto")])
        assert raw.call(apis.METADATA, body).topics[0].error_code == 0
        assert raw.produce("auto", batch(b"x")).base_offset == 0
    node.kill()
    node = start_node.again(node)
    with RawConnection(node) as raw:
        assert values(raw.fetch("auto", {0: 0})[0].records) == [b"x"]


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_an_idempotent_producer_goes_on_through_restarts(node, start_node, how):
    node.create_stream("s")
    wanted, offsets = [b"%d" % n for n in range(3000)], {}
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": node.servers,
            "enable.idempotence": True,
            "linger.ms": 1,
            "batch.num.messages": 20,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
    )

    def delivered(error, message):
        assert error is None, error
        offsets[message.value()] = message.offset()

    for n, value in enumerate(wanted):
        producer.produce("s", value, partition=0, on_delivery=delivered)
        producer.poll(0)
        if n % 1000 == 500:
            getattr(node, how)()
            node = start_node.again(node)
    assert producer.flush(60) == 0
    with RawConnection(node) as raw:
        stored = values(raw.fetch("s", {0: 0})[0].records)
    assert stored == wanted, "each once, in order"
    assert offsets == {value: n for n, value in enumerate(wanted)}


def test_a_disk_that_refuses_is_told_to_every_writer_and_readers_go_on(node):
    node.create_stream("s")
    with RawConnection(node) as raw:
        assert raw.produce("s", batch(b"kept")).base_offset == 0
        commit(raw, "g", "s", 1)
        resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        storage = ErrorCode.KAFKA_STORAGE_ERROR
        assert [raw.produce("s", batch(b"lost")).error_code for _ in range(3)] == [storage] * 3
        answer = raw.call(apis.INIT_PRODUCER_ID, m.InitProducerIdRequest())
        assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        each = groups.OffsetCommitPartition(partition_index=0, committed_offset=2)
        topic = groups.OffsetCommitTopic(name="s", partitions=[each])
        body = groups.OffsetCommitRequest(group_id="g", topics=[topic])
        answer = raw.call(apis.OFFSET_COMMIT, body)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
        assert committed(raw, "g") == {"s": (1, "at 1")}
        found = raw.fetch("s", {0: 0})[0]
        assert (values(found.records), found.high_watermark) == ([b"kept"], 1)
    node.kill()
