"""Internal streams keep what their records come to: a start reads that and a tail, not history."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import limits
from headrace.kernel import keyed
from headrace.kernel.keyed import Progress, Record
from headrace.wire.kafka import apis, groups
from kafkaraw import RawConnection

pytestmark = pytest.mark.slow

HOUR_MS = 3_600_000


# --- the pure part -------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.binary(max_size=9), st.none() | st.binary(max_size=9)), max_size=30))
def test_what_is_packed_comes_back(pairs):
    records = [Record(key, value) for key, value in pairs]
    assert list(keyed.unpack(keyed.pack(records))) == records


def test_a_state_of_many_records_comes_back():
    records = [Record(b"%d" % n, b"x" * 300) for n in range(5001)]
    assert list(keyed.unpack(keyed.pack(iter(records)))) == records


def test_a_state_is_due_after_many_records_or_some_time():
    few, many = 7, limits.STATE_RECORDS
    assert not Progress().is_due(10 * HOUR_MS)
    assert not Progress(applied=few, kept_ms=0).is_due(HOUR_MS - 1)
    assert Progress(applied=few, kept_ms=0).is_due(HOUR_MS), "as after a start, when 0 is unknown"
    assert not Progress(applied=few, kept=few).is_due(10 * HOUR_MS)
    assert Progress(applied=many).is_due(0)
    assert not Progress(applied=many, tried=few).is_due(0), "one that failed waits as long again"
    assert not Progress(applied=many, records=many + 1).is_due(0), "it costs as much to write"


# --- a node --------------------------------------------------------------------------------------


def commit(raw, group, offsets, stream="s"):
    """Commits `{partition: offset}`."""
    partitions = [
        groups.OffsetCommitPartition(partition_index=p, committed_offset=o)
        for p, o in offsets.items()
    ]
    topics = [groups.OffsetCommitTopic(name=stream, partitions=partitions)]
    answer = raw.call(apis.OFFSET_COMMIT, groups.OffsetCommitRequest(group_id=group, topics=topics))
    assert {each.error_code for each in answer.topics[0].partitions} == {0}


def committed(raw, group):
    body = groups.OffsetFetchRequest(group_id=group, topics=None)
    return {
        each.partition_index: each.committed_offset
        for topic in raw.call(apis.OFFSET_FETCH, body).topics
        for each in topic.partitions
    }


def replayed(node):
    """Records that the start has read: from kept states, from the log."""
    metrics = node.metrics()
    return tuple(
        int(metrics[f'headrace_kafka_replayed_offsets{{from="{place}"}}'])
        for place in ("state", "log")
    )


@pytest.fixture
def node(start_node):
    node = start_node()
    node.create_stream("s", partitions=50)
    return node


def test_a_start_reads_what_history_came_to(node, start_node):
    everywhere = range(50)
    with RawConnection(node) as raw:
        for offset in range(20):
            commit(raw, "often", dict.fromkeys(everywhere, offset))
        commit(raw, "once", {3: 3})
    assert node.stop() == 0
    node = start_node.again(node)
    assert replayed(node) == (51, 0), "1,001 were written"
    with RawConnection(node) as raw:
        assert committed(raw, "often") == dict.fromkeys(everywhere, 19)
        commit(raw, "often", {0: 77})
        commit(raw, "new", {1: 1})
    node.kill()
    node = start_node.again(node)
    state, tail = replayed(node)  # what a start read is soon kept anew
    assert state in {51, 52}
    assert tail <= 2
    with RawConnection(node) as raw:
        assert committed(raw, "often") == dict.fromkeys(everywhere, 19) | {0: 77}
        assert committed(raw, "once") == {3: 3}
        assert committed(raw, "new") == {1: 1}


def test_a_start_after_a_crash_reads_no_more_than_a_bounded_tail(node, start_node):
    rounds = limits.STATE_RECORDS // 50 + 20
    with RawConnection(node) as raw:
        for offset in range(rounds):
            commit(raw, "g", dict.fromkeys(range(50), offset))
        while not list(node.data.glob("streams/__offsets/*/*.state")):
            commit(raw, "g", {0: rounds})  # it is being written beside them
    node.kill()
    node = start_node.again(node)
    state, tail = replayed(node)
    assert state == 50
    assert 0 < tail < 50 * rounds / 2
    with RawConnection(node) as raw:
        assert committed(raw, "g").keys() == set(range(50))
        assert committed(raw, "g")[1] == rounds - 1


def test_a_deleted_stream_stays_deleted_in_the_state(node, start_node):
    node.create_stream("gone")
    with RawConnection(node) as raw:
        commit(raw, "g", {0: 5}, "gone")
        commit(raw, "g", {0: 6})
    assert node.stop() == 0
    node = start_node.again(node)
    assert node.call("DELETE", "/api/v1/streams/gone")[0] in {200, 204}
    node.create_stream("gone")
    assert node.stop() == 0
    node = start_node.again(node)
    assert replayed(node) == (1, 0)
    with RawConnection(node) as raw:
        assert committed(raw, "g") == {0: 6}


def test_a_damaged_state_is_told_of_and_the_log_serves(node, start_node):
    for n in range(2):
        with RawConnection(node) as raw:
            commit(raw, "g", {0: n, n: n})
        assert node.stop() == 0
        node = start_node.again(node)
    assert node.stop() == 0
    (state,) = node.data.glob("streams/__offsets/*/*.state")
    whole = bytearray(state.read_bytes())
    whole[-1] ^= 1
    state.write_bytes(whole)
    node = start_node.again(node)
    assert replayed(node) == (0, 3)
    with RawConnection(node) as raw:
        assert committed(raw, "g") == {0: 1, 1: 1}
    assert f"{state.relative_to(node.data)} is damaged" in node.log.read_text()
