"""Kafka's clients against a node, each with its defaults: what goes in comes out, byte by byte."""

import asyncio
import json
import subprocess
import uuid
from struct import unpack_from

import aiokafka
import aiokafka.admin
import confluent_kafka
import confluent_kafka.admin
import kafka
import kafka.admin
import pytest
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from confluent_kafka import KafkaError, TopicPartition

from headrace import native
from headrace.client import FetchClient

pytestmark = [pytest.mark.clients, pytest.mark.slow]

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
HEADERS = [("trace", b"\x00\x01"), ("empty", b""), ("null", None), ("trace", b"again")]
VALUED_HEADERS = [(key, value) for key, value in HEADERS if value is not None]
"""Headers for the clients that know no null."""

RECORDS = [(f"key-{n}".encode(), f"value-{n} ".encode() * (n % 50 + 1)) for n in range(300)]


@pytest.fixture
def node(shared):
    return shared


@pytest.fixture
def reader(node):
    with FetchClient(node.servers, timeout_s=20) as client:
        yield client


def codecs_stored(reader, stream, partition=0):
    """The compression of each batch, as its attributes say."""
    data, at, found = reader.fetch(stream, partition, 0, 10_000_000, 0), 0, []
    while at < len(data):
        found.append(unpack_from(">h", data, at + 21)[0] & 7)
        at += 12 + unpack_from(">i", data, at + 8)[0]
    return found


def assert_codec(reader, stream, codec, partition=0):
    """The client compressed as it was told (KAFKA-18659), but for batches too small to gain."""
    found = set(codecs_stored(reader, stream, partition))
    assert CODECS[codec] in found
    assert found <= {CODECS[codec], CODECS["none"]}


# --- kcat (librdkafka 2.0) -----------------------------------------------------------------------


def kcat(node, *args, stdin=b""):
    done = subprocess.run(
        ["kcat", "-b", node.servers, *args],
        input=stdin,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


@pytest.mark.shows("kcat", "none gzip snappy lz4 zstd", "consume")
@pytest.mark.parametrize("codec", CODECS)
def test_kcat_produces_and_consumes(node, stream, reader, codec):
    lines = b"".join(key + b"|" + value + b"\n" for key, value in RECORDS)
    args = ["-X", "linger.ms=100", "-H", "trace=abc", "-H", "bare"]
    kcat(node, "-P", "-t", stream, "-p", "0", "-K|", "-z", codec, *args, stdin=lines)
    out = kcat(node, "-C", "-t", stream, "-p", "0", "-o", "beginning", "-e", "-q", "-J")
    got = [json.loads(line) for line in out.splitlines()]
    assert [(m["key"].encode(), m["payload"].encode()) for m in got] == RECORDS
    assert [m["offset"] for m in got] == list(range(len(RECORDS)))
    assert got[0]["headers"] == ["trace", "abc", "bare", None]
    assert_codec(reader, stream, codec)


@pytest.mark.shows("kcat", "idempotence", "acks")
@pytest.mark.parametrize("setting", ["enable.idempotence=true", "acks=0", "acks=1", "acks=all"])
def test_kcat_produces_as_it_is_set(node, stream, setting):
    lines = b"".join(b"%d\n" % number for number in range(100))
    kcat(node, "-P", "-t", stream, "-p", "0", "-X", setting, stdin=lines)
    assert kcat(node, "-C", "-t", stream, "-p", "0", "-c", "100", "-q") == lines


@pytest.mark.shows("kcat", "offsets")
def test_kcat_asks_for_offsets(node, stream):
    kcat(node, "-P", "-t", stream, "-p", "1", "-l", "/dev/stdin", stdin=b"a\nb\nc\n")
    for wanted, offset in (("-2", 0), ("-1", 3), ("0", 0)):
        out = kcat(node, "-Q", "-t", f"{stream}:1:{wanted}").decode()
        assert out.strip() == f"{stream} [1] offset {offset}"


@pytest.mark.shows("kcat", "cluster")
def test_kcat_lists_this_node_and_its_streams(node, stream):
    listed = json.loads(kcat(node, "-L", "-J"))
    assert listed["brokers"] == [{"id": 1, "name": node.servers}]
    assert stream in {topic["topic"] for topic in listed["topics"]}


# --- confluent-kafka (librdkafka 2.16) -----------------------------------------------------------


def produce(node, stream, partition=0, records=RECORDS, **config):
    """Produces with confluent-kafka and returns the offsets that were acknowledged."""
    offsets, failures = [], []

    def delivered(error, message):
        (failures if error else offsets).append(error or message.offset())

    settings = {"bootstrap.servers": node.servers, "linger.ms": 20, **config}
    producer = confluent_kafka.Producer(settings)
    for key, value in records:
        producer.produce(
            stream,
            value,
            key,
            partition,
            on_delivery=delivered,
            timestamp=1_700_000_000_000,
            headers=HEADERS,
        )
    assert producer.flush(60) == 0
    assert failures == []
    return offsets


def consume(node, stream, count, partition=0, offset=0, **config):
    """Reads `count` messages by assignment."""
    settings = {"bootstrap.servers": node.servers, "group.id": "unused", **config}
    consumer = confluent_kafka.Consumer(settings)
    consumer.assign([TopicPartition(stream, partition, offset)])
    messages = []
    while len(messages) < count:
        more = consumer.consume(count - len(messages), timeout=30)
        assert more, f"{len(messages)} of {count} messages came"
        messages += more
    consumer.close()
    assert [message.error() for message in messages] == [None] * count
    return messages


@pytest.mark.shows("confluent-kafka", "none gzip snappy lz4 zstd", "idempotence", "consume")
@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("codec", CODECS)
def test_confluent_produces_and_consumes(node, stream, reader, codec, idempotent):
    config = {"compression.type": codec, "enable.idempotence": idempotent}
    assert produce(node, stream, **config) == list(range(len(RECORDS)))
    messages = consume(node, stream, len(RECORDS))
    assert [(m.key(), m.value()) for m in messages] == RECORDS
    assert [m.offset() for m in messages] == list(range(len(RECORDS)))
    assert all(m.headers() == HEADERS for m in messages)
    assert {m.timestamp() for m in messages} == {
        (confluent_kafka.TIMESTAMP_CREATE_TIME, 1_700_000_000_000)
    }
    assert_codec(reader, stream, codec)


@pytest.mark.shows("confluent-kafka", "acks")
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_confluent_produces_with_each_acks(node, stream, acks):
    produce(node, stream, acks=acks)
    messages = consume(node, stream, len(RECORDS))
    assert [m.value() for m in messages] == [value for _, value in RECORDS]


def test_confluent_reads_read_committed(node, stream):
    produce(node, stream)
    messages = consume(node, stream, len(RECORDS), **{"isolation.level": "read_committed"})
    assert len(messages) == len(RECORDS)


def test_confluent_seeks_into_a_batch(node, stream):
    produce(node, stream)
    messages = consume(node, stream, 10, offset=123)
    assert [m.offset() for m in messages] == list(range(123, 133))


def test_confluent_spreads_keys_as_the_broker_does(node, stream):
    produce(node, stream, partition=-1, partitioner="murmur2_random")
    for partition in range(3):
        keys = [key for key, _ in RECORDS if (native.murmur2(key) & 0x7FFFFFFF) % 3 == partition]
        messages = consume(node, stream, len(keys), partition)
        assert [m.key() for m in messages] == keys


@pytest.mark.shows("confluent-kafka", "offsets")
def test_confluent_finds_offsets_by_time(node, stream):
    producer = confluent_kafka.Producer({"bootstrap.servers": node.servers})
    for second in range(10):
        producer.produce(stream, b"x", partition=0, timestamp=1_700_000_000_000 + second * 1000)
        assert producer.flush(30) == 0
    consumer = confluent_kafka.Consumer({"bootstrap.servers": node.servers, "group.id": "t"})
    for wanted_ms, offset in ((0, 0), (4000, 4), (4001, 5), (9000, 9)):
        asked = TopicPartition(stream, 0, 1_700_000_000_000 + wanted_ms)
        (found,) = consumer.offsets_for_times([asked], timeout=30)
        assert (found.offset, found.error) == (offset, None)
    (none,) = consumer.offsets_for_times([TopicPartition(stream, 0, 1_700_000_009_001)], timeout=30)
    assert none.offset == confluent_kafka.OFFSET_END
    assert consumer.get_watermark_offsets(TopicPartition(stream, 0), timeout=30) == (0, 10)
    consumer.close()


@pytest.mark.shows("confluent-kafka", "commits")
def test_confluent_commits_and_finds_it_again(node, stream):
    group = f"g-{stream}"
    first = confluent_kafka.Consumer({"bootstrap.servers": node.servers, "group.id": group})
    wanted = [TopicPartition(stream, 0, 7, "half way"), TopicPartition(stream, 2, 9)]
    committed = first.commit(offsets=wanted, asynchronous=False)
    assert [each.error for each in committed] == [None, None]
    first.close()
    second = confluent_kafka.Consumer({"bootstrap.servers": node.servers, "group.id": group})
    asked = [TopicPartition(stream, partition) for partition in range(3)]
    found = second.committed(asked, timeout=30)
    assert [each.offset for each in found] == [7, confluent_kafka.OFFSET_INVALID, 9]
    assert found[0].metadata == "half way"
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        second.commit(offsets=[TopicPartition(stream, 99, 1)], asynchronous=False)
    assert refused.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    second.close()


def test_confluent_is_told_of_a_message_that_is_too_large(node):
    stream = f"small-{uuid.uuid4().hex[:8]}"
    node.create_stream(stream, settings={"max.message.bytes": 1000})
    errors = []
    producer = confluent_kafka.Producer({"bootstrap.servers": node.servers})
    producer.produce(stream, b"x" * 2000, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(30) == 0
    assert [error.code() for error in errors] == [KafkaError.MSG_SIZE_TOO_LARGE]


def test_confluent_is_told_that_transactions_are_not_served(node):
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": node.servers, "transactional.id": "t"}
    )
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        producer.init_transactions(30)
    assert refused.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def outcome(future):
    """The error code that an admin call ended with; 0 where it worked."""
    try:
        future.result(30)
    except confluent_kafka.KafkaException as error:
        return error.args[0].code()
    return 0


@pytest.mark.shows("confluent-kafka", "topics")
def test_confluent_administers_topics(node):
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": node.servers})
    name = f"made-{uuid.uuid4().hex[:8]}"

    def create(*args, validate_only=False, **kwargs):
        topic = confluent_kafka.admin.NewTopic(*args, **kwargs)
        (future,) = admin.create_topics([topic], validate_only=validate_only).values()
        return outcome(future)

    assert create(name, 4, 1, validate_only=True) == 0
    assert name not in admin.list_topics(timeout=30).topics
    assert create(name, 4, 1, config={"max.message.bytes": "2000000"}) == 0
    assert len(admin.list_topics(name, timeout=30).topics[name].partitions) == 4
    assert create(name, 4, 1) == KafkaError.TOPIC_ALREADY_EXISTS
    assert create("rf3", 1, 3) == KafkaError.INVALID_REPLICATION_FACTOR
    assert create("bad name", 1, 1) == KafkaError.TOPIC_EXCEPTION
    assert create("__own", 1, 1) == KafkaError.TOPIC_EXCEPTION
    assert create("many", 100_000, 1) == KafkaError.INVALID_PARTITIONS
    assert create("odd", 1, 1, config={"no.such.setting": "1"}) == KafkaError.INVALID_CONFIG
    assert create("odd", 1, 1, config={"max.message.bytes": "x"}) == KafkaError.INVALID_CONFIG
    (deleted,) = admin.delete_topics([name]).values()
    assert outcome(deleted) == 0
    assert name not in admin.list_topics(timeout=30).topics
    (again,) = admin.delete_topics([name]).values()
    assert outcome(again) == KafkaError.UNKNOWN_TOPIC_OR_PART


@pytest.mark.shows("confluent-kafka", "cluster")
def test_confluent_describes_the_cluster(node):
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": node.servers})
    found = admin.describe_cluster().result(30)
    assert found.cluster_id == "headrace"
    assert [(each.id, f"{each.host}:{each.port}") for each in found.nodes] == [(1, node.servers)]
    assert found.controller.id == 1


def test_a_consumer_waits_for_a_message_that_comes_later(node, stream):
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": node.servers, "group.id": "g", "fetch.wait.max.ms": 30_000}
    )
    consumer.assign([TopicPartition(stream, partition, 0) for partition in range(3)])
    assert consumer.poll(0.5) is None
    produce(node, stream, 2, [(b"k", b"late")])
    message = consumer.poll(25)
    assert (message.partition(), message.value()) == (2, b"late")
    consumer.close()


# --- kafka-python --------------------------------------------------------------------------------


@pytest.mark.shows("kafka-python", "none gzip snappy lz4 zstd")
@pytest.mark.shows("kafka-python", "idempotence", "consume", "offsets")
@pytest.mark.parametrize("codec", CODECS)
def test_kafka_python_produces_and_consumes(node, stream, reader, codec):
    kind = None if codec == "none" else codec
    with kafka.KafkaProducer(bootstrap_servers=node.servers, compression_type=kind) as producer:
        futures = [
            producer.send(stream, value, key, headers=VALUED_HEADERS, partition=0)
            for key, value in RECORDS
        ]
        producer.flush(60)
    assert [future.get(10).offset for future in futures] == list(range(len(RECORDS)))
    assert_codec(reader, stream, codec)
    place = kafka.TopicPartition(stream, 0)
    with kafka.KafkaConsumer(bootstrap_servers=node.servers, group_id=None) as consumer:
        consumer.assign([place])
        assert consumer.beginning_offsets([place]) == {place: 0}
        assert consumer.end_offsets([place]) == {place: len(RECORDS)}
        consumer.seek(place, 100)
        got = [next(consumer) for _ in range(len(RECORDS) - 100)]
    assert [(m.key, m.value) for m in got] == RECORDS[100:]
    assert [tuple(header) for header in got[0].headers] == VALUED_HEADERS


@pytest.mark.shows("kafka-python", "acks")
@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_kafka_python_produces_with_each_acks(node, stream, acks):
    settings = {"enable_idempotence": acks == "all", "acks": acks}
    with kafka.KafkaProducer(bootstrap_servers=node.servers, **settings) as producer:
        for _, value in RECORDS:
            producer.send(stream, value, partition=0)
    messages = consume(node, stream, len(RECORDS))
    assert [m.value() for m in messages] == [value for _, value in RECORDS]


@pytest.mark.shows("kafka-python", "topics", "commits")
def test_kafka_python_administers_and_commits(node):
    admin = kafka.admin.KafkaAdminClient(bootstrap_servers=node.servers)
    name = f"py-{uuid.uuid4().hex[:8]}"
    admin.create_topics([kafka.admin.NewTopic(name, num_partitions=2, replication_factor=1)])
    assert name in admin.list_topics()
    admin.close()
    place = kafka.TopicPartition(name, 1)
    with kafka.KafkaConsumer(bootstrap_servers=node.servers, group_id=f"g-{name}") as consumer:
        consumer.assign([place])
        consumer.commit({place: kafka.OffsetAndMetadata(5, "note", -1)})
        assert consumer.committed(place) == 5


# --- aiokafka ------------------------------------------------------------------------------------


@pytest.mark.shows("aiokafka", "none gzip snappy lz4 zstd", "idempotence", "consume", "offsets")
@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("codec", CODECS)
async def test_aiokafka_produces_and_consumes(node, stream, reader, codec, idempotent):
    kind = None if codec == "none" else codec
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=node.servers, compression_type=kind, enable_idempotence=idempotent
    )
    async with producer:
        sends = [
            await producer.send(stream, value, key, partition=0, headers=VALUED_HEADERS)
            for key, value in RECORDS
        ]
        offsets = [(await send).offset for send in sends]
    assert offsets == list(range(len(RECORDS)))
    await asyncio.to_thread(assert_codec, reader, stream, codec)
    place = aiokafka.TopicPartition(stream, 0)
    async with aiokafka.AIOKafkaConsumer(bootstrap_servers=node.servers) as consumer:
        consumer.assign([place])
        await consumer.seek_to_beginning(place)
        got = [await consumer.getone() for _ in RECORDS]
        assert await consumer.end_offsets([place]) == {place: len(RECORDS)}
    assert [(m.key, m.value) for m in got] == RECORDS
    assert list(got[0].headers) == VALUED_HEADERS


@pytest.mark.shows("aiokafka", "acks")
@pytest.mark.parametrize("acks", [0, 1, "all"])
async def test_aiokafka_produces_with_each_acks(node, stream, acks):
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=node.servers, acks=acks) as producer:
        for _, value in RECORDS:
            await producer.send(stream, value, partition=0)
    messages = await asyncio.to_thread(consume, node, stream, len(RECORDS))
    assert [m.value() for m in messages] == [value for _, value in RECORDS]


@pytest.mark.shows("aiokafka", "cluster", "partitions", "settings", "records deleted")
async def test_aiokafka_manages_a_stream(node, stream):
    topic = ConfigResourceType.TOPIC
    await asyncio.to_thread(produce, node, stream)
    admin = aiokafka.admin.AIOKafkaAdminClient(bootstrap_servers=node.servers)
    await admin.start()
    assert (await admin.describe_cluster())["cluster_id"] == "headrace"
    await admin.create_partitions({stream: aiokafka.admin.NewPartitions(5)})
    (described,) = await admin.describe_topics([stream])
    assert len(described["partitions"]) == 5
    change = ConfigResource(topic, stream, {"segment.ms": "1000"})
    await admin.alter_configs([change])
    named = ConfigResource(topic, stream)
    (answer,) = await admin.describe_configs([named])
    values = {name: value for name, value, *_ in answer.resources[0][4]}
    assert values["segment.ms"] == "1000"
    place = aiokafka.TopicPartition(stream, 0)
    until = aiokafka.admin.RecordsToDelete(before_offset=100)
    assert await admin.delete_records({place: until}) == {place: 100}
    await admin.close()


@pytest.mark.shows("aiokafka", "topics", "commits")
async def test_aiokafka_administers_and_commits(node):
    admin = aiokafka.admin.AIOKafkaAdminClient(bootstrap_servers=node.servers)
    await admin.start()
    name = f"aio-{uuid.uuid4().hex[:8]}"
    await admin.create_topics([aiokafka.admin.NewTopic(name, 2, 1)])
    assert name in await admin.list_topics()
    await admin.close()
    place = aiokafka.TopicPartition(name, 0)
    consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=node.servers, group_id=f"g-{name}")
    async with consumer:
        consumer.assign([place])
        await consumer.commit({place: aiokafka.structs.OffsetAndMetadata(4, "x")})
        assert await consumer.committed(place) == 4
