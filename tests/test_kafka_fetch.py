"""Fetch: whole batches within the bounds of the request, waited for where there are none yet."""

from random import Random

import pytest

from headrace.wire.kafka import admin, apis
from headrace.wire.kafka import messages as m
from headrace.wire.kafka.errors import ErrorCode
from kafkaraw import RawConnection, batch, values
from pagecache import evict


@pytest.fixture
def node(shared):
    return shared


@pytest.mark.parametrize("version", range(4, 12))
def test_fetch_gives_batches_and_where_the_log_stands(raw, stream, version):
    raw.produce(stream, batch(b"a", b"b"))
    raw.produce(stream, batch(b"c"))
    found = raw.fetch(stream, {0: 1, 1: 0}, version)
    assert values(found[0].records) == [b"a", b"b", b"c"], "whole batches, from the one asked for"
    assert (found[0].high_watermark, found[0].last_stable_offset) == (3, 3)
    assert (found[1].high_watermark, found[1].records) == (0, b"")
    if version >= 5:
        assert found[0].log_start_offset == 0


def test_fetch_out_of_range(raw, stream):
    raw.produce(stream, batch(b"a"))
    for offset in (2, -1, 2**62):
        found = raw.fetch(stream, {0: offset})[0]
        assert found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert raw.fetch(stream, {0: 1})[0].error_code == 0, "the end is in range"


def test_fetch_elsewhere_and_of_another_epoch(raw, stream):
    code = raw.fetch(stream, {7: 0})[7].error_code
    assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    asked = m.FetchPartition(
        partition=0, current_leader_epoch=5, fetch_offset=0, partition_max_bytes=100
    )
    topics = [m.FetchTopic(topic=stream, partitions=[asked])]
    body = m.FetchRequest(max_wait_ms=0, min_bytes=1, topics=topics)
    answer = raw.call(apis.FETCH, body)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_who_waits_for_what_whole_batches_leave_is_answered_at_once(node, raw, stream):
    payload = Random(1).randbytes(700_000)
    for _ in range(4):
        raw.produce(stream, batch(payload))
    waits = {"max_wait_ms": 300_000, "min_bytes": 2 << 20}
    for bounds in ({}, {"max_bytes": 1 << 20}, {"partition_max_bytes": 1 << 20}):
        asked = {"partition_max_bytes": 50 << 20, "max_bytes": 50 << 20} | bounds
        found = raw.fetch(stream, {0: 0}, **waits | {"min_bytes": min(asked.values())}, **asked)
        assert len(values(found[0].records)) == (1 if bounds else 2)
    # Of two partitions that may bring 1 MiB each, both must have as much.
    raw.produce(stream, batch(payload), 1)
    asked = {"partition_max_bytes": 1 << 20, "max_bytes": 50 << 20}
    request = raw.send_fetch(stream, {0: 3, 1: 0}, **waits, **asked)
    with RawConnection(node) as other:
        for partition in (0, 1):
            other.produce(stream, batch(payload), partition)
    found = raw.receive_fetch(request)
    assert [found[each].high_watermark for each in (0, 1)] == [5, 2]


def test_fetch_makes_no_session(raw, stream):
    topics = [m.FetchTopic(topic=stream, partitions=[])]
    body = m.FetchRequest(max_wait_ms=0, min_bytes=1, topics=topics, session_id=0, session_epoch=0)
    assert raw.call(apis.FETCH, body).session_id == 0
    body.session_id, body.session_epoch = 5, 1
    assert raw.call(apis.FETCH, body).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_fetch_spends_its_bytes_in_order_and_always_gives_a_first_batch(raw, stream):
    for partition in range(3):
        for _ in range(2):
            raw.produce(stream, batch(b"x" * 1000), partition)
    size = len(raw.fetch(stream, {0: 0}, partition_max_bytes=1)[0].records)
    assert 1000 < size < 1200, "one batch, though it is larger than asked for"

    def sizes(offsets, **bounds):
        found = raw.fetch(stream, offsets, **bounds)
        return [len(found[partition].records) // size for partition in range(3)]

    everywhere = dict.fromkeys(range(3), 0)
    assert sizes(everywhere) == [2, 2, 2]
    assert sizes({0: 2, 1: 0, 2: 0}, max_bytes=1) == [0, 1, 0]
    assert sizes(everywhere, max_bytes=2 * size) == [2, 0, 0]
    assert sizes(everywhere, max_bytes=3 * size) == [2, 1, 0]
    assert sizes(everywhere, partition_max_bytes=size) == [1, 1, 1]
    for few in (1, 0, -1, -(2**31)):
        assert sizes(everywhere, max_bytes=few) == [1, 0, 0]
        assert sizes(everywhere, partition_max_bytes=few) == [1, 0, 0] if few < 1 else [1, 1, 1]


@pytest.mark.slow
def test_a_fetch_that_is_full_does_not_wait_for_more_than_it_may_hold(raw, stream):
    for partition in range(3):
        for _ in range(3):
            raw.produce(stream, batch(b"x" * 900_000), partition)
    asked = {"max_bytes": 50 << 20, "min_bytes": 50 << 20, "partition_max_bytes": 50 << 20}
    found = raw.fetch(stream, {0: 0, 1: 0, 2: 0}, max_wait_ms=300_000, **asked)
    assert [len(found[partition].records) // 900_000 for partition in range(3)] == [2, 2, 0]
    less = {"max_bytes": 1000, "min_bytes": 2000, "partition_max_bytes": 1000}
    found = raw.fetch(stream, {0: 0, 1: 0}, max_wait_ms=300_000, **less)
    assert [len(found[partition].records) // 900_000 for partition in range(2)] == [1, 0]


def test_a_partition_that_is_named_twice_is_read_once(raw, stream):
    raw.produce(stream, batch(b"x"))
    asked = [m.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)] * 3
    topics = [m.FetchTopic(topic=stream, partitions=asked)]
    body = m.FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=topics)
    answer = raw.call(apis.FETCH, body)
    assert [values(each.records) for each in answer.topics[0].partitions] == [[b"x"]]

    asked = [m.ListOffsetsPartition(partition_index=0, timestamp=0)] * 3
    topics = [m.ListOffsetsTopic(name=stream, partitions=asked)]
    answer = raw.call(apis.LIST_OFFSETS, m.ListOffsetsRequest(topics=topics))
    codes = [each.error_code for each in answer.topics[0].partitions]
    assert codes == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST]


def test_a_waiting_fetch_wakes_for_a_message(node, raw, stream):
    request = raw.send_fetch(stream, {0: 0, 1: 0, 2: 0}, max_wait_ms=300_000)
    with RawConnection(node) as other:
        other.produce(stream, batch(b"late"), 1)
    assert values(raw.receive_fetch(request)[1].records) == [b"late"]


def test_a_waiting_fetch_waits_for_enough(node, raw, stream):
    request = raw.send_fetch(stream, {0: 0, 1: 0}, max_wait_ms=300_000, min_bytes=5000)
    with RawConnection(node) as other:
        for n in range(6):
            other.produce(stream, batch(b"x" * 1000), n % 2)
    found = raw.receive_fetch(request)
    assert sum(len(each.records) for each in found.values()) >= 5000


def test_a_waiting_fetch_gives_what_there_is_when_its_time_is_up(raw, stream):
    raw.produce(stream, batch(b"few"))
    found = raw.fetch(stream, {0: 0, 1: 0}, max_wait_ms=50, min_bytes=5000)
    assert values(found[0].records) == [b"few"]
    assert found[1].records == b""


def test_a_waiting_fetch_holds_up_no_request_behind_it(raw, stream):
    raw.produce(stream, batch(b"a"))
    for offsets, found in (({0: 0}, [b"a"]), ({0: 1}, []), ({0: 1, 1: 0}, [])):
        waiting = raw.send_fetch(stream, offsets, max_wait_ms=300_000, min_bytes=10_000)
        following = raw.send(apis.METADATA, m.MetadataRequest(topics=[]))
        assert values(raw.receive_fetch(waiting)[0].records) == found
        assert raw.receive(following).topics == []


def test_a_waiting_fetch_hears_that_its_stream_is_deleted(node, raw, stream):
    request = raw.send_fetch(stream, {0: 0}, max_wait_ms=300_000)
    with RawConnection(node) as other:
        body = admin.DeleteTopicsRequest(topic_names=[stream], timeout_ms=1000)
        assert other.call(apis.DELETE_TOPICS, body).responses[0].error_code == 0
    assert raw.receive_fetch(request)[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(at, marks=pytest.mark.slow) for at in range(1, 8))]
)
def test_what_the_disk_must_bring_is_answered_as_if_it_were_in_memory(node, raw, seed):
    random = Random(seed)
    stream, partitions = f"cold-{seed}", 40
    node.create_stream(stream, partitions=partitions)
    counts = {each: random.randrange(6) for each in range(partitions)}
    for partition, count in counts.items():
        for _ in range(count):
            raw.produce(stream, batch(bytes(random.choice((10, 1000, 20_000)))), partition)
    order = random.sample(range(partitions), partitions)
    offsets = {each: random.randint(0, counts[each]) for each in order}
    for max_bytes in (0, 1, 5000, 60_000, 400_000, 50 << 20):
        bounds = {"max_bytes": max_bytes, "partition_max_bytes": random.choice((1, 3000, 1 << 20))}
        warm = raw.fetch(stream, offsets, **bounds)
        evict(
            *(file for file in node.data.glob(f"streams/{stream}/*/*.log") if file.stat().st_size)
        )
        cold = raw.fetch(stream, offsets, **bounds)
        assert [cold[each] for each in order] == [warm[each] for each in order]


def test_a_waiting_fetch_keeps_what_it_knows_and_reads_what_has_advanced(node, raw, stream):
    raw.produce(stream, batch(b"known"), 1)
    request = raw.send_fetch(stream, {0: 0, 1: 0, 2: 0}, max_wait_ms=300_000, min_bytes=1000)
    with RawConnection(node) as other:
        other.produce(stream, batch(b"more"), 1)
        other.produce(stream, batch(b"x" * 1000), 2)
    found = raw.receive_fetch(request)
    got = [values(found[partition].records) for partition in range(3)]
    assert got == [[], [b"known", b"more"], [b"x" * 1000]]
    assert [found[partition].high_watermark for partition in range(3)] == [0, 2, 1]


@pytest.mark.slow
def test_a_reader_that_leaves_in_the_middle_of_a_cold_fetch_costs_nothing(node, raw):
    node.create_stream("left", partitions=40)
    for partition in range(40):
        raw.produce("left", batch(bytes(1000)), partition)
    for _ in range(10):
        evict(*node.data.glob("streams/left/*/*.log"))
        with RawConnection(node) as leaving:
            leaving.send_fetch("left", dict.fromkeys(range(40), 0))
    assert len(raw.fetch("left", {0: 0})[0].records) > 1000
