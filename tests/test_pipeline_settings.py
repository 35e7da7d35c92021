"""`[pipeline]`: a file says all that `headrace pipeline` is told, and options win over it."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

from buckets import Tables
from conftest import environment, headrace, wait_for
from frames import at, metric
from headrace.config import Config, load
from headrace.native import build_batch
from headrace.pipeline import Options, tables
from kafkaraw import RawConnection

FILE = """
[pipeline]
kafka = "{kafka}"
mqtt = "{mqtt}"
stream = "fleet"
tables = "kept/tables"
checkpoint = "kept/checkpoint"
every = "30d"
interval = "30s"
watermark = "5s"
staleness = "20s"
replay = true
messages_per_batch = 2
buckets = 3
energy_price = 0.5
format = "delta"
prices = {{ default = 36 }}

[pipeline.rules.xid]
clear_s = 1234
"""

POWER = "DCGM_FI_DEV_POWER_USAGE"
MESSAGES = [
    metric(POWER, 100, 0),
    metric("DCGM_FI_DEV_XID_ERRORS", 0, 0),
    metric(POWER, 100, 40),
    metric("DCGM_FI_DEV_XID_ERRORS", 79, 40),
    metric(POWER, 100, 10),
    metric(POWER, 100, 9_000),  # later than its own collection
    metric("DCGM_FI_DEV_XID_ERRORS", 48, 9_000),
]


def test_defaults_are_those_of_the_pipeline():
    held, options = Config().pipeline, Options()
    assert held.interval / 1000 == options.interval_s
    assert held.watermark / 1000 == options.watermark_s
    assert held.staleness is options.staleness_s is None
    assert held.messages_per_batch == options.messages_per_batch
    assert held.fail_on_data_loss == options.fail_on_data_loss
    assert held.energy_price == options.energy_price
    assert (held.prices, held.rules) == (options.prices, options.rules) == ({}, {})


def produce(node, payloads):
    with RawConnection(node) as raw:
        batch = build_batch([(b"k", payload, [], 1_900_000_000_000) for payload in payloads])
        assert raw.produce("fleet", batch).error_code == 0


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.setting("pipeline.kafka", "pipeline.stream", "pipeline.tables", "pipeline.checkpoint")
@pytest.mark.setting("pipeline.every", "pipeline.interval", "pipeline.watermark")
@pytest.mark.setting("pipeline.replay", "pipeline.messages_per_batch", "pipeline.buckets")
@pytest.mark.setting("pipeline.prices", "pipeline.energy_price", "pipeline.rules")
@pytest.mark.setting("pipeline.mqtt", "pipeline.format", "pipeline.staleness")
def test_a_file_alone_says_what_a_pipeline_does(start_node, tmp_path):
    node = start_node()
    node.create_stream("fleet")
    produce(node, MESSAGES)
    file = tmp_path / "headrace.toml"
    file.write_text(FILE.format(kafka=node.servers, mqtt=f"127.0.0.1:{node.mqtt}"))
    command = [sys.executable, "-m", "headrace", "pipeline", "run", "--config", str(file)]
    begun = subprocess.Popen(
        [*command, "--tables", "first/tables", "--checkpoint", "first/checkpoint"],
        env=environment(), cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
        text=True,
    )  # fmt: skip
    try:
        assert "batch 0" in begun.stderr.readline()
        # The second, begun later, has come to its end before the first looks again.
        ran = subprocess.run(
            [*command, "--once", "--json"],
            env=environment(), cwd=tmp_path, capture_output=True, text=True, timeout=120,
            check=False,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        assert tables.manifest(tmp_path / "first/tables").batch == 0
    finally:
        begun.send_signal(signal.SIGINT)
        _, told = begun.communicate(timeout=60)
    assert (begun.returncode, told.count("stopping;"), "Traceback" in told) == (0, 1, False), told
    said = json.loads(ran.stdout)
    assert (said["rows"], said["quarantined"], said["batch"]) == (7, 0, 3), "and none is future"
    kept = tmp_path / "kept/tables"
    held = tables.manifest(kept)
    assert (held.buckets, held.interval_seconds) == (3, 30.0)
    readings = tables.open_arrow(kept, "readings").to_table().to_pylist()
    assert DeltaTable(str(kept / "readings")).to_pyarrow_table().num_rows == len(readings) == 7
    assert [row["raw"] for row in readings if row["late"]] == ["100"], "30 s behind the newest"
    (hour,) = [
        row
        for row in tables.open_arrow(kept, "gpu_hours").to_table().to_pylist()
        if row["start"] == Tables.instant(at(0))
    ]
    assert hour["seconds"] == 10, "the next scrape came 30 s later"
    assert hour["gpu_cost"] == pytest.approx(hour["seconds"] / 3600 * 36)
    assert hour["energy_cost"] == pytest.approx(hour["energy_joules"] / 3.6e6 * 0.5)
    found = tables.open_arrow(kept, "detections").to_table().to_pylist()
    (ended, xid) = [row for row in found if row["kind"] == "xid"]
    assert dict(ended["evidence"])["rule.clear_s"] == 1234
    assert xid["end"] is None
    status, held = node.call("GET", "/api/v1/retained?filter=alerts/%23")
    assert status == 200
    assert [message["topic"] for message in held["messages"]] == ["alerts/xid/node-1/GPU-1"]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.setting("pipeline.master", "pipeline.memory", "pipeline.spark_conf")
@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("MASTER", "nowhere", "Master must"),
        ("MEMORY", "1k", "heap"),
        ("SPARK_CONF", "spark.driver.memory=1k", "heap"),
    ],
)
def test_spark_and_its_memory_are_settings(broker, tmp_path, variable, value, says):
    folders = ("--tables", str(tmp_path / "t"), "--checkpoint", str(tmp_path / "c"))
    folders += ("--kafka", broker.servers)
    extra = {f"HEADRACE_PIPELINE__{variable}": value}
    ran = headrace("pipeline", "run", *folders, "--once", timeout=120, **extra)
    assert ran.returncode == 1
    log = Path(ran.stderr.strip().rpartition("its log is ")[2])
    assert says in log.read_text(), "as Spark took it"
    log.unlink()


# --- what wins -----------------------------------------------------------------------------------


def test_status_finds_its_tables_in_the_file_or_a_variable(tmp_path):
    Tables(tmp_path / "a").write([metric(POWER, 100, 0)])
    Tables(tmp_path / "b").write([metric(POWER, 100, 0), metric(POWER, 100, 10)])
    file = tmp_path / "headrace.toml"
    file.write_text(f'[pipeline]\ntables = "{tmp_path / "a"}"\n')

    def rows(*args, **extra):
        said = headrace("pipeline", "status", "--json", *args, **extra)
        assert said.returncode == 0, said.stderr
        return json.loads(said.stdout)["tables"]["readings"]["rows"]

    variable = {"HEADRACE_PIPELINE__TABLES": str(tmp_path / "b")}
    assert rows("--config", str(file)) == 1
    assert rows("--config", str(file), **variable) == 2
    assert rows("--config", str(file), "--tables", str(tmp_path / "a"), **variable) == 1


def test_prices_and_rules_are_tables_or_texts(tmp_path):
    file = tmp_path / "headrace.toml"
    file.write_text(
        '[pipeline.prices]\n"NVIDIA H200" = 3.9\ndefault = 2\n'
        "[pipeline.rules.xid]\nclear_s = 3\n[pipeline.rules.ecc]\nsbe = 4\n"
    )
    held = load(file).pipeline
    assert held.prices == {"NVIDIA H200": 3.9, "default": 2.0}
    assert held.rules == {"xid": {"clear_s": 3.0}, "ecc": {"sbe": 4.0}}
    variables = {
        "HEADRACE_PIPELINE__PRICES": "NVIDIA H200=3.9, default=2",
        "HEADRACE_PIPELINE__RULES": "xid.clear_s=3,ecc.sbe=4",
    }
    assert load(None, variables).pipeline == held


def test_settings_of_spark_are_a_table_or_texts(tmp_path):
    file = tmp_path / "headrace.toml"
    held = {"spark.jars.packages": "a:b:1,c:d:2", "spark.ui.enabled": "true", "spark.x.y": "3=4"}
    texts = [
        """[pipeline.spark_conf]
        "spark.jars.packages" = "a:b:1,c:d:2"
        "spark.ui.enabled" = true
        "spark.x.y" = "3=4"
        """,
        """[pipeline.spark_conf.spark]
        jars.packages = "a:b:1,c:d:2"
        ui.enabled = true
        x.y = "3=4"
        """,
        """[pipeline]
        spark_conf = ["spark.jars.packages=a:b:1,c:d:2", "spark.ui.enabled=true", "spark.x.y=3=4"]
        """,
    ]
    for text in texts:
        file.write_text(text)
        assert load(file).pipeline.spark_conf == held
        shown = headrace("config", "show", "--config", str(file))
        file.write_text(shown.stdout)
        assert load(file).pipeline.spark_conf == held
    variable = "spark.jars.packages=a:b:1,c:d:2, spark.ui.enabled=true,spark.x.y=3=4"
    assert load(None, {"HEADRACE_PIPELINE__SPARK_CONF": variable}).pipeline.spark_conf == held
    assert load(None, {"HEADRACE_PIPELINE__SPARK_CONF": ""}).pipeline.spark_conf == {}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("stram = 'x'", "[pipeline] stram: unknown; did you mean 'stream'?"),
        ("interval = 10", "[pipeline] interval: must be a duration with its unit"),
        ("memory = '2 GB'", "[pipeline] memory: must be a size as Java writes it"),
        ("format = 'iceberg'", "[pipeline] format: input should be 'parquet' or"),
        ("energy_price = -1", "[pipeline] energy_price: must be a price"),
        ("prices = {a = 'b'}", "[pipeline] prices: must be MODEL=PRICE"),
        ("spark_conf = {memory = '2g'}", "[pipeline] spark_conf: must be KEY=VALUE with a key of"),
        ("spark_conf = {spark = {jars = ['a']}}", "must be KEY=VALUE with a key of Spark's"),
        ("spark_conf = ['spark.jars']", "must be KEY=VALUE with a key of Spark's"),
        ("rules = {xid = 3}", "[pipeline] rules: must be KIND.SETTING=NUMBER"),
        ("rules = {heat = {window_s = 3}}", "no rule 'heat'; there are"),
        ("stream = 'x'", "Missing option '--tables'"),
    ],
)
def test_a_file_that_is_wrong_is_named(tmp_path, text, says):
    file = tmp_path / "headrace.toml"
    folders = "" if "Missing" in says else f'tables = "{tmp_path}/t"\ncheckpoint = "{tmp_path}/c"\n'
    file.write_text(f"[pipeline]\n{folders}{text}\n")
    ran = headrace("pipeline", "run", "--once", "--config", str(file))
    assert ran.returncode == 2, ran.stderr
    assert says in ran.stderr
    assert len(ran.stderr.strip().splitlines()) <= 3
    assert sorted(tmp_path.iterdir()) == [file]


def test_a_node_takes_the_file_of_its_pipeline_and_reads_over_that_table(start_node, tmp_path):
    file = tmp_path / "headrace.toml"
    file.write_text('[pipeline]\ninterval = "30s"\n')
    node = start_node("--config", str(file))
    file.write_text('[pipeline]\ninterval = "60s"\n')
    assert node.call("POST", "/api/v1/config/reload")[1] == {"changed": [], "restart": []}
    wait_for(lambda: node.call("GET", "/ready")[0] == 200)
