"""The Python clients at brokers of another make: librdkafka's mock of a Kafka cluster of three."""

import asyncio

import confluent_kafka
import pytest

import headrace
from headrace import TopicPartition
from headrace.client.config import CODECS

pytestmark = [pytest.mark.slow, pytest.mark.clients]

STREAMS = ["t0", "t1", "t2"]


@pytest.fixture(scope="module")
def cluster():
    """Bootstrap brokers; the mock lives as long as the client that made it."""
    owner = confluent_kafka.Producer(
        {"bootstrap.servers": "replaced by the mock", "test.mock.num.brokers": 3, "log_level": 0}
    )
    leaders = set()
    for name in STREAMS:
        known = owner.list_topics(name, timeout=30)
        leaders |= {state.leader for state in known.topics[name].partitions.values()}
    assert len(leaders) > 1, "one broker alone would prove nothing"
    yield ",".join(f"{broker.host}:{broker.port}" for broker in known.brokers.values())
    del owner


async def test_records_go_to_every_leader_and_come_back(cluster):
    async with headrace.Producer(cluster) as producer:
        places = {}
        for name in STREAMS:
            for partition in range(await producer.partitions_for(name)):
                values = [b"%s-%d-%d" % (name.encode(), partition, n) for n in range(50)]
                found = await producer.send_batch(name, values, partition=partition)
                assert [place.offset for place in found] == list(range(50))
                places[TopicPartition(name, partition)] = values
    async with headrace.Consumer(cluster, auto_offset_reset="earliest") as consumer:
        consumer.assign(places)
        got = {place: [] for place in places}
        while any(len(got[place]) < 50 for place in places):
            for place, records in (await consumer.getmany(timeout_ms=1000)).items():
                got[place] += [record.value for record in records]
        assert got == places
        assert set((await consumer.end_offsets(places)).values()) == {50}
        assert set((await consumer.beginning_offsets(places)).values()) == {0}


@pytest.mark.parametrize("codec", CODECS)
async def test_codecs(cluster, codec):
    name = f"codec-{codec}"
    values = [b"%d" % n * 50 for n in range(100)]
    async with headrace.Producer(cluster, compression_type=codec) as producer:
        await producer.send_batch(name, values, partition=0)
    consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster, "group.id": "any"})
    consumer.assign([confluent_kafka.TopicPartition(name, 0, 0)])
    got = []
    while len(got) < 100:
        got += [m.value() for m in await asyncio.to_thread(consumer.consume, 100, 10.0)]
    consumer.close()
    assert got == values


async def read(*consumers):
    """How far each partition that one of them has is read."""
    return {
        place: await consumer.position(place)
        for consumer in consumers
        for place in consumer.assignment()
    }


async def test_a_group_commits_and_hands_over(cluster):
    settings = {
        "group_id": "pair",
        "auto_offset_reset": "earliest",
        "heartbeat_interval_ms": 100,
        "session_timeout_ms": 6000,
        "fetch_max_wait_ms": 50,
    }
    async with headrace.Producer(cluster) as producer:
        partitions = await producer.partitions_for("shared")
        for partition in range(partitions):
            await producer.send_batch("shared", [b"%d" % n for n in range(10)], partition=partition)
    first, second = (headrace.Consumer(cluster, "shared", **settings) for _ in range(2))
    places = [TopicPartition("shared", partition) for partition in range(partitions)]
    ends = dict.fromkeys(places, 10)
    async with first, second:
        # The mock takes no commit while a group is between generations, so records come twice.
        while not (
            first.assignment() and second.assignment() and await read(first, second) == ends
        ):
            for consumer in (first, second):
                await consumer.getmany(timeout_ms=20)
        assert not first.assignment() & second.assignment()
        assert len(first.assignment()) + len(second.assignment()) == partitions
    async with headrace.Consumer(cluster, **settings) as consumer:
        kept = await consumer.committed(*places)
        assert {place: each.offset for place, each in kept.items()} == ends
