"""Simulated lives of a group: nothing is skipped, nothing read twice at a time, none is stuck."""

import pytest

from grouppromises import BrokenError
from groupsim import Simulation
from headrace.kernel.groups.coordinator import Groups
from headrace.kernel.groups.group import Group
from headrace.kernel.groups.records import GroupRecord, read
from headrace.kernel.groups.roster import Roster
from headrace.wire.kafka.errors import ErrorCode

pytestmark = pytest.mark.slow

FAULT_SEEDS = 40
"""Lives within which each planted fault must be found."""


def broken(seeds):
    """The seeds whose lives break a promise or an assertion, and how."""
    found = {}
    for seed in seeds:
        try:
            Simulation(seed).run()
        except (BrokenError, KeyError) as error:
            found[seed] = repr(error)
    return found


def test_a_life_happens_as_its_seed_says():
    one, two = Simulation(11).run(), Simulation(11).run()
    assert one.log == two.log
    assert one.promises.counts == two.promises.counts


def test_lives_keep_their_promises():
    assert broken(range(100)) == {}


@pytest.mark.soak
def test_many_lives_keep_their_promises():
    assert broken(range(1000)) == {}


def test_lives_see_what_they_are_for():
    seen = [Simulation(seed).run().promises.counts for seed in range(10)]
    for what in ("assigned", "commits", "fenced", "restarts"):
        assert sum(counts[what] for counts in seen) >= 10, what


ASSIGN, REPLAYED = Group._assign, Groups._replayed


def assigned_before_durable(group, ticket, assignments, now, room_bytes):
    ASSIGN(group, ticket, assignments, now, room_bytes)
    group.stored(ticket, now)


def generations_forgotten(groups, record):
    if not isinstance(read(record), GroupRecord):
        REPLAYED(groups, record)


def statics_unfenced(roster, who):
    return ErrorCode.UNKNOWN_MEMBER_ID if roster.find(who) is None else ErrorCode.NONE


FAULTS = {
    "assigned before durable": (Group, "_assign", assigned_before_durable),
    "commits unfenced": (Group, "fence", lambda *_: ErrorCode.NONE),
    "generations unfenced": (Group, "_fault", lambda group, who, _: group.members.identify(who)),
    "no deadlines": (Group, "next_ms", lambda _: None),
    "generations forgotten": (Groups, "_replayed", generations_forgotten),
    "statics unfenced": (Roster, "identify", statics_unfenced),
}


@pytest.mark.parametrize(("owner", "name", "fault"), FAULTS.values(), ids=FAULTS)
def test_planted_faults_are_found(monkeypatch, owner, name, fault):
    monkeypatch.setattr(owner, name, fault)
    assert any(broken([seed]) for seed in range(FAULT_SEEDS))
