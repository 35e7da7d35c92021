"""Every setting of a stream takes effect on a running node."""

import time

from confluent_kafka import Producer

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


def test_segment_ms(broker):
    broker.create_stream("a", settings={"segment.ms": "1h"})
    now = int(time.time() * 1000)
    fill(broker, "a", 1, timestamp=now - DAY_MS)
    fill(broker, "a", 1, timestamp=now)
    assert segments(broker, "a") == [0, 1]


def test_segment_index_bytes(broker):
    broker.create_stream("a", settings={"segment.index.bytes": 24})
    fill(broker, "a", 5, size=5000)
    assert len(segments(broker, "a")) > 1


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
