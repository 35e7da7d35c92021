"""The Spark source against a real node: its methods as Spark calls them, then Spark itself."""

import json
import pickle
from math import isnan

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from conftest import RunningNode
from frames import payload as telemetry
from frames import wide
from headrace import TopicPartition
from headrace.client import FetchClient
from headrace.client.arrow import record_batch
from headrace.native import build_batch, decode_records
from headrace.spark.errors import DataLossError, OffsetError, OptionError, explain
from headrace.spark.offsets import Range
from headrace.spark.options import parse
from headrace.spark.payload import CORRUPT, decoder
from headrace.spark.read import _read, lost, read
from headrace.spark.schema import SCHEMA
from headrace.spark.source import BatchReader, HeadraceDataSource, StreamReader
from headrace.sync import Admin
from kafkaraw import RawConnection, batch

STAMP = 1_700_000_000_000


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    node = RunningNode(tmp_path_factory.mktemp("spark") / "data")
    node.create_stream("numbers", partitions=3)
    with RawConnection(node) as raw:
        for n in range(30):
            made = batch(b"%d" % n, timestamp=STAMP + n * 1000)
            assert raw.produce("numbers", made, n % 3).error_code == 0
    yield node
    node.close()


def produce(node, stream, count, partition=0, first=0):
    with RawConnection(node) as raw:
        for n in range(first, first + count):
            assert raw.produce(stream, batch(b"%d" % n), partition).error_code == 0


def produce_values(node, stream, values):
    """Appends values to the one partition of a new stream."""
    node.create_stream(stream, partitions=1)
    with RawConnection(node) as raw:
        records = [(None, value, [], STAMP) for value in values]
        assert raw.produce(stream, build_batch(records), 0).error_code == 0


def raw(stream, partition):
    """A decoder of values that stay bytes."""
    return decoder("raw", SCHEMA, stream, partition)


def options(node, stream="numbers", kind="streaming", **more):
    return parse({"servers": node.servers, "stream": stream, **more}, kind)


def values(reader, tasks):
    return [
        int(value.as_py())
        for task in tasks
        for rows in pickle.loads(pickle.dumps(reader)).read(pickle.loads(pickle.dumps(task)))
        for value in rows["value"]
    ]


def spans(tasks):
    return [(part.partition, part.start, part.end) for task in tasks for part in task.ranges]


# --- Arrow ---------------------------------------------------------------------------------------


def test_a_record_batch_has_the_schema_that_spark_demands():
    made = build_batch(
        [
            (b"k", b"v", [("source", b"c"), ("empty", b""), ("null", None)], 1_700_000_000_123),
            (None, None, [], 1_700_000_000_124),
            (b"", b"", [("a", b"1")], 0),
        ]
    )
    rows = record_batch(decode_records(made, 0, 3, 10), "s", 7)
    rows.validate(full=True)
    assert rows.schema == to_arrow_schema(SCHEMA, timezone="UTC")
    assert str(rows.schema.field("timestamp").type) == "timestamp[us, tz=UTC]"
    first, second, third = rows.to_pylist()
    assert (first["key"], first["value"], first["topic"], first["partition"]) == (
        b"k",
        b"v",
        "s",
        7,
    )
    assert first["timestamp"].isoformat() == "2023-11-14T22:13:20.123000+00:00"
    assert first["headers"] == [
        {"key": "source", "value": b"c"},
        {"key": "empty", "value": b""},
        {"key": "null", "value": None},
    ]
    assert (second["key"], second["value"], second["headers"], second["offset"]) == (
        None,
        None,
        None,
        1,
    )
    assert (third["key"], third["value"]) == (b"", b"")


# --- the streaming reader, as Spark calls it -----------------------------------------------------


def test_a_new_query_starts_where_it_is_told(node):
    for name, first in (("earliest", 0), ("latest", 10)):
        reader = StreamReader(options(node, startingOffsets=name), SCHEMA)
        expected = {"numbers": {"0": first, "1": first, "2": first}}
        assert reader.initialOffset() == reader.initialOffset() == expected
    given = '{"numbers": {"0": 3, "1": -1, "2": -2}}'
    reader = StreamReader(options(node, startingOffsets=given), SCHEMA)
    assert reader.initialOffset() == {"numbers": {"0": 3, "1": 10, "2": 0}}


def test_a_start_in_time_is_the_first_record_from_then_on(node):
    reader = StreamReader(options(node, startingTimestamp=str(STAMP + 15_000)), SCHEMA)
    assert reader.initialOffset() == {"numbers": {"0": 5, "1": 5, "2": 5}}
    reader = StreamReader(options(node, startingTimestamp=str(STAMP + 10**9)), SCHEMA)
    assert reader.initialOffset() == {"numbers": {"0": 10, "1": 10, "2": 10}}


def test_explicit_offsets_must_name_each_partition_and_be_in_it(node):
    for given in ('{"numbers": {"0": 3}}', '{"numbers": {"0": 1, "1": 1, "2": 1, "3": 1}}'):
        with pytest.raises(OptionError, match=r"partitions \[0, 1, 2\]"):
            StreamReader(options(node, startingOffsets=given), SCHEMA).initialOffset()
    given = '{"numbers": {"0": 1, "1": 11, "2": 1}}'
    with pytest.raises(OptionError, match="offset 11 of numbers/1 is beyond its end, which is 10"):
        StreamReader(options(node, startingOffsets=given), SCHEMA).initialOffset()
    with pytest.raises(OptionError, match="offset 11 of numbers/1 is beyond its end, which is 10"):
        BatchReader(options(node, kind="batch", endingOffsets=given), SCHEMA).partitions()
    given = '{"numbers": {"0": 1, "1": 1, "2": 1}, "others": {"0": 1}}'
    with pytest.raises(OptionError, match="others"):
        StreamReader(options(node, startingOffsets=given), SCHEMA).initialOffset()


def test_the_first_call_twice_hears_the_same_while_records_come(node):
    node.create_stream("growing", partitions=1)
    reader = StreamReader(options(node, "growing"), SCHEMA)
    first = reader.initialOffset()
    produce(node, "growing", 3)
    assert reader.initialOffset() == first


def test_a_micro_batch_takes_its_share_of_each_lag(node):
    reader = StreamReader(
        options(node, startingOffsets="earliest", maxOffsetsPerTrigger="6"), SCHEMA
    )
    assert reader.getDefaultReadLimit() == ReadMaxRows(6)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(6))
    assert end == {"numbers": {"0": 2, "1": 2, "2": 2}}
    assert reader.latestOffset(start, ReadAllAvailable()) == reader.reportLatestOffset()
    assert sorted(values(reader, reader.partitions(start, end))) == [0, 1, 2, 3, 4, 5]


def test_a_restart_reads_from_offsets_alone(node):
    reader = StreamReader(options(node, maxTasks="1"), SCHEMA)
    tasks = reader.partitions({"numbers": {"0": 8}}, {"numbers": {"0": 10, "1": 1}})
    assert spans(tasks) == [(0, 8, 10), (1, 0, 1)]
    assert sorted(values(reader, tasks)) == [1, 24, 27]
    assert reader.partitions({"numbers": {"0": 8}}, {"numbers": {"0": 8}}) == []


def test_partitions_are_joined_into_few_tasks_and_split_on_request(node):
    start, end = {"numbers": {}}, {"numbers": {"0": 10, "1": 10, "2": 10}}
    assert len(StreamReader(options(node), SCHEMA).partitions(start, end)) == 1
    split = StreamReader(options(node, minPartitions="7"), SCHEMA)
    tasks = split.partitions(start, end)
    assert len(tasks) == 7
    assert sorted(values(split, tasks)) == list(range(30))


def test_available_now_ends_where_the_log_ended_when_it_began(node):
    node.create_stream("available", partitions=1)
    produce(node, "available", 4)
    reader = StreamReader(options(node, "available", startingOffsets="earliest"), SCHEMA)
    reader.prepareForTriggerAvailableNow()
    produce(node, "available", 4, first=4)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert end == {"available": {"0": 4}}
    assert reader.latestOffset(end, ReadAllAvailable()) == end


def test_a_log_that_shrank_is_refused(node):
    reader = StreamReader(options(node), SCHEMA)
    with pytest.raises(OffsetError, match="deleted and created anew"):
        reader.latestOffset({"numbers": {"0": 11, "1": 1, "2": 1}}, ReadAllAvailable())
    with pytest.raises(OffsetError, match="from 5 back to 4"):
        reader.partitions({"numbers": {"0": 5}}, {"numbers": {"0": 4}})


def test_progress_is_published_to_the_group(node):
    reader = StreamReader(options(node, groupId="spark-1"), SCHEMA)
    reader.latestOffset({"numbers": {"0": 4, "1": 5, "2": 6}}, ReadAllAvailable())
    with FetchClient(node.servers) as client:
        assert client.committed_offsets("spark-1") == {
            ("numbers", 0): 4, ("numbers", 1): 5, ("numbers", 2): 6,
        }  # fmt: skip


def test_a_pattern_takes_streams_as_they_appear(node):
    node.create_stream("fleet.a", partitions=1)
    given = {"servers": node.servers, "streamPattern": r"fleet\..*", "startingOffsets": "earliest"}
    reader = StreamReader(parse(given, "streaming"), SCHEMA)
    start = reader.initialOffset()
    assert start == {"fleet.a": {"0": 0}}
    node.create_stream("fleet.b", partitions=1)
    produce(node, "fleet.b", 2)
    end = reader.latestOffset(start, ReadAllAvailable())
    assert end == {"fleet.a": {"0": 0}, "fleet.b": {"0": 2}}
    assert spans(reader.partitions(start, end)) == [(0, 0, 2)]


def test_several_streams_are_read_together(node):
    given = {"servers": node.servers, "streams": "numbers,more"}
    node.create_stream("more", partitions=1)
    produce(node, "more", 1, first=100)
    reader = BatchReader(parse(given, "batch"), SCHEMA)
    assert sorted(values(reader, reader.partitions())) == [*range(30), 100]


# --- completeness --------------------------------------------------------------------------------


def test_records_beyond_the_end_of_the_log_are_an_error(node):
    wanted = (Range("numbers", 0, 20, 30),)
    with pytest.raises(OffsetError, match="deleted and created anew"):
        list(read(node.servers, wanted, raw, fail_on_data_loss=True))


def retained(node, stream, kept):
    """Two readers that have planned to read ten records, of which those before `kept` go."""
    node.create_stream(stream, partitions=1)
    produce(node, stream, 10)
    readers = [
        BatchReader(options(node, stream, "batch", failOnDataLoss=flag), SCHEMA)
        for flag in ("true", "false")
    ]
    planned = [(reader, reader.partitions()) for reader in readers]
    with Admin(node.servers) as admin:
        admin.delete_records({TopicPartition(stream, 0): kept})
    return planned


def test_records_that_go_while_they_are_read_end_the_query_unless_told_otherwise(node):
    (strict, its), (lenient, others) = retained(node, "going", 4)
    with pytest.raises(DataLossError, match="failOnDataLoss=false reads on without them"):
        values(strict, its)
    assert values(lenient, others) == [4, 5, 6, 7, 8, 9]


def test_records_that_are_gone_when_a_query_is_planned_end_it_unless_told_otherwise(node):
    (strict, _), (lenient, _) = retained(node, "gone", 4)
    start, end = {"gone": {"0": 2}}, {"gone": {"0": 9}}
    strict = StreamReader(strict._options, SCHEMA)
    with pytest.raises(DataLossError, match="records 2 to 3 are gone, the log starts at 4"):
        strict.partitions(start, end)
    lenient = StreamReader(lenient._options, SCHEMA)
    assert values(lenient, lenient.partitions(start, end)) == [4, 5, 6, 7, 8]


class Compacted:
    """A log without some of its records."""

    def fetch(self, _stream, _partition, offset, _max_bytes, _max_wait_ms):
        kept = (n for n in range(offset, 10) if n not in {2, 3, 8})
        return b"".join(at(batch(b"%d" % n), n) for n in kept)


def at(made, base_offset):
    """The batch at another offset; the CRC does not cover it."""
    return base_offset.to_bytes(8) + made[8:]


def test_records_that_were_compacted_away_are_no_loss():
    wanted = Range("s", 0, 2, 9)
    rows = list(_read(Compacted(), wanted, raw("log", 0), fail_on_data_loss=True))
    assert [n for batch in rows for n in batch["offset"].to_pylist()] == [4, 5, 6, 7]


@pytest.mark.slow
def test_a_read_goes_on_over_a_killed_and_restarted_broker(start_node):
    node = start_node()
    node.create_stream("kept", partitions=2)
    produce(node, "kept", 3)
    produce(node, "kept", 3, partition=1, first=3)
    wanted = (Range("kept", 0, 0, 3), Range("kept", 1, 0, 3))
    rows = read(node.servers, wanted, raw, fail_on_data_loss=True)
    assert next(rows)["value"].to_pylist() == [b"0", b"1", b"2"]
    node.kill()
    start_node.again(node)
    assert next(rows)["value"].to_pylist() == [b"3", b"4", b"5"]
    assert next(rows, None) is None


def test_a_lost_start_says_what_is_gone():
    assert lost(Range("s", 0, 3, 9), 3, 5) == (
        "s/0 [3, 9): records 3 to 4 are gone, the log starts at 5; failOnDataLoss=false reads on "
        "without them"
    )


# --- the batch reader ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, list(range(30))),
        ({"startingOffsets": '{"numbers": {"0": 9, "1": 9, "2": -1}}'}, [27, 28]),
        ({"endingOffsets": '{"numbers": {"0": 1, "1": 2, "2": 0}}'}, [0, 1, 4]),
        ({"startingTimestamp": str(STAMP + 25_000)}, [25, 26, 27, 28, 29]),
        (
            {"startingTimestamp": str(STAMP + 3_000), "endingTimestamp": str(STAMP + 6_000)},
            [3, 4, 5],
        ),
        ({"startingOffsets": "latest"}, []),
        ({"startingOffsets": "latest", "endingTimestamp": str(STAMP)}, []),
    ],
)
def test_a_batch_read_takes_what_lies_between(node, more, expected):
    reader = BatchReader(options(node, kind="batch", **more), SCHEMA)
    assert sorted(values(reader, reader.partitions())) == expected


# --- Spark itself --------------------------------------------------------------------------------


def source(reader, node, **more):
    return (
        reader.format("headrace")
        .option("servers", node.servers)
        .option("stream", "numbers")
        .options(**more)
    )


@pytest.mark.spark
def test_spark_finds_the_format_by_itself_and_reads_it(spark, node):
    rows = source(spark.read, node).load()
    assert rows.schema == HeadraceDataSource({}).schema()
    assert sorted(int(row.value) for row in rows.collect()) == list(range(30))
    first = rows.filter("partition = 1 AND offset = 0").first()
    assert (bytes(first.value), first.topic, first.headers) == (b"1", "numbers", None)
    assert rows.select("timestamp").first().timestamp.tzinfo is None


@pytest.mark.spark
def test_spark_reads_nothing_where_there_is_nothing(spark, node):
    assert source(spark.read, node, startingOffsets="latest").load().collect() == []


@pytest.mark.spark
def test_a_query_resumes_from_its_checkpoint(spark, node, tmp_path):
    node.create_stream("resumed", partitions=2)
    produce(node, "resumed", 5)
    seen = []

    def collect(rows, batch_id):
        seen.append((batch_id, sorted(int(row.value) for row in rows.select("value").collect())))

    def run(**more):
        rows = (
            source(spark.readStream, node, startingOffsets="earliest", **more)
            .option("stream", "resumed")
            .load()
        )
        query = (
            rows.writeStream.foreachBatch(collect)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return query

    query = run(maxOffsetsPerTrigger="3", groupId="resumed")
    assert seen == [(0, [0, 1, 2]), (1, [3, 4])]
    assert json.loads(query.lastProgress["sources"][0]["latestOffset"]) == {
        "resumed": {"0": 5, "1": 0}
    }
    with FetchClient(node.servers) as client:
        assert client.committed_offsets("resumed")["resumed", 0] == 5
    produce(node, "resumed", 2, partition=1, first=5)
    run()
    assert seen[2:] == [(2, [5, 6])]


@pytest.mark.spark
def test_what_is_wrong_reaches_a_person_in_one_line(spark, node):
    for more, message in (
        ({"startingOfsets": "latest"}, "no option 'startingofsets'; did you mean"),
        ({"stream": "absent"}, "absent: UNKNOWN_TOPIC_OR_PARTITION"),
        ({"payload": "json"}, "payload=json needs the columns that are in it"),
        ({"payload": "xml"}, "payload must be one of raw, json, csv, dcgm, dcgm-replay"),
    ):
        with pytest.raises(PySparkException) as error:
            source(spark.read, node, **more).load().count()
        assert message in explain(error.value)
        assert "\n" not in explain(error.value)


# --- payloads ------------------------------------------------------------------------------------

COLUMNS = f"""
    name string, flag boolean, small int, big bigint, ratio double, seen timestamp,
    partition int, offset bigint, key binary, {CORRUPT} binary
"""

_WHOLE = (
    b'{"name": "a", "flag": true, "small": 1, "big": 9007199254740993, "ratio": 0.5,'
    b' "seen": "2030-01-01T00:00:00.5Z", "more": 1}'
)
JSONS = [
    _WHOLE,
    b'{"name": {"x": [1]}, "flag": "false", "small": 5.0, "ratio": NaN, "seen": 1893456000}',
    b'{"small": 2147483648, "big": 5.5, "name": "b"}',
    b'{"ratio": "half"}',
    b"no json",
    None,
]


@pytest.mark.spark
def test_json_is_decoded_by_the_schema_that_is_given(spark, node):
    produce_values(node, "json", JSONS)
    found = source(spark.read, node, stream="json", payload="json").schema(COLUMNS).load()
    rows = found.orderBy("offset").collect()
    got = [(row.name, row.flag, row.small, row.big) for row in rows]
    assert got == [
        ("a", True, 1, 9007199254740993),
        ('{"x": [1]}', False, 5, None),
        ("b", None, None, None),
        (None, None, None, None),
        (None, None, None, None),
        (None, None, None, None),
    ]
    assert rows[0].seen.timestamp() == 1_893_456_000.5
    assert rows[1].seen.timestamp() == 1_893_456_000
    assert (rows[0].ratio, isnan(rows[1].ratio), rows[2].ratio) == (0.5, True, None)
    assert [row[CORRUPT] for row in rows] == [None, None, JSONS[2], JSONS[3], JSONS[4], None]
    assert [(row.partition, row.offset) for row in rows] == [(0, n) for n in range(6)]


@pytest.mark.spark
def test_csv_is_decoded_field_by_field(spark, node):
    lines = [b'a,"1,5",3,2030-01-01T00:00:00+01:00', b"b,,,", b"c,1", b"d,x,1,1893456000", b""]
    produce_values(node, "csv", lines)
    schema = f"name string, text string, n int, seen timestamp, {CORRUPT} binary, offset bigint"
    rows = source(spark.read, node, stream="csv", payload="csv").schema(schema).load().collect()
    rows = sorted(rows, key=lambda row: row.offset)
    assert [(row.name, row.text, row.n) for row in rows] == [
        ("a", "1,5", 3), ("b", "", None), ("c", "1", None), ("d", "x", 1), (None, None, None),
    ]  # fmt: skip
    assert rows[0].seen.timestamp() == 1_893_456_000 - 3600
    assert [row[CORRUPT] for row in rows] == [None, None, b"c,1", None, b""]


@pytest.mark.spark
@pytest.mark.parametrize("payload", ["dcgm", "dcgm-replay"])
def test_telemetry_is_decoded_to_readings(spark, node, payload):
    stream = payload.replace("-", "_")
    sent = [telemetry(), b"broken", wide({"DCGM_FI_DEV_GPU_TEMP": "40", "X": "N/A"})]
    produce_values(node, stream, sent)
    found = source(spark.read, node, stream=stream, payload=payload).load()
    rows = found.orderBy("offset", "item").collect()
    assert [(row.topic, row.offset, row.item, row.metric, row.reason) for row in rows] == [
        (stream, 0, 0, "DCGM_FI_DEV_GPU_UTIL", None),
        (stream, 1, 0, None, "undecodable"),
        (stream, 2, 0, "DCGM_FI_DEV_GPU_TEMP", None),
        (stream, 2, 1, "X", "unparseable"),
    ]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("payload", "schema", "message"),
    [
        ("dcgm", "value double", "its columns are fixed"),
        ("raw", "value string", "its columns are fixed"),
        ("json", "a array<int>", "column a is array<int>; payload=json is decoded to string"),
        ("csv", "offset int", "column offset is of the record, and bigint; not int"),
        ("json", "_corrupt_record string", "_corrupt_record is binary"),
    ],
)
def test_a_schema_that_cannot_be_filled_is_refused(spark, node, payload, schema, message):
    with pytest.raises(PySparkException) as error:
        source(spark.read, node, payload=payload).schema(schema).load().count()
    assert message in explain(error.value)
