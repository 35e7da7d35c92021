"""Settings and deletions through Kafka's own admin clients."""

import threading
import uuid
from collections import defaultdict

import confluent_kafka
import confluent_kafka.admin
import kafka
import kafka.admin
import paho.mqtt.client as mqtt
import pytest
from confluent_kafka import KafkaError, TopicPartition
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)

from headrace.settings import DEFAULTS, SETTINGS
from headrace.wire.kafka import admin as m
from headrace.wire.kafka import apis
from headrace.wire.kafka.errors import ErrorCode
from kafkaraw import batch
from pahoclient import leave

pytestmark = pytest.mark.clients


@pytest.fixture
def node(shared):
    return shared


@pytest.fixture
def stream(node):
    name = f"s-{uuid.uuid4().hex[:12]}"
    node.create_stream(name, settings={"retention.ms": "30d"})
    return name


@pytest.fixture
def admin(node):
    return confluent_kafka.admin.AdminClient({"bootstrap.servers": node.servers})


def settings(node, stream):
    return node.call("GET", f"/api/v1/streams/{stream}")[1]["settings"]


def described(admin, kind, name):
    (future,) = admin.describe_configs([ConfigResource(kind, name)]).values()
    return future.result(30)


def altered(admin, stream, *entries, **kwargs):
    """0, or the error code with which the client was refused."""
    resource = ConfigResource(ResourceType.TOPIC, stream, incremental_configs=list(entries))
    (future,) = admin.incremental_alter_configs([resource], **kwargs).values()
    try:
        future.result(30)
    except confluent_kafka.KafkaException as error:
        return error.args[0].code()
    return 0


def entry(name, value, operation=AlterConfigOpType.SET):
    return ConfigEntry(name, value, incremental_operation=operation)


def test_confluent_sees_settings_and_where_they_come_from(admin, stream):
    configs = described(admin, ResourceType.TOPIC, stream)
    assert configs.keys() == SETTINGS.keys()
    own = configs["retention.ms"]
    assert (own.value, own.is_default, own.source) == (
        str(30 * 86_400_000),
        False,
        ConfigSource.DYNAMIC_TOPIC_CONFIG.value,
    )
    assert list(own.synonyms) == ["retention.ms", "log.retention.ms"]
    default = configs["segment.bytes"]
    assert (default.value, default.is_default, default.source) == (
        str(DEFAULTS.segment_bytes),
        True,
        ConfigSource.DEFAULT_CONFIG.value,
    )


def test_confluent_sees_the_nodes_defaults(start_node):
    node = start_node(HEADRACE_LOG__RETENTION_MS="1d")
    node.create_stream("a")
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": node.servers})
    of_topic = described(admin, ResourceType.TOPIC, "a")["retention.ms"]
    of_broker = described(admin, ResourceType.BROKER, "1")["log.retention.ms"]
    for each in (of_topic, of_broker):
        assert (each.value, each.source) == ("86400000", ConfigSource.STATIC_BROKER_CONFIG.value)
    assert of_broker.is_read_only
    assert not of_topic.is_read_only


@pytest.mark.shows("confluent-kafka", "settings")
def test_confluent_changes_settings_one_by_one(admin, node, stream):
    assert altered(admin, stream, entry("segment.ms", "1000"), entry("fsync", "commit")) == 0
    assert altered(admin, stream, entry("cleanup.policy", "compact", AlterConfigOpType.APPEND)) == 0
    assert settings(node, stream) == {
        "cleanup.policy": "compact,delete",
        "fsync": "commit",
        "retention.ms": 30 * 86_400_000,
        "segment.ms": 1000,
    }
    subtract = AlterConfigOpType.SUBTRACT
    assert altered(admin, stream, entry("cleanup.policy", "delete", subtract)) == 0
    assert altered(admin, stream, entry("retention.ms", None, AlterConfigOpType.DELETE)) == 0
    assert settings(node, stream) == {
        "cleanup.policy": "compact",
        "fsync": "commit",
        "segment.ms": 1000,
    }


def test_confluent_is_told_why_a_setting_is_refused(admin, node, stream):
    before = settings(node, stream)
    refused = {
        entry("retention.mss", "1"): KafkaError.INVALID_CONFIG,
        entry("retention.ms", "x"): KafkaError.INVALID_CONFIG,
        entry("retention.ms", "1", AlterConfigOpType.APPEND): KafkaError.INVALID_CONFIG,
        entry("preallocate", "true"): KafkaError.INVALID_CONFIG,
    }
    for each, code in refused.items():
        assert altered(admin, stream, each) == code
    assert altered(admin, "none", entry("retention.ms", "1")) == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert altered(admin, "__offsets", entry("retention.ms", "1")) != 0
    assert altered(admin, stream, entry("retention.ms", "1"), validate_only=True) == 0
    assert settings(node, stream) == before


@pytest.mark.filterwarnings("ignore:alter_configs:DeprecationWarning")
def test_confluent_replaces_all_settings(admin, node, stream):
    resource = ConfigResource(ResourceType.TOPIC, stream, set_config={"segment.bytes": "1000000"})
    (future,) = admin.alter_configs([resource]).values()
    future.result(30)
    assert settings(node, stream) == {"segment.bytes": 1_000_000}


@pytest.mark.shows("kafka-python", "settings")
def test_kafka_python_sees_and_changes_settings(node, stream):
    admin = kafka.admin.KafkaAdminClient(bootstrap_servers=node.servers)
    topic = kafka.admin.ConfigResourceType.TOPIC

    def resource(configs):
        return kafka.admin.ConfigResource(topic, stream, configs=configs)

    admin.alter_configs([resource({"max.message.bytes": "5000", "cleanup.policy": "compact"})])
    assert settings(node, stream) == {
        "cleanup.policy": "compact",
        "max.message.bytes": 5000,
        "retention.ms": 30 * 86_400_000,
    }
    assert "5000" in str(admin.describe_configs([resource(None)]))
    admin.close()


def fill(node, stream, records):
    with kafka.KafkaProducer(bootstrap_servers=node.servers) as producer:
        for index in range(records):
            producer.send(stream, b"%d" % index, partition=0)


@pytest.mark.shows("confluent-kafka", "records deleted")
@pytest.mark.shows("kafka-python", "records deleted")
def test_clients_delete_records(admin, node, stream):
    fill(node, stream, 10)
    place = TopicPartition(stream, 0, 4)
    (future,) = admin.delete_records([place]).values()
    assert future.result(30).low_watermark == 4
    client = kafka.admin.KafkaAdminClient(bootstrap_servers=node.servers)
    client.delete_records({kafka.TopicPartition(stream, 0): 7})
    client.close()
    with kafka.KafkaConsumer(bootstrap_servers=node.servers, group_id=None) as consumer:
        at = kafka.TopicPartition(stream, 0)
        assert consumer.beginning_offsets([at]) == {at: 7}
        consumer.assign([at])
        consumer.seek_to_beginning(at)
        assert next(consumer).offset == 7
    assert node.metrics()['headrace_log_trimmed_records_total{reason="request"}'] >= 7


def test_deleting_records_by_version(node, stream, raw):
    fill(node, stream, 5)

    def delete(name, index, offset, version=1):
        asked = m.DeleteRecordsPartition(partition_index=index, offset=offset)
        topic = m.DeleteRecordsTopic(name=name, partitions=[asked])
        request = m.DeleteRecordsRequest(topics=[topic], timeout_ms=1000)
        answer = raw.call(apis.DELETE_RECORDS, request, version).topics[0].partitions[0]
        return answer.error_code, answer.low_watermark

    assert delete(stream, 0, 2, version=0) == (0, 2)
    assert delete(stream, 0, 1) == (0, 2), "what is gone stays so"
    assert delete(stream, 0, 6) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete(stream, 0, -2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete(stream, 1, 0) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert delete(stream, 0, -1) == (0, 5)
    status, _ = node.call(
        "PATCH", f"/api/v1/streams/{stream}", {"settings": {"cleanup.policy": "compact"}}
    )
    assert status == 200
    assert delete(stream, 0, -1) == (ErrorCode.POLICY_VIOLATION, -1)


def test_a_compacted_stream_takes_no_record_without_a_key(node, raw):
    name = f"c-{uuid.uuid4().hex[:8]}"
    node.create_stream(name, settings={"cleanup.policy": "compact"})
    assert raw.produce(name, batch(b"keyless")).error_code == ErrorCode.INVALID_RECORD
    with kafka.KafkaProducer(bootstrap_servers=node.servers, compression_type="gzip") as producer:
        assert producer.send(name, b"v", b"k", partition=0).get(30).offset == 0
    assert node.ends(name) == [1]


def test_a_compacted_stream_has_a_key_for_every_publish(node):
    body = {"filters": ["a/#"], "key": "property:id", "settings": {"cleanup.policy": "compact"}}
    status, answer = node.call("POST", "/api/v1/streams", {"name": "keyless", **body})
    assert status == 400
    assert "choose key topic or level:N" in answer["detail"]


@pytest.mark.parametrize("version", range(4))
def test_describing_by_version(raw, stream, version):
    resources = [
        m.DescribeConfigsResource(
            resource_type=2, resource_name=stream, configuration_keys=["fsync", "retention.ms"]
        ),
        m.DescribeConfigsResource(resource_type=2, resource_name="none"),
        m.DescribeConfigsResource(resource_type=4, resource_name="2"),
    ]
    request = m.DescribeConfigsRequest(resources=resources, include_documentation=version == 3)
    found, missing, other = raw.call(apis.DESCRIBE_CONFIGS, request, version).results
    assert [each.name for each in found.configs] == ["fsync", "retention.ms"]
    assert [each.documentation is None for each in found.configs] == [version < 3] * 2
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert other.error_code == ErrorCode.INVALID_REQUEST


def test_a_setting_without_a_value_or_named_twice_is_refused(raw, node, stream):
    def altered(*configs, times=1):
        resource = m.IncrementalResource(resource_type=2, resource_name=stream, configs=configs)
        body = m.IncrementalAlterConfigsRequest(resources=[resource] * times)
        answer = raw.call(apis.INCREMENTAL_ALTER_CONFIGS, body)
        return {each.error_code for each in answer.responses}

    def replaced(*pairs, times=1):
        configs = [m.AlterableConfig(name=name, value=value) for name, value in pairs]
        resource = m.AlterConfigsResource(resource_type=2, resource_name=stream, configs=configs)
        answer = raw.call(apis.ALTER_CONFIGS, m.AlterConfigsRequest(resources=[resource] * times))
        return {each.error_code for each in answer.responses}

    def created(*pairs):
        configs = [m.CreateTopicConfig(name=name, value=value) for name, value in pairs]
        body = m.CreateTopicsRequest(
            topics=[m.CreateTopic(name="never", configs=configs)], timeout_ms=9
        )
        return {each.error_code for each in raw.call(apis.CREATE_TOPICS, body).topics}

    def change(name, value, operation):
        return m.IncrementalConfig(name=name, config_operation=operation, value=value)

    before = settings(node, stream)
    for operation in (0, 2, 3):  # set, append, subtract
        assert altered(change("cleanup.policy", None, operation)) == {ErrorCode.INVALID_REQUEST}
    twice = [change("retention.ms", "1", 0), change("retention.ms", None, 1)]
    assert altered(*twice) == {ErrorCode.INVALID_REQUEST}
    assert altered(*twice[:1], times=2) == {ErrorCode.INVALID_REQUEST}
    for ask in (replaced, created):
        assert ask(("retention.ms", None)) == {ErrorCode.INVALID_REQUEST}
        assert ask(("retention.ms", "1"), ("retention.ms", "2")) == {ErrorCode.INVALID_REQUEST}
    assert replaced(("retention.ms", "1"), times=2) == {ErrorCode.INVALID_REQUEST}
    assert settings(node, stream) == before
    assert altered(change("retention.ms", None, 1)) == {0}


LONG = "x" * 32_000


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (LONG, "1"),
        ("retention.ms", LONG),
        ("retention.ms", "9" * 32_000),
        ("retention.ms", "9" * 4_000),
        ("retention.ms", "9" * 32_000 + ".5"),
        ("min.cleanable.dirty.ratio", "9" * 32_000),
        ("min.cleanable.dirty.ratio", LONG),
        ("cleanup.policy", LONG),
        ("fsync", LONG),
    ],
)  # fmt: skip
def test_what_is_very_long_is_refused_in_a_short_line(raw, stream, name, value):
    config = m.IncrementalConfig(name=name, config_operation=0, value=value)
    resource = m.IncrementalResource(resource_type=2, resource_name=stream, configs=[config])
    body = m.IncrementalAlterConfigsRequest(resources=[resource])
    (answer,) = raw.call(apis.INCREMENTAL_ALTER_CONFIGS, body).responses
    assert answer.error_code == ErrorCode.INVALID_CONFIG
    assert len(answer.error_message) < 1000
    asked = m.DescribeConfigsResource(resource_type=2, resource_name=LONG)
    (found,) = raw.call(apis.DESCRIBE_CONFIGS, m.DescribeConfigsRequest(resources=[asked])).results
    assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    created = m.CreateTopic(name=LONG, configs=[])
    (answer,) = raw.call(
        apis.CREATE_TOPICS, m.CreateTopicsRequest(topics=[created], timeout_ms=9)
    ).topics
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.shows("confluent-kafka", "partitions")
def test_a_stream_grows_while_it_is_written(node, admin):
    """Nothing is lost or doubled, and each key keeps its order within each partition."""
    name, topic = f"g-{uuid.uuid4().hex[:8]}", f"grow/{uuid.uuid4().hex[:8]}"
    node.create_stream(name, partitions=1, filters=[f"{topic}/#"], key="level:3")
    keys = [b"key-%d" % number for number in range(20)]
    published, growing = [], threading.Event()
    ended = threading.Event()

    def publish():
        client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
        client.connect("127.0.0.1", node.mqtt)
        client.loop_start()
        while not ended.is_set() or len(published) < 300:
            number = len(published)
            client.publish(f"{topic}/{number % 20}", b"m%d" % number, 1).wait_for_publish(30)
            published.append(b"m%d" % number)
            if number == 100:
                growing.set()
        leave(client)

    thread = threading.Thread(target=publish)
    thread.start()
    stored = []
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": node.servers,
            "enable.idempotence": True,
            "linger.ms": 1,
            "topic.metadata.refresh.interval.ms": 50,
            "partitioner": "murmur2_random",
        }
    )
    number, partitions = 0, 1
    while max((each.partition() for each in stored), default=0) < 5:
        producer.produce(
            name, b"p%d" % number, keys[number % 20], on_delivery=lambda _, got: stored.append(got)
        )
        number += 1
        producer.poll(0.001)
        if growing.is_set() and partitions < 9:
            partitions += 2
            grown = confluent_kafka.admin.NewPartitions(name, partitions)
            (future,) = admin.create_partitions([grown]).values()
            future.result(30)
    ended.set()
    thread.join()
    assert producer.flush(30) == 0
    assert len(node.ends(name)) == 9
    consumer = confluent_kafka.Consumer({"bootstrap.servers": node.servers, "group.id": name})
    consumer.assign([TopicPartition(name, partition, 0) for partition in range(9)])
    seen = []
    while len(seen) < number + len(published):
        message = consumer.poll(30)
        assert message is not None, "a record is missing"
        assert message.error() is None
        seen.append((message.partition(), message.key(), message.value()))
    consumer.close()
    assert sum(node.ends(name)) == len(seen)
    assert sorted(value for _, _, value in seen) == sorted(
        [*published, *(b"p%d" % each for each in range(number))]
    )
    orders = defaultdict(list)
    for partition, key, value in seen:
        orders[partition, key].append(int(value[1:]))
    assert all(order == sorted(order) for order in orders.values())


@pytest.mark.shows("kafka-python", "cluster", "partitions", "folders")
def test_kafka_python_describes_the_cluster_and_its_disk(node, stream):
    fill(node, stream, 3)
    client = kafka.admin.KafkaAdminClient(bootstrap_servers=node.servers)
    cluster = client.describe_cluster()
    assert cluster["cluster_id"] == "headrace"
    client.create_partitions({stream: 3})
    assert len(node.ends(stream)) == 3
    assert stream in str(client.describe_log_dirs())
    client.close()
