"""Filters of a batch read: what is left out is not fetched, and what passes is never left out."""

import pickle
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from conftest import RunningNode
from headrace import TopicPartition
from headrace.native import build_batch
from headrace.spark.filters import Span, Wanted, wanted
from headrace.spark.options import parse
from headrace.spark.schema import SCHEMA
from headrace.spark.source import FilteredReader
from headrace.sync import Admin
from kafkaraw import RawConnection

STAMP = 1_700_000_000_000
TIMES = [0, 5, 3, 9, 1, 9, 20, 7, 30, 2]
"""Seconds of the records of each partition: a time may be older than the one before it."""


def at(seconds, microseconds=0):
    """A time as a filter has it."""
    return datetime.fromtimestamp(STAMP / 1000, UTC) + timedelta(
        seconds=seconds, microseconds=microseconds
    )


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    node = RunningNode(tmp_path_factory.mktemp("filters") / "data")
    node.create_stream("times", partitions=3)
    node.create_stream("other", partitions=1)
    with RawConnection(node) as raw:
        for stream, partitions in (("times", 3), ("other", 1)):
            for partition in range(partitions):
                for n, seconds in enumerate(TIMES):
                    record = (None, b"%d.%d" % (partition, n), [], STAMP + 1000 * seconds)
                    assert not raw.produce(stream, build_batch([record]), partition).error_code
    yield node
    node.close()


def span(name, **bounds):
    return Wanted(**{name: Span(**bounds)})


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ([], Wanted()),
        ([EqualTo(("offset",), 4)], span("offsets", least=4, most=4)),
        ([GreaterThan(("offset",), 4)], span("offsets", least=5)),
        ([GreaterThanOrEqual(("offset",), 4)], span("offsets", least=4)),
        ([LessThan(("offset",), 4)], span("offsets", most=3)),
        ([LessThanOrEqual(("offset",), 4)], span("offsets", most=4)),
        ([In(("offset",), (7, 2, None))], span("offsets", least=2, most=7)),
        ([GreaterThan(("partition",), 1)], span("partitions", least=2)),
        ([EqualTo(("topic",), "a"), In(("topic",), ("a", "b"))], Wanted(topics=frozenset("a"))),
        ([LessThan(("topic",), "b")], Wanted()),
        ([EqualTo(("timestamp",), at(0).replace(tzinfo=None))], Wanted()),
        ([EqualTo(("offset",), 4.5)], Wanted()),
        ([In(("offset",), ())], Wanted()),
        ([EqualNullSafe(("offset",), 4), IsNotNull(("offset",))], Wanted()),
        ([Not(EqualTo(("offset",), 4)), Not(In(("partition",), (1,)))], Wanted()),
        ([EqualTo(("value", "offset"), 4), EqualTo(("offset", "x"), 4)], Wanted()),
    ],
)
def test_what_filters_say(filters, found):
    assert wanted(filters) == found


@pytest.mark.parametrize(
    ("filters", "since_ms"),
    [
        ([GreaterThanOrEqual(("timestamp",), at(1))], STAMP + 1000),
        ([GreaterThanOrEqual(("timestamp",), at(1, 1))], STAMP + 1001),
        ([GreaterThanOrEqual(("timestamp",), at(1, 999))], STAMP + 1001),
        ([GreaterThan(("timestamp",), at(1))], STAMP + 1001),
        ([GreaterThan(("timestamp",), at(1, -1))], STAMP + 1000),
        ([EqualTo(("timestamp",), at(1, 1))], STAMP + 1001),
        ([In(("timestamp",), (at(9), at(2)))], STAMP + 2000),
        ([LessThan(("timestamp",), at(1))], None),
        ([GreaterThan(("timestamp",), datetime(1969, 12, 31, tzinfo=UTC))], None),
        ([GreaterThan(("timestamp",), datetime.max.replace(tzinfo=UTC))], 253_402_300_800_000),
    ],
)
def test_times_in_microseconds_are_bounds_in_milliseconds(filters, since_ms):
    assert wanted(filters).since_ms == since_ms


def reader(node, filters, **more):
    options = {"servers": node.servers, "streams": "times,other", "pushFilters": "true", **more}
    made = FilteredReader(parse(options, "batch"), SCHEMA)
    assert list(made.pushFilters(filters)) == filters
    return pickle.loads(pickle.dumps(made))


def fetched(reader):
    """`(topic, partition, offset)` of all that the tasks read."""
    return [
        (row["topic"], row["partition"], row["offset"])
        for task in reader.partitions()
        for rows in reader.read(task)
        for row in rows.select(["topic", "partition", "offset"]).to_pylist()
    ]


def everything(topics=("other", "times"), partitions=(0, 1, 2), offsets=range(10)):
    return [
        (topic, partition, offset)
        for topic in topics
        for partition in partitions
        for offset in offsets
        if topic == "times" or partition == 0
    ]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([EqualTo(("topic",), "times")], everything(["times"])),
        ([In(("partition",), (0, 2))], everything(partitions=[0, 2])),
        ([In(("partition",), (0, 2)), EqualTo(("partition",), 1)], []),
        ([GreaterThan(("partition",), 0)], everything(partitions=[1, 2])),
        ([LessThanOrEqual(("partition",), 0)], everything(partitions=[0])),
        ([GreaterThanOrEqual(("offset",), 8)], everything(offsets=[8, 9])),
        ([LessThan(("offset",), 2)], everything(offsets=[0, 1])),
        ([GreaterThan(("offset",), 2), LessThan(("offset",), 5)], everything(offsets=[3, 4])),
        ([GreaterThan(("offset",), 5), LessThan(("offset",), 3)], []),
        ([LessThan(("offset",), -3)], []),
        ([GreaterThan(("offset",), 2**62)], []),
        # Only where the first record of that time is, is known: of those behind it some are older.
        ([GreaterThanOrEqual(("timestamp",), at(9))], everything(offsets=range(3, 10))),
        ([GreaterThan(("timestamp",), at(9))], everything(offsets=range(6, 10))),
        ([GreaterThan(("timestamp",), at(8, 999_999))], everything(offsets=range(3, 10))),
        ([GreaterThan(("timestamp",), at(30))], []),
        ([LessThan(("timestamp",), at(1))], everything()),
        (
            [EqualTo(("timestamp",), at(20)), EqualTo(("partition",), 1), LessThan(("offset",), 8)],
            everything(partitions=[1], offsets=[6, 7]),
        ),
    ],
)
def test_only_what_may_pass_is_fetched(node, filters, expected):
    assert fetched(reader(node, filters)) == expected


def test_options_and_filters_bound_together(node):
    bounds = {
        "streams": "other",
        "startingOffsets": '{"other": {"0": 2}}',
        "endingOffsets": '{"other": {"0": 6}}',
    }
    made = reader(node, [LessThan(("offset",), 4)], **bounds)
    assert fetched(made) == everything(["other"], offsets=[2, 3])
    made = reader(node, [GreaterThanOrEqual(("offset",), 4)], **bounds)
    assert fetched(made) == everything(["other"], offsets=[4, 5])


@pytest.mark.parametrize("payload", ["dcgm", "dcgm-replay"])
def test_where_rows_depend_on_those_before_them_partitions_are_read_whole(node, payload):
    filters = [GreaterThan(("offset",), 8), EqualTo(("partition",), 1)]
    made = reader(node, filters, payload=payload)
    spans = [
        (part.stream, part.partition, len(part))
        for task in made.partitions()
        for part in task.ranges
    ]
    assert spans == [("times", 1, 10)]


_NUMBERS = st.integers(-2, 12)
_INSTANTS = st.builds(at, st.integers(-1, 31), st.integers(-1500, 1500))


def comparisons(name, values):
    return st.one_of(
        st.builds(
            lambda kind, value: kind((name,), value),
            st.sampled_from([EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual]),
            values,
        ),
        st.builds(lambda values: In((name,), tuple(values)), st.lists(values, min_size=1)),
    )


_TESTS = {
    EqualTo: lambda a, b: a == b,
    GreaterThan: lambda a, b: a > b,
    GreaterThanOrEqual: lambda a, b: a >= b,
    LessThan: lambda a, b: a < b,
    LessThanOrEqual: lambda a, b: a <= b,
    In: lambda a, b: a in b,
}


@given(
    filters=st.lists(
        st.one_of(
            comparisons("offset", _NUMBERS),
            comparisons("partition", _NUMBERS),
            comparisons("timestamp", _INSTANTS),
            comparisons("topic", st.sampled_from(["times", "other", "none"])),
        ),
        max_size=4,
    )
)
def test_what_passes_is_never_left_out(node, filters):
    records = [
        {"topic": t, "partition": p, "offset": n, "timestamp": at(TIMES[n])}
        for t, p, n in everything()
    ]
    passing = [
        (record["topic"], record["partition"], record["offset"])
        for record in records
        if all(_TESTS[type(f)](record[f.attribute[0]], f.value) for f in filters)
    ]
    found = fetched(reader(node, filters))
    assert set(passing) <= set(found)
    assert len(set(found)) == len(found)


# --- Spark itself --------------------------------------------------------------------------------

QUERIES = [
    "partition = 1",
    "partition IN (0, 2) AND offset >= 8",
    "partition = 1 AND partition = 2",
    "offset BETWEEN 3 AND 4 AND topic = 'times'",
    "offset > 3 AND offset < 3",
    "partition = 0 OR offset = 3",
    "NOT partition = 1",
    "timestamp >= timestamp_micros(1700000009000001) AND offset < 9",
    "timestamp = timestamp_micros(1700000009000001)",
    "timestamp = timestamp_millis(1700000009000)",
    "timestamp < timestamp_millis(1700000003000)",
    "timestamp > timestamp_millis(1700000030000)",
    "timestamp IN (timestamp_millis(1700000020000), timestamp_millis(1700000002000))",
    "timestamp > TIMESTAMP '1900-01-01 00:00:00'",
    "offset > 5.5",
    "offset = 9223372036854775807",
    "value = cast('1.3' AS binary)",
    "key IS NULL AND offset = 2",
]


def load(spark, node, **more):
    options = {"streams": "times,other", **more}
    return spark.read.format("headrace").option("servers", node.servers).options(**options).load()


@pytest.mark.spark
def test_spark_gets_the_same_rows_with_filters_pushed_or_not(spark, node):
    for query in QUERIES:
        found = [
            load(spark, node, pushFilters=is_pushed)
            .filter(query)
            .select("topic", "partition", "offset")
            .toArrow()
            .to_pylist()
            for is_pushed in ("true", "false")
        ]
        pushed, whole = (sorted(tuple(row.values()) for row in rows) for rows in found)
        assert pushed == whole, query


@pytest.mark.spark
def test_a_frame_that_is_used_again_has_all_its_rows(spark, node):
    """Spark 4.3 hands what one filter left to the next use: nothing is pushed unasked."""
    frame = load(spark, node)
    one, other = frame.filter("partition = 1"), frame.filter("partition = 2 AND offset < 3")
    assert (one.count(), frame.count(), other.count()) == (10, 40, 3)
    assert one.union(other).count() == 13


@pytest.mark.spark
def test_spark_reads_only_the_partition_that_is_asked_for(spark, node):
    """Shown by records that are gone: whoever plans to read them fails."""
    node.create_stream("cut", partitions=2)
    with RawConnection(node) as raw:
        for partition in range(2):
            for n in range(6):
                record = (None, b"%d" % n, [], STAMP)
                assert not raw.produce("cut", build_batch([record]), partition).error_code
    with Admin(node.servers) as admin:
        admin.delete_records({TopicPartition("cut", 0): 3})
    bounds = {"streams": "cut", "startingOffsets": '{"cut": {"0": 0, "1": 0}}'}
    frame = load(spark, node, pushFilters="true", **bounds)
    assert frame.filter("partition = 1 AND offset >= 2").count() == 4
    with pytest.raises(PySparkException, match="records 0 to 2 are gone"):
        load(spark, node, pushFilters="true", **bounds).filter("value IS NOT NULL").count()


@pytest.mark.spark
def test_filters_that_spark_does_not_push_are_refused_with_the_setting(spark, node):
    name = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(name, "false")
    try:
        with pytest.raises(PySparkException, match=name):
            load(spark, node, pushFilters="true").count()
    finally:
        spark.conf.set(name, "true")
