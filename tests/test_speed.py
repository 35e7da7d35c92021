"""Pure Python that runs for each request or each micro-batch.

Timed by `pytest tests/test_speed.py --benchmark-enable`; each runs once otherwise.
"""

import pytest

from headrace.kernel.catalog import Catalog, Change
from headrace.pipeline import spans
from headrace.wire.kafka import apis, frames
from headrace.wire.kafka import messages as m

PARTITIONS = range(100)
BATCH = b"x" * 1_024


def request(api, version, body):
    """As it comes, without its length."""
    return frames.encode_request(api, version, 7, "speed", body)[4:]


@pytest.fixture(name="produce")
def _produce():
    partitions = [m.ProducePartition(index=index, records=BATCH) for index in PARTITIONS]
    topics = [m.ProduceTopic(name="metrics", partitions=partitions)]
    return request(apis.PRODUCE, 7, m.ProduceRequest(acks=-1, timeout_ms=30_000, topics=topics))


@pytest.fixture(name="fetch")
def _fetch():
    partitions = [
        m.FetchPartition(partition=index, fetch_offset=1 << 40, partition_max_bytes=1 << 20)
        for index in PARTITIONS
    ]
    topics = [m.FetchTopic(topic="metrics", partitions=partitions)]
    return request(apis.FETCH, 11, m.FetchRequest(max_wait_ms=500, min_bytes=1, topics=topics))


def test_a_produce_request_of_a_hundred_partitions_is_decoded(benchmark, produce):
    decoded = benchmark(frames.decode_request, produce)
    assert len(decoded.body.topics[0].partitions) == len(PARTITIONS)


def test_a_produce_response_of_a_hundred_partitions_is_encoded(benchmark, produce):
    asked = frames.decode_request(produce)
    partitions = [m.ProducePartitionResponse(index=index, base_offset=7) for index in PARTITIONS]
    topics = [m.ProduceTopicResponse(name="metrics", partitions=partitions)]
    (frame,) = benchmark(frames.encode_response, asked, m.ProduceResponse(topics=topics))
    assert len(frame) > 30 * len(PARTITIONS)


def test_a_fetch_request_of_a_hundred_partitions_is_decoded(benchmark, fetch):
    decoded = benchmark(frames.decode_request, fetch)
    assert len(decoded.body.topics[0].partitions) == len(PARTITIONS)


def test_a_fetch_response_of_a_hundred_partitions_is_encoded(benchmark, fetch):
    asked = frames.decode_request(fetch)
    partitions = [
        m.FetchPartitionResponse(partition_index=index, high_watermark=7, records=BATCH)
        for index in PARTITIONS
    ]
    topics = [m.FetchTopicResponse(topic="metrics", partitions=partitions)]
    frame = benchmark(frames.encode_response, asked, m.FetchResponse(topics=topics))
    assert sum(map(len, frame)) > len(BATCH) * len(PARTITIONS)


@pytest.fixture(name="catalog")
def _catalog():
    catalog = Catalog()
    for number in range(900):
        change = Change(filters=[f"fleet/{number}/#"])
        catalog.put(catalog.create(f"stream-{number}", change, 1_700_000_000_000))
    return catalog


def test_a_stream_of_many_is_looked_up(benchmark, catalog):
    settings = benchmark(lambda: catalog.settings(catalog.get("stream-500")))
    assert settings == catalog.defaults


def test_a_stream_beside_many_is_judged(benchmark, catalog):
    change = Change(filters=["fleet/new/#"], partitions=12)
    made = benchmark(catalog.create, "new", change, 1_700_000_000_000)
    assert made.partitions == 12


def test_stretches_that_a_micro_batch_touches_are_merged(benchmark):
    starts = [1_700_000_000_000_000 + 10_000_000 * number for number in range(1_000)]
    found = benchmark(spans.touched, starts, 10_000_000, 30_000_000)
    assert len(found) == 1
