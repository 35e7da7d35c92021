"""`headrace collect csv` against a running node."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import environment, headrace
from headrace.client import FetchClient
from headrace.collect import CsvFile, Origin, Publisher, narrow
from headrace.errors import PublishError
from headrace.model import Address
from headrace.native import decode_records

pytestmark = pytest.mark.slow

DATA = Path(__file__).parent / "data"
SNAPSHOT = DATA / "dcgm_snapshot.csv"
STREAM = "gpu-telemetry"


def collect(node, *args):
    return headrace("collect", "csv", "--mqtt", f"127.0.0.1:{node.mqtt}", *map(str, args))


def records(node):
    with FetchClient(node.servers) as client:
        for partition, end in client.latest_offsets(STREAM).items():
            at = 0
            while at < end:
                batches = client.fetch(STREAM, partition, at, 1 << 20, 0)
                columns = decode_records(batches, at, end, 100_000)
                yield from columns.rows()
                at = columns.next_offset


def test_a_file_is_stored_reading_by_reading(start_node):
    node = start_node()
    ran = collect(node, SNAPSHOT, "--json", "--source", "fleet/one")
    assert ran.returncode == 0, ran.stderr
    counts = json.loads(ran.stdout)
    assert (counts["published"], counts["acknowledged"], counts["messages"]) == (300, 300, 300)
    found = list(records(node))
    assert len(found) == 300
    sequences = set()
    for _, _, key, value, headers in found:
        payload = json.loads(value)
        named = {name: text.decode() for name, text in headers}
        host, uuid, metric = payload["hostname"], payload["gpu_id"], payload["metric_name"]
        assert named["mqtt.topic"] == f"dcgm/{host}/{uuid}/{metric}"
        assert key.decode() == uuid
        assert (named["source"], int(named["epoch"])) == ("fleet/one", counts["epoch"])
        sequences.add(int(named["sequence"]))
    assert sequences == set(range(1, 301))


def test_wide_messages_and_more_gpus(start_node):
    node = start_node()
    ran = collect(node, SNAPSHOT, "--json", "--wide", "--gpus", 20)
    assert ran.returncode == 0, ran.stderr
    counts = json.loads(ran.stdout)
    assert counts["acknowledged"] == 400
    values = [json.loads(value) for _, _, _, value, _ in records(node)]
    assert counts["messages"] == len(values)
    assert sum(len(value["metrics"]) for value in values) == 400
    assert len({value["gpu_id"] for value in values}) == 20


def test_a_second_run_is_a_new_epoch_and_an_older_one_is_refused(start_node):
    node = start_node()
    first, second = (collect(node, SNAPSHOT, "--json") for _ in range(2))
    assert first.returncode == second.returncode == 0
    one, two = json.loads(first.stdout), json.loads(second.stdout)
    assert one["source"] == two["source"]
    assert one["epoch"] < two["epoch"]
    older = Publisher(Address("127.0.0.1", node.mqtt), Origin(one["source"], one["epoch"]))
    with pytest.raises(PublishError, match="newer collector publishes as"):
        older.run(narrow(CsvFile(SNAPSHOT), lambda: 0))
    assert len(list(records(node))) == 600


@pytest.mark.parametrize(
    ("args", "number", "code"),
    [
        (["--loop"], signal.SIGINT, 0),
        (["--loop"], signal.SIGTERM, 0),
        (["--rate", "100/s"], signal.SIGINT, 130),
        (["--rate", "100/s"], signal.SIGTERM, 143),
    ],
)
def test_a_signal_brings_home_what_is_out(start_node, args, number, code):
    node = start_node()
    process = subprocess.Popen(
        [
            sys.executable, "-m", "headrace", "collect", "csv", str(SNAPSHOT), "--json",
            "--mqtt", f"127.0.0.1:{node.mqtt}", *args,
        ],
        env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with FetchClient(node.servers) as client:
        starts = client.latest_offsets(STREAM)
        # Blocks until a first record is stored, in whichever partition.
        while not sum(client.latest_offsets(STREAM).values()):
            client.fetch(STREAM, min(starts), 0, 1, 20)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    counts = json.loads(out)
    assert 0 < counts["acknowledged"] == counts["published"]
    assert len(list(records(node))) == counts["messages"]


def test_an_outage_is_said_and_got_over(start_node):
    node = start_node()
    process = subprocess.Popen(
        [
            sys.executable, "-m", "headrace", "collect", "csv", str(SNAPSHOT), "--json",
            "--mqtt", f"127.0.0.1:{node.mqtt}", "--rate", "100/s",
        ],
        env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with FetchClient(node.servers) as client:
        while not sum(client.latest_offsets(STREAM).values()):
            client.fetch(STREAM, 0, 0, 1, 20)
    node.kill()
    assert "waiting for the broker" in process.stderr.readline()
    again = start_node.again(node)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert json.loads(out)["acknowledged"] == len(list(records(again))) == 300


IMPATIENT = """
from headrace import job_limits
job_limits.COLLECT_START_SECONDS = 0.0
from headrace.cli import main
main()
"""


def test_no_broker_is_exit_1_and_says_what_to_do():
    ran = subprocess.run(
        [
            sys.executable, "-c",
            IMPATIENT,
            "collect", "csv", str(SNAPSHOT), "--mqtt", "127.0.0.1:1",
        ],
        env=environment(), capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert ran.returncode == 1
    assert "no broker answers at 127.0.0.1:1" in ran.stderr
    assert "headrace serve" in ran.stderr
    assert ran.stdout == ""


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["nothing.csv"], "no such file"),
        ([str(DATA)], "is a folder"),
        ([__file__], "no CSV of GPU readings"),
        ([str(SNAPSHOT), "--rate", "0"], "rate above 0"),
        ([str(SNAPSHOT), "--rate", "5/year"], "rate above 0"),
        ([str(SNAPSHOT), "--mqtt", "1883"], "HOST:PORT"),
        ([str(SNAPSHOT), "--gpus", "0"], "--gpus"),
        ([str(SNAPSHOT), "--gpus", "1000000000"], "--gpus"),
        ([str(SNAPSHOT), "--source", "x" * 201], "--source"),
    ],
)
def test_wrong_use_is_exit_2_in_three_lines(args, says):
    ran = headrace("collect", "csv", *args)
    assert ran.returncode == 2
    assert says in ran.stderr
    assert len(ran.stderr.strip().splitlines()) <= 3
    assert ran.stdout == ""
