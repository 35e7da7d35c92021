"""The publisher against a scripted peer on a real socket: loss, refusals, order, bounds."""

import contextlib
import socket
import struct
import threading
from itertools import count, islice

import pytest

from headrace import job_limits
from headrace.collect import Message, Origin, Publisher
from headrace.collect.publish import Pace
from headrace.errors import PublishError
from headrace.model import Address

ACK = (0, "")
ORIGIN = Origin("host/trace.csv", 1_893_456_000_000_000_000)


def messages(n):
    return [Message(f"dcgm/h/u/{index}", b"{%d}" % index, 1) for index in range(n)]


class Peer:
    """An MQTT 5.0 server of a few lines that answers each publish as its script says.

    The script is called with `(connection number, sequence)`; it returns `(code, reason)` for a
    PUBACK, `"hold"` for none, or `"break"` to close the connection.
    """

    def __init__(self, script, *, connack=(0, b"")):
        self.script = script
        self.connack = connack
        self.seen = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = Address(*self.listener.getsockname())
        self.thread = threading.Thread(target=self.serve)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join()

    def serve(self):
        for number in count(1):
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            # A client that was refused closes while answers are on their way.
            with connection, connection.makefile("rb") as stream, contextlib.suppress(OSError):
                self.converse(number, connection, stream)

    def converse(self, number, connection, stream):
        while True:
            kind, body = read_packet(stream)
            if kind == 1:
                code, properties = self.connack
                connection.sendall(
                    packet(0x20, bytes((0, code)) + varint(len(properties)) + properties)
                )
            elif kind == 3:
                packet_id, sequence, payload = publish_of(body)
                self.seen.append((number, sequence, payload))
                answer = self.script(number, sequence)
                if answer == "break":
                    return
                if answer != "hold":
                    connection.sendall(puback(packet_id, *answer))
            elif kind in {14, None}:
                return


def read_packet(stream):
    first = stream.read(1)
    if not first:
        return None, b""
    length = shift = 0
    while True:
        byte = stream.read(1)[0]
        length |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return first[0] >> 4, stream.read(length)


def varint(value):
    return bytes((value,)) if value < 128 else bytes((value & 127 | 128, value >> 7))


def packet(first, body):
    return bytes((first,)) + varint(len(body)) + body


def puback(packet_id, code, reason):
    text = reason.encode()
    properties = b"\x1f" + struct.pack(">H", len(text)) + text if reason else b""
    return packet(0x40, struct.pack(">HB", packet_id, code) + varint(len(properties)) + properties)


def text_at(body, at):
    end = at + 2 + int.from_bytes(body[at : at + 2], "big")
    return body[at + 2 : end].decode(), end


def publish_of(body):
    _, at = text_at(body, 0)
    packet_id = int.from_bytes(body[at : at + 2], "big")
    length, at = body[at + 2], at + 3
    if length > 127:
        length, at = length & 127 | body[at] << 7, at + 1
    end, names = at + length, {}
    while at < end:
        assert body[at] == 0x26
        name, at = text_at(body, at + 1)
        names[name], at = text_at(body, at)
    assert (names["source"], names["epoch"]) == (ORIGIN.source, str(ORIGIN.epoch))
    return packet_id, int(names["sequence"]), body[end:]


# --- order and repetition ----------------------------------------------------------------------


def test_each_message_is_published_once_in_order():
    journal = []
    with Peer(lambda *_: ACK) as peer:
        counts = Publisher(
            peer.address, ORIGIN, on_acknowledged=lambda *seen: journal.append(seen)
        ).run(iter(messages(1000)))
    assert [sequence for _, sequence, _ in peer.seen] == list(range(1, 1001))
    assert [payload for *_, payload in peer.seen] == [message.payload for message in messages(1000)]
    assert journal == [(sequence, 1) for sequence in range(1, 1001)]
    assert (counts.published, counts.acknowledged, counts.messages, counts.resent) == (
        1000, 1000, 1000, 0,
    )  # fmt: skip


def test_what_was_not_acknowledged_is_sent_again_first_and_under_its_number():
    def script(connection, sequence):
        if connection == 1:
            return ACK if sequence <= 10 else "hold" if sequence < 20 else "break"
        return (0, "already stored") if sequence < 20 and connection == 2 else ACK

    journal = []
    with Peer(script) as peer:
        counts = Publisher(
            peer.address, ORIGIN, on_acknowledged=lambda *seen: journal.append(seen)
        ).run(iter(messages(50)))
    again = [sequence for number, sequence, _ in peer.seen if number == 2]
    first = again[0]  # 11, or less where the close overtook acknowledgements
    assert first <= 11
    assert again == list(range(first, 51))
    payloads = {}
    for _, sequence, payload in peer.seen:
        assert payloads.setdefault(sequence, payload) == payload
    assert [sequence for sequence, _ in journal] == list(range(1, 51))
    assert (counts.acknowledged, counts.already_stored) == (50, 20 - first)
    assert 20 - first < counts.resent <= 51 - first


def test_a_connection_that_breaks_again_and_again_loses_nothing():
    with Peer(
        lambda _, sequence: "break" if sequence % 7 == 0 and broken(sequence) else ACK
    ) as peer:
        seen = set()

        def broken(sequence):
            return sequence not in seen and not seen.add(sequence)

        counts = Publisher(peer.address, ORIGIN).run(iter(messages(40)))
    assert {payload for *_, payload in peer.seen} == {message.payload for message in messages(40)}
    assert counts.acknowledged == 40


@pytest.mark.parametrize("code", [0x80, 0x97])
def test_a_refusal_for_a_time_is_repeated_under_a_new_number(code):
    with Peer(lambda _, sequence: (code, "") if sequence == 3 else ACK) as peer:
        counts = Publisher(peer.address, ORIGIN).run(iter(messages(5)))
    third = [sequence for _, sequence, payload in peer.seen if payload == messages(3)[2].payload]
    assert third == [3, 6]
    assert (counts.refused, counts.acknowledged, counts.resent) == (1, 5, 0)


def test_refusals_without_end_are_an_error(monkeypatch):
    monkeypatch.setattr(job_limits, "COLLECT_REFUSALS_MAX", 3)
    with (
        Peer(lambda *_: (0x97, "")) as peer,
        pytest.raises(PublishError, match="again and again"),
    ):
        Publisher(peer.address, ORIGIN).run(iter(messages(1)))


def test_a_stale_epoch_names_the_remedy():
    with (
        Peer(lambda *_: (0x83, "stale epoch")) as peer,
        pytest.raises(
            PublishError, match=r"newer collector publishes as host/trace\.csv.*--source"
        ),
    ):
        Publisher(peer.address, ORIGIN).run(iter(messages(5)))


@pytest.mark.parametrize("code", [0x87, 0x90, 0x99])
def test_any_other_refusal_is_an_error(code):
    with (
        Peer(lambda *_: (code, "because")) as peer,
        pytest.raises(PublishError, match="because"),
    ):
        Publisher(peer.address, ORIGIN).run(iter(messages(5)))


# --- the window ---------------------------------------------------------------------------------


def test_mqtt_3_3_4_9_no_more_is_unacknowledged_than_the_receive_maximum():
    full = threading.Event()

    def script(_, sequence):
        if sequence == 5:
            full.set()
        return "hold"

    with Peer(script, connack=(0, b"\x21\x00\x05")) as peer:
        publisher = Publisher(peer.address, ORIGIN)
        thread = threading.Thread(target=publisher.run, args=(iter(messages(100)),))
        thread.start()
        assert full.wait(30)
        publisher._flush_until = 0.0  # gives up at once
        publisher.stop()
        thread.join()
    assert [sequence for _, sequence, _ in peer.seen] == [1, 2, 3, 4, 5]


def test_a_message_larger_than_the_broker_takes_is_an_error():
    with (
        Peer(lambda *_: ACK, connack=(0, b"\x27" + struct.pack(">I", 1000))) as peer,
        pytest.raises(PublishError, match="larger than"),
    ):
        Publisher(peer.address, ORIGIN).run(iter([Message("dcgm/h/u", b"x" * 2000, 1)]))


def test_stopping_brings_home_what_is_out_and_takes_nothing_more():
    begun = threading.Event()

    def endless():
        for number in count():
            begun.set()
            yield Message("dcgm/h/u", b"%d" % number, 1)

    with Peer(lambda *_: ACK) as peer:
        publisher = Publisher(peer.address, ORIGIN)
        results = []
        thread = threading.Thread(target=lambda: results.append(publisher.run(endless())))
        thread.start()
        assert begun.wait(30)
        publisher.stop()
        thread.join()
    [counts] = results
    assert counts.acknowledged == counts.published == len(peer.seen)


# --- connecting ----------------------------------------------------------------------------------


def test_no_broker_at_the_start_is_an_error(monkeypatch):
    monkeypatch.setattr(job_limits, "COLLECT_START_SECONDS", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = Address(*free.getsockname())
    with pytest.raises(PublishError, match=r"no broker answers.*headrace serve"):
        Publisher(address, ORIGIN).run(iter(messages(1)))


@pytest.mark.parametrize(("code", "name"), [(0x86, "user name or password"), (0x87, "authorized")])
def test_a_connection_refused_for_good_is_an_error(code, name):
    with (
        Peer(lambda *_: ACK, connack=(code, b"")) as peer,
        pytest.raises(PublishError, match=f"(?i){name}"),
    ):
        Publisher(peer.address, ORIGIN).run(iter(messages(1)))


def test_a_broker_without_qos_1_is_an_error():
    with (
        Peer(lambda *_: ACK, connack=(0, b"\x24\x00")) as peer,
        pytest.raises(PublishError, match="QoS 1"),
    ):
        Publisher(peer.address, ORIGIN).run(iter(messages(1)))


def test_nothing_to_publish_is_done():
    with Peer(lambda *_: ACK) as peer:
        counts = Publisher(peer.address, ORIGIN).run(iter([]))
    assert (counts.published, counts.acknowledged) == (0, 0)


# --- pace --------------------------------------------------------------------------------------


def test_a_pace_holds_its_rate_and_does_not_make_up_for_an_outage():
    pace = Pace(100.0)
    now, sent = 0.0, 0
    while now < 10.0:
        due = pace.due_in(now)
        if due > 0.0:
            now += due
            continue
        pace.spend(1, now)
        sent += 1
    assert 1000 <= sent <= 1011
    now += 3600.0
    burst = sum(1 for _ in islice(iter(lambda: spend(pace, now), 0), 1000))
    assert burst <= 11


def spend(pace, now):
    if pace.due_in(now) > 0.0:
        return 0
    pace.spend(1, now)
    return 1


def test_without_a_rate_nothing_waits():
    pace = Pace(None)
    pace.spend(1_000_000, 0.0)
    assert pace.due_in(0.0) <= 0.0
