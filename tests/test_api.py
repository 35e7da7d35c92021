"""`headrace api` on real tables: what it answers and refuses, and tables that grow meanwhile."""

import json
import shutil
from html.parser import HTMLParser

import pytest

from apiserver import POWER, UTIL, XID, RunningApi, day, scrape, telemetry, z
from conftest import headrace
from frames import metric
from headrace.pipeline import manifest as manifests
from headrace.pipeline.api.asked import written
from headrace.pipeline.api.routes import Routes

SCRAPES = 40


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    root = tmp_path_factory.mktemp("api") / "tables"
    day(root, scrapes=SCRAPES)
    server = RunningApi(root)
    yield server
    server.close()


# --- what it answers ------------------------------------------------------------------------------


def test_health_ready_and_metrics(api):
    assert api.ok("/health") == {"status": "ok", "node": "headrace api"}
    assert api.ok("/ready") == {"status": "ready", "reason": "", "version": 3}
    assert api.ready["version"] == 3
    api.get("/api/v1/gpus/none")
    text = api.ok("/metrics")
    assert "headrace_api_tables_version 3.0" in text
    assert 'headrace_api_answers_total{path="/api/v1/gpus/{id}",status="4xx"}' in text
    assert 'headrace_api_answer_seconds_bucket{le="+Inf"}' in text


def test_gpus_are_listed_with_where_they_are_and_since_when(api):
    told = api.ok("/api/v1/gpus")
    assert [gpu["id"] for gpu in told["gpus"]] == ["GPU-0", "GPU-1", "GPU-2"]
    assert told["next"] is None
    assert told["gpus"][1] == {
        "id": "GPU-1", "uuid": "GPU-1", "gpu_i_id": "", "host": "node-0", "device": "nvidia1",
        "gpu_index": 1, "gpu_i_profile": "", "model": "NVIDIA H200", "namespace": "team-a",
        "pod": "train-1", "container": "", "first_seen": z(0), "last_seen": z(SCRAPES * 15),
        "open_detections": 0,
    }  # fmt: skip
    assert api.ok("/api/v1/gpus", host="elsewhere")["gpus"] == []
    assert len(api.ok("/api/v1/gpus", host="node-0", pod="train-1")["gpus"]) == 3


def test_one_gpu_has_its_last_minute_and_open_detections(api):
    told = api.ok("/api/v1/gpus/GPU-0")
    assert told["gpu"]["open_detections"] == 1
    assert [each["kind"] for each in told["detections"]] == ["xid"]
    assert told["latest"]["time"] == z(9 * 60)
    assert told["latest"]["power_watts_mean"] == 100


def test_telemetry_has_every_reading_by_time_ends_included(api):
    rows = telemetry(api)["telemetry"]
    assert len(rows) == SCRAPES * 3
    assert rows[0] == {
        "timestamp": z(0), "metric_name": UTIL, "value": 0.0, "unit": "%", "namespace": "team-a",
        "pod": "train-1",
    }  # fmt: skip
    keys = [(row["timestamp"], row["metric_name"]) for row in rows]
    assert keys == sorted(keys)
    some = telemetry(api, start_time=z(15), end_time=z(45), metric_name=POWER)["telemetry"]
    assert [row["timestamp"] for row in some] == [z(15), z(30), z(45)]
    elsewhere = telemetry(api, start_time="2030-01-01T05:30:15+05:30", end_time=z(15))
    assert len(elsewhere["telemetry"]) == 3


def test_a_metric_has_the_names_that_dcgm_has_had_for_it(api):
    rows = telemetry(api, metric_name="DCGM_FI_DEV_BOARD_POWER_WATTS")["telemetry"]
    assert {row["metric_name"] for row in rows} == {POWER}


def test_windows_put_readings_together(api):
    told = telemetry(api, metric_name=UTIL, window="5m")
    assert told["source"] == "gpu_intervals"
    assert told["telemetry"] == [
        {
            "start": z(number * 300), "end": z(number * 300 + 300), "metric_name": UTIL,
            "unit": "%", "avg": first + 9.5, "min": first, "max": first + 19.0,
            "last": first + 19.0, "samples": 20,
        }
        for number, first in ((0, 0.0), (1, 20.0))
    ]  # fmt: skip
    exact = telemetry(api, metric_name=UTIL, window="5m", source="readings")
    assert exact["source"] == "readings"
    assert exact["telemetry"] == told["telemetry"]


@pytest.mark.parametrize(
    ("query", "source"),
    [
        ({"metric_name": UTIL, "window": "15s"}, "gpu_intervals"),
        ({"metric_name": UTIL, "window": "5s"}, "readings"),
        ({"metric_name": UTIL, "window": "20s"}, "readings"),  # cuts through intervals
        ({"metric_name": XID, "window": "5m"}, "readings"),  # of which no mean is kept
        ({"window": "5m"}, "readings"),
    ],
)
def test_intervals_answer_where_they_say_the_same(api, query, source):
    told = telemetry(api, **query)
    assert told["source"] == source
    assert sum(row["samples"] for row in told["telemetry"]) == SCRAPES * (
        1 if "metric_name" in query else 3
    )


def test_a_mean_of_huge_numbers_is_a_number(tmp_path):
    made = day(tmp_path / "tables", gpus=1, scrapes=10)
    made.write([metric("VENDOR_X", "1.5e308", n, gpu_id="GPU-0") for n in range(3)])
    api = RunningApi(tmp_path / "tables")
    try:
        [row] = telemetry(api, metric_name="VENDOR_X", window="5m")["telemetry"]
        assert row["avg"] == pytest.approx(1.5e308)
    finally:
        api.close()


def test_metrics_of_a_gpu_have_their_last_values(api):
    told = api.ok("/api/v1/gpus/GPU-0/metrics")
    last = {each["metric_name"]: each["last_value"] for each in told["metrics"]}
    assert last == {UTIL: 39, POWER: 100, XID: 79}
    assert {each["last_time"] for each in told["metrics"]} == {z((SCRAPES - 1) * 15)}


def test_detections_are_chosen_by_what_they_are(api):
    (found,) = api.ok("/api/v1/detections")["detections"]
    assert (found["kind"], found["uuid"], found["end"]) == ("xid", "GPU-0", None)
    assert found["evidence"]["code"] == 79
    right = {
        "kind": "xid", "severity": found["severity"], "host": "node-0", "uuid": "GPU-0",
        "open": "true", "start_time": z(0), "end_time": z(SCRAPES * 15),
    }  # fmt: skip
    assert api.ok("/api/v1/detections", **right)["detections"] == [found]
    wrong = {
        "kind": "ecc", "severity": "info", "host": "x", "uuid": "GPU-1", "open": "false",
        "start_time": found["last"].replace("2030", "2031"), "end_time": z(0),
    }  # fmt: skip
    del wrong["start_time"]  # an open one holds at any later time
    for name, value in wrong.items():
        assert api.ok("/api/v1/detections", **{name: value})["detections"] == [], name


def test_the_summary_adds_up_by_model_host_namespace_and_pod(api):
    told = api.ok("/api/v1/fleet/summary")
    fleet = told["fleet"]
    assert fleet["gpus"] == 3
    assert fleet["seconds"] == pytest.approx(3 * (SCRAPES - 1) * 15)
    assert fleet["gpu_cost"] == pytest.approx(fleet["seconds"] / 1000)
    assert fleet["power_watts_mean"] == pytest.approx(101)
    for part in ("models", "hosts", "namespaces", "pods"):
        assert sum(each["seconds"] for each in told[part]) == pytest.approx(fleet["seconds"])
    assert told["pods"][0]["pod"] == "train-1"
    assert told["open"] == {"xid": 1}
    ever = api.ok(
        "/api/v1/fleet/summary", start_time="0001-01-01T00:00:00Z", end_time="9999-12-31T23:59:59Z"
    )
    assert ever["fleet"] == told["fleet"]
    before = api.ok("/api/v1/fleet/summary", end_time="2029-12-31T00:00:00Z")
    assert (before["fleet"]["gpus"], before["pods"]) == (0, [])


def test_the_paths_of_the_original_design_answer_as_it_says(api):
    """`GET /api/v1/gpus`, and telemetry by UUID with both times optional and included."""
    ids = [gpu["uuid"] for gpu in api.ok("/api/v1/gpus")["gpus"]]
    path = f"/api/v1/gpus/{ids[1]}/telemetry"
    rows = api.ok(path)["telemetry"]
    last = [row for row in rows if row["timestamp"] == rows[-1]["timestamp"]]
    assert api.ok(path, start_time=rows[-1]["timestamp"])["telemetry"] == last
    first = [row for row in rows if row["timestamp"] == rows[0]["timestamp"]]
    assert api.ok(path, end_time=rows[0]["timestamp"])["telemetry"] == first


# --- pages ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("query", [{}, {"window": "60s"}, {"window": "60s", "metric_name": UTIL}])
@pytest.mark.parametrize("limit", [1, 7, 1000])
def test_pages_have_every_row_once(api, query, limit):
    whole = telemetry(api, **query)["telemetry"]
    pages = list(api.pages("/api/v1/gpus/GPU-0/telemetry", "telemetry", **query, limit=limit))
    assert all(len(page) <= limit for page in pages)
    assert [row for page in pages for row in page] == whole


def test_lists_have_pages_too(api):
    pages = list(api.pages("/api/v1/gpus", "gpus", limit=2))
    assert [[gpu["id"] for gpu in page] for page in pages] == [["GPU-0", "GPU-1"], ["GPU-2"]]


def test_pages_stay_right_while_tables_grow(tmp_path):
    made = day(tmp_path / "tables", gpus=2, scrapes=20)
    api = RunningApi(tmp_path / "tables")
    try:
        path = "/api/v1/gpus/GPU-0/telemetry"
        first = api.ok(path, limit=10)
        before = api.ok(path)["telemetry"]
        # One GPU before it, its own readings after and, late, before the page's end.
        story = [*scrape(0, 20 * 15), metric(POWER, 7, 1, gpu_id="GPU-0"), *scrape(-1, 300)]
        version = made.write(story).version
        api.has_version(version)
        rest = [
            row
            for page in api.pages(path, "telemetry", limit=10, next=first["next"])
            for row in page
        ]
        assert first["telemetry"] + rest == [*before, *api.ok(path)["telemetry"][-2:]]
    finally:
        api.close()


def test_detections_have_pages_newest_first(tmp_path):
    made = day(tmp_path / "tables", gpus=1, scrapes=10)
    story = []
    for number, code in enumerate((79, 48, 74, 95, 94)):
        for gpu in range(3):
            story += scrape(gpu, 150 + number * 15, **{XID: 0 if number == 0 and gpu else code})
    made.write(story)
    api = RunningApi(tmp_path / "tables")
    try:
        whole = api.ok("/api/v1/detections")["detections"]
        assert len(whole) == 3
        assert [each["start"] for each in whole] == sorted(
            (each["start"] for each in whole), reverse=True
        )
        pages = api.pages("/api/v1/detections", "detections", limit=2)
        assert [each for page in pages for each in page] == whole
    finally:
        api.close()


# --- what it refuses ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "query", "status", "says"),
    [
        ("/api/v1/gpus", {"hots": "x"}, 400, "hots: unknown; did you mean 'host'?"),
        ("/api/v1/gpus", {"limit": "0"}, 400, "limit: must be from 1 to 1000; got '0'"),
        ("/api/v1/gpus", {"limit": "many"}, 400, "limit: must be from 1 to 1000"),
        ("/api/v1/gpus", {"next": "x"}, 400, "next: must be the next of the page before"),
        ("/api/v1/gpus", {"next": "W1tbW1tb"}, 400, "next: must be the next of the page before"),
        ("/api/v1/gpus", {"next": written((0, "GPU-0"))}, 400, "must be the next of the page"),
        ("/api/v1/gpus", {"next": written((0, "[1, 2]"))}, 400, "must be the next of the page"),
        ("/api/v1/gpus/GPU-9", {}, 404, "no GPU 'GPU-9' is in the tables"),
        ("/api/v1/gpus/GPU-0", {"limit": "1"}, 400, "limit: unknown"),
        ("/api/v1/gpus/GPU-9/telemetry", {}, 404, "no GPU 'GPU-9'"),
        ("/api/v1/gpus/GPU-9/metrics", {}, 404, "no GPU 'GPU-9'"),
        ("/api/v1/gpus/GPU-0/telemetry", {"window": "5"}, 400, "window: must be a duration with"),
        ("/api/v1/gpus/GPU-0/telemetry", {"window": "0s"}, 400, "from 1s to 31d; got '0s'"),
        ("/api/v1/gpus/GPU-0/telemetry", {"window": "1500ms"}, 400, "must be whole seconds"),
        ("/api/v1/gpus/GPU-0/telemetry", {"limit": "10001"}, 400, "from 1 to 10000"),
        ("/api/v1/gpus/GPU-0/telemetry", {"start_time": "now"}, 400, "start_time: must be a time"),
        ("/api/v1/gpus/GPU-0/telemetry", {"start_time": "2030-01-01"}, 400, "must be a time such"),
        ("/api/v1/gpus/GPU-0/telemetry", {"end_time": "2030-01-01T00:00:00"}, 400, "its zone"),
        ("/api/v1/gpus/GPU-0/telemetry", {"end_time": "2030-02-30T00:00:00Z"}, 400, "day is out"),
        ("/api/v1/fleet/summary", {"end_time": "0001-01-01T00:00:00+18:00"}, 400, "out of range"),
        ("/api/v1/fleet/summary", {"start_time": "9999-12-31T23:00:00-18:00"}, 400, "out of range"),
        ("/api/v1/detections", {"next": written((0, "\ud800"))}, 400, "must be the next of"),
        (
            "/api/v1/gpus/GPU-0/telemetry",
            {"end_time": "2030-01-01T00:00:00 05:30"},
            400,
            "a + is written %2B in a URL",
        ),
        (
            "/api/v1/gpus/GPU-0/telemetry",
            {"start_time": "2030-01-02T00:00:00Z", "end_time": "2030-01-01T00:00:00Z"},
            400,
            "start_time is after end_time",
        ),
        (
            "/api/v1/gpus/GPU-0/telemetry",
            {"metric_name": "DCGM_FI_DEV_POWER"},
            400,
            "metric_name: no such metric; did you mean 'DCGM_FI_DEV_POWER_USAGE'?",
        ),
        ("/api/v1/detections", {"kind": "xidd"}, 400, "kind: no such kind; did you mean 'xid'?"),
        ("/api/v1/detections", {"open": "yes"}, 400, "open: must be true or false"),
        ("/api/v1/detections", {"severity": "bad"}, 400, "severity: input should be 'info'"),
        ("/api/v1/nothing", {}, 404, "nothing is served at /api/v1/nothing"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(api, path, query, status, says):
    got, told = api.get(path, **query)
    assert got == status
    assert told.keys() == {"error", "detail"}
    assert says in told["detail"]
    assert "\n" not in told["detail"]


def test_what_is_asked_twice_is_refused(api):
    status, told = api.get("/api/v1/gpus?limit=1&limit=2")
    assert (status, told["detail"]) == (400, "limit: is there twice; name it once")


def test_pages_of_other_sites_may_not_ask(api):
    status, told = api.get("/api/v1/gpus", {"Origin": "http://evil.example"})
    assert (status, told["error"]) == (403, "forbidden")
    assert api.get("/api/v1/gpus", {"Host": "evil.example"})[0] == 403


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--tables", "absent"), "absent: no such folder"),
        ((), "Missing option '--tables'"),
        (("--tables", ".", "--bind", "8090"), "--bind"),
        (("--tables", ".", "--bind", "0.0.0.0:8090"), "--bind 127.0.0.1:8090"),
    ],
)
def test_a_start_that_cannot_be_says_why(tmp_path, monkeypatch, args, says):
    monkeypatch.chdir(tmp_path)
    ran = headrace("api", *args)
    assert ran.returncode == 2
    assert says in ran.stderr
    assert len(ran.stderr.strip().splitlines()) <= 3


def test_tables_that_cannot_be_read_are_no_start(tmp_path):
    day(tmp_path / "tables", gpus=1, scrapes=10)
    (tmp_path / "tables" / "_manifest" / f"{0:020d}.json").write_text("{}")
    ran = headrace("api", "--tables", str(tmp_path / "tables"), "--bind", "127.0.0.1:0")
    assert ran.returncode == 1
    assert "not a readable manifest" in ran.stderr


# --- tables that change ---------------------------------------------------------------------------


def test_a_folder_may_be_filled_later_and_a_stop_is_orderly(tmp_path):
    root = tmp_path / "tables"
    root.mkdir()
    api = RunningApi(root)
    try:
        status, told = api.get("/ready")
        assert (status, told["status"]) == (503, "failed")
        assert "holds no tables yet" in told["reason"]
        assert api.ok("/api/v1/gpus") == {"gpus": [], "next": None}
        assert api.ok("/api/v1/detections")["detections"] == []
        assert api.ok("/api/v1/fleet/summary")["fleet"]["gpus"] == 0
        day(root, gpus=1, scrapes=10)
        api.has_version(0)
        assert len(api.ok("/api/v1/gpus")["gpus"]) == 1
        code, log = api.stop()
        assert (code, "stopped" in log) == (0, True)
    finally:
        api.close()


def test_files_may_be_replaced_while_it_runs(tmp_path):
    """Each write replaces the files of the last hour; after 21 the first are gone."""
    made = day(tmp_path / "tables", gpus=1, scrapes=10)
    api = RunningApi(tmp_path / "tables")
    try:
        for number in range(10, 34):
            version = made.write(scrape(0, number * 15)).version
            manifests.prune(tmp_path / "tables", version)
            rows = telemetry(api, metric_name=UTIL, window="15s")["telemetry"]
            assert [row["start"] for row in rows] == [z(n * 15) for n in range(len(rows))]
        api.has_version(version)
        assert len(telemetry(api, metric_name=UTIL, window="15s")["telemetry"]) == 34
    finally:
        api.close()


def test_a_damaged_version_is_told_of_and_the_one_before_is_shown(tmp_path):
    root = tmp_path / "tables"
    made = day(root, gpus=1, scrapes=10)
    api = RunningApi(root)
    try:
        manifest = root / "_manifest" / f"{1:020d}.json"
        manifest.write_text("half")
        while api.get("/ready")[0] != 503:
            pass
        assert len(api.ok("/api/v1/gpus")["gpus"]) == 1
        assert "not a readable manifest" in api.get("/ready")[1]["reason"]
        manifest.unlink()
        made.write(scrape(1, 150))
        api.has_version(1)
        assert api.ok("/ready")["reason"] == ""
        assert len(api.ok("/api/v1/gpus")["gpus"]) == 2
    finally:
        api.close()


def test_tables_that_are_gone_are_503_and_no_fault(tmp_path):
    root = tmp_path / "tables"
    day(root, gpus=1, scrapes=10)
    api = RunningApi(root)
    try:
        shutil.rmtree(root / "readings")
        status, told = api.get("/api/v1/gpus/GPU-0/telemetry")
        assert (status, told["error"]) == (503, "unavailable")
        assert "restore the tables" in told["detail"]
    finally:
        api.close()


# --- how it is described --------------------------------------------------------------------------


def test_the_document_has_every_route_and_parameter(api):
    document = api.ok("/api/v1/openapi.json")
    assert document["openapi"].startswith("3.1")
    for route in Routes(None).all():
        told = document["paths"][route.path]["get"]
        names = {each["name"] for each in told["parameters"] if each["in"] == "query"}
        assert names == set(route.asked.model_fields)
        assert all(each["description"] or each["schema"] for each in told["parameters"])
        assert told["responses"]["200"]
    assert len(document["paths"]) == len(Routes(None).all())


def test_answers_have_the_fields_that_the_document_names(api):
    for path, methods in api.ok("/api/v1/openapi.json")["paths"].items():
        content = methods["get"]["responses"]["200"]["content"]["application/json"]
        told = api.ok(path.replace("{id}", "GPU-0"))
        assert told.keys() == content["schema"]["properties"].keys(), path


class Loads(HTMLParser):
    """What a page would load."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        named = dict(attrs)
        if tag in {"script", "link", "img", "iframe"} or "src" in named:
            self.found.append((tag, named))


def test_the_page_shows_it_and_loads_nothing(api):
    page = api.ok("/api/docs")
    assert "/api/v1/gpus/{id}/telemetry" in page
    assert "metric_name" in page
    loads = Loads()
    loads.feed(page)
    assert loads.found == []


def test_answers_are_json_that_every_reader_takes(api):
    text = json.dumps(api.ok("/api/v1/gpus/GPU-1/telemetry"))
    assert "NaN" not in text
