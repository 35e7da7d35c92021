"""Readings to messages: topics, payloads, the narrow and the wide shape."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from headrace import job_limits
from headrace.collect import CsvFile, Reading, narrow, wide
from headrace.collect.messages import number, topic_level

DATA = Path(__file__).parent / "data"
TRACE = Path(__file__).parent.parent / "src/headrace/data/h200-1hz.csv.gz"
NOW_US = 1_893_456_000_123_456
NOW = "2030-01-01T00:00:00.123456Z"
READING = Reading(
    "2030-01-01T00:00:00Z", 1_893_456_000_000_000, "M", "GPU-1", "nvidia0", "h", "4", {}
)


def clock():
    return NOW_US


def test_a_narrow_message():
    reading = next(iter(CsvFile(TRACE)))
    [message] = narrow([reading], clock)
    assert message.topic == f"dcgm/gpu-node-01/{reading.uuid}/DCGM_FI_DEV_GPU_UTIL"
    assert message.readings == 1
    assert json.loads(message.payload) == {
        "timestamp": "2026-11-27T20:40:49.395Z",
        "metric_name": "DCGM_FI_DEV_GPU_UTIL",
        "gpu_id": reading.uuid,
        "device": "nvidia0",
        "hostname": "gpu-node-01",
        "value": 0,
        "raw": "0",
        "labels": {"driver_version": "580.159.04", "gpu": "0", "model_name": "NVIDIA H200"},
        "event_time": "2026-11-27T20:40:49.395000Z",
        "ingest_time": NOW,
    }


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ("0", 0),
        ("85", 85),
        ("9223372036854775792", 9223372036854775792),
        ("112.950000", 112.95),
        ("-1", -1),
        ("+5", 5),
        (" 42 ", 42),
        (".5", 0.5),
        ("5.", 5.0),
        ("1e3", 1000.0),
        ("9.223372036854776e+18", 9.223372036854776e18),
        ("007", 7),
        ("nan", None),
        ("NaN", None),
        ("inf", None),
        ("-Infinity", None),
        ("1e999", None),
        ("9" * 200, 1e200),
        ("9" * 400, None),
        ("1_000", None),
        ("0x10", None),
        ("٣", None),
        ("N/A", None),
        ("N/A1612622433", None),
        ("<<<NOT_SUPPORTED>>>", None),
        ("", None),
    ],
)
def test_value_is_a_number_only_where_the_text_is_a_finite_one(raw, value):
    assert number(raw) == value
    [message] = narrow([replace(READING, raw=raw)], clock)
    payload = json.loads(message.payload)
    assert payload["value"] == value
    assert payload["raw"] == raw


def test_whole_numbers_beyond_doubles_stay_exact():
    value = number("9007199254740993")
    assert value == 9_007_199_254_740_993
    assert math.ulp(float(value)) > 1


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("\x1b[31mred\n\x7f\x85", "_[31mred___"),
        ("node-1", "node-1"),
        ("", "_"),
        ("a/b+c#d\0e", "a_b_c_d_e"),
        ("DCGM_FI_DEV_DEC_UTIL ", "DCGM_FI_DEV_DEC_UTIL "),
        ("/", "_"),
        ("héé", "héé"),
    ],
)
def test_topic_levels(text, level):
    assert topic_level(text) == level


def test_a_level_is_cut_to_its_bound_and_the_payload_is_not():
    long = "é" * job_limits.TOPIC_LEVEL_BYTES_MAX
    [message] = narrow([replace(READING, uuid=long, metric=long, host=long)], clock)
    assert len(message.topic.encode()) < 65_535
    assert all(
        len(level.encode()) <= job_limits.TOPIC_LEVEL_BYTES_MAX
        for level in message.topic.split("/")
    )
    assert json.loads(message.payload)["gpu_id"] == long


def test_every_faulty_row_is_a_message_with_its_text():
    readings = list(CsvFile(DATA / "dcgm_bad.csv"))
    payloads = [json.loads(message.payload) for message in narrow(readings, clock)]
    assert [payload["raw"] for payload in payloads] == [reading.raw for reading in readings]
    topics = [message.topic for message in narrow(readings, clock)]
    assert sum(topic.split("/")[2] == "_" for topic in topics) == 1


# --- wide -----------------------------------------------------------------------------------------


def unfolded(messages):
    for message in messages:
        payload = json.loads(message.payload)
        assert message.readings == len(payload["metrics"])
        assert message.topic.count("/") == 2
        for metric, raw in payload["metrics"].items():
            key = (payload["gpu_id"], payload["labels"].get("GPU_I_ID"), payload["timestamp"])
            yield (*key, metric, raw)


@pytest.mark.parametrize(
    "path", [TRACE, DATA / "dcgm_bad.csv", DATA / "dcgm_snapshot.csv"], ids=lambda path: path.name
)
def test_wide_messages_hold_every_reading_once(path):
    readings = list(CsvFile(path))
    wanted = [
        (
            reading.uuid,
            reading.labels.get("GPU_I_ID"),
            reading.timestamp,
            reading.metric,
            reading.raw,
        )
        for reading in readings
    ]
    messages = list(wide(readings, clock))
    assert sorted(unfolded(messages), key=str) == sorted(wanted, key=str)
    assert sum(message.readings for message in messages) == len(readings)


def test_the_trace_is_one_wide_message_per_scrape():
    assert [message.readings for message in wide(CsvFile(TRACE), clock)] == [31] * 228


def test_a_repeated_metric_opens_another_wide_message():
    again = replace(READING, raw="5")
    assert [message.readings for message in wide([READING, READING, again], clock)] == [1, 1, 1]


def test_slices_and_loads_do_not_share_a_wide_message():
    sliced = [replace(READING, labels={"GPU_I_ID": name}) for name in ("3", "4")]
    moved = [replace(READING, metric=name, labels={"pod": name}) for name in ("a", "b")]
    assert [message.readings for message in wide(sliced + moved, clock)] == [1, 1, 1, 1]


def test_open_wide_messages_are_bounded(monkeypatch):
    monkeypatch.setattr(job_limits, "WIDE_MESSAGES_OPEN_MAX", 2)
    readings = [replace(READING, uuid=name) for name in "abcab"]
    messages = list(wide(readings, clock))
    assert [json.loads(message.payload)["gpu_id"] for message in messages] == list("abcab")
