"""A local session: the Java it needs, and the noise it keeps to itself."""

import subprocess
import sys

import pytest

from conftest import environment
from headrace.spark.errors import JavaMissingError
from headrace.spark.java import java_home
from headrace.spark.session import _BY_RENAME, checkpoint_settings


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
