"""`format("headrace")` as a sink, in Spark: batch and streaming, retries, killed drivers."""

import subprocess
import sys

import pytest
from pyspark.errors import PySparkException

from conftest import RunningNode, environment, wait_for
from headrace.client.append import AppendClient
from headrace.spark.errors import explain
from headrace.spark.intent import OVER, load
from processes import kill_all
from sinkrows import stored, stored_values

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    node = RunningNode(tmp_path_factory.mktemp("sink") / "data")
    yield node
    node.close()


def save(frame, node, stream=None, mode="append", **more):
    writer = frame.write.format("headrace").option("servers", node.servers).options(**more)
    if stream is not None:
        writer = writer.option("stream", stream)
    writer.mode(mode).save()


def groups(node):
    status, answer = node.call("GET", "/api/v1/groups")
    assert status == 200
    return [each["group"] for each in answer["groups"]]


def test_a_frame_is_written_row_by_row(spark, node, stream):
    frame = spark.sql(
        """
        SELECT cast(id AS string) AS value, cast(id % 7 AS string) AS key,
               array(named_struct('key', 'h', 'value', cast('x' AS binary))) AS headers,
               timestamp_millis(1700000000000 + id) AS timestamp
        FROM range(5000)
        """
    )
    save(frame.repartition(3), node, stream)
    found = sorted(stored(node, stream), key=lambda row: int(row[3]))
    assert [row[1:] for row in found] == [
        (1_700_000_000_000 + n, b"%d" % (n % 7), b"%d" % n, [("h", b"x")]) for n in range(5000)
    ]
    again = spark.read.format("headrace").option("servers", node.servers).option("stream", stream)
    assert again.load().select("value").distinct().count() == 5000
    assert groups(node) == [OVER]


def test_rows_go_to_the_streams_that_they_name(spark, node, stream):
    frame = spark.sql(f"SELECT cast(id AS string) AS value, '{stream}' AS topic FROM range(20)")
    save(frame, node)
    assert len(stored(node, stream)) == 20


def test_nothing_is_written_where_there_is_nothing(spark, node, stream):
    save(spark.sql("SELECT '' AS value WHERE 1 = 0"), node, stream)
    assert stored(node, stream) == []


@pytest.mark.parametrize(
    ("query", "more", "message"),
    [
        ("SELECT 1 AS value", {}, "column value must be binary or string; it is int: cast it"),
        ("SELECT '' AS key", {}, "a column value is needed; there are key"),
        ("SELECT '' AS value, 1 AS offset", {}, "no column 'offset' in a record"),
        ("SELECT '' AS value, 1L AS partition", {}, "column partition must be int; it is bigint"),
        ("SELECT '' AS value, '' AS topic", {}, "option stream and column topic contradict"),
        ("SELECT '' AS value, 1 AS timestamp", {}, "column timestamp must be timestamp; it is int"),
        (
            "SELECT '' AS value, map('a', 'b') AS headers", {},
            "column headers must be array<struct<key:string,value:binary>>; it is map",
        ),
        ("SELECT '' AS value", {"startingOffsets": "latest"}, "no option 'startingoffsets'; known"),
        ("SELECT '' AS value", {"stream": "absent"}, "absent: UNKNOWN_TOPIC_OR_PARTITION"),
        ("SELECT '' AS value", {"stream": " "}, "option stream must not be empty"),
        ("SELECT '' AS value", {"servers": "x"}, "option servers, the broker's Kafka door"),
        ("SELECT '' AS value", {"mode": "overwrite"}, "a stream is only appended to"),
    ],
)  # fmt: skip
def test_what_cannot_be_written_is_refused_in_one_line(spark, node, stream, query, more, message):
    with pytest.raises(PySparkException) as error:
        save(spark.sql(query), node, **{"stream": stream, **more})
    assert message in explain(error.value)
    assert "\n" not in explain(error.value)
    assert stored(node, stream) == []


def test_rows_without_a_stream_are_refused(spark, node):
    with pytest.raises(PySparkException) as error:
        save(spark.sql("SELECT '' AS value"), node)
    assert "give the option stream, or a column topic" in explain(error.value)


def test_a_query_of_whole_results_is_refused(spark, node, stream, tmp_path):
    counts = spark.readStream.format("rate").load().groupBy("value").count()
    frame = counts.selectExpr("cast(count AS string) AS value")
    writer = start(frame, node, stream, tmp_path, outputMode="complete")
    with pytest.raises(PySparkException) as error:
        writer.awaitTermination()
    assert "a stream is only appended to" in explain(error.value)


def start(frame, node, stream, folder, outputMode="append"):  # noqa: N803 - Spark's name
    return (
        frame.writeStream.format("headrace")
        .outputMode(outputMode)
        .queryName("sink")
        .option("servers", node.servers)
        .option("stream", stream)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )


def test_a_query_writes_each_micro_batch_once(spark, node, stream, tmp_path):
    save(spark.range(1000).selectExpr("cast(id AS string) AS value"), node, stream)
    node.create_stream(f"{stream}-out", partitions=2)
    source = (
        spark.readStream.format("headrace")
        .option("servers", node.servers)
        .option("stream", stream)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "300")
        .load()
        .select("key", "value", "timestamp")
    )
    for total in (1000, 1500):
        query = start(source, node, f"{stream}-out", tmp_path)
        query.awaitTermination()
        assert stored_values(node, f"{stream}-out") == sorted(b"%d" % n for n in range(total))
        if total == 1000:
            more = spark.range(1000, 1500).selectExpr("cast(id AS string) AS value")
            save(more, node, stream)
    mine = f"headrace-sink-{query.id}-0"
    assert mine in groups(node)
    with AppendClient(node.servers) as log:
        intent = load({at: text for at, (_, text) in log.kept(mine, f"{stream}-out").items()})
    # By its run a query knows which micro-batches nobody can have begun before.
    assert (intent.batch, intent.run) == (query.lastProgress["batchId"], str(query.runId))


ROWS = "lpad(cast(id AS string), 2000, '0') AS value"
"""So large that a task has more than the five batches that a broker remembers of a producer."""

RETRIES = """
import os, sys
from pathlib import Path
from time import sleep
from pyspark import TaskContext
from headrace.client.append import AppendClient
from headrace.spark import session, close

servers, stream, folder, rows = sys.argv[1:]
spark = session("retries", short_run=True, log_file=Path(folder) / "log", conf={
    "spark.master": "local[2,4]", "spark.sql.execution.arrow.maxRecordsPerBatch": "500"})

def dying(batches):
    # Twice a task fails when some of its rows have been written, and its worker with it.
    task = TaskContext.get()
    for number, batch in enumerate(batches):
        if number == 6 and task.partitionId() == 0 and task.attemptNumber() < 2:
            log = FetchClient(servers)
            while not sum(log.latest_offsets(stream).values()):
                sleep(0.01)
            os._exit(1)
        yield batch

frame = spark.range(0, 8000, 1, 2).selectExpr(rows)
frame = frame.mapInArrow(dying, frame.schema)
writer = frame.write.format("headrace").option("servers", servers).option("stream", stream)
writer.mode("append").save()
close(spark)
"""


def values(first, end):
    """What `ROWS` has."""
    return [b"%02000d" % n for n in range(first, end)]


@pytest.mark.soak
def test_tasks_that_are_retried_write_each_row_once(node, stream, tmp_path):
    ran = subprocess.run(
        [sys.executable, "-c", RETRIES, node.servers, stream, str(tmp_path), ROWS],
        env=environment(), capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert stored_values(node, stream) == values(0, 8000)


DRIVER = """
import sys
from pathlib import Path
from headrace.spark import session

servers, source, stream, folder, place = sys.argv[1:]
spark = session("driver", cores=2, short_run=True, log_file=Path(folder) / "log",
                conf={"spark.sql.execution.arrow.maxRecordsPerBatch": "500"})

def until_place(batches):
    from pyspark import TaskContext
    from time import sleep
    task = TaskContext.get()
    batch = task.getLocalProperty("streaming.sql.batchId")
    for number, rows in enumerate(batches):
        if place == f"{batch}:{task.partitionId()}:{number}":
            Path(folder, "reached").touch()
            sleep(600)
        yield rows

rows = (spark.readStream.format("headrace").option("servers", servers).option("stream", source)
    .option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "6000").load()
    .select("key", "value", "timestamp").repartition(2, "value"))
query = (rows.mapInArrow(until_place, rows.schema).writeStream.format("headrace")
    .option("servers", servers).option("stream", stream)
    .option("checkpointLocation", folder + "/checkpoint").trigger(availableNow=True).start())
query.awaitTermination()
"""


class Driver:
    """A query in a process of its own.

    Its rows come from a shuffle, in any order; it stops at a batch of a task of a micro-batch.
    """

    def __init__(self, node, source, stream, folder, place):
        self.reached = folder / "reached"
        self.process = subprocess.Popen(
            [sys.executable, "-c", DRIVER, node.servers, source, stream, str(folder), place],
            env=environment(),
        )  # fmt: skip

    def is_there(self):
        assert self.process.poll() is None, "it ended before its place"
        return self.reached.exists()

    def kill(self):
        """SIGKILL for the driver, its JVM and all that they started."""
        kill_all(self.process.pid)
        self.process.wait(60)
        self.reached.unlink(missing_ok=True)


@pytest.mark.soak
@pytest.mark.parametrize("places", [["1:0:4"], ["0:0:4", "0:1:5", "1:1:3", "1:0:5"]])
def test_drivers_that_are_killed_in_a_micro_batch_double_and_lose_nothing(
    spark, node, stream, tmp_path, places
):
    save(spark.range(12_000).selectExpr(ROWS), node, stream)
    out = f"{stream}-out"
    node.create_stream(out, partitions=2)
    written = 0
    for place in places:
        driver = Driver(node, stream, out, tmp_path, place)
        try:
            wait_for(driver.is_there, 120)
            wait_for(lambda before=written: sum(node.ends(out)) > before)
        finally:
            driver.kill()
        written = sum(node.ends(out))
        assert written < 12_000
    start(copied(spark, node, stream), node, out, tmp_path).awaitTermination()
    assert stored_values(node, out) == values(0, 12_000)
    assert sorted(row[1:4] for row in stored(node, out)) == sorted(
        row[1:4] for row in stored(node, stream)
    )


def copied(spark, node, stream):
    """As the drivers, without a place."""
    source = spark.readStream.format("headrace").option("servers", node.servers)
    rows = source.option("stream", stream).option("maxOffsetsPerTrigger", "6000").load()
    return rows.select("key", "value", "timestamp").repartition(2, "value")
