"""Scrapes that are far apart, or missed: what still counts, what stays open, what has ended."""

import random

import pytest

from buckets import Tables
from conftest import soaked
from frames import BUSY, IDLE, at, metric, wide


def scrapes(moments, metrics, **more):
    labels = {"modelName": "NVIDIA H200"}
    return [wide(metrics, event_time=at(n), labels=labels, **more) for n in moments]


def written(root, story, cut=1000, **given):
    tables = Tables(root, **given)
    for first in range(0, len(story), cut):
        tables.write(story[first : first + cut])
    return tables


def told(tables):
    """Kind, start and end in seconds of the story; the end is None while it is open."""
    zero = Tables.instant(at(0))
    return [
        (
            row["kind"],
            round((row["start"] - zero).total_seconds()),
            row["end"] and round((row["end"] - zero).total_seconds()),
        )
        for row in tables.rows("detections")
    ]


@pytest.mark.parametrize(("interval_s", "cut"), [soaked(300, 7), (600, 31), (7200, 100)])
def test_long_intervals_end_no_detection(tmp_path, interval_s, cut):
    story = scrapes(range(0, 6 * 3600, 60), IDLE)
    tables = Tables(tmp_path, interval_us=interval_s * 1_000_000)
    for first in range(0, len(story), cut):
        tables.write(story[first : first + cut])
        assert {kind for kind, _, _ in told(tables)} <= {"idle_allocated"}, "it has not vanished"
    assert told(tables) == [("idle_allocated", 0, None)]


@pytest.mark.soak
def test_a_long_interval_judges_a_job_when_it_is_whole(tmp_path):
    """It stands in the first of its minutes, which is over long before its readings are there."""
    story = []
    for n in range(0, 3600, 30):
        for gpu in range(4):
            slow = 0.7 if gpu == 3 and n % 600 >= 300 else 1.0
            values = {
                **BUSY, "DCGM_FI_DEV_SM_CLOCK": str(round(1980 * slow)),
                "DCGM_FI_DEV_POWER_USAGE": str(600 * slow),
            }  # fmt: skip
            story += scrapes([n], values, gpu_id=f"GPU-{gpu}", pod="train-0")
    whole = written(tmp_path / "whole", story, interval_us=600_000_000)
    parts = written(tmp_path / "parts", story, 24, interval_us=600_000_000)
    assert told(parts) == told(whole) == [("straggler", 0, None)]


def test_scrapes_90_s_apart_cost_and_are_judged(tmp_path):
    story = scrapes(range(0, 3600, 90), IDLE)
    tables = written(tmp_path, story, 5, prices={"default": 3.6})
    [hour] = tables.rows("gpu_hours")
    assert hour["seconds"] == 3510.0
    assert hour["gpu_cost"] == pytest.approx(3.51)
    assert told(tables) == [("idle_allocated", 0, None)]


def test_counters_go_on_while_an_exporter_starts_anew(tmp_path):
    def counted(n, errors, joules):
        return scrapes(
            [n],
            {"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": str(errors),
             "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": str(joules * 1000)},
        )  # fmt: skip

    story = [*counted(0, 0, 0), *counted(30, 0, 9000), *counted(120, 1, 36_000)]
    tables = written(tmp_path, story, 1)
    [row] = tables.rows("detections")
    assert (row["kind"], row["severity"]) == ("ecc", "critical")
    assert sum(row["energy_joules"] or 0 for row in tables.rows("gpu_intervals")) == 36_000.0


@pytest.mark.parametrize(("replays", "found"), [(150, 0), (190, 1)])
def test_what_grew_over_a_gap_is_judged_by_how_long_that_was(tmp_path, replays, found):
    rules = {"pcie": {"replays": 93.0, "replays_seconds": 60.0}}
    story = [metric("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", n, t) for t, n in ((0, 0), (120, replays))]
    assert len(written(tmp_path, story, rules=rules).rows("detections")) == found


@pytest.mark.parametrize("cut", [*map(soaked, (1, 3)), 1000])
def test_missed_scrapes_do_not_open_an_alert_again(tmp_path, cut):
    moments = [n for n in range(0, 3600, 30) if n % 1200 not in {1020, 1050}]
    tables, story = Tables(tmp_path), scrapes(moments, IDLE)
    raised = 0
    for first in range(0, len(story), cut):
        after = tables.write(story[first : first + cut])
        raised += after.alerts_version == after.version
    assert told(tables) == [("idle_allocated", 0, None)]
    assert raised == 1


def test_who_is_silent_for_longer_has_ended(tmp_path):
    story = [*scrapes(range(0, 1200, 30), IDLE), *scrapes(range(1400, 1700, 30), IDLE)]
    assert told(written(tmp_path, story)) == [("idle_allocated", 0, 1180)]


def test_a_short_time_to_clear_ends_nothing_between_two_scrapes(tmp_path):
    rules = {"idle_allocated": {"clear_s": 5.0}}
    story = [*scrapes(range(0, 1200, 30), IDLE), *scrapes([1200], BUSY)]
    assert told(written(tmp_path, story, 3, rules=rules)) == [("idle_allocated", 0, 1180)]


def test_staleness_is_a_setting(tmp_path):
    story = scrapes(range(0, 7200, 300), IDLE)
    short = written(tmp_path / "short", story)
    assert sum(row["seconds"] for row in short.rows("gpu_hours")) == 0
    long = written(tmp_path / "long", story, 2, staleness_seconds=600.0)
    assert sum(row["seconds"] for row in long.rows("gpu_hours")) == 6900.0
    [row] = long.rows("detections")
    assert row["kind"] == "idle_allocated", "and none has vanished: that takes longer now"


@pytest.mark.parametrize("seed", [0, *map(soaked, range(1, 4))])
def test_tables_do_not_depend_on_the_order_of_arrival_over_gaps(tmp_path, seed):
    choice = random.Random(seed)
    story, moment = [], 0
    for n in range(60):
        moment += choice.choice([15, 30, 90, 140, 149, 150, 151, 400])
        values = {"DCGM_FI_DEV_POWER_USAGE": str(100 + n)}
        if choice.random() < 0.7:
            values["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"] = str(moment * 100_000)
        if choice.random() < 0.3:
            values["DCGM_FI_DEV_ECC_SBE_VOL_TOTAL"] = str(n)
        for slice_id in ("1", "2"):
            story += [wide(values, event_time=at(moment), labels={"GPU_I_ID": slice_id})]
    whole = written(tmp_path / "whole", story)
    choice.shuffle(story)
    parts = written(tmp_path / "parts", story, 13)

    def rows(tables):
        found = tables.rows("gpu_intervals")
        return [{k: v for k, v in row.items() if k != "late_readings"} for row in found]

    assert rows(parts) == rows(whole)
