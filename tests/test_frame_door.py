"""What opens and ends a connection of the frame door, who may, and what all of them may hold."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import threading

import pytest

from conftest import wait_for
from frameclient import Ack, Ending, FrameConnection, Mark, frame
from headrace import limits, native
from headrace.model import Address
from headrace.node.frame import FrameDoor, FrameSettings
from kafkaraw import RawConnection
from nodes import running, settle


@pytest.fixture(scope="module")
def node(shared):
    return shared


# --- the first line -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "code", "error"),
    [
        (b"", 42, "the first line must be a JSON object"),
        (b"GET / HTTP/1.1\r", 42, "the first line must be a JSON object"),
        (b"[" * 8000, 42, "the first line must be a JSON object"),
        (b'{"stream": "s", "mode": "produce", "offset": ' + b"9" * 5000 + b"}", 42, "JSON object"),
        (b'{"stream": "s"}', 42, 'mode must be "produce" or "consume"; got none'),
        (b'{"stream": "s", "mode": ["produce"]}', 42, "mode must be"),
        (b'{"stream": 7, "mode": "produce"}', 42, "stream must be a string; got 7"),
        (b'{"mode": "produce"}', 42, "stream must be a string; got none"),
        (b'{"straem": "s", "mode": "produce"}', 42, "'straem' is unknown; did you mean 'stream'?"),
        (b'{"stream": "s", "mode": "produce", "acks": 2}', 21, 'acks must be 0, 1 or "all"; got 2'),
        (b'{"stream": "s", "mode": "produce", "acks": true}', 21, "acks must be"),
        (b'{"stream": "s", "mode": "produce", "offset": 1}', 42, "offset means nothing to who"),
        (b'{"stream": "s", "mode": "consume", "acks": 1}', 42, "acks means nothing to who wants"),
        (b'{"stream": "s", "mode": "produce", "partition": -1}', 42, "partition must be a number"),
        (b'{"stream": "s", "mode": "produce", "partition": 1.5}', 42, "partition must be a number"),
        (b'{"stream": "s", "mode": "consume"}', 42, 'offset must be a number, "earliest"'),
        (b'{"stream": "s", "mode": "consume", "offset": -1}', 42, "offset must be a number"),
        (b'{"stream": "s", "mode": "consume", "offset": "first"}', 42, "got 'first'"),
        (b'{"stream": "s", "mode": "consume", "offset": {"time": 1}}', 42, "offset must be"),
        (b'{"stream": "s", "mode": "produce", "password": 1234}', 42, "password must be a string"),
        (rb'{"stream": "\ud800", "mode": "produce"}', 42, "stream holds half of a surrogate pair"),
        (
            rb'{"stream": "s", "mode": "produce", "username": "\udfff"}',
            42,
            "username holds half of",
        ),
        (
            rb'{"stream": "s", "mode": "produce", "password": "\ud800"}',
            42,
            "password holds half of",
        ),
        (b'{"stream": "none", "mode": "produce"}', 3, "no stream is named 'none'"),
        (b'{"stream": "none", "mode": "consume", "offset": 0}', 3, "no stream is named 'none'"),
        (b'{"stream": "__offsets", "mode": "produce"}', 17, "the node's own streams"),
        (b'{"stream": "__mqtt", "mode": "consume", "offset": 0}', 17, "the node's own streams"),
        (b"x" * 9000, 42, "the first line has more than 8192 bytes"),
    ],
)
def test_a_line_that_asks_for_nothing_there_is(node, line, code, error):
    with FrameConnection(node, line=line) as client:
        assert client.answer is not None
        assert (client.answer["ok"], client.answer["code"]) == (False, code)
        assert error in client.answer["error"]
        assert "\n" not in client.answer["error"]
        assert "1234" not in client.answer["error"]
        assert client.take(1) is None


def test_a_partition_that_is_not_there_or_must_be_said(node, stream):
    for mode, extra in (("produce", {}), ("consume", {"offset": 0})):
        with FrameConnection(node, stream, mode, partition=3, **extra) as client:
            assert client.answer["name"] == "UNKNOWN_TOPIC_OR_PARTITION"
            assert "no partition 3: it has 3, from 0 on" in client.answer["error"]
    with FrameConnection(node, stream, "consume", offset=0) as client:
        assert "partition is missing" in client.answer["error"]


@pytest.mark.setting("frame.connect_timeout", "frame.idle_timeout", "frame.heartbeat_interval")
def test_who_says_nothing_is_ended(start_node):
    node = start_node(
        HEADRACE_FRAME__CONNECT_TIMEOUT="100ms",
        HEADRACE_FRAME__IDLE_TIMEOUT="200ms",
        HEADRACE_FRAME__HEARTBEAT_INTERVAL="100ms",
    )
    node.create_stream("s", partitions=1)
    with socket.create_connection(("127.0.0.1", node.frame), timeout=30) as late:
        late.sendall(b'{"stream": ')  # and no more
        answer = json.loads(late.makefile("rb").readline())
        assert (answer["code"], answer["error"]) == (7, "no whole line within 0.1 s")
    with (
        FrameConnection(node, "s") as silent,
        FrameConnection(node, "s") as drips,
        FrameConnection(node, "s", "consume", offset=0) as reader,
    ):
        silent.send(frame(b"k", b"v"))
        silent.acknowledged(1)
        assert silent.answered() == Ending(7, "no whole frame came within 0.2 s")
        with contextlib.suppress(ConnectionError):  # a byte at a time is no frame
            for byte in frame(b"k", b"v" * 100_000):
                if not drips_on(drips, byte):
                    break
        assert drips.answered() == Ending(7, "no whole frame came within 0.2 s")
        while (each := reader.next()) == Mark(0):
            pass
        assert each.offset == 0
        assert [reader.next() for _ in range(10)] == [Mark(1)] * 10
    name = 'headrace_frame_refused_total{reason="%s"}'
    metrics = node.metrics()
    assert [metrics[name % reason] for reason in ("line_timeout", "idle")] == [1, 2]


def drips_on(client, byte):
    """Sends a byte; False once there is an answer."""
    client.socket.sendall(bytes([byte]))
    client.socket.settimeout(0.01)
    try:
        client.more()
    except TimeoutError:
        return True
    finally:
        client.socket.settimeout(30)
    return False


def test_who_reads_nothing_is_ended(start_node):
    node = start_node(HEADRACE_FRAME__IDLE_TIMEOUT="200ms")
    node.create_stream("s", partitions=1)
    batch = native.build_batch([(None, b"v" * 60_000, [], 1)] * 15)
    with RawConnection(node) as raw:
        for _ in range(20):
            raw.produce("s", batch)
    with FrameConnection(node, "s", "consume", offset=0) as client:
        slow = 'headrace_frame_refused_total{reason="slow"}'
        wait_for(lambda: node.metrics().get(slow) == 1)
        wait_for(lambda: node.metrics()["headrace_frame_consumers"] == 0)
        assert client.next().offset == 0
    assert node.metrics()["headrace_frame_held_bytes"] == 0


# --- what all of them hold ----------------------------------------------------------------------


class Link:
    """A connection that records what it is told."""

    peer, host, identity = "192.0.2.1:1", "192.0.2.1", None
    local = Address("192.0.2.2", 9192)

    def __init__(self):
        self.sent = b""
        self.answered = asyncio.Event()
        self.reading = self.is_open = True

    def write(self, data):
        self.sent += data
        self.answered.set()

    def pause(self):
        self.reading = False

    def resume(self):
        self.reading = True

    def close(self):
        self.is_open = False


@contextlib.asynccontextmanager
async def opened(door, **members):
    """A connection of the door, with its first line answered."""
    link = Link()
    connection = door(link)
    connection.received(json.dumps({"stream": "s", "partition": 0, **members}).encode() + b"\n")
    await link.answered.wait()
    await settle()
    link.sent = b""
    try:
        yield link, connection
    finally:
        connection.closed()


@contextlib.asynccontextmanager
async def standing(data, **settings):
    """A door on a node whose disk can be made to stand still."""
    from headrace.kernel.catalog import Change  # noqa: PLC0415 - two tests need it

    async with running(data, s=Change(partitions=1)) as (node, store):
        door = FrameDoor(node._serving(), FrameSettings(**settings), node.gate)
        try:
            yield door, store
        finally:
            store.held = False
            door.broker.runner._queued = True
            door.broker.runner.wake()


async def test_nothing_is_taken_while_too_much_waits_for_the_disk(tmp_path):
    one = frame(b"k", b"v" * 50_000)
    async with (
        standing(tmp_path, undurable_bytes=100_000) as (door, store),
        opened(door, mode="produce") as (link, client),
        opened(door, mode="produce") as (other, second),
    ):
        store.held = True
        for _ in range(2):
            client.received(one)
        await settle()
        assert not link.reading
        assert door.undurable_bytes > 100_000
        second.received(one)
        await settle()
        assert not other.reading
        assert (door.received, door.held_bytes) == (2, len(one))
        assert link.sent + other.sent == b""
        store.held = False
        door.broker.runner._queued = True
        door.broker.runner.wake()
        await door.broker.runner.quiet()
        await settle()
        await door.broker.runner.quiet()
        await settle()
        assert link.reading
        assert other.reading
        assert (len(link.sent), len(other.sent)) == (32, 16)
        assert door.held_bytes == 0


async def test_one_producer_may_not_have_all_of_the_room(tmp_path):
    one = frame(b"k", b"v" * 1_000_000)
    async with (
        standing(tmp_path) as (door, store),
        opened(door, mode="produce") as (link, client),
        opened(door, mode="produce") as (other, second),
    ):
        store.held = True
        while link.reading:
            client.received(one)
        assert door.received == 1 + limits.FRAME_IN_FLIGHT_BYTES_MAX // 1_000_000
        second.received(one)
        assert other.reading


async def test_frames_that_are_not_whole_are_bounded_together_and_the_oldest_goes(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(limits, "FRAME_PARTS_BYTES_MAX", 300_000)
    whole = frame(b"k", b"v" * 900_000)
    part = whole[:200_000]
    async with (
        standing(tmp_path) as (door, _),
        opened(door, mode="produce") as (moves, zeroth),
        opened(door, mode="produce") as (stalls, first),
        opened(door, mode="produce") as (small, third),
        opened(door, mode="produce") as (other, second),
    ):
        zeroth.received(whole[:80_000])
        first.received(part)
        third.received(part[:50_000])
        assert door.held_bytes == 330_000
        zeroth.received(whole[80_000:] + whole[:90_000])  # one is whole; the next is the youngest
        second.received(part)
        await settle()
        assert [each.is_open for each in (moves, stalls, small, other)] == [True, False, True, True]
        assert stalls.sent.endswith(b"this one is the oldest; try again")
        assert door.refused == {"memory": 1}
    assert (door.held_bytes, door.producers, door.parts.total_bytes) == (0, 0, 0)


async def test_of_many_small_beginnings_of_frames_the_oldest_gives_way(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "FRAME_PARTS_BYTES_MAX", 100_000)
    part = frame(b"k", b"v" * 900_000)[:40_000]
    async with (
        standing(tmp_path) as (door, _),
        opened(door, mode="produce") as (stalls, first),
        opened(door, mode="produce") as (other, second),
        opened(door, mode="produce") as (newest, third),
    ):
        for client in (first, second, third):
            client.received(part)
        await settle()
        assert [each.is_open for each in (stalls, other, newest)] == [False, True, True]
        assert door.held_bytes == 80_000


async def test_a_client_that_does_not_read_is_not_read(tmp_path):
    async with (
        standing(tmp_path) as (door, _),
        opened(door, mode="produce") as (link, client),
    ):
        client.writable(ready=False)
        client.received(frame(b"k", b"v"))
        assert not link.reading
        assert door.received == 0
        client.writable(ready=True)
        assert link.reading
        assert door.received == 1


# --- the life of a node -------------------------------------------------------------------------


def test_what_is_acknowledged_is_there_after_kill_9(start_node):
    node = start_node()
    node.create_stream("s", partitions=3)
    acknowledged = []
    enough = threading.Event()

    def produce():
        with FrameConnection(node, "s") as client:
            number = 0
            with contextlib.suppress(ConnectionError, AssertionError):
                while True:
                    sent = [(b"%d" % n, b"value %d" % n) for n in range(number, number + 50)]
                    client.send(*(frame(key, value) for key, value in sent))
                    places = client.acknowledged(50)
                    acknowledged.extend(zip(places, sent, strict=True))
                    number += 50
                    if number >= 1000:
                        enough.set()

    thread = threading.Thread(target=produce)
    thread.start()
    assert enough.wait(60)
    os.kill(node.process.pid, signal.SIGKILL)
    thread.join(60)
    node.process.wait(60)
    again = start_node.again(node)
    found = {}
    for partition, end in enumerate(again.ends("s")):
        with FrameConnection(again, "s", "consume", partition=partition, offset=0) as client:
            for each in client.records(end):
                found[partition, each.offset] = each.key, each.value
    assert len(acknowledged) >= 1000
    for place, sent in acknowledged:
        assert found[place] == sent


def test_an_orderly_stop_acknowledges_what_was_taken(start_node):
    node = start_node()
    node.create_stream("s", partitions=1)
    with FrameConnection(node, "s") as client:
        client.send(*(frame(b"k", b"v") for _ in range(2000)))
        assert isinstance(client.answered(), Ack)
        node.process.send_signal(signal.SIGTERM)
        places, ending = client.rest()
        assert ending is None
    assert node.process.wait(60) == 0
    again = start_node.again(node)
    assert again.ends("s")[0] >= len(places) + 1


@pytest.mark.setting("frame.bind")
def test_the_door_can_be_shut_and_elsewhere(start_node):
    assert "frame" not in start_node(HEADRACE_FRAME__BIND="off").ready


def test_settings_of_the_door_change_live(tmp_path, start_node):
    file = tmp_path / "headrace.toml"
    file.write_text("[frame]\n")
    node = start_node("--config", str(file))
    node.create_stream("s", partitions=1)
    file.write_text('[frame]\nheartbeat_interval = "100ms"\n')
    node.process.send_signal(signal.SIGHUP)

    def heartbeat_ms():
        with FrameConnection(node, "s", "consume", offset=0) as client:
            return client.answer["heartbeat_ms"]

    wait_for(lambda: heartbeat_ms() == 100)


def test_what_the_door_counts(start_node):
    node = start_node()
    node.create_stream("s", partitions=1)
    sent = frame(b"k", b"v")
    with (
        FrameConnection(node, "s") as writer,
        FrameConnection(node, "s", "consume", offset=0) as reader,
    ):
        writer.send(*(10 * [sent]))
        writer.acknowledged(10)
        reader.records(10)
        wait_for(lambda: node.metrics()["headrace_frame_sent_total"] == 10)
        metrics = node.metrics()
        assert metrics['headrace_connections{door="frame"}'] == 2
        for name, value in (
            ("producers", 1), ("consumers", 1), ("received_total", 10), ("held_bytes", 0),
            ("received_bytes_total", 10 * len(sent)), ("undurable_bytes", 0),
            ("sent_bytes_total", 10 * (8 + len(sent))),
        ):  # fmt: skip
            assert metrics[f"headrace_frame_{name}"] == value, name
