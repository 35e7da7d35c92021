"""What strangers may send to the Kafka door: it costs them their connection, and nobody else."""

import contextlib
import random
import socket
from struct import pack

import pytest

from conftest import wait_for
from headrace import limits
from headrace.native import build_batch
from headrace.wire.kafka import apis, frames, members
from headrace.wire.kafka import groups as g
from headrace.wire.kafka import messages as m
from headrace.wire.kafka.errors import ErrorCode
from kafkaraw import RawConnection, batch

pytestmark = pytest.mark.slow

MIB = limits.MIB
MILLION = build_batch([(None, bytes(1_000_000), [], 1)])


@pytest.fixture
def node(shared):
    return shared


def header(api, correlation_id=1):
    """A request of the last version, as far as its body."""
    flexible = b"\0" if api.flexible(api.last) else b""
    return pack(">hhi", api.key, api.last, correlation_id) + b"\0\1h" + flexible


def framed(data):
    return pack(">i", len(data)) + data


def hostile(api, chance):
    """Streams of bytes that claim to be requests of this kind."""
    begin = header(api)
    yield pack(">i", 2**31 - 1) + begin  # 2 GB are to come
    yield framed(begin + b"\xff" * 64)  # nothing anywhere, or all lengths negative
    yield framed(begin + b"\x7f" * 64)  # lengths and counts beyond the frame
    yield framed(begin + pack(">i", limits.KAFKA_REQUEST_ELEMENTS_MAX) + bytes(MIB))
    yield framed(begin + bytes(MIB))
    yield framed(begin + chance.randbytes(64 * 1024))
    for _ in range(5):
        yield framed(begin + chance.randbytes(chance.randrange(64)))
    yield framed(begin) + framed(begin)[:-1]  # no body; and never whole


@pytest.mark.parametrize("api", apis.APIS.values(), ids=lambda api: api.name)
def test_whatever_is_sent_is_refused_or_answered_and_others_are_served(node, api):
    chance = random.Random(api.key)
    before = node.resident_bytes()
    with RawConnection(node) as other:
        for data in hostile(api, chance):
            with socket.create_connection(("127.0.0.1", node.kafka), timeout=30) as stranger:
                stranger.sendall(data)
                answer = other.call(apis.API_VERSIONS, m.ApiVersionsRequest())
                assert len(answer.api_keys) == len(apis.APIS)
    assert node.resident_bytes() - before < 64 * MIB


def test_small_requests_that_are_large_in_memory_do_not_pile_up(node, stream):
    """Each takes 600 kB on the wire and 19 MB when it has been read; 192 would be 3.6 GB."""
    topics = [m.FetchTopic(topic="", partitions=[])] * (limits.KAFKA_REQUEST_ELEMENTS_MAX - 2)
    large = m.FetchRequest(max_wait_ms=0, min_bytes=0, topics=topics)
    data = frames.encode_request(apis.FETCH, 11, 2, "h", large)
    before = node.resident_bytes()
    with contextlib.ExitStack() as opened:
        strangers = [opened.enter_context(RawConnection(node)) for _ in range(3)]
        first = opened.enter_context(RawConnection(node))
        leader = first.call(apis.JOIN_GROUP, joining(stream), 3)
        assert leader.error_code == 0
        assert first.call(apis.SYNC_GROUP, syncing(stream, leader), 2).error_code == 0
        for stranger in strangers:
            stranger.send(apis.JOIN_GROUP, joining(stream), 3)  # waits for the leader
            stranger.socket.settimeout(0)
        left = dict.fromkeys(strangers, data * (limits.KAFKA_PIPELINE_MAX - 1))

        def is_held_up():
            """Sends what is taken, until nothing is for a while, or all is."""
            taken = 0
            for stranger, rest in left.items():
                with contextlib.suppress(BlockingIOError):
                    sent = stranger.socket.send(rest)
                    left[stranger] = rest[sent:]
                    taken += sent
            return not any(left.values()) or not taken

        wait_for(is_held_up, 120)
        assert any(left.values()), "nobody is read on while a request of its own waits"
        assert node.metrics()["headrace_kafka_held_bytes"] < 3 * MIB
        assert node.resident_bytes() - before < 64 * MIB
        with RawConnection(node) as other:
            other.call(apis.FIND_COORDINATOR, g.FindCoordinatorRequest(key="g"))
        leaving = members.LeaveGroupRequest(group_id=stream, member_id=leader.member_id, members=[])
        first.call(apis.LEAVE_GROUP, leaving, 2)
    wait_for(lambda: node.metrics()["headrace_kafka_held_bytes"] == 0)


def test_large_requests_of_many_clients_are_read_as_far_as_memory_goes(node, stream):
    """Each takes 120 kB on the wire and 5 MB when it has been read; 50 are more than may be."""
    part = m.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
    topics = [m.FetchTopic(topic=stream, partitions=[part])] * (
        limits.KAFKA_REQUEST_ELEMENTS_MAX // 2 - 1
    )
    large = m.FetchRequest(max_wait_ms=300_000, min_bytes=1, topics=topics)
    node.create_stream(f"{stream}-other")
    before = node.resident_bytes()
    with contextlib.ExitStack() as opened:
        strangers = [opened.enter_context(RawConnection(node)) for _ in range(50)]
        sent = [stranger.send(apis.FETCH, large) for stranger in strangers]
        with RawConnection(node) as other:
            assert other.produce(f"{stream}-other", MILLION).base_offset == 0
        answered = [
            stranger.receive(each) for stranger, each in zip(strangers[:10], sent, strict=False)
        ]
        assert all(each.topics for each in answered), "they wait no longer, for others need room"
        assert node.resident_bytes() - before < 400 * MIB
    wait_for(lambda: node.metrics()["headrace_kafka_held_bytes"] == 0)


def test_beginnings_of_requests_keep_nobody_out(node, stream):
    """They stay below all bounds and never go on; who sends a large request is served."""
    part = pack(">i", 70 * MIB) + bytes(60 * MIB)
    with contextlib.ExitStack() as opened:
        for _ in range(4):
            stranger = socket.create_connection(("127.0.0.1", node.kafka), timeout=30)
            opened.enter_context(stranger)
            with contextlib.suppress(ConnectionError):
                stranger.sendall(part)
        with RawConnection(node) as other:
            for offset in range(10):
                assert other.produce(stream, MILLION).base_offset == offset


def is_ended(stranger):
    try:
        return stranger.recv(1) == b""
    except ConnectionResetError:
        return True


def test_many_small_beginnings_of_requests_keep_nobody_out(node, stream):
    """Each is below the share of a connection, and holds it for as long as it likes."""
    part = pack(">i", MIB) + bytes(limits.KAFKA_PART_BYTES - 4)
    crowd = limits.KAFKA_PARTS_BYTES_MAX // len(part)
    closed = 'headrace_kafka_closed_total{reason="memory"}'
    held = "headrace_kafka_held_bytes"
    with contextlib.ExitStack() as opened:
        strangers = []
        for _ in range(crowd + 20):
            stranger = socket.create_connection(("127.0.0.1", node.kafka), timeout=30)
            strangers.append(opened.enter_context(stranger))
            stranger.sendall(part)
        wait_for(lambda: node.metrics()[held] > (crowd - 10) * len(part))
        assert all(map(is_ended, strangers[:10])), "the oldest"
        assert node.metrics()[closed] >= 20
        with RawConnection(node) as other:
            for offset in range(10):
                assert other.produce(stream, MILLION).base_offset == offset
        assert node.metrics()[held] <= limits.KAFKA_PARTS_BYTES_MAX
    wait_for(lambda: node.metrics()[held] == 0)


def joining(group):
    protocols = [members.JoinGroupProtocol(name="range", metadata=b"")]
    return members.JoinGroupRequest(
        group_id=group, session_timeout_ms=300_000, rebalance_timeout_ms=300_000, member_id="",
        protocol_type="consumer", protocols=protocols,
    )  # fmt: skip


def syncing(group, joined):
    return members.SyncGroupRequest(
        group_id=group, generation_id=joined.generation_id, member_id=joined.member_id,
        assignments=[],
    )  # fmt: skip


def test_requests_that_never_become_whole_are_bounded_together(node):
    before = node.metrics().get('headrace_kafka_closed_total{reason="memory"}', 0)
    resident_bytes = node.resident_bytes()
    part = pack(">i", 70 * MIB) + bytes(8 * MIB)
    with contextlib.ExitStack() as opened:
        for _ in range(40):  # 320 MiB
            stranger = socket.create_connection(("127.0.0.1", node.kafka), timeout=30)
            opened.enter_context(stranger)
            with contextlib.suppress(ConnectionError):
                stranger.sendall(part)
        closed = 'headrace_kafka_closed_total{reason="memory"}'
        wait_for(lambda: node.metrics().get(closed, 0) > before)
        held = "headrace_kafka_held_bytes"
        wait_for(lambda: node.metrics()[held] <= limits.KAFKA_BUFFERED_BYTES_MAX)
        assert node.resident_bytes() - resident_bytes < 400 * MIB
        with RawConnection(node) as other:
            other.call(apis.METADATA, m.MetadataRequest(topics=[]))


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_bombs_of_many_at_a_time_open_one_after_the_other(node, codec):
    name = f"bombs-{codec}"
    node.create_stream(name, settings={"max.message.bytes": "16MiB"})
    bomb = build_batch([(None, bytes(limits.DECOMPRESSED_BYTES_MAX + 1), [], 0)], codec)
    before = node.resident_bytes()
    with contextlib.ExitStack() as opened:
        strangers = [opened.enter_context(RawConnection(node)) for _ in range(8)]
        sent = [stranger.send_produce(name, bomb) for stranger in strangers]
        with RawConnection(node) as other:
            assert other.produce(name, batch(b"x")).base_offset == 0
        most = node.resident_bytes()
        for stranger, request in zip(strangers, sent, strict=True):
            (answer,) = stranger.receive(request).topics[0].partitions
            assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
            most = max(most, node.resident_bytes())
    at_a_time = limits.CHECKERS * limits.DECOMPRESSED_BYTES_MAX
    assert most - before < at_a_time + 8 * len(bomb) + 64 * MIB, "8 of them would be a gigabyte"
    assert node.ends(name) == [1]
