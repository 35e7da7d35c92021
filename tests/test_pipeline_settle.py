"""What becomes of the readings of a micro-batch: usable, quarantined, repeated, late."""

import csv
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from frames import at, from_csv, payload, readings, wide
from headrace.pipeline import tables
from headrace.pipeline.batch import write
from headrace.pipeline.step import Settings
from headrace.spark.errors import PipelineError

DATA = Path(__file__).parent / "data"

pytestmark = pytest.mark.spark


def settings(root, **changes):
    given = {"query": "q", "interval_us": 10_000_000, "watermark_seconds": 90.0, "buckets": 2}
    return Settings(tables_dir=root, **{**given, **changes})


def rows(root, table, order="offset"):
    return tables.open_arrow(root, table).to_table().sort_by([(order, "ascending")]).to_pylist()


# --- the file with one fault a row ---------------------------------------------------------------


def test_every_bad_row_ends_where_it_is_expected(spark, tmp_path):
    with (DATA / "dcgm_bad.csv").open() as lines:
        expected = list(csv.DictReader(lines))
    manifest = write(readings(spark, from_csv(DATA / "dcgm_bad.csv")), 0, settings(tmp_path))
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


# --- messages ------------------------------------------------------------------------------------

UNDECODABLE = [
    b"", b"null", b"3", b'"x"', b"[]", b"{", b'{"metric_name":"a"', b"{}", b"\x00\x01", b"\xff\xfe",
    b'{"metrics":{}}', b'{"metrics":[1]}', b'[{"metric_name":"a"}]', b'{"metric_name":null}',
    b'{"metrics":"x"}', b'{"metric_name":" "}', b"{" * 5000, None,
]  # fmt: skip


def test_no_message_stops_the_pipeline_or_gets_lost(spark, tmp_path):
    manifest = write(readings(spark, UNDECODABLE), 0, settings(tmp_path))
    found = rows(tmp_path, "quarantine")
    assert [row["reason"] for row in found] == ["undecodable"] * len(UNDECODABLE)
    assert [row["payload"] for row in found] == UNDECODABLE
    assert manifest.totals.balanced
    assert manifest.totals.messages == manifest.totals.readings == len(UNDECODABLE)
    assert manifest.totals.reasons == {"undecodable": len(UNDECODABLE)}


def test_a_wide_message_counts_as_its_readings(spark, tmp_path):
    sent = [
        wide(
            {"DCGM_FI_DEV_GPU_UTIL": "50", "DCGM_FI_DEV_GPU_TEMP": "", "DCGM_FI_DEV_FB_USED": None}
        ),
        wide({"DCGM_FI_DEV_GPU_UTIL": "50"}),
        wide({"DCGM_FI_DEV_GPU_TEMP": "40"}, gpu_id=""),
    ]
    manifest = write(readings(spark, sent), 0, settings(tmp_path))
    totals = manifest.totals
    assert (totals.messages, totals.readings) == (3, 5)
    assert (totals.rows, totals.quarantined, totals.duplicates) == (1, 3, 1)
    assert totals.reasons == {"missing": 2, "no_identity": 1}
    named = [(row["offset"], row["item"]) for row in rows(tmp_path, "quarantine")]
    assert sorted(named) == [(0, 1), (0, 2), (2, 0)]


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
        write(readings(spark, taken, first_offset=first), batch, settings(tmp_path))
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
    frame = readings(spark, [payload(event_time=at(n)) for n in range(3)])
    first = write(frame, 0, settings(tmp_path))
    assert write(frame, 0, settings(tmp_path)) is None
    assert tables.manifest(tmp_path) == first
    assert len(rows(tmp_path, "readings")) == 3


def test_what_a_crashed_batch_left_is_never_read(spark, tmp_path):
    left = tmp_path / "readings" / "batch=0"
    left.mkdir(parents=True)
    (left / "part-0.parquet").write_bytes(b"half a file")
    with pytest.raises(PipelineError, match="holds no tables yet"):
        tables.open_arrow(tmp_path, "readings")
    tables.begin(tmp_path)
    assert tables.open_arrow(tmp_path, "readings").count_rows() == 0
    write(readings(spark, [payload()]), 0, settings(tmp_path))
    assert tables.read(spark, tmp_path, "readings").count() == 1
    assert tables.open_arrow(tmp_path, "readings").count_rows() == 1
    assert tables.read(spark, tmp_path, "duplicates").count() == 0


def test_reasons_are_counted(spark, tmp_path):
    sent = [payload(raw="N/A", event_time=at(n)) for n in range(3)] + [payload(raw="101")]
    assert write(readings(spark, sent), 0, settings(tmp_path)).totals.reasons == dict(
        Counter(unparseable=3, out_of_range=1)
    )
