"""What clients have a node hold of one kind is bounded, and who has held for longest gives way."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.kernel.holdings import Beginnings, Holdings, PausableBeginnings


def test_who_has_gone_on_is_younger_than_who_has_not():
    held = Holdings(100)
    for client in ("slow", "reads", "other"):
        assert held.add(client, 30) == []
    held.forget("reads")
    held.forget("reads")  # twice is once
    assert held.add("reads", 30) == []
    assert held.add("slow", 10) == [], "which is no progress"
    assert held.total_bytes == 100
    assert held.add("other", 1) == ["slow"]
    assert held.total_bytes == 61
    assert held.add("reads", 500) == ["other", "reads"], "whoever it is that goes beyond the bound"
    assert held.total_bytes == 0


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 120))))
def test_the_bound_holds_whatever_comes(steps):
    held, said, since = Holdings(100), {}, {}
    for moment, (client, held_bytes) in enumerate(steps):
        oldest = held.hold(client, held_bytes)
        if held_bytes:
            said[client] = held_bytes
            since.setdefault(client, moment)
        else:
            said.pop(client, None)
            since.pop(client, None)
        for each in oldest:
            assert each == min(since, key=since.__getitem__)
            assert sum(said.values()) > 100, "nobody ends for nothing"
            del said[each], since[each]
        assert held.total_bytes == sum(said.values()) <= 100


def test_large_beginnings_give_way_to_large_ones():
    held = Beginnings(100, 10)
    assert held.hold("small", 10) == held.hold("old", 40) == held.hold("new", 40) == []
    assert held.hold("new", 70) == ["old"]
    assert held.hold("new", 10) == []
    assert held.total_bytes == 20
    assert held.hold("huge", 101) == ["huge"]
    held.forget("small")
    held.forget("new")
    assert held.total_bytes == 0


def test_small_beginnings_have_what_is_free_and_a_quarter_in_any_case():
    held = Beginnings(100, 10)
    crowd = [f"small {number}" for number in range(10)]
    assert [held.hold(each, 10) for each in crowd] == [[]] * 10
    assert held.hold("small 10", 1) == crowd[:1], "the oldest of them"
    assert held.hold("large", 60) == crowd[1:7]
    assert held.hold("large", 100) == crowd[7:8]
    assert held.total_bytes == 121
    assert held.hold("small 8", 0) == []
    assert held.hold("small 9", 10) == held.hold("small 9", 10) == [], "which is no progress"
    assert held.hold("another", 10) == []
    assert held.hold("yet another", 10) == ["small 9"]


@given(
    st.lists(st.tuples(st.sampled_from("abcdefghijkl"), st.integers(0, 120) | st.integers(0, 9)))
)
def test_neither_small_nor_large_beginnings_take_all_of_the_room(steps):
    held, said, since = Beginnings(40, 9), {}, {}
    for moment, (client, held_bytes) in enumerate(steps):
        was_large = said.get(client, 0) > 9
        ended = held.hold(client, held_bytes)
        said.pop(client, None)
        if held_bytes == 0 or was_large != (held_bytes > 9):
            since.pop(client, None)
        if held_bytes:
            said[client] = held_bytes
            since.setdefault(client, moment)
        for each in ended:
            is_large = said[each] > 9
            alike = {name: since[name] for name in said if (said[name] > 9) == is_large}
            assert each == min(alike, key=alike.__getitem__)
            total_bytes = sum(said[name] for name in alike)
            assert total_bytes > (40 if is_large else 10), "nobody ends for nothing"
            del said[each], since[each]
        assert held.total_bytes == sum(said.values()) <= 50


def test_who_is_paused_does_not_age():
    held = PausableBeginnings(100, 10)
    assert held.hold("paused", 40, is_paused=True) == held.hold("a", 30) == held.hold("b", 30) == []
    assert held.hold("c", 30) == ["a"], "who is paused keeps what it holds, and others the rest"
    assert held.hold("paused", 40) == []
    assert held.hold("d", 30) == ["b"], "it begins anew once it is read on"
    assert held.hold("c", 30, is_paused=True) == []
    assert held.hold("d", 30, is_paused=True) == ["c"], "half is for who is paused"
    assert (held.hold("d", 30), held.total_bytes) == ([], 70)


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 60), st.booleans())))
def test_of_who_is_paused_and_who_is_not_the_bound_holds(steps):
    held, said = PausableBeginnings(100, 0), {}
    for client, held_bytes, is_paused in steps:
        said[client] = (held_bytes, is_paused)
        for each in held.hold(client, held_bytes, is_paused=is_paused):
            assert said.pop(each)[1] == is_paused, "of those like it"
        assert held.total_bytes == sum(each for each, _ in said.values()) <= 150
        assert sum(each for each, is_paused in said.values() if is_paused) <= 50
