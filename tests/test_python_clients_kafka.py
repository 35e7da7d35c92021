"""The Python clients at Apache Kafka: their tests at a node, and what Kafka alone does."""

import asyncio
import time
from dataclasses import replace

import confluent_kafka
import pyarrow as pa
import pytest

import headrace
import test_admin_client
import test_consumer
import test_consumer_groups
import test_kafka_fetch_client
import test_producer
import test_spark_write
import test_sync_clients
from headrace import TopicPartition
from headrace.client import FetchClient, Login
from headrace.native import decode_records
from headrace.spark.write import write
from kafkabroker import PASSWORD, USER, ApacheKafka
from kafkajars import Tools
from sinkrows import rows, stored_values
from test_kafka_java import VERSIONS

pytestmark = [pytest.mark.clients, pytest.mark.soak]

SAME = [
    test_admin_client.test_records_are_deleted,
    test_admin_client.test_groups_and_their_offsets,
    test_consumer.test_all_of_a_stream_is_read_record_by_record,
    test_consumer.test_new_records_are_waited_for,
    test_consumer.test_lists_are_bounded_and_partitions_take_turns,
    test_consumer.test_arrow_batches_hold_what_lists_hold,
    test_consumer.test_seek_and_pause,
    test_consumer.test_offsets_by_time_and_ends,
    test_consumer.test_where_to_begin,
    test_consumer.test_commits_of_a_group_without_members,
    test_consumer.test_what_a_failed_handler_had_is_not_committed,
    test_consumer.test_handed_out_records_are_committed_as_time_goes,
    test_consumer.test_records_one_by_one_are_committed_as_they_are_done,
    test_consumer.test_reading_goes_on_through_kills_of_the_node,
    test_consumer_groups.test_members_share_and_hand_over,
    test_consumer_groups.test_cooperative_members_go_on_with_what_they_keep,
    test_consumer_groups.test_members_of_two_makes_share_one_group,
    test_consumer_groups.test_partitions_are_given_up_between_two_records,
    test_consumer_groups.test_a_static_member_comes_back_to_what_it_had,
    test_consumer_groups.test_members_go_on_through_a_kill_of_the_node,
    test_kafka_fetch_client.test_reading_goes_on_through_restarts_of_the_broker,
    test_producer.test_a_record_is_acknowledged_with_its_place,
    test_producer.test_keys_go_where_kafkas_own_clients_send_them,
    test_producer.test_partitioners,
    test_producer.test_the_sticky_partition_changes_with_the_batch,
    test_producer.test_a_stream_is_created_by_its_first_record,
    test_producer.test_nothing_is_lost_or_stored_twice_over_kills_of_the_node,
    test_producer.test_acks_of_zero_are_sent_and_not_waited_for,
    test_producer.test_what_waits_at_the_close_is_sent,
    test_spark_write.test_a_task_that_died_in_the_middle_leaves_each_row_once,
    test_spark_write.test_a_task_that_died_again_and_again_leaves_each_row_once,
    test_spark_write.test_an_attempt_that_lives_on_beside_the_next_one_doubles_nothing,
    test_spark_write.test_attempts_at_the_same_time_leave_each_row_once,
    test_sync_clients.test_records_go_there_and_back,
    test_sync_clients.test_seeks_pauses_offsets_and_arrow,
    test_sync_clients.test_all_ways_to_send_keep_the_order_of_their_thread,
    test_sync_clients.test_admin,
]
"""What a client promises is the same wherever its records are kept."""

globals().update({test.__name__: test for test in SAME})
test_codecs_are_read = test_consumer.test_codecs
test_codecs_are_written = test_producer.test_codecs
admin = test_admin_client.admin
log, task = test_spark_write.log, test_spark_write.task
small_batches = test_spark_write.small_batches


@pytest.fixture(scope="module", params=VERSIONS)
def tools(request, tmp_path_factory):
    return Tools(tmp_path_factory.mktemp("kafka"), request.param)


@pytest.fixture(scope="module")
def node(tools, tmp_path_factory):
    broker = ApacheKafka(tools, tmp_path_factory.mktemp("apache") / "kafka")
    yield broker
    broker.close()


@pytest.fixture
def start_node(tools, tmp_path):
    """As that of headrace: a broker of this test alone, which may be killed and started again."""
    brokers = []

    def start():
        brokers.append(ApacheKafka(tools, tmp_path / "kafka"))
        return brokers[-1]

    def again(broker):
        broker.start()
        return broker

    start.again = again
    yield start
    for broker in brokers:
        broker.close()


async def everything(node, topic, partitions=1):
    """All records that a consumer is given until it stands at the ends of a topic."""
    places = [TopicPartition(topic, partition) for partition in range(partitions)]
    found = []
    async with test_consumer.reader(node) as consumer:
        consumer.assign(places)
        ends = await consumer.end_offsets(places)
        while [await consumer.position(place) for place in places] != list(ends.values()):
            for records in (await consumer.getmany(timeout_ms=100)).values():
                found += records
    return found


async def test_records_of_transactions_are_read_and_their_ends_are_none(node):
    node.create_stream("transactions")
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": node.servers, "transactional.id": "t", "log_level": 0}
    )

    def write():
        producer.init_transactions(60)
        for number, end in enumerate([producer.commit_transaction, producer.abort_transaction] * 3):
            producer.begin_transaction()
            producer.produce("transactions", b"%d" % number)
            producer.flush(60)
            end(60)

    await asyncio.to_thread(write)
    records = await everything(node, "transactions")
    assert [record.value for record in records] == [b"%d" % number for number in range(6)]
    assert [record.offset for record in records] == [0, 2, 4, 6, 8, 10]
    async with test_consumer.reader(node) as consumer:
        consumer.assign([TopicPartition("transactions", 0)])
        rows = []
        while len(rows) < 6:
            rows += (await consumer.get_arrow(timeout_ms=10_000)).to_pylist()
        assert [row["value"] for row in rows] == [record.value for record in records]


async def test_times_that_the_broker_sets_are_those_of_the_records(node):
    node.create_stream("stamped", message_timestamp_type="LogAppendTime")
    async with headrace.Producer(node.servers, compression_type="zstd") as producer:
        places = await producer.send_batch("stamped", [b"a", b"b"], partition=0)
    records = await everything(node, "stamped")
    assert len({record.timestamp for record in records}) == 1
    assert [place.timestamp for place in places] == [each.timestamp for each in records]
    async with test_consumer.reader(node) as consumer:
        consumer.assign([TopicPartition("stamped", 0)])
        rows = (await consumer.get_arrow(timeout_ms=10_000)).to_pylist()
    assert [round(row["timestamp"].timestamp() * 1000) for row in rows] == [
        each.timestamp for each in records
    ]


def test_rows_of_a_sink_are_not_told_apart_by_times_that_the_broker_sets(node, log, task):
    node.create_stream("sink-stamped", message_timestamp_type="LogAppendTime")
    values = [b"%d" % number for number in range(10, 30)]
    given = rows(values, timestamp=pa.array(range(20), pa.timestamp("ms", "UTC")))
    for _ in range(2):
        write(log, [given], "sink-stamped", replace(task, group="sink-stamped"))
    assert stored_values(node, "sink-stamped") == values


async def test_holes_that_compaction_leaves_are_passed(node):
    node.create_stream(
        "compacted", cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.01",
        max_compaction_lag_ms="100", file_delete_delay_ms="0",
    )  # fmt: skip
    async with headrace.Producer(node.servers) as producer:
        for number in range(50):
            await producer.send("compacted", b"%d" % number, key=b"%d" % (number % 5))
        newest = [(b"%d" % n, b"%d" % (45 + n)) for n in range(5)]
        kept = []
        async with asyncio.timeout(120):  # each pass of Kafka's cleaner takes what was rolled then
            while kept != newest:
                await producer.send("compacted", b"more", key=b"more")
                records = await everything(node, "compacted")
                kept = [(record.key, record.value) for record in records if record.key != b"more"]
    offsets = [record.offset for record in records]
    assert offsets == sorted(offsets)


async def test_a_handler_that_blocks_the_loop_stays_a_member(node, stream):
    test_consumer_groups.fill(node, stream, range(3))
    settings = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 500}
    async with test_consumer_groups.member(node, stream, **settings) as consumer:
        await consumer.getone()
        time.sleep(8)  # noqa: ASYNC251 - longer than the session, and nothing else tells
        await consumer.commit()


async def test_a_user_proves_who_it_is(node):
    login = Login(USER, PASSWORD)
    async with headrace.Producer(node.guarded, login=login) as producer:
        await producer.send("guarded", b"x")
    async with headrace.Consumer(
        node.guarded, "guarded", login=login, auto_offset_reset="earliest", group_id="guarded"
    ) as consumer:
        assert (await consumer.getone()).value == b"x"
    async with headrace.Admin(node.guarded, login=login) as admin:
        assert "guarded" in await admin.topics()
    with FetchClient(node.guarded, login=login, timeout_s=30) as client:
        assert await asyncio.to_thread(client.latest_offsets, "guarded") == {0: 1}
    with pytest.raises(headrace.ClientError) as refused:
        async with headrace.Admin(node.guarded, login=Login(USER, "wrong")):
            pass
    assert refused.value.code.name == "SASL_AUTHENTICATION_FAILED"


async def test_topics_are_made_described_grown_and_deleted(admin):
    await admin.create_topic("made", partitions=2, configs={"retention.ms": "5000"})
    assert (await admin.topics())["made"] == 2
    described = await admin.describe_topic("made")
    assert [each.isr for each in described.partitions] == [(1,), (1,)]
    assert (await admin.configs("made"))["retention.ms"] == ("5000", False, False)
    await admin.alter_configs("made", {"retention.ms": None, "max.message.bytes": "5000"})
    configs = await admin.configs("made")
    async with asyncio.timeout(60):  # Kafka's broker hears of it some time later
        while not configs["retention.ms"].is_default:
            configs = await admin.configs("made")
    assert configs["max.message.bytes"] == ("5000", False, False)
    await admin.create_partitions("made", 3)
    await admin.delete_topic("made")
    async with asyncio.timeout(60):  # Kafka does it some time later
        while "made" in await admin.topics():
            pass


def test_the_source_of_spark_reads(node):
    """FetchClient is what it reads with."""
    node.create_stream("spark")
    values = [b"%d" % number for number in range(100)]
    producer = confluent_kafka.Producer({"bootstrap.servers": node.servers, "log_level": 0})
    for value in values:
        producer.produce("spark", value)
    assert producer.flush(60) == 0
    with FetchClient(node.servers, timeout_s=30) as client:
        assert client.streams("spa.*") == {"spark": 1}
        got = []
        while len(got) < 100:
            columns = decode_records(
                client.fetch("spark", 0, len(got), 1 << 20, 1000), len(got), 100, 1000
            )
            got += [row[3] for row in columns.rows()]
    assert got == values
