"""Events that come late, twice, out of order, stamped anew, without a zone or from the future.

Each is one story with the rows that it must give, whatever micro-batches it is cut into.
"""

from datetime import datetime, timedelta

import pytest

from buckets import Tables
from frames import at, decoded, payload, wide
from headrace.pipeline import step, tables
from headrace.pipeline.bucket import Outcome
from headrace.pipeline.fleet_report import gathered
from headrace.pipeline.manifest import Manifest

POWER = "DCGM_FI_DEV_POWER_USAGE"
DAY = 86_400
COLLECTED = 3600
"""`ingest_time` of `payload`: an hour after the first event."""


def sent(second, raw, **more):
    return payload(POWER, raw, event_time=at(second), **more)


STORIES = {
    "in order": (
        [sent(0, "100"), sent(10, "200"), sent(20, "300")],
        {0: "readings", 1: "readings", 2: "readings"},
        [(0, 100.0, 1, 0), (10, 200.0, 1, 0), (20, 300.0, 1, 0)],
    ),
    "out of order, within the watermark": (
        [sent(20, "300"), sent(0, "100"), sent(10, "200")],
        {0: "readings", 1: "readings", 2: "readings"},
        [(0, 100.0, 1, 0), (10, 200.0, 1, 0), (20, 300.0, 1, 0)],
    ),
    "late: the interval that it belongs to changes": (
        [sent(0, "100"), sent(120, "300"), sent(5, "200"), sent(10, "400")],
        {0: "readings", 1: "readings", 2: "late", 3: "late"},
        [(0, 150.0, 2, 1), (10, 400.0, 1, 1), (120, 300.0, 1, 0)],
    ),
    "as late as the watermark is not late": (
        [sent(90, "300"), sent(0, "100")],
        {0: "readings", 1: "readings"},
        [(0, 100.0, 1, 0), (90, 300.0, 1, 0)],
    ),
    "twice, and late for the second time": (
        [sent(0, "100"), sent(120, "300"), sent(0, "100"), sent(120, "300")],
        {0: "readings", 1: "readings", 2: "duplicates", 3: "duplicates"},
        [(0, 100.0, 1, 0), (120, 300.0, 1, 0)],
    ),
    "the same instant in another zone, spelling or unit is the same event": (
        [
            payload(POWER, "100", event_time="2030-01-01T00:00:00Z"),
            payload(POWER, "100", event_time="2030-01-01T05:30:00+05:30"),
            payload(POWER, "100", event_time="2029-12-31 16:00:00.000-08:00"),
            payload(POWER, "100", event_time="1893456000"),
            payload(POWER, "100", event_time="1893456000000"),
        ],
        {0: "readings", 1: "duplicates", 2: "duplicates", 3: "duplicates", 4: "duplicates"},
        [(0, 100.0, 1, 0)],
    ),
    "collected again later: only the event's own time counts": (
        [sent(0, "100"), sent(0, "100", ingest_time=at(COLLECTED + 60))],
        {0: "readings", 1: "duplicates"},
        [(0, 100.0, 1, 0)],
    ),
    "stamped anew: nothing says that it is the same, so it is another": (
        [sent(0, "100"), sent(1, "100"), sent(0, "101")],
        {0: "readings", 1: "readings", 2: "conflict"},
        [(0, 100.5, 2, 0)],
    ),
    "no zone: no instant, and no row is made of it": (
        [
            sent(0, "100"),
            payload(POWER, "900", event_time="2030-01-01T00:00:10"),
            payload(POWER, "900", event_time="2030-01-01 00:00:10 PST"),
            payload(POWER, "900", event_time="2030-01-01T00:00:10"),
            payload(POWER, "900", event_time=None),
        ],
        {0: "readings", 1: "ambiguous_time", 2: "ambiguous_time", 3: "ambiguous_time",
         4: "ambiguous_time"},
        [(0, 100.0, 1, 0)],
    ),
    "the future makes nothing late": (
        [sent(0, "100"), sent(COLLECTED + 301, "900"), sent(10, "200"),
         sent(COLLECTED + 301, "900")],
        {0: "readings", 1: "future", 2: "readings", 3: "duplicates"},
        [(0, 100.0, 1, 0), (10, 200.0, 1, 0)],
    ),
    "a clock five minutes ahead is believed, and what is behind it is not late": (
        [sent(COLLECTED + 300, "300"), sent(COLLECTED - 60, "100")],
        {0: "readings", 1: "readings"},
        [(COLLECTED - 60, 100.0, 1, 0), (COLLECTED + 300, 300.0, 1, 0)],
    ),
    "the clock of a whole host is a day ahead: only its own rows are": (
        [sent(COLLECTED + 86_400, "300", ingest_time=at(COLLECTED + 86_400)),
         sent(COLLECTED - 60, "100")],
        {0: "readings", 1: "readings"},
        [(COLLECTED - 60, 100.0, 1, 0), (COLLECTED + 86_400, 300.0, 1, 0)],
    ),
}  # fmt: skip
"""What is sent; where each message ends; rows of `gpu_intervals`: second, mean power, scrapes, late
readings."""


def ends(root):
    """By message: its table, or what is said of it there."""
    found = {}
    for row in tables.open_arrow(root, "readings").to_table().to_pylist():
        marks = [mark for mark in ("late", "conflict") if row[mark]]
        found[row["offset"]] = "+".join(marks) or "readings"
    for row in tables.open_arrow(root, "quarantine").to_table().to_pylist():
        assert row["raw"] == "900"
        found[row["offset"]] = row["reason"]
    for row in tables.open_arrow(root, "duplicates").to_table().to_pylist():
        found[row["offset"]] = "duplicates"
    return found


@pytest.mark.parametrize("cut", ["one micro-batch", "one for each message"])
@pytest.mark.parametrize("story", STORIES)
def test_each_event_gives_the_rows_that_it_should(tmp_path, story, cut):
    messages, ending, rows = STORIES[story]
    written = Tables(tmp_path, buckets=1, now="ingest_time")
    for piece in [messages] if cut == "one micro-batch" else [[each] for each in messages]:
        written.write(piece)
    written.finish()
    assert ends(tmp_path) == ending
    assert tables.manifest(tmp_path).totals.balanced
    found = [
        (row["interval_start"], row["power_watts_mean"], row["samples"], row["late_readings"])
        for row in written.rows("gpu_intervals")
    ]
    assert found == [(written.instant(at(second)), *rest) for second, *rest in rows]


@pytest.mark.parametrize("together", [pytest.param(False, marks=pytest.mark.soak), True])
def test_a_host_with_a_wrong_clock_holds_up_nobody_else(tmp_path, together):
    """It is alone in its micro-batches, or shares its only partition with all."""
    due = step.is_due_after
    written = Tables(
        tmp_path, buckets=1, now="ingest_time",
        derives=lambda before: due(before.derived_us, before.clock_us),
    )  # fmt: skip
    start = datetime.fromisoformat(at(0))
    for second in range(0, 900, 30):
        wrong = at(second + 10 * 365 * 86_400)
        odd = [xid(0, wrong, gpu_id="GPU-9", hostname="node-9", ingest_time=wrong)]
        good = [xid(79 if second >= 60 else 0, at(second), ingest_time=at(second))]
        for messages in [odd + good] if together else [odd, good]:
            after = written.write(messages, stored=start + timedelta(seconds=second))
    assert after.clock_us == round(start.timestamp() * 1e6) + 870_000_000
    intervals = [row for row in written.rows("gpu_intervals") if row["uuid"] == "GPU-1"]
    assert len(intervals) >= 28, "they are made while data flows"
    found = {(row["kind"], row["uuid"]) for row in written.rows("detections")}
    assert found == {("xid", "GPU-1")}, "found, and nobody is missed"
    written.finish()
    assert {row["uuid"] for row in written.rows("gpu_intervals")} == {"GPU-1", "GPU-9"}


@pytest.mark.parametrize(
    ("newest", "reached"),
    [([500, 900], 500), ([900 - DAY, 900], 900 - DAY), ([900 - DAY - 1, 850, 900], 850), ([], 0)],
)
def test_a_partition_that_is_days_behind_does_not_hold_the_clock(newest, reached):
    """All of its GPUs are on hosts whose clock is wrong."""
    begin_us = 10 * DAY * 1_000_000
    before = Manifest(version=0, query="q", batch=0, buckets=1, interval_seconds=10.0)
    outcomes = [
        Outcome(0, newest_us={"s": {str(n): begin_us + each * 1_000_000}})
        for n, each in enumerate(newest)
    ]
    settings = step.Settings(
        tables_dir="t", query="q", interval_us=10_000_000, watermark_seconds=90.0, buckets=1
    )
    after = step.after_batch(outcomes, 1, before, settings)
    assert after.clock_us == (begin_us + reached * 1_000_000 if newest else 0)


@pytest.mark.soak
def test_a_clock_that_is_ahead_leaves_few_files_and_none_that_is_read_for_all(tmp_path):
    """Its readings lie in files of their own, which are merged."""
    written = Tables(
        tmp_path, buckets=1, now="ingest_time", derives=lambda before: before.batch % 9
    )
    start = datetime.fromisoformat(at(0))
    for second in range(0, 24 * 30, 30):
        odd = xid(0, at(second + 86_400), gpu_id="GPU-9", ingest_time=at(second + 86_400))
        good = xid(0, at(second), ingest_time=at(second))
        after = written.write([odd, good], stored=start + timedelta(seconds=second))
    readings = after.of("readings")
    begin_us = round(start.timestamp() * 1e6)
    spans = sorted((each.max_time_us - each.min_time_us) / 1e6 for each in readings)
    assert spans[-1] < 86_400 - 1200, "none reaches from one clock to the other"
    ahead = [each for each in readings if each.min_time_us >= begin_us + 86_400_000_000]
    assert len(ahead) <= 10
    assert sum(each.rows for each in ahead) == 48
    assert len(written.arrow("readings")) == 96


def xid(code, event_time, **more):
    metrics = {"DCGM_FI_DEV_XID_ERRORS": str(code), POWER: "100"}
    return wide(metrics, event_time=event_time, **more)


def test_the_text_of_a_time_without_an_instant_is_kept(tmp_path):
    written = Tables(tmp_path, buckets=1)
    texts = ["2030-01-01T00:00:10", "2030-01-01 00:00:10 PST", "yesterday"]
    written.write([payload(POWER, "900", event_time=text) for text in texts])
    rows = written.arrow("quarantine").sort_by("offset").to_pylist()
    assert [row["event_time_text"] for row in rows] == texts
    assert [row["event_time"] for row in rows] == [None] * 3


def test_an_event_of_no_calendar_breaks_no_report(tmp_path):
    """Go's clocks begin in year 1: what they tell before they are set was measured at no time."""
    odd = ["0001-01-01T00:00:00Z", "0000-01-01T00:00:00+18:00", "9999-12-31T23:59:59-18:00"]
    made = Tables(tmp_path, now="event_time")
    made.write([sent(0, "100"), *(payload(POWER, "100", event_time=text) for text in odd)])
    made.finish()
    rows = made.arrow("quarantine").sort_by("offset").to_pylist()
    assert [(row["reason"], row["event_time_text"]) for row in rows] == [
        ("ambiguous_time", text) for text in odd
    ]
    assert gathered(tmp_path, None, None).start.year == 2030


def test_the_time_of_storage_stands_for_a_time_of_collection_of_no_calendar():
    live = [payload(POWER, "100", ingest_time=text) for text in ("0000-01-01T00:00:00Z", None)]
    assert len({row["ingest_time"] for row in decoded(live)}) == 1
    later = decoded([payload(POWER, "100", event_time="9999-12-31T23:59:59-18:00")])
    assert [row["reason"] for row in later] == ["future"]
