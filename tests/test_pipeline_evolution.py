"""What is new shows at once, and what is old stays readable: metrics, labels, columns."""

import pyarrow.parquet as pq
import pytest

from apiserver import RunningApi
from buckets import Tables
from conftest import headrace
from frames import at, metric
from headrace.pipeline import tables
from headrace.pipeline.schemas import SCHEMAS

LATER = {
    "readings": "driver", "quarantine": "driver", "duplicates": "driver",
    "gpu_intervals": "xid_last", "gpu_minutes": "energy_seconds", "gpu_hours": "energy_seconds",
    "jobs": "energy_seconds", "detections": "window_seconds",
}  # fmt: skip
"""A column of each table, as if a later release had brought it."""

UTIL, XID = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_XID_ERRORS"
ENERGY = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
WHO = {
    "pod": "train-0", "namespace": "lab", "container": "main",
    "labels": {"gpu": "0", "driver_version": "580.1"},
}  # fmt: skip


def scrape(second):
    return [
        metric(UTIL, second % 100, second, **WHO),
        metric(XID, 79 if second > 100 else 0, second, **WHO),
        metric(ENERGY, second * 100_000, second, **WHO),
        metric("DCGM_FI_DEV_GPU_TEMP", "N/A", second, **WHO),
        metric(UTIL, second % 100, second, **WHO),
    ]


def scrapes(first, last):
    return [message for second in range(first, last, 10) for message in scrape(second)]


def made_old(root):
    """Writes every file again without the column that its table did not have then."""
    for file in tables.manifest(root).files:
        rows = pq.read_table(root / file.path, partitioning=None)
        pq.write_table(rows.drop_columns([LATER[file.table]]), root / file.path)


def without_later(rows, table):
    """Rows as texts, in an order of their own."""
    return sorted(str(row) for row in rows.drop_columns([LATER[table]]).to_pylist())


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    """Tables of which all files lack a column, and the same rows of files that have it."""
    root = tmp_path_factory.mktemp("old")
    written = Tables(root / "tables", buckets=1)
    for first in range(0, 240, 60):
        written.write(scrapes(first, first + 60))
    written.finish()
    whole = {table: written.arrow(table) for table in SCHEMAS}
    made_old(written.root)
    return written, whole


def test_files_without_a_column_are_null_in_it(old, spark):
    written, whole = old
    assert all(rows.num_rows for rows in whole.values()), "each table is tried"
    for table, rows in whole.items():
        later = LATER[table]
        opened = tables.open_arrow(written.root, table)
        found = opened.to_table()
        assert found.schema == rows.schema
        assert found[later].null_count == rows.num_rows
        assert without_later(found, table) == without_later(rows, table)
        assert opened.to_table(columns=[later])[later].null_count == rows.num_rows
        frame = tables.read(spark, written.root, table)
        assert frame.filter(f"{later} IS NULL").count() == frame.count() == rows.num_rows


def test_the_api_answers_from_files_without_a_column(old):
    written, whole = old
    api = RunningApi(written.root)
    try:
        [gpu] = api.ok("/api/v1/gpus")["gpus"]
        assert gpu["uuid"] == "GPU-1"
        told = api.ok("/api/v1/gpus/GPU-1/telemetry", metric_name=XID)["telemetry"]
        assert [row["value"] for row in told][-1] == 79
        assert len(told) == 24
        windows = api.ok("/api/v1/gpus/GPU-1/telemetry", window="60s", metric_name=XID)
        assert windows["telemetry"]
        found = api.ok("/api/v1/detections")["detections"]
        assert len(found) == whole["detections"].num_rows
        assert api.ok("/api/v1/fleet/summary")["fleet"]
    finally:
        api.close()


@pytest.mark.soak
def test_old_files_and_new_ones_are_merged_and_read_together(tmp_path):
    """Rows of before keep their null; what is made anew of them and of new rows has a value."""
    written = Tables(tmp_path / "tables", buckets=1)
    for first in range(0, 600, 150):
        written.write(scrapes(first, first + 150))
    made_old(written.root)
    old = {file.path for file in tables.manifest(written.root).files}
    for first in range(600, 1500, 150):
        written.write(scrapes(first, first + 150))
    written.write(scrape(30))  # what is in an old file is known: all of it repeats
    written.write([metric(UTIL, 3, 595, **WHO)])  # and a late one changes an old interval
    written.finish()
    assert headrace("pipeline", "compact", "--tables", str(written.root)).returncode == 0
    manifest = tables.manifest(written.root)
    merged = {file.path for file in manifest.of("readings")}
    assert not old & merged, "they were merged with new ones"
    totals = manifest.totals
    assert (totals.rows, totals.quarantined, totals.duplicates) == (150 * 3 + 1, 150, 150 + 5)
    driver = written.arrow("readings")["driver"].to_pylist()
    assert (driver.count(None), driver.count("580.1")) == (60 * 3, 90 * 3 + 1)
    changed = [row for row in written.rows("gpu_intervals") if row["readings"] == 4]
    assert [row["interval_start"] for row in changed] == [written.instant(at(590))]
    assert changed[0]["xid_last"] == 79, "read again of readings, which had their value"
    [job] = written.arrow("jobs").to_pylist()
    assert (job["samples"], job["start"]) == (151, written.instant(at(0)))


def test_a_new_metric_and_a_new_label_show_at_once(tmp_path):
    written = Tables(tmp_path, buckets=1, derives=lambda _before: False)
    written.write([metric(UTIL, 1, 0)])
    sent = metric("DCGM_FI_DEV_NEVER_SEEN", "4.5", 1, labels={"gpu": "0", "rack": "r7"})
    manifest = written.write([sent])
    [row] = [
        row for row in written.arrow("readings").to_pylist() if row["metric"].endswith("NEVER_SEEN")
    ]
    assert (row["value"], row["status"], row["field_id"], row["unit"]) == (
        4.5, "unknown_field", None, "",
    )  # fmt: skip
    assert dict(row["labels"]) == {"gpu": "0", "rack": "r7"}
    assert row["event_time"] == written.instant(at(1))
    assert manifest.totals.rows == 2
