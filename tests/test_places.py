"""Who has a place at a door that has few: who gives it up, and who is ended in any case."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.kernel.places import Ended, Places

REQUEST_MS, IDLE_MS = 30, 60


def places(*clients, count_max=3):
    """With so many that stand and have said nothing yet."""
    made = Places(count_max, REQUEST_MS, IDLE_MS)
    for client in clients:
        made.come(client)
        made.open(client, 0)
    return made


def test_who_has_been_idle_for_longest_gives_way():
    door = places("a", "b")
    door.come("handshake")
    assert door.is_full()
    door.work("a")
    door.answer("a", 5)
    door.begin("b")  # which is no progress before its body is whole
    assert [door.give_way() for _ in range(4)] == ["b", "handshake", "a", None]
    assert len(door) == 0


def test_who_reads_nothing_gives_way_where_nobody_is_idle():
    door = places("deaf", "reads", "idle")
    for client in ("deaf", "reads"):
        door.work(client)
        door.unread(client, 100, 1)
    door.unread("deaf", 100, 2)
    door.unread("reads", 99, 2)
    door.unread("deaf", 120, 3)  # more of its answer, of which it has read nothing
    assert door.slow() == ("deaf", "reads")
    assert [door.give_way() for _ in range(4)] == ["idle", "deaf", "reads", None]


def test_who_is_worked_for_keeps_its_place():
    door = places("a", "b", "c")
    for client in "abc":
        door.work(client)
    door.unread("b", 100, 1)
    door.unread("b", 0, 2)
    assert door.give_way() is None
    assert door.expire(1_000_000) == []
    assert door.wake_ms() is None


def test_who_is_waited_for_too_long_is_ended():
    door = places("silent", "idle", "body", "deaf", "reads", count_max=9)
    door.come("handshake")
    door.begin("body")
    for client in ("idle", "deaf", "reads"):
        door.work(client)
    door.answer("idle", 10)
    for client in ("deaf", "reads"):
        door.unread(client, 100, 10)
    door.unread("deaf", 100, 50)
    door.unread("reads", 50, 50)
    assert door.wake_ms() == REQUEST_MS
    assert door.expire(REQUEST_MS - 1) == []
    assert door.expire(REQUEST_MS) == [("silent", Ended.SILENT)]
    assert door.wake_ms() == 10 + IDLE_MS
    assert door.expire(70) == [("deaf", Ended.SLOW), ("idle", Ended.IDLE)]
    assert door.wake_ms() == 50 + IDLE_MS
    assert door.expire(1_000) == [("reads", Ended.SLOW)]
    assert len(door) == 2, "of a handshake and a body somebody else keeps the time"


def test_what_is_heard_of_who_has_lost_its_place_means_nothing():
    door = places("a")
    assert door.give_way() == "a"
    for late in (door.open, door.answer, lambda client, now_ms: door.unread(client, 1, now_ms)):
        late("a", 1)
    door.begin("a")
    door.work("a")
    door.leave("a")
    assert (len(door), door.give_way(), door.wake_ms()) == (0, None, None)


EVENTS = ("come", "open", "begin", "work", "answer", "unread", "leave", "give_way", "expire")


@given(st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 4), st.integers(0, 3))))
def test_nobody_is_lost_and_nobody_has_two_places(steps):
    door, there = places(), set()
    for moment, (event, client, amount) in enumerate(steps):
        now_ms = 20 * moment
        if event == "come":
            if not door.is_full() and client not in there:
                door.come(client)
                there.add(client)
        elif event in {"open", "answer"}:
            getattr(door, event)(client, now_ms)
        elif event == "unread":
            door.unread(client, amount, now_ms)
        elif event == "give_way":
            there.discard(door.give_way())
        elif event == "expire":
            ended = [client for client, _ in door.expire(now_ms)]
            assert len(ended) == len(set(ended))
            there.difference_update(ended)
            wake_ms = door.wake_ms()
            assert wake_ms is None or wake_ms > now_ms
        else:
            getattr(door, event)(client)
            there -= {client} if event == "leave" else set()
        assert len(door) == len(there)
        assert set(door.slow()) <= there
