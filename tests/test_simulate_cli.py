"""`headrace simulate fleet` against a running node, and into files."""

import gzip
import json
import signal
import subprocess
import sys

import pytest

from conftest import environment, headrace
from headrace.client import FetchClient
from headrace.collect import CsvFile, Pause
from headrace.simulate import Kind, in_time
from simulated import fleet
from test_collect_cli import records

SMALL = ("--gpus", "9", "--duration", "3m", "--faults", "none", "--seed", "5")


def simulate(*args):
    return headrace("simulate", "fleet", *map(str, args), timeout=120)


def key(payload):
    return payload["gpu_id"], payload["event_time"]


@pytest.mark.slow
def test_a_fleet_is_stored_scrape_by_scrape(start_node, tmp_path):
    node, truth = start_node(), tmp_path / "truth.jsonl"
    ran = simulate(
        "--gpus", 32, "--duration", "1h", "--interval", "30s", "--faults-per-kind", 1, "--json",
        "--faults", "vanished,stale,xid,pcie", "--truth", truth, "--seed", 2,
        "--mqtt", f"127.0.0.1:{node.mqtt}", "--source", "fleet/two",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    counts = json.loads(ran.stdout)
    kinds = frozenset({Kind.VANISHED, Kind.STALE, Kind.XID, Kind.PCIE})
    made = fleet(32, 1, interval_us=30_000_000, faults_per_kind=1, kinds=kinds, seed=2)
    scrapes = list(made.scrapes())
    assert counts["messages"] == len(scrapes)
    assert counts["acknowledged"] == sum(len(scrape.metrics) for scrape in scrapes)
    assert (counts["gpus"], counts["faults"]) == (32, 4)
    stored = [json.loads(value) for _, _, _, value, _ in records(node)]
    assert len(stored) == len(scrapes)
    expected = sorted(
        (scrape.uuid, scrape.host, sorted(scrape.metrics.items()), dict(scrape.labels))
        for scrape in scrapes
    )
    found = sorted(
        (one["gpu_id"], one["hostname"], sorted(one["metrics"].items()), one["labels"])
        for one in stored
    )
    assert json.dumps(found) == json.dumps(expected)
    assert truth.read_text(encoding="utf-8").splitlines() == list(made.truth())
    assert all(one["event_time"] < one["ingest_time"] for one in stored)


@pytest.mark.slow
def test_narrow_messages_hold_a_reading_each(start_node):
    node = start_node()
    ran = simulate(*SMALL, "--narrow", "--mqtt", f"127.0.0.1:{node.mqtt}", "--json")
    assert ran.returncode == 0, ran.stderr
    counts = json.loads(ran.stdout)
    assert counts["messages"] == counts["acknowledged"] == len(list(records(node)))
    assert counts["source"].endswith("/simulated-fleet-5")


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_fleet_at_real_speed_ends_with_a_signal(start_node, number, code):
    node = start_node()
    process = subprocess.Popen(
        [
            sys.executable, "-m", "headrace", "simulate", "fleet", "--speed", "1", "--json",
            "--gpus", "80", "--faults", "none", "--mqtt", f"127.0.0.1:{node.mqtt}",
        ],
        env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with FetchClient(node.servers) as client:
        starts = client.latest_offsets("gpu-telemetry")
        while not sum(client.latest_offsets("gpu-telemetry").values()):
            client.fetch("gpu-telemetry", min(starts), 0, 1, 20)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    counts = json.loads(out)
    assert 0 < counts["acknowledged"] == counts["published"]
    assert counts["messages"] < 80 * 240 * 6 / 10  # nothing like the whole
    stored = [json.loads(value) for _, _, _, value, _ in records(node)]
    assert len(stored) == counts["messages"]


def test_messages_are_given_when_they_are_due():
    scrapes = list(fleet(8, 0.05, kinds=frozenset()).scrapes())
    start_us = scrapes[0].arrival_us - 4_000_000
    clock = iter([0.0, 1.9, 2.0, *[1e9] * 1000])
    shape = lambda readings, _: iter([next(iter(readings)).uuid])  # noqa: E731
    got = list(in_time(scrapes, shape, start_us, 2.0, lambda: next(clock)))
    assert got[:2] == [Pause(2.0), Pause(pytest.approx(0.1))]
    assert got[2:] == [scrape.uuid for scrape in scrapes]


def test_a_file_is_what_would_be_published_and_always_the_same(tmp_path):
    first, second, plain = (tmp_path / name for name in ("a.csv.gz", "b.csv.gz", "c.csv"))
    for file in (first, second, plain):
        ran = simulate(*SMALL, "--out", file)
        assert ran.returncode == 0, ran.stderr
        assert f"readings of 9 GPUs with 0 faults in {file}" in ran.stdout
    assert first.read_bytes() == second.read_bytes()
    assert gzip.decompress(first.read_bytes()) == plain.read_bytes()
    made = fleet(9, 0.05, kinds=frozenset(), seed=5)
    assert list(CsvFile(first)) == [one for scrape in made.scrapes() for one in scrape.readings()]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ("--gpus 0", "--gpus"),
        ("--gpus 1000000", "--gpus"),
        ("--duration 6", "duration with its unit"),
        ("--duration 5s", "from 60s"),
        ("--duration 90d", "from 60s"),
        ("--hours nan", "--hours"),
        ("--hours 1 --duration 1h", "contradict each other"),
        ("--interval 0s", "from 1s to 60s"),
        ("--faults thermals", "did you mean 'thermal'?"),
        ("--faults xid,none", "'none' is no kind of fault"),
        ("--start yesterday", "must be a time such as"),
        ("--start 9999-12-31T00:00:00Z", "must be a time such as"),
        ("--start 1969-12-31T00:00:00Z", "must be in 1970 or later"),
        ("--speed 0", "number above 0"),
        ("--speed nan", "number above 0"),
        ("--mqtt 1883", "HOST:PORT"),
        ("--source " + "x" * 201, "--source"),
        ("--truth=", "the path is empty"),
        ("--out fleet.csv --speed 2", "--speed is for publishing"),
        ("--out fleet.csv --truth ./fleet.csv", "--out and --truth name one file"),
        ("--out fleet.csv --mqtt 127.0.0.1:1", "--mqtt is for publishing"),
        ("--gpus 2 --hours 1", "straggler: no room for fault 1 of 3 on 2 GPUs"),
        ("--duration 20m --faults pcie", "pcie: shows in 15 minutes at least"),
    ],
)
def test_wrong_use_is_exit_2_in_three_lines(args, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ran = simulate(*args.split())
    assert (ran.returncode, ran.stdout) == (2, ""), ran.stderr
    assert says in ran.stderr
    assert len(ran.stderr.strip().splitlines()) <= 3
    assert not list(tmp_path.iterdir())
