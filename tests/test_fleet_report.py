"""`headrace report`: the fleet at a terminal, as JSON, and as a page that loads nothing."""

import json
import re
import xml.etree.ElementTree as ET
from datetime import timedelta
from html.parser import HTMLParser

import pytest

from apiserver import POWER, UTIL, XID, day, scrape
from buckets import Tables
from conftest import headrace
from frames import at, metric
from headrace.pipeline import fleet, tables
from headrace.pipeline.api.asked import SummaryAsked
from headrace.pipeline.api.snapshot import Snapshots
from headrace.pipeline.api.sums import Sums
from headrace.pipeline.fleet_report import gathered
from headrace.pipeline.folder import Folder

EVIL = "<img src=x onerror=alert(1)>&\"'$x$"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three GPUs of which one is held and idle, and one has an xid; names that are markup."""
    root = tmp_path_factory.mktemp("report") / "tables"
    made = Tables(
        root, interval_us=15_000_000, prices={"default": 3.6}, energy_price=0.1,
        rules={"idle_allocated": {"window_s": 120.0}},
    )  # fmt: skip
    for first in range(0, 80, 20):
        story = []
        for number in range(first, first + 20):
            busy = {UTIL: 90, POWER: 500, "DCGM_FI_DEV_FB_USED": 40_000}
            story += scrape(0, number * 15, pod="train-1", **busy, **{XID: 79 * (number > 40)})
            story += scrape(1, number * 15, pod=EVIL, **busy)
            idle = {UTIL: 0, POWER: 80, "DCGM_FI_DEV_FB_USED": 40_000}
            story += scrape(2, number * 15, pod="notebook-1", **idle)
        made.write(story)
    return root


def report(folder, *args):
    ran = headrace("report", "--tables", str(folder), *args)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_the_terminal_has_the_fleet_its_parts_what_is_idle_and_what_is_wrong(folder):
    told = report(folder)
    assert "2030-01-01 00:00 to 2030-01-01 00:20 UTC" in told
    for text in ("by model", "NVIDIA H200", "by pod", "team-a/train-1", "60.0 %"):
        assert text in told, told
    idle = told.partition("idle on")[2]
    assert "team-a/notebook-1" in idle
    assert "now" in idle
    assert "XID 79" in told.partition("since")[2]


def test_json_adds_up(folder):
    told = json.loads(report(folder, "--json"))
    assert told["fleet"]["gpus"] == 3
    seconds = 3 * 79 * 15
    assert told["fleet"]["seconds"] == pytest.approx(seconds)
    assert told["fleet"]["gpu_cost"] == pytest.approx(seconds / 1000)
    for part in fleet.GROUPS:
        assert sum(row["seconds"] for row in told[part]) == pytest.approx(seconds)
    (idle,) = told["idle_allocated"]
    assert (idle["uuid"], idle["pod"], idle["is_open"]) == ("GPU-2", "notebook-1", True)
    assert idle["cost"] == pytest.approx(idle["seconds"] / 1000)
    assert idle["seconds"] > 900
    assert [row["kind"] for row in told["open"]] == ["xid", "idle_allocated"]
    assert told["found"] == {"idle_allocated": 1, "xid": 1}
    assert len(told["series"]) == 20, "by minutes, for it is short"
    assert {row["gpus"] for row in told["series"]} == {3}
    assert {row["busy"] for row in told["series"]} == {2}
    assert told["series"][5]["watts"] == pytest.approx(1080)


def test_a_damaged_file_is_said_in_one_line(tmp_path):
    held = Tables(tmp_path, buckets=1).write([metric(POWER, 100, 0)])
    (tmp_path / held.of("gpu_hours")[0].path).write_bytes(b"torn")
    ran = headrace("report", "--tables", str(tmp_path))
    assert ran.returncode == 1
    assert held.of("gpu_hours")[0].path in ran.stderr
    assert "Traceback" not in ran.stderr
    assert len(ran.stderr.strip().splitlines()) <= 3


def test_a_file_that_is_gone_is_said_to_be_gone(tmp_path):
    made = day(tmp_path, gpus=1, scrapes=10)
    made.finish()
    for file in tables.manifest(tmp_path).of("gpu_hours"):
        (tmp_path / file.path).unlink()
    ran = headrace("report", "--tables", str(tmp_path))
    assert ran.returncode == 1
    assert ".parquet: no such file, though a version of the tables names it" in ran.stderr


def test_a_report_of_a_day_opens_no_file_of_another(tmp_path):
    made = Tables(tmp_path, buckets=1)
    for hours in (0, 24, 48):
        made.write([metric(POWER, 100, hours * 3600 + n * 15, gpu_id="GPU-1") for n in range(9)])
    for file in tables.manifest(tmp_path).files:
        if file.table in {"gpu_hours", "gpu_minutes"} and file.chunk[0] < 1_893_628_800_000_000:
            (tmp_path / file.path).unlink()
    told = json.loads(report(tmp_path, "--start", "2030-01-03T00:00:00Z", "--json"))
    assert told["fleet"]["seconds"] == 8 * 15
    assert [row["gpus"] for row in told["series"]] == [1, 1, 1]


def test_a_time_is_cut_out_by_hours(folder):
    assert json.loads(report(folder, "--end", "2029-12-31T23:00:00Z", "--json"))["start"] is None
    assert report(folder, "--end", "2029-12-31T23:00:00Z") == "no telemetry in that time\n"
    whole = json.loads(report(folder, "--json"))
    told = json.loads(report(folder, "--start", "2030-01-01T00:00:00+00:00", "--json"))
    assert told["fleet"] == whole["fleet"]


def test_costs_of_idle_gpus_are_cut_to_the_time(folder):
    found = gathered(folder, None, None)
    begin = found.idle[0]
    rows = tables.open_arrow(folder, "detections").to_table().to_pylist()
    (row,) = [row for row in rows if row["kind"] == "idle_allocated"]
    loads = fleet.loads(tables.open_arrow(folder, "gpu_hours").to_table())
    start = row["start"] + timedelta(seconds=600)
    (cut,) = fleet.idle(rows, loads, start=start, end=start + timedelta(seconds=60))
    assert cut.seconds == 60
    assert cut.cost == pytest.approx(begin.cost / begin.seconds * 60)
    assert fleet.idle(rows, loads, end=row["start"]) == []


@pytest.fixture(scope="module")
def held(tmp_path_factory):
    """A GPU that was held and idle for three hours and a half."""
    root = tmp_path_factory.mktemp("held") / "tables"
    made = Tables(root, buckets=1, interval_us=60_000_000, prices={"default": 3.6})
    idle = {UTIL: 0, POWER: 80, "DCGM_FI_DEV_FB_USED": 40_000}
    made.write([each for minute in range(210) for each in scrape(2, minute * 60, **idle)])
    return root


@pytest.mark.parametrize(
    ("start", "end", "hours"),
    [
        (None, None, 3.5),
        (None, 5400, 2),  # the hour that begins at one counts whole
        (None, 7200, 3),
        (1800, 5400, 1),
        (3600, 3600, 1),
        (1800, None, 2.5),
        (13_000, None, 0),
    ],
)
def test_report_and_summary_tell_the_same_of_the_same_time(held, start, end, hours):
    times = [each if each is None else Tables.instant(at(each)) for each in (start, end)]
    report = gathered(held, *times).as_json(10)
    folder = Folder.at(held)
    asked = {
        name: each.isoformat()
        for name, each in zip(("start_time", "end_time"), times, strict=True)
        if each is not None
    }
    told = Sums(folder).summary(Snapshots(folder).newer(None), SummaryAsked(**asked))
    assert told["idle_allocated"] == report["idle_allocated"]
    assert sum(each["seconds"] for each in told["idle_allocated"]) == hours * 3600
    assert told["fleet"] == report["fleet"]
    assert report["found"] == {"idle_allocated": 1}, "it goes on"


class Page(HTMLParser):
    """What a page loads, and the text that a reader sees."""

    def __init__(self):
        super().__init__()
        self.tags, self.loads, self.text = set(), [], ""

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        for name, value in attrs:
            outward = name in {"src", "href", "xlink:href", "action"} or name.startswith("on")
            if outward and not value.startswith("#"):
                self.loads.append((tag, name, value))

    def handle_data(self, data):
        self.text += data


def test_the_page_is_one_file_that_loads_nothing_and_runs_nothing(folder, tmp_path):
    file = tmp_path / "fleet.html"
    assert f"page: {file}" in report(folder, "--html", str(file))
    text = file.read_text(encoding="utf-8")
    page = Page()
    page.feed(text)
    assert page.loads == []
    assert not page.tags & {"script", "img", "link", "iframe", "object"}
    assert "default-src 'none'" in text
    assert re.findall(r"url\((?!#)", text) == []
    assert EVIL in page.text, "as it is written, and as text"
    for words in ("Idle, though allocated", "By namespace", "XID 79 was raised", "cost"):
        assert words in page.text
    pictures = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(pictures) == 3
    for each in pictures:
        ET.fromstring(each)
    report(folder, "--html", str(tmp_path / "again.html"))
    assert (tmp_path / "again.html").read_text(encoding="utf-8") == text


def test_a_month_is_told_by_hours(tmp_path):
    root = tmp_path / "tables"
    made = Tables(root, interval_us=15_000_000)
    for hour in range(8):
        made.write([metric(POWER, 300, hour * 3600 + second) for second in (0, 15, 30)])
    found = gathered(root, None, None)
    assert len(found.series) == 8
    assert found.whole["gpu_cost"] is None
    assert report(root).splitlines()[4].split()[-1] == "-"  # and not a cost of 0.00


def test_empty_tables_are_told_of(tmp_path):
    root = tmp_path / "tables"
    tables.begin(root)
    file = tmp_path / "fleet.html"
    assert report(root, "--html", str(file)).startswith("no telemetry in that time\n")
    assert "no telemetry in that time" in file.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (("--tables", "absent"), 2, "absent"),
        (("--tables", "."), 2, "none are there yet"),
        ((), 2, "Missing option '--tables'"),
        (("--tables", ".", "--start", "today"), 2, "--start"),
        (("--tables", ".", "--top", "0"), 2, "--top"),
        (("--tables", "t", "--html", "no/such/folder.html"), 2, "no/such/folder.html: No such"),
    ],
)
def test_what_is_wrong_is_said_in_few_lines(tmp_path, monkeypatch, args, code, says):
    monkeypatch.chdir(tmp_path)
    day(tmp_path / "t", gpus=1, scrapes=10)
    ran = headrace("report", *args)
    assert ran.returncode == code, ran.stderr
    assert says in ran.stderr
    assert len(ran.stderr.strip().splitlines()) <= 3
