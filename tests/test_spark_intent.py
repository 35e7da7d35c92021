"""As whom a task of a sink writes: pure, and with attempts whose intents cross on a real node."""

import contextlib
import itertools
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import RunningNode
from headrace import job_limits
from headrace.client.append import AppendClient
from headrace.spark.errors import WriteError
from headrace.spark.intent import EPOCHS, OVER, OVER_MAX, Attempt, Intent, begin, load, with_over
from headrace.spark.options import parse_write
from headrace.spark.sink import BatchWriter
from headrace.spark.write import lane, write
from sinkrows import rows, stored_values

TASK = Attempt(group="sink-0", batch=4, run="a", is_first=True, is_new=False)


def refuse():
    raise AssertionError("no producer id is needed")


def test_each_micro_batch_has_an_epoch_of_its_own():
    first = begin(None, TASK, 10, lambda: 7)
    assert first == (Intent(4, "a", 7, 4, 10), False, False)
    second = begin(first.intent, replace(TASK, batch=5), 20, refuse)
    assert second == (Intent(5, "a", 7, 5, 20), False, True)
    last = begin(second.intent, replace(TASK, batch=EPOCHS - 1), 30, refuse).intent
    assert last == Intent(EPOCHS - 1, "a", 7, EPOCHS - 1, 30)
    later = begin(last, replace(TASK, batch=2 * EPOCHS + 1), 40, lambda: 8).intent
    assert later == Intent(2 * EPOCHS + 1, "a", 8, 1, 40)
    assert begin(later, replace(TASK, batch=2 * EPOCHS + 2), 50, refuse).intent.producer == 8


def test_an_intent_that_counted_epochs_has_a_producer_of_its_own():
    """Of an earlier release: its epoch may be beyond that of a later micro-batch."""
    kept = Intent(EPOCHS + 3, "a", 7, 900, 10)
    found = begin(kept, replace(TASK, batch=EPOCHS + 4), 20, lambda: 8)
    assert found == (Intent(EPOCHS + 4, "a", 8, 4, 20), False, True)
    assert begin(kept, replace(TASK, batch=EPOCHS + 3), 20, refuse).intent == kept


@given(st.lists(st.tuples(st.integers(0, 4 * EPOCHS), st.booleans()), max_size=30))
def test_no_epoch_serves_two_micro_batches_whatever_is_kept_late(steps):
    """Each step begins a micro-batch, and its intent is kept, or lost to a late one."""
    kept, begun, ids = None, {}, itertools.count()
    for number, is_kept in steps:
        try:
            intent = begin(kept, replace(TASK, batch=number), 10, lambda: next(ids)).intent
        except WriteError:
            continue
        assert begun.setdefault((intent.producer, intent.epoch), number) == number
        kept = intent if is_kept else kept


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("run", ["a", "b"])
def test_what_is_repeated_keeps_its_intent_and_is_not_trusted(is_first, run):
    kept = Intent(4, "a", 7, 3, 10)
    found = begin(kept, replace(TASK, is_first=is_first, run=run), 20, refuse)
    assert found == (kept, True, False)


@pytest.mark.parametrize(
    ("kept", "more", "is_trusted"),
    [
        (None, {"is_new": True}, True),
        (None, {"is_new": True, "is_first": False}, False),
        (None, {}, False),
        (Intent(3, "a", 7, 3, 10), {}, True),
        (Intent(3, "a", 7, 3, 10), {"is_first": False}, False),
        (Intent(3, "a", 7, 3, 10), {"run": "b"}, False),
    ],
)
def test_only_who_is_alone_is_trusted(kept, more, is_trusted):
    assert begin(kept, replace(TASK, **more), 20, lambda: 9).is_trusted is is_trusted


def test_an_attempt_at_what_is_over_is_refused():
    with pytest.raises(WriteError, match="micro-batch 4 is over, 5 has begun"):
        begin(Intent(5, "a", 7, 3, 10), TASK, 20, refuse)


def test_the_latest_intent_counts():
    old, new = Intent(3, "a", 7, 3, 10), Intent(4, "b", 7, 4, 20)
    assert load({0: old.dump(), 1: new.dump(), 2: old.dump()}) == new
    assert load({}) is None
    for text in ("", "{}", '{"batch": 1}', "[1]"):
        with pytest.raises(WriteError, match="holds what no sink has written"):
            load({0: text})


def test_the_last_writes_that_are_over_are_known():
    text = ""
    for n in range(OVER_MAX + 6):
        text = with_over(text, f"{n:032}")
    assert text.split() == [f"{n:032}" for n in range(6, OVER_MAX + 6)]
    assert len(text) < 4096


# --- on a node -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    node = RunningNode(tmp_path_factory.mktemp("intents") / "data")
    yield node
    node.close()


@pytest.fixture
def log(node):
    with AppendClient(node.servers) as log:
        yield log


class LateClient(AppendClient):
    """Whatever others do happens after this one has looked, and before it keeps its intent."""

    def keep(self, group, offsets):
        self.meanwhile()
        super().keep(group, offsets)


@pytest.mark.parametrize("has_written_before", [True, False])
def test_an_intent_that_is_kept_late_leads_nobody_into_the_epoch_of_another(
    node, log, stream, has_written_before
):
    """An attempt that Spark gave up on looks, sleeps over two micro-batches, and goes on."""
    task = replace(TASK, group=f"sink-{stream}")

    def values(number):
        return [b"%d-%03d" % (number, n) for n in range(30)]

    def run(number):
        again = replace(task, batch=number, run="b", is_first=number > 4)
        write(log, [rows(values(number))], stream, again)

    if has_written_before:
        write(log, [rows(values(3))], stream, replace(task, batch=3))
    with LateClient(node.servers) as late:
        late.meanwhile = lambda: [run(4), run(5)]
        lane(late, stream, task, ["value"])
    kept = load({at: text for at, (_, text) in log.kept(task.group, stream).items()})
    assert (kept.batch, kept.epoch) == (4, 4)
    for number in (6, 7):
        run(number)
    numbers = [3, 4, 5, 6, 7] if has_written_before else [4, 5, 6, 7]
    assert stored_values(node, stream) == [value for n in numbers for value in values(n)]


class Task:
    """What Spark tells a writer of its task."""

    def __init__(self, attempt=0):
        self.attempt = attempt

    def partitionId(self):  # noqa: N802 - Spark's name
        return 0

    def attemptNumber(self):  # noqa: N802 - Spark's name
        return self.attempt


@pytest.mark.parametrize("by", ["commit", "abort"])
@pytest.mark.parametrize("attempt", [0, 1])
@pytest.mark.parametrize("column", [False, True])
def test_an_attempt_that_begins_after_its_write_is_over_writes_nothing(
    node, log, stream, monkeypatch, by, attempt, column
):
    """As one of an executor that was lost, or of a speculation that was the slower one."""
    given = {"servers": node.servers} | ({} if column else {"stream": stream})
    more = {"topic": pa.array([stream] * 2, pa.string())} if column else {}
    for count in range(1, 3):  # the second write is another one
        writer = BatchWriter(parse_write(given))
        monkeypatch.setattr("headrace.spark.sink._task", Task)
        written = writer.write(iter([rows([b"a", b"b"], **more)]))
        getattr(writer, by)([written, None])
        monkeypatch.setattr("headrace.spark.sink._task", lambda: Task(attempt))
        with pytest.raises(WriteError, match="the write is over, and this attempt of a task late"):
            writer.write(iter([rows([b"a", b"b"], **more)]))
        assert stored_values(node, stream) == sorted([b"a", b"b"] * count)
        assert log.kept(written.group, stream) == {}
    assert len(log.kept(OVER, stream)[0][1].split()) == 2


def test_an_attempt_that_began_before_its_write_was_over_doubles_nothing(node, stream, monkeypatch):
    writer = BatchWriter(parse_write({"servers": node.servers, "stream": stream}))
    monkeypatch.setattr("headrace.spark.sink._task", Task)
    written = writer.write(iter([rows([b"a", b"b"])]))
    monkeypatch.setattr("headrace.spark.sink._task", lambda: Task(1))

    def meanwhile():
        yield rows([b"a"])
        writer.commit([written])
        yield rows([b"b"])

    writer.write(meanwhile())
    assert stored_values(node, stream) == [b"a", b"b"]


@pytest.mark.parametrize("dying", [False, True])
def test_a_micro_batch_whose_intent_was_set_back_is_repeated_whole(
    node, log, stream, monkeypatch, dying
):
    """An attempt at an older one keeps its intent while this one is under way."""
    monkeypatch.setattr(job_limits, "SPARK_SILENCE_SECONDS_MAX", 1.0)
    monkeypatch.setattr(job_limits, "SPARK_SINK_BATCH_BYTES", 400)
    task = replace(TASK, group=f"sink-{stream}")
    old = [b"old-%03d" % n for n in range(200)]
    new = [b"new-%03d" % n for n in range(200)]

    def given():
        for at in range(0, 200, 10):
            if dying and at == 150:
                raise KeyError("planted")
            yield rows(new[at : at + 10])

    write(log, [rows([b"before"])], stream, replace(task, batch=3))

    def meanwhile():
        write(log, [rows(old)], stream, replace(task, run="b"))
        with contextlib.suppress(KeyError):
            write(log, given(), stream, replace(task, batch=5, run="b"))

    with LateClient(node.servers) as late:
        late.meanwhile = meanwhile
        lane(late, stream, task, ["value"])
    for again in ({"is_first": False}, {"run": "c"}):
        write(log, [rows(new)], stream, replace(task, batch=5, **again))
    assert stored_values(node, stream) == sorted([b"before", *old, *new])
