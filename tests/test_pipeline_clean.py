"""What becomes of each reading: usable, quarantined with its reason, repeated, late."""

import csv
import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from frames import at, from_csv, messages, payload, wide
from headrace.collect.instants import parse_instant
from headrace.pipeline import tables
from headrace.pipeline.batch import Settings, write
from headrace.pipeline.clean import clean, instant
from headrace.pipeline.decode import decode
from headrace.pipeline.schemas import REASONS
from headrace.spark.errors import PipelineError

DATA = Path(__file__).parent / "data"

pytestmark = pytest.mark.spark


def judged(spark, payloads, now="ingest_time"):
    """The cleaned readings of messages, in log order."""
    return clean(decode(messages(spark, payloads)), now).orderBy("offset", "item").collect()


def settings(root, **changes):
    given = {
        "query": "q",
        "interval_us": 10_000_000,
        "watermark_seconds": 90.0,
        "now": "event_time",
    }
    return Settings(tables_dir=root, **{**given, **changes})


def rows(root, table, order="offset"):
    return tables.open_arrow(root, table).to_table().sort_by([(order, "ascending")]).to_pylist()


# --- the file with one fault a row ---------------------------------------------------------------


def test_every_bad_row_ends_where_it_is_expected(spark, tmp_path):
    with (DATA / "dcgm_bad.csv").open() as lines:
        expected = list(csv.DictReader(lines))
    manifest = write(messages(spark, from_csv(DATA / "dcgm_bad.csv")), 0, settings(tmp_path))
    ended = {
        row["offset"]: (table, row)
        for table in ("readings", "quarantine", "duplicates")
        for row in rows(tmp_path, table)
    }
    assert len(ended) == manifest.totals.readings == len(expected) == 20
    for offset, case in enumerate(expected):
        table, row = ended[offset]
        assert table == case["table"], case["case"]
        if table == "quarantine":
            assert row["reason"] == case["expected"], case["case"]
            assert row["raw"] == case["value"]
        if table == "readings":
            assert row["value"] == float(case["value"])
    note = {case["case"]: ended[offset][1] for offset, case in enumerate(expected)}
    assert note["same key, different value"]["conflict"]
    assert not note["exact duplicate"].get("conflict")
    assert note["new field spelling"]["metric"] == "DCGM_FI_DEV_GPU_TEMP"
    assert dict(note["label value with comma, equals, escaped quote"]["labels"])["label_note"] == (
        'a=1,b="x"'
    )
    assert note["epoch milliseconds"]["event_time"] == datetime(2030, 1, 1, 0, 32, tzinfo=UTC)
    assert note["late by an hour"]["late"]
    assert sum(row["late"] for table, row in ended.values() if table == "readings") == 1
    slices = [row for _, row in ended.values() if row["gpu_i_id"]]
    assert {(row["gpu_i_id"], row["gpu_i_profile"]) for row in slices} == {
        ("3", "1g.10gb"), ("4", "1g.10gb"),
    }  # fmt: skip
    assert all(row["value_long"] == 126272101025 for row in slices)


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


def test_values_are_judged_from_their_text(spark):
    found = judged(spark, [payload(f"DCGM_FI_{field}", raw) for field, raw, _ in VALUES])
    for row, (field, raw, expected) in zip(found, VALUES, strict=True):
        got = row.reason if row.reason is not None else row.value
        assert got == expected, (field, raw)
        assert (row.value is None) == (row.reason is not None)
        assert row.raw == raw
    exact = next(row for row in found if row.raw == "9007199254740993")
    assert exact.value_long == 9007199254740993, "a counter is kept beyond 2^53"
    assert {row.status for row in found if row.metric == "DCGM_FI_DEV_NEW_THING"} == {
        "unknown_field"
    }
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
    "99991231T000000Z", "18934560000000000000",
]  # fmt: skip


def test_an_instant_is_what_the_collector_takes_for_one(spark):
    frame = spark.createDataFrame([(text,) for text in TIMES], "text string")
    found = frame.selectExpr("text", f"unix_micros({instant('text')}) AS at").collect()
    assert {row.text: row.at for row in found} == {text: parse_instant(text) for text in TIMES}


def test_the_future_is_measured_against_the_time_of_collection(spark):
    late, early = payload(event_time=at(3600 + 299)), payload(event_time=at(3600 + 301))
    no_ingest = payload(event_time=at(3600 + 301), ingest_time=None)
    found = judged(spark, [late, early, no_ingest])
    assert [row.reason for row in found] == [None, "future", "future"]
    replayed = judged(spark, [late, early, no_ingest], now="event_time")
    assert [row.reason for row in replayed] == [None, None, None]


# --- messages ------------------------------------------------------------------------------------

UNDECODABLE = [
    b"", b"null", b"3", b'"x"', b"[]", b"{", b'{"metric_name":"a"', b"{}", b"\x00\x01", b"\xff\xfe",
    b'{"metrics":{}}', b'{"metrics":[1]}', b'[{"metric_name":"a"}]', b'{"metric_name":null}',
    b'{"metrics":"x"}', b'{"metric_name":" "}', b"{" * 5000, None,
]  # fmt: skip


def test_no_message_stops_the_pipeline_or_gets_lost(spark, tmp_path):
    manifest = write(messages(spark, UNDECODABLE), 0, settings(tmp_path))
    found = rows(tmp_path, "quarantine")
    assert [row["reason"] for row in found] == ["undecodable"] * len(UNDECODABLE)
    assert [row["payload"] for row in found] == UNDECODABLE
    assert manifest.totals.balanced
    assert manifest.totals.messages == manifest.totals.readings == len(UNDECODABLE)
    assert manifest.totals.reasons == {"undecodable": len(UNDECODABLE)}


def test_odd_shapes_are_read_as_far_as_they_go(spark):
    odd = [
        payload(labels="text"),
        payload(labels={"a": 1, "b": None}),
        payload(raw={"a": [1, 2]}),
        payload().replace(b'"raw": "50"', b'"value": NaN'),
        payload().replace(b'"raw": "50"', b'"value": 50.0'),
        payload(metric="DCGM_FI_DEV_DEC_UTIL "),
        b'{"labels":{"a":"1","a":"2"},' + payload()[1:],
    ]
    found = judged(spark, odd)
    assert [row.reason for row in found] == [
        None, None, "unparseable", "not_a_number", None, None, None,
    ]  # fmt: skip
    assert found[2].raw == '{"a":[1,2]}'
    assert found[3].raw == "NaN"
    assert found[5].metric == "DCGM_FI_DEV_DEC_UTIL"


def test_a_wide_message_counts_as_its_readings(spark, tmp_path):
    sent = [
        wide(
            {"DCGM_FI_DEV_GPU_UTIL": "50", "DCGM_FI_DEV_GPU_TEMP": "", "DCGM_FI_DEV_FB_USED": None}
        ),
        wide({"DCGM_FI_DEV_GPU_UTIL": "50"}),
        wide({"DCGM_FI_DEV_GPU_TEMP": "40"}, gpu_id=""),
    ]
    manifest = write(messages(spark, sent), 0, settings(tmp_path))
    totals = manifest.totals
    assert (totals.messages, totals.readings) == (3, 5)
    assert (totals.rows, totals.quarantined, totals.duplicates) == (1, 3, 1)
    assert totals.reasons == {"missing": 2, "no_identity": 1}
    named = [(row["offset"], row["item"]) for row in rows(tmp_path, "quarantine")]
    assert sorted(named) == [(0, 1), (0, 2), (2, 0)]


def test_where_a_gpu_is_found(spark):
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
    frame = messages(spark, [from_labels, named], headers=headers)
    first, second = clean(decode(frame)).orderBy("offset").collect()
    assert (first.uuid, first.gpu_index, first.host, first.device) == ("GPU-9", 3, "h", None)
    assert (first.pod, first.namespace, first.container) == ("train-0", "ml", "c")
    assert (first.model, first.driver) == ("H100", "535")
    assert (first.gpu_i_id, first.gpu_i_profile) == ("2", "1g.10gb")
    assert (second.uuid, second.gpu_index, second.host) == ("GPU-1", 7, "node-1")
    assert (second.model, second.driver, second.pod) == ("H200", "580", "top")
    assert (second.gpu_i_id, second.namespace) == ("", "")
    assert (second.source, second.source_epoch, second.source_sequence) == ("collector", 4, 12)


# --- what repeats, contradicts, comes late -------------------------------------------------------


def story():
    """Messages whose verdicts depend on those before them."""
    return [
        payload(event_time=at(0)),
        payload(event_time=at(0)),
        payload(event_time=at(0), raw="60"),
        payload(event_time=at(0), raw="50.0"),
        payload(event_time=at(0), raw="60"),
        payload(event_time=at(0), labels={"GPU_I_ID": "1"}),
        payload(event_time=at(1), raw="NaN"),
        payload(event_time=at(1), raw="NaN"),
        payload(event_time=at(1), raw="70"),
        payload(gpu_id=""),
        payload(gpu_id=""),
        payload(event_time=at(100)),
        payload(event_time=at(9)),
        payload(event_time=at(10)),
        payload("DCGM_FI_DEV_XID_ERRORS", "999", event_time=at(5000)),
        payload(event_time=at(101)),
    ]


def ends(root):
    return {
        row["offset"]: (table, row.get("conflict"), row.get("late"))
        for table in ("readings", "quarantine", "duplicates")
        for row in rows(root, table)
    }


@pytest.mark.parametrize("cuts", [[16], [1, 6, 0, 9]])
def test_verdicts_do_not_depend_on_where_micro_batches_are_cut(spark, tmp_path, cuts):
    sent, first = story(), 0
    for batch, count in enumerate(cuts):
        taken = sent[first : first + count]
        write(messages(spark, taken, first_offset=first), batch, settings(tmp_path))
        first += count
    usable, odd, late = (
        ("readings", False, False),
        ("readings", True, False),
        ("readings", False, True),
    )
    bad, again = ("quarantine", None, None), ("duplicates", None, None)
    first_half = [usable, again, odd, odd, again, usable, bad, again]
    second_half = [usable, bad, bad, usable, late, usable, bad, usable]
    assert ends(tmp_path) == dict(enumerate(first_half + second_half))
    totals = tables.manifest(tmp_path).totals
    assert (totals.rows, totals.quarantined, totals.duplicates) == (9, 4, 3)
    assert totals.balanced


def test_a_batch_that_is_committed_is_skipped(spark, tmp_path):
    frame = messages(spark, [payload(event_time=at(n)) for n in range(3)])
    first = write(frame, 0, settings(tmp_path))
    assert write(frame, 0, settings(tmp_path)) is None
    assert tables.manifest(tmp_path) == first
    assert len(rows(tmp_path, "readings")) == 3


def test_what_a_crashed_batch_left_is_never_read(spark, tmp_path):
    left = tmp_path / "batch=0" / "rows" / "table=readings"
    left.mkdir(parents=True)
    (left / "part-0.parquet").write_bytes(b"half a file")
    with pytest.raises(PipelineError, match="holds no tables yet"):
        tables.open_arrow(tmp_path, "readings")
    tables.begin(tmp_path)
    assert tables.open_arrow(tmp_path, "readings").count_rows() == 0
    write(messages(spark, [payload()]), 0, settings(tmp_path))
    assert tables.read(spark, tmp_path, "readings").count() == 1
    assert tables.open_arrow(tmp_path, "readings").count_rows() == 1
    assert tables.read(spark, tmp_path, "duplicates").count() == 0


def test_reasons_are_counted(spark, tmp_path):
    sent = [payload(raw="N/A", event_time=at(n)) for n in range(3)] + [payload(raw="101")]
    assert write(messages(spark, sent), 0, settings(tmp_path)).totals.reasons == dict(
        Counter(unparseable=3, out_of_range=1)
    )


def test_the_original_documents_message_is_understood(spark):
    sent = {
        "timestamp": "2025-07-18T20:42:34Z",
        "metric_name": "DCGM_FI_DEV_GPU_UTIL",
        "gpu_id": "GPU-5fd4f087-86f3-7a43-b711-4771313afc50",
        "device": "nvidia0",
        "hostname": "mtv5-dgx1-hgpu-031",
        "value": 85.0,
        "labels": {"driver_version": "535.129.03", "model_name": "NVIDIA H100 80GB HBM3"},
    }
    [row] = judged(spark, [json.dumps(sent).encode()])
    assert (row.reason, row.value, row.gpu_index, row.driver) == (None, 85.0, 0, "535.129.03")
    assert row.uuid == sent["gpu_id"]
