"""Faults that are found, and what is none: on real traces, on stories, on simulated fleets."""

import json
import random
from datetime import timedelta
from importlib.resources import as_file, files
from itertools import pairwise
from pathlib import Path

import pytest

from buckets import Tables
from conftest import soaked
from frames import BUSY, IDLE, at, from_csv, metric, wide
from headrace.collect import CsvFile
from headrace.collect import wide as wide_messages
from headrace.pipeline.detections import rules_of
from headrace.pipeline.rules import DEMO, DEMO_STALENESS_SECONDS, RULES
from headrace.pipeline.score import Known, read_truth, score
from headrace.pipeline.watch import Watch
from headrace.simulate import Fleet, Settings, messages, pools
from headrace.spark.errors import PipelineError

pytestmark = pytest.mark.slow

TRACES = Path(__file__).parent.parent / "src/headrace/data"
HEALTHY = {"gemm-bf16-0", "copy-hbm-0", "gemm-fp64-0", "train-0"}

# --- the real traces -----------------------------------------------------------------------------


@pytest.mark.parametrize("trace", ["h200-1hz.csv.gz", "h200-1hz-gaps.csv.gz"])
@pytest.mark.parametrize("cut", [8000, 1500])
def test_a_trace_is_judged_as_its_loads_were(tmp_path, trace, cut):
    """Rules read no pod; here it names the load that they should have recognised."""
    tables = Tables(
        tmp_path, interval_us=1_000_000, rules=DEMO, staleness_seconds=DEMO_STALENESS_SECONDS
    )
    sent = from_csv(TRACES / trace)
    for start in range(0, len(sent), cut):
        tables.write(sent[start : start + cut])
    found = tables.rows("detections")
    faults = {(row["kind"], row["pod"]) for row in found if row["severity"] != "info"}
    assert faults == {("idle_allocated", "train-stalled-0"), ("fake_busy", "pcie-h2d-d2h-0")}
    told = {(row["kind"], row["pod"]) for row in found if row["severity"] == "info"}
    assert {kind for kind, _ in told} == {"power_cap"}
    assert {pod for _, pod in told} <= HEALTHY
    [idle] = [row for row in found if row["kind"] == "idle_allocated"]
    assert idle["text"].startswith("GPU holds 12409 MiB and has done nothing for ")
    assert dict(idle["evidence"])["rule.window_s"] == 20.0


# --- stories -------------------------------------------------------------------------------------


def scrape(seconds, metrics, **more):
    return wide(metrics, event_time=at(seconds), labels={"modelName": "NVIDIA H200"}, **more)


def every(step, first, last, metrics, **more):
    return [scrape(n, metrics, **more) for n in range(first, last, step)]


def told(tables, kind=None):
    """Kind, start and end in seconds of the story; the end is None while it is open."""
    zero = Tables.instant(at(0))
    return [
        (
            row["kind"],
            round((row["start"] - zero).total_seconds()),
            row["end"] and round((row["end"] - zero).total_seconds()),
        )
        for row in tables.rows("detections")
        if kind in {None, row["kind"]}
    ]


def test_a_condition_must_hold_for_its_window(tmp_path):
    tables = Tables(tmp_path)
    tables.write(every(15, 0, 850, IDLE))
    assert told(tables) == []
    tables.write(every(15, 855, 1000, IDLE))
    assert told(tables) == [("idle_allocated", 0, None)]
    tables.write(every(15, 1005, 1300, BUSY))
    assert told(tables) == [("idle_allocated", 0, 1000)]


def test_what_flaps_is_one_detection(tmp_path):
    tables = Tables(tmp_path)
    story = every(15, 0, 1800, IDLE)
    for moment in (1000, 1300, 1500):
        story += [scrape(moment, BUSY), scrape(moment + 15, BUSY)]
    tables.write(sorted(story, key=lambda message: message.split(b'event_time": "')[1][:26]))
    assert told(tables) == [("idle_allocated", 0, None)]


def test_work_now_and_then_is_no_idleness(tmp_path):
    tables = Tables(tmp_path)
    story = [scrape(n, BUSY if n % 90 == 0 else IDLE) for n in range(0, 3600, 15)]
    tables.write(story)
    assert told(tables) == []


def test_memory_that_nobody_holds_is_nobodys_idleness(tmp_path):
    tables = Tables(tmp_path)
    tables.write(every(15, 0, 1800, {**IDLE, "DCGM_FI_DEV_FB_USED": "600"}))
    assert told(tables) == []


def test_a_code_is_raised_when_it_changes(tmp_path):
    tables = Tables(tmp_path)
    codes = [79] * 3 + [0] * 3 + [13] * 3 + [48] * 3 + [48] * 60
    story = [metric("DCGM_FI_DEV_XID_ERRORS", code, n * 15) for n, code in enumerate(codes)]
    tables.write(story[:2])
    for part in pairwise(range(2, len(story) + 10, 10)):
        tables.write(story[slice(*part)])
    [row] = tables.rows("detections")
    assert (row["kind"], row["severity"]) == ("xid", "critical")
    assert row["text"] == "XID 48 was raised"
    assert told(tables) == [("xid", 130, 140)], "the first code may be old, 13 is an application's"


def test_a_code_that_an_application_has_at_once_hides_no_other(tmp_path):
    tables = Tables(tmp_path)
    codes = [(0, 0), (15, 0), (30, 79), (30.000001, 45), (45, 45), (60, 45)]
    tables.write([metric("DCGM_FI_DEV_XID_ERRORS", code, seconds) for seconds, code in codes])
    assert [row["text"] for row in tables.rows("detections")] == ["XID 79 was raised"]


@pytest.mark.parametrize(
    ("without_s", "code", "found"),
    [(600, 79, ["XID 79 was raised"]), (600, 45, []), (30, 79, []), (0, 79, [])],
)
@pytest.mark.parametrize("cut", [soaked(7), 1000])
def test_a_first_code_is_new_where_there_was_none_for_a_while(
    tmp_path, cut, without_s, code, found
):
    """Neither NVML nor DCGM since 4.5 says 0 before it; what is there from the start may be old."""
    tables = Tables(tmp_path)
    story = every(15, 0, without_s, BUSY)
    story += every(15, without_s, 900, {**BUSY, "DCGM_FI_DEV_XID_ERRORS": str(code)})
    for first in range(0, len(story), cut):
        tables.write(story[first : first + cut])
    assert [row["text"] for row in tables.rows("detections") if row["kind"] == "xid"] == found


@pytest.mark.parametrize(
    ("field", "values", "kind", "severity"),
    [
        ("ECC_DBE_VOL_TOTAL", [0, 0, 1, 1], "ecc", "critical"),
        ("ECC_SBE_VOL_TOTAL", [0, 4, 8, 12], "ecc", "warning"),
        ("NVLINK_REPLAY_ERROR_COUNT_TOTAL", [5, 5, 6, 6], "nvlink", "critical"),
        ("PCIE_REPLAY_COUNTER", [0, 40, 80, 120], "pcie", "warning"),
        ("UNCORRECTABLE_REMAPPED_ROWS", [2, 2, 3, 3], "row_remap", "warning"),
    ],
)
def test_counters_that_grow_too_fast_are_found(tmp_path, field, values, kind, severity):
    tables = Tables(tmp_path)
    tables.write([metric(f"DCGM_FI_DEV_{field}", n, i * 15) for i, n in enumerate(values)])
    assert [(row["kind"], row["severity"]) for row in tables.rows("detections")] == [
        (kind, severity)
    ]


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("ECC_SBE_VOL_TOTAL", [0, 1, 2, 3]),
        ("PCIE_REPLAY_COUNTER", [0, 5, 10, 15]),
        ("UNCORRECTABLE_REMAPPED_ROWS", [7, 7, 7, 7]),
        ("ECC_DBE_VOL_TOTAL", [9, 0, 0, 0]),
    ],
)
def test_counters_that_stand_or_grow_slowly_are_sound(tmp_path, field, values):
    tables = Tables(tmp_path)
    tables.write([metric(f"DCGM_FI_DEV_{field}", n, i * 15) for i, n in enumerate(values)])
    assert tables.rows("detections") == []


def test_who_is_silent_has_vanished_until_it_returns(tmp_path):
    tables = Tables(tmp_path)
    others = [scrape(n, BUSY, gpu_id="GPU-2") for n in range(0, 1200, 15)]
    tables.write([*every(15, 0, 300, BUSY), *others[:20]])
    tables.write(others[20:38])
    assert told(tables) == []
    tables.write(others[38:60])
    [row] = tables.rows("detections")
    assert (row["kind"], row["uuid"]) == ("vanished", "GPU-1")
    assert told(tables) == [("vanished", 290, None)]
    tables.write([*others[60:], *every(15, 900, 1200, BUSY)])
    assert told(tables) == [("vanished", 290, 900)]


@pytest.mark.parametrize("size", [soaked(6), 20, soaked(1000)])
def test_while_the_whole_stream_is_silent_nobody_vanishes(tmp_path, size):
    """An hour without a broker, from which the fleet comes back one after the other."""
    tables = Tables(tmp_path, buckets=1)
    seconds = [*range(0, 900, 30), *range(4500, 5400, 30)]
    sent = [scrape(n + gpu / 2, BUSY, gpu_id=f"GPU-{gpu}") for n in seconds for gpu in (1, 2)]
    sent += [scrape(n, BUSY, gpu_id="GPU-3") for n in range(0, 600, 30)]
    sent += [scrape(n, BUSY, gpu_id="GPU-3") for n in range(5100, 5400, 30)]
    sent.sort(key=lambda message: json.loads(message)["event_time"])
    for first in range(0, len(sent), size):
        after = tables.write(sent[first : first + size])
        alerts = {topic.rpartition("/")[2] for topic in after.alerts}
        assert alerts <= {"GPU-3"}
    # It was silent for five minutes before, and for longer than that behind.
    assert told(tables) == [("vanished", 580, 5100)]


@pytest.mark.parametrize("size", [soaked(2), soaked(5), 12, soaked(1000)])
def test_who_is_silent_for_little_more_than_the_window_has_vanished_wherever_batches_are_cut(
    tmp_path, size
):
    tables = Tables(tmp_path, buckets=1)
    others = [scrape(n, BUSY, gpu_id="GPU-2") for n in range(0, 1500, 30)]
    sent = [*every(30, 0, 300, BUSY), *every(30, 600, 1500, BUSY), *others]
    sent.sort(key=lambda message: json.loads(message)["event_time"])
    for first in range(0, len(sent), size):
        tables.write(sent[first : first + size])
    assert told(tables) == [("vanished", 280, 600)]


@pytest.mark.soak
@pytest.mark.parametrize("code", [79, None])
def test_a_clock_that_was_ahead_for_once_hides_nothing(tmp_path, code):
    """A host that boots a year ahead until its time is set, and then raises an XID, or is gone."""
    tables = Tables(tmp_path, now="ingest_time", buckets=1)
    start = Tables.instant(at(0))
    year = 365 * 86_400
    odd = scrape(year, BUSY, ingest_time=at(year))
    tables.write([odd], stored=start)
    for second in range(0, 1200, 30):
        values = {**BUSY, "DCGM_FI_DEV_XID_ERRORS": str(code if code and second >= 1080 else 0)}
        scrapes = [scrape(second, BUSY, gpu_id="GPU-2", ingest_time=at(second))]
        if code or second < 600:
            scrapes.append(scrape(second, values, ingest_time=at(second)))
        after = tables.write(scrapes, stored=start + timedelta(seconds=second))
    kind = "xid" if code else "vanished"
    assert [row["end"] for row in tables.rows("detections") if row["kind"] == kind] == [None]
    assert [topic.split("/")[1] for topic in after.alerts] == [kind]


@pytest.mark.soak
def test_who_is_silent_for_a_week_was_taken_out(tmp_path):
    tables = Tables(tmp_path)
    tables.write(every(15, 0, 300, BUSY))
    ends = []
    for day in range(1, 9):
        seconds = range(day * 86_400, day * 86_400 + 250, 15)
        after = tables.write([scrape(second, BUSY, gpu_id="GPU-2") for second in seconds])
        ends += [row["end"] for row in tables.rows("detections") if row["uuid"] == "GPU-1"]
    assert ends[:6] == [None] * 6
    assert len(ends) == 8
    assert ends[-1] is not None, "its alert ends, too"
    assert "alerts/vanished/node-1/GPU-1" not in after.alerts
    assert "GPU-1" not in (tmp_path / after.watch).read_text(), "and nothing remembers it"


def test_values_that_stand_still_are_stale(tmp_path):
    tables = Tables(tmp_path)
    still = {**BUSY, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": "123456"}
    tables.write(every(15, 0, 600, still))
    assert told(tables, "stale") == [("stale", 10, None)]


def test_a_lowered_power_limit_is_a_warning_and_a_full_load_is_not(tmp_path):
    tables = Tables(tmp_path)
    capped = {**BUSY, "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": "4"}
    lowered = {**capped, "DCGM_FI_DEV_POWER_MGMT_LIMIT": "350"}
    tables.write(every(15, 0, 300, capped) + every(15, 0, 300, lowered, gpu_id="GPU-2"))
    found = {row["uuid"]: row["severity"] for row in tables.rows("detections")}
    assert found == {"GPU-1": "info", "GPU-2": "warning"}


def test_a_limit_that_a_model_has_from_the_factory_was_not_lowered(tmp_path):
    limits = {
        "NVIDIA A100-PCIE-40GB": 250, "NVIDIA A100 80GB PCIe": 300, "NVIDIA H100 NVL": 400,
        "Tesla V100-PCIE-32GB": 250, "NVIDIA L40": 300, "NVIDIA A30": 165, "NVIDIA RTX A6000": 300,
    }  # fmt: skip
    story = [
        wide(
            {**BUSY, "DCGM_FI_DEV_POWER_USAGE": str(watts), "DCGM_FI_DEV_POWER_MGMT_LIMIT": watts,
             "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": "4"},
            event_time=at(n), labels={"modelName": model}, gpu_id=f"GPU {model}",
        )
        for model, watts in limits.items()
        for n in range(0, 300, 15)
    ]  # fmt: skip
    tables = Tables(tmp_path)
    tables.write(story)
    found = tables.rows("detections")
    assert {row["model"]: row["severity"] for row in found} == dict.fromkeys(limits, "info")


def test_one_slow_gpu_of_a_job_is_a_straggler(tmp_path):
    tables = Tables(tmp_path)
    story = []
    for n in range(0, 900, 15):
        for gpu in range(8):
            slow = 0.7 if gpu == 3 else 1.0
            values = {
                **BUSY, "DCGM_FI_DEV_SM_CLOCK": str(round(1980 * slow)),
                "DCGM_FI_DEV_POWER_USAGE": str(600 * slow),
            }  # fmt: skip
            story.append(scrape(n, values, gpu_id=f"GPU-{gpu}", pod=f"train-{gpu // 4}"))
    tables.write(story)
    assert [(row["kind"], row["uuid"]) for row in tables.rows("detections")] == [
        ("straggler", "GPU-3")
    ]


@pytest.mark.parametrize("seed", [0, *map(soaked, range(1, 3))])
def test_detections_do_not_depend_on_cuts_or_on_what_is_late_in_time(tmp_path, seed):
    choice = random.Random(seed)
    story = every(15, 0, 1200, IDLE) + every(15, 1200, 2400, BUSY) + every(15, 2400, 4000, IDLE)
    whole = Tables(tmp_path / "whole")
    whole.write(story)
    parts = Tables(tmp_path / "parts")
    rest = list(story)
    while rest:
        size = choice.randrange(1, 40)
        part, rest = rest[:size], rest[size:]
        if rest and choice.random() < 0.5:  # a scrape comes after the next, within the watermark
            part.append(rest.pop(1) if len(rest) > 1 else rest.pop())
        parts.write(part)
    expected = [("idle_allocated", 0, 1190), ("idle_allocated", 2400, None)]
    assert told(parts) == told(whole) == expected


# --- rules and their memory ----------------------------------------------------------------------


def test_a_watch_goes_on_where_its_text_left_off():
    row = {
        "uuid": "GPU-1", "gpu_i_id": "", "start_us": 0, "end_us": 10_000_000, "host": "h",
        "gpu_index": 0, "model": "m", "namespace": "", "pod": "", "container": "", "xid": 3.0,
        "power_limit_watts": 700.0, "slowdown_celsius": None, "pcie": False, "pcie_worse": False,
        "pcie_0": 50.0, "pcie_replays": 50.0,
    }  # fmt: skip
    first = Watch(RULES, 10_000_000, 150_000_000)
    assert first.rows([row], ["pcie"]) == []
    again = Watch(RULES, 10_000_000, 150_000_000)
    again.loads(first.dumps())
    assert again.dumps() == first.dumps()
    later = {**row, "start_us": 20_000_000, "end_us": 30_000_000}
    for watch in (first, again):
        watch.rows([later], ["pcie"])
    assert [row["id"] for row in again.open()] == [row["id"] for row in first.open()]
    assert first.open()[0]["start_us"] == 0, "the growth before counts"


def test_rules_are_tuned_by_name():
    rules = {rule.kind: rule for rule in rules_of({"thermal": {"window_s": 5.0}})}
    assert rules["thermal"].window_s == 5.0
    with pytest.raises(PipelineError, match="no rule 'termal'; there are idle_allocated"):
        rules_of({"termal": {}})
    with pytest.raises(PipelineError, match="thermal has no setting 'window'; there are clear_s"):
        rules_of({"thermal": {"window": 5.0}})
    with pytest.raises(PipelineError, match="window_s must not be nan"):
        rules_of({"thermal": {"window_s": float("nan")}})
    with pytest.raises(PipelineError, match="share must not be 2"):
        rules_of({"thermal": {"share": 2.0}})


# --- simulated fleets ----------------------------------------------------------------------------


def scored(root, gpus, hours, per_kind, seed):
    """The scores of a simulated fleet."""
    settings = Settings(
        gpus, 1_893_456_000_000_000, round(hours * 3_600_000_000), seed=seed,
        faults_per_kind=per_kind,
    )  # fmt: skip
    with as_file(files("headrace") / "data" / "h200-1hz.csv.gz") as trace:
        fleet = Fleet(settings, pools(CsvFile(trace)))
    tables = Tables(root, buckets=1)
    sent: list[bytes] = []
    for message in messages(fleet.scrapes(), wide_messages):
        sent.append(message.payload)
        if len(sent) == 6000:
            tables.write(sent)
            sent = []
    tables.write(sent)
    return score(tables.rows("detections"), read_truth(fleet.truth()))


def test_a_small_fleet_is_judged_right(tmp_path):
    for each in scored(tmp_path, 24, 1, 1, seed=5):
        assert (each.kind, each.recall, each.precision) == (each.kind, 1.0, 1.0)


@pytest.mark.soak
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_fleet_of_200_is_judged_right(tmp_path, seed):
    for each in scored(tmp_path, 200, 6, 8, seed):
        assert each.recall >= 0.98, each
        assert each.precision >= 0.98, each


def test_a_score_counts_what_meets():
    start, end = (Tables.instant(at(seconds)) for seconds in (1000, 2000))
    rows = [
        {"id": n, "kind": kind, "severity": severity, "uuid": uuid, "start": start, "last": end}
        for n, (kind, severity, uuid) in enumerate(
            [("xid", "critical", "a"), ("xid", "critical", "b"), ("power_cap", "info", "a")]
        )
    ]
    known = [Known("xid", "a", end, end), Known("xid", "c", start, end)]
    scores = {each.kind: each for each in score(rows, known)}
    assert (scores["xid"].recall, scores["xid"].precision) == (0.5, 0.5)
    assert (scores["power_cap"].recall, scores["power_cap"].precision) == (None, None)


FAULT = {"kind": "xid", "uuid": "a", "start": "2030-01-01T00:00:00Z", "end": "2030-01-02T00:00:00Z"}


@pytest.mark.parametrize(
    "line",
    [
        "x",
        "[" * 100_000,
        "[]",
        json.dumps(FAULT | {"uuid": ["a"]}),
        json.dumps(FAULT | {"start": 5}),
        json.dumps(FAULT | {"start": "2030-01-01"}),
        json.dumps(FAULT | {"end": "9999-12-31T23:59:59Z"}),
    ],
)
def test_a_line_that_is_no_fault_is_named(line):
    with pytest.raises(PipelineError, match="line 2 of the truth is no fault"):
        read_truth([json.dumps(FAULT), line])


@pytest.mark.soak
def test_a_replay_in_large_batches_finds_what_small_ones_do(tmp_path):
    """Also who falls silent and comes back within one of them."""
    sent = [
        wide({"DCGM_FI_DEV_POWER_USAGE": "100", "DCGM_FI_DEV_GPU_UTIL": "50"},
             gpu_id=f"GPU-{n}", event_time=at(seconds))
        for seconds in range(0, 3600, 30)
        for n in (1, 2)
        if n == 1 or not 1200 <= seconds < 1900
    ]  # fmt: skip
    found = []
    for name, size in (("small", 20), ("large", 1000)):
        written = Tables(tmp_path / name, buckets=1)
        for first in range(0, len(sent), size):
            written.write(sent[first : first + size])
        found.append(sorted(written.arrow("detections").to_pylist(), key=lambda row: row["id"]))
    small, large = found
    assert small == large
    vanished = [row for row in large if row["kind"] == "vanished"]
    assert [(row["uuid"], row["end"] is None) for row in vanished] == [("GPU-2", False)]
    assert vanished[0]["start"] == Tables.instant(at(1180))
