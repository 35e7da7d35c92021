"""Records that are damaged on disk: every reader is told at once, and whoever keeps the node."""

import asyncio

import aiokafka
import confluent_kafka
import kafka
import pytest

from frameclient import Ending, FrameConnection
from headrace.client import Consumer, CorruptMessageError, FetchClient, TopicPartition
from headrace.wire.kafka.errors import ErrorCode
from kafkaraw import RawConnection, batch, values

A, B, C = (letter * 100_000 for letter in (b"a", b"b", b"c"))
"""Together more than a segment holds that has no index and that each start reads."""

LOG = "streams/s/0/00000000000000000000.log"


@pytest.fixture
def node(start_node):
    """Three batches, of which the second was damaged while the node was away."""
    node = start_node()
    node.create_stream("s", partitions=1)
    with RawConnection(node) as raw:
        for value in (A, B, C):
            assert raw.produce("s", batch(value)).error_code == 0
    assert node.stop() == 0
    path = node.data / LOG
    stored = path.read_bytes()
    path.write_bytes(stored.replace(B, B[1:] + b"\xff"))
    return start_node.again(node)


def named(node):
    """What the log says of damage, and the counters."""
    lines = [line for line in node.log.read_text().splitlines() if "readers are refused" in line]
    metrics = node.metrics()
    failed = metrics['headrace_log_reads_failed_total{reason="damaged"}']
    return lines, failed, metrics["headrace_log_damaged_places"]


def test_a_fetch_says_that_it_is_no_use_to_wait(node):
    with RawConnection(node) as raw:
        found = raw.fetch("s", {0: 0})[0]
        assert (found.error_code, values(found.records)) == (0, [A])
        for _ in range(3):
            assert raw.fetch("s", {0: 1})[0].error_code == ErrorCode.CORRUPT_MESSAGE
        assert values(raw.fetch("s", {0: 2})[0].records) == [C]
    lines, failed, places = named(node)
    assert (failed, places) == (3, 1)
    (line,) = lines
    assert "ERROR" in line
    for part in (LOG, "at byte", "(offset 1)", "headrace log repair", "headrace log verify"):
        assert part in line


def test_a_consumer_of_frames_is_told(node):
    with FrameConnection(node, "s", "consume", partition=0, offset=0) as client:
        assert client.next().value == A
        ending = client.next()
        assert isinstance(ending, Ending)
        assert ending.code == ErrorCode.CORRUPT_MESSAGE
        assert "offset 1" in ending.text
    assert node.metrics()['headrace_frame_refused_total{reason="corrupt_record"}'] == 1


def test_a_program_is_told_and_goes_on_beyond_it(node):
    async def read():
        place = TopicPartition("s", 0)
        async with Consumer(bootstrap_servers=node.servers, auto_offset_reset="earliest") as reader:
            reader.assign([place])
            assert (await reader.getone()).offset == 0
            with pytest.raises(CorruptMessageError, match=r"s/0 at 1: .* `seek` beyond") as caught:
                await reader.getmany(timeout_ms=30_000)
            assert not caught.value.retriable
            with pytest.raises(CorruptMessageError):
                await reader.get_arrow(timeout_ms=30_000)
            reader.seek(place, 2)
            assert (await reader.getone()).offset == 2

    asyncio.run(read())


def test_spark_s_readers_are_told(node):
    with FetchClient(node.servers, timeout_s=600) as client, pytest.raises(CorruptMessageError):
        client.fetch("s", 0, 1, 1 << 20, 100)


def test_librdkafka_tells_its_program(node):
    reader = confluent_kafka.Consumer({"bootstrap.servers": node.servers, "group.id": "g"})
    reader.assign([confluent_kafka.TopicPartition("s", 0, 1)])
    message = reader.poll(30)
    assert message.error().code() == ErrorCode.CORRUPT_MESSAGE
    reader.close()


def test_kafka_python_tells_its_program_which_goes_on_beyond_it(node):
    reader = kafka.KafkaConsumer(bootstrap_servers=node.servers)
    place = kafka.TopicPartition("s", 0)
    reader.assign([place])
    reader.seek(place, 1)
    with pytest.raises(kafka.errors.CorruptRecordError):
        reader.poll(30_000)
    reader.seek(place, 2)
    assert [each.offset for each in reader.poll(30_000)[place]] == [2]
    reader.close()


async def test_aiokafka_logs_it_and_goes_on_beyond_it(node, caplog):
    """To its program it says nothing, whatever a fetch is refused for but who may not read."""
    place = aiokafka.TopicPartition("s", 0)
    async with aiokafka.AIOKafkaConsumer(bootstrap_servers=node.servers) as reader:
        reader.assign([place])
        reader.seek(place, 1)
        while not any("CorruptRecordException" in line for line in caplog.messages):
            assert await reader.getmany(place, timeout_ms=10) == {}
        reader.seek(place, 2)
        assert (await reader.getone(place)).offset == 2
