"""Builds a Spark session with the settings that suit headrace.

Owns how the JVM is started and where its noise goes: nothing of Spark reaches the caller's
stdout or stderr. A session built elsewhere works as well; only speed and quiet differ.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from headrace.spark.archive import archive_path, reading, writing
from headrace.spark.errors import SparkSideError
from headrace.spark.java import java_home

if TYPE_CHECKING:
    from collections.abc import Mapping

    from py4j.java_gateway import JavaGateway

FAILURES: Final = (PySparkException, Py4JError, ConnectionError)
"""What Spark raises, the last where its JVM is gone. They ask the JVM for their text, so that is to
be had before it ends."""

_LOG: Final = logging.getLogger(__name__)
_HERE: Final = "127.0.0.1"
_LOG4J: Final = Path(__file__).with_name("log4j2.properties")

_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # Loopback TCP between JVM and Python worker stalls about 60 ms a task.
    "spark.python.unix.domain.socket.enabled": "true",
    # For reads with the option pushFilters.
    "spark.sql.python.filterPushdown.enabled": "true",
    # Readable statistics in the Parquet footers; the default, INT96, has none.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Re-planning between stages costs more than it gains on batches of seconds.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.streaming.metricsEnabled": "false",
}

_BY_RENAME: Final = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
"""Writes files of checkpoints aside and renames them. On a local file system the default manager
starts a `chmod` for each, and on S3 it sends twice the requests (ADR 0077)."""

_SHORT_RUN_JVM: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")
"""Starts in two thirds of the time, and runs longer jobs at about half the speed."""


def session(
    name: str = "headrace",
    *,
    cores: int | None = None,
    memory: str = "1g",
    short_run: bool = False,
    log_file: Path | None = None,
    checkpoint: str | Path = "",
    conf: Mapping[str, str] | None = None,
    classes_to: Path | None = None,
) -> SparkSession:
    """A local session, or one on the cluster that `conf` or `spark-submit` names.

    The one that runs already, where there is one. A program of `spark-submit` has a JVM: `memory`,
    `short_run`, `log_file` and `classes_to` come too late for it, and what was submitted wins over
    our settings.

    Args:
        name: shown in Spark's own tools.
        cores: threads for tasks; default: the cores this process may use.
        memory: heap of the JVM, as Java writes it.
        short_run: start fast rather than run fast; for runs of a minute or two.
        log_file: takes all output of the JVM and its Python workers; default: a temporary file.
        checkpoint: where its queries have their checkpoints, if not in local folders: a URI such
            as `s3a://bucket/path`. The address of an object store and its region are then those
            that its own tools take, `AWS_ENDPOINT_URL` and `AWS_REGION`.
        conf: further Spark settings; they win over ours.
        classes_to: where the JVM writes its class archive when it ends, which takes some ten
            seconds. Default: it uses the one that `headrace pipeline prepare` made, if any.

    Raises:
        JavaMissingError: no Java 17 or newer is found.
        SparkSideError: the JVM did not start; the message names its log.
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    # Without this, workers run whatever `python3` PATH has.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    cores, conf = cores or core_count(), conf or {}
    ours = _SETTINGS | checkpoint_settings(str(checkpoint), os.environ)
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        SparkContext._ensure_initialized()  # noqa: SLF001 - as SparkContext does, but before it
        submitted = dict(SparkConf().getAll())
        return _begin(SparkConf().setAll([*settings(name, cores, ours, conf, submitted).items()]))
    told = settings(name, cores, ours, conf)
    home = java_home()
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)
    if "spark.driver.host" in told:
        os.environ.setdefault("SPARK_LOCAL_IP", told["spark.driver.host"])
    jvm = [f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}"]
    jvm += reading(archive_path()) if classes_to is None else writing(classes_to)
    jvm += _SHORT_RUN_JVM if short_run else ()
    started = {"spark.driver.memory": memory, "spark.driver.extraJavaOptions": " ".join(jvm)} | told
    options = SparkConf(loadDefaults=False).setAll([*started.items()])
    return _begin(options, _launch(options, log_file))


def core_count() -> int:
    """Cores that this process may use, as `taskset` and containers grant them."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def checkpoint_settings(location: str, environment: Mapping[str, str]) -> dict[str, str]:
    """What Spark needs to be told to keep a checkpoint there."""
    scheme = location.partition("://")[0] if "://" in location else "file"
    if scheme not in {"file", "s3a"}:
        return {}
    told = {"spark.sql.streaming.checkpointFileManagerClass": _BY_RENAME}
    if scheme == "file":
        return told
    # Keys and address Spark takes from the environment by itself.
    if region := environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION"):
        told["spark.hadoop.fs.s3a.endpoint.region"] = region
    if environment.get("AWS_ENDPOINT_URL"):
        # Few stores but Amazon's have a host for each bucket. Arrow does the same.
        told["spark.hadoop.fs.s3a.path.style.access"] = "true"
    return told


def settings(
    name: str,
    cores: int,
    ours: Mapping[str, str],
    conf: Mapping[str, str],
    submitted: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """What Spark is told: `conf` wins over what was `submitted`, and that over ours.

    Args:
        name: of the application.
        cores: threads for tasks, of a local session.
        ours: what suits headrace anywhere.
        conf: what the caller asks for.
        submitted: what `spark-submit` was told.
    """
    given = {**(submitted or {}), **conf}
    told = {
        "spark.app.name": name,
        "spark.master": f"local[{cores}]",
        "spark.sql.shuffle.partitions": str(cores),
        **ours,
    } | given
    if _is_here(told["spark.master"]):
        # Elsewhere Spark tells executors the address of this host, by which they find the driver.
        told = {"spark.driver.bindAddress": _HERE, "spark.driver.host": _HERE} | told
    return told


def _is_here(master: str) -> bool:
    """Whether executors are on this host: in this process, or of a master on loopback."""
    return master.startswith("local") or urlsplit(master).hostname in {_HERE, "localhost"}


def _launch(options: SparkConf, log_file: Path | None) -> JavaGateway:
    """Starts the JVM with its output, and that of the workers it starts, in `log_file`."""
    if log_file is None:
        handle, path = tempfile.mkstemp(prefix="headrace-spark-", suffix=".log")
        os.close(handle)
        log_file = Path(path)
    with log_file.open("ab") as log:
        try:
            # In a session of its own: what signals the caller's whole group, as a terminal or
            # `timeout` do, must not end Spark before the caller has ended its queries. Without
            # the caller the JVM ends by itself.
            how = {"stdout": log, "stderr": log, "start_new_session": True}
            return launch_gateway(options, popen_kwargs=how)  # type: ignore[no-untyped-call]
        except PySparkRuntimeError as error:
            raise SparkSideError(f"Spark did not start; its log is {log_file}") from error


def _begin(options: SparkConf, gateway: JavaGateway | None = None) -> SparkSession:
    theirs = signal.getsignal(signal.SIGINT)
    context = SparkContext(conf=options, gateway=gateway)
    # It prints tracebacks where the JVM is gone, which whoever calls it is told by what it raises.
    accumulators: Any = context._accumulatorServer  # noqa: SLF001 - Spark has no door to it
    accumulators.handle_error = lambda _request, address: _LOG.debug("%s hung up", address)
    # Spark takes SIGINT for itself, also from a caller who heeds it.
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and theirs not in {None, signal.default_int_handler}:
        signal.signal(signal.SIGINT, theirs)
    return SparkSession(context)


def close(spark: SparkSession) -> None:
    """Stops the queries of a session that `session` started, then it, then its JVM.

    On return no process of it is left. Spark alone would leave the JVM to end by itself once
    this process has. The JVM of `spark-submit` is not ours to end.
    """
    gateway: Any = SparkContext._gateway  # noqa: SLF001 - Spark has no door to its JVM's process
    for query in spark.streams.active:
        query.stop()
    spark.stop()
    if gateway is not None and gateway.proc is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()  # the JVM reads it, and ends with it
        gateway.proc.wait()
        SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
