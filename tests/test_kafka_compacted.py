"""A compacted topic, made, written, altered and read by Kafka's own clients."""

import asyncio

import aiokafka
import confluent_kafka
import confluent_kafka.admin
import kafka
import kafka.admin
import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from conftest import wait_for
from headrace import native
from kafkaraw import RawConnection

pytestmark = [pytest.mark.clients, pytest.mark.slow]

KEYS = 100
ROUNDS = 8
VALUE = b"x" * 500
END = b"end"
"""Key of the last record, which stands in the active segment, as Kafka leaves that alone."""

Rows = list[tuple[int, bytes, bytes | None]]


def made(node, name: str, **configs: str) -> None:
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": node.servers})
    config = {"cleanup.policy": "compact", "segment.bytes": "65536", **configs}
    topic = confluent_kafka.admin.NewTopic(name, 1, 1, config=config)
    admin.create_topics([topic])[name].result(30)


def written(node, name: str) -> Rows:
    """Each key many times, by all three clients; in the end every tenth is deleted."""
    rows: Rows = []
    producer = confluent_kafka.Producer({"bootstrap.servers": node.servers, "linger.ms": 5})

    def delivered(error, message):
        assert error is None
        rows.append((message.offset(), message.key(), message.value()))

    for at in range(ROUNDS * KEYS):
        key = b"key-%d" % (at % KEYS)
        producer.produce(name, b"%d %s" % (at, VALUE), key, on_delivery=delivered)
    assert producer.flush(30) == 0

    with kafka.KafkaProducer(bootstrap_servers=node.servers) as other:
        for at in range(0, KEYS, 10):
            key = b"key-%d" % at
            rows.append((other.send(name, None, key).get(30).offset, key, None))

    async def send() -> None:
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=node.servers) as last:
            for at in range(5):
                key, value = b"key-%d" % at, b"last %d" % at
                rows.append(((await last.send_and_wait(name, value, key)).offset, key, value))

    asyncio.run(send())
    return rows


def rolled(node, name: str, *more: ConfigEntry) -> Rows:
    """Closes the segment by its age, and begins the next with one record."""
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": node.servers})
    entries = [
        ConfigEntry("segment.ms", "1", incremental_operation=AlterConfigOpType.SET),
        *more,
    ]
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
    (future,) = admin.incremental_alter_configs([resource]).values()
    future.result(30)
    with kafka.KafkaProducer(bootstrap_servers=node.servers) as producer:
        return [(producer.send(name, b"", END).get(30).offset, END, b"")]


def replaced(node, name: str, **configs: str) -> None:
    """AlterConfigs: what is not named goes back to its default. Compaction looks again at once."""
    admin = kafka.admin.KafkaAdminClient(bootstrap_servers=node.servers)
    kind = kafka.admin.ConfigResourceType.TOPIC
    named = {"cleanup.policy": "compact", **{k.replace("_", "."): v for k, v in configs.items()}}
    admin.alter_configs([kafka.admin.ConfigResource(kind, name, configs=named)])
    admin.close()


def last_of_each(rows: Rows) -> Rows:
    return sorted({key: (offset, key, value) for offset, key, value in sorted(rows)}.values())


def held(node, name: str) -> Rows:
    """All that the topic holds, as its batches say."""
    rows: Rows = []
    offset, end = 0, node.ends(name)[0]
    with RawConnection(node) as raw:
        while offset < end:
            batches = raw.fetch(name, {0: offset})[0].records
            columns = native.decode_records(batches, offset, end, len(batches))
            rows += [(at, key, value) for at, _, key, value, _ in columns.rows()]
            offset = columns.next_offset
    return rows


def read_by_confluent(node, name: str, offset: int) -> Rows:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": node.servers, "group.id": "g"})
    consumer.assign([confluent_kafka.TopicPartition(name, 0, offset)])
    rows: Rows = []
    while not rows or rows[-1][1] != END:
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        rows.append((message.offset(), message.key(), message.value()))
    consumer.close()
    return rows


def read_by_kafka_python(node, name: str, offset: int) -> Rows:
    place = kafka.TopicPartition(name, 0)
    rows: Rows = []
    with kafka.KafkaConsumer(bootstrap_servers=node.servers, group_id=None) as consumer:
        consumer.assign([place])
        consumer.seek(place, offset)
        while not rows or rows[-1][1] != END:
            message = next(consumer)
            rows.append((message.offset, message.key, message.value))
    return rows


def read_by_aiokafka(node, name: str, offset: int) -> Rows:
    async def read() -> Rows:
        place = aiokafka.TopicPartition(name, 0)
        rows: Rows = []
        async with aiokafka.AIOKafkaConsumer(bootstrap_servers=node.servers) as consumer:
            consumer.assign([place])
            consumer.seek(place, offset)
            while not rows or rows[-1][1] != END:
                message = await consumer.getone()
                rows.append((message.offset, message.key, message.value))
        return rows

    return asyncio.run(read())


READERS = [read_by_confluent, read_by_kafka_python, read_by_aiokafka]


def test_the_last_value_of_each_key_remains_at_its_offset_for_every_client(start_node):
    node = start_node()
    made(node, "state", **{"min.cleanable.dirty.ratio": "1"})
    rows = written(node, "state")
    assert held(node, "state") == sorted(rows), "nothing goes while the log is not dirty enough"
    rows += rolled(node, "state")
    replaced(node, "state", min_cleanable_dirty_ratio="0")
    wanted = last_of_each(rows)
    assert [value for _, _, value in wanted].count(None) == KEYS // 10 - 1, "one came back"
    wait_for(lambda: held(node, "state") == wanted)
    gone = sorted({offset for offset, _, _ in rows} - {offset for offset, _, _ in wanted})
    for read in READERS:
        assert read(node, "state", 0) == wanted
        for offset in (gone[1], gone[len(gone) // 2], gone[-1]):
            assert read(node, "state", offset) == [row for row in wanted if row[0] > offset]
    node.stop()
    node = start_node.again(node)
    assert held(node, "state") == wanted


def test_tombstones_go_after_delete_retention_ms(start_node):
    node = start_node(HEADRACE_LOG__RETENTION_CHECK="200ms")
    made(node, "state", **{"delete.retention.ms": "0"})
    rows = written(node, "state") + rolled(node, "state")
    replaced(node, "state", min_cleanable_dirty_ratio="0", delete_retention_ms="0")
    wanted = [row for row in last_of_each(rows) if row[2] is not None]
    wait_for(lambda: held(node, "state") == wanted)
    for read in READERS:
        assert read(node, "state", 0) == wanted


def test_young_records_wait_for_min_compaction_lag_ms(start_node):
    node = start_node()
    made(node, "state", **{"min.compaction.lag.ms": "3600000"})
    rows = written(node, "state") + rolled(node, "state")
    replaced(node, "state", min_cleanable_dirty_ratio="0", min_compaction_lag_ms="3600000")
    made(node, "other")
    others = written(node, "other") + rolled(node, "other")
    replaced(node, "other", min_cleanable_dirty_ratio="0")
    wait_for(lambda: held(node, "other") == last_of_each(others))
    assert held(node, "state") == sorted(rows), "which were asked for before the other's"
