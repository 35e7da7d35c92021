"""`headrace api` about single GPUs: their last minute, their metrics, and how they are named."""

import urllib.parse
from itertools import islice

from apiserver import POWER, UTIL, RunningApi, at, day, scrape, telemetry, z
from frames import metric
from headrace.pipeline import tables


def test_the_last_minute_of_a_gpu_is_one_row_whatever_other_clocks_say(tmp_path):
    made = day(tmp_path / "tables", gpus=3, scrapes=40, buckets=1, now="ingest_time")
    power = metric(POWER, 70, 600, gpu_id="GPU-0")
    made.write([power], stored=made.instant(at(620)))
    api = RunningApi(tmp_path / "tables")
    try:
        told = {gpu: api.ok(f"/api/v1/gpus/GPU-{gpu}")["latest"] for gpu in range(3)}
        assert (told[0]["time"], told[0]["power_watts_mean"]) == (z(600), 70)
        assert told[0]["gpu_util_percent_mean"] is None, "of that minute, and of no other"
        assert (told[1]["time"], told[1]["power_watts_mean"]) == (z(540), 101)
        ahead = 10 * 365 * 86_400
        wrong = metric(POWER, 9, ahead, gpu_id="GPU-1", ingest_time=at(ahead))
        made.write([wrong], stored=made.instant(at(630)))
        made.write(scrape(3, 640), stored=made.instant(at(640)))
        made.finish()
        api.has_version(7)
        assert api.ok("/api/v1/gpus/GPU-1")["gpu"]["last_seen"] > z(ahead - 1)
        again = {gpu: api.ok(f"/api/v1/gpus/GPU-{gpu}")["latest"] for gpu in range(3)}
        assert again == told
        # Minutes of two hours become one file; those of more than an hour ago are old in it, too.
        for seconds in (7000, 7500, 7510):
            alone = metric(POWER, 5, seconds, gpu_id="GPU-3", ingest_time=at(seconds))
            version = made.write([alone], stored=made.instant(at(seconds))).version
            api.has_version(version)
            found = [api.ok(f"/api/v1/gpus/GPU-{gpu}")["latest"] for gpu in range(4)]
            assert found[:3] == [None] * 3
            assert found[3]["time"] == z(seconds // 60 * 60)
        spans = [file.chunk for file in tables.manifest(tmp_path / "tables").of("gpu_minutes")]
        assert max(end - start for start, end in spans) == 7_200_000_000
    finally:
        api.close()


def test_a_metric_of_a_site_is_known_however_long_ago_it_was_reported(tmp_path):
    made = day(tmp_path / "tables", gpus=2, scrapes=10)
    made.write([metric("SITE_FAN_RPM", 900, 150, gpu_id="GPU-0")])
    made.write(scrape(0, 3 * 3600) + scrape(1, 3 * 3600))
    api = RunningApi(tmp_path / "tables")
    try:
        path = "/api/v1/gpus/GPU-0/telemetry"
        assert len(api.ok(path, metric_name="SITE_FAN_RPM")["telemetry"]) == 1
        later = {"metric_name": "SITE_FAN_RPM", "start_time": z(3600)}
        assert api.ok(path, **later)["telemetry"] == []
        assert api.ok(path, **later, window="60s")["telemetry"] == []
        reported = api.ok("/api/v1/gpus/GPU-0/metrics")["metrics"]
        assert "SITE_FAN_RPM" not in {each["metric_name"] for each in reported}
        status, told = api.get(path, metric_name="SITE_FAN_RPMS")
        assert (status, "no such metric" in told["detail"]) == (400, True)
        assert api.get("/api/v1/gpus/GPU-1/telemetry", **later)[0] == 400, "of another GPU"
    finally:
        api.close()


def test_slices_are_named_by_uuid_and_id(tmp_path):
    made = day(tmp_path / "tables", gpus=1, scrapes=10)
    slices = [
        metric(
            "DCGM_FI_PROF_GR_ENGINE_ACTIVE", 0.25 * number, 15 * scrape, gpu_id="GPU-9",
            labels={"GPU_I_ID": str(number), "GPU_I_PROFILE": "1g.10gb"},
        )
        for number in (1, 2)
        for scrape in range(5)
    ]  # fmt: skip
    made.write([*slices, metric(UTIL, 1, 0, gpu_id="GPU-9-a")])
    api = RunningApi(tmp_path / "tables")
    try:
        ids = [gpu["id"] for gpu in api.ok("/api/v1/gpus")["gpus"]]
        assert ids == ["GPU-0", "GPU-9/1", "GPU-9/2", "GPU-9-a"]
        pages = api.pages("/api/v1/gpus", "gpus", limit=1)
        assert [gpu["id"] for page in pages for gpu in page] == ids
        rows = telemetry(api, "GPU-9/2")["telemetry"]
        assert [row["value"] for row in rows] == [0.5] * 5
        status, told = api.get("/api/v1/gpus/GPU-9")
        assert status == 404
        assert "of its board there are, with / as %2F in a path: GPU-9/1, GPU-9/2" in told["detail"]
    finally:
        api.close()


def test_a_uuid_that_holds_a_slash_is_found_and_listed_once(tmp_path):
    """NVIDIA's UUIDs of MIG devices before R470: MIG-GPU-UUID/GI/CI."""
    uuids = ["MIG-GPU-abc/1/0", "MIG-GPU-abc/2/0", "MIG-GPU-abc/20/0"]
    made = day(tmp_path / "tables", gpus=1, scrapes=10)
    labels = {"GPU_I_ID": "7", "GPU_I_PROFILE": "1g.10gb"}
    sliced = metric(UTIL, 9, 0, gpu_id=uuids[2], labels=labels)
    made.write([*(metric(UTIL, n, 0, gpu_id=uuid) for n, uuid in enumerate(uuids[:2])), sliced])
    api = RunningApi(tmp_path / "tables")
    try:
        ids = ["GPU-0", *uuids[:2], f"{uuids[2]}/7"]
        pages = islice(api.pages("/api/v1/gpus", "gpus", limit=1), len(ids) + 1)
        assert [gpu["id"] for page in pages for gpu in page] == ids
        for value, name in ((0, ids[1]), (1, ids[2]), (9, ids[3])):
            path = f"/api/v1/gpus/{urllib.parse.quote(name, safe='')}"
            assert api.ok(path)["gpu"]["id"] == name
            assert [row["value"] for row in telemetry(api, name)["telemetry"]] == [value]
        status, told = api.get(f"/api/v1/gpus/{urllib.parse.quote(uuids[2], safe='')}")
        assert (status, f"%2F in a path: {ids[3]}" in told["detail"]) == (404, True)
    finally:
        api.close()
