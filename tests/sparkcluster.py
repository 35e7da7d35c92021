"""Spark beyond one process: a standalone cluster, and a Spark Connect server, on loopback."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pyspark

from conftest import STOP_SECONDS, environment, unused_ports, wait_for
from headrace.spark.session import _BY_RENAME

HOME = Path(pyspark.__file__).parent
START_SECONDS = 120


def spark_environment(**extra):
    """Of Spark's own processes: Python, and headrace, as the tests have them."""
    return environment(
        SPARK_HOME=str(HOME),
        SPARK_LOCAL_IP="127.0.0.1",
        PYSPARK_PYTHON=sys.executable,
        SPARK_NO_DAEMONIZE="1",
        **extra,
    )


class Processes:
    """Processes of Spark, each with what it started in a group of its own."""

    def __init__(self, folder):
        self.folder = folder
        self.running = []

    def start(self, name, *command):
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running.append(
                subprocess.Popen(
                    [str(part) for part in command],
                    cwd=self.folder, env=spark_environment(), stdout=log, stderr=log,
                    start_new_session=True,
                )
            )  # fmt: skip

    def are_alive(self):
        logs = [path.read_text() for path in self.folder.glob("*.log")]
        assert all(process.poll() is None for process in self.running), "\n".join(logs)

    def close(self):
        for process in reversed(self.running):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(STOP_SECONDS)


class Cluster(Processes):
    """A master and two workers of one core each."""

    def __init__(self, folder):
        super().__init__(folder)
        port, self.web, _ = unused_ports()
        self.url = f"spark://127.0.0.1:{port}"
        run, package = HOME / "bin" / "spark-class", "org.apache.spark.deploy"
        at = ("--host", "127.0.0.1")
        self.start(
            "master", run, f"{package}.master.Master", *at, "--port", port, "--webui-port", self.web
        )
        for number in (1, 2):
            self.start(
                f"worker-{number}", run, f"{package}.worker.Worker", *at, "--webui-port", 0,
                "--cores", 1, "--memory", "1g", "--work-dir", folder / f"work-{number}", self.url,
            )  # fmt: skip
        wait_for(self._is_ready, START_SECONDS)

    def _is_ready(self):
        self.are_alive()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.web}/json/", timeout=10) as answer:
                return json.load(answer)["aliveworkers"] == 2
        except (OSError, ValueError):  # until its pages are there, it answers with another
            return False


class ConnectServer(Processes):
    """A Spark Connect server of two cores, or one that runs on a cluster."""

    def __init__(self, folder, master="local[2]"):
        super().__init__(folder)
        port, _, _ = unused_ports()
        self.url = f"sc://127.0.0.1:{port}"
        conf = {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": port,
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": 2,
            "spark.sql.python.filterPushdown.enabled": "true",
            "spark.python.unix.domain.socket.enabled": "true",
            "spark.sql.streaming.checkpointFileManagerClass": _BY_RENAME,
            "spark.driver.memory": "1g",
            "spark.executor.memory": "512m",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }
        options = [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]
        self.start(
            "connect", HOME / "bin" / "spark-submit", "--master", master, *options,
            "--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal",
        )  # fmt: skip
        log = folder / "connect.log"
        wait_for(lambda: self.are_alive() or "server started at" in log.read_text(), START_SECONDS)
