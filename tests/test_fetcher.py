"""The consumer's machine of positions and fetches in virtual time."""

import pytest

from headrace.client.config import ConsumerConfig
from headrace.client.errors import (
    ConnectionLostError,
    OffsetOutOfRangeError,
    RequestError,
    error_of,
)
from headrace.client.fetcher import Fetcher
from headrace.client.records import TopicPartition
from headrace.errors import CorruptRecordError
from headrace.model import Address
from headrace.native import build_batch
from headrace.wire.kafka.errors import ErrorCode
from headrace.wire.kafka.messages import AbortedTransaction, FetchPartitionResponse

ONE, TWO = Address("one", 1), Address("two", 2)
A, B = TopicPartition("s", 0), TopicPartition("s", 1)


def machine(*places, offset=0, **settings):
    fetcher = Fetcher(ConsumerConfig(**settings))
    fetcher.assign(places)
    fetcher.learn(dict.fromkeys(places, ONE))
    for place in places if offset is not None else ():
        fetcher.seek(place, offset)
    return fetcher


def records(*values, first=0):
    """One batch for each value."""
    made = b""
    for offset, value in enumerate(values, first):
        one = build_batch([(None, value, (), 0)])
        made += offset.to_bytes(8, "big") + one[8:]
    return made


def drain(fetcher, now=0.0, ready=(ONE, TWO)):
    return fetcher.drain(now, set(ready)).fetches


def answer(fetcher, fetch, now=0.0, **more):
    answers = {
        place: FetchPartitionResponse(partition_index=place.partition, high_watermark=9, **more)
        for place in fetch.asked
    }
    fetcher.fetched(fetch, answers, now)


def offsets(fetch):
    return {
        (topic.topic, part.partition): part.fetch_offset
        for topic in fetch.request.topics
        for part in topic.partitions
    }


def taken(fetcher, most=100, among=None):
    found = fetcher.take(most, among)
    if found is None:
        return None
    rows = found.columns.rows(found.start, found.stop)
    return found.place, [row[3] for row in rows]


def test_positions_follow_what_is_handed_out():
    fetcher = machine(A)
    (fetch,) = drain(fetcher)
    assert (fetch.address, offsets(fetch)) == (ONE, {A: 0})
    assert drain(fetcher) == [], "one is under way"
    answer(fetcher, fetch, records=records(b"a", b"b", b"c"))
    assert fetcher.positions() == {A: 0}
    assert taken(fetcher, 2) == (A, [b"a", b"b"])
    assert fetcher.positions() == {A: 2}
    assert taken(fetcher) == (A, [b"c"])
    assert fetcher.positions() == {A: 3}
    assert taken(fetcher) is None
    assert fetcher.part(A).high_watermark == 9


def test_the_next_records_are_fetched_while_others_wait():
    fetcher = machine(A)
    answer(fetcher, drain(fetcher)[0], records=records(b"a", b"b"))
    (ahead,) = drain(fetcher)
    assert offsets(ahead) == {A: 2}
    answer(fetcher, ahead, records=records(b"c", first=2))
    assert [taken(fetcher), taken(fetcher)] == [(A, [b"a", b"b"]), (A, [b"c"])]
    small = machine(A, B, max_partition_fetch_bytes=10)
    answer(small, drain(small)[0], records=records(b"a"))
    assert drain(small) == [], "each holds enough"
    taken(small)
    assert offsets(drain(small)[0]) == {A: 1}
    all_full = machine(A, B, queued_max_bytes=10)
    answer(all_full, drain(all_full)[0], records=records(b"a"))
    taken(all_full)
    assert drain(all_full) == [], "the other one holds what all may"


def test_partitions_give_in_turn():
    fetcher = machine(A, B)
    answer(fetcher, drain(fetcher)[0], records=records(b"a", b"b"))
    assert [taken(fetcher, 1)[0] for _ in range(4)] == [A, B, A, B]


def test_a_fetch_that_a_seek_overtook_changes_nothing():
    fetcher = machine(A)
    (fetch,) = drain(fetcher)
    fetcher.seek(A, 5)
    answer(fetcher, fetch, records=records(b"old"))
    assert taken(fetcher) is None
    (fetch,) = drain(fetcher)
    assert offsets(fetch) == {A: 5}
    fetcher.assign([B])
    answer(fetcher, fetch, records=records(b"gone", first=5))
    assert taken(fetcher) is None
    fetcher.assign([A, B])
    assert list(fetcher.lost(0.0)) == [A, B], "a partition that comes back begins anew"


def test_a_pause_keeps_records_and_position():
    fetcher = machine(A, B)
    answer(fetcher, drain(fetcher)[0], records=records(b"a"))
    fetcher.part(A).is_paused = True
    assert [taken(fetcher), taken(fetcher)] == [(B, [b"a"]), None]
    assert offsets(drain(fetcher)[0]) == {B: 1}
    fetcher.part(A).is_paused = False
    assert taken(fetcher, among=[B]) is None
    assert taken(fetcher) == (A, [b"a"])


def test_leaders_that_moved_are_asked_for():
    fetcher = machine(A, retry_backoff_ms=100)
    answer(fetcher, drain(fetcher)[0], error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert fetcher.wanted == {"s"}
    fetcher.learn({A: TWO})
    assert fetcher.drain(0.0, {TWO}).wake_at == 0.1
    (fetch,) = drain(fetcher, 0.1)
    assert fetch.address == TWO
    fetcher.lost_fetch(fetch, ConnectionLostError("gone"), 0.1)
    assert fetcher.drain(0.1, {TWO}).wake_at == pytest.approx(0.3), "the pause grows"
    fetcher.learn({A: TWO})
    assert fetcher.drain(0.31, set()).connect == {TWO}
    fetcher.unreached(TWO, 0.31)
    assert fetcher.drain(0.31, set()).connect == set()


def test_out_of_range_begins_anew_or_is_told():
    fetcher = machine(A, auto_offset_reset="earliest")
    answer(fetcher, drain(fetcher)[0], error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
    assert list(fetcher.lost(0.0)) == [A]
    assert fetcher.part(A).is_out_of_range
    fetcher.seek(A, 3)
    assert not fetcher.part(A).is_out_of_range
    strict = machine(A, auto_offset_reset="none")
    answer(strict, drain(strict)[0], error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
    assert isinstance(strict.take(1), OffsetOutOfRangeError)
    assert strict.take(1) is None, "told once"


@pytest.mark.parametrize(
    "late", [7, OffsetOutOfRangeError("nowhere", ErrorCode.OFFSET_OUT_OF_RANGE)]
)
def test_kafka_7703_where_to_begin_is_not_answered_over_a_seek(late):
    """What was asked while a position was unknown comes in any order with what the program does."""
    fetcher = machine(A, offset=None)
    asked = fetcher.lost(0.0)[A]
    fetcher.begin(A, asked, late)
    assert list(fetcher.lost(0.0)) == [], "nothing came between"
    fetcher.seek(A, None)
    asked = fetcher.lost(0.0)[A]
    fetcher.seek(A, 3)
    fetcher.begin(A, asked, late)
    assert (fetcher.positions(), fetcher.part(A).error) == ({A: 3}, None), "a seek"
    (fetch,) = drain(fetcher)
    answer(fetcher, fetch, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
    fetcher.begin(A, asked, late)
    assert list(fetcher.lost(0.0)) == [A], "a seek, to where nothing is"
    fetcher.assign([B])
    fetcher.begin(A, asked, late)
    assert fetcher.places == [B], "another assignment"


def test_refusals_are_told_once():
    fetcher = machine(A)
    answer(fetcher, drain(fetcher)[0], error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert drain(fetcher) == []
    error = fetcher.take(1)
    assert isinstance(error, RequestError)
    assert error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert offsets(drain(fetcher)[0]) == {A: 0}


def test_records_before_a_damaged_batch_are_handed_out_first():
    good, bad = records(b"a"), bytearray(records(b"b", first=1))
    bad[-1] ^= 1
    fetcher = machine(A)
    answer(fetcher, drain(fetcher)[0], records=good + bytes(bad))
    assert taken(fetcher) == (A, [b"a"])
    answer(fetcher, drain(fetcher)[0], records=bytes(bad))
    error = fetcher.take(1)
    assert isinstance(error, CorruptRecordError)
    assert str(error).startswith("s/0 at 1: ")
    fetcher.seek(A, 2)
    (fetch,) = drain(fetcher)
    assert offsets(fetch) == {A: 2}
    answer(fetcher, fetch, records=records(b"c", first=2)[:20])
    assert "no whole batch" in str(fetcher.take(1))


def test_a_partition_that_is_not_there_is_looked_for_now_and_then():
    fetcher = machine(A, B)
    gone = error_of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "stream s/0")
    fetcher.unled(A, gone, 0.0)
    (fetch,) = drain(fetcher)
    assert offsets(fetch) == {B: 0}, "the other is read"
    assert fetcher.wanted == set()
    assert fetcher.take(1) is None, "whoever asks is not told here"
    assert fetcher.part(A).missing is gone
    drain(fetcher, now=1.0)
    assert fetcher.wanted == {"s"}
    fetcher.learn({A: ONE})
    assert fetcher.part(A).missing is None
    fetcher.seek(A, None)
    fetcher.unled(A, error_of(ErrorCode.LEADER_NOT_AVAILABLE, "stream s/0"), 1.0)
    assert [list(fetcher.lost(now)) for now in (1.0, 2.0)] == [[], [A]]
    assert fetcher.part(A).missing is None


def test_records_of_aborted_transactions_are_told_and_not_handed_out():
    fetcher = machine(A, isolation_level="read_committed")
    (fetch,) = drain(fetcher)
    assert fetch.request.isolation_level == 1
    aborted = [AbortedTransaction(producer_id=1, first_offset=0)]
    answer(fetcher, fetch, records=records(b"a"), aborted_transactions=aborted)
    assert fetcher.take(1).code is ErrorCode.UNSUPPORTED_VERSION
    answer(fetcher, drain(fetcher)[0], records=records(b"a"))
    assert taken(fetcher) == (A, [b"a"])


def test_what_the_program_waits_for_is_asked_beside_a_fetch_that_waits():
    fetcher = machine(A, B)
    (waiting,) = drain(fetcher)
    assert taken(fetcher) is None
    assert drain(fetcher) == [], "both are asked for"
    fetcher.seek(A, 5)
    (second,) = drain(fetcher)
    assert offsets(second) == {A: 5}
    fetcher.seek(A, 6)
    assert drain(fetcher) == [], "two are enough"
    answer(fetcher, waiting)
    (third,) = drain(fetcher)
    assert offsets(third) == {A: 6, B: 0}
    answer(fetcher, second, records=records(b"old", first=5))
    assert taken(fetcher) is None, "it was overtaken"
    answer(fetcher, third, records=records(b"new", first=6))
    assert taken(fetcher)[1] == [b"new"]


@pytest.mark.parametrize("is_paused", [True, False])
def test_what_is_not_wanted_now_does_not_starve_what_is(is_paused):
    fetcher = machine(A, B, queued_max_bytes=1)
    fetcher.part(B).is_paused = True
    (fetch,) = drain(fetcher)
    answer(fetcher, fetch, records=records(b"a"))
    fetcher.part(B).is_paused, fetcher.part(A).is_paused = False, is_paused
    assert drain(fetcher) == [], "there is no room, and nobody waits for B yet"
    among = None if is_paused else [B]
    assert taken(fetcher, among=among) is None
    (fetch,) = drain(fetcher)
    assert offsets(fetch) == {("s", 1): 0}
    assert fetch.request.max_bytes == 1_048_576, "all that may be beyond the room"
    answer(fetcher, fetch, records=records(b"b"))
    assert drain(fetcher) == []
    assert taken(fetcher, among=among) == (B, [b"b"])
