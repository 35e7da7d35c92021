"""`format("headrace")` on a standalone cluster and over Spark Connect, as on one machine."""

import contextlib
import json
import subprocess
import sys
from importlib.resources import files

import pytest

from conftest import RunningNode, environment
from headrace.native import build_batch
from headrace.pipeline import tables
from kafkaraw import RawConnection
from sinkrows import stored_values
from sparkcluster import Cluster, ConnectServer

pytestmark = pytest.mark.spark

COPY = """
import json, sys
from pathlib import Path

where, servers, stream, folder, times = sys.argv[1:]
if where.startswith("sc://"):
    from pyspark.sql import SparkSession
    spark, close = SparkSession.builder.remote(where).getOrCreate(), lambda spark: spark.stop()
else:
    from headrace.spark import close, session
    spark = session("copy", short_run=True, log_file=Path(folder) / "copy.log", conf={
        "spark.master": where, "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"})

def at(it, stream):
    return it.format("headrace").option("servers", servers).option("stream", stream)

rows = at(spark.read, stream).load()
filtered = at(spark.read, stream).option("pushFilters", "true").load()
filtered = filtered.filter("partition = 1 AND offset < 10")
found = {"filtered": filtered.count(), "read": rows.count()}
value = "cast(value AS string) AS value"
at(rows.selectExpr(value).repartition(2).write, stream + "-batch").mode("append").save()
for _ in range(int(times)):
    query = at(
        at(spark.readStream, stream).option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 1000).load().select("key", "value").writeStream,
        stream + "-query",
    ).option("checkpointLocation", folder + "/checkpoint").trigger(availableNow=True).start()
    query.awaitTermination()
try:
    at(rows.selectExpr("value AS valu").write, stream + "-batch").mode("append").save()
except Exception as error:
    from headrace.spark.errors import explain
    found["refused"] = explain(error)
print(json.dumps(found))
close(spark)
"""

COUNT = 2000


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    node = RunningNode(tmp_path_factory.mktemp("cluster") / "data")
    yield node
    node.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    cluster = Cluster(tmp_path_factory.mktemp("spark"))
    yield cluster
    cluster.close()


def run(command):
    """What a program printed last, as JSON."""
    ran = subprocess.run(
        [sys.executable, *map(str, command)],
        env=environment(), capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])


def copies_are_whole(node, stream, where, folder, times):
    """A program copies a stream, as a batch and as a query that is started so many times."""
    for name in (f"{stream}-batch", f"{stream}-query"):
        node.create_stream(name, partitions=2)
    sent = [b"%05d" % n for n in range(COUNT)]
    with RawConnection(node) as raw:
        for partition in range(3):
            mine = [(None, value, [], 0) for value in sent[partition::3]]
            assert raw.produce(stream, build_batch(mine), partition).error_code == 0
    found = run(["-c", COPY, where, node.servers, stream, folder, times])
    assert (found["filtered"], found["read"]) == (10, COUNT)
    assert "no column 'valu' in a record; did you mean 'value'" in found["refused"]
    assert stored_values(node, f"{stream}-batch") == sent
    assert stored_values(node, f"{stream}-query") == sent


@pytest.mark.soak
def test_workers_in_processes_of_their_own_copy_a_stream(node, stream, tmp_path):
    copies_are_whole(node, stream, "local-cluster[1,2,512]", tmp_path, 1)


@pytest.mark.soak
def test_a_standalone_cluster_copies_a_stream(node, stream, cluster, tmp_path):
    copies_are_whole(node, stream, cluster.url, tmp_path, 2)


@pytest.mark.soak
def test_spark_connect_copies_a_stream(node, stream, tmp_path):
    with contextlib.closing(ConnectServer(tmp_path)) as server:
        copies_are_whole(node, stream, server.url, tmp_path, 1)


@pytest.mark.soak
def test_spark_connect_on_a_cluster_copies_a_stream(node, stream, cluster, tmp_path):
    with contextlib.closing(ConnectServer(tmp_path, cluster.url)) as server:
        copies_are_whole(node, stream, server.url, tmp_path, 2)


@pytest.mark.soak
def test_the_pipeline_on_a_cluster_accounts_for_every_reading(node, cluster, tmp_path):
    """As `headrace demo`, with its broker, its trace and its accounts, on workers of a cluster."""
    trace = files("headrace") / "data" / "h200-1hz.csv.gz"
    mqtt = f"127.0.0.1:{node.mqtt}"
    run(["-m", "headrace", "collect", "csv", trace, "--mqtt", mqtt, "--json"])
    folder = tmp_path / "tables"
    run(
        ["-m", "headrace", "pipeline", "run", "--kafka", node.servers, "--master", cluster.url,
         "--once", "--replay", "--json", "--interval", "1s",
         "--tables", folder, "--checkpoint", tmp_path / "checkpoint"]
    )  # fmt: skip
    totals = tables.manifest(folder).totals
    assert totals.messages == sum(node.ends("gpu-telemetry")) == 7068
    assert (totals.rows, totals.quarantined, totals.duplicates) == (7067, 1, 0)
