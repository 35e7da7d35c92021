"""Rows of `gpu_intervals`: means, gaps, counters, energy, context, and late data."""

import csv
import gzip
from datetime import datetime
from itertools import pairwise
from math import isnan
from pathlib import Path

import pyarrow.compute as pc
import pytest

from frames import at, from_csv, payload, readings, table
from headrace.job_limits import PIPELINE_SPANS_MAX
from headrace.pipeline import manifest as manifests
from headrace.pipeline import tables
from headrace.pipeline.batch import finish, write
from headrace.pipeline.intervals import intervals as make_intervals
from headrace.pipeline.settle import COMMITTED, settle
from headrace.pipeline.spans import touched
from headrace.pipeline.step import Settings
from headrace.spark.errors import PipelineError

TRACES = Path(__file__).parent.parent / "src/headrace/data"
SECOND_US = 1_000_000
STALENESS_US = 150 * SECOND_US

pytestmark = pytest.mark.spark


def settings(root, seconds=10.0):
    return Settings(root, "q", round(seconds * SECOND_US), 90.0, buckets=2)


def intervals(root):
    found = tables.open_arrow(root, "gpu_intervals").to_table().to_pylist()
    return sorted(found, key=lambda row: (row["uuid"], row["gpu_i_id"], row["interval_start"]))


def ingest(spark, root, *batches, seconds=10.0):
    """Writes micro-batches one after the other and returns the intervals."""
    first = 0
    for batch, sent in enumerate(batches):
        write(readings(spark, sent, first_offset=first), batch, settings(root, seconds))
        first += len(sent)
    finish(spark, settings(root, seconds))
    return intervals(root)


def compute(sent):
    """The intervals of one lot of messages, without files."""
    settled = settle(table(sent), COMMITTED.empty_table(), {}, 90.0)
    ends = (settled.filter(pc.equal(settled["ends"], name)) for name in ("readings", "quarantine"))
    return make_intervals(*ends, 10 * SECOND_US, STALENESS_US).to_pylist()


def metric(name, raw, seconds, **more):
    return payload(f"DCGM_FI_{name}", str(raw), event_time=at(seconds), **more)


def energy(seconds, joules, **more):
    return metric("DEV_TOTAL_ENERGY_CONSUMPTION", joules * 1000, seconds, **more)


# --- the real traces -----------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["h200-1hz.csv.gz", "h200-1hz-gaps.csv.gz"])
def trace(request, spark, tmp_path_factory):
    """The tables of a shipped trace, written in three micro-batches, and its rows."""
    root = tmp_path_factory.mktemp("tables")
    sent = from_csv(TRACES / request.param)
    cut = [0, 1000, 4000, len(sent)]
    ingest(spark, root, *(sent[low:high] for low, high in pairwise(cut)), seconds=1.0)
    with gzip.open(TRACES / request.param, "rt") as lines:
        return root, list(csv.DictReader(lines))


def of_pod(rows, name, pod):
    return [
        float(row["value"])
        for row in rows
        if row["metric_name"] == f"DCGM_FI_{name}" and row["pod"] == pod
    ]


def mean(numbers):
    kept = [number for number in numbers if number is not None]
    return sum(kept) / len(kept) if kept else None


def test_nothing_of_a_trace_is_lost(trace):
    root, rows = trace
    totals = tables.manifest(root).totals
    nans = sum(isnan(float(row["value"])) for row in rows)
    assert (totals.rows, totals.quarantined, totals.duplicates) == (len(rows) - nans, nans, 0)
    assert totals.reasons == {"not_a_number": nans}


def test_each_load_has_its_means(trace):
    root, rows = trace
    found = intervals(root)
    for pod in {row["pod"] for row in rows}:
        mine = [row for row in found if row["pod"] == pod]
        for column, name in (
            ("gpu_util_percent_mean", "DEV_GPU_UTIL"),
            ("power_watts_mean", "DEV_POWER_USAGE"),
        ):
            of_rows = mean([row[column] for row in mine])
            assert of_rows == pytest.approx(mean(of_pod(rows, name, pod)), rel=0.05), (pod, column)


def test_energy_is_the_growth_of_the_counter(trace):
    root, rows = trace
    values = [int(r["value"]) for r in rows if r["metric_name"].endswith("ENERGY_CONSUMPTION")]
    found = intervals(root)
    total = sum(row["energy_joules"] or 0.0 for row in found)
    assert total == pytest.approx((values[-1] - values[0]) / 1000, abs=0.001)
    assert {row["energy_source"] for row in found} == {"counter", None}
    covered = sum(row["energy_seconds"] or 0.0 for row in found)
    assert covered == pytest.approx(sum(row["seconds"] for row in found))


def test_a_scrape_with_a_nan_has_no_profiling_sample(trace):
    root, rows = trace
    profiled = [row for row in rows if row["metric_name"].startswith("DCGM_FI_PROF_")]
    gaps = {row["timestamp"] for row in profiled if isnan(float(row["value"]))}
    found = intervals(root)
    assert sum(row["profiling_gaps"] for row in found) == len(gaps)
    valid = {}
    for row in profiled:
        if row["timestamp"] not in gaps and row["metric_name"] == "DCGM_FI_PROF_SM_ACTIVE":
            second = datetime.fromisoformat(row["timestamp"]).replace(microsecond=0)
            valid.setdefault(second, []).append(float(row["value"]))
    got = {row["interval_start"]: row["sm_active_ratio_mean"] for row in found}
    assert {start: value for start, value in got.items() if value is not None} == pytest.approx(
        {start: mean(values) for start, values in valid.items()}
    )
    readings = tables.open_arrow(root, "readings").to_table(columns=["metric"])
    kept = sum(name.startswith("DCGM_FI_PROF_") for name in readings["metric"].to_pylist())
    nans = sum(isnan(float(row["value"])) for row in profiled)
    assert kept == len(profiled) - nans, "the other values of a gap stay in readings"


def test_intervals_are_unique_and_whole(trace):
    root, rows = trace
    found = intervals(root)
    assert len({row["interval_start"] for row in found}) == len(found)
    assert all((row["interval_end"] - row["interval_start"]).total_seconds() == 1 for row in found)
    assert sum(row["samples"] for row in found) == len({row["timestamp"] for row in rows})
    assert sum(row["readings"] for row in found) == tables.manifest(root).totals.rows


def test_what_is_due_is_made_beside_somebody_who_commits(spark, tmp_path, monkeypatch):
    write(readings(spark, [energy(0, 100)]), 0, settings(tmp_path))
    write(readings(spark, [energy(1, 200)], first_offset=1), 1, settings(tmp_path))
    assert tables.manifest(tmp_path).pending
    commit = manifests.commit

    def racing(folder, after):
        monkeypatch.setattr(manifests, "commit", commit)
        commit(folder, manifests.newest(folder).next_version())
        commit(folder, after)

    monkeypatch.setattr(manifests, "commit", racing)
    finish(spark, settings(tmp_path))
    assert not tables.manifest(tmp_path).pending
    assert [row["energy_joules"] for row in intervals(tmp_path)] == [100.0]


# --- counters and energy -------------------------------------------------------------------------


def test_a_counter_that_falls_has_started_again():
    [row] = compute(
        [metric("DEV_PCIE_REPLAY_COUNTER", raw, n) for n, raw in enumerate([7, 9, 2, 3])],
    )
    assert (row["pcie_replays"], row["counter_restarts"]) == (5.0, 1)


def test_two_exporters_of_a_gpu_make_no_energy():
    """Each keeps values for a while, so one tells of earlier than the other: 100 W all the time."""
    told = [(0, 0), (1, -20), (30, 30), (31, 10), (60, 60), (61, 40), (90, 90)]
    found = compute([energy(at, 10**9 + of * 100) for at, of in told])
    assert sum(row["energy_joules"] or 0 for row in found) == 9000.0
    assert sum(row["counter_restarts"] for row in found) == 0
    found = compute([energy(0, 10**9), energy(30, 2000), energy(31, 2100)])
    assert sum(row["energy_joules"] or 0 for row in found) == 2100.0, "the driver was loaded anew"
    assert sum(row["counter_restarts"] for row in found) == 1


def test_growth_stands_where_the_counter_was_read():
    found = compute([energy(0, 100), energy(8, 180), energy(12, 220)])
    assert [row["energy_joules"] for row in found] == [80.0, 40.0]
    assert [row["energy_seconds"] for row in found] == [8.0, 4.0]
    assert [row["seconds"] for row in found] == [8.0, 4.0]


def test_over_a_long_silence_nothing_is_known():
    found = compute([energy(0, 100), energy(150, 160), energy(301, 999)])
    assert [row["energy_joules"] for row in found] == [None, 60.0, None]
    assert [row["seconds"] for row in found] == [0.0, 150.0, 0.0]


def test_slices_of_one_device_count_its_energy_once():
    def sliced(n, slice_id, joules):
        return energy(n, joules, labels={"GPU_I_ID": slice_id})

    sent = [sliced(n, s, 100 + n * 10) for n in range(5) for s in ("3", "4", "5")]
    found = compute(sent)
    assert [row["gpu_i_id"] for row in found] == ["3", "4", "5"]
    assert [row["energy_joules"] for row in found] == [40.0, None, None]
    assert [row["samples"] for row in found] == [5, 5, 5]
    assert sum(row["counter_restarts"] for row in found) == 0


def test_power_stands_in_for_a_missing_counter_and_is_never_added_to_it():
    power = [metric("DEV_POWER_USAGE", 100.0 + n, n) for n in range(4)]
    [row] = compute(power)
    assert (row["energy_joules"], row["energy_source"]) == (pytest.approx(304.5), "power")
    assert row["energy_seconds"] == 3.0


def test_a_counter_with_holes_is_still_the_counter():
    sent = [metric("DEV_POWER_USAGE", 100.0, n) for n in range(30)]
    sent += [energy(0, 0), energy(29, 2900)]
    found = compute(sent)
    assert [row["energy_joules"] for row in found] == [None, None, 2900.0]
    assert [row["energy_source"] for row in found] == [None, None, "counter"]


def test_great_counters_keep_their_last_digits():
    start = 2**60 + 1
    sent = [metric("DEV_ECC_SBE_VOL_TOTAL", start + n, n) for n in range(3)]
    [row] = compute(sent)
    assert row["ecc_sbe_volatile"] == 2.0


# --- what an interval keeps ----------------------------------------------------------------------


def test_the_last_of_a_conflict_counts():
    sent = [metric("DEV_GPU_UTIL", raw, 0) for raw in (50, 97, 60)]
    [row] = compute(sent)
    assert (row["gpu_util_percent_mean"], row["readings"], row["samples"]) == (60.0, 1, 1)


def test_bits_are_joined_and_codes_are_the_last_of_no_application():
    sent = [metric("DEV_CLOCK_THROTTLE_REASONS", raw, n) for n, raw in enumerate([1, 4, 0])]
    sent += [metric("DEV_XID_ERRORS", raw, n) for n, raw in enumerate([79, 31, 0])]
    [row] = compute(sent)
    assert (row["throttle_reasons_any"], row["xid_last"]) == (5, 79.0), "31 is an application's"


def test_the_context_is_that_of_most_scrapes():
    pods = ["a", "a", "b", "b", "b", ""]
    sent = [metric("DEV_GPU_UTIL", n, n, labels={"pod": pod}) for n, pod in enumerate(pods)]
    tie = [metric("DEV_GPU_UTIL", n, 10 + n, labels={"pod": p}) for n, p in enumerate("aabb")]
    found = compute(sent + tie)
    assert [row["pod"] for row in found] == ["b", "b"]
    assert [row["samples"] for row in found] == [6, 4]


def test_unknown_fields_are_counted_but_have_no_column():
    [row] = compute([metric("DEV_NEW_THING", 5, 0)])
    assert (row["readings"], row["gpu_util_percent_mean"]) == (1, None)


# --- late data and replaced files ----------------------------------------------------------------


def scattered():
    """Readings of two GPUs over three minutes, and the order in which they arrive."""
    sent = []
    for n in range(0, 180, 5):
        for gpu in ("GPU-1", "GPU-2"):
            sent.append(metric("DEV_GPU_UTIL", n % 100, n, gpu_id=gpu))
            sent.append(energy(n, n * 100 + len(gpu), gpu_id=gpu))
    return sent


def comparable(rows):
    return [{k: v for k, v in row.items() if k != "late_readings"} for row in rows]


def test_rows_do_not_depend_on_the_order_of_arrival(spark, tmp_path):
    sent = scattered()
    whole = ingest(spark, tmp_path / "whole", sent)
    late_first = ingest(spark, tmp_path / "late", sent[60:100], sent[100:], sent[:60])
    assert comparable(late_first) == comparable(whole)
    assert len(whole) == 36
    assert sum(row["late_readings"] for row in late_first) > 0


def test_replaced_rows_are_gone_for_every_reader(spark, tmp_path):
    root = tmp_path
    ingest(spark, root, [energy(0, 0), energy(5, 50)])
    assert [row["energy_joules"] for row in intervals(root)] == [50.0]
    kept = tables.manifest(root).version
    write(readings(spark, [energy(2, 20)], first_offset=2), 1, settings(root))
    finish(spark, settings(root))
    [row] = intervals(root)
    assert (row["energy_joules"], row["samples"]) == (50.0, 3)
    assert tables.read(spark, root, "gpu_intervals").count() == 1
    assert tables.open_arrow(root, "gpu_intervals", version=kept).count_rows() == 1


def test_another_interval_or_query_is_refused(spark, tmp_path):
    ingest(spark, tmp_path, [energy(0, 0)])
    with pytest.raises(PipelineError, match="intervals of 10 s: keep that"):
        write(readings(spark, [energy(1, 1)], first_offset=1), 1, settings(tmp_path, 5.0))
    other = Settings(tmp_path, "another", 10 * SECOND_US, 90.0, buckets=2)
    with pytest.raises(PipelineError, match="belong to another query"):
        write(readings(spark, [energy(1, 1)], first_offset=1), 1, other)


def test_years_that_a_datetime_cannot_hold_stop_nothing(spark, tmp_path):
    sent = [
        payload(event_time="0001-01-01T00:00:00Z"),
        payload(event_time="9999-12-31T23:59:59-12:00"),
        payload(event_time="2030-01-01T00:00:00Z"),
    ]
    manifest = write(readings(spark, sent), 0, settings(tmp_path))
    assert (manifest.totals.rows, manifest.totals.reasons) == (1, {"ambiguous_time": 2})
    assert tables.read(spark, tmp_path, "gpu_intervals").count() == 1
    assert tables.read(spark, tmp_path, "quarantine").count() == 2


def test_spans_are_few_and_reach_to_the_next_scrape():
    step, staleness = 10 * SECOND_US, 60 * SECOND_US
    assert touched([0], step, staleness) == [(0, 70 * SECOND_US)]
    assert touched([0, step, 20 * step], step, staleness) == [
        (0, 80 * SECOND_US),
        (200 * SECOND_US, 270 * SECOND_US),
    ]
    many = touched([n * 100 * step for n in range(50)], step, staleness)
    assert len(many) == PIPELINE_SPANS_MAX
    assert many[0][0] == 0
    assert many[-1][1] == 49 * 100 * step + 70 * SECOND_US
