"""What a micro-batch takes of telemetry, and what is said where a worker of Spark is killed."""

import os
import signal

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from frames import payload as telemetry
from frames import wide
from headrace import job_limits
from headrace.native import build_batch
from headrace.spark.errors import explain
from headrace.spark.options import parse
from headrace.spark.payload import default_schema
from headrace.spark.source import StreamReader
from kafkaraw import RawConnection

STAMP = 1_700_000_000_000


def produce_values(node, stream, values):
    """Appends values to the one partition of a new stream."""
    node.create_stream(stream, partitions=1)
    with RawConnection(node) as raw:
        records = [(None, value, [], STAMP) for value in values]
        assert raw.produce(stream, build_batch(records), 0).error_code == 0


def options(node, stream, **more):
    return parse({"servers": node.servers, "stream": stream, **more}, "streaming")


@pytest.mark.spark
def test_a_worker_that_is_killed_is_said_in_one_line(spark):
    def die(batches):
        os.kill(os.getpid(), signal.SIGKILL)
        yield from batches

    with pytest.raises((PySparkException, Py4JJavaError)) as error:
        spark.range(1).mapInArrow(die, "id long").collect()
    assert explain(error.value).startswith("a Python worker of Spark ended")
    planner = (
        "[STREAM_FAILED] Query [id = 8] terminated with exception: Broken pipe SQLSTATE: XXKST"
    )
    assert explain(RuntimeError(planner)) == explain(error.value)


@pytest.mark.spark
def test_what_python_raised_within_spark_is_the_line_that_is_told(spark, tmp_path):
    def full(*_):
        raise OSError(28, "No space left on device", "/tables/x")

    with pytest.raises((PySparkException, Py4JJavaError)) as of_task:
        spark.range(1).mapInArrow(full, "id long").collect()
    query = (
        spark.readStream.format("rate").load().writeStream.foreachBatch(full)
        .option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    )  # fmt: skip
    with pytest.raises(PySparkException) as of_query:
        query.awaitTermination()
    for error in (of_task, of_query):
        assert explain(error.value) == (
            "/tables/x: No space left on device; free space there, and run it again: it goes on"
        )


def test_of_what_spark_says_a_person_hears_what_to_do():
    ended = "[STREAM_FAILED] Query [id = 8] terminated with exception: "
    full = explain(RuntimeError(f"{ended}java.io.IOException: No space left on device"))
    assert full.startswith("a disk is full that Spark writes to")
    busy = explain(RuntimeError(f"{ended}Python worker failed to connect back. SQLSTATE: XXKST"))
    assert busy.startswith("a Python worker of Spark did not start within ten seconds")
    assert explain(RuntimeError(f"{ended}Something else. SQLSTATE: XXKST")) == "Something else."
    assert explain(ConnectionRefusedError(111, "x")).startswith("Spark's JVM has ended")


@pytest.mark.parametrize(("metrics", "admitted"), [(1, 400), (20, 400), (50, 200), (100, 100)])
def test_messages_with_many_readings_are_admitted_by_those(shared, monkeypatch, metrics, admitted):
    monkeypatch.setattr(job_limits, "SPARK_READINGS_MAX", 10_000)
    monkeypatch.setattr(job_limits, "SPARK_SAMPLED_RECORDS_MIN", 300)
    stream = f"wide-{metrics}"
    produce_values(shared, stream, [wide({f"DCGM_FI_X{n}": str(n) for n in range(metrics)})] * 500)
    given = options(shared, stream, payload="dcgm", startingOffsets="earliest")
    reader = StreamReader(given, default_schema("dcgm"))
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, ReadMaxRows(400))
    assert end == {stream: {"0": admitted}}
    [task] = reader.partitions(begin, end)
    assert sum(rows.num_rows for rows in reader.read(task)) == admitted * metrics
    few = reader.latestOffset(begin, ReadMaxRows(299))
    assert few == {stream: {"0": 299}}, "so few are not looked at"
    assert reader.latestOffset(begin, ReadAllAvailable()) == {stream: {"0": 500}}


def test_wide_messages_behind_narrow_ones_are_seen(shared, monkeypatch):
    monkeypatch.setattr(job_limits, "SPARK_READINGS_MAX", 10_000)
    monkeypatch.setattr(job_limits, "SPARK_SAMPLED_RECORDS_MIN", 100)
    many = wide({f"DCGM_FI_X{n}": str(n) for n in range(100)})
    produce_values(shared, "mixed", [telemetry()] * 200)
    with RawConnection(shared) as raw:
        for _ in range(20):
            made = build_batch([(None, many, [], STAMP)] * 10)
            assert raw.produce("mixed", made, 0).error_code == 0
    given = options(shared, "mixed", payload="dcgm", startingOffsets="earliest")
    reader = StreamReader(given, default_schema("dcgm"))
    assert reader.latestOffset(reader.initialOffset(), ReadMaxRows(400)) == {"mixed": {"0": 100}}
