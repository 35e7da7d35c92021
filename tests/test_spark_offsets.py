"""Offsets of a query: one spelling, no way back, shares of a micro-batch, tasks."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.spark.errors import OffsetError
from headrace.spark.offsets import Range, admit, advance, clip, dump, left, load, plan, ranges

offset = st.integers(0, 2**60)
partitions = st.dictionaries(st.integers(0, 30), offset, min_size=1, max_size=6)
logs = st.dictionaries(st.sampled_from(["a", "b", "c"]), partitions, min_size=1)


@st.composite
def starts_and_ends(draw):
    end = draw(logs)
    start = {
        stream: {p: draw(st.integers(0, last)) for p, last in by.items() if draw(st.booleans())}
        for stream, by in end.items()
        if draw(st.booleans())
    }
    return start, end


@given(logs, st.randoms())
def test_the_same_offsets_have_one_text(offsets, random):
    streams = list(offsets)
    random.shuffle(streams)
    shuffled = {s: dict(random.sample(list(offsets[s].items()), len(offsets[s]))) for s in streams}
    assert json.dumps(dump(shuffled)) == json.dumps(dump(offsets))
    assert load(json.loads(json.dumps(dump(offsets)))) == offsets


@pytest.mark.parametrize(
    "written",
    [None, [], {"s": 1}, {"s": {"x": 1}}, {"0": 5}, {"s": {"0": 2**63}}, {"s": {"0": -1}}],
)
def test_offsets_of_another_source_are_refused(written):
    with pytest.raises(OffsetError, match="checkpoint of its own"):
        load(written)


def test_offsets_never_shrink():
    start = {"s": {0: 10, 1: 5}}
    assert advance(start, {"s": {0: 10, 1: 6, 2: 3}}) == {"s": {0: 10, 1: 6, 2: 3}}
    for latest in ({"s": {0: 9, 1: 5}}, {"s": {0: 10}}, {}):
        with pytest.raises(OffsetError, match="new checkpoint"):
            advance(start, latest)
    with pytest.raises(OffsetError, match="back to 9"):
        ranges(start, {"s": {0: 9}})


def test_a_new_partition_is_read_from_0():
    assert ranges({"s": {0: 4}}, {"s": {0: 4, 1: 2}}) == [Range("s", 1, 0, 2)]


@given(starts_and_ends(), st.integers(1, 10_000))
def test_a_batch_takes_all_it_may_and_no_more(bounds, records_max):
    start, latest = bounds
    end = admit(start, latest, records_max)
    lag = sum(map(len, ranges(start, latest)))
    assert sum(map(len, ranges(start, end))) == min(lag, records_max)
    assert all(end[s][p] <= last for s, by in latest.items() for p, last in by.items())


def test_shares_follow_the_lag():
    end = admit({"s": {0: 0, 1: 0}}, {"s": {0: 900, 1: 100, 2: 0}}, 100)
    assert end == {"s": {0: 90, 1: 10, 2: 0}}


@given(starts_and_ends(), st.integers(1, 100))
def test_whoever_has_a_lag_gets_a_record_while_there_are_as_many(bounds, records_max):
    start, latest = bounds
    wanted = ranges(start, latest)
    served = ranges(start, admit(start, latest, records_max))
    assert len(served) == min(len(wanted), records_max) or len(wanted) > records_max
    assert len(served) <= records_max


def test_a_little_does_not_wait_for_much():
    end = admit({}, {"s": {0: 1_000_000, 1: 3, 2: 1}}, 100)
    assert end == {"s": {0: 98, 1: 1, 2: 1}}


@given(starts_and_ends(), logs)
def test_available_now_ends_at_its_target_and_never_goes_back(bounds, target):
    start, latest = bounds
    end = clip(start, latest, target)
    for stream, by in end.items():
        for partition, stop in by.items():
            begin = start.get(stream, {}).get(partition, 0)
            assert stop >= begin
            assert stop <= max(begin, target[stream][partition])


@given(starts_and_ends(), st.integers(1, 8), st.one_of(st.none(), st.integers(1, 8)))
def test_tasks_cover_every_record_once_and_evenly(bounds, most, least):
    wanted = ranges(*bounds)
    total = sum(map(len, wanted))
    tasks = plan(wanted, max(most, least or 1), least)
    assert len(tasks) <= max(most, least or 1)
    assert len(tasks) >= min(least or 0, total)
    joined = [piece for task in tasks for piece in task]
    assert all(len(piece) for piece in joined)
    merged: list[Range] = []
    for piece in joined:
        last = merged[-1] if merged else None
        if last and (last.stream, last.partition) == (piece.stream, piece.partition):
            assert last.end == piece.start
            merged[-1] = Range(piece.stream, piece.partition, last.start, piece.end)
        else:
            merged.append(piece)
    assert merged == wanted
    sizes = [sum(map(len, task)) for task in tasks]
    assert not sizes or max(sizes) - min(sizes) <= 1


@given(starts_and_ends(), st.integers(1, 8), st.data())
def test_what_retention_takes_moves_no_record_to_another_task(bounds, least, data):
    start, end = bounds
    tasks = plan(ranges(start, end), 8, least)
    earliest = {
        s: {p: data.draw(st.integers(0, last)) for p, last in by.items()} for s, by in end.items()
    }
    after = left(tasks, earliest)
    for whole, rest in zip(tasks, after, strict=True):
        homes = {(part.stream, part.partition, part.end): part.start for part in whole}
        for part in rest:
            assert homes[part.stream, part.partition, part.end] <= part.start
            assert earliest[part.stream][part.partition] <= part.start < part.end
    begin = {
        s: {p: max(first, start.get(s, {}).get(p, 0)) for p, first in by.items()}
        for s, by in earliest.items()
    }
    remaining = sum(map(len, ranges(begin, end)))
    assert sum(len(part) for task in after for part in task) == remaining


def test_few_records_are_not_worth_many_tasks():
    many = [Range("s", partition, 0, 10) for partition in range(12)]
    assert len(plan(many, 4)) == 1
    assert len(plan(many, 4, 3)) == 3
    assert len(plan([Range("s", 0, 0, 1_000_000)], 4)) == 4
    assert plan([], 4, 2) == []


@given(
    lengths=st.lists(st.integers(1, 50_000), min_size=1, max_size=40),
    most=st.integers(1, 16),
)
def test_ranges_that_must_stay_whole_are_dealt_to_few_tasks(lengths, most):
    wanted = [Range("s", n, 0, length) for n, length in enumerate(lengths)]
    tasks = plan(wanted, most, whole=True)
    assert [part for task in tasks for part in task] == wanted
    assert len(tasks) <= most
    total = sum(lengths)
    assert max(sum(map(len, task)) for task in tasks) <= total / most + max(lengths) + 5_000
