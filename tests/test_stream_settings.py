"""Every setting of a stream takes effect on a running node."""

import time

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from conftest import wait_for

pytestmark = pytest.mark.slow

DAY_MS = 86_400_000


def fill(node, stream, records, *, size=1000, timestamp=None):
    """Appends `records` of about `size` bytes, one batch each."""
    producer = Producer({"bootstrap.servers": node.servers, "batch.num.messages": 1})
    for index in range(records):
        value = b"%d " % index + b"x" * size
        producer.produce(stream, value, b"k", partition=0, timestamp=timestamp or 0)
    assert producer.flush(30) == 0


def segments(node, stream) -> list[int]:
    """Base offsets of the segments of the first partition."""
    return sorted(int(each.stem) for each in (node.data / "streams" / stream / "0").glob("*.log"))


def alter(node, stream, **settings):
    names = {name.replace("_", "."): value for name, value in settings.items()}
    status, answer = node.call("PATCH", f"/api/v1/streams/{stream}", {"settings": names})
    assert status == 200, answer


@pytest.mark.setting("streams.segment.bytes")
def test_segment_bytes(broker):
    broker.create_stream("small", settings={"segment.bytes": "64KiB"})
    broker.create_stream("large")
    for stream in ("small", "large"):
        fill(broker, stream, 200)
    assert len(segments(broker, "small")) > 2
    assert segments(broker, "large") == [0]
    alter(broker, "large", segment_bytes="64KiB")
    fill(broker, "large", 1)
    assert segments(broker, "large") == [0, 200]


@pytest.mark.setting("streams.segment.ms")
def test_segment_ms(broker):
    broker.create_stream("a", settings={"segment.ms": "1h"})
    now = int(time.time() * 1000)
    fill(broker, "a", 1, timestamp=now - DAY_MS)
    fill(broker, "a", 1, timestamp=now)
    assert segments(broker, "a") == [0, 1]


@pytest.mark.setting("streams.segment.index.bytes")
def test_segment_index_bytes(broker):
    broker.create_stream("a", settings={"segment.index.bytes": 24})
    fill(broker, "a", 5, size=5000)
    assert len(segments(broker, "a")) > 1


def syncs(node, stream) -> float:
    """How often the store synced while 50 messages were appended, each after the one before."""
    before = node.metrics()["headrace_log_syncs_total"]
    for _ in range(50):
        fill(node, stream, 1, size=10)
    return node.metrics()["headrace_log_syncs_total"] - before


@pytest.mark.setting("streams.fsync")
def test_fsync(broker):
    broker.create_stream("a", settings={"fsync": "os"})
    fill(broker, "a", 1)
    assert syncs(broker, "a") < 25, "those of the store itself"
    alter(broker, "a", fsync="commit")
    assert syncs(broker, "a") >= 50


@pytest.mark.setting("streams.flush.ms")
def test_flush_ms(broker):
    broker.create_stream("a", settings={"fsync": "interval", "flush.ms": 1})
    fill(broker, "a", 1)
    before = broker.metrics()["headrace_log_syncs_total"]
    fill(broker, "a", 1)
    wait_for(lambda: broker.metrics()["headrace_log_syncs_total"] > before)


def test_defaults_of_the_node_hold_for_its_streams(start_node):
    node = start_node(HEADRACE_LOG__SEGMENT_BYTES="64KiB")
    node.create_stream("a")
    node.create_stream("b", settings={"segment.bytes": "1MiB"})
    for stream in ("a", "b"):
        fill(node, stream, 100)
    assert len(segments(node, "a")) > 1
    assert segments(node, "b") == [0]
    again = start_node.again(node, HEADRACE_LOG__SEGMENT_BYTES="1MiB") if node.stop() == 0 else None
    held = segments(again, "a")
    fill(again, "a", 100)
    assert segments(again, "a") == held


def start(node, stream) -> int:
    """Where the first partition begins."""
    return node.call("GET", f"/api/v1/streams/{stream}")[1]["partitions"][0]["start"]


@pytest.mark.setting("streams.retention.ms")
def test_retention_ms(broker):
    old = int(time.time() * 1000) - 2 * DAY_MS
    broker.create_stream("a", settings={"segment.bytes": "64KiB", "retention.ms": "7d"})
    fill(broker, "a", 200, timestamp=old)
    assert start(broker, "a") == 0
    alter(broker, "a", retention_ms="1d")
    wait_for(lambda: start(broker, "a") == 200)
    wait_for(lambda: segments(broker, "a") == [200])
    metrics = broker.metrics()
    assert metrics['headrace_log_trimmed_records_total{reason="time"}'] == 200
    assert metrics['headrace_log_trimmed_bytes_total{reason="time"}'] > 200_000
    assert metrics["headrace_log_housekeeping_failures_total"] == 0
    assert broker.ends("a") == [200]
    fill(broker, "a", 1)
    assert broker.ends("a") == [201]


@pytest.mark.setting("streams.retention.bytes")
def test_retention_bytes(broker):
    broker.create_stream("a", settings={"segment.bytes": "64KiB", "retention.bytes": "100KiB"})
    fill(broker, "a", 300)
    alter(broker, "a", retention_bytes="128KiB")
    wait_for(lambda: start(broker, "a") > 0)
    wait_for(lambda: min(segments(broker, "a")) == start(broker, "a"))
    kept = broker.call("GET", "/api/v1/streams/a")[1]["partitions"][0]["size_bytes"]
    assert 128 * 1024 <= kept < 192 * 1024


@pytest.mark.setting("streams.retention.records")
def test_retention_records(broker):
    broker.create_stream("a", settings={"segment.bytes": "64KiB"})
    fill(broker, "a", 300)
    alter(broker, "a", retention_records=100)
    wait_for(lambda: start(broker, "a") > 0)
    assert 100 <= broker.ends("a")[0] - start(broker, "a") < 200


@pytest.mark.setting("log.retention_check")
def test_retention_is_looked_at_without_being_asked_and_survives_a_kill(start_node):
    node = start_node(HEADRACE_LOG__RETENTION_CHECK="10ms", HEADRACE_LOG__RETENTION_RECORDS="0")
    node.create_stream("a")
    fill(node, "a", 10)
    wait_for(lambda: start(node, "a") == 10)
    node.kill()
    again = start_node.again(node)
    assert (start(again, "a"), again.ends("a")) == (10, [10])


def test_a_compacted_stream_is_not_subject_to_retention(start_node):
    node = start_node(HEADRACE_LOG__RETENTION_CHECK="10ms")
    for name, policy in (("kept", "compact"), ("gone", "compact,delete")):
        node.create_stream(name, settings={"cleanup.policy": policy, "retention.ms": 1})
        fill(node, name, 1, timestamp=1)
    wait_for(lambda: start(node, "gone") == 1)
    assert start(node, "kept") == 0


@pytest.mark.setting("streams.max.message.bytes")
def test_max_message_bytes(broker):
    broker.create_stream("a", settings={"max.message.bytes": 500})
    producer = Producer({"bootstrap.servers": broker.servers})
    errors = []
    for size in (100, 1000):
        producer.produce("a", b"x" * size, on_delivery=lambda error, _: errors.append(error))
        producer.flush(30)
    assert [error and error.name() for error in errors] == [None, "MSG_SIZE_TOO_LARGE"]


# --- compaction ----------------------------------------------------------------------------------

COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "64KiB"}
OFTEN = {"HEADRACE_LOG__RETENTION_CHECK": "10ms"}


def write(node, stream, *records, size=1000):
    """Appends `(key, value)`, and what fills the segment behind them, so that they may be
    compacted."""
    producer = Producer({"bootstrap.servers": node.servers, "batch.num.messages": 1})
    for key, value in records:
        producer.produce(stream, value, key, partition=0)
    for _ in range(70):
        producer.produce(stream, b"x" * size, b"filler", partition=0)
    assert producer.flush(30) == 0


def contents(node, stream) -> list[tuple[bytes, bytes | None]]:
    """Every record but the filling."""
    consumer = Consumer(
        {"bootstrap.servers": node.servers, "group.id": "g", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(stream, 0, 0)])
    got = []
    while True:
        message = consumer.poll(30)
        assert message is not None
        if message.error() is not None:
            assert message.error().code() == KafkaError._PARTITION_EOF
            consumer.close()
            return [(key, value) for key, value in got if key != b"filler"]
        got.append((message.key(), message.value()))


def compactions(node) -> float:
    metrics = node.metrics()
    assert metrics["headrace_log_compaction_failures_total"] == 0
    return metrics["headrace_log_compactions_total"]


@pytest.mark.setting("streams.cleanup.policy")
def test_cleanup_policy(start_node):
    node = start_node(**OFTEN)
    node.create_stream("a", settings=COMPACTED)
    for turn in range(5):
        write(node, "a", (b"k", b"%d" % turn), (b"only-%d" % turn, b"v"))
    expected = [*((b"only-%d" % turn, b"v") for turn in range(4)), (b"k", b"4"), (b"only-4", b"v")]
    wait_for(lambda: contents(node, "a") == expected)
    assert node.ends("a") == [5 * 72]
    ratio = node.metrics()['headrace_log_dirty_ratio{partition="0",stream="a"}']
    assert 0 <= ratio <= 0.5
    removed = node.metrics()["headrace_log_compacted_records_total"]
    assert removed > 70
    assert node.stop() == 0
    again = start_node.again(node)
    assert contents(again, "a") == expected


@pytest.mark.setting("streams.delete.retention.ms")
def test_delete_retention_ms(start_node):
    node = start_node(**OFTEN)
    for name, kept_ms in (("brief", 0), ("long", DAY_MS)):
        node.create_stream(name, settings=COMPACTED | {"delete.retention.ms": kept_ms})
        write(node, name, (b"k", b"v"))
        write(node, name, (b"k", None))
        write(node, name)
    wait_for(lambda: contents(node, "brief") == [])
    wait_for(lambda: contents(node, "long") == [(b"k", None)])


@pytest.mark.setting(
    "streams.min.compaction.lag.ms",
    "streams.max.compaction.lag.ms",
    "streams.min.cleanable.dirty.ratio",
)
def test_compaction_lags_and_dirty_ratio(start_node):
    node = start_node(**OFTEN)
    node.create_stream("young", settings=COMPACTED | {"min.compaction.lag.ms": "1h"})
    node.create_stream("patient", settings=COMPACTED | {"min.cleanable.dirty.ratio": 1})
    node.create_stream("soon", settings=COMPACTED)
    for name in ("young", "patient", "soon"):
        for value in (b"1", b"2"):
            write(node, name, (b"k", value))
        write(node, name)
    wait_for(lambda: contents(node, "soon") == [(b"k", b"2")])
    for name in ("young", "patient"):
        assert contents(node, name) == [(b"k", b"1"), (b"k", b"2")]
    alter(node, "young", min_compaction_lag_ms=0)
    wait_for(lambda: contents(node, "young") == [(b"k", b"2")])
    alter(node, "patient", max_compaction_lag_ms=1)
    wait_for(lambda: contents(node, "patient") == [(b"k", b"2")])
    assert compactions(node) >= 3


@pytest.mark.setting("log.compaction_bytes_per_second")
def test_a_compaction_ends_with_its_node(start_node):
    slow = {"HEADRACE_LOG__COMPACTION_BYTES_PER_SECOND": "64KiB"}
    node = start_node(**OFTEN, **slow)
    node.create_stream("a", settings=COMPACTED)
    for turn in range(5):
        write(node, "a", (b"k", b"%d" % turn), size=60_000)
    assert node.metrics()["headrace_log_compactions_total"] == 0
    assert node.stop() == 0
    again = start_node.again(node)
    assert contents(again, "a")[-1] == (b"k", b"4")
    assert again.ends("a") == [5 * 71]
