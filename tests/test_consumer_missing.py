"""headrace.Consumer where streams are not there: it is told once, and the others are read on."""

import uuid

import pytest

import headrace
from headrace import TopicPartition
from headrace.client import UnknownStreamError
from kafkaraw import RawConnection, batch

pytestmark = pytest.mark.slow


@pytest.fixture
def node(start_node):
    return start_node()


@pytest.fixture
def streams(node):
    names = [f"{letter}-{uuid.uuid4().hex}" for letter in "ab"]
    for name in names:
        node.create_stream(name, partitions=2)
    return names


def consumer(node, topics=(), **settings):
    fast = {"retry_backoff_ms": 5, "retry_backoff_max_ms": 10, "fetch_max_wait_ms": 50}
    reset = {"auto_offset_reset": "earliest"}
    return headrace.Consumer(node.servers, topics, **fast, **reset, **settings)


def delete(node, stream):
    assert node.call("DELETE", f"/api/v1/streams/{stream}")[0] == 200


async def read(node, reader, stream, numbers, errors):
    """Reads what is produced meanwhile; what it raises goes to `errors`."""
    with RawConnection(node) as raw:
        for number in numbers:
            assert raw.produce(stream, batch(b"%d" % number)).error_code == 0
            while True:
                try:
                    record = await reader.getone()
                except UnknownStreamError as error:
                    errors.append(error)
                else:
                    break
            assert (record.topic, record.value) == (stream, b"%d" % number)


def asked(node):
    return node.metrics().get('headrace_kafka_requests_total{request="Metadata"}', 0)


@pytest.mark.parametrize("more", [{}, {"group_id": "g", "heartbeat_interval_ms": 50}])
async def test_a_subscribed_stream_that_is_deleted_is_told_once(node, streams, more):
    gone, stays = streams
    errors = []
    async with consumer(node, streams, **more) as reader:
        await read(node, reader, gone, range(2), errors)
        await read(node, reader, stays, range(2), errors)
        delete(node, gone)
        while not errors:
            await read(node, reader, stays, range(3), errors)
        before = asked(node)
        while asked(node) < before + 5:
            await read(node, reader, stays, range(3), errors)
        (error,) = errors
        assert gone in str(error)
        assert node.call("GET", f"/api/v1/streams/{gone}")[0] == 404, (
            "reading does not bring it back"
        )
        node.create_stream(gone, partitions=1)
        await read(node, reader, gone, range(5), errors)
        assert len(errors) == 1


async def test_an_assigned_stream_that_is_deleted_is_told_once(node, streams):
    gone, stays = streams
    errors = []
    places = [TopicPartition(stream, index) for stream in streams for index in range(2)]
    async with consumer(node) as reader:
        reader.assign(places)
        await read(node, reader, gone, range(2), errors)
        await read(node, reader, stays, range(2), errors)
        delete(node, gone)
        while not errors:
            await read(node, reader, stays, range(3), errors)
        before = asked(node)
        while asked(node) < before + 5:
            await read(node, reader, stays, range(3), errors)
        assert len(errors) == 1
        reader.seek(places[0], 0)
        assert await reader.position(places[0]) == 0


async def test_where_to_begin_is_found_for_those_that_are_there(node, streams):
    missing, there = TopicPartition("none", 0), TopicPartition(streams[0], 0)
    beyond = TopicPartition(streams[0], 7)
    errors = []
    async with consumer(node) as reader:
        reader.assign([missing, beyond, there])
        await read(node, reader, streams[0], range(3), errors)
        with pytest.raises(UnknownStreamError):
            await reader.position(missing)
        with pytest.raises(UnknownStreamError):
            await reader.position(beyond)
        assert await reader.position(there) == 3
        assert len(errors) == 2


async def test_a_pattern_just_loses_what_is_deleted(node, streams):
    gone, stays = streams
    errors = []
    async with consumer(node) as reader:
        reader.subscribe(pattern="[ab]-.*")
        await read(node, reader, gone, range(2), errors)
        delete(node, gone)
        for _ in range(100):
            await read(node, reader, stays, range(3), errors)
            if {place.topic for place in reader.assignment()} == {stays}:
                break
        else:
            pytest.fail("it reads on what is gone")
        assert errors == []
