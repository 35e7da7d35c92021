"""Every setting of a queue takes effect on a running node."""

import queue
import re

import pytest
from confluent_kafka import KafkaError, Producer

from conftest import wait_for
from pahoclient import Client, publish_properties, user_property
from test_queues import group, make, settle, shown

pytestmark = pytest.mark.slow

QUOTA_EXCEEDED = 0x97
NOT_SERVED = 0x83
KEYS = [f"key-{number}" for number in range(12)]
DROPPED = 'headrace_mqtt_messages_dropped_total{reason="queue_depth"}'
DEAD = 'headrace_mqtt_messages_dropped_total{reason="dead"}'


@pytest.fixture
def name(request):
    """A queue of the test's own."""
    return re.sub(r"\W+", "-", request.node.name)


@pytest.fixture
def node(shared):
    return shared


@pytest.fixture
def worker(node):
    with Client(node, client_id="worker") as client:
        yield client


@pytest.fixture
def queue_with(node, name, worker):
    """Makes it with these settings and `worker` as its consumer; answers its topic."""

    def begin(**settings):
        names = {key.replace("_", "."): value for key, value in settings.items()}
        make(node, name, settings=names)
        worker.subscribe(f"$queue/{name}")
        return f"$queue/{name}"

    return begin


def fails(worker, name, times=1):
    """Has the delivery that comes next fail, so often in a row; the last of them."""
    for _ in range(times):
        message = worker.receive()
        assert settle(worker, message, "nack", name) == 0
    return message


def keyed(key):
    return {"properties": publish_properties(("partition-key", key))}


def cause_of_death(node, worker, name):
    """Of the one dead letter."""
    wait_for(lambda: node.call("GET", f"/api/v1/queues/{name}.dlq")[0] == 200)
    worker.subscribe(f"$queue/{name}/$dlq")
    return user_property(worker.receive(), "reason")


@pytest.mark.setting("queues.partitions", "queues.filters", "queues.key")
def test_partitions_filters_and_key(node, worker, name):
    make(node, name, partitions=4, filters=[f"{name}/+/done"], key="level:2")
    for _ in range(3):
        worker.publish(f"{name}/pump-1/done")
    worker.publish(f"{name}/pump-1")
    assert sorted(node.ends(name)) == [0, 0, 0, 3]


def fnv1a(text):
    """draft-eastlake-fnv, 32 bits."""
    found = 0x811C9DC5
    for byte in text.encode():
        found = (found ^ byte) * 0x01000193 & 0xFFFFFFFF
    return found


def murmur2(text):
    """As Kafka's producers have it (org.apache.kafka.common.utils.Utils)."""
    data, mix, mask = text.encode(), 0x5BD1E995, 0xFFFFFFFF
    found = 0x9747B28C ^ len(data)
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        part = int.from_bytes(data[at : at + 4], "little") * mix & mask
        part = (part ^ part >> 24) * mix & mask
        found = (found * mix & mask) ^ part
    if whole < len(data):
        found = (found ^ int.from_bytes(data[whole:], "little")) * mix & mask
    found = (found ^ found >> 13) * mix & mask
    return (found ^ found >> 15) & 0x7FFFFFFF


@pytest.mark.setting("queues.partition.hash")
@pytest.mark.parametrize("spread", [fnv1a, murmur2])
def test_partition_hash(node, worker, name, spread):
    make(node, name, partitions=16, settings={"partition.hash": spread.__name__})
    for key in KEYS:
        worker.publish(f"$queue/{name}", **keyed(key))
    places = [spread(key) % 16 for key in KEYS]
    assert node.ends(name) == [places.count(partition) for partition in range(16)]


@pytest.mark.setting("queues.prefetch")
def test_prefetch(node, worker, queue_with, name):
    topic = queue_with(prefetch=2)
    for number in range(4):
        worker.publish(topic, b"%d" % number)
    first, second = worker.receive(), worker.receive()
    worker.publish(topic, b"4")
    assert (group(node, queue=name)["in_flight"], worker.messages.qsize()) == (2, 0)
    settle(worker, second, queue=name)
    assert worker.receive().payload == b"2"
    settle(worker, first, queue=name)
    assert worker.receive().payload == b"3"


@pytest.mark.setting("queues.order")
@pytest.mark.parametrize(
    ("order", "given"),
    [("none", [b"a1", b"a2", b"b1"]), ("key", [b"a1", b"b1"]), ("strict", [b"a1"])],
)
def test_order(worker, queue_with, name, order, given):
    topic = queue_with(order=order)
    for payload in (b"a1", b"a2", b"b1"):
        worker.publish(topic, payload, **keyed(payload[:1].decode()))
    messages = [worker.receive() for _ in given]
    assert [each.payload for each in messages] == given
    # What is sent before this answer is here before it.
    settle(worker, messages[-1], queue=name)
    rest = [b"a2", b"b1"] if order == "strict" else []
    assert worker.messages.qsize() <= len(rest)
    if rest:
        assert worker.receive().payload == rest[0]


@pytest.mark.setting("queues.order")
@pytest.mark.parametrize("order", ["key", "strict"])
def test_another_order_holds_for_what_is_in_flight(node, worker, queue_with, name, order):
    topic = queue_with()
    for payload in (b"1", b"2"):
        worker.publish(topic, payload, **keyed("a"))
    first, second = worker.receive(), worker.receive()
    status, _ = node.call("PATCH", f"/api/v1/queues/{name}", {"settings": {"order": order}})
    assert status == 200
    assert settle(worker, second, "nack", name, ("delay", "0")) == 0
    assert settle(worker, first, "extend", name) == 0  # what came of that is here before this
    assert worker.messages.empty()
    assert settle(worker, first, queue=name) == 0
    assert worker.receive().payload == b"2"


@pytest.mark.setting("queues.consumers")
def test_consumers(node, worker, queue_with, name):
    topic = queue_with(consumers="single")
    with Client(node) as second:
        assert second.subscribe(topic, 1, ("consumer-group", "worker")) == 1
        for payload in (b"1", b"2"):
            worker.publish(topic, payload)
            assert settle(worker, worker.receive(), queue=name) == 0
        worker.unsubscribe(topic)
        worker.publish(topic, b"3")
        assert second.receive().payload == b"3"
        change = {"settings": {"consumers": "exclusive"}}
        assert node.call("PATCH", f"/api/v1/queues/{name}", change)[0] == 200
        assert worker.subscribe(topic) == QUOTA_EXCEEDED
    wait_for(lambda: not group(node, queue=name)["consumers"])
    assert worker.subscribe(topic) == 1
    assert worker.receive().payload == b"3"


@pytest.mark.setting("queues.paused")
def test_paused(node, worker, queue_with, name):
    topic = queue_with(paused="on")
    for payload in (b"1", b"2"):
        assert worker.publish(topic, payload) == 0
    assert (group(node, queue=name)["delivered"], worker.messages.qsize()) == (0, 0)
    node.call("PATCH", f"/api/v1/queues/{name}", {"settings": {"paused": None}})
    assert [worker.receive().payload for _ in range(2)] == [b"1", b"2"]


@pytest.mark.setting("queues.read.ahead")
def test_read_ahead(node, worker, queue_with, name):
    """One that waits for its key is all that may be known, so nothing behind it is."""
    topic = queue_with(order="key", read_ahead=1)
    for payload in (b"a1", b"a2", b"b1"):
        worker.publish(topic, payload, **keyed(payload[:1].decode()))
    first = worker.receive()
    wait_for(lambda: group(node, queue=name)["blocked"])
    assert worker.messages.empty()
    status, _ = node.call("PATCH", f"/api/v1/queues/{name}", {"settings": {"read.ahead": 9}})
    assert status == 200
    assert worker.receive().payload == b"b1"
    settle(worker, first, queue=name)
    assert worker.receive().payload == b"a2"


@pytest.mark.setting("queues.retry.backoff.ms")
def test_retry_backoff(node, worker, queue_with, name):
    topic = queue_with(retry_backoff_ms="1h", retry_backoff_max_ms="1h")
    worker.publish(topic, b"rests")
    fails(worker, name)
    assert group(node, queue=name)["resting"] == 1
    node.call("PATCH", f"/api/v1/queues/{name}", {"settings": {"retry.backoff.ms": 0}})
    worker.publish(topic, b"again")
    fails(worker, name)
    message = worker.receive()
    assert (message.payload, user_property(message, "attempt")) == (b"again", "2")


@pytest.mark.setting("queues.retry.backoff.multiplier")
def test_retry_backoff_multiplier(node, worker, queue_with, name):
    topic = queue_with(retry_backoff_ms=1, retry_backoff_multiplier=100, retry_backoff_max_ms="1h")
    worker.publish(topic, b"rests")
    fails(worker, name, 3)  # 1 ms, 100 ms, and 10 s from now on
    for _ in range(3):
        worker.publish(topic, b"meanwhile")
        assert worker.receive().payload == b"meanwhile"
    assert group(node, queue=name)["resting"] == 1


@pytest.mark.setting("queues.retry.backoff.max.ms")
def test_retry_backoff_max(worker, queue_with, name):
    topic = queue_with(retry_backoff_ms=1, retry_backoff_multiplier=100, retry_backoff_max_ms=2)
    worker.publish(topic, b"work")
    fails(worker, name, 5)
    assert user_property(worker.receive(), "attempt") == "6"


@pytest.mark.setting("queues.retry.backoff.jitter")
@pytest.mark.parametrize(("jitter", "is_kept"), [(0, True), (1, False)])
def test_retry_backoff_jitter(worker, queue_with, name, jitter, is_kept):
    """Without it what failed comes in the order of its failures."""
    topic = queue_with(retry_backoff_ms="400ms", retry_backoff_jitter=jitter)
    failed = [b"%d" % number for number in range(20)]
    for payload in failed:
        worker.publish(topic, payload)
    for _ in failed:
        fails(worker, name)
    assert ([worker.receive().payload for _ in failed] == failed) is is_kept


@pytest.mark.setting("queues.retry.attempts")
def test_retry_attempts(node, worker, queue_with, name):
    topic = queue_with(retry_attempts=2, retry_backoff_ms=0)
    worker.publish(topic)
    fails(worker, name, 2)
    assert cause_of_death(node, worker, name) == "attempts"


@pytest.mark.setting("queues.retry.total.ms")
def test_retry_total(node, worker, queue_with, name):
    topic = queue_with(retry_total_ms="20ms", retry_backoff_ms=5, retry_attempts=-1)
    worker.publish(topic)
    while not group(node, queue=name)["dead"]:
        try:
            message = worker.messages.get(timeout=0.01)
        except queue.Empty:
            continue
        settle(worker, message, "nack", name)
    assert cause_of_death(node, worker, name) == "total_time"


@pytest.mark.setting("queues.message.ttl.ms")
def test_message_ttl(node, worker, name):
    make(node, name, settings={"message.ttl.ms": 1})
    worker.publish(f"$queue/{name}", b"old")
    assert shown(node, name)["depth"] == 1
    worker.subscribe(f"$queue/{name}")
    assert cause_of_death(node, worker, name) == "expired"


@pytest.mark.setting("queues.dead.letters")
def test_dead_letters(node, worker, queue_with, name):
    topic = queue_with(dead_letters="off")
    worker.publish(topic)
    before = node.metrics()[DEAD]
    assert settle(worker, worker.receive(), "reject", name) == 0
    wait_for(lambda: shown(node, name)["depth"] == 0)
    assert node.metrics()[DEAD] == before + 1
    assert node.call("GET", f"/api/v1/queues/{name}.dlq")[0] == 404


@pytest.mark.setting("queues.depth.max.messages")
def test_depth_max_messages(node, worker, queue_with, name):
    topic = queue_with(depth_max_messages=2)
    codes = [worker.publish(topic, b"%d" % number) for number in range(3)]
    assert codes == [0, 0, QUOTA_EXCEEDED]
    assert settle(worker, worker.receive(), queue=name) == 0
    producer = Producer({"bootstrap.servers": node.servers, "linger.ms": 100})
    told = []
    for many in (2, 1):  # a batch is taken whole, or not
        for _ in range(many):
            producer.produce(name, b"3", on_delivery=lambda error, _: told.append(error))
        assert producer.flush(10) == 0
    assert [error and error.code() for error in told] == [KafkaError.POLICY_VIOLATION] * 2 + [None]
    assert worker.publish(topic, b"3") == QUOTA_EXCEEDED


@pytest.mark.setting("queues.depth.max.bytes")
def test_depth_max_bytes(worker, queue_with):
    topic = queue_with(depth_max_bytes="100KiB", prefetch=1)
    codes = [worker.publish(topic, bytes(10_000)) for _ in range(12)]
    assert codes == [0] * 11 + [QUOTA_EXCEEDED], "that which goes beyond is the last"
    for _ in range(6):
        assert settle(worker, worker.receive(), queue=topic.removeprefix("$queue/")) == 0
    assert worker.publish(topic, bytes(10_000)) == 0


@pytest.mark.setting("queues.depth.policy")
def test_depth_policy(node, worker, name):
    bound = {"depth.max.messages": 2, "depth.policy": "dead-letter-oldest"}
    make(node, name, settings=bound)
    topic = f"$queue/{name}"
    worker.subscribe(f"{topic}/$dlq")
    worker.subscribe(f"{topic}?group=idle")
    worker.unsubscribe(f"{topic}?group=idle")
    assert [worker.publish(topic, payload) for payload in (b"1", b"2", b"3")] == [0, 0, 0]
    letter = worker.receive()
    assert (letter.payload, user_property(letter, "reason")) == (b"1", "depth")
    change = {"settings": {"depth.policy": "drop-oldest"}}
    assert node.call("PATCH", f"/api/v1/queues/{name}", change)[0] == 200
    before = node.metrics()[DROPPED]
    assert worker.publish(topic, b"4") == 0
    worker.subscribe(f"{topic}?group=idle")
    assert [worker.receive().payload for _ in range(2)] == [b"3", b"4"]
    assert node.metrics()[DROPPED] == before + 1


@pytest.mark.setting("queues.priorities")
def test_priorities(node, worker, name):
    make(node, name, settings={"priorities": "on"})
    topic = f"$queue/{name}"
    for payload, priority in ((b"low", "0"), (b"urgent", "9")):
        worker.publish(topic, payload, properties=publish_properties(("priority", priority)))
        worker.publish(topic, b"plain")
    worker.subscribe(f"{topic}?prefetch=1")
    given = []
    for _ in range(4):
        message = worker.receive()
        given.append(message.payload)
        settle(worker, message, queue=name)
    assert given == [b"urgent", b"plain", b"plain", b"low"]
    change = {"settings": {"priorities": None}}
    assert node.call("PATCH", f"/api/v1/queues/{name}", change)[0] == 200
    urgent = publish_properties(("priority", "9"))
    assert worker.publish(topic, properties=urgent) == NOT_SERVED


@pytest.mark.setting("queues.batch.size")
@pytest.mark.parametrize(("batch_size", "is_mixed"), [(1, True), (500, False)])
def test_batch_size(node, worker, name, batch_size, is_mixed):
    """Of two groups one is given so much before the other has its turn."""
    make(node, name, settings={"paused": "on", "batch.size": batch_size})
    topic = f"$queue/{name}"
    for _ in range(40):
        worker.publish(topic)
    for each in "ab":
        worker.subscribe(f"{topic}?group={each}")
    node.call("PATCH", f"/api/v1/queues/{name}", {"settings": {"paused": None}})
    given = "".join(user_property(worker.receive(), "group-id") for _ in range(80))
    assert (given.lstrip(given[0]) != given[-1] * 40) is is_mixed
