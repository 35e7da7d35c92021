"""The producer's machine in virtual time, against brokers that fail and leave answers out."""

import pytest

from headrace.client.accumulator import Accumulator
from headrace.client.config import ProducerConfig
from headrace.client.errors import (
    BufferFullError,
    DeadlineError,
    RequestError,
    UnknownStreamError,
)
from headrace.native import batch_headers
from headrace.wire.kafka.errors import ErrorCode
from headrace.wire.kafka.messages import ProducePartitionResponse
from producing import LOST, ONE, TWO, Life, add, values_of


def machine(leaders=(ONE,), **settings):
    accumulator = Accumulator(ProducerConfig(**settings), lambda: 0.5)
    accumulator.learn("s", list(leaders))
    accumulator.identify(7, 0)
    return accumulator


def drain(accumulator, now=0.0, ready=(ONE, TWO)):
    return accumulator.drain(now, set(ready)).requests


def answer(accumulator, request, code=0, base=0, now=0.0):
    answers = {
        (batch.lane.stream, batch.lane.partition): ProducePartitionResponse(
            index=batch.lane.partition, error_code=code, base_offset=base
        )
        for batch in request.batches
    }
    return accumulator.answered(request, answers, now)


def values(request):
    return [values_of(batch) for batch in request.batches]


def sequences(requests):
    return [batch.sequence for request in requests for batch in request.batches]


def test_records_of_one_turn_share_a_batch_and_get_their_offsets():
    accumulator = machine()
    for value in (b"a", b"b"):
        add(accumulator, value)
    (request,) = drain(accumulator)
    assert (request.address, values(request)) == (ONE, [[b"a", b"b"]])
    assert drain(accumulator) == []
    (stored,) = answer(accumulator, request, base=40)
    assert (list(stored.batch.waiters.values()), stored.base_offset) == ([b"a", b"b"], 40)
    assert accumulator.buffered_bytes == 0


def test_a_batch_says_who_wrote_it():
    accumulator = machine(compression_type="lz4")
    add(accumulator, b"a")
    add(accumulator, b"b")
    first = drain(accumulator)
    add(accumulator, b"c")
    (_, (second,)) = first, drain(accumulator)
    ((_, _, _, count, _, codec, producer, _, whole),), _ = batch_headers(
        second.batches[0].encoded("lz4")
    )
    assert (count, codec, producer, whole) == (1, "lz4", (7, 0, 2), True)


def test_a_batch_lingers_until_it_is_full_due_or_flushed():
    accumulator = machine(linger_ms=10, batch_size=150)
    add(accumulator, b"a", now=1.0)
    drained = accumulator.drain(1.0, {ONE})
    assert (drained.requests, drained.wake_at) == ([], 1.01)
    assert len(drain(accumulator, 1.01)) == 1
    add(accumulator, b"b", now=2.0)
    add(accumulator, b"x" * 110, now=2.0)
    assert values(drain(accumulator, 2.0)[0]) == [[b"b"]], "full: another has begun"
    accumulator.flushing += 1
    assert values(drain(accumulator, 2.0)[0]) == [[b"x" * 110]]


def test_no_more_requests_are_under_way_than_may_be():
    accumulator = machine(batch_size=1, max_in_flight_requests_per_connection=2)
    for value in (b"a", b"b", b"c"):
        add(accumulator, value)
    first, second = drain(accumulator)
    assert (values(first), values(second)) == ([[b"a"]], [[b"b"]])
    answer(accumulator, first)
    assert [values(request) for request in drain(accumulator)] == [[[b"c"]]]


def test_a_request_has_one_batch_of_each_partition_up_to_its_size():
    accumulator = machine((ONE, TWO, ONE), max_request_size=200)
    for partition in range(3):
        add(accumulator, b"x" * 100, partition)
    requests = drain(accumulator)
    assert [request.address for request in requests] == [ONE, TWO, ONE]
    accumulator = machine((ONE, ONE))
    add(accumulator, b"a", 0)
    add(accumulator, b"b", 1)
    assert [values(request) for request in drain(accumulator)] == [[[b"a"], [b"b"]]]


def test_what_failed_goes_first_and_in_order():
    accumulator = machine(batch_size=1)
    for value in (b"a", b"b", b"c"):
        add(accumulator, value)
    first, second, third = drain(accumulator)
    add(accumulator, b"d")
    assert answer(accumulator, first, ErrorCode.NOT_LEADER_OR_FOLLOWER) == []
    assert accumulator.wanted == {"s"}
    assert drain(accumulator, 9) == [], "two are under way"
    out_of_order = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert answer(accumulator, second, out_of_order) == []
    assert answer(accumulator, third, out_of_order) == []
    accumulator.learn("s", [TWO])
    assert drain(accumulator, 0.05) == [], "a pause before it is tried again"
    again = drain(accumulator, 0.2)
    assert [values(request) for request in again] == [[[b"a"]], [[b"b"]], [[b"c"]], [[b"d"]]]
    assert {request.address for request in again} == {TWO}
    assert sequences(again) == [0, 1, 2, 3]


def test_pauses_grow_and_end_at_the_bound():
    accumulator = machine(retry_backoff_ms=100, retry_backoff_max_ms=300)
    add(accumulator, b"a")
    now, pauses = 0.0, []
    for _ in range(4):
        (request,) = drain(accumulator, now)
        answer(accumulator, request, ErrorCode.NOT_ENOUGH_REPLICAS, now=now)
        until = accumulator.drain(now, {ONE}).wake_at
        pauses.append(round(until - now, 3))
        now = until
    assert pauses == [0.1, 0.2, 0.3, 0.3]


def test_a_batch_without_hope_gives_its_numbers_to_the_next():
    accumulator = machine(batch_size=1)
    add(accumulator, b"bad")
    add(accumulator, b"good")
    first, second = drain(accumulator)
    (failed,) = answer(accumulator, first, ErrorCode.INVALID_RECORD)
    assert (failed.waiters, failed.error.code) == ([b"bad"], ErrorCode.INVALID_RECORD)
    assert answer(accumulator, second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER) == []
    (again,) = drain(accumulator)
    assert (values(again), sequences([again])) == ([[b"good"]], [0])


def test_a_batch_that_is_too_large_is_sent_as_two():
    accumulator = machine()
    for value in (b"a", b"b", b"c"):
        add(accumulator, value)
    (request,) = drain(accumulator)
    assert answer(accumulator, request, ErrorCode.MESSAGE_TOO_LARGE) == []
    halves = drain(accumulator)
    assert [values(half) for half in halves] == [[[b"a"]], [[b"b", b"c"]]]
    assert sequences(halves) == [0, 1]
    assert not accumulator.is_done_to(1)
    answer(accumulator, halves[0])
    assert not accumulator.is_done_to(1)
    (failed,) = answer(accumulator, halves[1], ErrorCode.CORRUPT_MESSAGE) or [None]
    assert failed is None
    (last,) = drain(accumulator, 1)
    (stored,) = answer(accumulator, last, base=1)
    assert list(stored.batch.waiters.values()) == [b"b", b"c"]
    assert accumulator.is_done_to(1)
    assert accumulator.buffered_bytes == 0
    add(accumulator, b"alone")
    (request,) = drain(accumulator, 1)
    (failed,) = answer(accumulator, request, ErrorCode.MESSAGE_TOO_LARGE)
    assert failed.error.code is ErrorCode.MESSAGE_TOO_LARGE


def test_halves_keep_their_order_under_another_id():
    accumulator = machine(max_in_flight_requests_per_connection=1)
    for value in (b"a", b"b"):
        add(accumulator, value)
    (request,) = drain(accumulator)
    answer(accumulator, request, ErrorCode.MESSAGE_TOO_LARGE)
    for code in (ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.NOT_ENOUGH_REPLICAS):
        (first,) = drain(accumulator, 1.0)
        assert values(first) == [[b"a"]]
        answer(accumulator, first, code)
        accumulator.identify(8, 0)
    (first,) = drain(accumulator, 1.0)
    assert values(first) == [[b"a"]]


def test_what_may_be_stored_is_not_sent_under_another_id():
    accumulator = machine(batch_size=1, delivery_timeout_ms=60_000)
    for value in (b"a", b"b"):
        add(accumulator, value)
    first, second = drain(accumulator)
    accumulator.lost(first, LOST, 1.0)
    accumulator.lost(second, LOST, 1.0)
    add(accumulator, b"c", now=30.0)
    failed = accumulator.expire(61.0)
    assert [each.waiters for each in failed] == [[b"a"], [b"b"]]
    assert isinstance(failed[0].error, DeadlineError)
    assert failed[0].error.__cause__ is LOST
    assert accumulator.wants_producer
    accumulator.learn("s", [ONE])
    assert drain(accumulator, 61.0) == []
    accumulator.identify(8, 0)
    (request,) = drain(accumulator, 61.0)
    assert (values(request), sequences([request])) == ([[b"c"]], [0])
    assert request.batches[0].lane.producer == (8, 0)


def test_a_broker_that_forgot_the_producer_gets_all_under_a_new_id():
    accumulator = machine((ONE, ONE), batch_size=1)
    add(accumulator, b"a", 0)
    add(accumulator, b"b", 0)
    add(accumulator, b"x", 1)
    requests = drain(accumulator)
    assert values(requests[0]) == [[b"a"], [b"x"]]
    answers = {
        ("s", 0): ProducePartitionResponse(index=0, error_code=ErrorCode.UNKNOWN_PRODUCER_ID),
        ("s", 1): ProducePartitionResponse(index=1, base_offset=0),
    }
    assert len(accumulator.answered(requests[0], answers, 0.0)) == 1
    answer(accumulator, requests[1], ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert accumulator.wants_producer
    accumulator.identify(9, 0)
    again = drain(accumulator, 1.0)
    assert [values(each) for each in again] == [[[b"a"]], [[b"b"]]]
    assert (sequences(again), again[0].batches[0].lane.producer) == ([0, 1], (9, 0))
    add(accumulator, b"y", 1)
    (other,) = drain(accumulator, 1.0)
    assert other.batches[0].lane.producer == (7, 0), "its id is as good as it was"
    assert sequences([other]) == [1]


def test_retries_have_an_end():
    accumulator = machine(retries=1)
    add(accumulator, b"a")
    (request,) = drain(accumulator)
    assert accumulator.lost(request, LOST, 0.0) == []
    accumulator.learn("s", [ONE])
    (request,) = drain(accumulator, 1.0)
    (failed,) = accumulator.lost(request, LOST, 1.0)
    assert failed.error is LOST
    assert accumulator.wants_producer


def test_without_room_nothing_is_taken_in():
    accumulator = machine(buffer_memory=300, max_request_size=400)
    add(accumulator, b"x" * 100)
    add(accumulator, b"x" * 100)
    with pytest.raises(BufferFullError) as full:
        add(accumulator, b"x" * 100)
    assert full.value.retriable
    (request,) = drain(accumulator)
    answer(accumulator, request)
    add(accumulator, b"x" * 100)
    for size, name in ((500, "max_request_size"), (350, "buffer_memory")):
        with pytest.raises(RequestError, match=name) as large:
            add(accumulator, b"x" * size)
        assert large.value.code is ErrorCode.MESSAGE_TOO_LARGE
    with pytest.raises(ValueError, match="s has partitions 0 to 0, not 1"):
        add(accumulator, b"x", 1)


def test_records_wait_for_a_stream_to_be_known():
    accumulator = machine(max_block_ms=1000)
    add(accumulator, b"a", None, stream="new", now=5.0)
    add(accumulator, b"b", 9, stream="new", now=5.0)
    assert accumulator.wanted == {"new"}
    assert accumulator.has_homeless
    (failed,) = accumulator.learn("new", [TWO])
    assert failed.waiters == [b"b"]
    assert isinstance(failed.error, ValueError)
    assert [values(request) for request in drain(accumulator)] == [[[b"a"]]]
    add(accumulator, b"c", None, stream="never", now=5.0)
    assert [accumulator.unknown("never", 3) for _ in range(4)] == [[]] * 4
    (failed,) = accumulator.unknown("never", 3)
    assert isinstance(failed.error, UnknownStreamError)
    add(accumulator, b"d", None, stream="late", now=5.0)
    assert accumulator.drain(5.0, {ONE}).wake_at == 6.0
    (failed,) = accumulator.expire(6.0)
    assert isinstance(failed.error, DeadlineError)
    assert accumulator.buffered_bytes == 22, "of what is under way"
    (denied,) = accumulator.unknown("s", ErrorCode.TOPIC_AUTHORIZATION_FAILED) or [None]
    assert denied is None


def test_a_broker_that_is_not_reached_is_left_in_peace():
    accumulator = machine()
    add(accumulator, b"a")
    drained = accumulator.drain(0.0, set())
    assert (drained.requests, drained.connect) == ([], {ONE})
    accumulator.unreached(ONE, 0.0)
    drained = accumulator.drain(0.0, set())
    assert (drained.connect, round(drained.wake_at, 3)) == (set(), 0.1)
    assert accumulator.wanted == {"s"}
    assert accumulator.drain(0.1, set()).connect == {ONE}


def test_acks_of_zero_wait_for_nothing():
    accumulator = machine(acks=0)
    add(accumulator, b"a")
    (request,) = drain(accumulator)
    (stored,) = accumulator.sent(request)
    assert (stored.base_offset, values(request), sequences([request])) == (-1, [[b"a"]], [-1])


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 200, 20))
def test_nothing_is_stored_twice_or_out_of_order_and_nothing_is_lost_in_silence(first):
    for seed in range(first, first + 20):
        life = Life(seed)
        life.run()
        accumulator, outcomes = life.accumulator, life.outcomes
        assert accumulator.buffered_bytes == 0, seed
        assert accumulator.is_done_to(accumulator.last_order), seed
        for partition, values_sent in life.sent.items():
            log = life.broker.logs[partition]
            assert len(set(log)) == len(log), f"seed {seed}: stored twice"
            order = [values_sent.index(value) for value in log]
            assert order == sorted(order), f"seed {seed}: out of order"
            for value in values_sent:
                outcome = outcomes[value]
                if outcome is not None:
                    assert log[outcome[1]] == value, f"seed {seed}: not where it was said to be"


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        12345,
    ],
)
def test_what_follows_a_batch_that_may_be_stored_does_not_take_its_numbers(code):
    accumulator = machine(retries=0)
    add(accumulator, b"a")
    (request,) = drain(accumulator)
    (failed,) = answer(accumulator, request, code)
    assert failed.waiters == [b"a"]
    add(accumulator, b"b")
    accumulator.learn("s", [ONE])
    assert drain(accumulator, 10.0) == []
    assert accumulator.wants_producer
    accumulator.identify(8, 0)
    (request,) = drain(accumulator, 10.0)
    assert (request.batches[0].lane.producer, sequences([request])) == ((8, 0), [0])


def test_what_follows_a_batch_that_was_not_stored_takes_its_numbers():
    accumulator = machine()
    add(accumulator, b"a")
    (request,) = drain(accumulator)
    answer(accumulator, request, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    add(accumulator, b"b")
    (request,) = drain(accumulator)
    assert (request.batches[0].lane.producer, sequences([request])) == ((7, 0), [0])
