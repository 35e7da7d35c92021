"""What a query finds when it comes back, or while it runs: grown, cut and remade streams, bad
checkpoints; and what its group shows of it."""

import shutil

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import StreamingQueryException

from conftest import RunningNode, wait_for
from headrace import TopicPartition
from headrace.spark.errors import explain
from headrace.sync import Admin
from kafkaraw import RawConnection, batch

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    node = RunningNode(tmp_path_factory.mktemp("recovery") / "data")
    yield node
    node.close()


@pytest.fixture(scope="module")
def admin(node):
    with Admin(node.servers) as admin:
        yield admin


def produce(node, stream, numbers, partition=0):
    with RawConnection(node) as raw:
        for n in numbers:
            assert raw.produce(stream, batch(b"%d" % n), partition).error_code == 0


class Query:
    """A query that collects the numbers in a stream."""

    def __init__(self, spark, node, stream, folder):
        self.spark, self.node, self.stream = spark, node, stream
        self.checkpoint = folder / "checkpoint"
        self.seen = []

    def start(self, trigger=None, **more):
        rows = (
            self.spark.readStream.format("headrace")
            .option("servers", self.node.servers)
            .option("stream", self.stream)
            .option("startingOffsets", "earliest")
            .options(**more)
            .load()
        )
        return (
            rows.writeStream.foreachBatch(self._collect)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(**(trigger or {"availableNow": True}))
            .start()
        )

    def _collect(self, rows, _):
        self.seen += sorted(int(row.value) for row in rows.select("value").collect())

    def run(self, **more):
        self.start(**more).awaitTermination()

    def fails(self, **more):
        """The one line that a person is told."""
        with pytest.raises((StreamingQueryException, Py4JJavaError)) as error:
            self.run(**more)
        said = explain(error.value)
        assert "\n" not in said
        return said


@pytest.fixture
def query(spark, node, stream, tmp_path):
    return Query(spark, node, stream, tmp_path)


def test_the_group_of_a_query_shows_its_lag(node, query):
    def lag():
        status, answer = node.call("GET", f"/api/v1/groups/lag-{query.stream}")
        assert status == 200
        return sum(each["lag"] for each in answer["partitions"])

    produce(node, query.stream, range(10))
    query.run(groupId=f"lag-{query.stream}", maxOffsetsPerTrigger="4")
    assert lag() == 0
    produce(node, query.stream, range(10, 13))
    assert lag() == 3
    query.run(groupId=f"lag-{query.stream}")
    assert lag() == 0
    assert query.seen == list(range(13))


def test_a_partition_that_is_added_is_read_without_a_restart(node, admin, query):
    produce(node, query.stream, range(3))
    running = query.start(trigger={"processingTime": "0 seconds"})
    try:
        wait_for(lambda: query.seen == [0, 1, 2])
        admin.create_partitions(query.stream, 4)
        produce(node, query.stream, [3, 4], partition=3)
        wait_for(lambda: query.seen == [0, 1, 2, 3, 4])
    finally:
        running.stop()


def test_retention_that_overtakes_a_query_ends_it_or_is_passed_over(node, admin, query):
    produce(node, query.stream, range(3))
    query.run()
    produce(node, query.stream, range(3, 9))
    admin.delete_records({TopicPartition(query.stream, 0): 6})
    said = query.fails()
    assert f"{query.stream}/0 [3, 9): records 3 to 5 are gone, the log starts at 6" in said
    assert "failOnDataLoss=false reads on without them" in said
    query.run(failOnDataLoss="false")
    assert query.seen == [0, 1, 2, 6, 7, 8]


def test_a_stream_that_was_made_anew_is_refused(node, admin, query):
    produce(node, query.stream, range(5))
    query.run()
    admin.delete_topic(query.stream)
    gone = query.fails()
    assert f"{query.stream}: UNKNOWN_TOPIC_OR_PARTITION" in gone
    assert "a query that has read of it before needs a new checkpoint" in gone
    node.create_stream(query.stream, partitions=3)
    produce(node, query.stream, range(2))
    for flag in ("true", "false"):
        said = query.fails(failOnDataLoss=flag)
        assert f"{query.stream}/0 ends at 2, and 5 records were read of it" in said
        assert "start with a new checkpoint" in said
    assert query.seen == list(range(5))


def rewritten(file, last):
    """Spark's version and its own line stay; the last line is the source's."""
    file.write_text("\n".join([*file.read_text().splitlines()[:-1], last]))


def test_a_checkpoint_that_cannot_be_read_says_what_to_do(node, query):
    produce(node, query.stream, range(6))
    query.run(maxOffsetsPerTrigger="3")
    whole = query.checkpoint
    foreign = "holds offsets that are not of this source: {'logOffset': 7}"
    damages = {
        "no-json": (lambda at: rewritten(at / "offsets/1", '{"x'), "offsets is damaged"),
        "foreign": (lambda at: rewritten(at / "offsets/1", '{"logOffset": 7}'), foreign),
        "empty": (lambda at: (at / "offsets/1").write_text(""), "offsets/1 is damaged"),
        "noise": (lambda at: (at / "commits/1").write_bytes(b"\0\1"), "commits/1 is damaged"),
        "metadata": (lambda at: (at / "metadata").write_text("{"), "metadata is damaged"),
        "lost": (lambda at: (at / "offsets/1").unlink(), "files of it are missing"),
    }
    for name, (damage, message) in damages.items():
        query.checkpoint = whole.with_name(name)
        shutil.copytree(whole, query.checkpoint)
        for sum_file in query.checkpoint.rglob(".*.crc"):
            sum_file.unlink()
        damage(query.checkpoint)
        said = query.fails()
        assert message in said, name
        assert "checkpoint" in said, name
    query.checkpoint = whole.with_name("bits")
    shutil.copytree(whole, query.checkpoint)
    rewritten(query.checkpoint / "offsets/1", "{}")
    assert "offsets/1 is damaged): restore it from a copy" in query.fails()
