"""`headrace bench mqtt`: what it says of headrace, of a server with faults, and of no server."""

import json
import socket
import socketserver
import struct
import threading
from contextlib import contextmanager

import pytest

from conftest import headrace, wait_for
from headrace import bench, native
from headrace.errors import InputError
from headrace.model import Address

pytestmark = pytest.mark.slow


@pytest.fixture(name="node")
def _node(shared):
    return shared


QUICK = {"warm_up": 0.1, "duration": 0.5, "drain": 1.0, "version": 4}


def figures(port, **plan):
    load = bench.Load(**(QUICK | plan))
    server = bench.Server("it", Address("127.0.0.1", port))
    (outcome,) = bench.run(load, [server], 1)["it"]
    return outcome.figures() | {"trouble": outcome.counts["trouble"]}


def packets(stream):
    """(first byte, body) of each packet that a client sends."""
    while first := stream.read(1):
        length = shift = 0
        while True:
            byte = stream.read(1)[0]
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        yield first[0], stream.read(length)


def published(topic, payload):
    body = struct.pack(">H", len(topic)) + topic + payload
    assert len(body) < 16_384
    return bytes([0x30, len(body) & 0x7F | 0x80, len(body) >> 7]) + body


class Relay(socketserver.ThreadingTCPServer):
    """A server of MQTT 3.1.1 at QoS 0 for one subscriber, that does to messages what it is told.

    `fault(number, packet)` gives the packets that are delivered in place of the number-th one.
    """

    daemon_threads = True

    def __init__(self, fault):
        super().__init__(("127.0.0.1", 0), Session)
        self.fault = fault
        self.subscriber = None
        self.number = 0


class Session(socketserver.StreamRequestHandler):
    def handle(self):
        for first, body in packets(self.rfile):
            match first >> 4:
                case 1:
                    self.request.sendall(b"\x20\x02\x00\x00")
                case 8:
                    self.server.subscriber = self.request
                    self.request.sendall(b"\x90\x03" + body[:2] + b"\x00")
                case 3:
                    length = struct.unpack_from(">H", body)[0]
                    message = published(body[2 : 2 + length], body[2 + length :])
                    number = self.server.number
                    self.server.number += 1
                    for packet in self.server.fault(number, message):
                        self.server.subscriber.sendall(packet)


@contextmanager
def relay(fault):
    with Relay(fault) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def test_a_sound_server_has_no_faults():
    with relay(lambda _, packet: [packet]) as port:
        counts = figures(port)
    assert counts["delivered"] == counts["published"] == counts["expected"] > 100
    assert {name: counts[name] for name in bench.FAULTS} == dict.fromkeys(bench.FAULTS, 0)
    assert counts["trouble"] is None
    assert 0 < counts["p50_ms"] <= counts["p99_ms"] <= counts["max_ms"]


def zeroed(packet):
    return packet[:-100] + bytes(100)


def swapping():
    held = []

    def swap(number, packet):
        if number % 10 == 3:
            held.append(packet)
            return []
        return [packet, *(held.pop() for _ in list(held))]

    return swap


@pytest.mark.parametrize(
    ("fault", "kind", "share"),
    [
        (lambda number, packet: [packet] if number % 10 else [], "lost", 0.1),
        (lambda number, packet: [packet] * (1 + (number % 10 == 3)), "duplicated", 0.1),
        (swapping(), "reordered", 0.1),
        (lambda number, packet: [packet if number % 10 else zeroed(packet)], "corrupted", 0.1),
        (lambda _, packet: [packet, packet.replace(b"/0", b"/1")], "corrupted", 1),
    ],
    ids=["lost", "duplicated", "reordered", "overwritten", "another topic"],
)  # fmt: skip
def test_each_fault_of_a_server_is_counted(fault, kind, share):
    with relay(fault) as port:
        counts = figures(port, window=50)
    assert counts["published"] > 200
    assert counts[kind] == pytest.approx(counts["published"] * share, abs=2)
    others = set(bench.FAULTS) - {kind} - ({"lost"} if share < 1 and kind == "corrupted" else set())
    if kind == "reordered":  # what is held back when the run ends comes no more
        others -= {"lost"}
        assert counts["lost"] <= 1
    assert {name: counts[name] for name in others} == dict.fromkeys(others, 0)


def test_on_a_schedule_a_stall_counts_for_every_message_that_it_held_up():
    release = threading.Event()

    def stall(number, packet):
        if number == 20:
            release.wait(0.6)
        return [packet]

    with relay(stall) as port:
        counts = figures(port, rate=100.0, warm_up=0, duration=1.0)
    assert counts["published"] == pytest.approx(100, abs=10)
    assert counts["lost"] == 0
    # 60 messages were due while the server stood still; a closed loop would have seen one.
    assert counts["p90_ms"] > 300


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize(
    ("pattern", "publishers", "subscribers"), [("pair", 3, 3), ("all", 2, 4), ("share", 4, 2)]
)
def test_headrace_delivers_everything(node, version, qos, pattern, publishers, subscribers):
    counts = figures(
        node.mqtt, version=version, qos=qos, pattern=pattern, publishers=publishers,
        subscribers=subscribers, warm_up=0.05, duration=0.1,
    )  # fmt: skip
    assert counts["trouble"] is None
    copies = subscribers if pattern == "all" else 1
    assert counts["delivered"] == counts["published"] * copies > 0
    assert [counts[name] for name in bench.FAULTS] == [0] * len(bench.FAULTS)


@pytest.mark.parametrize("version", [4, 5])
def test_sessions_that_last_are_measured_and_end_with_the_run(node, version):
    mine = "/api/v1/sessions?client=bench-lasts*"
    kept = []

    def watch(_server, _round, counts):
        if counts["phase"] == "measuring":
            sessions = node.call("GET", mine)[1]["sessions"]
            kept.append(sum(each["expiry_seconds"] != 0 for each in sessions))

    load = bench.Load(
        version=version, qos=1, publishers=2, subscribers=2, session_expiry=60,
        prefix="bench/lasts", warm_up=0.1, duration=1.0, drain=5.0,
    )  # fmt: skip
    server = bench.Server("it", Address("127.0.0.1", node.mqtt))
    (outcome,) = bench.run(load, [server], 1, watch)["it"]
    counts = outcome.counts
    assert counts["delivered"] == counts["published"] > 0
    assert kept[0] == 2
    wait_for(lambda: node.call("GET", mine)[1]["sessions"] == [])


def test_who_is_silent_is_not_taken_for_gone(start_node):
    node = start_node(HEADRACE_MQTT__KEEP_ALIVE_MAX="1s")
    load = bench.Load(version=5, publishers=0, subscribers=2, idle=2, pattern="all", duration=3.0)
    server = bench.Server("it", Address("127.0.0.1", node.mqtt))
    (outcome,) = bench.run(load, [server], 1)["it"]
    assert outcome.counts["trouble"] is None
    assert outcome.counts["connected"] == 4


def test_the_command_compares_two_servers(node):
    with relay(lambda _, packet: [packet]) as port:
        ran = headrace(
            "bench", "mqtt", "--mqtt", f"127.0.0.1:{node.mqtt}", "--pid", str(node.process.pid),
            "--against", f"127.0.0.1:{port}", "--protocol", "3.1.1", "--duration", "300ms",
            "--warm-up", "100ms", "--rounds", "2", "--json",
        )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    report = json.loads(ran.stdout)
    ours = report["servers"][f"127.0.0.1:{node.mqtt}"]
    theirs = report["servers"][f"127.0.0.1:{port}"]
    assert len(ours["rounds"]) == len(theirs["rounds"]) == 2
    assert ours["medians"]["cpu_seconds_per_million"] > 0
    assert theirs["medians"]["cpu_seconds_per_million"] is None
    assert report["ratios"]["delivered_per_second"] == pytest.approx(
        ours["medians"]["delivered_per_second"] / theirs["medians"]["delivered_per_second"]
    )


def test_idle_connections_tell_what_each_takes(node):
    ran = headrace(
        "bench", "mqtt", "--mqtt", f"127.0.0.1:{node.mqtt}", "--pid", str(node.process.pid),
        "--publishers", "0", "--subscribers", "0", "--idle", "300", "--duration", "300ms",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert "connects_per_second" in ran.stdout
    assert "bytes_per_connection" in ran.stdout


def test_what_cannot_be_run_is_said_in_a_line():
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    ran = headrace("bench", "mqtt", "--mqtt", f"127.0.0.1:{port}", "--drain", "1s")
    assert ran.returncode == 1
    assert "Connection refused" in ran.stderr
    assert "Traceback" not in ran.stderr
    for args, words in [
        (["--pid", "4194304"], "process 4194304"),
        (["--payload", "15B"], "16 bytes"),
        (["--pattern", "pair", "--subscribers", "2"], "as many publishers as subscribers"),
        (["--mqtt", "nowhere"], "HOST:PORT"),
        (["--session-expiry", "4294967296"], "4294967295"),
        (["--idle", "4294967296"], "open files"),
        (["--pattern", "storm", "--queued", "9" * 20], "1000000000000"),
        (["--rate", "nan"], "nan is no number"),
        (["--user", "u", "--password-file", "/nonexistent"], "/nonexistent"),
    ]:
        ran = headrace("bench", "mqtt", "--duration", "100ms", *args)
        assert ran.returncode == 2, ran.stderr
        assert words in ran.stderr
        assert len(ran.stderr.splitlines()) <= 3
    ran = headrace("bench", "mqtt", "--duration", "31d")
    assert ran.returncode == 2
    assert "at most 30d" in ran.stderr


def test_a_server_that_answers_nothing_is_given_up():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        ran = headrace(
            "bench", "mqtt", "--mqtt", f"127.0.0.1:{silent.getsockname()[1]}", "--drain", "300ms"
        )
    assert ran.returncode == 1
    assert "no connection was answered" in ran.stderr


def test_a_name_is_looked_up(node):
    load = bench.Load(**QUICK)
    server = bench.Server("it", Address("localhost", node.mqtt))
    assert bench.run(load, [server], 1)["it"][0].counts["lost"] == 0
    with pytest.raises(InputError, match="cannot find"):
        bench.run(load, [bench.Server("it", Address("no-such-host.invalid", 1883))], 1)


def test_counts_are_given_once():
    with relay(lambda _, packet: [packet]) as port:
        load = native.MqttLoad(
            f"127.0.0.1:{port}", version=4, prefix="b", credentials=None, session_expiry=0,
            publishers=1, subscribers=1, idle=0, opening=1, pattern="pair", qos=0, payload=16,
            window=1, rate=None, warm_up=0, duration=60, drain=1,
        )  # fmt: skip
        load.stop()
        assert load.finish()["corrupted"] == 0
    with pytest.raises(RuntimeError):
        load.finish()
