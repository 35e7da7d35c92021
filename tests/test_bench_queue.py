"""`headrace bench queue`: figures add up, what is stuck or deep shows, and errors are a line."""

import json
import socket

import pytest

from conftest import headrace
from headrace.bench.queue import Load, cases_of
from headrace.errors import InputError

pytestmark = pytest.mark.slow


@pytest.fixture(name="node")
def _node(shared):
    return shared


def ran(node, *args):
    return headrace(
        "bench", "queue", "--mqtt", f"127.0.0.1:{node.mqtt}", "--url",
        f"http://127.0.0.1:{node.http}", "--publishers", "2", "--consumers", "2", "--warm-up",
        "100ms", "--duration", "300ms", *args,
    )  # fmt: skip


def cases(node, *args):
    found = ran(node, *args, "--json")
    assert found.returncode == 0, found.stderr
    assert found.stderr == ""
    assert node.call("GET", "/api/v1/queues")[1]["queues"] == []
    return json.loads(found.stdout)["cases"]


FAULTS = ("lost", "duplicated", "corrupted", "disconnected", "refused", "unsettled", "owed")


def adds_up(figures):
    assert figures["enqueued"] == figures["delivered"] == figures["settled"] > 0
    assert {name: figures[name] for name in FAULTS} == dict.fromkeys(FAULTS, 0)


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["--settle", "puback"],
        ["--ack-batch", "20", "--partitions", "3", "--order", "key", "--keys", "50"],
        ["--order", "strict", "--rate", "200"],
    ],
    ids=" ".join,
)
def test_what_is_enqueued_is_delivered_and_settled(node, args):
    (case,) = cases(node, *args, "--pid", str(node.process.pid)).values()
    figures = case["medians"]
    adds_up(figures)
    assert figures["redelivered"] == 0
    assert figures["reordered"] == (0 if "--order" in args else None)
    assert figures["settled_per_second"] > 0
    assert figures["cpu_seconds_per_million"] > 0
    assert figures["resident_bytes"] > 0
    by_puback = "puback" in args
    assert (figures["settled_p99_ms"] is None) == (figures["settle_max_ms"] is None) == by_puback
    if not by_puback:
        assert 0 < figures["settled_p50_ms"] <= figures["settled_p99_9_ms"]
        assert figures["settled_max_ms"] >= figures["settle_max_ms"]
    (counts,) = case["rounds"]
    assert counts["queue"]["open"] == 0
    assert counts["trouble"] is None


def test_what_stuck_consumers_had_comes_again_to_the_others(node):
    found = cases(node, "--stuck", "2", "--prefetch", "10")
    assert list(found) == ["plain", "2 stuck"]
    adds_up(found["plain"]["medians"])
    stuck = found["2 stuck"]
    figures = stuck["medians"]
    adds_up(figures)
    assert figures["at_stuck_consumers"] == figures["redelivered"] == 20
    assert stuck["base"] == "plain"
    plain = found["plain"]["medians"]["settled_per_second"]
    assert stuck["ratios"]["settled_per_second"] == figures["settled_per_second"] / plain


@pytest.mark.soak
def test_a_deadline_brings_to_others_what_is_not_settled(node):
    found = ran(
        node, "--stuck", "1", "--prefetch", "10", "--set", "ack.deadline.ms=200ms", "--set",
        "retry.backoff.ms=1ms", "--duration", "500ms", "--json",
    )  # fmt: skip
    figures = json.loads(found.stdout)["cases"]["1 stuck"]["medians"]
    assert figures["enqueued"] == figures["delivered"] == figures["settled"] > 0
    assert figures["redelivered"] > 10
    assert figures["lost"] == figures["owed"] == 0


def test_a_queue_is_deep_before_it_is_consumed(node):
    found = cases(node, "--depth", "3000")
    figures = found["depth 3,000"]["medians"]
    adds_up(figures)
    assert figures["enqueued"] > 3_000
    assert figures["filled_per_second"] > 0
    assert found["plain"]["medians"]["filled_per_second"] is None


def test_deliveries_stay_open_while_others_are_settled(node):
    found = cases(node, "--in-flight", "2000", "--settlements", "3000", "--ack-batch", "7")
    assert list(found) == ["200 open", "2,000 open", "2,000 at random"]
    for name, case in found.items():
        figures = case["medians"]
        adds_up(figures)
        assert figures["settled"] == 3_000 + (200 if name == "200 open" else 2_000)
        rate = 1e9 / figures["nanoseconds_per_settlement"]
        assert figures["settled_per_second"] == pytest.approx(rate)
    assert found["2,000 at random"]["base"] == "200 open"


@pytest.mark.soak
def test_a_table_is_for_people(node):
    found = ran(node, "--stuck", "1", "--rounds", "2")
    assert found.returncode == 0, found.stderr
    for words in ("settled_per_second", "1 stuck", "ratio"):
        assert words in found.stdout


@pytest.mark.soak
def test_settlements_that_do_not_count_are_told(node):
    found = ran(
        node, "--in-flight", "500", "--settlements", "500", "--set", "ack.deadline.ms=1ms",
        "--set", "retry.backoff.ms=0", "--drain", "500ms", "--json",
    )  # fmt: skip
    report = json.loads(found.stdout)["cases"]["500 open"]["medians"]
    assert report["unsettled"] > 0
    assert "500 open: a settlement was answered with reason code 0x" in found.stderr


def test_what_cannot_be_run_is_said_in_a_line(node):
    for args, words in [
        (["--settle", "puback", "--ack-batch", "2"], "--ack-batch is of --settle ack"),
        (["--set", "nothing=1"], "nothing"),
        (["--payload", "15B"], "16 bytes"),
        (["--pid", "4194304"], "process 4194304"),
        (["--publishers", "4294967296"], "open files"),
        (["--depth", "9" * 20], "1000000000000"),
        (["--rate", "inf"], "inf is no number"),
    ]:
        found = ran(node, *args)
        assert found.returncode == 2, found.stderr
        assert words in found.stderr
        assert len(found.stderr.splitlines()) <= 3
    assert node.call("GET", "/api/v1/queues")[1]["queues"] == []


@pytest.mark.parametrize(
    ("load", "in_flight", "words"),
    [
        (Load(settle="puback"), 10, "limits.session_in_flight"),
        (Load(order="key"), 10, "--order none"),
        (Load(order="strict", partitions=2), 0, "one partition"),
        (Load(ack_batch=20, prefetch=10), 0, "larger than --prefetch"),
    ],
    ids=["puback", "order", "partitions", "batch"],
)
def test_loads_that_make_no_sense_are_refused(load, in_flight, words):
    with pytest.raises(InputError, match=words):
        cases_of(load, stuck=0, depth=0, in_flight=in_flight)


def test_doors_that_are_not_there_are_named(node):
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    found = ran(node, "--url", f"http://127.0.0.1:{port}")
    assert found.returncode == 1
    assert f"no node answers at http://127.0.0.1:{port}" in found.stderr
    found = ran(node, "--mqtt", f"127.0.0.1:{port}", "--drain", "1s")
    assert found.returncode == 1
    assert "Connection refused" in found.stderr
    assert node.call("GET", "/api/v1/queues")[1]["queues"] == []


def test_a_million_open_deliveries_take_clients_enough():
    base, ordered, at_random = (
        case.load for case in cases_of(Load(settlements=1), stuck=0, depth=0, in_flight=1_000_000)
    )
    assert base.consumers == ordered.consumers == 17
    assert 1_000_000 / 17 < ordered.prefetch < 65_535
    assert (base.open, ordered.open) == (1_000, 1_000_000)
    assert (ordered.at_random, at_random.at_random) == (False, True)


@pytest.mark.soak
def test_fifty_million_messages_are_consumed_as_fast_as_none(node):
    found = headrace(
        "bench", "queue", "--mqtt", f"127.0.0.1:{node.mqtt}", "--url",
        f"http://127.0.0.1:{node.http}", "--depth", "50000000", "--ack-batch", "50", "--drain",
        "60s", "--json", timeout=3_000,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    deep = json.loads(found.stdout)["cases"]["depth 50,000,000"]["medians"]
    adds_up(deep)
    assert deep["enqueued"] > 50_000_000
