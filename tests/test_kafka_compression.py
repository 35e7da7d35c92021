"""`compression.type`: batches are stored as they were sent, or in the stream's own codec."""

import uuid

import confluent_kafka
import pytest

from headrace import native
from headrace.wire.kafka import apis
from headrace.wire.kafka import messages as m
from headrace.wire.kafka.errors import ErrorCode
from kafkaraw import restamped, values

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
LARGE = [b"%06d" % n * 40 for n in range(4000)]
"""A megabyte that compresses to much less."""


@pytest.fixture
def node(shared):
    return shared


def stream_of(node, compression, **more):
    name = f"s-{uuid.uuid4().hex[:12]}"
    node.create_stream(name, settings={"compression.type": compression}, **more)
    return name


def batch(codec, *contents, **stamps):
    built = native.build_batch([(b"k", each, [], 1000) for each in contents], codec)
    producer = [stamps.get(name, -1) for name in ("producer_id", "epoch", "sequence")]
    patch = b"".join(
        n.to_bytes(w, "big", signed=True) for n, w in zip(producer, (8, 2, 4), strict=True)
    )
    return restamped(built, 43, patch) if stamps else built


def stored(raw, stream, offset=0):
    """The codec and the values of the batch at `offset`."""
    records = raw.fetch(stream, {0: offset})[0].records
    return CODECS[records[22] & 7], values(records)


@pytest.mark.parametrize("compression", ["producer", "uncompressed", "none", *CODECS[1:]])
def test_a_stream_stores_its_own_codec_or_what_was_sent(node, raw, compression):
    stream = stream_of(node, compression)
    for at, sent in enumerate(CODECS):
        assert raw.produce(stream, batch(sent, b"x" * 500)).base_offset == at
        wanted = {"producer": sent, "uncompressed": "none"}.get(compression, compression)
        assert stored(raw, stream, at) == (wanted, [b"x" * 500])
    large = batch("gzip", *LARGE)
    assert raw.produce(stream, large).base_offset == len(CODECS)
    records = raw.fetch(stream, {0: len(CODECS)})[0].records
    assert values(records) == LARGE
    assert (records[61:] == large[61:]) == (compression in {"producer", "gzip"})


@pytest.mark.setting("streams.compression.type")
def test_a_codec_that_is_altered_holds_for_the_next_batch(node, raw):
    stream = stream_of(node, "producer", filters=["z/#"])
    for at, codec in enumerate(["zstd", "uncompressed", "producer"]):
        node.call("PATCH", f"/api/v1/streams/{stream}", {"settings": {"compression.type": codec}})
        raw.produce(stream, batch("lz4", b"y"))
        wanted = {"uncompressed": "none", "producer": "lz4"}.get(codec, codec)
        assert stored(raw, stream, at) == (wanted, [b"y"])


@pytest.mark.parametrize("codec", ["producer", *CODECS[1:]])
def test_messages_are_stored_in_the_codec_of_their_stream(node, raw, codec):
    stream = stream_of(node, codec, filters=[f"{codec}/#"])
    status, _ = node.call("POST", "/api/v1/publish", {"topic": f"{codec}/a", "payload": "z" * 900})
    assert status == 200
    assert stored(raw, stream) == ("none" if codec == "producer" else codec, [b"z" * 900])


def test_what_is_sent_behind_a_large_batch_is_stored_behind_it(node, raw):
    stream = stream_of(node, "producer")
    producer = raw.call(apis.INIT_PRODUCER_ID, m.InitProducerIdRequest()).producer_id
    requests, sequence = [], 0
    for contents in (LARGE, [b"a"], LARGE, [b"b"], [b"c"]):
        records = batch("zstd", *contents, producer=(producer, 0, sequence))
        sequence += len(contents)
        each = m.ProducePartition(index=0, records=records)
        topics = [m.ProduceTopic(name=stream, partitions=[each])]
        body = m.ProduceRequest(acks=-1, timeout_ms=30_000, topics=topics)
        requests.append(raw.send(apis.PRODUCE, body))
    answers = [raw.receive(request).topics[0].partitions[0] for request in requests]
    assert [each.error_code for each in answers] == [0] * 5
    assert [each.base_offset for each in answers] == [0, 4000, 4001, 8001, 8002]


def test_a_batch_that_opens_to_too_much_is_refused_wherever_it_is_looked_at(node, raw):
    stream = stream_of(node, "producer")
    bomb = native.build_batch([(None, bytes(129 << 20), [], 0)], "zstd")
    assert len(bomb) < 64 << 10, "it is small enough to be looked at by the loop"
    assert raw.produce(stream, bomb).error_code == ErrorCode.MESSAGE_TOO_LARGE
    spoilt = restamped(batch("gzip", *LARGE), 100, b"spoilt")
    assert raw.produce(stream, spoilt).error_code == ErrorCode.INVALID_RECORD
    assert raw.produce(stream, batch("none", b"x")).base_offset == 0


def test_a_stream_that_goes_while_its_batch_is_looked_at_is_unknown(node, raw):
    stream = stream_of(node, "gzip")
    each = m.ProducePartition(index=0, records=batch("zstd", *LARGE))
    topics = [m.ProduceTopic(name=stream, partitions=[each])]
    request = raw.send(apis.PRODUCE, m.ProduceRequest(acks=-1, timeout_ms=30_000, topics=topics))
    assert node.call("DELETE", f"/api/v1/streams/{stream}")[0] in {200, 204}
    code = raw.receive(request).topics[0].partitions[0].error_code
    gone = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.KAFKA_STORAGE_ERROR}
    assert code in {ErrorCode.NONE, *gone}


@pytest.mark.clients
@pytest.mark.parametrize("codec", CODECS[1:])
def test_librdkafka_reads_what_was_recoded(node, raw, codec):
    stream = stream_of(node, codec)
    for contents in ([b"a"], LARGE):
        assert raw.produce(stream, batch("none", *contents)).error_code == ErrorCode.NONE
    settings = {"bootstrap.servers": node.servers, "group.id": "g", "check.crcs": True}
    consumer = confluent_kafka.Consumer(settings)
    try:
        consumer.assign([confluent_kafka.TopicPartition(stream, 0, 0)])
        found = [message.value() for message in consumer.consume(1 + len(LARGE), timeout=30)]
    finally:
        consumer.close()
    assert found == [b"a", *LARGE]
