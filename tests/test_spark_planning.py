"""How the Spark source plans while a stream changes under it: partitions are added, records go."""

import os

import pytest

from conftest import RunningNode
from headrace import TopicPartition
from headrace.client import FetchClient
from headrace.spark import read
from headrace.spark.errors import DataLossError
from headrace.spark.options import parse
from headrace.spark.schema import SCHEMA
from headrace.spark.source import BatchReader, StreamReader
from headrace.sync import Admin
from kafkaraw import RawConnection, batch


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    node = RunningNode(tmp_path_factory.mktemp("planning") / "data")
    yield node
    node.close()


def produce(node, stream, count, partition=0):
    with RawConnection(node) as raw:
        for n in range(count):
            assert raw.produce(stream, batch(b"%d" % n), partition).error_code == 0


def spans(tasks):
    return [(part.partition, part.start, part.end) for task in tasks for part in task.ranges]


class GrowingClient(FetchClient):
    """A stream gets a partition with a record in it after it was first asked about."""

    def grow(self, stream):
        if self.is_grown:
            return
        self.is_grown = True
        with Admin(self.node.servers) as admin:
            admin.create_partitions(stream, 4)
        produce(self.node, stream, 1, partition=3)

    def earliest_offsets(self, stream):
        found = super().earliest_offsets(stream)
        self.grow(stream)
        return found

    def latest_offsets(self, stream):
        found = super().latest_offsets(stream)
        self.grow(stream)
        return found


@pytest.fixture
def growing(node, monkeypatch):
    """The connection of this process to the node is such a client."""
    client = GrowingClient(node.servers)
    client.node, client.is_grown = node, False
    monkeypatch.setitem(read._clients, (os.getpid(), node.servers, None), client)
    with client:
        yield client


PLACES = '{"%s": {"0": -2, "1": -2, "2": -2, "3": -2}}'


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, [(0, 0, 2), (1, 0, 2), (2, 0, 2)]),
        ({"startingOffsets": "latest"}, []),
        ({"startingTimestamp": "0"}, [(0, 0, 2), (1, 0, 2), (2, 0, 2)]),
        ({"startingTimestamp": str(2**50)}, []),
        ({"startingOffsets": PLACES}, [(0, 0, 2), (1, 0, 2), (2, 0, 2), (3, 0, 1)]),
    ],
)
def test_a_partition_that_is_added_while_a_frame_is_planned_is_no_error(
    node, stream, growing, more, expected
):
    for partition in range(3):
        produce(node, stream, 2, partition)
    given = {name: value % stream if "%" in value else value for name, value in more.items()}
    given |= {"servers": node.servers, "stream": stream}
    assert spans(BatchReader(parse(given, "batch"), SCHEMA).partitions()) == expected
    assert growing.is_grown


def test_a_query_that_starts_at_a_time_reads_an_added_partition_from_its_start(
    node, stream, growing
):
    given = {"servers": node.servers, "stream": stream, "startingTimestamp": str(2**50)}
    reader = StreamReader(parse(given, "streaming"), SCHEMA)
    start = reader.initialOffset()
    assert growing.is_grown
    assert start == {stream: {"0": 0, "1": 0, "2": 0}}
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert spans(reader.partitions(start, end)) == [(3, 0, 1)]


def test_a_repeated_micro_batch_has_the_same_tasks_after_retention(node, stream, caplog):
    """A sink finds what it wrote by the numbers of its tasks: no record may change its task."""
    for partition in range(3):
        produce(node, stream, 10, partition)
    given = {"servers": node.servers, "stream": stream, "failOnDataLoss": "false"}
    reader = StreamReader(parse(given | {"minPartitions": "5"}, "streaming"), SCHEMA)
    start = {stream: {str(partition): 0 for partition in range(3)}}
    end = {stream: {str(partition): 10 for partition in range(3)}}
    before = [spans([task]) for task in reader.partitions(start, end)]
    assert before == [
        [(0, 0, 6)], [(0, 6, 10), (1, 0, 2)], [(1, 2, 8)], [(1, 8, 10), (2, 0, 4)], [(2, 4, 10)],
    ]  # fmt: skip
    assert not caplog.records
    with Admin(node.servers) as admin:
        admin.delete_records({TopicPartition(stream, 0): 8, TopicPartition(stream, 2): 1})
    after = [spans([task]) for task in reader.partitions(start, end)]
    assert after == [
        [], [(0, 8, 10), (1, 0, 2)], [(1, 2, 8)], [(1, 8, 10), (2, 1, 4)], [(2, 4, 10)],
    ]  # fmt: skip
    assert [record.message for record in caplog.records] == [
        f"{stream}/0 [0, 10): records 0 to 7 are gone and left out",
        f"{stream}/2 [0, 10): records 0 to 0 are gone and left out",
    ]
    strict = StreamReader(parse(given | {"failOnDataLoss": "true"}, "streaming"), SCHEMA)
    with pytest.raises(DataLossError, match="records 0 to 7 are gone"):
        strict.partitions(start, end)


@pytest.mark.spark
def test_a_frame_has_the_offsets_of_its_first_action(spark, node, stream):
    def frame():
        given = {"servers": node.servers, "stream": stream}
        return spark.read.format("headrace").options(**given).load()

    rows = frame()
    produce(node, stream, 2)
    assert rows.count() == 2
    produce(node, stream, 3)
    assert rows.count() == rows.select("value").count() == len(rows.collect()) == 2
    assert frame().count() == 5
    # Where the session offers filters to sources, one plans anew, also for what comes after it.
    name = "spark.sql.python.filterPushdown.enabled"
    assert spark.conf.get(name) == "true"
    assert (rows.filter("offset >= 0").count(), rows.count()) == (5, 5)
    spark.conf.set(name, "false")
    try:
        produce(node, stream, 4)
        assert (rows.filter("offset >= 0").count(), rows.count()) == (5, 5)
    finally:
        spark.conf.set(name, "true")
