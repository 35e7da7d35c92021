"""Real nodes under random clients and kill -9: the same checker judges what they saw."""

import itertools
import os
import queue
import random
import time

import confluent_kafka
import paho.mqtt.client as paho
import pytest

from conftest import soaked
from headrace.client import FetchClient
from headrace.native import decode_records
from headrace.testing import History, payload, value_of
from pahoclient import leave

pytestmark = pytest.mark.slow

PARTITIONS = 3
SECONDS_MAX = 120
NODE = {"HEADRACE_LOG__SEGMENT_BYTES": "64KiB"}


class Clients:
    """An idempotent Kafka producer, an MQTT publisher at QoS 1, and readers, of one history."""

    def __init__(self, node, choose):
        self.history = History()
        self.choose = choose
        self.values = itertools.count(1)
        self.acknowledged = 0
        self.under_way = {}
        self.acks = queue.SimpleQueue()
        self.positions = {}
        settings = {
            "bootstrap.servers": node.servers,
            "enable.idempotence": True,
            "linger.ms": 1,
            "message.timeout.ms": SECONDS_MAX * 1000,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
        self.producer = confluent_kafka.Producer(settings)
        self.fetcher = FetchClient(node.servers, timeout_s=SECONDS_MAX)
        self.mqtt = paho.Client(paho.CallbackAPIVersion.VERSION2, "meter", clean_session=False)
        self.mqtt.on_publish = lambda _client, _data, number, *_: self.acks.put(number)
        self.mqtt.reconnect_delay_set(min_delay=1, max_delay=1)
        self.mqtt.connect(node.host, node.mqtt)
        self.mqtt.loop_start()

    def produce(self):
        value, partition = next(self.values), self.choose.randrange(PARTITIONS)
        log, now_ms = f"kafka/{partition}", time.time_ns() // 1_000_000
        self.history.append("producer", log, value, now_ms)

        def ended(error, message):
            if error is None:
                self.acknowledged += 1
                self.history.stored(value, message.offset())
            else:
                self.history.unknown(value)

        body = payload(value, self.choose.randrange(2000))
        self.producer.produce(
            "kafka", body, partition=partition, timestamp=now_ms, on_delivery=ended
        )

    def publish(self):
        value = next(self.values)
        self.history.append("meter", "mqtt/0", value, None, may_repeat=True)
        sent = self.mqtt.publish("meter/1", payload(value, self.choose.randrange(500)), qos=1)
        self.under_way[sent.mid] = value

    def collect(self):
        """What has been acknowledged since the last call."""
        self.producer.poll(0)
        while not self.acks.empty():
            number = self.acks.get()
            if number in self.under_way:
                self.acknowledged += 1
                self.history.stored(self.under_way.pop(number))

    def fetched(self, stream, partition, at):
        """Records from an offset on, and the offset after them."""
        data = self.fetcher.fetch(stream, partition, at, 64 * 1024, 0)
        columns = decode_records(data, at, 2**62, 10**6)
        rows = [(offset, value_of(value), ms) for offset, ms, _, value, _ in columns.rows()]
        return rows, columns.next_offset

    def read_on(self, stream, partition):
        at = self.positions.get((stream, partition), 0)
        rows, self.positions[stream, partition] = self.fetched(stream, partition, at)
        self.history.read("reader", f"{stream}/{partition}", rows)

    def scan(self, stream):
        """All of a stream, and lookups of times in it."""
        starts = self.fetcher.earliest_offsets(stream)
        for partition, end in self.fetcher.latest_offsets(stream).items():
            log, rows, at = f"{stream}/{partition}", [], starts[partition]
            while at < end:
                more, at = self.fetched(stream, partition, at)
                rows += more
            self.history.scan(log, starts[partition], end, rows)
            times = {offset: ms for offset, _, ms in rows}
            for wanted in self.choose.sample(sorted(set(times.values())), min(5, len(times))):
                found = self.fetcher.offsets_for_time(stream, wanted)[partition]
                self.history.lookup(log, wanted, None if found is None else (found, times[found]))

    def work(self, until):
        """Random calls until so many are acknowledged."""
        deadline = time.monotonic() + SECONDS_MAX
        logs = [("mqtt", 0), *(("kafka", partition) for partition in range(PARTITIONS))]
        while self.acknowledged < until:
            assert time.monotonic() < deadline, f"{self.acknowledged} of {until} acknowledged"
            for _ in range(self.choose.randrange(20)):
                (self.produce if self.choose.random() < 0.7 else self.publish)()
            if len(self.under_way) + len(self.producer) > 500:
                self.producer.poll(0.05)
            if self.choose.random() < 0.3:
                self.read_on(*self.choose.choice(logs))
            self.collect()

    def finish(self):
        """Waits for every answer."""
        deadline = time.monotonic() + SECONDS_MAX
        while self.under_way or len(self.producer):
            assert time.monotonic() < deadline, "answers are missing"
            self.producer.poll(0.05)
            self.collect()
        self.history.quiet()

    def close(self):
        leave(self.mqtt)
        self.fetcher.close()


@pytest.mark.parametrize("round_", [0, *map(soaked, range(1, 20))])
def test_histories_of_killed_nodes_have_no_anomaly(start_node, round_):
    seed = int(os.environ.get("HEADRACE_TEST_SEED", str(round_)))
    print(f"HEADRACE_TEST_SEED={seed}")
    choose = random.Random(seed)
    node = start_node(**NODE)
    node.create_stream("kafka", partitions=PARTITIONS)
    node.create_stream("mqtt", partitions=1, filters=["meter/#"])
    clients = Clients(node, choose)
    try:
        for _ in range(4):
            clients.work(clients.acknowledged + choose.randrange(1, 800))
            if choose.random() < 0.2:
                node.stop()
            else:
                node.kill()
            node = start_node.again(node, **NODE)
        clients.finish()
        for stream in ("kafka", "mqtt"):
            clients.scan(stream)
    finally:
        clients.close()
    print(clients.history.counts)
    assert clients.history.anomalies == []
    assert clients.history.counts[0] == clients.acknowledged > 0
