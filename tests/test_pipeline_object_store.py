"""Tables and checkpoint in an object store: the same as in a folder, whatever is killed."""

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen, TimeoutExpired
from threading import Barrier
from urllib.error import URLError
from urllib.request import Request, urlopen

import pyspark
import pytest
from deltalake import DeltaTable

from apiserver import RunningApi
from buckets import Tables
from conftest import environment, headrace, unused_ports, wait_for
from frames import at, from_csv, wide
from headrace import job_limits
from headrace.pipeline import Options, run, tables
from headrace.pipeline import manifest as manifests
from headrace.pipeline.compact import compact
from headrace.pipeline.folder import Folder
from headrace.pipeline.manifest import VersionExistsError
from headrace.pipeline.schemas import SCHEMAS
from headrace.spark.errors import HADOOP_AWS, PipelineError
from processes import kill_all
from test_pipeline_exactly_once import TRACE, produce
from test_pipeline_kills import seeded

SDK = ("s3", "s3-transfer-manager")
"""What a checkpoint needs of Amazon's SDK, of which `bundle` has 686 MB."""

PACKAGES = [HADOOP_AWS, *(f"software.amazon.awssdk:{name}:2.35.4" for name in SDK)]
JARS = {
    "spark.jars.packages": ",".join(PACKAGES),
    "spark.jars.excludes": "software.amazon.awssdk:bundle",
}

KEYS = {"AWS_ACCESS_KEY_ID": "me", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}


@pytest.fixture(scope="module")
def store():
    """Address of an object store with the bucket `fleet`."""
    port = unused_ports()[0]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with Popen(command, stdout=DEVNULL, stderr=DEVNULL, env=environment()) as process:

        def has_bucket():
            try:
                request = Request(f"http://127.0.0.1:{port}/fleet", method="PUT")
                return urlopen(request, timeout=10).status == 200
            except URLError:
                return False

        wait_for(has_bucket, 60)
        yield f"127.0.0.1:{port}"
        process.terminate()


@pytest.fixture
def bucket(store, monkeypatch):
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    return lambda name: f"s3://fleet/{name}?endpoint_override={store}&scheme=http"


def sent(minute):
    return [
        wide({"DCGM_FI_DEV_GPU_UTIL": str(minute), "DCGM_FI_DEV_POWER_USAGE": "100"},
             gpu_id=f"GPU-{n}", event_time=at(minute * 60))
        for n in range(2)
    ]  # fmt: skip


def everything(root):
    return {
        name: sorted(map(str, tables.open_arrow(root, name).to_table().to_pylist()))
        for name in SCHEMAS
    }


@pytest.mark.soak
def test_tables_are_the_same_there(bucket, tmp_path):
    there, here = Tables(bucket("same"), buckets=1), Tables(tmp_path / "here", buckets=1)
    for minute in (*range(0, 400, 40), 3):
        there.write(sent(minute))
        here.write(sent(minute))
    assert everything(there.root) == everything(here.root)
    done = compact(there.root, lambda _: None)
    assert done.files_after < done.files_before
    assert everything(there.root) == everything(here.root)
    assert not Folder.at(there.root).names("readings/batch=0/0-x.parquet")


@pytest.mark.soak
def test_delta_logs_follow_the_tables_there(store, bucket, monkeypatch):
    monkeypatch.setattr(job_limits, "PIPELINE_DELTA_CHECKPOINT_COMMITS", 3)
    written = Tables(bucket("delta"), buckets=1, format="delta")
    for minute in (0, 40, 80, 120, 3):
        written.write(sent(minute))
    compact(written.root, lambda _: None, "delta")
    again = Tables(bucket("delta"), buckets=1, format="delta")  # as after a restart
    again._sent = 10
    again.write(sent(160))
    options = {"AWS_ENDPOINT_URL": f"http://{store}", "AWS_ALLOW_HTTP": "true"}
    for table, rows in everything(written.root).items():
        read = DeltaTable(f"s3://fleet/delta/{table}", storage_options=options)
        assert sorted(map(str, read.to_pyarrow_table().to_pylist())) == rows, table
    names = Folder.at(written.root).names("readings/_delta_log")
    assert {"_last_checkpoint", f"{6:020d}.json"} <= set(names)


def test_a_version_is_committed_once(bucket):
    root = bucket("once")
    written = Tables(root, buckets=1)
    at_first = written.write(sent(0))
    with pytest.raises(VersionExistsError, match=r"s3://fleet/once/_manifest/0+\.json exists"):
        manifests.commit(root, at_first)


def test_of_the_threads_of_a_process_one_takes_a_version(bucket):
    """That of a micro-batch, and the one that makes what is due."""
    root = bucket("threads")
    after = Tables(root, buckets=1).write(sent(0)).next_version()
    at_once = Barrier(4)

    def commit(query):
        at_once.wait()
        try:
            manifests.commit(root, replace(after, query=query))
        except VersionExistsError:
            return None
        return query

    with ThreadPoolExecutor(4) as threads:
        took = [query for query in threads.map(commit, "abcd") if query]
    assert took == [manifests.newest(root).query]


@pytest.mark.soak
def test_the_pipeline_writes_there(spark, broker, bucket, tmp_path):
    produce(broker, from_csv(TRACE)[:62])
    there = headrace(
        "pipeline", "run", "--once", "--replay", "--interval", "1s", "--kafka", broker.servers,
        "--tables", bucket("run"), "--checkpoint", str(tmp_path / "checkpoint"), "--json",
        timeout=240, **KEYS,
    )  # fmt: skip
    assert there.returncode == 0, there.stderr
    run(
        spark, broker.servers, "gpu-telemetry", tmp_path / "tables", tmp_path / "other",
        options=Options(now="event_time", interval_s=1),
    )  # fmt: skip
    assert everything(bucket("run")) == everything(tmp_path / "tables")
    said = headrace("pipeline", "status", "--tables", bucket("run"), "--json", **KEYS)
    assert said.stdout == there.stdout
    with pytest.raises(PipelineError, match="not written with the checkpoint"):
        run(spark, broker.servers, "gpu-telemetry", bucket("run"), tmp_path / "another")


@pytest.mark.parametrize("uri", ["s5://fleet/x", "s3://", "s3://fleet/x?no_such_option=1"])
def test_a_wrong_uri_is_one_line(uri):
    with pytest.raises(PipelineError, match="name a folder, or a URI such as s3://") as error:
        Folder.at(uri)
    assert "\n" not in str(error.value)


def test_a_store_that_is_away_is_one_line():
    done = headrace(
        "pipeline", "status", "--tables",
        f"s3://fleet/x?endpoint_override=127.0.0.1:{unused_ports()[0]}&scheme=http", **KEYS,
    )  # fmt: skip
    assert done.returncode != 0
    assert "s3://fleet/x" in done.stderr
    assert len(done.stderr.splitlines()) <= 3
    assert "Traceback" not in done.stderr


def test_the_api_and_the_report_read_an_object_store(bucket):
    root = bucket("api")
    Tables(Folder.at(root)).write(sent(0) + sent(1))
    api = RunningApi(root, **KEYS)
    try:
        assert [gpu["id"] for gpu in api.ok("/api/v1/gpus")["gpus"]] == ["GPU-0", "GPU-1"]
        rows = api.ok("/api/v1/gpus/GPU-1/telemetry", metric_name="DCGM_FI_DEV_GPU_UTIL")
        assert [row["value"] for row in rows["telemetry"]] == [0, 1]
        before = api.ok("/api/v1/fleet/summary", end_time=at(-3600))
        assert (before["fleet"]["gpus"], api.ok("/api/v1/fleet/summary")["fleet"]["gpus"]) == (0, 2)
        Tables(Folder.at(root)).write(sent(2))
        api.has_version(1)
    finally:
        api.close()
    told = headrace("report", "--tables", root, "--json", **KEYS)
    assert json.loads(told.stdout)["fleet"]["gpus"] == 2


def test_jars_are_named_for_the_hadoop_that_pyspark_brings():
    jars = Path(pyspark.__file__).parent / "jars"
    assert list(jars.glob(f"hadoop-client-api-{HADOOP_AWS.rpartition(':')[2]}.jar"))


class There:
    """A pipeline with all that it keeps in the object store, and one in a folder to compare."""

    def __init__(self, store, broker, name):
        self.variables = KEYS | {"AWS_ENDPOINT_URL": f"http://{store}"}
        self.folders = (
            "--tables", f"s3://fleet/{name}/tables", "--checkpoint", f"s3a://fleet/{name}/kept",
        )  # fmt: skip
        self._how = (
            "--replay", "--interval", "1s", "--messages-per-batch", "31", "--kafka", broker.servers,
        )  # fmt: skip

    def arguments(self, *folders, jars=JARS):
        options = [
            word for key, value in jars.items() for word in ("--spark-conf", f"{key}={value}")
        ]
        return ("pipeline", "run", *self._how, *(folders or self.folders), *options)

    def once(self, *folders, jars=JARS):
        """A run to the end of what is stored."""
        words = self.arguments(*folders, jars=jars)
        return headrace(*words, "--once", "--json", timeout=600, **self.variables)

    def killed(self, choose):
        """A run that is killed a little after one of its micro-batches, with its JVM."""
        words = self.arguments()
        with Popen(
            [sys.executable, "-m", "headrace", *words, "--every", "50ms"],
            env=environment(**self.variables), stderr=PIPE, text=True,
        ) as process:  # fmt: skip
            for _ in range(choose.randrange(1, 4)):
                said = process.stderr.readline()
                assert said.startswith("batch"), said
            with suppress(TimeoutExpired):
                process.wait(choose.uniform(0, 1))
            kill_all(process.pid)


@pytest.mark.spark
@pytest.mark.soak
def test_a_checkpoint_there_without_jars_is_one_line_that_names_them(store, broker):
    done = There(store, broker, "jarless").once(jars={})
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert f"--spark-conf spark.jars.packages={HADOOP_AWS}" in line


@pytest.mark.spark
def test_a_checkpoint_that_spark_cannot_open_is_one_line(spark, broker, tmp_path):
    with pytest.raises(PipelineError, match=r"^\[CANNOT_LOAD_CHECKPOINT_FILE_MANAGER") as error:
        run(spark, broker.servers, "gpu-telemetry", tmp_path / "tables", "mock:///kept")
    assert 'No FileSystem for scheme "mock"' in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.timeout(3600)
def test_kills_change_no_row_of_tables_with_their_checkpoint_there(
    spark, store, broker, tmp_path, monkeypatch
):
    choose = seeded()
    there, payloads = There(store, broker, "all"), from_csv(TRACE)
    produce(broker, payloads[:62])
    first = there.once()
    assert first.returncode == 0, first.stderr
    for first_of_piece in range(62, 62 + 3 * 186, 186):
        produce(broker, payloads[first_of_piece : first_of_piece + 186])
        there.killed(choose)
    last = there.once()
    assert last.returncode == 0, last.stderr
    for name, value in there.variables.items():
        monkeypatch.setenv(name, value)
    run(
        spark, broker.servers, "gpu-telemetry", tmp_path / "tables", tmp_path / "checkpoint",
        options=Options(now="event_time", interval_s=1),
    )  # fmt: skip
    assert everything("s3://fleet/all/tables") == everything(tmp_path / "tables")
    kept = Folder.at("s3a://fleet/all/kept")
    assert sorted(map(int, filter(str.isdigit, kept.names("offsets")))) == sorted(
        map(int, filter(str.isdigit, kept.names("commits")))
    )
    for tables_of, kept_of in (("all", "other"), ("other", "all")):
        foreign = there.once(
            "--tables",
            f"s3://fleet/{tables_of}/tables",
            "--checkpoint",
            f"s3://fleet/{kept_of}/kept",
        )
        assert foreign.returncode == 1
        assert "were not written with the checkpoint" in foreign.stderr
