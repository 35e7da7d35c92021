"""Produce over the Kafka door, request by request: batches, acks, producers that repeat."""

from struct import pack

import pytest

from headrace.native import build_batch
from headrace.wire.kafka import apis
from headrace.wire.kafka import messages as m
from headrace.wire.kafka.errors import ErrorCode
from kafkaraw import RawConnection, batch, restamped, values


@pytest.fixture
def node(shared):
    return shared


@pytest.mark.parametrize("version", range(3, 8))
@pytest.mark.parametrize("acks", [1, -1])
def test_produce_answers_with_the_base_offset(raw, stream, version, acks):
    assert raw.produce(stream, batch(b"a", b"b"), acks=acks, version=version).base_offset == 0
    assert raw.produce(stream, batch(b"c"), acks=acks, version=version).base_offset == 2
    assert values(raw.fetch(stream, {0: 0})[0].records) == [b"a", b"b", b"c"]


GOOD = batch(b"x")
WITH_HEADER = build_batch([(None, None, [("h", b"v")], 0)])
SPOILT = GOOD[:-1] + bytes([GOOD[-1] ^ 1])


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (None, ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.INVALID_RECORD),
        (SPOILT, ErrorCode.CORRUPT_MESSAGE),
        (GOOD[:-1], ErrorCode.CORRUPT_MESSAGE),
        (GOOD[:40], ErrorCode.CORRUPT_MESSAGE),
        (GOOD + b"\x00", ErrorCode.CORRUPT_MESSAGE),
        (GOOD + GOOD, ErrorCode.INVALID_RECORD),
        (GOOD[:16] + b"\x01" + GOOD[17:], ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (GOOD[:16] + b"\x03" + GOOD[17:], ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (restamped(GOOD, 21, pack(">h", 0x20)), ErrorCode.INVALID_RECORD),
        (restamped(GOOD, 21, pack(">h", 0x10)), ErrorCode.INVALID_RECORD),
        (restamped(GOOD, 21, pack(">h", 0x40)), ErrorCode.INVALID_RECORD),
        (restamped(GOOD, 21, pack(">h", 0x80)), ErrorCode.INVALID_RECORD),
        (build_batch([(None, b"x", [], 0)], published=True), ErrorCode.INVALID_RECORD),
        (restamped(GOOD, 21, pack(">h", 8)), ErrorCode.INVALID_TIMESTAMP),
        (restamped(GOOD, 57, pack(">i", 2)), ErrorCode.INVALID_RECORD),
        (restamped(GOOD, 57, pack(">i", 0)), ErrorCode.INVALID_RECORD),
        (restamped(GOOD, 23, pack(">i", 1)), ErrorCode.INVALID_RECORD),
        (restamped(GOOD, 61 + 3, b"\x02"), ErrorCode.INVALID_RECORD),
        (restamped(WITH_HEADER, len(WITH_HEADER) - 4, b"\x01"), ErrorCode.INVALID_RECORD),
        (restamped(GOOD + b"\x00", 8, pack(">i", len(GOOD) + 1 - 12)), ErrorCode.INVALID_RECORD),
        (restamped(GOOD, 21, pack(">h", 7)), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (batch(b"x" * 1_200_000), ErrorCode.MESSAGE_TOO_LARGE),
    ],
    ids=[
        "null", "empty", "checksum", "cut off", "cut off in its header", "a byte more",
        "two batches", "format 1", "format 3", "control", "transactional", "compacted",
        "attribute 7", "published", "append time", "count", "no record", "last delta",
        "record delta", "null header name", "trailing byte", "codec 7", "too large",
    ],
)  # fmt: skip
def test_a_bad_batch_is_refused_and_the_connection_lives(raw, stream, records, code):
    assert raw.produce(stream, records).error_code == code
    assert raw.produce(stream, GOOD).base_offset == 0


def test_produce_elsewhere(raw, stream):
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert raw.produce(stream, GOOD, partition=3).error_code == missing
    assert raw.produce(stream, GOOD, partition=-1).error_code == missing
    assert raw.produce("nowhere", GOOD).error_code == missing
    raw.call(apis.INIT_PRODUCER_ID, m.InitProducerIdRequest())
    assert raw.produce("__producers", GOOD).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("version", [0, 1, 2])
def test_produce_of_old_formats_is_answered_with_unsupported_version(raw, stream, version):
    answer = raw.produce(stream, GOOD, version=version)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION


def test_other_acks_and_transactions_are_refused(raw, stream):
    assert raw.produce(stream, GOOD, acks=2).error_code == ErrorCode.INVALID_REQUIRED_ACKS
    answer = raw.produce(stream, GOOD, transactional_id="t")
    assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def send_without_acks(raw, stream, records):
    asked = m.ProducePartition(index=0, records=records)
    topic = m.ProduceTopic(name=stream, partitions=[asked])
    raw.send(apis.PRODUCE, m.ProduceRequest(acks=0, timeout_ms=1000, topics=[topic]))


def test_produce_without_acks_is_stored_and_not_answered(raw, stream):
    send_without_acks(raw, stream, GOOD)
    raw.call(apis.METADATA, m.MetadataRequest(topics=[]))
    assert values(raw.fetch(stream, {0: 0})[0].records) == [b"x"]


def test_produce_without_acks_ends_the_connection_on_an_error(raw, stream):
    send_without_acks(raw, stream, SPOILT)
    assert raw.is_closed()


# --- idempotent producers ------------------------------------------------------------------------


def producer_id(raw, version=1):
    answer = raw.call(apis.INIT_PRODUCER_ID, m.InitProducerIdRequest(), version)
    assert (answer.error_code, answer.producer_epoch) == (0, 0)
    return answer.producer_id


def test_producer_ids_are_never_given_twice(node, raw):
    with RawConnection(node) as other:
        ids = [producer_id(each, version) for each in (raw, other) for version in (0, 1, 1)]
    assert len(set(ids)) == 6
    assert min(ids) >= 0
    refused = raw.call(apis.INIT_PRODUCER_ID, m.InitProducerIdRequest(transactional_id="t"))
    assert refused.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_a_repeated_batch_is_stored_once_and_answered_with_its_offset(raw, stream):
    producer = producer_id(raw)

    def send(sequence, *wanted, epoch=0):
        built = batch(*wanted, producer_id=producer, epoch=epoch, sequence=sequence)
        answer = raw.produce(stream, built)
        return answer.error_code or answer.base_offset

    assert [send(0, b"a", b"b"), send(2, b"c"), send(0, b"a", b"b"), send(2, b"c")] == [0, 2, 0, 2]
    assert send(9, b"z") == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(0, b"d", epoch=1) == 3
    assert send(3, b"z", epoch=0) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert values(raw.fetch(stream, {0: 0})[0].records) == [b"a", b"b", b"c", b"d"]


@pytest.mark.setting("log.producer_expiry")
def test_a_producer_that_was_silent_for_long_is_forgotten(start_node):
    node = start_node(HEADRACE_LOG__PRODUCER_EXPIRY="1ms")
    node.create_stream("a")
    with RawConnection(node) as raw:
        producer = producer_id(raw)
        for sequence in (0, 50):
            built = batch(b"x", producer_id=producer, epoch=0, sequence=sequence)
            while (answer := raw.produce("a", built)).error_code:
                assert answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert node.ends("a") == [2]
