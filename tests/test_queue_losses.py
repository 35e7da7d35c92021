"""No message of a queue goes in silence: what would take one is refused, or told of."""

import re
import time

import pytest

from conftest import wait_for
from headrace import TopicPartition, limits
from headrace.client import RequestError
from headrace.kernel.catalog import Change
from headrace.native import build_batch
from headrace.node.kafka import records
from headrace.ports import Pull
from headrace.queue_settings import record_bytes_max
from headrace.settings import Settings
from headrace.sync import Admin
from headrace.wire.kafka import admin, apis
from headrace.wire.kafka.errors import ErrorCode
from kafkaraw import RawConnection
from nodes import running
from test_queues import make, shown


@pytest.fixture
def name(shared, request):
    return make(shared, re.sub(r"\W+", "-", request.node.name.replace("-1", "all")))["name"]


def call(node, name, verb, **body):
    return node.call("POST", f"/api/v1/queues/{name}/{verb}", {"group": "g", **body})


def pull(node, name, **body):
    status, answer = call(node, name, "pull", wait="20s", **body)
    assert status == 200, answer
    return answer["messages"]


def packed(size, headers=()):
    """A batch of one record of so many bytes, which takes few on its way."""
    return build_batch([(b"k", bytes(size), list(headers), time.time_ns() // 1_000_000)], "gzip")


# --- records that are deleted ---------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("offset", [1, 2, -1])
def test_delete_records_takes_nothing_of_a_queue(shared, name, offset):
    for payload in ("a", "b"):
        body = {"payload": payload}
        assert shared.call("POST", f"/api/v1/queues/{name}/messages", body)[0] == 200
    (held,) = pull(shared, name, max=1)
    each = admin.DeleteRecordsPartition(partition_index=0, offset=offset)
    topic = admin.DeleteRecordsTopic(name=name, partitions=[each])
    request = admin.DeleteRecordsRequest(topics=[topic], timeout_ms=30_000)
    with RawConnection(shared) as raw:
        (answer,) = raw.call(apis.DELETE_RECORDS, request).topics[0].partitions
    assert answer.error_code == ErrorCode.POLICY_VIOLATION
    assert f"headrace queues purge {name}" in shared.log.read_text()
    with Admin(shared.servers) as client, pytest.raises(RequestError, match="queues purge"):
        client.delete_records({TopicPartition(name, 0): offset})
    assert shown(shared, name)["partitions"][0]["start"] == 0
    assert call(shared, name, "ack", message_ids=[held["message_id"]])[0] == 200
    assert [each["payload"] for each in pull(shared, name)] == ["b"]


@pytest.mark.slow
def test_a_queue_is_not_made_a_stream_that_lets_go_of_what_is_owed(shared, name):
    compacted = {"settings": {"cleanup.policy": "compact"}}
    for what in ("streams", "queues"):
        status, answer = shared.call("PATCH", f"/api/v1/{what}/{name}", compacted)
        assert (status, "a queue is not compacted" in answer["detail"]) == (400, True)


async def test_a_group_follows_its_log_where_that_begins_later(tmp_path):
    bounded = Change(queue={"depth.max.messages": 3})
    async with running(tmp_path, keeps_sessions=True, jobs=bounded) as (node, _):
        for _ in range(3):
            await node.publish("$queue/jobs", b"x", 1, [])
        first, *_ = await node.queues().pull("jobs", Pull("g", None, 1, 0, None))
        partition = node._broker.partition("jobs", 0)
        await node._broker.trim(partition, 2, records.REASON)
        (group,) = node.queues().report("jobs").groups
        assert (first.offset, group.depth, group.in_flight) == (0, 1, 0)
        for _ in range(2):  # there is room for them
            await node.publish("$queue/jobs", b"y", 1, [])
        pulled = await node.queues().pull("jobs", Pull("g", None, 9, 0, None))
        assert [each.offset for each in pulled] == [2, 3, 4]


# --- records that nobody can be given -------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["gzip", None])
def test_a_record_that_no_consumer_could_be_given_is_refused(shared, name, codec):
    settings = {"compression.type": codec} if codec else {}
    assert shared.call("PATCH", f"/api/v1/streams/{name}", {"settings": settings})[0] == 200
    shared.create_stream(f"{name}-plain", partitions=1)
    many = [("h", None)] * (limits.STREAM_RECORD_HEADERS_MAX + 1)
    large, widest = packed(20 * limits.MIB), packed(limits.MESSAGE_BYTES_MAX - 100)
    with RawConnection(shared) as raw:
        for batch, code in [
            (large, ErrorCode.MESSAGE_TOO_LARGE),
            (packed(limits.MESSAGE_BYTES_MAX), ErrorCode.MESSAGE_TOO_LARGE),
            (packed(1, many), ErrorCode.MESSAGE_TOO_LARGE),
            (widest, ErrorCode.NONE),
        ]:
            assert raw.produce(name, batch).error_code == code
        for batch in (large, packed(1, many)):
            assert raw.produce(f"{name}-plain", batch).error_code == ErrorCode.NONE
    (message,) = pull(shared, name)
    assert len(message["payload"]) == limits.MESSAGE_BYTES_MAX - 100
    assert call(shared, name, "reject", message_ids=[message["message_id"]])[0] == 200
    wait_for(lambda: shown(shared, name)["depth"] == 0)
    assert shared.ends(f"{name}.dlq") == [1]


def test_a_record_and_its_dead_letter_can_be_given_to_consumers():
    most = Settings(max_message_bytes=limits.MESSAGE_BYTES_CEILING)
    assert record_bytes_max("jobs.dlq", most) == limits.STREAM_RECORD_BYTES_MAX
    letter = record_bytes_max("jobs", most) + limits.QUEUE_LETTER_BYTES
    assert letter == limits.STREAM_RECORD_BYTES_MAX
    assert record_bytes_max("jobs", Settings(max_message_bytes=7)) == 7


async def test_what_was_stored_and_nobody_can_be_given_is_told_of(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(limits, "STREAM_RECORD_BYTES_MAX", limits.MIB)
    async with running(tmp_path, keeps_sessions=True, jobs=Change(queue={})) as (node, _):
        partition = node._broker.partition("jobs", 0)
        for size in (7, 2 * limits.MIB, 9):
            await partition.append(packed(size), 1_700_000_000_000_000)
        pulled = await node.queues().pull("jobs", Pull("g", None, 9, 1_000, None))
        assert [each.offset for each in pulled] == [0, 2]
        (group,) = node.queues().report("jobs").groups
        assert (group.lost, group.depth) == (1, 2)
    (told,) = (each for each in caplog.records if "passed over" in each.getMessage())
    assert "(too large): 1 from offset 1, which group 'g' was owed" in told.getMessage()
    assert (told.stream, told.partition) == ("jobs", 0)
