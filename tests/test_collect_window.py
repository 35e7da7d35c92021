"""The collector's window, alone: any order of sending, losing, refusing and acknowledging."""

import math

from hypothesis import given
from hypothesis import strategies as st

from headrace.collect import Message, Pause
from headrace.collect.window import Window

EVENTS = st.lists(
    st.sampled_from(["send", "send", "acknowledge", "refuse", "lose", "store_and_lose"]),
    max_size=200,
)


def messages(n):
    return iter([Message("t", b"%d" % index, 1) for index in range(n)])


class Broker:
    """Stores as the switchboard does: each sequence above the last, once."""

    def __init__(self):
        self.stored = []
        self.last = 0

    def store(self, entry):
        """True where it was stored before."""
        if entry.sequence <= self.last:
            return True
        self.last = entry.sequence
        self.stored.append(entry.message.payload)
        return False


class Run:
    """A window, a wire and a broker; its methods are the events."""

    def __init__(self, size):
        self.window, self.broker = Window(messages(20), size), Broker()
        self.wire = {}
        self.packet_id = self.last_sent = 0
        self.acknowledged = []

    def send(self):
        entry = self.window.take()
        if entry is not None:
            assert entry.sequence > self.last_sent, "sequences rise within a connection"
            self.last_sent = entry.sequence
            self.packet_id += 1
            self.window.sent(self.packet_id, entry)
            self.wire[self.packet_id] = entry

    def acknowledge(self):
        if self.wire:
            packet_id = min(self.wire)
            repeat = self.broker.store(self.wire.pop(packet_id))
            entry = self.window.acknowledged(packet_id, repeat=repeat)
            self.acknowledged.append(entry.message.payload)

    def refuse(self):
        """The disk does not take it. A repeat needs no disk: a broker never refuses one."""
        if not self.wire:
            return
        packet_id = min(self.wire)
        if self.wire[packet_id].sequence <= self.broker.last:
            self.acknowledge()
            return
        del self.wire[packet_id]
        self.window.refused(packet_id)

    def lose(self):
        self.wire.clear()
        self.window.disconnected()
        self.last_sent = 0

    def store_and_lose(self):
        for packet_id in sorted(self.wire)[:2]:
            self.broker.store(self.wire[packet_id])
        self.lose()


@given(events=EVENTS, size=st.integers(1, 8))
def test_whatever_happens_each_message_is_stored_once_and_acknowledged(events, size):
    run = Run(size)
    for event in events:
        getattr(run, event)()
        assert run.window.flying == len(run.wire) <= size
    while not run.window.done:
        run.send()
        run.acknowledge()
    payloads = [b"%d" % index for index in range(20)]
    assert sorted(run.acknowledged) == sorted(payloads)
    assert sorted(run.broker.stored) == sorted(payloads)
    counts = run.window.counts
    assert counts.published == counts.acknowledged == counts.messages == 20


def test_without_refusals_messages_are_stored_in_the_order_of_the_input():
    window, broker = Window(messages(10), 4), Broker()
    window.sent(1, window.take())
    window.disconnected()
    while not window.done:
        entry = window.take()
        if entry is not None:
            window.sent(entry.sequence, entry)
            broker.store(entry)
            window.acknowledged(entry.sequence, repeat=False)
    assert broker.stored == [b"%d" % index for index in range(10)]


def test_an_ended_input_leaves_only_what_is_out():
    window = Window(messages(10), 4)
    entry = window.take()
    window.sent(1, entry)
    window.end_input()
    assert not window.done
    assert window.take() is None
    window.acknowledged(1, repeat=False)
    assert window.done


def test_how_long_the_input_has_nothing_is_told_until_it_has_something():
    first, second = messages(2)
    window = Window(iter([Pause(2.5), first, second, Pause()]), 2)
    assert window.take() is None
    assert window.pause_s == 2.5
    for packet_id in (1, 2):
        window.sent(packet_id, window.take())
    assert (window.take(), window.pause_s) == (None, 0.0), "it is full, and asks for nothing"
    window.acknowledged(1, repeat=False)
    assert window.take() is None
    assert window.pause_s == math.inf


def test_an_unknown_acknowledgement_changes_nothing():
    window = Window(messages(1), 4)
    assert window.acknowledged(9, repeat=False) is None
    window.refused(9)
    assert window.counts.messages == window.counts.refused == 0
