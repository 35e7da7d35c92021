"""MQTT and Kafka meet: a publish is a record, and a record reaches `$stream/NAME/#`."""

import queue
import threading

import paho.mqtt.client as paho
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from conftest import RunningNode, headrace, wait_for
from headrace import native
from kafkaraw import RawConnection
from pahoclient import leave
from test_access import ADMIN, basic, put_users

WAIT = 30

pytestmark = [pytest.mark.clients, pytest.mark.slow]


def user_properties(packet, *pairs, **named):
    properties = Properties(packet)
    if pairs:
        properties.UserProperty = list(pairs)
    for name, value in named.items():
        setattr(properties, name, value)
    return properties


class Reader:
    """paho-mqtt; what it is sent and told waits in queues. It may hold acknowledgements back."""

    def __init__(self, node, client_id="", *, protocol=paho.MQTTv5, manual=False, **options):
        self.messages: queue.Queue = queue.Queue()
        self.subscribed: queue.Queue = queue.Queue()
        self.gone: queue.Queue = queue.Queue()
        connected: queue.Queue = queue.Queue()
        version = paho.CallbackAPIVersion.VERSION2
        is_5 = protocol == paho.MQTTv5
        self.paho = paho.Client(
            version,
            client_id,
            protocol=protocol,
            manual_ack=manual,
            reconnect_on_failure=False,
            clean_session=None if is_5 else not options.pop("stays", False),
        )
        self.paho.on_connect = lambda *event: connected.put(event)
        self.paho.on_message = lambda _client, _data, message: self.messages.put(message)
        self.paho.on_subscribe = lambda *event: self.subscribed.put(event)
        self.paho.on_disconnect = lambda *event: self.gone.put(event)
        if "user" in options:
            self.paho.username_pw_set(*options.pop("user").split(":"))
        if is_5:
            lasts = options.pop("lasts", 0)
            named = {"SessionExpiryInterval": lasts}
            if (receive := options.pop("receive", None)) is not None:
                named["ReceiveMaximum"] = receive
            properties = user_properties(PacketTypes.CONNECT, **named)
            options |= {"properties": properties, "clean_start": lasts == 0}
        self.paho.connect("127.0.0.1", node.mqtt, **options)
        self.paho.loop_start()
        reason = connected.get(timeout=WAIT)[3]
        assert not reason.is_failure, reason

    def __enter__(self):
        return self

    def __exit__(self, *_):
        leave(self.paho)

    def subscribe(self, topic_filter, *said, qos=1, **options):
        """Reason code and reason string."""
        properties = user_properties(PacketTypes.SUBSCRIBE, *said) if said else None
        if self.paho._protocol == paho.MQTTv5:
            options = SubscribeOptions(qos=qos, **options)
            self.paho.subscribe(topic_filter, options=options, properties=properties)
        else:
            self.paho.subscribe(topic_filter, qos)
        _, _, _, codes, found = self.subscribed.get(timeout=WAIT)
        return codes[0].value, getattr(found, "ReasonString", "")

    def receive(self, count=1):
        return [self.messages.get(timeout=WAIT) for _ in range(count)]


def payloads(messages):
    return [message.payload.decode() for message in messages]


def place(message):
    """`(partition, offset)` of the record."""
    said = dict(message.properties.UserProperty)["stream-offset"]
    partition, offset = said.split(":")
    return int(partition), int(offset)


class Sender:
    """confluent-kafka, waiting for each flush."""

    def __init__(self, node, **settings):
        self.producer = Producer({"bootstrap.servers": node.servers, "linger.ms": 5, **settings})

    def send(self, stream, *values, **options):
        for value in values:
            self.producer.produce(stream, str(value).encode(), **options)
        assert self.producer.flush(WAIT) == 0


@pytest.fixture
def meeting(shared, request):
    """A name, and a node with a stream of it that has two partitions and stores NAME/#."""
    name = f"m-{abs(hash(request.node.name))}"
    shared.create_stream(name, partitions=2, filters=[f"{name}/#"])
    return shared, name


def test_a_publish_is_a_record_with_all_that_mqtt_says_of_it(meeting):
    node, name = meeting
    said = user_properties(
        PacketTypes.PUBLISH,
        ("b", "1"),
        ("a", ""),
        ("b", "2"),
        ("mqtt.topic", "forged"),
        ContentType="text/plain",
        ResponseTopic="reply/to",
        CorrelationData=b"\0\xff",
        PayloadFormatIndicator=1,
        MessageExpiryInterval=600,
    )
    with Reader(node) as client:
        assert client.subscribe(f"$stream/{name}/#", qos=2) == (2, "")
        client.paho.publish(f"{name}/x/y", b"21.5", 1, properties=said)
        (back,) = client.receive()
    consumer = Consumer({"bootstrap.servers": node.servers, "group.id": name})
    consumer.assign([TopicPartition(name, index, 0) for index in range(2)])
    record = consumer.poll(WAIT)
    consumer.close()
    assert record.key() == f"{name}/x/y".encode()
    assert record.value() == b"21.5"
    assert record.headers() == [
        ("mqtt.topic", f"{name}/x/y".encode()),
        ("mqtt.content-type", b"text/plain"),
        ("mqtt.response-topic", b"reply/to"),
        ("mqtt.correlation-data", b"\0\xff"),
        ("mqtt.payload-format-indicator", b"1"),
        ("mqtt.message-expiry-interval", b"600"),
        ("b", b"1"),
        ("a", b""),
        ("b", b"2"),
        ("mqtt.user.mqtt.topic", b"forged"),
    ]
    # And back.
    assert (back.topic, back.payload, back.qos, back.retain) == (
        f"$stream/{name}/{name}/x/y", b"21.5", 2, False,
    )  # fmt: skip
    properties = back.properties
    assert properties.ContentType == "text/plain"
    assert properties.ResponseTopic == "reply/to"
    assert properties.CorrelationData == b"\0\xff"
    assert properties.PayloadFormatIndicator == 1
    assert 590 <= properties.MessageExpiryInterval <= 600
    assert properties.UserProperty == [
        ("b", "1"), ("a", ""), ("b", "2"), ("mqtt.topic", "forged"),
        ("stream-offset", f"{record.partition()}:0"),
        ("stream-timestamp", str(record.timestamp()[1])),
    ]  # fmt: skip


def test_a_record_of_any_producer_reaches_subscribers_below_the_stream(meeting):
    node, name = meeting
    sender = Sender(node)
    with Reader(node) as client, Reader(node, protocol=paho.MQTTv311) as older:
        sender.send(name, "before", partition=0)
        assert client.subscribe(f"$stream/{name}/#") == (1, "")
        older.subscribe(f"$stream/{name}/dcgm/+", qos=0)
        sender.send(name, "keyless", partition=0)
        sender.send(name, "1", key=b"dcgm/a", partition=0, headers=[("h", b"\xff"), ("t", b"v")])
        sender.send(name, "2", key=b"b+#\xff", partition=0)
        node.call("POST", "/api/v1/publish", {"topic": f"{name}/http", "payload": "3", "qos": 1})
        messages = client.receive(4)
        below = [(each.topic.removeprefix(f"$stream/{name}"), each.payload) for each in messages]
        assert below[:3] == [("", b"keyless"), ("/dcgm/a", b"1"), ("/b___", b"2")]
        assert below[3] == (f"/{name}/http", b"3")
        assert messages[1].properties.UserProperty[:3] == [
            ("t", "v"), ("stream-headers-left-out", "1"), ("stream-offset", "0:2"),
        ]  # fmt: skip
        (narrow,) = older.receive()
        assert (narrow.topic, narrow.payload) == (f"$stream/{name}/dcgm/a", b"1")
        assert older.messages.empty()


def test_a_replay_goes_on_live_without_a_gap_or_a_repeat(meeting):
    """From the beginning, from a time and from offsets, while others produce."""
    node, name = meeting
    sender = Sender(node, **{"compression.type": "zstd"})
    early, per_turn, turns = 2_000, 100, 15
    for value in range(early):
        sender.producer.produce(name, f"{value}".encode(), partition=value % 2, timestamp=1 + value)
        if value % 500 == 0:
            sender.producer.flush(WAIT)
    sender.send(name)

    def produce():
        for turn in range(turns):
            first = early + turn * per_turn
            for value in range(first, first + per_turn):
                sender.producer.produce(
                    name, f"{value}".encode(), partition=value % 2, timestamp=1 + value
                )
            sender.producer.flush(WAIT)

    starts = {
        "beginning": [("stream-offset", "earliest")],
        "time": [("stream-time", "1001")],
        "offsets": [("stream-offset", "0:500"), ("stream-offset", "1:500")],
        "mixed": [("stream-offset", "0:0"), ("stream-time", "1001")],
    }
    readers = {how: Reader(node) for how in starts}
    producing = threading.Thread(target=produce)
    producing.start()
    late = early + turns * per_turn
    firsts = {
        "beginning": (0, 1),
        "time": (1000, 1001),
        "offsets": (1000, 1001),
        "mixed": (0, 1001),
    }
    try:
        for qos, (how, said) in zip((0, 1, 2, 1), starts.items(), strict=True):
            assert readers[how].subscribe(f"$stream/{name}/#", *said, qos=qos) == (qos, "")
        for how, reader in readers.items():
            expected = [list(range(first, late, 2)) for first in firsts[how]]
            messages = reader.receive(sum(map(len, expected)))
            got = {0: [], 1: []}
            for message in messages:
                partition, offset = place(message)
                got[partition].append(int(message.payload))
                assert int(message.payload) == 2 * offset + partition
            assert [got[0], got[1]] == expected, how
            assert reader.messages.empty()
    finally:
        producing.join()
        for reader in readers.values():
            reader.__exit__()


def test_a_slow_subscriber_holds_up_nobody_and_gets_all(meeting):
    node, name = meeting
    sender = Sender(node)
    with Reader(node, manual=True) as slow, Reader(node) as quick:
        slow.subscribe(f"$stream/{name}/#")
        quick.subscribe(f"$stream/{name}/#", qos=0)
        sender.send(name, *range(5_000), partition=0)
        assert payloads(quick.receive(5_000)) == [str(value) for value in range(5_000)]
        metrics = node.metrics()
        assert metrics["headrace_mqtt_outbound_queued_messages"] == 0
        assert slow.messages.qsize() < 5_000, "it has not acknowledged any"
        got = []
        while len(got) < 5_000:
            (message,) = slow.receive()
            slow.paho.ack(message.mid, message.qos)
            got.append(message)
        assert payloads(got) == [str(value) for value in range(5_000)]


@pytest.mark.parametrize(
    ("topic_filter", "said", "code", "text"),
    [
        ("$stream/{}/#", [("stream-offset", "0:1")], 0x83, "offset 0 to 0, not from 1"),
        ("$stream/{}/#", [("stream-offset", "-1")], 0x83, "'-1'"),
        ("$stream/{}/#", [("stream-offset", "2:0")], 0x83, "no partition 2"),
        ("$stream/{}/#", [("stream-offset", "7")], 0x83, "there are 2 partitions"),
        ("$stream/{}/#", [("stream-time", "yesterday")], 0x83, "RFC 3339"),
        ("$stream/{}/#", [("stream-start", "0")], 0x83, "no property is named 'stream-start'"),
        (
            "$stream/{}/#",
            [("stream-offset", f"{at}:0") for at in range(3000)],
            0x83,
            "no partition",
        ),
        ("$stream/nowhere/#", [], 0x8F, "no stream is named 'nowhere'"),
        ("$stream/nowhere/#", [("stream-time", "0")], 0x8F, "no stream is named 'nowhere'"),
        ("$stream/__mqtt/#", [], 0x8F, "no stream is named '__mqtt'"),
        ("$stream/#", [], 0x8F, "$stream/NAME/#"),
        ("$share/g/$stream/{}/#", [], 0x9E, "consumer groups"),
    ],
)
def test_what_cannot_be_is_refused_with_a_code_and_a_line(meeting, topic_filter, said, code, text):
    node, name = meeting
    with Reader(node) as client:
        got, why = client.subscribe(topic_filter.format(name), *said)
        assert got == code
        assert text in why
        assert client.subscribe(f"$stream/{name}/#", noLocal=True)[0] == 0x83
        client.paho.publish(f"$stream/{name}/x", b"forged", 1)
        assert client.subscribe(f"$stream/{name}/#", ("stream-offset", "earliest")) == (1, "")
        Sender(node).send(name, "real")
        assert payloads(client.receive()) == ["real"], "what clients publish there goes nowhere"


def test_a_stream_that_is_deleted_ends_its_subscriptions(meeting):
    node, name = meeting
    with Reader(node) as client, Reader(node) as other:
        client.subscribe(f"$stream/{name}/#")
        other.subscribe("a")
        node.call("DELETE", f"/api/v1/streams/{name}")
        _, _, _, code, found = client.gone.get(timeout=WAIT)
        assert (code.value, found.ReasonString) == (0x98, "a stream that it reads was deleted")
        other.paho.publish("a", b"on", 1)
        assert payloads(other.receive()) == ["on"]


def test_a_session_goes_on_behind_what_it_acknowledged_after_kill_9(start_node):
    node = start_node()
    node.create_stream("s", partitions=2)
    sender = Sender(node)
    with Reader(node, "reader", manual=True, lasts=1000) as client:
        assert client.subscribe("$stream/s/#", ("stream-offset", "earliest")) == (1, "")
        sender.send("s", *range(10), partition=0)
        first = client.receive(10)
        for message in first[:6]:
            client.paho.ack(message.mid, message.qos)
        wait_for(lambda: node.metrics()["headrace_mqtt_outbound_in_flight"] == 4)
        client.paho.publish("t", b"", 2).wait_for_publish(WAIT)  # a round of its session
        wait_for(lambda: node.metrics()["headrace_mqtt_undurable_bytes"] == 0)
        node.kill()
    node = start_node.again(node)
    sender = Sender(node)
    sender.send("s", *range(10, 13), partition=0)
    with Reader(node, "reader", lasts=1000) as client:
        sender.send("s", *range(13, 15), partition=0)
        sender.send("s", "other", partition=1)
        again = payloads(client.receive(10))
        assert [each for each in again if each != "other"] == [str(at) for at in range(6, 15)]
        wait_for(lambda: node.metrics()["headrace_mqtt_outbound_in_flight"] == 0)
    # While it is away nothing waits for it but the log.
    sender.send("s", *range(15, 2015), partition=0)
    assert node.metrics()["headrace_mqtt_queued_bytes"] == 0
    with Reader(node, "reader", lasts=1000) as client:
        assert payloads(client.receive(2000)) == [str(at) for at in range(15, 2015)]


RULES = """
[[access.rules]]
allow = ["all"]
roles = ["admin"]
[[access.rules]]
allow = ["read"]
users = ["bob"]
streams = ["open-*"]
[[access.rules]]
allow = ["subscribe"]
users = ["bob"]
topics = ["#", "$stream/#"]
"""


def test_who_may_read_a_stream_may_subscribe_to_it_and_nobody_else(tmp_path):
    put_users(tmp_path / "data", {ADMIN: ["admin"], "bob:cart": []})
    rules = tmp_path / "headrace.toml"
    rules.write_text(RULES)
    node = RunningNode(tmp_path / "data", "--config", str(rules))
    try:
        for name in ("open-1", "closed"):
            assert node.call("POST", "/api/v1/streams", {"name": name}, **basic(ADMIN))[0] == 201
        with Reader(node, user="bob:cart") as client:
            assert client.subscribe("$stream/open-1/#")[0] == 1
            assert client.subscribe("$stream/open-1/a/+")[0] == 1
            for name in ("closed", "nowhere", "__mqtt"):
                assert client.subscribe(f"$stream/{name}/#") == (0x87, "")
        with Reader(node, user=ADMIN) as client:
            assert client.subscribe("$stream/closed/#")[0] == 1
    finally:
        node.close()


def test_where_reading_stands_is_in_the_metrics(meeting):
    node, name = meeting
    before = node.metrics()
    with Reader(node) as client:
        client.subscribe(f"$stream/{name}/#")
        Sender(node).send(name, *range(20))
        client.receive(20)
        now = node.metrics()
        grown = {each: now[each] - before[each] for each in now if each in before}
        assert grown["headrace_mqtt_stream_records_total"] == 20
        assert grown["headrace_mqtt_stream_reads_total"] >= 1
        assert grown["headrace_mqtt_stream_read_bytes_total"] > 20
        assert now["headrace_mqtt_stream_subscriptions"] >= 1


def test_batches_of_any_size_and_codec_come_record_by_record(meeting):
    """What is large is opened beside the loop; what no client has room for is left out."""
    node, name = meeting
    plenty = [("", b"")] * 70_000
    batches = [
        native.build_batch([(None, b"%d" % each * 500, [], 1) for each in range(4_000)], "zstd"),
        native.build_batch([(None, b"%d" % each * 500, [], 1) for each in range(4_000, 4_300)]),
        native.build_batch([(None, bytes(17 << 20), [], 1), (None, b"x", plenty, 1)], "zstd"),
        native.build_batch([(None, b"last", [], 1)], "lz4"),
    ]
    with RawConnection(node) as raw:
        for batch in batches:
            assert raw.produce(name, batch, 0).error_code == 0
    before = node.metrics()["headrace_mqtt_stream_reads_total"]
    with Reader(node) as client:
        client.subscribe(f"$stream/{name}/#", ("stream-offset", "earliest"))
        for offset in range(4_300):
            (message,) = client.receive()
            assert place(message) == (0, offset)
            assert message.payload == b"%d" % offset * 500
        (message,) = client.receive()
        assert (place(message), message.payload) == ((0, 4_302), b"last")
    metrics = node.metrics()
    assert metrics['headrace_mqtt_messages_dropped_total{reason="packet_too_large"}'] >= 2
    assert metrics["headrace_mqtt_stream_reads_total"] - before < 100


def test_the_command_reads_from_where_it_is_told(meeting):
    node, name = meeting
    Sender(node).send(name, *range(5), partition=1)

    def read(*args, topic=f"$stream/{name}/#"):
        return headrace("sub", "--mqtt", f"{node.host}:{node.mqtt}", "-t", topic, *args)

    done = read("--from", "earliest", "-C", "5", "-q", "1")
    assert (done.returncode, done.stdout.split()) == (0, ["0", "1", "2", "3", "4"])
    done = read("--from", "1:3", "--from", "0:0", "-C", "2")
    assert done.stdout.split() == ["3", "4"]
    done = read("--from", "2020-01-01T00:00:00Z", "-C", "1", "-v")
    assert done.stdout == f"$stream/{name} 0\n"
    for args, why in [
        (("--from", "yesterday"), "a time is RFC 3339"),
        (("--from", "1:6"), "from offset 0 to 5, not from 6"),
    ]:
        done = read(*args, "-E")
        assert done.returncode == 1
        assert why in done.stderr
    done = read("--from", "earliest", "-V", "311")
    assert (done.returncode, "--from needs MQTT 5" in done.stderr) == (2, True)
    done = read("--from", "earliest", "-E", topic="sensors/#")
    assert (done.returncode, "--from is about streams" in done.stderr) == (2, True)
