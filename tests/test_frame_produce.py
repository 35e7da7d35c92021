"""Producers at the frame door: what is acknowledged is stored, and is what was sent."""

import socket
import time

import pytest

from conftest import wait_for
from frameclient import Ending, FrameConnection, frame, sealed
from headrace import native
from kafkaraw import RawConnection

NOW_MS = 1_700_000_000_000
INVALID, CORRUPT, TOO_LARGE = 87, 2, 10


@pytest.fixture(scope="module")
def node(shared):
    return shared


def stored(node, stream, partition=0):
    """`(offset, timestamp, key, value, headers)` of each record, as Kafka's clients read them."""
    with RawConnection(node) as raw:
        found, at = [], 0
        while True:
            answer = raw.fetch(stream, {partition: at})[partition]
            assert answer.error_code == 0
            if not answer.records:
                return found
            columns = native.decode_records(answer.records, at, 2**62, 1 << 20)
            found += columns.rows()
            at = columns.next_offset


def test_a_frame_is_a_record(node, stream):
    with FrameConnection(node, stream, partition=1) as client:
        length_max = 1_180_672 - 61
        assert client.answer == {
            "ok": True, "stream": stream, "mode": "produce", "acks": "all", "partitions": 3,
            "partition": 1, "start": 0, "end": 0, "frame_bytes_max": length_max,
        }  # fmt: skip
        headers = [(b"unit", b"C"), (b"none", None), (b"", b""), ("größe".encode(), b"\xff")]
        client.send(frame(b"room-7", b"21.5", headers), frame(None, None, timestamp=NOW_MS + 1))
        assert client.acknowledged(2) == [(1, 0), (1, 1)]
    named = [(name.decode(), value) for name, value in headers]
    assert stored(node, stream, 1) == [
        (0, NOW_MS, b"room-7", b"21.5", named),
        (1, NOW_MS + 1, None, None, []),
    ]


def test_keys_go_where_kafkas_producers_put_them_and_others_take_turns(node, stream):
    keys = [b"key-%d" % number for number in range(50)]
    with FrameConnection(node, stream) as client:
        assert client.answer["partition"] is None
        assert "end" not in client.answer
        client.send(*(frame(key, b"v") for key in keys))
        places = client.acknowledged(50)
        assert [place[0] for place in places] == [
            (native.murmur2(key) & 0x7FFFFFFF) % 3 for key in keys
        ]
        assert len(set(places)) == 50
        seen = set()
        for _ in range(6):
            client.send(frame(None, b"v"))
            seen.add(client.acknowledged(1)[0][0])
        assert seen == {0, 1, 2}
    for partition in range(3):
        for offset, _, key, _, _ in stored(node, stream, partition):
            assert key is None or (partition, offset) == places[keys.index(key)]


@pytest.mark.parametrize("said", [0, -1])
def test_who_has_no_clock_is_given_the_nodes(node, stream, said):
    before = time.time_ns() // 1_000_000
    with FrameConnection(node, stream, partition=0) as client:
        client.send(frame(b"k", b"v", timestamp=said))
        client.acknowledged(1)
    ((_, timestamp, *_),) = stored(node, stream)
    assert before <= timestamp <= time.time_ns() // 1_000_000


def test_thousands_may_be_under_way(node, stream):
    values = [b"%d" % number * (1 + number % 50) for number in range(20_000)]
    with FrameConnection(node, stream, partition=2) as client:
        sent = b"".join(frame(b"k", value) for value in values)
        for at in range(0, len(sent), 100_003):  # pieces that end anywhere
            client.send(sent[at : at + 100_003])
        assert client.acknowledged(20_000) == [(2, offset) for offset in range(20_000)]
    assert [value for _, _, _, value, _ in stored(node, stream, 2)] == values


def test_acks_1_is_answered_and_acks_0_is_not(node, stream):
    with FrameConnection(node, stream, partition=0, acks=1) as client:
        assert client.answer["acks"] == 1
        client.send(frame(b"k", b"1"))
        client.acknowledged(1)
    with FrameConnection(node, stream, partition=0, acks=0) as client:
        client.send(frame(b"k", b"2"), frame(b"k", b"3"), frame(b"k", b"4", attributes=1))
        assert client.answered() == Ending(
            INVALID, "frame 2: attributes 0x01 must be 0: no bit has a meaning"
        )
    wait_for(lambda: node.ends(stream)[0] == 3)


def test_who_leaves_at_once_loses_nothing_without_acks(node, stream):
    with FrameConnection(node, stream, partition=0, acks=0) as client:
        client.send(*(frame(b"k", b"v") for _ in range(1000)))
    wait_for(lambda: node.ends(stream)[0] == 1000)


def test_a_shell_may_send_all_and_then_read_the_answers(node, stream):
    with FrameConnection(node, stream, partition=0) as client:
        client.send(*(frame(b"k", b"v") for _ in range(5000)))
        client.socket.shutdown(socket.SHUT_WR)
        places, ending = client.rest()
        assert (len(places), ending) == (5000, None)
    with FrameConnection(node, stream, partition=0) as client:
        client.send(frame(b"k", b"v"), frame(b"k", b"v")[:-1])
        client.socket.shutdown(socket.SHUT_WR)
        assert client.rest() == ([(0, 5000)], (INVALID, "the connection ended within a frame"))


def test_frames_may_follow_the_line_at_once(node, stream):
    frames = b"".join(frame(b"k", b"v") for _ in range(100))
    with FrameConnection(node, stream, partition=0, then=frames) as client:
        assert len(client.acknowledged(100)) == 100


# --- what is wrong ------------------------------------------------------------------------------


def test_whatever_byte_is_flipped_nothing_wrong_is_stored(node, stream):
    good = frame(b"key", b"value", [(b"h", b"x")])
    for at in range(len(good)):
        flipped = bytearray(good)
        flipped[at] ^= 0x55
        with FrameConnection(node, stream, partition=0) as client:
            client.send(good, bytes(flipped), good)
            client.socket.shutdown(socket.SHUT_WR)
            places, ending = client.rest()
            assert len(places) == 1, at
            assert ending is not None, at
            assert ending.code in {INVALID, CORRUPT, TOO_LARGE}, (at, ending)
    found = stored(node, stream)
    assert len(found) == len(good)
    assert {row[1:4] for row in found} == {(NOW_MS, b"key", b"value")}


def test_wherever_it_is_cut_off_nothing_of_it_is_stored(node, stream):
    good = frame(b"key", b"value", [(b"h", b"x")])
    for end in range(1, len(good)):
        with FrameConnection(node, stream, partition=0) as client:
            client.send(good, good[:end])
            client.socket.shutdown(socket.SHUT_WR)
            places, ending = client.rest()
            assert (len(places), ending.code) == (1, INVALID)
    assert node.ends(stream)[0] == len(good) - 1


def body(key=b"\0\0\0\1k", value=b"\0\0\0\1v", headers=b"\0\0\0\0", head=b"\1\0" + 8 * b"\1"):
    return sealed(head + key + value + headers)


@pytest.mark.parametrize(
    ("wrong", "code", "text"),
    [
        (body(key=b"\0\0\0\5k"), INVALID, "its value is malformed"),
        (body(key=b"\x7f\xff\xff\xffk"), INVALID, "its key is malformed"),
        (body(key=b"\xff\xff\xff\xfek"), INVALID, "its key is malformed"),
        (body(value=b"\x80\0\0\0v"), INVALID, "its value is malformed"),
        (body(headers=b"\x7f\xff\xff\xff"), INVALID, "its header name is malformed"),
        (body(headers=b"\xff\xff\xff\xff"), INVALID, "its headers count is malformed"),
        (body(headers=b"\0\0\0\1\xff\xff"), INVALID, "its header name is malformed"),
        (body(headers=b"\0\0\0\1\0\1h\0\0\0\2x"), INVALID, "its header value is malformed"),
        (body(headers=b"\0\0\0\0x"), INVALID, "its length is malformed"),
        (body(headers=b"\0\0\0\1\0\1\xff\0\0\0\0"), INVALID, "name (UTF-8) is malformed"),
        (body(head=b"\2\0" + 8 * b"\1"), 43, "magic 2 is not supported, only 1 is"),
        (body(head=b"\1\0\xff\xff\xff\xff\xff\xff\xff\xfe"), 32, "timestamp -2 is before 1970"),
        (b"\0\0\0\x19", INVALID, "length 25 is below that of any frame, 26"),
        (b"\xff\xff\xff\xff", TOO_LARGE, "length 4294967295 exceeds 1180611"),
        (b"GET / HTTP/1.1\r\n", TOO_LARGE, "length 1195725856 exceeds"),
    ],
)
def test_what_lies_is_refused_and_all_before_it_is_stored(node, stream, wrong, code, text):
    with FrameConnection(node, stream, partition=0) as client:
        client.send(frame(b"k", b"1"), frame(b"k", b"2"), wrong, frame(b"k", b"3"))
        places, ending = client.rest()
        assert places == [(0, 0), (0, 1)]
        assert ending.code == code
        assert ending.text.startswith("frame 2: ")
        assert text in ending.text
    assert node.ends(stream)[0] == 2


def test_the_longest_frame_is_what_the_line_says(node, stream):
    node.call("PATCH", f"/api/v1/streams/{stream}", {"settings": {"max.message.bytes": 5000}})
    with FrameConnection(node, stream, partition=0) as client:
        room = client.answer["frame_bytes_max"]
        assert room == 5000 - 61
        longest = frame(b"k", b"v" * (room - 26 - 1))
        client.send(*(10 * [longest]))
        client.acknowledged(10)
        client.send(longest[:3])  # whatever it will be, it is not known yet
        client.send(frame(b"k", b"v" * (room - 26))[3:4])
        ending = client.answered()
        assert ending.code == TOO_LARGE
        assert "max.message.bytes" in ending.text


def test_a_stream_that_keeps_the_last_of_each_key(node):
    node.create_stream("compacted", partitions=1, settings={"cleanup.policy": "compact"})
    with FrameConnection(node, "compacted") as client:
        client.send(frame(b"k", b"v"), frame(b"k", None), frame(None, b"v"))
        assert client.rest()[0] == [(0, 0), (0, 1)]
    found = stored(node, "compacted")
    assert [row[2:4] for row in found] == [(b"k", b"v"), (b"k", None)]


def test_a_stream_with_a_codec_of_its_own(node):
    node.create_stream("packed", partitions=1, settings={"compression.type": "zstd"})
    with FrameConnection(node, "packed") as client:
        client.send(*(frame(b"k", b"value " * 20) for _ in range(100)))
        client.acknowledged(100)
    with RawConnection(node) as raw:
        records = raw.fetch("packed", {0: 0})[0].records
    assert {row[5] for row in native.batch_headers(records)[0]} == {"zstd"}
    with FrameConnection(node, "packed", "consume", offset=0) as client:
        assert {each.value for each in client.records(100)} == {b"value " * 20}


def test_a_stream_that_is_deleted_meanwhile(node):
    node.create_stream("short-lived", partitions=1)
    with FrameConnection(node, "short-lived") as client:
        client.send(frame(b"k", b"v"))
        client.acknowledged(1)
        assert node.call("DELETE", "/api/v1/streams/short-lived")[0] in {200, 204}
        client.send(frame(b"k", b"v"))
        assert client.answered() == Ending(3, "no stream is named 'short-lived'")
