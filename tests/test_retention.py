"""What retention asks for: stories as tables, and a brute force over generated logs."""

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.kernel.retention import (
    RECORDS,
    SETTLED,
    SIZE,
    TIME,
    Owed,
    Trim,
    Upkeep,
    dirt,
    upkeep,
)
from headrace.settings import Settings

NOW = 1_000_000
HOUR = 1000
KEEP = Settings(retention_ms=-1, segment_ms=10**12)


@dataclass(frozen=True)
class Segment:
    base_offset: int
    next_offset: int
    bytes: int
    max_timestamp_ms: int | None
    created_ms: int | None
    clean: bool = False
    horizon_ms: int | None = None


def log(*segments, active=(10, 100, NOW)):
    """Segments of `(records, bytes, newest)`, each created when the newest before it was."""
    made, at, created = [], 0, 0
    for records, size, newest in [*segments, active]:
        made.append(Segment(at, at + records, size, newest if records else None, created))
        at += records
        created = max(created, newest)
    return made


OLD = (10, 100, NOW - 10 * HOUR)
YOUNG = (10, 100, NOW - HOUR)
EMPTY = (0, 0, NOW)


@pytest.mark.parametrize(
    ("segments", "settings", "roll", "trims"),
    [
        pytest.param(log(OLD), {}, False, [], id="nothing is set"),
        pytest.param(
            log(OLD, YOUNG), {"retention_ms": 2 * HOUR}, False, [Trim(10, TIME)], id="old"
        ),
        pytest.param(log(YOUNG, OLD), {"retention_ms": 2 * HOUR}, False, [], id="old behind young"),
        pytest.param(log(YOUNG), {"retention_ms": HOUR}, False, [], id="just not expired"),
        pytest.param(
            log(OLD, active=OLD), {"retention_ms": HOUR}, True, [Trim(20, TIME)], id="all expired"
        ),
        pytest.param(
            log(OLD, OLD, active=EMPTY),
            {"retention_ms": HOUR},
            False,
            [Trim(20, TIME)],
            id="an empty active segment is not rolled again",
        ),
        pytest.param(log(active=EMPTY), {"retention_ms": 0}, False, [], id="an empty log"),
        pytest.param(
            log(YOUNG, YOUNG), {"retention_bytes": 200}, False, [Trim(10, SIZE)], id="size"
        ),
        pytest.param(
            log(YOUNG, YOUNG), {"retention_bytes": 201}, False, [], id="no less than was asked for"
        ),
        pytest.param(
            log(YOUNG), {"retention_bytes": 0}, True, [Trim(20, SIZE)], id="nothing is to be kept"
        ),
        pytest.param(
            log(YOUNG, YOUNG), {"retention_records": 15}, False, [Trim(10, RECORDS)], id="records"
        ),
        pytest.param(
            log(OLD, YOUNG, YOUNG),
            {"retention_ms": 2 * HOUR, "retention_bytes": 200},
            False,
            [Trim(10, TIME), Trim(20, SIZE)],
            id="two reasons",
        ),
        pytest.param(
            log(OLD), {"retention_ms": HOUR, "cleanup_policy": "compact"}, False, [], id="compacts"
        ),
        pytest.param(
            log(OLD, active=EMPTY),
            {"retention_ms": HOUR, "cleanup_policy": "compact,delete"},
            False,
            [Trim(10, TIME)],
            id="both policies",
        ),
        pytest.param(
            log(active=YOUNG), {"segment_ms": NOW}, True, [], id="an idle segment is closed by age"
        ),
        pytest.param(
            log(active=YOUNG),
            {"cleanup_policy": "compact", "max_compaction_lag_ms": NOW},
            True,
            [],
            id="so that it can be compacted in time",
        ),
    ],
)
def test_stories(segments, settings, roll, trims):
    asked = upkeep(segments, 0, replace(KEEP, **settings), NOW)
    assert (asked.roll, list(asked.trims)) == (roll, trims)


@pytest.mark.parametrize(
    ("offset", "start"), [(0, 0), (9, 0), (10, 10), (19, 10), (20, 20), (30, 20)]
)
def test_closed_segments_of_a_queue_go_once_all_groups_have_settled_them(offset, start):
    asked = upkeep(log(YOUNG, YOUNG), 0, KEEP, NOW, Owed(offset, settled_go=True))
    assert asked == Upkeep(roll=False, trims=(Trim(start, SETTLED),) if start else ())


@pytest.mark.parametrize(
    ("offset", "roll", "trims"),
    [(0, False, []), (15, False, [Trim(10, TIME)]), (20, True, [Trim(20, TIME)])],
)
def test_retention_takes_nothing_that_a_queue_owes(offset, roll, trims):
    """Whatever it says: here that all has expired, the active segment too."""
    settings = replace(KEEP, retention_ms=HOUR, retention_bytes=0, retention_records=0)
    asked = upkeep(log(OLD, active=OLD), 0, settings, NOW, Owed(offset, settled_go=False))
    assert (asked.roll, list(asked.trims)) == (roll, trims)


def test_what_is_settled_stays_as_long_as_retention_says():
    owed = Owed(30, settled_go=False)
    assert upkeep(log(OLD, YOUNG), 0, KEEP, NOW, owed).trims == ()
    settings = replace(KEEP, retention_ms=2 * HOUR)
    assert upkeep(log(OLD, YOUNG), 0, settings, NOW, owed).trims == (Trim(10, TIME),)


def test_records_before_the_start_do_not_count():
    segments = log(YOUNG, YOUNG)
    keep = replace(KEEP, retention_records=20)
    assert upkeep(segments, 0, keep, NOW).trims == (Trim(10, RECORDS),)
    assert upkeep(segments, 5, keep, NOW).trims == (Trim(10, RECORDS),)
    assert upkeep(segments, 11, replace(keep, retention_records=19), NOW).trims == ()


def test_a_timestamp_from_the_future_keeps_nothing_for_ever():
    settings = replace(KEEP, retention_ms=HOUR, segment_ms=5 * HOUR)
    future = Segment(0, 10, 100, NOW * 1000, NOW)
    assert upkeep([future], 0, settings, NOW + 5 * HOUR - 1).roll is False
    assert upkeep([future], 0, settings, NOW + 5 * HOUR).roll is True
    closed = [future, Segment(10, 10, 0, None, NOW + 5 * HOUR)]
    assert upkeep(closed, 0, settings, NOW + 6 * HOUR).trims == ()
    assert upkeep(closed, 0, settings, NOW + 6 * HOUR + 1).trims == (Trim(10, TIME),)


def test_a_clock_that_was_ahead_keeps_nothing_for_ever():
    settings = replace(KEEP, retention_ms=HOUR, segment_ms=5 * HOUR)
    ahead = NOW + 1000 * HOUR
    earlier = Segment(0, 10, 100, ahead, ahead)
    active = Segment(10, 20, 100, ahead, ahead + HOUR)
    assert upkeep([earlier, active], 0, settings, NOW) == Upkeep(roll=True, trims=())
    empty = Segment(20, 20, 0, None, ahead)
    assert upkeep([earlier, empty], 0, settings, NOW).roll is False
    closed = [earlier, active, Segment(20, 21, 1, NOW + HOUR, NOW)]
    assert upkeep(closed, 0, settings, NOW + HOUR).trims == ()
    assert upkeep(closed, 0, settings, NOW + HOUR + 1).trims == (Trim(20, TIME),)
    lag = Settings(max_compaction_lag_ms=HOUR, min_cleanable_dirty_ratio=1)
    assert not dirt(closed, lag, NOW + HOUR).due
    assert dirt(closed, lag, NOW + HOUR + 1).due


@pytest.mark.parametrize("timestamp", [None, -1])
def test_records_without_a_timestamp_are_as_old_as_their_segments_end(timestamp):
    segments = [Segment(0, 10, 100, timestamp, 0), Segment(10, 20, 100, NOW, NOW - HOUR)]
    assert upkeep(segments, 0, replace(KEEP, retention_ms=HOUR), NOW).trims == ()
    assert upkeep(segments, 0, replace(KEEP, retention_ms=HOUR - 1), NOW).trims == (Trim(10, TIME),)


def test_a_lost_time_of_creation_is_that_of_a_later_segment():
    segments = [
        Segment(0, 10, 100, NOW * 9, 0),
        Segment(10, 20, 100, 5, None),
        Segment(20, 30, 100, NOW, NOW - 5 * HOUR),
    ]
    assert upkeep(segments, 0, replace(KEEP, retention_ms=HOUR), NOW).trims == (Trim(20, TIME),)


@dataclass(frozen=True)
class Record:
    """One record of the model: when a clock saw it arrive, and what its client claimed."""

    arrived_ms: int
    claimed_ms: int
    bytes: int


records = st.builds(
    Record,
    st.integers(0, NOW),
    st.one_of(st.integers(-1, NOW), st.just(NOW * 1000)),
    st.integers(1, 50),
)
kept = st.one_of(st.just(-1), st.integers(0, 500))


@given(
    arrivals=st.lists(records, min_size=0, max_size=30),
    cuts=st.sets(st.integers(0, 30), max_size=6),
    retention_ms=st.one_of(st.just(-1), st.integers(0, NOW)),
    retention_bytes=kept,
    retention_records=kept,
)
def test_brute_force(arrivals, cuts, retention_ms, retention_bytes, retention_records):
    arrivals.sort(key=lambda record: record.arrived_ms)
    edges = sorted({0, *(cut for cut in cuts if cut < len(arrivals))})
    held = [
        arrivals[low:high] for low, high in zip(edges, [*edges[1:], len(arrivals)], strict=True)
    ]
    segments, created = [], 0
    for base, content in zip(edges, held, strict=True):
        created = content[0].arrived_ms if content else created
        size = sum(record.bytes for record in content)
        newest = max((record.claimed_ms for record in content), default=None)
        segments.append(Segment(base, base + len(content), size, newest, created))
    settings = replace(
        KEEP,
        retention_ms=retention_ms,
        retention_bytes=retention_bytes,
        retention_records=retention_records,
    )
    asked = upkeep(segments, 0, settings, NOW)
    start = asked.trims[-1].offset if asked.trims else 0
    assert start in {0, *(segment.next_offset for segment in segments)}
    gone, left = arrivals[:start], arrivals[start:]
    # Nothing goes that a limit which is set does not let go.
    limits = (retention_ms, retention_bytes, retention_records)
    assert not gone or limits != (-1, -1, -1)
    offsets = [trim.offset for trim in asked.trims]
    assert offsets == sorted(set(offsets))
    low = 0
    for trim in asked.trims:
        part, rest = arrivals[low : trim.offset], arrivals[trim.offset :]
        if trim.reason == TIME:
            assert all(min(r.claimed_ms, r.arrived_ms) < NOW - retention_ms for r in part)
        elif trim.reason == SIZE:
            assert sum(record.bytes for record in rest) >= retention_bytes
        else:
            assert len(rest) >= retention_records
        low = trim.offset
    # And nothing stays that could have gone.
    for segment, content in zip(segments, held, strict=True):
        if segment.next_offset <= start or not content:
            continue
        size = sum(record.bytes for record in left)
        following = [each for each in segments if each.base_offset > segment.base_offset]
        ended = following[0].created_ms if following else NOW
        newest = max(record.claimed_ms for record in content)
        assert retention_bytes == -1 or size - segment.bytes < retention_bytes
        assert retention_records == -1 or len(left) - len(content) < retention_records
        if retention_ms != -1:
            assert NOW - min(newest if newest >= 0 else ended, ended) <= retention_ms
        break
    assert asked.roll == (bool(held[-1]) and start == len(arrivals))


CLEAN = Segment(0, 10, 100, NOW - 10 * HOUR, NOW - 11 * HOUR, clean=True)
DIRTY = Segment(10, 20, 100, NOW - 5 * HOUR, NOW - 6 * HOUR)
ACTIVE = Segment(20, 30, 1000, NOW, NOW - 4 * HOUR)


@pytest.mark.parametrize(
    ("segments", "settings", "expected"),
    [
        pytest.param([ACTIVE], {}, (0, False), id="the active segment is not compacted"),
        pytest.param([DIRTY, ACTIVE], {}, (1, True), id="nothing was compacted yet"),
        pytest.param([CLEAN, ACTIVE], {}, (0, False), id="all is clean"),
        pytest.param([CLEAN, DIRTY, ACTIVE], {}, (0.5, False), id="more than half, not half"),
        pytest.param(
            [CLEAN, DIRTY, ACTIVE],
            {"min_cleanable_dirty_ratio": 0.49},
            (0.5, True),
            id="more than was allowed",
        ),
        pytest.param([CLEAN, ACTIVE], {"min_cleanable_dirty_ratio": 0.0}, (0, False), id="ratio 0"),
        pytest.param(
            [DIRTY, ACTIVE], {"min_compaction_lag_ms": 5 * HOUR}, (1, True), id="old enough"
        ),
        pytest.param(
            [DIRTY, ACTIVE], {"min_compaction_lag_ms": 5 * HOUR + 1}, (0, False), id="too young"
        ),
        pytest.param(
            [CLEAN, DIRTY, ACTIVE],
            {"max_compaction_lag_ms": 6 * HOUR},
            (0.5, False),
            id="not overdue",
        ),
        pytest.param(
            [CLEAN, DIRTY, ACTIVE],
            {"max_compaction_lag_ms": 6 * HOUR - 1},
            (0.5, True),
            id="overdue",
        ),
        pytest.param(
            [replace(CLEAN, horizon_ms=NOW - HOUR), ACTIVE],
            {"delete_retention_ms": HOUR},
            (0, True),
            id="tombstones that nobody needs any more",
        ),
        pytest.param(
            [replace(CLEAN, horizon_ms=NOW - HOUR + 1), ACTIVE],
            {"delete_retention_ms": HOUR},
            (0, False),
            id="tombstones that may wait",
        ),
    ],
)
def test_when_a_log_is_compacted(segments, settings, expected):
    assert dirt(segments, replace(KEEP, **settings), NOW) == expected
