"""Minutes, hours and jobs: what intervals add up to, and what late readings change."""

import random
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from buckets import Tables
from frames import at, from_csv, metric, wide

pytestmark = pytest.mark.slow

TRACE = Path(__file__).parent.parent / "src/headrace/data/h200-1hz.csv.gz"


def load(seconds, *, pod="a", util=50, power=200.0, joules=None, **more):
    """A scrape."""
    metrics = {"DCGM_FI_DEV_GPU_UTIL": str(util), "DCGM_FI_DEV_POWER_USAGE": str(power)}
    if joules is not None:
        metrics["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"] = str(round(joules * 1000))
    labels = {"modelName": "H200", "namespace": "ml"}
    return wide(metrics, event_time=at(seconds), pod=pod, labels=labels, **more)


def seconds_of(rows, column):
    """Instants as seconds of the story."""
    origin = datetime.fromisoformat(at(0))
    return [round((row[column] - origin).total_seconds()) for row in rows]


def test_a_minute_is_the_mean_of_its_scrapes(tmp_path):
    tables = Tables(tmp_path)
    tables.write([load(n * 15, util=n * 10, joules=n * 3000) for n in range(9)])
    rows = tables.rows("gpu_minutes")
    assert seconds_of(rows, "start") == [0, 60, 120]
    assert [row["samples"] for row in rows] == [4, 4, 1]
    assert [row["gpu_util_percent_mean"] for row in rows] == [15.0, 55.0, 80.0]
    assert [row["energy_joules"] for row in rows] == [9000.0, 12000.0, 3000.0]
    assert [row["seconds"] for row in rows] == [45.0, 60.0, 15.0]
    [hour] = tables.rows("gpu_hours")
    assert (hour["samples"], hour["gpu_util_percent_mean"]) == (9, 40.0)
    assert (hour["energy_joules"], hour["power_watts_max"]) == (24000.0, 200.0)
    assert seconds_of([hour], "active_from") == [0]
    assert seconds_of([hour], "active_to") == [130], "the end of the last interval"


def test_profiling_gaps_weigh_nothing(tmp_path):
    tables = Tables(tmp_path)
    sm = "DCGM_FI_PROF_SM_ACTIVE"
    sent = [metric(sm, value, n) for n, value in enumerate(["0.2", "0.4", "NaN", "0.9"])]
    tables.write([*sent, metric("DCGM_FI_PROF_DRAM_ACTIVE", "0", 2)])
    [minute] = tables.rows("gpu_minutes")
    assert (minute["samples"], minute["profiling_gaps"]) == (4, 1)
    assert minute["sm_active_ratio_mean"] == pytest.approx(0.5)
    assert minute["dram_active_ratio_mean"] is None


def test_a_price_is_of_the_model_or_the_default(tmp_path):
    tables = Tables(tmp_path, prices={"H200": 3.6, "default": 1.0}, energy_price=0.36)
    sent = [load(n * 30, joules=n * 30_000) for n in range(3)]
    other = [load(n * 30, gpu_id="GPU-2") for n in range(3)]
    other = [each.replace(b'"modelName": "H200"', b'"modelName": "T4"') for each in other]
    tables.write([*sent, *other])
    first, second = tables.rows("gpu_hours")
    assert (first["gpu_cost"], second["gpu_cost"]) == (
        pytest.approx(3.6 * 60 / 3600), pytest.approx(1.0 * 60 / 3600),
    )  # fmt: skip
    assert first["energy_cost"] == pytest.approx(0.36 * 60_000 / 3.6e6)
    unpriced = Tables(tmp_path / "unpriced")
    unpriced.write(sent)
    assert unpriced.rows("gpu_hours")[0]["gpu_cost"] is None


@pytest.mark.parametrize(
    ("model", "profiles", "parts"),
    [
        ("H200", ["1g.18gb"] * 7, [1 / 7] * 7),
        ("H200", ["3g.71gb", "4g.71gb"], [3 / 7, 4 / 7]),
        ("H200", ["7g.141gb"], [1]),
        ("H200", ["1c.2g.35gb", "1g.18gb+me", "?", None], [2 / 7, 1 / 7, 1 / 7, 1 / 7]),
        ("NVIDIA A30", ["2g.12gb", "1g.6gb", "1g.6gb"], [1 / 2, 1 / 4, 1 / 4]),
        ("H200", ["4g.71gb", "3g.71gb", "7g.141gb"], [2 / 7, 3 / 14, 1 / 2]),
    ],
)
@pytest.mark.parametrize("tells_of_itself", [False, True])
def test_slices_of_a_gpu_never_cost_more_than_it(tmp_path, model, profiles, parts, tells_of_itself):
    def labels(**more):
        return {"modelName": model, **more}

    sent = [
        wide(
            {"DCGM_FI_PROF_GR_ENGINE_ACTIVE": "0.5"}, event_time=at(n * 30), pod="a",
            labels=labels(GPU_I_ID=str(number), **({"GPU_I_PROFILE": name} if name else {})),
        )
        for number, name in enumerate(profiles) for n in range(3)
    ]  # fmt: skip
    if tells_of_itself:
        metrics = {"DCGM_FI_DEV_POWER_USAGE": "300"}
        sent += [wide(metrics, event_time=at(n * 30), labels=labels()) for n in range(3)]
    tables = Tables(tmp_path, prices={"default": 3600.0})
    tables.write(sent)
    for name in ("gpu_minutes", "gpu_hours", "jobs"):
        costs = {}
        for row in tables.rows(name):
            costs[row["gpu_i_id"]] = costs.get(row["gpu_i_id"], 0) + row["gpu_cost"]
        rest = costs.pop("", None)
        assert [cost / 60 for cost in costs.values()] == pytest.approx(parts)
        if tells_of_itself and name != "jobs":
            assert rest / 60 == pytest.approx(1 - sum(parts))


def test_a_load_of_its_own_has_a_row_of_its_own(tmp_path):
    tables = Tables(tmp_path)
    tables.write([load(n * 10, pod="a" if n < 3 else "b") for n in range(6)])
    rows = tables.rows("gpu_minutes")
    assert [(row["pod"], row["samples"]) for row in rows] == [("a", 3), ("b", 3)]
    jobs = tables.rows("jobs")
    assert [(row["pod"], row["samples"]) for row in jobs] == [("a", 3), ("b", 3)]


def test_a_job_spans_hours_and_ends_with_a_long_silence(tmp_path):
    tables = Tables(tmp_path)
    hour = 3600
    first = [load(n * 600) for n in range(15)]
    second = [load(5 * hour + n * 600) for n in range(3)]
    idle = [load(8 * hour, pod="")]
    for start in range(0, len(first), 4):
        tables.write(first[start : start + 4])
    tables.write(second)
    tables.write(idle)
    jobs = tables.rows("jobs")
    assert seconds_of(jobs, "start") == [0, 5 * hour]
    assert seconds_of(jobs, "end") == [14 * 600 + 10, 5 * hour + 2 * 600 + 10]
    assert [row["samples"] for row in jobs] == [15, 3]


def test_late_readings_join_two_jobs(tmp_path):
    tables = Tables(tmp_path)
    hour = 3600
    tables.write([load(0), load(hour)])
    tables.write([load(4 * hour)])
    assert len(tables.rows("jobs")) == 2
    tables.write([load(2 * hour), load(3 * hour)])
    [job] = tables.rows("jobs")
    assert (job["samples"], seconds_of([job], "end")) == (5, [4 * hour + 10])


def test_late_readings_beside_new_ones_leave_the_jobs_between_alone(tmp_path):
    tables, hour = Tables(tmp_path), 3600
    for start in (0, 5, 10):
        tables.write([load(start * hour)])
    tables.write([load(600), load(10 * hour + 600)])
    jobs = tables.rows("jobs")
    assert seconds_of(jobs, "start") == [0, 5 * hour, 10 * hour]
    assert [row["samples"] for row in jobs] == [2, 1, 2]


@pytest.mark.soak
def test_jobs_that_have_ended_are_not_written_again(tmp_path):
    tables = Tables(tmp_path, buckets=1)
    for n in range(40):
        after = tables.write([load(n * 900 + k * 30, pod=f"p-{n}") for k in range(2)])
    assert [row["pod"] for row in tables.rows("jobs")] == [f"p-{n}" for n in range(40)]
    written = [file.rows for file in after.of("jobs") if file.batch == after.batch]
    assert sum(written) < 20, "those of the last hours"


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(12))
def test_rows_do_not_depend_on_the_order_of_arrival(tmp_path, seed):
    """Whatever comes late or is cut elsewhere, the tables are those of one micro-batch."""
    choice = random.Random(seed)
    sent = [
        load(n * 120 + choice.randrange(60), pod=choice.choice("ab"), util=choice.randrange(100),
             joules=n * 1000, gpu_id=f"GPU-{choice.randrange(3)}")
        for n in range(120)
    ]  # fmt: skip
    whole = Tables(tmp_path / "whole")
    whole.write(sent)
    shuffled = choice.sample(sent, len(sent))
    parts = Tables(tmp_path / "parts")
    while shuffled:
        size = choice.randrange(1, 50)
        parts.write(shuffled[:size])
        del shuffled[:size]
    for table in ("gpu_intervals", "gpu_minutes", "gpu_hours", "jobs"):
        expected, found = whole.rows(table), parts.rows(table)
        assert [drop(row) for row in found] == [approximately(drop(row)) for row in expected], table


def drop(row):
    return {name: value for name, value in row.items() if name != "late_readings"}


def approximately(row):
    """Sums of doubles depend on their order in the last bits."""
    return {
        name: pytest.approx(value) if isinstance(value, float) else value
        for name, value in row.items()
    }


def test_a_trace_adds_up_in_every_table(tmp_path):
    tables = Tables(tmp_path, interval_us=1_000_000)
    sent = from_csv(TRACE)
    for start in range(0, len(sent), 1500):
        tables.write(sent[start : start + 1500])
    sums = {}
    for table in ("gpu_intervals", "gpu_minutes", "gpu_hours"):
        rows = tables.rows(table)
        sums[table] = (
            sum(row["samples"] for row in rows),
            pytest.approx(sum(row["energy_joules"] or 0.0 for row in rows)),
            pytest.approx(sum(row["seconds"] for row in rows)),
        )
    assert sums["gpu_intervals"] == sums["gpu_minutes"] == sums["gpu_hours"]
    jobs = {row["pod"]: row for row in tables.rows("jobs")}
    assert set(jobs) == {
        "gemm-bf16-0", "copy-hbm-0", "pcie-h2d-d2h-0", "train-0", "train-stalled-0", "gemm-fp64-0",
    }  # fmt: skip
    lasted = jobs["gemm-bf16-0"]["end"] - jobs["gemm-bf16-0"]["start"]
    assert timedelta(seconds=44) < lasted < timedelta(seconds=52)
