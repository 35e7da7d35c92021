"""Consumers at the frame door: every record of a partition, whoever wrote it, and what comes."""

import pytest

from frameclient import Ending, FrameConnection, Mark, Record, frame
from headrace import native
from kafkaraw import RawConnection

NOW_MS = 1_700_000_000_000
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture(scope="module")
def node(shared):
    return shared


def produce(node, stream, batch, partition=0):
    with RawConnection(node) as raw:
        answer = raw.produce(stream, batch, partition)
        assert answer.error_code == 0
        return answer.base_offset


@pytest.mark.parametrize("codec", CODECS)
def test_a_kafka_record_is_a_frame(node, stream, codec):
    headers = [("größe", b"\xff"), ("none", None), ("", b"")]
    records = [(b"k", b"v" * 100, headers, NOW_MS), (None, None, [], NOW_MS + 5)]
    produce(node, stream, native.build_batch(records, codec), 2)
    with FrameConnection(node, stream, "consume", partition=2, offset="earliest") as client:
        assert client.answer == {
            "ok": True, "stream": stream, "mode": "consume", "partitions": 3, "partition": 2,
            "start": 0, "end": 2, "offset": 0, "heartbeat_ms": 10_000,
        }  # fmt: skip
        named = [(name.encode(), value) for name, value in headers]
        assert client.next() == Record(0, NOW_MS, b"k", b"v" * 100, named)
        assert client.next() == Record(1, NOW_MS + 5, None, None, [])
        assert client.next() == Mark(2)


def test_what_is_appended_comes_at_once(node, stream):
    with (
        FrameConnection(node, stream, "consume", partition=0, offset="latest") as reader,
        FrameConnection(node, stream, partition=0) as writer,
    ):
        assert reader.next() == Mark(0)
        for number in range(20):
            writer.send(frame(b"k", b"%d" % number))
            assert reader.next()[:2] == (number, NOW_MS)
        assert writer.acknowledged(20)[-1] == (0, 19)


def test_where_a_consumer_begins(node, stream):
    for number in range(4):
        records = [(None, b"%d" % (10 * number + each), [], NOW_MS + number) for each in range(10)]
        produce(node, stream, native.build_batch(records, CODECS[number]), 1)
    places = [
        ("earliest", 0), ("latest", 40), (0, 0), (7, 7), (29, 29), (40, 40),
        ({"timestamp": 0}, 0), ({"timestamp": NOW_MS + 2}, 20), ({"timestamp": 2**62}, 40),
    ]  # fmt: skip
    for said, offset in places:
        with FrameConnection(node, stream, "consume", partition=1, offset=said) as client:
            assert client.answer["offset"] == offset
            found = client.records(40 - offset)
            assert [each.offset for each in found] == list(range(offset, 40))
            assert [each.value for each in found] == [b"%d" % each for each in range(offset, 40)]
            assert client.next() == Mark(40)


def test_an_offset_where_nothing_is(node, stream):
    with FrameConnection(node, stream, "consume", partition=0, offset=1) as client:
        assert client.answer == {
            "ok": False, "code": 1, "name": "OFFSET_OUT_OF_RANGE", "retriable": False,
            "error": f"offset 1 is not in partition 0 of '{stream}': its records begin at 0 and "
            "end before 0",
        }  # fmt: skip
        assert client.next() is None


def test_what_is_trimmed_while_it_is_waited_for(node):
    node.create_stream("trimmed", partitions=1)
    with FrameConnection(node, "trimmed", "consume", offset=0) as client:
        assert client.next() == Mark(0)
        batch = native.build_batch([(None, b"v" * 60_000, [], NOW_MS)] * 10)
        for _ in range(20):  # far more than a socket takes
            produce(node, "trimmed", batch)
        with RawConnection(node) as raw:
            delete_records(raw, "trimmed", 200)
        *_, last = iter(client.next, None)
        assert isinstance(last, Ending)
        assert last.code == 1
        assert "begin at 200 and end before 200" in last.text


def delete_records(raw, stream, offset):
    from headrace.wire.kafka import admin, apis  # noqa: PLC0415 - one test needs it

    each = admin.DeleteRecordsPartition(partition_index=0, offset=offset)
    topic = admin.DeleteRecordsTopic(name=stream, partitions=[each])
    body = admin.DeleteRecordsRequest(topics=[topic], timeout_ms=30_000)
    (answer,) = raw.call(apis.DELETE_RECORDS, body).topics[0].partitions
    assert answer.error_code == 0


def test_a_stream_that_is_deleted_while_it_is_waited_for(node):
    node.create_stream("gone", partitions=1)
    with FrameConnection(node, "gone", "consume", offset="latest") as client:
        assert client.next() == Mark(0)
        node.call("DELETE", "/api/v1/streams/gone")
        assert client.next() == Ending(3, "stream 'gone' was deleted")
        assert client.next() is None


def test_gaps_that_compaction_has_left_are_passed_over(node):
    settings = {"cleanup.policy": "compact", "segment.ms": 1, "min.cleanable.dirty.ratio": 0}
    node.create_stream("gaps", partitions=1, settings=settings)
    with FrameConnection(node, "gaps") as client:
        for number in range(30):
            client.send(frame(b"k%d" % (number % 3), b"%d" % number))
            client.acknowledged(1)

    def offsets():
        settings["delete.retention.ms"] = settings.get("delete.retention.ms", 0) + 1
        node.call("PATCH", "/api/v1/streams/gaps", {"settings": settings})  # which has it looked at
        with FrameConnection(node, "gaps", "consume", offset=0) as client:
            found = [each.offset for each in iter(client.next, Mark(30))]
            assert len(found) >= 3
            return found

    found = offsets()
    while len(found) == 30:
        found = offsets()
    assert found == sorted(found)
    assert found[-1] == 29


def test_a_record_that_no_frame_holds_is_told_behind_those_before_it(node, stream):
    records = [(b"a", b"1", [], NOW_MS), (b"b", b"2", [("n" * 40_000, b"x")], NOW_MS)]
    produce(node, stream, native.build_batch(records))
    with FrameConnection(node, stream, "consume", partition=0, offset=0) as client:
        assert client.next().key == b"a"
        ending = client.next()
        assert ending.code == 87
        assert "offset 1 has a header with a name of more than 32,767 bytes" in ending.text


def test_a_consumer_has_nothing_to_say(node, stream):
    with FrameConnection(node, stream, "consume", partition=0, offset=0) as client:
        assert client.next() == Mark(0)
        client.send(b"x")
        assert client.next() == Ending(42, "a consumer sends nothing behind its first line")


def test_a_large_log_comes_whole(node, stream):
    batch = native.build_batch([(None, b"%05d" % each * 200, [], NOW_MS) for each in range(900)])
    packed = native.recode_batches(batch, "zstd")
    for number in range(20):
        produce(node, stream, batch if number % 2 else packed)
    with FrameConnection(node, stream, "consume", partition=0, offset=0) as client:
        found = client.records(18_000)
    assert [each.offset for each in found] == list(range(18_000))
    assert all(each.value == b"%05d" % (each.offset % 900) * 200 for each in found)
