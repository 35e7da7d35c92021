"""A local session: the Java it needs, and the noise it keeps to itself."""

import json
import subprocess
import sys

import pytest

from conftest import environment
from headrace.spark.errors import JavaMissingError
from headrace.spark.java import java_home
from headrace.spark.session import _BY_RENAME, checkpoint_settings, settings
from sparkcluster import HOME, spark_environment


@pytest.fixture
def java(tmp_path, monkeypatch):
    """Makes a home of Java of some version and points JAVA_HOME to it."""

    def make(version, *, release=True):
        home = tmp_path / "java"
        (home / "bin").mkdir(parents=True)
        binary = home / "bin" / "java"
        binary.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
        binary.chmod(0o755)
        if release:
            (home / "release").write_text(f'IMPLEMENTOR="X"\nJAVA_VERSION="{version}"\n')
        monkeypatch.setenv("JAVA_HOME", str(home))
        return home

    return make


@pytest.mark.parametrize("version", ["17.0.15", "21", "25.0.1"])
@pytest.mark.parametrize("release", [True, False])
def test_java_17_and_newer_serves(java, version, release):
    home = java(version, release=release)
    assert java_home() == home


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.2"])
@pytest.mark.parametrize("release", [True, False])
def test_an_older_java_is_named_with_the_remedy(java, version, release):
    java(version, release=release)
    with pytest.raises(JavaMissingError, match=r"is (8|11); install Java 17 or newer") as error:
        java_home()
    assert "\n" not in str(error.value)


def test_a_missing_java_is_one_line_with_the_remedy(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaMissingError, match="holds no bin/java; install Java 17"):
        java_home()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaMissingError, match="no java on PATH; install Java 17"):
        java_home()


MANAGER = "spark.sql.streaming.checkpointFileManagerClass"


@pytest.mark.parametrize(
    ("checkpoint", "environment", "settings"),
    [
        ("", {"AWS_REGION": "eu-north-1"}, {MANAGER: _BY_RENAME}),
        ("kept/here", {}, {MANAGER: _BY_RENAME}),
        ("file:///kept/here", {}, {MANAGER: _BY_RENAME}),
        ("gs://bucket/here", {"AWS_REGION": "eu-north-1"}, {}),
        ("s3a://bucket/here", {}, {MANAGER: _BY_RENAME}),
        (
            "s3a://bucket/here",
            {"AWS_REGION": "eu-north-1", "AWS_DEFAULT_REGION": "us-east-1"},
            {MANAGER: _BY_RENAME, "spark.hadoop.fs.s3a.endpoint.region": "eu-north-1"},
        ),
        (
            "s3a://bucket/here",
            {"AWS_ENDPOINT_URL": "http://minio:9000"},
            {MANAGER: _BY_RENAME, "spark.hadoop.fs.s3a.path.style.access": "true"},
        ),
    ],
)
def test_a_checkpoint_is_kept_as_its_place_wants_it(checkpoint, environment, settings):
    assert checkpoint_settings(checkpoint, environment) == settings


LOOPBACK = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}


@pytest.mark.parametrize(
    ("master", "is_here"),
    [
        ("local[3]", True),
        ("local-cluster[1,2,512]", True),
        ("spark://127.0.0.1:7077", True),
        ("spark://localhost:7077", True),
        ("spark://master.example:7077", False),
        ("spark://one:7077,two:7077", False),
        ("yarn", False),
        ("k8s://https://10.0.0.1:6443", False),
    ],
)
@pytest.mark.parametrize("by", ["conf", "submit"])
def test_a_driver_is_on_loopback_only_where_its_executors_are(master, is_here, by):
    given = {"spark.master": master}
    told = settings("x", 2, {}, *([given] if by == "conf" else [{}, given]))
    assert told["spark.master"] == master
    assert {name: told[name] for name in LOOPBACK if name in told} == (LOOPBACK if is_here else {})


def test_settings_are_those_of_the_caller_then_of_the_submission_then_ours():
    ours = {"a": "ours", "b": "ours", "c": "ours"}
    told = settings("x", 2, ours, {"a": "conf"}, {"a": "submitted", "b": "submitted"})
    assert (told["a"], told["b"], told["c"]) == ("conf", "submitted", "ours")
    assert settings("x", 2, {}, {}) == {
        "spark.app.name": "x", "spark.master": "local[2]", "spark.sql.shuffle.partitions": "2",
        **LOOPBACK,
    }  # fmt: skip
    assert (
        settings("x", 2, {}, {"spark.driver.host": "10.0.0.1"})["spark.driver.host"] == "10.0.0.1"
    )


SUBMITTED = """
import json
from headrace.spark import close, session

found = []
for _ in range(2):
    spark = session("mine", memory="7g")
    told = spark.sparkContext.getConf()
    names = ("master", "sql.shuffle.partitions", "sql.session.timeZone", "driver.memory")
    found.append([spark.range(5).count(), *(told.get("spark." + name) for name in names)])
    close(spark)
print(json.dumps(found))
"""


@pytest.mark.soak
@pytest.mark.spark
def test_a_program_of_spark_submit_has_what_was_submitted(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(SUBMITTED)
    ran = subprocess.run(
        [HOME / "bin" / "spark-submit", "--master", "local[2]", "--driver-memory", "600m",
         "--conf", "spark.sql.shuffle.partitions=3", program],
        capture_output=True, check=False, env=spark_environment(), text=True, timeout=250,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == [[5, "local[2]", "3", "UTC", "600m"]] * 2


SCRIPT = """
import sys
from pathlib import Path
from headrace.spark import session
spark = session(cores=1, short_run=True, log_file=Path(sys.argv[1]))
print(spark.range(3).rdd.map(lambda row: row.id).sum())
try:
    spark.range(1).selectExpr("raise_error('planted')").collect()
except Exception:
    print("failed")
spark.stop()
"""


@pytest.mark.spark
def test_spark_speaks_only_to_its_log(tmp_path):
    log = tmp_path / "log"
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(log)],
        capture_output=True, check=True, env=environment(), text=True, timeout=250,
    )  # fmt: skip
    assert ran.stdout == "3\nfailed\n"
    assert ran.stderr == ""
    assert "planted" in log.read_text()
