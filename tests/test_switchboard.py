"""The switchboard as Python sees it: bytes in, bytes out, everything that crosses.

What it decides is tested in Rust (`crates/headrace-core/tests/switchboard`); here each method,
each field of its effects and each refusal crosses once.
"""

import re
import struct

import pytest

from headrace.native import Switchboard, decode_records

NOT_RETAINED = False
NOW = (1_000, 1_700_000_000_000)
CREDIT = 1 << 20
PINGREQ, PINGRESP = b"\xc0\x00", b"\xd0\x00"


def text(value: str) -> bytes:
    return struct.pack(">H", len(value)) + value.encode()


def packet(header: int, body: bytes) -> bytes:
    assert len(body) < 128
    return bytes([header, len(body)]) + body


def connect(client_id: str, level: int = 4, more: bytes = b"", flags: int = 2) -> bytes:
    properties = b"\0" if level == 5 else b""
    head = text("MQTT") + bytes([level, flags, 0, 10]) + properties
    return packet(0x10, head + text(client_id) + more)


def publish(topic: str, payload: bytes, packet_id: int = 0) -> bytes:
    identifier = struct.pack(">H", packet_id) if packet_id else b""
    return packet(0x32 if packet_id else 0x30, text(topic) + identifier + payload)


def subscribe(topic_filter: str, qos: int = 0) -> bytes:
    return packet(0x82, b"\0\1" + text(topic_filter) + bytes([qos]))


class Stage:
    """A switchboard whose clients are 3.1.1 and all accepted."""

    def __init__(self, **limits: int) -> None:
        self.board = Switchboard((1, 2), **limits)
        self.connections = 0

    def open(self) -> int:
        self.connections += 1
        self.board.opened(self.connections, *NOW)
        self.board.writable(self.connections, CREDIT)
        return self.connections

    def client(self, client_id: str) -> int:
        connection = self.open()
        self.send(connection, connect(client_id))
        self.board.decided(self.collect().decisions[0].request, 0, *NOW)
        assert self.written() == {connection: b"\x20\x02\x00\x00"}
        return connection

    def send(self, connection: int, data: bytes) -> None:
        self.board.receive(connection, data, *NOW)

    def ends(self, ticket: int, *, stored: bool) -> None:
        self.board.durable(ticket, 0 if stored else 0x80, *NOW)

    def collect(self):
        effects = self.board.collect(*NOW)
        assert effects is not None
        return effects

    def written(self) -> dict[int, bytes]:
        return dict(self.collect().writes)


def test_a_publish_crosses_from_bytes_to_bytes():
    stage = Stage()
    publisher, subscriber = stage.client("p"), stage.client("s")
    stage.send(subscriber, subscribe("a/+", 1))
    assert stage.written() == {subscriber: b"\x90\x03\x00\x01\x01"}
    # In two pieces, as a socket may cut it.
    data = publish("a/b", b"hello", 9)
    stage.send(publisher, data[:5])
    stage.send(publisher, data[5:] + PINGREQ)
    assert stage.written() == {
        publisher: b"\x40\x02\x00\x09" + PINGRESP,
        subscriber: publish("a/b", b"hello", 1),
    }
    assert stage.board.collect(*NOW) is None, "nothing is due twice"


def test_a_stored_publish_is_an_append_and_its_answer_waits_for_the_ticket():
    stage = Stage()
    stage.board.bind(7, 4, ["dcgm/#"], "level:2")
    client = stage.client("c")
    stage.send(client, publish("dcgm/h/u", b"1", 1) + publish("dcgm/h/v", b"2", 2))
    effects = stage.collect()
    [(stream, partition, batch, ticket)] = effects.appends
    assert (stream, ticket % 2, effects.writes) == (7, 1, [])
    assert 0 <= partition < 4
    columns = decode_records(batch, 0, 10, 10)
    assert columns.records == 2
    assert bytes(columns.values[2]) == b"12"
    stage.ends(ticket, stored=True)
    assert stage.written() == {client: b"\x40\x02\x00\x01\x40\x02\x00\x02"}


def test_a_refused_append_ends_a_connection_of_3_1_1():
    stage = Stage()
    stage.board.bind(7, 1, ["#"], "topic")
    client = stage.client("c")
    stage.send(client, publish("a", b"1", 1))
    stage.ends(stage.collect().appends[0][3], stored=False)
    effects = stage.collect()
    assert (effects.writes, effects.closes) == ([], [(client, "not_stored")])


def test_a_connect_is_a_question_to_policy():
    stage = Stage()
    five, three = stage.open(), stage.open()
    stage.send(five, connect("", 5))
    stage.send(three, connect("me", more=text("user") + b"\x00\x02\xff\x00", flags=0xC2))
    assigned, named = stage.collect().decisions
    assert (assigned.connection, assigned.protocol_level) == (five, 5)
    assert (assigned.username, assigned.password) == (None, None)
    assert assigned.client_id.startswith("auto-")
    assert (named.connection, named.protocol_level, named.client_id) == (three, 4, "me")
    assert (named.username, named.password) == ("user", b"\xff\x00")
    stage.board.decided(named.request, 0x86, *NOW)
    effects = stage.collect()
    assert effects.writes == [(three, b"\x20\x02\x00\x04")]
    assert effects.closes == [(three, "refused")]


def test_an_authentication_method_is_a_question_to_policy_in_steps():
    stage = Stage()
    client = stage.open()
    properties = b"\x15" + text("M") + b"\x16\x00\x01\x00"
    head = text("MQTT") + b"\x05\x02\x00\x00" + bytes([len(properties)]) + properties
    stage.send(client, packet(0x10, head + text("c")))
    [first] = stage.collect().decisions
    assert (first.asks, first.auth_method, first.auth_data) == ("connect", "M", b"\x00")
    stage.board.decided(first.request, 0x18, *NOW, b"\xff")
    answer = b"\x15" + text("M") + b"\x16\x00\x01\xff"
    auth = packet(0xF0, bytes([0x18, len(answer)]) + answer)
    assert stage.written() == {client: auth}
    stage.send(client, auth)
    [second] = stage.collect().decisions
    assert (second.asks, second.connection, second.client_id) == ("continue", client, "c")
    stage.board.decided(second.request, 0, *NOW, b"\xff")
    assert answer in stage.written()[client]
    stage.send(client, packet(0xF0, bytes([0x19, len(answer)]) + answer))
    [again] = stage.collect().decisions
    assert (again.asks, again.auth_data) == ("reauthenticate", b"\xff")


def test_credit_bounds_each_write_and_reads_are_paused_and_resumed():
    stage = Stage(outbound_bytes_max=1_000)
    publisher, slow = stage.client("p"), stage.client("s")
    stage.send(slow, subscribe("t"))
    stage.collect()
    stage.board.writable(slow, 0)
    for _ in range(12):
        stage.send(publisher, publish("t", b"x" * 95))
    effects = stage.collect()
    assert (effects.writes, effects.reads) == ([], [(publisher, False)])
    assert effects.wake_at == NOW[0] + 100
    stage.board.writable(slow, 700)
    assert len(stage.written()[slow]) == 700
    effects = stage.collect()
    assert effects.reads == [(publisher, True)]
    assert len(dict(effects.writes)[slow]) == 12 * 100 - 700


def test_time_passes_only_by_tick():
    stage = Stage()
    client = stage.client("c")
    stage.send(client, PINGREQ)
    assert stage.collect().wake_at == NOW[0] + 15_000
    late = (NOW[0] + 15_000, NOW[1] + 15_000)
    assert stage.board.collect(*late) is None
    stage.board.tick(*late)
    effects = stage.board.collect(*late)
    assert effects is not None
    assert (effects.closes, effects.wake_at) == ([(client, "keep_alive_timeout")], None)


def test_another_door_publishes_and_hears_of_the_end():
    stage = Stage()
    stage.board.bind(1, 1, ["a"], "topic")
    stage.board.publish("a", b"x", 1, NOT_RETAINED, [("k", "v")], 5, *NOW)
    stage.board.publish("b", b"x", 0, NOT_RETAINED, [], 6, *NOW)
    assert stage.board.published() == [], "answers keep their order"
    [(_, _, batch, ticket)] = stage.collect().appends
    names = bytes(decode_records(batch, 0, 1, 1).header_keys[2])
    assert names == b"mqtt.topick"
    stage.ends(ticket, stored=True)
    assert stage.board.published() == [(5, 0x00, 1), (6, 0x10, 0)]


def test_sources_are_loaded_and_saved():
    stage = Stage()
    stage.board.bind(1, 2, ["a"], "topic")
    stage.board.load_sources(1, 1, [("s", 3, 2**63 - 1), ("ü", 0, 0)])
    assert sorted(stage.board.sources(1, 1)) == [("s", 3, 2**63 - 1), ("ü", 0, 0)]
    assert stage.board.sources(1, 0) == []
    stage.board.unbind(1)
    with pytest.raises(ValueError, match="no partition 1 of a stream 1"):
        stage.board.sources(1, 1)


def test_the_end_of_a_connection_and_of_all():
    stage = Stage()
    first, second = stage.client("1"), stage.client("2")
    stage.board.closed(first, *NOW)
    stage.board.disconnect_all(0x8B, *NOW)
    assert stage.collect().closes == [(second, "shutdown")]
    stage.board.closed(second, *NOW)
    assert stage.board.statistics()["mqtt_connections"] == 0


def test_what_it_does_not_know_or_cannot_use_is_a_value_error():
    stage = Stage()
    board = stage.board
    connection = stage.open()
    for call, message in [
        (lambda: board.receive(99, b"", *NOW), "no connection 99"),
        (lambda: board.closed(99, *NOW), "no connection 99"),
        (lambda: board.writable(99, 0), "no connection 99"),
        (lambda: board.opened(connection, *NOW), "connection 1 is open already"),
        (lambda: board.decided(1, 0, *NOW), "no request 1 was made"),
        (lambda: Switchboard((0, 0), overflow="x"), '"x" is not among its words'),
        (lambda: board.configure(*NOW, shared_strategy="x"), '"x" is not among its words'),
        (lambda: stage.ends(1, stored=True), "no append with ticket 1"),
        (lambda: board.unbind(1), "no partition 0 of a stream 1"),
        (lambda: board.bind(1, 1, ["a/#/b"], "topic"), 'filter "a/#/b": '),
        (lambda: board.bind(1, 1, ["a"], "nonsense"), 'key "nonsense" is none of topic'),
        (lambda: board.publish("a/#", b"", 0, NOT_RETAINED, [], 1, *NOW), 'topic "a/#": '),
        (lambda: board.publish("a", b"", 2, NOT_RETAINED, [], 1, *NOW), "qos is 0 or 1, not 2"),
    ]:
        with pytest.raises(ValueError, match=re.escape(message)):
            call()


def test_statistics_are_prometheus_samples():
    stage = Stage()
    client = stage.client("c")
    stage.send(client, publish("a", b"x", 1))
    stage.collect()
    statistics = stage.board.statistics()
    sample = re.compile(r'mqtt_[a-z_]+(\{reason="[a-z_]+"\})?')
    assert all(sample.fullmatch(name) for name in statistics)
    assert statistics["mqtt_connections"] == statistics["mqtt_sessions"] == 1
    assert statistics["mqtt_messages_received_total"] == 1
    assert statistics["mqtt_bytes_received_total"] == len(connect("c")) + len(publish("a", b"x", 1))


def test_the_same_calls_give_the_same_bytes():
    def transcript(hash_key: tuple[int, int]) -> list[tuple[int, bytes]]:
        stage = Stage()
        stage.board = Switchboard(hash_key)
        connection = stage.open()
        stage.send(connection, connect("", 5))
        stage.board.decided(stage.collect().decisions[0].request, 0, *NOW)
        return stage.collect().writes

    assert transcript((1, 2)) == transcript((1, 2))
    assert transcript((1, 2)) != transcript((1, 3)), "an assigned client id cannot be guessed"
