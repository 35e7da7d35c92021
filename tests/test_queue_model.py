"""A queue of a real node against a model: pulled, settled, failed and lost in any order."""

from itertools import count
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from conftest import wait_for
from test_queues import make, shown
from test_queues_http import Queue

pytestmark = pytest.mark.slow

ATTEMPTS = 3
SETTINGS = {"order": "key", "retry.backoff.ms": "0", "retry.attempts": ATTEMPTS}
GROUPS = st.sampled_from("gh")
NUMBERS = count()


class Group:
    """What a group is owed, as it must be."""

    def __init__(self):
        self.owed = {}  # by key, payloads in order
        self.held = {}  # by id, payloads
        self.attempts = {}  # by payload, the last that was given
        self.failures = {}
        self.settled = set()
        self.dead = set()

    def next(self):
        """The first of each key that nobody has."""
        return {first for first, *_ in self.owed.values() if first not in self.held.values()}

    def end(self, payload):
        key = payload.partition("-")[0]
        assert self.owed[key].pop(0) == payload, "of its key it is the first"
        if not self.owed[key]:
            del self.owed[key]


class Work(RuleBasedStateMachine):
    """On the node that is running, which it may kill."""

    place: SimpleNamespace

    def __init__(self):
        super().__init__()
        self.name = f"jobs-{next(NUMBERS)}"
        make(self.place.node, self.name, partitions=2, settings=SETTINGS)
        self.groups = {name: Group() for name in "gh"}
        self.sent = 0
        self.has_fallen = False

    @property
    def queue(self):
        return Queue(self.place.node, self.name)

    @rule(keys=st.lists(st.sampled_from("abc"), min_size=1, max_size=5))
    def enqueue(self, keys):
        payloads = [f"{key}-{self.sent + number}" for number, key in enumerate(keys)]
        self.sent += len(keys)
        messages = [{"key": each[0], "payload": each} for each in payloads]
        assert self.queue.enqueue(messages=messages) == {"enqueued": len(keys)}
        for group in self.groups.values():
            for payload in payloads:
                group.owed.setdefault(payload[0], []).append(payload)

    @rule(name=GROUPS, many=st.integers(1, 4))
    def pull(self, name, many):
        group = self.groups[name]
        expected = group.next()
        wait = "20s" if expected else "0s"
        messages = self.queue.pull(group=name, max=many, wait=wait)
        assert bool(messages) == bool(expected)
        assert len(messages) <= many
        for message in messages:
            payload = message["payload"]
            expected.remove(payload)
            assert message["attempt"] == group.attempts.get(payload, 0) + 1
            group.attempts[payload] = message["attempt"]
            group.held[message["message_id"]] = payload

    def take(self, name, which):
        """One that somebody has, if anybody has one."""
        held = sorted(self.groups[name].held)
        return held[which % len(held)] if held else None

    @rule(name=GROUPS, which=st.integers(0, 9), verb=st.sampled_from(["ack", "nack", "reject"]))
    def settle(self, name, which, verb):
        group, held = self.groups[name], self.take(name, which)
        if held is None:
            return
        assert self.queue.settle(verb, held, group=name) == ["settled"]
        payload = group.held.pop(held)
        if verb == "ack":
            group.settled.add(payload)
            group.end(payload)
            return
        group.failures[payload] = group.failures.get(payload, 0) + 1
        if verb == "reject" or group.failures[payload] == ATTEMPTS:
            group.dead.add(payload)
            group.end(payload)

    @precondition(lambda self: self.sent)
    @rule(name=GROUPS, offset=st.integers(0, 9), attempt=st.integers(1, 4))
    def settle_what_nobody_has(self, name, offset, attempt):
        group, one = self.groups[name], f"0:{offset}:{attempt}"
        if one in group.held or not group.attempts:
            return
        (result,) = self.queue.settle("ack", one, group=name, status=409)
        assert result in {"settled before", "too late", "no delivery"}

    @precondition(lambda self: self.sent)
    @rule(chance=st.integers(0, 7))
    def fall(self, chance):
        if chance != 7:
            return
        self.place.restart()
        self.has_fallen = True
        for group in self.groups.values():
            group.held.clear()
            group.attempts = dict(group.failures)

    def teardown(self):
        for name, group in self.groups.items():
            for held in list(group.held):
                assert self.queue.settle("ack", held, group=name) == ["settled"]
                payload = group.held.pop(held)
                group.settled.add(payload)
                group.end(payload)
            while group.owed:
                self.pull(name, 4)
                for _ in list(group.held):
                    self.settle(name, 0, "ack")
            everything = group.settled | group.dead
            assert len(everything) == len(group.settled) + len(group.dead) == self.sent
            assert self.queue.pull(group=name) == []
        wait_for(
            lambda: not any(each["depth"] for each in shown(self.place.node, self.name)["groups"])
        )
        self.look_at_letters()

    def look_at_letters(self):
        dead = [(name, each) for name, group in self.groups.items() for each in group.dead]
        if not dead:
            return
        letters = Queue(self.place.node, f"{self.name}.dlq").peek("limit=1000")["messages"]
        told = [(each["properties"]["x-source-group"], each["payload"]) for each in letters]
        assert set(told) == set(dead)
        assert self.has_fallen or len(told) == len(dead), "one letter each"


@pytest.mark.parametrize(
    ("lives", "steps"), [(6, 30), pytest.param(150, 60, marks=pytest.mark.soak)]
)
def test_every_message_is_settled_once_by_each_group_or_dead(start_node, lives, steps):
    place = SimpleNamespace(node=start_node())

    def restart():
        place.node.kill()
        place.node = start_node.again(place.node)

    place.restart = restart
    checks = [HealthCheck.too_slow, HealthCheck.filter_too_much]
    told = settings(
        max_examples=lives, stateful_step_count=steps, deadline=None, suppress_health_check=checks
    )
    run_state_machine_as_test(type("Run", (Work,), {"place": place}), settings=told)
