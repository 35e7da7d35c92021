"""Rows of `run.py` about the Python clients, beside confluent-kafka at the same node."""

import asyncio
import statistics
import time
from collections.abc import Callable

import confluent_kafka
from servers import headrace_node

import headrace
from headrace import TopicPartition

ROUNDS = 3
STREAM = "bench"
VALUE = b"x" * 100
PRODUCED = 300_000
READ = 2_000_000
Row = dict[str, float]


async def produced(servers: str, count: int) -> float:
    """Records a second, each with a future, all acknowledged."""
    partitions = [TopicPartition(STREAM, partition) for partition in range(4)]
    async with headrace.Consumer(servers) as consumer:
        before = sum((await consumer.end_offsets(partitions)).values())
        async with headrace.Producer(servers) as producer:
            await producer.partitions_for(STREAM)
            started = time.perf_counter()
            for number in range(count):
                if number % 500 == 0:
                    await producer.ready()
                producer.send_nowait(STREAM, VALUE)
            await producer.flush()
            seconds = time.perf_counter() - started
        after = sum((await consumer.end_offsets(partitions)).values())
    assert after == before + count
    return count / seconds


def produced_by_confluent(servers: str, count: int) -> float:
    """The same, with a callback for each record."""
    stored = 0

    def delivered(error: object, _: object) -> None:
        nonlocal stored
        assert error is None
        stored += 1

    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            "queue.buffering.max.messages": count,
        }
    )
    producer.list_topics(STREAM, timeout=30)
    started = time.perf_counter()
    for number in range(count):
        producer.produce(STREAM, VALUE, on_delivery=delivered)
        if number % 500 == 0:
            producer.poll(0)
    producer.flush()
    seconds = time.perf_counter() - started
    assert stored == count
    return count / seconds


async def read(servers: str, count: int) -> float:
    """Records a second as Arrow batches."""
    settings = {"auto_offset_reset": "earliest", "max_partition_fetch_bytes": 2 << 20}
    async with headrace.Consumer(servers, **settings) as consumer:
        consumer.assign([TopicPartition(STREAM, partition) for partition in range(4)])
        rows = (await consumer.get_arrow()).num_rows  # connected, and at the beginning
        started, first = time.perf_counter(), rows
        while rows < count:
            rows += (await consumer.get_arrow()).num_rows
        return (rows - first) / (time.perf_counter() - started)


def read_by_confluent(servers: str, count: int) -> float:
    """Records a second in lists."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": "bench"})
    consumer.assign([confluent_kafka.TopicPartition(STREAM, p, 0) for p in range(4)])
    rows = len(consumer.consume(10_000, timeout=30))
    started, first = time.perf_counter(), rows
    while rows < count:
        rows += len(consumer.consume(10_000, timeout=1))
    rate = (rows - first) / (time.perf_counter() - started)
    consumer.close()
    return rate


def versus_confluent(
    ours: Callable[[str], float], theirs: Callable[[str], float], fill: int
) -> Row:
    own, peer = [], []
    with headrace_node() as node:
        servers = f"127.0.0.1:{node.kafka}"
        asyncio.run(filled(servers, fill))
        for _ in range(ROUNDS):
            own.append(ours(servers))
            peer.append(theirs(servers))
    own_rate, peer_rate = statistics.median(own), statistics.median(peer)
    return {
        "per_second": own_rate,
        "baseline_per_second": peer_rate,
        "ratio": own_rate / peer_rate,
    }


async def filled(servers: str, count: int) -> None:
    """A stream of four partitions with so many records."""
    async with headrace.Admin(servers) as admin:
        await admin.create_topic(STREAM, partitions=4)
    async with headrace.Producer(servers) as producer:
        for _ in range(count // 100_000):
            await producer.send_batch(STREAM, [VALUE] * 100_000)


def produce_row() -> Row:
    return versus_confluent(
        lambda servers: asyncio.run(produced(servers, PRODUCED)),
        lambda servers: produced_by_confluent(servers, PRODUCED),
        0,
    )


def arrow_row() -> Row:
    return versus_confluent(
        lambda servers: asyncio.run(read(servers, READ)),
        lambda servers: read_by_confluent(servers, READ // 10),
        READ,
    )


ROWS: dict[str, Callable[[], Row]] = {"produce": produce_row, "arrow": arrow_row}
