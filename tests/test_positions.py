"""Where a subscription to a stream begins, by the user properties of its SUBSCRIBE."""

import pytest

from headrace.errors import InvalidStartError
from headrace.kernel import positions
from headrace.kernel.positions import Base, parse

BOUNDS = [(5, 9), (0, 0), (0, 3)]


def placed(*properties, found=(), bounds=BOUNDS):
    return positions.place(parse(properties), bounds, found)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ([], [9, 0, 3]),
        ([("colour", "red")], [9, 0, 3]),
        ([("stream-offset", "latest")], [9, 0, 3]),
        ([("stream-offset", "earliest")], [5, 0, 0]),
        ([("stream-offset", "0:5"), ("stream-offset", "2:1")], [5, 0, 1]),
        ([("stream-offset", "2:3"), ("stream-offset", "earliest")], [5, 0, 3]),
    ],
)
def test_partitions_begin_where_it_is_said(said, expected):
    assert placed(*said) == expected
    assert parse(said).is_asked == any(name.startswith("stream-") for name, _ in said)


def test_an_offset_alone_is_that_of_the_only_partition():
    assert placed(("stream-offset", "7"), bounds=[(5, 9)]) == [7]


@pytest.mark.parametrize(
    "said", ["2026-11-28T10:00:00Z", "2026-11-28T12:00:00+02:00", "1795860000000"]
)
def test_a_time_is_rfc_3339_or_milliseconds(said):
    start = parse([("stream-time", said)])
    assert (start.base, start.time_ms) == (Base.TIME, 1_795_860_000_000)


def test_a_time_begins_at_the_first_record_that_is_there():
    said = ("stream-time", "0")
    assert placed(said, found=[2, None, 1]) == [5, 0, 1]
    assert placed(said, ("stream-offset", "2:2"), found=[6, None, 1]) == [6, 0, 2]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ([("stream-offset", "")], "PARTITION:OFFSET"),
        ([("stream-offset", "first")], "'first'"),
        ([("stream-offset", "-1")], "'-1'"),
        ([("stream-offset", "0:-1")], "'0:-1'"),
        ([("stream-offset", ":1")], "':1'"),
        ([("stream-offset", "0:1:2")], "'0:1:2'"),
        ([("stream-offset", "٣")], "earliest"),
        ([("stream-offset", "9" * 19)], "earliest"),
        ([("stream-offset", "x" * 70_000)], "…"),
        ([("stream-offset", "0:4")], "from offset 5 to 9, not from 4"),
        ([("stream-offset", "0:10")], "not from 10"),
        ([("stream-offset", "3:0")], "there is no partition 3; there are 0 to 2"),
        ([("stream-offset", "0:5"), ("stream-offset", "0:6")], "partition 0 is named twice"),
        ([("stream-offset", "5")], "there are 3 partitions"),
        ([("stream-offset", "earliest"), ("stream-offset", "latest")], "more than one place"),
        ([("stream-offset", "earliest"), ("stream-time", "0")], "more than one place"),
        ([("stream-offset", "1"), ("stream-offset", "2")], "more than one place"),
        ([("stream-time", "yesterday")], "RFC 3339"),
        ([("stream-time", "2026-11-28T10:00:00")], "RFC 3339"),
        ([("stream-time", "-5")], "RFC 3339"),
        ([("stream-ofset", "earliest")], "did you mean 'stream-offset'?"),
        ([("stream-", "")], "did you mean"),
    ],
)
def test_what_says_nothing_is_refused_with_what_would(said, why):
    with pytest.raises(InvalidStartError) as refused:
        placed(*said)
    assert why in str(refused.value)
    assert len(str(refused.value)) < 400
    assert "\n" not in str(refused.value)
