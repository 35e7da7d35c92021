"""`headrace bench mqtt` on servers that it must find out: slow, losing, damaging; and on storms."""

import json
import signal
import subprocess
import sys

import pytest

from conftest import environment, headrace, wait_for
from headrace import bench, native
from headrace.model import Address
from test_bench import figures, relay

pytestmark = pytest.mark.slow


@pytest.fixture(name="node")
def _node(shared):
    return shared


def reports(ran):
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_a_node_that_is_slow_on_purpose_is_seen(node, start_node):
    slow = start_node(HEADRACE_TESTING__BATCH_DELAY="1ms")
    ours, theirs = f"127.0.0.1:{slow.mqtt}", f"127.0.0.1:{node.mqtt}"
    report = reports(headrace(
        "bench", "mqtt", "--mqtt", ours, "--against", theirs, "--window", "1",
        "--duration", "300ms", "--warm-up", "100ms", "--rounds", "3", "--json",
    ))  # fmt: skip
    medians = report["servers"][ours]["medians"]
    assert medians["lost"] == 0
    # No message comes out before the next batch, and that stands still for 1 ms.
    assert medians["p50_ms"] >= 1
    assert medians["delivered_per_second"] < 1010
    theirs_too = report["servers"][theirs]["medians"]
    assert report["ratios"]["p50_ms"] == pytest.approx(medians["p50_ms"] / theirs_too["p50_ms"])
    assert "stands still for 1 ms" in slow.log.read_text()


@pytest.mark.parametrize(
    ("variable", "value"), [("BATCH_DELAY", "1"), ("BATCH_DELAYS", "1ms"), ("", "1ms")]
)
def test_what_tests_set_of_a_node_is_checked_and_no_setting(variable, value, tmp_path):
    data = str(tmp_path / "data")
    name = f"HEADRACE_TESTING__{variable}"
    ran = headrace("serve", "--data", data, **{name: value})
    assert ran.returncode == 2
    assert f"{name}: " in ran.stderr


def test_no_file_sets_what_only_tests_do(tmp_path):
    file = tmp_path / "headrace.toml"
    file.write_text('[testing]\nbatch_delay = "1ms"\n')
    ran = headrace("serve", "--config", str(file), "--data", str(tmp_path / "data"))
    assert ran.returncode == 2
    assert "unknown" in ran.stderr


def test_a_relay_that_drops_one_in_a_hundred_is_reported_as_losing():
    command = [sys.executable, "-m", "headrace", "bench", "relay", "--drop-every", "100"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment(), text=True)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().split()[-1]
        args = (
            "bench", "mqtt", "--mqtt", address, "--rate", "2000", "--duration", "400ms",
            "--warm-up", "100ms", "--drain", "300ms",
        )  # fmt: skip
        report = reports(headrace(*args, "--json"))
        shown = headrace(*args)
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        process.stdout.close()
    (counts,) = report["servers"][address]["rounds"]
    assert counts["lost"] == counts["published"] // 100 > 0
    assert counts["delivered"] == counts["published"] - counts["lost"]
    assert [counts[name] for name in bench.FAULTS if name != "lost"] == [0, 0, 0, 0]
    assert shown.returncode == 0
    assert f"{address}: lost " in shown.stdout
    assert "%" in shown.stdout


def test_one_damaged_byte_of_a_large_payload_is_found():
    def damaged(number, packet):
        return [packet if number % 10 else packet[:5000] + b"\0" + packet[5001:]]

    with relay(damaged) as port:
        counts = figures(port, window=5, payload=8000)
    assert counts["corrupted"] == pytest.approx(counts["published"] / 10, abs=2)
    assert counts["corrupted"] > 0


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_of_a_mebibyte_come_whole(node, version, qos):
    counts = figures(
        node.mqtt, version=version, qos=qos, payload=1 << 20, window=8, publishers=2, subscribers=2,
        duration=0.2, drain=10.0,
    )  # fmt: skip
    assert counts["trouble"] is None
    assert counts["delivered"] == counts["published"] > 0
    assert [counts[name] for name in bench.FAULTS] == [0] * len(bench.FAULTS)


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [1, 2])
def test_after_a_storm_every_session_has_what_waited_for_it(node, version, qos):
    prefix = f"storm{version}{qos}"
    load = bench.Load(
        pattern="storm", publishers=4, subscribers=40, queued=25, qos=qos, version=version,
        prefix=prefix, drain=10.0,
    )  # fmt: skip
    server = bench.Server("it", Address("127.0.0.1", node.mqtt), node.process.pid)
    (outcome,) = bench.run(load, [server], 1)["it"]
    counts, shown = outcome.counts, outcome.figures()
    assert counts["trouble"] is None
    assert counts["published"] == 4 * 25
    assert counts["delivered"] == counts["expected"] == 40 * 25
    assert [counts[name] for name in bench.FAULTS] == [0] * len(bench.FAULTS)
    assert counts["connect"]["count"] == 40
    assert counts["storm"]["forgotten"] == 0
    assert shown["back_seconds"] > 0
    assert shown["emptied_seconds"] > 0
    assert shown["connects_per_second"] == pytest.approx(40 / shown["back_seconds"])
    mine = f"/api/v1/sessions?client={prefix}*"
    wait_for(lambda: node.call("GET", mine)[1]["sessions"] == [])


def test_a_storm_is_run_from_the_command_line(node):
    address = f"127.0.0.1:{node.mqtt}"
    ran = headrace(
        "bench", "mqtt", "--mqtt", address, "--pattern", "storm", "--publishers", "2",
        "--subscribers", "20", "--queued", "5",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert "emptied_seconds" in ran.stdout
    assert "connect_p99_ms" in ran.stdout


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--queued", "5"], "--pattern storm"),
        (["--pattern", "storm", "--qos", "0"], "QoS 1 and 2"),
        (["--pattern", "storm", "--publishers", "2", "--subscribers", "3"], "multiple"),
    ],
)
def test_what_is_no_storm_is_said_in_a_line(args, words):
    ran = headrace("bench", "mqtt", *args)
    assert ran.returncode == 2
    assert words in ran.stderr


def test_each_second_is_told(node):
    load = bench.Load(warm_up=0.1, duration=2.0, rate=100.0, drain=5.0)
    server = bench.Server("it", Address("127.0.0.1", node.mqtt))
    (outcome,) = bench.run(load, [server], 1)["it"]
    by_second, shown = outcome.counts["by_second"], outcome.figures()
    assert len(by_second) == 2
    assert sum(by_second) <= outcome.counts["measured"]
    assert (shown["slowest_second"], shown["fastest_second"]) == (min(by_second), max(by_second))
    assert 0 <= shown["generator_busy"] <= 1


def test_a_relay_is_stopped_once_and_has_its_port_alone():
    first = native.MqttRelay("127.0.0.1:0")
    ran = headrace("bench", "relay", "--mqtt", first.address)
    assert ran.returncode == 2
    assert "Address already in use" in ran.stderr
    first.stop()
    first.stop()
    with pytest.raises(ValueError, match="address"):
        native.MqttRelay("localhost:0")
