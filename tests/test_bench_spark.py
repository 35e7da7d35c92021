"""`headrace bench spark`: what it says at a size that shows nothing of speed, and of bad input."""

import json

import pytest

from conftest import headrace
from headrace.bench.spark import MEASURES, Load, Row

pytestmark = [pytest.mark.spark, pytest.mark.slow]

TINY = [
    "--records", "3000", "--readings", "6000", "--partitions", "2", "--rounds", "1",
    "--messages-per-batch", "60", "--batches", "12", "--rate", "500", "--warm-up", "100ms",
    "--duration", "2s", "--memory", "1g",
]  # fmt: skip


def test_a_row_is_compared_where_both_figures_are_there():
    row = Row("source", "rows/s", 300.0, "Parquet", 200.0)
    assert row.ratio == 1.5
    assert Row("source", "rows/s", None, "Parquet", 200.0).ratio is None
    assert Row("source", "rows/s", 300.0, "Parquet", None).ratio is None


def test_a_record_is_as_old_as_the_first_version_that_holds_it():
    from headrace.bench.spark.command import Seen  # noqa: PLC0415 - these load Spark
    from headrace.bench.spark.live import STREAM, committed_at  # noqa: PLC0415
    from headrace.pipeline.manifest import Manifest  # noqa: PLC0415

    ends = [{"0": 3}, {"0": 3, "1": 1}, {"0": 5, "1": 1}]
    seen = [Seen(10.0 + n, Manifest(offsets={STREAM: each})) for n, each in enumerate(ends)]
    at = committed_at(seen)
    assert [at(0, offset) for offset in (0, 2, 3, 4)] == [10.0, 10.0, 12.0, 12.0]
    assert at(1, 0) == 11.0


def rows_of(tmp_path, *args):
    """What it says; it leaves nothing behind."""
    ran = headrace("bench", "spark", *args, *TINY, "--json", timeout=280, TMPDIR=str(tmp_path))
    assert ran.returncode == 0, ran.stderr
    assert list(tmp_path.glob("headrace-bench-*")) == []
    rows = json.loads(ran.stdout)["rows"]
    assert all(row["figure"] > 0 for row in rows), rows
    return rows


def are_compared(rows):
    return all(
        row["ratio"] == pytest.approx(row["figure"] / row["baseline_figure"]) for row in rows
    )


@pytest.mark.soak
def test_a_source_is_measured_also_where_sparks_own_is_not_to_be_had(tmp_path):
    package = "headrace.example:no-such-source:1"
    rows = rows_of(tmp_path, "source", "--kafka-package", package)
    names = ["source, raw"] * 2 + ["source, payload=dcgm"] * 2
    assert [row["name"] for row in rows] == names
    assert [row["target"] for row in rows] == [800_000, 800_000, None, None]
    assert are_compared(rows[::2])
    for row in rows[1::2]:
        assert "Kafka" in row["baseline"]
        assert row["baseline_figure"] is row["ratio"] is None
        assert row["note"].startswith(f"{package} is not to be had: ")


@pytest.mark.soak
def test_micro_batches_and_a_pipeline_that_catches_up_are_measured(tmp_path):
    rows = rows_of(tmp_path, "batch", "pipeline")
    assert [(row["name"], row["target"]) for row in rows] == [
        ("micro-batch of 2 messages, readings", 150),
        ("micro-batch of 2 messages, and intervals, detections", None),
        ("pipeline, catching up", 33_000),
    ]
    assert are_compared(rows)


@pytest.mark.soak
def test_a_cold_start_and_the_age_of_live_readings_are_measured(tmp_path):
    rows = rows_of(tmp_path, "cold", "age")
    assert [(row["name"], row["target"]) for row in rows] == [
        ("cold start to first row", 12),
        ("age in readings, p50", 1000),
        ("age in readings, p99", None),
    ]
    assert are_compared(rows)
    assert rows[1]["figure"] <= rows[2]["figure"]


def test_what_cannot_be_run_is_said_in_a_line():
    for args, words in [
        (["--payload", "15B"], "16 to 1,000,000 bytes"),
        (["--rate", "1000000"], "must not exceed 200,000"),
        (["--kafka-jar", "/nowhere.jar"], "/nowhere.jar"),
        (["sink"], ", ".join(f"'{measure}'" for measure in MEASURES)),
    ]:
        ran = headrace("bench", "spark", *args, timeout=60)
        assert ran.returncode == 2, ran.stderr
        assert words in ran.stderr
        assert len(ran.stderr.splitlines()) <= 3
        assert "Traceback" not in ran.stderr


def test_defaults_of_the_command_are_those_of_a_load():
    from headrace.cli.bench.spark import spark  # noqa: PLC0415

    context = spark.make_context("spark", [])
    given = {k: v for k, v in context.params.items() if k not in {"measures", "as_json", "html"}}
    assert Load(**given) == Load()
