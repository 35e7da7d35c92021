"""How long a stream went on: against a count of each second, in pieces of any size."""

import random

import pyarrow as pa
import pytest

from headrace.pipeline.activity import Activity

STALENESS = 5


def seconds_that_count(spans, time):
    """Seconds until `time` that lie in an interval, or no further behind one than the staleness."""
    covered = set()
    for start, end in spans:
        covered.update(range(start, end + STALENESS))
    first = min(start for start, _ in spans)
    return sum(1 for second in range(first, time) if second in covered)


@pytest.mark.parametrize("seed", range(40))
def test_time_counts_while_intervals_come_and_for_the_staleness_behind(seed):
    choose = random.Random(seed)
    spans, at = [], 1000
    for _ in range(60):
        at += choose.choice([0, 0, 1, 2, 4, 7, 20])
        spans.append((at, at + choose.choice([1, 3])))
    activity, known, pieces = Activity(STALENESS), {}, list(spans)
    while pieces:
        piece = [pieces.pop(0) for _ in range(min(len(pieces), choose.randrange(1, 9)))]
        shuffled = choose.sample(piece, len(piece))
        starts, ends = (pa.chunked_array([list(each)]) for each in zip(*shuffled, strict=True))
        activity.saw(starts, ends)
        known |= {instant: activity.at(instant) for span in piece for instant in span}
        activity = Activity(STALENESS, activity.seen_us, activity.paused_us)  # as it is kept
    zero = known[spans[0][0]]
    for instant, counted in known.items():
        assert counted - zero == seconds_that_count(spans, instant), instant


def test_nothing_seen_changes_nothing():
    activity = Activity(STALENESS, 90, 7)
    none = pa.chunked_array([[]], pa.int64())
    activity.saw(none, none)
    assert (activity.seen_us, activity.paused_us, activity.at(200)) == (90, 7, 83)
