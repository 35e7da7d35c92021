"""What clients have a node hold of one kind is bounded, and who has held for longest gives way."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.kernel.holdings import Holdings


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


def test_who_holds_a_share_at_most_does_not_count():
    held = Holdings(100, 10)
    assert held.hold("small", 10) == held.hold("old", 40) == held.hold("new", 40) == []
    assert held.total_bytes == 80
    assert held.hold("new", 70) == ["old"]
    assert held.hold("new", 10) == []
    assert held.total_bytes == 0
    assert held.hold("small", 101) == ["small"]


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 120))))
def test_the_bound_holds_whatever_comes(steps):
    held, said, since = Holdings(100, 10), {}, {}
    for moment, (client, held_bytes) in enumerate(steps):
        oldest = held.hold(client, held_bytes)
        if held_bytes > 10:
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
