"""How partitions are shared out, against what every assignor promises."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.client.assignors import (
    ASSIGNORS,
    Having,
    Member,
    assign_cooperative,
    assign_range,
    assign_roundrobin,
    assign_sticky,
    assigned,
    assignment_of,
    heard,
    said,
)
from headrace.client.records import TopicPartition as P
from headrace.errors import MalformedError
from headrace.wire.kafka.codec import encode
from headrace.wire.kafka.members import ConsumerSubscription

TOPICS = ["s", "t", "u"]


@st.composite
def groups(draw):
    """Members with what they want and claim to have, and the streams there are."""
    counts = {topic: draw(st.integers(0, 8)) for topic in TOPICS if draw(st.booleans())}
    names = draw(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=6, unique=True))
    members = {}
    for name in names:
        topics = draw(st.lists(st.sampled_from(TOPICS), min_size=1, unique=True))
        owned = draw(st.lists(st.builds(P, st.sampled_from(TOPICS), st.integers(0, 9)), max_size=6))
        members[name] = Member(tuple(topics), tuple(dict.fromkeys(owned)), draw(st.integers(-1, 2)))
    return members, counts


def everything(members, counts):
    wanted = {topic for member in members.values() for topic in member.topics}
    return sorted(P(topic, p) for topic in wanted for p in range(counts.get(topic, 0)))


def check_allowed(members, assignment):
    for name, places in assignment.items():
        assert all(place.topic in members[name].topics for place in places)


@pytest.mark.parametrize("name", ASSIGNORS)
@given(group=groups())
@settings(max_examples=40, deadline=None)
def test_every_partition_goes_to_one_member_that_wants_it(name, group):
    members, counts = group
    assignment = ASSIGNORS[name](members, counts)
    assert assignment.keys() == members.keys()
    check_allowed(members, assignment)
    given_out = sorted(place for places in assignment.values() for place in places)
    if name == "cooperative-sticky":
        assert len(set(given_out)) == len(given_out)
        assert set(given_out) <= set(everything(members, counts))
    else:
        assert given_out == everything(members, counts)
    assert ASSIGNORS[name](dict(reversed(members.items())), counts) == assignment, "by any leader"


@given(group=groups())
@settings(max_examples=40, deadline=None)
def test_sticky_is_even(group):
    members, counts = group
    assignment = assign_sticky(members, counts)
    for giver, places in assignment.items():
        for taker, has in assignment.items():
            movable = [p for p in places if p.topic in members[taker].topics]
            assert not movable or len(places) - len(has) <= 1, (giver, taker)


@given(group=groups())
@settings(max_examples=40, deadline=None)
def test_sticky_moves_nothing_of_a_group_that_is_even(group):
    members, counts = group
    first = assign_sticky(members, counts)
    settled = {
        name: member._replace(owned=tuple(first[name]), generation=5)
        for name, member in members.items()
    }
    assert assign_sticky(settled, counts) == first
    assert assign_cooperative(settled, counts) == first


@given(group=groups())
@settings(max_examples=40, deadline=None)
def test_cooperative_takes_nothing_from_a_member_before_that_gave_it_up(group):
    members, counts = group
    held = assign_sticky(members, counts)
    newcomer = {**members, "z": Member(tuple(TOPICS))}
    for _ in range(4):
        told = {
            name: member._replace(owned=tuple(held.get(name, ())), generation=5)
            for name, member in newcomer.items()
        }
        given_out = assign_cooperative(told, counts)
        for name, places in given_out.items():
            for other, has in held.items():
                assert name == other or not set(places) & set(has)
        if given_out == held:
            break
        held = given_out
    assert sorted(p for places in held.values() for p in places) == everything(newcomer, counts)
    assert held == assign_sticky(told, counts), "it ends where sticky does"


def test_who_joins_gets_its_share_and_no_more_moves():
    members = {name: Member(("s",)) for name in "ab"}
    first = assign_sticky(members, {"s": 10})
    members = {n: m._replace(owned=tuple(first[n]), generation=1) for n, m in members.items()}
    second = assign_sticky({**members, "c": Member(("s",))}, {"s": 10})
    assert sorted(map(len, second.values())) == [3, 3, 4]
    assert all(set(second[name]) <= set(first[name]) for name in "ab")


def test_the_claim_of_the_newest_generation_counts():
    old, new = Member(("s",), (P("s", 0),), 1), Member(("s",), (P("s", 0),), 2)
    other = Member(("s",), (P("s", 1),), 2)
    assert assign_sticky({"a": old, "b": new}, {"s": 2}) == {"a": [P("s", 1)], "b": [P("s", 0)]}
    both = assign_sticky({"a": new, "b": new, "c": other}, {"s": 3})
    assert both["c"] == [P("s", 1)]


def test_range_and_roundrobin_share_out_as_kafka_documents():
    members = {"b": Member(("t0", "t1")), "a": Member(("t0", "t1"))}
    counts = {"t0": 3, "t1": 3}
    assert assign_range(members, counts) == {
        "a": [P("t0", 0), P("t0", 1), P("t1", 0), P("t1", 1)],
        "b": [P("t0", 2), P("t1", 2)],
    }
    assert assign_roundrobin(members, counts) == {
        "a": [P("t0", 0), P("t0", 2), P("t1", 1)],
        "b": [P("t0", 1), P("t1", 0), P("t1", 2)],
    }
    uneven = {"a": Member(("t0",)), "b": Member(("t0", "t1")), "c": Member(("t0", "t1", "t2"))}
    assert assign_roundrobin(uneven, {"t0": 1, "t1": 2, "t2": 3}) == {
        "a": [P("t0", 0)],
        "b": [P("t1", 0)],
        "c": [P("t1", 1), P("t2", 0), P("t2", 1), P("t2", 2)],
    }


def test_members_with_names_that_stay_come_first():
    members = {
        "0": Member(("s",)),
        "zz": Member(("s",), instance="one"),
        "aa": Member(("s",), instance="two"),
    }
    assert assign_range(members, {"s": 3}) == {
        "zz": [P("s", 0)], "aa": [P("s", 1)], "0": [P("s", 2)]
    }  # fmt: skip


@pytest.mark.parametrize("name", ASSIGNORS)
def test_members_understand_each_other(name):
    owned = Having((P("s", 1), P("t", 0)), 4)
    member = heard(name, said(name, ["s", "t"], owned, owned), "inst")
    assert member == Member(("s", "t"), owned.places, 4, "inst")
    places = [P("s", 0), P("s", 2), P("t", 1)]
    assert assigned(assignment_of(places)) == places
    assert assigned(b"") == []


def test_what_others_say_may_be_older_or_unreadable():
    old = encode(ConsumerSubscription(version=0, topics=["s"], user_data=b"\x00"), 0)
    for name in ASSIGNORS:
        assert heard(name, old, None) == Member(("s",))
    with pytest.raises(MalformedError):
        heard("range", b"\x00", None)
