"""What a sink's task writes to a real node: each row once, whatever became of other attempts."""

import random
import threading
from dataclasses import replace

import pyarrow as pa
import pytest

from conftest import RunningNode
from headrace import job_limits
from headrace.client.append import AppendClient
from headrace.client.errors import ClientError, RequestError
from headrace.native import RecordColumns, RecordSpread, batch_headers, build_batch, murmur2
from headrace.spark.errors import WriteError
from headrace.spark.intent import Attempt
from headrace.spark.write import CarefulLane, Lane, lane, write
from headrace.sync import Admin
from kafkaraw import RawConnection, batch
from sinkrows import STAMP_MS, rows, stored, stored_values

TASK = Attempt(group="sink-0", batch=4, run="a", is_first=True, is_new=False)


class KilledError(Exception):
    """Where a test ends an attempt."""


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    node = RunningNode(tmp_path_factory.mktemp("sink") / "data")
    yield node
    node.close()


@pytest.fixture
def log(node):
    with AppendClient(node.servers) as log:
        yield log


@pytest.fixture
def small_batches(monkeypatch):
    """So that a task has many more than the five that a broker remembers."""
    monkeypatch.setattr(job_limits, "SPARK_SINK_BATCH_BYTES", 400)


@pytest.fixture
def task(stream):
    """A task of a query whose run has written a micro-batch before."""
    return replace(TASK, group=f"sink-{stream}")


def warmed(log, stream, task):
    """As after an earlier micro-batch of this run: the next first attempt is alone."""
    write(log, [rows([b"before"])], stream, replace(task, batch=task.batch - 1))


def numbered(count, first=0):
    return [b"%06d" % n for n in range(first, first + count)]


def some(values, dying_after=None):
    """Batches of ten rows; the attempt is killed before the one that is asked for."""
    for at in range(0, len(values), 10):
        if dying_after is not None and at >= dying_after:
            raise KilledError
        part = values[at : at + 10]
        yield rows(part, keys=[value[-1:] for value in part])


# --- columns -------------------------------------------------------------------------------------


def test_every_column_arrives_as_it_was(node, log, stream, task):
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    given = pa.RecordBatch.from_pydict(
        {
            "key": pa.array(["a", None, "", "d"], pa.string()),
            "value": pa.array([b"1", None, b"", b"\xff"], pa.binary()),
            "headers": pa.array(
                [[("h", b"1"), ("h", None)], None, [], [("", b"")]], pa.list_(header)
            ),
            "partition": pa.array([2, 0, None, 1], pa.int32()),
            "timestamp": pa.array([STAMP_MS * 1000 + 999, None, -1, 0], pa.timestamp("us", "UTC")),
        }
    )
    assert write(log, [given], stream, task)
    place = (murmur2(b"") & 0x7FFFFFFF) % 3
    found = {
        value: (partition, at, key, headers)
        for partition, at, key, value, headers in stored(node, stream)
    }
    now = found[None][1]
    assert now > STAMP_MS
    assert found == {
        b"1": (2, STAMP_MS, b"a", [("h", b"1"), ("h", None)]),
        None: (0, now, None, []),
        b"": (place, -1, b"", []),
        b"\xff": (1, 0, b"d", [("", b"")]),
    }


def test_slices_of_arrow_batches_are_taken_as_they_are(node, log, stream, task):
    whole = rows(
        [None if n % 3 == 0 else b"%d" % n for n in range(40)],
        headers=pa.array(
            [[(str(n), b"%d" % n)] * (n % 3) for n in range(40)],
            pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
        ),
        timestamp=pa.array(range(40), pa.timestamp("ms", "UTC")),
        partition=pa.array([1] * 40, pa.int32()),
    )
    write(log, [whole[13:29]], stream, task)
    assert [(at, value, headers) for _, at, _, value, headers in stored(node, stream)] == [
        (n, None if n % 3 == 0 else b"%d" % n, [(str(n), b"%d" % n)] * (n % 3))
        for n in range(13, 29)
    ]


def test_keys_go_where_kafkas_producers_put_them_and_values_without_a_key_too(
    node, log, stream, task
):
    keys = [b"%d" % n for n in range(20)] + [None] * 20
    values = numbered(40)
    write(log, [rows(values, keys)], stream, task)
    found = {value: partition for partition, _, _, value, _ in stored(node, stream)}
    assert found == {
        value: (murmur2(value if key is None else key) & 0x7FFFFFFF) % 3
        for key, value in zip(keys, values, strict=True)
    }


def test_no_rows_leave_no_trace(log, stream, task):
    assert not write(log, [rows([])], stream, task)
    assert log.kept(task.group, stream) == {}


def test_rows_may_name_their_stream(node, log, stream, task):
    node.create_stream(f"{stream}-b", partitions=1)
    topics = pa.array([stream, f"{stream}-b"] * 5, pa.string())
    write(log, [rows(numbered(10), topic=topics)], None, task)
    assert stored_values(node, stream) == numbered(10)[::2]
    assert stored_values(node, f"{stream}-b") == numbered(10)[1::2]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ({"partition": pa.array([3], pa.int32())}, "no partition 3; there are 0 to 2"),
        ({"partition": pa.array([-1], pa.int32())}, "partition -1; it must be 0 or more, or null"),
        ({"topic": pa.array([None], pa.string())}, "a row has no topic"),
        (
            {
                "headers": pa.array(
                    [[(None, b"v")]],
                    pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
                )
            },
            "a header has no key",
        ),
    ],
)
def test_a_row_that_cannot_be_written_says_why(log, stream, task, column, message):
    name = None if "topic" in column else stream
    with pytest.raises(WriteError, match=message):
        write(log, [rows([b"v"], **column)], name, task)


def test_a_record_that_is_too_large_names_the_setting(log, stream, task):
    with pytest.raises(RequestError, match=r"max\.message\.bytes of the stream; raise that"):
        write(log, [rows([bytes(3 << 20)])], stream, task)


def test_columns_that_are_not_whole_are_refused():
    column = (None, bytes(8), b"")
    nothing = (None, bytes(4), b"")
    for broken in (
        (None, b"", b""),
        (None, bytes(12), b""),
        (None, b"\0\0\0\0\1\0\0\0", b""),
        (b"", bytes(8), b""),
    ):
        with pytest.raises(ValueError, match="a column is not whole"):
            RecordColumns.of(bytes(8), column, broken, bytes(8), nothing, nothing)
    with pytest.raises(ValueError, match="lists of headers"):
        RecordColumns.of(bytes(8), column, column, bytes(4), nothing, nothing)
    with pytest.raises(ValueError, match="each record has a partition"):
        RecordSpread(1, 10, 10).push(
            RecordColumns.of(bytes(8), column, column, bytes(8), nothing, nothing), b""
        )


# --- attempts ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("dying_after", [10, 250, 490])
@pytest.mark.parametrize("order", ["same", "other"])
@pytest.mark.parametrize("by", ["retry", "restart"])
def test_a_task_that_died_in_the_middle_leaves_each_row_once(
    node, log, stream, task, dying_after, order, by
):
    warmed(log, stream, task)
    values = numbered(500)
    with pytest.raises(KilledError):
        write(log, some(values, dying_after), stream, task)
    if order == "other":
        random.Random(dying_after).shuffle(values)
    again = replace(task, is_first=False) if by == "retry" else replace(task, run="b")
    assert write(log, some(values), stream, again)
    assert stored_values(node, stream) == [*numbered(500), b"before"]


@pytest.mark.usefixtures("small_batches")
def test_a_task_that_had_written_all_writes_nothing_again(node, log, stream, task):
    warmed(log, stream, task)
    write(log, some(numbered(500)), stream, task)
    before = node.ends(stream)
    for again in (replace(task, is_first=False), replace(task, run="b"), task):
        write(log, some(numbered(500)[::-1]), stream, again)
        assert node.ends(stream) == before


@pytest.mark.usefixtures("small_batches")
def test_a_task_that_died_again_and_again_leaves_each_row_once(node, log, stream, task):
    values = numbered(300)
    for death in (100, 50, 200, 250, 290):
        random.Random(death).shuffle(values)
        with pytest.raises(KilledError):
            write(log, some(values, death), stream, task)
    write(log, some(values), stream, task)
    assert stored_values(node, stream) == numbered(300)


def test_rows_that_are_the_same_are_each_written(node, log, stream, task):
    warmed(log, stream, task)
    same = [b"same"] * 30
    with pytest.raises(KilledError):
        write(log, some(same, 20), stream, task)
    write(log, some(same), stream, replace(task, is_first=False))
    assert stored_values(node, stream) == [b"before", *same]


def test_times_and_places_that_are_given_tell_rows_apart(node, log, stream, task):
    def given(order):
        yield rows(
            [b"same"] * 6,
            timestamp=pa.array(order, pa.timestamp("ms", "UTC")),
            partition=pa.array([n % 2 for n in order], pa.int32()),
        )

    def dying():
        yield from given([0, 1, 2, 3, 4, 5])
        raise KilledError

    write(log, given([0, 1, 2, 3, 4, 5]), stream, task)
    with pytest.raises(KilledError):
        write(log, dying(), stream, task)
    write(log, given([5, 4, 3, 2, 1, 0]), stream, replace(task, run="b"))
    assert [found[:2] for found in stored(node, stream)] == [
        (0, 0), (0, 2), (0, 4), (1, 1), (1, 3), (1, 5),
    ]  # fmt: skip


def test_what_others_write_meanwhile_counts_for_nothing(node, log, stream, task):
    warmed(log, stream, task)
    other = replace(task, group=f"{task.group}-other", is_new=True)
    with pytest.raises(KilledError):
        write(log, some(numbered(100), 50), stream, task)
    write(log, some(numbered(100)), stream, other)
    with RawConnection(node) as raw:
        assert raw.produce(stream, batch(b"000000"), 1).error_code == 0
    write(log, some(numbered(100)), stream, replace(task, is_first=False))
    assert stored_values(node, stream) == sorted([*numbered(100) * 2, b"000000", b"before"])


@pytest.mark.usefixtures("small_batches")
def test_an_attempt_that_lives_on_beside_the_next_one_doubles_nothing(node, log, stream, task):
    """The first is overtaken in the middle of its rows, and then goes on."""
    warmed(log, stream, task)
    values = numbered(400)
    zombie = lane(log, stream, task, ["key", "value"])
    batches = list(some(values))
    for part in batches[:10]:
        zombie.push(part)
    shuffled = values[:]
    random.Random(1).shuffle(shuffled)
    careful = lane(log, stream, replace(task, is_first=False), ["key", "value"])
    assert (type(zombie), type(careful)) == (Lane, CarefulLane)

    def go_on():
        for mine, its in zip(some(shuffled), batches[10:], strict=False):
            careful.push(mine)
            zombie.push(its)
        zombie.finish()

    with pytest.raises(WriteError, match="another attempt of this task writes"):
        go_on()
    careful = lane(log, stream, replace(task, run="b"), ["key", "value"])
    for mine in some(values[::-1]):
        careful.push(mine)
    careful.finish()
    assert stored_values(node, stream) == [*values, b"before"]


@pytest.mark.usefixtures("small_batches")
def test_no_range_of_sequences_is_that_of_another_attempt(node, log, task):
    """The broker would answer such a batch as stored, whatever is in it."""
    node.create_stream("ranges", partitions=1)
    warmed(log, "ranges", task)
    values = numbered(80)
    zombie = lane(log, "ranges", task, ["value"])
    zombie.push(rows(values[:40]))
    sent = node.ends("ranges")[0] - 1
    *_, count = [header[3] for header in batch_headers(log.fetch("ranges", 0, 1, 1 << 20, 0))[0]]
    assert count % 2 == 0
    careful = lane(log, "ranges", replace(task, is_first=False), ["value"])
    others = values[sent:][::-1]
    careful.push(rows(others[: count + 1]))
    assert node.ends("ranges")[0] == 1 + sent + count
    with pytest.raises(WriteError, match="another attempt of this task writes"):
        zombie.push(rows(values[40:]))
    careful.push(rows(others[count + 1 :] + values[:sent]))
    careful.finish()
    assert stored_values(node, "ranges") == [*values, b"before"]


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("seed", range(3))
def test_attempts_at_the_same_time_leave_each_row_once(node, stream, task, seed):
    """Those that repeat may be several: a driver that was thought dead, and one after it."""
    values = numbered(200)
    failures = []

    def attempt(number):
        mine = values[:]
        random.Random(10 * seed + number).shuffle(mine)
        with AppendClient(node.servers) as log:
            try:
                write(log, some(mine), stream, replace(task, is_first=False))
            except (WriteError, ClientError) as error:
                failures.append(error)

    with AppendClient(node.servers) as log, pytest.raises(KilledError):
        write(log, some(values, 50), stream, task)
    threads = [threading.Thread(target=attempt, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert stored_values(node, stream) == values


@pytest.fixture
def impatient(monkeypatch):
    """Waits that end with an error within a test."""
    monkeypatch.setattr(job_limits, "SPARK_SILENCE_SECONDS_MAX", 0.3)


@pytest.mark.usefixtures("impatient")
def test_an_attempt_at_what_a_later_epoch_has_ended_says_so(node, log, stream, task):
    """It waits for another attempt's batch, as one may be on its way, and none comes."""
    mine = lane(log, stream, task, ["value"])
    with RawConnection(node) as raw:
        who = (mine._intent.producer, mine._intent.epoch + 1, 0)
        for place in range(3):
            later = build_batch([(None, b"later", [], 0)], producer=who)
            assert raw.produce(stream, later, place).error_code == 0
    mine.push(rows(numbered(4)))
    with pytest.raises(WriteError, match=r"takes nothing more of micro-batch 4: a later one has"):
        mine.finish()
    assert stored_values(node, stream) == [b"later"] * 3


class MakingAnewClient(AppendClient):
    """A stream is deleted and created anew as soon as it was asked for its ends twice."""

    def latest_offsets(self, stream):
        ends = super().latest_offsets(stream)
        self.node.looks += 1
        if self.node.looks == 2:
            with Admin(self.node.servers) as admin:
                admin.delete_topic(stream)
            self.node.create_stream(stream, partitions=3)
        return ends


@pytest.mark.usefixtures("impatient", "small_batches")
def test_a_stream_that_is_made_anew_under_an_attempt_is_told(node, log, stream, task):
    with pytest.raises(KilledError):
        write(log, some(numbered(500), 250), stream, task)
    anew = MakingAnewClient(node.servers)
    anew.node, node.looks = node, 0
    with anew, pytest.raises(WriteError, match="record 0 does not come; was the stream created"):
        write(anew, some(numbered(500)), stream, replace(task, run="b"))


def test_records_too_large_to_go_in_pairs_are_looked_at(node, log, stream, task, monkeypatch):
    """A batch of one may have the range of another attempt's: it counts when it is there."""
    monkeypatch.setattr(job_limits, "SPARK_SINK_BATCH_BYTES_MAX", 1500)
    warmed(log, stream, task)
    large = [b"%d" % n * 1000 for n in range(8)]
    write(log, [rows(large)], stream, task)
    assert stored_values(node, stream) == sorted([*large, b"before"])
    later = replace(task, batch=task.batch + 1)
    mine = lane(log, stream, later, ["value"])
    with RawConnection(node) as raw:  # as another attempt in another order would
        who = (mine._intent.producer, mine._intent.epoch, 0)
        for place in range(3):
            other = build_batch([(None, b"other", [], 0)], producer=who)
            assert raw.produce(stream, other, place).error_code == 0
    with pytest.raises(WriteError, match="another attempt of this task writes"):
        mine.push(rows(large))


@pytest.mark.slow
@pytest.mark.usefixtures("small_batches")
def test_a_broker_that_is_killed_in_the_middle_costs_nothing(start_node):
    node = start_node()
    node.create_stream("kept", partitions=2)
    task = replace(TASK, group="kept", is_new=True)
    values = numbered(200)

    def given(killed_at):
        for at, part in enumerate(some(values)):
            if at == killed_at:
                node.kill()
                running.append(start_node.again(node))
            yield part

    running = [node]
    with AppendClient(node.servers) as log:
        write(log, given(7), "kept", task)
        node = running[-1]
        write(log, given(3), "kept", replace(task, is_first=False))
    assert stored_values(running[-1], "kept") == values
