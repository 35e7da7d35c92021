"""The machine of committed offsets: events in, effects out, no broker near."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from groupworld import NOW, replayed
from groupworld import commit_alone as commit
from headrace import limits
from headrace.kernel.groups.coordinator import Groups
from headrace.kernel.groups.events import (
    Answer,
    Append,
    Codes,
    Committed,
    Place,
    Refused,
    Stored,
    StreamDeleted,
)
from headrace.kernel.keyed import Record
from headrace.wire.kafka.codec import encode
from headrace.wire.kafka.errors import ErrorCode
from headrace.wire.kafka.groups import OffsetKey, OffsetValue

HERE = Place("s", 0)
THERE = Place("t", 1)


def test_a_commit_counts_once_it_is_stored():
    groups = Groups()
    committed = Committed(5, 3, "text", 99)
    key = encode(OffsetKey(group="g", topic="s", partition=0))
    value = encode(OffsetValue(offset=5, leader_epoch=3, metadata="text", commit_timestamp=99))
    assert commit(groups, 1, "g", {HERE: committed}) == [Append(1, "g", [Record(key, value)])]
    assert groups.offsets("g") == {}
    assert groups.handle(Stored(1, "g"), NOW) == [Answer(1, Codes({HERE: ErrorCode.NONE}))]
    assert groups.offsets("g") == {HERE: committed}


def test_a_commit_that_the_disk_refuses_never_counts():
    groups = Groups()
    long = Committed(1, metadata="x" * (limits.OFFSET_METADATA_BYTES_MAX + 1))
    commit(groups, 1, "g", {HERE: Committed(5), THERE: long})
    assert groups.handle(Refused(1, "g", ErrorCode.KAFKA_STORAGE_ERROR), NOW) == [
        Answer(
            1,
            Codes(
                {HERE: ErrorCode.KAFKA_STORAGE_ERROR, THERE: ErrorCode.OFFSET_METADATA_TOO_LARGE}
            ),
        )
    ]
    assert groups.offsets("g") == {}


@pytest.mark.parametrize(
    ("group", "generation", "metadata", "code"),
    [
        ("", -1, "", ErrorCode.INVALID_GROUP_ID),
        ("ä" * 128, -1, "", ErrorCode.INVALID_GROUP_ID),
        ("g", 0, "", ErrorCode.ILLEGAL_GENERATION),
        ("g", -1, "ä" * 2049, ErrorCode.OFFSET_METADATA_TOO_LARGE),
    ],
)
def test_what_is_refused_is_answered_at_once(group, generation, metadata, code):
    answer = commit(Groups(), 1, group, {HERE: Committed(1, metadata=metadata)}, generation)
    assert answer == [Answer(1, Codes({HERE: code}))]


def test_the_number_of_offsets_is_bounded():
    groups = Groups(offsets_max=1)
    commit(groups, 1, "g", {HERE: Committed(1)})
    groups.handle(Stored(1, "g"), NOW)
    assert commit(groups, 2, "h", {HERE: Committed(1)}) == [
        Answer(2, Codes({HERE: ErrorCode.POLICY_VIOLATION}))
    ]
    (append,) = commit(groups, 3, "g", {HERE: Committed(2), THERE: Committed(2)})
    assert len(append.records) == 1, "what is known already may move on"
    (answer,) = groups.handle(Stored(3, "g"), NOW)
    assert answer.outcome.codes == {HERE: ErrorCode.NONE, THERE: ErrorCode.POLICY_VIOLATION}


def test_a_deleted_stream_takes_its_offsets_along_even_those_on_their_way():
    groups = Groups()
    commit(groups, 1, "g", {HERE: Committed(1), THERE: Committed(1)})
    groups.handle(Stored(1, "g"), NOW)
    (on_its_way,) = commit(groups, 2, "h", {HERE: Committed(2)})
    effects = groups.handle(StreamDeleted("s"), NOW)
    assert {(effect.ticket, effect.group) for effect in effects} == {(None, "g"), (None, "h")}
    assert groups.handle(Stored(2, "g"), NOW) == [Answer(2, Codes({HERE: ErrorCode.NONE}))]
    assert groups.offsets("g") == {THERE: Committed(1)}
    assert groups.offsets("h") == {}
    log = [*on_its_way.records, *(record for effect in effects for record in effect.records)]
    assert replayed(log).offsets("h") == {}


def test_records_that_it_does_not_know_are_left_alone():
    member = encode(OffsetKey(version=2, group="g", topic="s", partition=0))
    assert replayed([Record(member, b"g"), Record(b"\x00", b""), Record(b"", None)]).count == 0


class Commits(RuleBasedStateMachine):
    """Against a model: whatever is stored in whatever order, a replay finds what clients see."""

    tickets = Bundle("tickets")
    groups_named = st.sampled_from(["g", "h"])
    streams = st.sampled_from(["s", "t"])

    def __init__(self):
        super().__init__()
        self.groups = Groups()
        self.log = []  # as stored: records in the order in which they were appended
        self.queue = []  # appended, outcome open; ends in order, as the log does
        self.last = 0
        self.answered = set()

    def perform(self, effects):
        for effect in effects:
            if isinstance(effect, Append):
                self.queue.append(effect)
            else:
                assert effect.ticket not in self.answered
                self.answered.add(effect.ticket)

    @rule(group=groups_named, stream=streams, partition=st.integers(0, 1), offset=st.integers(0, 9))
    def commit(self, group, stream, partition, offset):
        self.last += 1
        self.perform(
            commit(self.groups, self.last, group, {Place(stream, partition): Committed(offset)})
        )

    @rule(stream=streams)
    def delete(self, stream):
        self.perform(self.groups.handle(StreamDeleted(stream), NOW))

    @rule(stored=st.booleans())
    def disk(self, stored):
        if not self.queue:
            return
        append = self.queue.pop(0)
        if stored or append.ticket is None:
            self.log += append.records
        if append.ticket is not None:
            event = (
                Stored(append.ticket, append.group)
                if stored
                else Refused(append.ticket, append.group, ErrorCode.KAFKA_STORAGE_ERROR)
            )
            self.perform(self.groups.handle(event, NOW))

    @invariant()
    def a_replay_finds_what_clients_see(self):
        while self.queue and self.queue[0].ticket is None:
            self.log += self.queue.pop(0).records
        if self.queue:
            return  # deletions count at once, and their records may still wait behind commits
        again = replayed(self.log)
        for group in ("g", "h"):
            assert again.offsets(group) == self.groups.offsets(group)
        assert self.groups._offsets._places.total == self.groups.count
        assert again.count == self.groups.count == sum(len(again.offsets(g)) for g in ("g", "h"))

    def teardown(self):
        while self.queue:
            self.disk(stored=True)
        self.a_replay_finds_what_clients_see()
        assert self.answered == set(range(1, self.last + 1))


Commits.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
test_commits_against_a_model = Commits.TestCase


@given(st.binary(max_size=30), st.none() | st.binary(max_size=30))
def test_a_damaged_record_is_no_fault(key, value):
    replayed([Record(key, value)])
