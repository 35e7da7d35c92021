"""The report, the chart and the audit of a run, on tables made by hand."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from headrace.pipeline import manifest as manifests
from headrace.pipeline import report, tables
from headrace.pipeline.audit import Account, Ends
from headrace.pipeline.chart import save_chart
from headrace.pipeline.manifest import Manifest, TableFile
from headrace.pipeline.schemas import DUPLICATES, QUARANTINE, READINGS, SCHEMAS

START = datetime(2030, 1, 1, tzinfo=UTC)
PNG = b"\x89PNG\r\n"


def interval(second, pod="", **values):
    start = START + timedelta(seconds=second)
    row = dict.fromkeys(report.INTERVAL_COLUMNS) | {
        "uuid": "GPU-1", "gpu_i_id": "", "host": "h", "device": "nvidia0", "model": "H200",
        "pod": pod, "interval_start": start, "interval_end": start + timedelta(seconds=1),
        "samples": 1, "profiling_gaps": 0, "seconds": 1.0,
    }  # fmt: skip
    return row | values


def table(rows):
    full = to_arrow_schema(SCHEMAS["gpu_intervals"], timezone="UTC")
    schema = pa.schema([full.field(name) for name in report.INTERVAL_COLUMNS])
    return pa.Table.from_pylist(rows, schema)


# --- loads -----------------------------------------------------------------------------------


def test_a_load_is_a_gpu_and_a_pod_in_the_order_of_their_starts():
    rows = [
        interval(0, power_watts_mean=100.0, energy_joules=None, seconds=None),
        interval(1, "b", power_watts_mean=600.0, energy_joules=600.0),
        interval(2, "b", power_watts_mean=500.0, energy_joules=500.0),
        interval(3, "a", power_watts_mean=300.0, energy_joules=300.0),
        interval(4, "b", power_watts_mean=None, energy_joules=None),
    ]
    found = report.loads(table(rows))
    assert [(load.pod, load.seconds, load.scrapes) for load in found] == [
        ("", 0.0, 1),
        ("b", 3.0, 3),
        ("a", 1.0, 1),
    ]
    assert [load.mean_power_watts for load in found] == [100.0, 550.0, 300.0]
    assert [load.energy_joules for load in found] == [None, 1100.0, 300.0]


def test_means_weigh_intervals_by_their_scrapes():
    rows = [
        interval(0, samples=3, gpu_util_percent_mean=100.0),
        interval(1, samples=1, gpu_util_percent_mean=0.0),
    ]
    [load] = report.loads(table(rows))
    assert load.mean_gpu_util_percent == 75.0


def test_scrapes_without_a_valid_profiling_sample_are_in_no_mean():
    rows = [
        interval(0, samples=2, profiling_gaps=1, sm_active_ratio_mean=0.8),
        interval(1, samples=1, profiling_gaps=0, sm_active_ratio_mean=0.2),
        interval(2, samples=4, profiling_gaps=4, sm_active_ratio_mean=None),
    ]
    [load] = report.loads(table(rows))
    assert load.mean_sm_active_ratio == pytest.approx(0.5)
    assert load.profiling_gaps == 5
    [none] = report.loads(table(rows[2:]))
    assert none.mean_sm_active_ratio is None


def test_slices_and_gpus_are_apart():
    rows = [interval(0), interval(0, gpu_i_id="3"), interval(0, uuid="GPU-2", device="nvidia1")]
    assert [(load.uuid, load.gpu_i_id) for load in report.loads(table(rows))] == [
        ("GPU-1", ""),
        ("GPU-1", "3"),
        ("GPU-2", ""),
    ]


def test_without_intervals_there_are_no_loads():
    assert report.loads(table([])) == []


def test_quarantine_is_told_by_reason_and_metric():
    rows = [
        {"reason": "blank", "metric": "A", "raw": "9"},
        {"reason": "missing", "metric": None, "raw": None},
        {"reason": "blank", "metric": "A", "raw": "8"},
        {"reason": "blank", "metric": "B", "raw": "7"},
    ]
    schema = pa.schema([(name, pa.string()) for name in ("reason", "metric", "raw")])
    found = report.refused(pa.Table.from_pylist(rows, schema))
    assert [(each.reason, each.metric, each.readings) for each in found] == [
        ("blank", "A", 2),
        ("blank", "B", 1),
        ("missing", "", 1),
    ]
    assert found[0].example == "8"
    assert report.totals_by_reason(found) == {"blank": 3, "missing": 1}


# --- the chart -----------------------------------------------------------------------------------


def test_a_capture_is_drawn_over_time(tmp_path):
    rows = [
        interval(
            second,
            "load" if 5 < second < 15 else "",
            power_watts_mean=100.0 + second,
            gpu_util_percent_mean=50.0,
            sm_active_ratio_mean=None if second == 7 else 0.5,
        )
        for second in range(20)
    ]
    assert save_chart(table(rows), tmp_path / "chart.png")
    assert (tmp_path / "chart.png").read_bytes().startswith(PNG)


def test_a_snapshot_is_drawn_as_a_fleet(tmp_path):
    rows = [
        interval(0, uuid=f"GPU-{n}", power_watts_mean=70.0 * n, gpu_util_percent_mean=5.0 * n)
        for n in range(1, 20)
    ]
    assert save_chart(table(rows), tmp_path / "chart.png")
    assert (tmp_path / "chart.png").read_bytes().startswith(PNG)


@pytest.mark.parametrize("rows", [[], [interval(0)], [interval(s) for s in range(9)]])
def test_nothing_to_draw_is_no_file(tmp_path, rows):
    assert not save_chart(table(rows), tmp_path / "chart.png")
    assert not list(tmp_path.iterdir())


# --- the audit -----------------------------------------------------------------------------------


def tables_of(root, **rows):
    """Tables with the given `(partition, offset, sequence)` rows, committed as one version."""
    files = []
    for name in (READINGS, QUARANTINE, DUPLICATES):
        found = [
            {
                "topic": "s", "partition": partition, "offset": offset,
                "source": "me", "source_epoch": 7, "source_sequence": sequence,
            }
            for partition, offset, sequence in rows.get(name, [])
        ]  # fmt: skip
        if found:
            schema = to_arrow_schema(SCHEMAS[name], timezone="UTC")
            pq.write_table(pa.Table.from_pylist(found, schema), root / f"{name}.parquet")
            files.append(TableFile(name, f"{name}.parquet", len(found), 1, 0, 1))
    manifests.commit(
        root,
        Manifest().next(batch=0, query="q", buckets=1, interval_seconds=1.0).with_files(files, []),
    )
    return Ends(root)


def test_an_undisturbed_run_holds(tmp_path):
    ends = tables_of(tmp_path, readings=[(0, 0, 1), (1, 0, 2)], quarantine=[(0, 1, 3)])
    account = ends.account(3, 3)
    assert account.holds
    assert str(account) == (
        "published 3 + resent 0 = stored 3 = rows 2 + quarantined 1 + duplicates 0"
    )
    assert ends.messages == 3
    assert ends.missing("me", 7, {1: 1, 2: 1, 3: 1}) == []


def test_a_stored_repeat_is_resent_and_a_repeated_reading_is_not(tmp_path):
    ends = tables_of(
        tmp_path, readings=[(0, 0, 1), (0, 1, 2)], duplicates=[(0, 2, 2), (0, 3, 3)]
    )  # fmt: skip
    assert ends.resent() == 1
    assert ends.account(3, 4).holds
    assert ends.missing("me", 7, {1: 1, 2: 1, 3: 1}) == []


def test_a_resent_wide_message_counts_its_readings(tmp_path):
    once, again = [(0, 0, 1)] * 31, [(0, 1, 1)] * 31
    ends = tables_of(tmp_path, readings=once, duplicates=again)
    assert (ends.messages, ends.resent()) == (2, 31)
    assert ends.account(31, 62).holds
    assert ends.missing("me", 7, {1: 31}) == []


def test_what_is_lost_halved_or_somebody_elses_is_missing(tmp_path):
    ends = tables_of(tmp_path, readings=[(0, 0, 1), (0, 1, 2), (0, 1, 2)])
    assert ends.missing("me", 7, {1: 1, 2: 3, 4: 1}) == [2, 4]
    assert ends.missing("me", 8, {1: 1}) == [1]
    assert ends.missing("you", 7, {1: 1}) == [1]


def test_empty_tables_are_all_zeros(tmp_path):
    tables.begin(tmp_path)
    ends = Ends(tmp_path)
    assert ends.account(0, 0) == Account(0, 0, 0, 0, 0, 0)
    assert ends.account(0, 0).holds
    assert ends.messages == 0


@pytest.mark.parametrize(
    "numbers",
    [(2, 0, 1, 1, 0, 0), (1, 0, 2, 1, 1, 0), (1, 0, 1, 1, 1, 0), (1, 1, 1, 1, 0, 0)],
)
def test_a_loss_an_invention_or_a_double_breaks_the_line(numbers):
    assert not Account(*numbers).holds
