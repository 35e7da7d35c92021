"""`headrace pipeline backfill`: what is made of readings comes out as if made today."""

import json

import pytest
from deltalake import DeltaTable

from buckets import Tables
from conftest import headrace, soaked
from frames import at, wide
from headrace.pipeline import Options, tables
from headrace.pipeline.backfill import backfill
from headrace.pipeline.schemas import SCHEMAS
from headrace.spark.errors import PipelineError

HOUR = 3600
HOURS = 13


def sent(start=0, minutes=HOURS * 60, gpu="GPU-1"):
    """A GPU that idles, for half a day, with memory held, and whose counter grows."""
    return [
        wide(
            {"DCGM_FI_DEV_GPU_UTIL": "0", "DCGM_FI_DEV_FB_USED": "5000",
             "DCGM_FI_DEV_POWER_USAGE": "60", "DCGM_FI_PROF_SM_ACTIVE": "0",
             "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": str(seconds * 60_000)},
            labels={"gpu": "0", "modelName": "NVIDIA H200", "pod": "train-0", "namespace": "ml"},
            event_time=at(seconds), gpu_id=gpu,
        )
        for seconds in range(start, start + minutes * 60, 60)
    ]  # fmt: skip


RULES = {"idle_allocated": {"window_s": 7200.0, "clear_s": 900.0}}


def written(root, messages=None, **given):
    made = Tables(root, **{"buckets": 2, "interval_us": 60_000_000, **given})
    messages = sent() if messages is None else messages
    for first in range(0, len(messages), 200):
        made.write(messages[first : first + 200])
    return made


def everything(root):
    return {
        name: sorted(map(str, tables.open_arrow(root, name).to_table().to_pylist()))
        for name in SCHEMAS
    }


pytestmark = pytest.mark.spark


@pytest.mark.soak
def test_new_prices_and_rules_hold_for_all_that_was(spark, tmp_path):
    written(tmp_path / "old", prices={"default": 1.0})
    new = {"prices": {"default": 3.0}, "energy_price": 0.5}
    written(tmp_path / "new", rules=RULES, **new)
    assert everything(tmp_path / "old") != everything(tmp_path / "new")
    slices = []
    backfill(
        spark, tmp_path / "old", Options(rules=RULES, **new),
        on_slice=lambda number, count: slices.append((number, count)),
    )  # fmt: skip
    assert everything(tmp_path / "old") == everything(tmp_path / "new")
    assert slices == [(n, 3) for n in range(1, 4)]
    before = tables.manifest(tmp_path / "old")
    assert before.totals == tables.manifest(tmp_path / "new").totals
    assert before.batch == tables.manifest(tmp_path / "new").batch


def test_a_stretch_of_time_alone_changes(spark, tmp_path):
    written(tmp_path, prices={"default": 1.0}, format="delta")
    start = round(Tables.instant(at(3 * HOUR + 60)).timestamp() * 1e6)
    end = start + 2 * HOUR * 1_000_000 - 120_000_000
    options = Options(prices={"default": 3.0}, format="delta")
    backfill(spark, tmp_path, options, start_us=start, end_us=end)
    rows = tables.open_arrow(tmp_path, "gpu_hours").to_table().to_pylist()
    costs = [row["gpu_cost"] / row["seconds"] * HOUR for row in rows]
    assert [round(cost, 6) for cost in costs] == [3.0 if 3 <= n < 5 else 1.0 for n in range(HOURS)]
    by_delta = DeltaTable(str(tmp_path / "gpu_hours")).to_pyarrow_table().to_pylist()
    assert sorted(map(str, by_delta)) == sorted(map(str, rows))
    [job] = tables.open_arrow(tmp_path, "jobs").to_table().to_pylist()
    assert job["gpu_cost"] == pytest.approx(sum(row["gpu_cost"] for row in rows))


@pytest.mark.parametrize("minutes", [soaked(7), 120])
def test_an_interval_is_made_of_all_its_readings_wherever_hours_end(spark, tmp_path, minutes):
    given = {"interval_us": minutes * 60_000_000, "staleness_seconds": 150.0}
    messages = sent(HOUR, 9 * 60 + 11)
    written(tmp_path / "old", messages, prices={"default": 1.0}, **given)
    written(tmp_path / "new", messages, prices={"default": 3.0}, **given)
    slices = []
    options = Options(prices={"default": 3.0}, staleness_s=150.0)
    backfill(spark, tmp_path / "old", options, on_slice=lambda *each: slices.append(each))
    assert slices == [(1, 2), (2, 2)]
    assert everything(tmp_path / "old") == everything(tmp_path / "new")


@pytest.mark.parametrize(
    ("minutes", "until", "hours"),
    [(7, 3 * HOUR + 1, {2}), (120, 5 * HOUR, {2, 4})],  # 3:00 is of the interval from 2:58 on
)
def test_hours_that_intervals_cut_through_are_made_whole(spark, tmp_path, minutes, until, hours):
    given = {"interval_us": minutes * 60_000_000, "staleness_seconds": 150.0}
    written(tmp_path, sent(0, 6 * 60), prices={"default": 1.0}, **given)
    before = everything(tmp_path)["gpu_intervals"]
    start_us, end_us = (
        round(Tables.instant(at(seconds)).timestamp() * 1e6) for seconds in (3 * HOUR, until)
    )
    options = Options(prices={"default": 3.0}, staleness_s=150.0)
    backfill(spark, tmp_path, options, start_us=start_us, end_us=end_us)
    assert everything(tmp_path)["gpu_intervals"] == before
    rows = tables.open_arrow(tmp_path, "gpu_hours").to_table().to_pylist()
    paid = {row["start"].hour: round(row["gpu_cost"] / row["seconds"] * HOUR, 6) for row in rows}
    assert paid == {hour: 3.0 if hour in hours else 1.0 for hour in paid}


def test_a_time_without_readings_has_new_detections_all_the_same(spark, tmp_path):
    written(tmp_path, sent(0, 90), prices={"default": 1.0})
    before = everything(tmp_path)
    assert len(before["detections"]) == 1
    start_us = round(Tables.instant(at(HOURS * HOUR)).timestamp() * 1e6)
    backfill(spark, tmp_path, Options(rules=RULES), start_us=start_us)
    after = everything(tmp_path)
    assert after == before | {"detections": []}


@pytest.mark.soak
def test_years_without_readings_take_no_time_and_all_changes_at_once(spark, tmp_path):
    # Nobody is there over a midnight; then one alone, who is on time; then a clock years ahead.
    day, years = 30 * HOUR, 4 * 365 * 24 * HOUR
    messages = [
        *sent(0, 150), *sent(day, 60, "GPU-2"), *sent(day + HOUR, 150), *sent(years, 30),
    ]  # fmt: skip
    written(tmp_path / "old", messages, prices={"default": 1.0})
    written(tmp_path / "new", messages, prices={"default": 3.0}, rules=RULES)
    before = tables.manifest(tmp_path / "old")
    slices = []

    def told(number, count):
        slices.append((number, count))
        assert tables.manifest(tmp_path / "old") == before

    options = Options(prices={"default": 3.0}, rules=RULES)
    after = backfill(spark, tmp_path / "old", options, on_slice=told)
    assert slices == [(1, 3), (2, 3), (3, 3)]
    assert after.version == before.version + 1
    assert after == tables.manifest(tmp_path / "old")
    assert everything(tmp_path / "old") == everything(tmp_path / "new")
    found = tables.open_arrow(tmp_path / "old", "detections").to_table()["kind"].to_pylist()
    assert sorted(found) == ["idle_allocated"] * 2 + ["vanished"] * 2


def test_one_that_is_ended_in_the_middle_changes_nothing(spark, tmp_path):
    written(tmp_path, prices={"default": 1.0})
    before, rows = tables.manifest(tmp_path), everything(tmp_path)

    def ended(number, _count):
        if number == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        backfill(spark, tmp_path, Options(prices={"default": 3.0}), on_slice=ended)
    assert tables.manifest(tmp_path) == before
    assert everything(tmp_path) == rows


@pytest.mark.parametrize("moment", [1, soaked(2)])
def test_who_writes_meanwhile_is_named(spark, tmp_path, moment):
    made = written(tmp_path, sent(0, 8 * 60))
    begun = []

    def told(number, count):
        assert count == 2
        begun.append(number)
        if number == moment:
            made.write(sent(8 * HOUR, 1))

    with pytest.raises(PipelineError, match=r"somebody writes .* nothing has changed: stop it"):
        backfill(spark, tmp_path, Options(prices={"default": 3.0}), on_slice=told)
    assert begun == [*range(1, moment + 1)]  # it ends as soon as it can know
    costs = tables.open_arrow(tmp_path, "gpu_hours").to_table()["gpu_cost"].to_pylist()
    assert set(costs) == {None}


def test_the_command_says_what_it_did(tmp_path):
    written(tmp_path / "t", sent()[:70])
    done = headrace(
        "pipeline", "backfill", "--tables", str(tmp_path / "t"), "--price", "default=2",
        "--from", "2030-01-01T00:00:00Z", "--watermark", "10m", "--json", timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["tables"]["gpu_hours"]["rows"] == 2
    assert "slice 1 of 1" in done.stderr


@pytest.mark.parametrize(
    ("times", "says"),
    [
        (("--from", "yesterday"), "must be a time such as 2030-01-01T00:00:00Z"),
        (("--to", "2030-01-01T00:00:00"), "must say its zone"),
        (
            ("--from", "2030-01-02T00:00:00Z", "--to", "2030-01-01T00:00:00Z"),
            "must be after --from",
        ),
    ],
)
def test_wrong_times_are_wrong_use(tmp_path, times, says):
    done = headrace("pipeline", "backfill", "--tables", str(tmp_path), *times)
    assert done.returncode == 2
    assert says in done.stderr
