"""Messages of GPU telemetry become readings, each judged from its text."""

import csv
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporterpages import CAPITAL, FEDERATED, FIRST, LINKS, RENAMED, SLICES, SMALL, UUID
from frames import NOW_US, at, decoded, from_csv, payload, wide
from headrace.collect import narrow
from headrace.collect.exposition import Scrape, read_page
from headrace.collect.instants import parse_instant
from headrace.dcgm.readings import SCHEMA
from headrace.pipeline.schemas import REASONS

DATA = Path(__file__).parent / "data"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


EXPOSITION = b"""# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).
# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-1",device="nvidia0",modelName="NVIDIA H200",Hostname="n1",pod="a}b"} 45
DCGM_FI_PROF_SM_ACTIVE{gpu="0",UUID="GPU-1",hostname="n1",note="x, \\"y\\""} 0.500000 1893456000123
DCGM_FI_DEV_MEMORY_TEMP{gpu="0",UUID="GPU-1"} ERROR - FAILED TO CONVERT TO STRING
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-1" 7
up 1
"""  # noqa: E501 - as an exporter prints it

LINE = (
    "2030-01-01T00:00:00Z,DCGM_FI_DEV_GPU_UTIL,3,nvidia3,GPU-9,NVIDIA H100,h1,c,p,ns,50,"
    '"driver_version=""535"",pci_bus_id=""00:1"""'
)


@st.composite
def pieces(draw):
    """Parts of real messages, put together anyhow."""
    known = st.sampled_from(
        [b"{", b"}", b'"', b'"metrics"', b":", b",", b"NaN", b"\\", b"\\u12", b"[", b"\n", b"#",
         b"DCGM_FI_DEV_GPU_UTIL", b'{gpu="0"', b"} 1", b'"labels"', b"-Infinity", b"1e9999",
         b"\xff", payload(), LINE.encode(), EXPOSITION]
    )  # fmt: skip
    return b"".join(draw(st.lists(known, max_size=12)))


def micros(instant):
    """Microseconds since 1970."""
    return None if instant is None else (instant - EPOCH) // timedelta(microseconds=1)


def test_every_bad_row_is_judged_as_expected():
    with (DATA / "dcgm_bad.csv").open() as lines:
        expected = list(csv.DictReader(lines))
    found = decoded(from_csv(DATA / "dcgm_bad.csv"), now="event_time")
    for row, case in zip(found, expected, strict=True):
        reason = case["expected"] if case["table"] == "quarantine" else None
        assert (row["reason"], row["raw"]) == (reason, case["value"]), case["case"]


# --- values --------------------------------------------------------------------------------------

UTIL, ENERGY, SM = "DEV_GPU_UTIL", "DEV_TOTAL_ENERGY_CONSUMPTION", "PROF_SM_ACTIVE"

VALUES = [
    # field, raw, reason or value
    (UTIL, "50", 50.0),
    (UTIL, " 50 ", 50.0),
    (UTIL, "50.000000", 50.0),
    (UTIL, "5e1", 50.0),
    (UTIL, "+50", 50.0),
    (UTIL, "0", 0.0),
    (UTIL, "100", 100.0),
    (UTIL, "101", "out_of_range"),
    (UTIL, "-0.5", "out_of_range"),
    (UTIL, "4294967295", "out_of_range"),
    (UTIL, "1e400", "out_of_range"),
    (UTIL, "", "missing"),
    (UTIL, "  ", "missing"),
    (UTIL, None, "missing"),
    (UTIL, "N/A", "unparseable"),
    (UTIL, "N/A1612622433", "unparseable"),
    (UTIL, "ERROR - FAILED TO CONVERT TO STRING", "unparseable"),
    (UTIL, "50d", "unparseable"),
    (UTIL, "0x32", "unparseable"),
    (UTIL, "1,000", "unparseable"),
    (UTIL, "\u0665\u0660", "unparseable"),
    (UTIL, "NaN", "not_a_number"),
    (UTIL, "nan", "not_a_number"),
    (UTIL, "+Inf", "not_a_number"),
    (UTIL, "-Infinity", "not_a_number"),
    (UTIL, "<<<NULL>>>", "blank"),
    (UTIL, "<<<NOT_FOUND>>>", "not_found"),
    (UTIL, "<<<NOT_SUPPORTED>>>", "not_supported"),
    (UTIL, "<<<NOT_PERM>>>", "no_permission"),
    (UTIL, "9223372036854775792", "blank"),
    (UTIL, "9223372036854775793", "not_found"),
    (UTIL, "9223372036854775794", "not_supported"),
    (UTIL, "9223372036854775795", "no_permission"),
    (UTIL, "9223372036854775807", "blank"),
    (UTIL, "9.223372036854776e+18", "blank"),
    (UTIL, "9223372036854775808.000000", "blank"),
    (UTIL, "2147483632", "blank"),
    (UTIL, "2147483634", "not_supported"),
    (UTIL, "2147483636", "out_of_range"),
    (UTIL, "140737488355328", "blank"),
    (SM, "140737488355328.0", "blank"),
    (SM, "140737488355329.000000", "not_found"),
    (SM, "140737488355330", "not_supported"),
    (SM, "140737488355331.0", "no_permission"),
    (SM, "1.4073748835532800e+16", "blank"),
    (SM, "0.123456", 0.123456),
    (SM, "43.5", "out_of_range"),
    (ENERGY, "2147483632", 2147483632.0),
    (ENERGY, "140737488355328", 140737488355328.0),
    (ENERGY, "9223372036854775794", "not_supported"),
    (ENERGY, "9007199254740993", 9007199254740992.0),
    (ENERGY, "-1", "out_of_range"),
    ("DEV_NEW_THING", "123456", 123456.0),
    ("DEV_NEW_THING", "-5", -5.0),
    ("DEV_NEW_THING", "2147483632", "blank"),
    ("DEV_NEW_THING", "140737488355330", "not_supported"),
]


def test_values_are_judged_from_their_text():
    found = decoded([payload(f"DCGM_FI_{field}", raw) for field, raw, _ in VALUES])
    for row, (field, raw, expected) in zip(found, VALUES, strict=True):
        got = row["reason"] if row["reason"] is not None else row["value"]
        assert got == expected, (field, raw)
        assert (row["value"] is None) == (row["reason"] is not None)
        assert row["raw"] == raw
    exact = next(row for row in found if row["raw"] == "9007199254740993")
    assert exact["value_long"] == 9007199254740993, "a counter is kept beyond 2^53"
    new = [row for row in found if row["metric"] == "DCGM_FI_DEV_NEW_THING"]
    assert {row["status"] for row in new} == {"unknown_field"}
    assert {expected for *_, expected in VALUES if isinstance(expected, str)} < set(REASONS)


# --- times ---------------------------------------------------------------------------------------

TIMES = [
    "2030-01-01T00:00:00Z", "2030-01-01t00:00:00z", "2030-01-01 00:00:00.5Z",
    "2030-01-01T00:00:00.123456789+05:30", "2030-01-01T00:00:00-08:00",
    "1893456000", "1893456000000", "1893456000000000", "1893456000000000000", "123456789",
    "2030-01-01T00:00:00", "2030-01-01 00:30:00 PST", "2030-01-01T00:00:00 UTC",
    "2030-01-01T00:00:00+0530", "2030-01-01", "2030-02-30T00:00:00Z", "2030-01-01T25:00:00Z",
    "2030-01-01T00:00:60Z", "12345678", "1893456000.5", "-1893456000", "now", "", " ",
    "\u0662\u0660\u0663\u0660",
    "2030-01-01T00:00:00.Z", " 2030-01-01T00:00:00Z ", "0001-01-01T00:00:00Z",
    "0002-01-01T00:00:00Z", "0002-01-01T00:00:00+00:01", "9998-12-31T23:59:59.999999Z",
    "9998-12-31T23:59:59-00:01", "9999-12-31T23:59:59Z", "9999-12-31T23:59:59-18:00",
    "0000-01-01T00:00:00Z", "99991231T000000Z", "18934560000000000000",
]  # fmt: skip


def test_an_instant_is_what_the_collector_takes_for_one():
    found = decoded([payload(event_time=text) for text in TIMES], now="event_time")
    instants = {row["event_time_text"] or "": row["event_time"] for row in found}
    for text in TIMES:
        got = instants[text.strip(" ")]
        assert micros(got) == parse_instant(text), text


def test_the_future_is_measured_against_the_time_of_collection():
    late, early = payload(event_time=at(3600 + 299)), payload(event_time=at(3600 + 301))
    no_ingest = payload(event_time=at(3600 + 301), ingest_time=None)
    found = decoded([late, early, no_ingest])
    assert [row["reason"] for row in found] == [None, "future", "future"]
    replayed = decoded([late, early, no_ingest], now="event_time")
    assert [row["reason"] for row in replayed] == [None, None, None]


# --- messages ------------------------------------------------------------------------------------

UNDECODABLE = [
    b"", b"null", b"3", b'"x"', b"[]", b"{", b'{"metric_name":"a"', b"{}", b"\x00\x01", b"\xff\xfe",
    b'{"metrics":{}}', b'{"metrics":[1]}', b'[{"metric_name":"a"}]', b'{"metric_name":null}',
    b'{"metrics":"x"}', b'{"metric_name":" "}', b"{" * 5000, None,
]  # fmt: skip


def test_a_message_without_a_reading_is_kept_whole():
    found = decoded(UNDECODABLE)
    assert [row["reason"] for row in found] == ["undecodable"] * len(UNDECODABLE)
    assert [row["payload"] for row in found] == UNDECODABLE
    assert [row["offset"] for row in found] == list(range(len(UNDECODABLE)))


def test_odd_shapes_are_read_as_far_as_they_go():
    odd = [
        payload(labels="text"),
        payload(labels={"a": 1, "b": None}),
        payload(raw={"a": [1, 2]}),
        payload().replace(b'"raw": "50"', b'"value": NaN'),
        payload().replace(b'"raw": "50"', b'"value": 50.0'),
        payload(metric="DCGM_FI_DEV_DEC_UTIL "),
        b'{"labels":{"a":"1","a":"2"},' + payload()[1:],
        payload(labels={f"label{n}": str(n) for n in range(200)}),
        payload(labels={"text": 'a\u00e9 "b" \\ \n'}),
        payload().replace(b"node-1", b"node-\xff"),
    ]
    found = decoded(odd)
    assert [row["reason"] for row in found] == [
        None, None, "unparseable", "not_a_number", None, None, None, None, None, None,
    ]  # fmt: skip
    assert found[1]["labels"] == [("a", "1"), ("b", None)]
    assert found[2]["raw"] == '{"a": [1, 2]}'
    assert found[3]["raw"] == "NaN"
    assert found[4]["raw"] == "50.0"
    assert found[5]["metric"] == "DCGM_FI_DEV_DEC_UTIL"
    assert found[6]["labels"] == [("gpu", "0")], "the last of a repeated name counts"
    assert found[7]["labels"] == [(f"label{n}", str(n)) for n in range(200)]
    assert found[8]["labels"] == [("text", 'a\u00e9 "b" \\ \n')]
    assert found[9]["host"] == "node-\ufffd"


def test_a_wide_message_gives_a_reading_for_each_metric():
    sent = [
        wide({"DCGM_FI_DEV_GPU_UTIL": "50", "DCGM_FI_DEV_GPU_TEMP": "", "X": None, " ": "1"}),
        wide({f"DCGM_FI_X{n}": str(n) for n in range(500)}, labels={"pod": "p"}),
    ]
    found = decoded(sent)
    first, second = found[:4], found[4:]
    assert [(row["offset"], row["item"]) for row in first] == [(0, 0), (0, 1), (0, 2), (0, 3)]
    assert [row["reason"] for row in first] == [None, "missing", "missing", "undecodable"]
    assert [row["payload"] for row in first] == [None, None, None, sent[0]]
    assert [(row["metric"], row["value"]) for row in second] == [
        (f"DCGM_FI_X{n}", n) for n in range(500)
    ]
    assert {row["pod"] for row in second} == {"p"}


def test_a_message_that_would_grow_beyond_bounds_is_kept_whole():
    hostile = wide({f"m{n}": "1" for n in range(40_000)}, labels={"x": "y" * 100_000})
    [row] = decoded([hostile])
    assert (row["reason"], row["payload"]) == ("undecodable", hostile)


def test_the_page_of_an_exporter_is_read_line_by_line():
    found = decoded([EXPOSITION])
    assert [(row["item"], row["metric"], row["raw"], row["reason"]) for row in found] == [
        (0, "DCGM_FI_DEV_GPU_UTIL", "45", None),
        (1, "DCGM_FI_PROF_SM_ACTIVE", "0.500000", None),
        (2, "DCGM_FI_DEV_MEMORY_TEMP", "ERROR - FAILED TO CONVERT TO STRING", "unparseable"),
        (3, None, None, "undecodable"),
        (4, "up", "1", "no_identity"),
    ]
    assert found[3]["payload"] == b'DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-1" 7'
    stored, timed = found[0], found[1]
    assert stored["event_time"] == stored["ingest_time"], "a sample is of when it was stored"
    assert (stored["host"], stored["model"], stored["pod"]) == ("n1", "NVIDIA H200", "a}b")
    assert micros(timed["event_time"]) == 1_893_456_000_123_000
    assert (timed["host"], dict(timed["labels"])["note"]) == ("n1", 'x, "y"')


@pytest.mark.parametrize("by", ["page", "collector"])
@pytest.mark.parametrize("text", [FIRST, CAPITAL, SMALL, RENAMED])
def test_every_generation_of_exporters_gives_the_same_readings(text, by):
    """A page that was published as it is, and one that the collector took apart."""
    if by == "page":
        sent = [text.encode()]
    else:
        page = read_page(Scrape(text, "10.0.0.7:9400", "10.0.0.7", NOW_US, NOW_US))
        sent = [message.payload for message in narrow(page.readings, lambda: NOW_US)]
    found = decoded(sent)
    assert [(row["metric"], row["field_id"], row["value"], row["unit"]) for row in found] == [
        ("DCGM_FI_DEV_GPU_TEMP", 150, 41.0, "°C"),
        ("DCGM_FI_DEV_POWER_USAGE", 155, 212.5, "W"),
    ]
    for row in found:
        assert (row["reason"], row["status"], row["gpu_index"]) == (None, "ok", 0)
        assert (row["uuid"], row["pod"]) == (UUID, "job-a")
        assert (row["namespace"], row["container"]) == ("lab", "train")
        assert row["model"] == (None if text is FIRST else "NVIDIA H200")


def test_links_slices_and_federation_of_a_page_are_told_apart():
    [link], first, second, [federated] = (
        decoded([text.encode()]) for text in (LINKS, *SLICES.splitlines(), FEDERATED)
    )
    assert (link["uuid"], link["model"], link["metric"], link["unit"]) == (
        UUID, "NVIDIA H200", "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "MB/s",
    )  # fmt: skip
    assert [(row["uuid"], row["gpu_i_id"]) for row in (*first, *second)] == [
        (UUID, "7"), (UUID, "9"),
    ]  # fmt: skip
    assert (federated["pod"], federated["namespace"], federated["container"]) == (
        "job-a", "lab", "train",
    )  # fmt: skip
    assert micros(federated["event_time"]) == 1_900_000_000_123_000


def test_lines_of_csv_are_read_with_and_without_a_header():
    header = "uuid,timestamp,value,metric_name\nGPU-2,1893456000,7,DCGM_FI_DEV_GPU_TEMP\n"
    two = f"{LINE}\r\nbroken line\n{LINE.replace('_UTIL', '_TEMP')}\n"
    found = decoded([LINE.encode(), header.encode(), two.encode()])
    [line], [named], both = (
        [row for row in found if row["offset"] == offset] for offset in range(3)
    )
    assert (line["uuid"], line["gpu_index"], line["host"]) == ("GPU-9", 3, "h1")
    assert (line["pod"], line["namespace"], line["container"]) == ("p", "ns", "c")
    assert (line["model"], line["driver"], line["value"]) == ("NVIDIA H100", "535", 50.0)
    assert (named["uuid"], named["metric"], named["value"]) == (
        "GPU-2", "DCGM_FI_DEV_GPU_TEMP", 7.0,
    )  # fmt: skip
    assert [row["reason"] for row in both] == [None, "undecodable", None]
    assert both[1]["payload"] == b"broken line"


def test_where_a_gpu_is_found():
    labels = {
        "gpu": "3", "UUID": "GPU-9", "modelName": "H100", "DCGM_FI_DRIVER_VERSION": "535",
        "pod": "exporter", "exported_pod": "train-0", "exported_namespace": "ml",
        "container_name": "c", "GPU_I_ID": "2", "GPU_I_PROFILE": "1g.10gb",
    }  # fmt: skip
    from_labels = payload(gpu_id="3", device=None, hostname="", labels={**labels, "Hostname": "h"})
    named = payload(
        labels={"model_name": "H200", "driver_version": "580"}, pod="top", device="nvidia7"
    )
    headers = [("source", b"collector"), ("epoch", b"4"), ("sequence", b"12")]
    first, second = decoded([from_labels, named], headers=headers)
    assert (first["uuid"], first["gpu_index"]) == ("GPU-9", 3)
    assert (first["host"], first["device"]) == ("h", None)
    assert (first["pod"], first["namespace"], first["container"]) == ("train-0", "ml", "c")
    assert (first["model"], first["driver"]) == ("H100", "535")
    assert (first["gpu_i_id"], first["gpu_i_profile"]) == ("2", "1g.10gb")
    assert (second["uuid"], second["gpu_index"], second["host"]) == ("GPU-1", 7, "node-1")
    assert (second["model"], second["driver"], second["pod"]) == ("H200", "580", "top")
    assert (second["gpu_i_id"], second["namespace"]) == ("", "")
    assert [second[name] for name in ("source", "source_epoch", "source_sequence")] == [
        "collector", 4, 12,
    ]  # fmt: skip


def test_the_original_documents_message_is_understood():
    sent = {
        "timestamp": "2025-07-18T20:42:34Z",
        "metric_name": "DCGM_FI_DEV_GPU_UTIL",
        "gpu_id": "GPU-5fd4f087-86f3-7a43-b711-4771313afc50",
        "device": "nvidia0",
        "hostname": "mtv5-dgx1-hgpu-031",
        "value": 85.0,
        "labels": {"driver_version": "535.129.03", "model_name": "NVIDIA H100 80GB HBM3"},
    }
    [row] = decoded([json.dumps(sent).encode()])
    assert (row["reason"], row["value"], row["gpu_index"]) == (None, 85.0, 0)
    assert (row["driver"], row["uuid"]) == ("535.129.03", sent["gpu_id"])


def test_each_reading_knows_the_newest_event_time_so_far():
    sent = [
        payload(event_time=at(5)), payload(event_time=at(2)), payload(raw="N/A", event_time=at(99)),
        payload(event_time=at(7)), payload(event_time=at(6)),
    ]  # fmt: skip
    newest = [micros(row["newest_time"]) for row in decoded(sent)]
    assert [time // 1_000_000 - 1_893_456_000 for time in newest] == [5, 5, 5, 7, 7]
    assert decoded([payload(raw="N/A")])[0]["newest_time"] is None


def test_no_live_event_time_counts_as_newer_than_the_storage_of_its_message():
    """`STORED` is an hour after the first event."""
    ahead = payload(event_time=at(9000), ingest_time=at(9000))
    for now, newest in (("ingest_time", 3600), ("event_time", 9000)):
        [row] = decoded([ahead], now=now)
        assert row["reason"] is None
        assert micros(row["newest_time"]) == 1_000_000 * (1_893_456_000 + newest)


@pytest.mark.parametrize("rows", [1, 7, 20_000])
def test_batches_hold_every_reading_once(rows):
    metrics = {f"DCGM_FI_X{n}": str(n) for n in range(rows)}
    found = decoded([wide(metrics), payload(), wide(metrics)])
    assert len(found) == 2 * rows + 1
    assert list(found[0]) == SCHEMA.names


@given(st.lists(st.one_of(st.binary(max_size=200), pieces()), min_size=1, max_size=5))
def test_whatever_is_sent_gives_rows_in_order(values):
    found = decoded(values)
    assert {row["offset"] for row in found} == set(range(len(values)))
    assert [(row["offset"], row["item"]) for row in found] == [
        (offset, item)
        for offset in range(len(values))
        for item in range(sum(row["offset"] == offset for row in found))
    ]
    assert all((row["value"] is None) == (row["reason"] is not None) for row in found)
