"""One client has a share of what groups may take of a node, and others go on."""

import itertools

import pytest

from conftest import RunningNode
from groupworld import NOW, World, commit_alone, delete, leave, settle, ticket
from headrace import limits
from headrace.kernel.groups.coordinator import Groups
from headrace.kernel.groups.events import (
    Answer,
    Append,
    Committed,
    Configured,
    DeleteGroup,
    GroupSettings,
    Now,
    Place,
    Refused,
    Replayed,
    Stored,
    StreamDeleted,
)
from headrace.kernel.groups.owners import owner_of
from headrace.wire.kafka import apis
from headrace.wire.kafka.errors import ErrorCode
from headrace.wire.kafka.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from kafkaraw import RawConnection
from test_access import basic, put_users
from test_kafka_group_bounds import ask
from test_kafka_members import join_request
from test_kafka_offsets import commit

OK, FULL = ErrorCode.NONE, ErrorCode.POLICY_VIOLATION
ALICE, BOB = owner_of("alice", "10.0.0.1"), owner_of("bob", "10.0.0.1")


def makes(world, owner, group, **more):
    """What a client hears that joins and needs no group for long: an id, or why not."""
    return ask(world, owner=owner, group=group, must_know_id=True, **more).code


def left(world, group="g"):
    """A group of one that has left it; only the record of it is there."""
    assert ask(world, group=group, owner=ALICE) is None
    world.later(1000)
    world.later(1000)
    world.leader, world.generation = "m1", 1
    world.sync("m1", None, {"m1": b"all"})
    world.tell(Stored(ticket(world), group))
    leave(world)
    assert world.groups.describe(group).state == "Empty"


@pytest.fixture
def world(monkeypatch):
    monkeypatch.setattr(limits, "GROUPS_OWNED_MAX", 2)
    return World()


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (("alice", "10.0.0.1"), ("alice", "10.0.0.2"), True),
        (("alice", "10.0.0.1"), ("bob", "10.0.0.1"), False),
        ((None, "10.0.0.1"), (None, "10.0.0.2"), False),
        ((None, "10.0.0.1"), (None, "::ffff:10.0.0.1"), True),
        ((None, "2001:db8::1"), (None, "2001:db8::2:1"), True),
        ((None, "2001:db8::1"), (None, "2001:db8:0:1::1"), False),
        (("10.0.0.1", None), (None, "10.0.0.1"), False),
    ],
)
def test_an_owner_is_a_user_or_without_one_an_address(one, other, same):
    assert (owner_of(*one) == owner_of(*other)) is same


def test_who_has_its_share_of_groups_makes_no_more_and_others_do(world):
    assert makes(world, ALICE, "a1") is ErrorCode.MEMBER_ID_REQUIRED
    assert makes(world, ALICE, "a2") is ErrorCode.MEMBER_ID_REQUIRED
    assert makes(world, ALICE, "a3") is ErrorCode.POLICY_VIOLATION
    assert makes(world, BOB, "b1") is ErrorCode.MEMBER_ID_REQUIRED
    assert makes(world, ALICE, "b1") is ErrorCode.MEMBER_ID_REQUIRED, "it is there already"
    assert makes(world, BOB, "a1") is ErrorCode.MEMBER_ID_REQUIRED
    assert makes(world, BOB, "b2") is ErrorCode.MEMBER_ID_REQUIRED, "a1 is still alice's"
    assert makes(world, BOB, "b3") is ErrorCode.POLICY_VIOLATION
    settle(world)
    assert not world.groups._places._held, "all ids are out of date"
    assert makes(world, ALICE, "a3") is ErrorCode.MEMBER_ID_REQUIRED


@pytest.mark.parametrize("ending", ["deleted", "expired"])
def test_a_group_that_is_gone_gives_its_place_back(world, ending):
    left(world)
    makes(world, ALICE, "a2")
    if ending == "deleted":
        asked, _ = delete(world)
        assert makes(world, ALICE, "a3") is ErrorCode.POLICY_VIOLATION, "it may stay"
        world.tell(Stored(asked, "g"))
    else:
        assert makes(world, ALICE, "a3") is ErrorCode.POLICY_VIOLATION
        world.groups.handle(Configured(GroupSettings(retention_ms=1)), Now(world.now_ms, 0))
        world.later(1)
    assert makes(world, ALICE, "a3") is ErrorCode.MEMBER_ID_REQUIRED
    assert makes(world, ALICE, "a4") is ErrorCode.POLICY_VIOLATION


def test_groups_that_a_start_reads_back_are_nobody_s_and_count_to_the_whole(world, monkeypatch):
    left(world)
    again = World()
    for effect in world.effects:
        if isinstance(effect, Append):
            for record in effect.records:
                again.groups.handle(Replayed(record), NOW)
    assert again.groups.describe("g").state == "Empty"
    for name in ("a1", "a2", "g"):
        assert makes(again, ALICE, name) is ErrorCode.MEMBER_ID_REQUIRED
    monkeypatch.setattr(limits, "GROUPS_MAX", 3)
    assert makes(again, BOB, "b1") is ErrorCode.POLICY_VIOLATION


def test_who_has_its_share_of_memory_says_no_more_and_others_do(monkeypatch):
    monkeypatch.setattr(limits, "GROUPS_OWNED_BYTES_MAX", 20_000)
    world = World()
    large = (("roundrobin", bytes(15_000)),)
    assert ask(world, owner=ALICE, more=large) is None
    assert ask(world, owner=ALICE, group="a", more=large).code is ErrorCode.POLICY_VIOLATION
    assert ask(world, owner=BOB, more=large).code is ErrorCode.POLICY_VIOLATION, "in alice's group"
    assert ask(world, owner=BOB, group="b", more=large) is None
    world.later(1000)
    world.later(1000)
    world.generation = 1
    leader, _ = world.sync("m1", None, {"m1": bytes(10_000)})
    assert world.answers()[leader].code is ErrorCode.UNKNOWN_SERVER_ERROR, "nor is it assigned more"
    settle(world)
    assert not world.groups._held_bytes._held


class Commits:
    """Clients that commit under names of groups that nobody is in."""

    def __init__(self):
        self.groups = Groups()
        self.tickets = itertools.count(1)

    def send(self, owner, group, *places, text=""):
        """A commit that stays on its way: its ticket, and what it is answered already."""
        ticket = next(self.tickets)
        offsets = {Place("s", each): Committed(1, metadata=text) for each in places}
        (effect,) = commit_alone(self.groups, ticket, group, offsets, owner=owner)
        return ticket, [*effect.outcome.codes.values()] if isinstance(effect, Answer) else None

    def commit(self, owner, group, *places, text=""):
        """What a client hears of each place."""
        ticket, codes = self.send(owner, group, *places, text=text)
        return codes if codes is not None else self.end(Stored(ticket, group))

    def end(self, event):
        (answer,) = self.groups.handle(event, NOW)
        return [*answer.outcome.codes.values()]

    def forget(self, group):
        (append,) = self.groups.handle(DeleteGroup(next(self.tickets), group), NOW)
        self.groups.handle(Stored(append.ticket, group), NOW)


@pytest.fixture
def commits(monkeypatch):
    monkeypatch.setattr(limits, "OFFSETS_OWNED_MAX", 3)
    monkeypatch.setattr(limits, "OFFSETS_METADATA_OWNED_BYTES_MAX", 10)
    return Commits()


def test_who_has_its_share_of_offsets_commits_for_no_more_and_others_do(commits):
    assert commits.commit(ALICE, "a1", 0, 1) == [OK, OK]
    assert commits.commit(ALICE, "a2", 0, 1) == [OK, FULL]
    assert commits.commit(ALICE, "a1", 0, 1) == [OK, OK], "what is known moves on"
    assert commits.commit(BOB, "b1", 0, 1) == [OK, OK]
    assert commits.commit(BOB, "a1", 2) == [FULL], "it is alice's"
    assert commits.commit(ALICE, "b1", 2) == [OK]
    assert commits.commit(BOB, "b2", 0) == [FULL]


def test_what_is_on_its_way_counts_to_a_share_until_it_is_refused(commits):
    first, _ = commits.send(ALICE, "a1", 0, 1)
    second, _ = commits.send(ALICE, "a2", 0)
    assert commits.commit(ALICE, "a3", 0) == [FULL]
    commits.end(Refused(first, "a1", ErrorCode.NOT_COORDINATOR))
    assert commits.commit(ALICE, "a3", 0, 1, 2) == [OK, OK, FULL]
    assert commits.end(Stored(second, "a2")) == [OK]
    assert commits.commit(ALICE, "a4", 0) == [FULL]


def test_offsets_that_are_gone_give_their_room_back(commits):
    assert commits.commit(ALICE, "a1", 0, 1, 2) == [OK] * 3
    commits.forget("a1")
    assert not commits.groups._offsets._places._held
    assert commits.commit(BOB, "a1", 0, 1, 2) == [OK] * 3, "whose it is now"
    assert commits.commit(ALICE, "a2", 0, 1, 2) == [OK] * 3
    commits.groups.handle(StreamDeleted("s"), NOW)
    assert not commits.groups._offsets._owners
    assert commits.commit(BOB, "a2", 0, 1, 2) == [OK] * 3


def test_texts_beside_offsets_have_a_share_too(commits):
    assert commits.commit(ALICE, "a1", 0, text="x" * 10) == [OK]
    assert commits.commit(ALICE, "a2", 0, text="x") == [FULL]
    assert commits.commit(BOB, "b1", 0, text="x") == [OK]
    assert commits.commit(ALICE, "a1", 0, text="x" * 9) == [OK]
    assert commits.commit(ALICE, "a2", 0, text="x") == [OK]


def test_what_members_commit_counts_to_who_made_their_group(monkeypatch):
    monkeypatch.setattr(limits, "OFFSETS_OWNED_MAX", 1)
    commits = Commits()
    world = World()
    world.groups = commits.groups
    left(world)
    assert commits.commit(BOB, "g", 0) == [OK], "alice made it"
    assert commits.commit(BOB, "b1", 0) == [OK]
    assert commits.commit(ALICE, "a1", 0) == [FULL]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("owners")
    put_users(folder / "data", {"alice:cart": ["admin"], "bob:cart": []})
    node = RunningNode(folder / "data", HEADRACE_ACCESS__ANONYMOUS="true")
    yield node
    node.close()


def opened(node, who):
    """A connection of a user, or of nobody from an address."""
    if "." in who:
        return RawConnection(node, host=who)
    raw = RawConnection(node)
    raw.call(apis.SASL_HANDSHAKE, SaslHandshakeRequest(mechanism="PLAIN"))
    login = SaslAuthenticateRequest(auth_bytes=f"\0{who}\0cart".encode())
    assert raw.call(apis.SASL_AUTHENTICATE, login).error_code == 0
    return raw


@pytest.mark.slow
@pytest.mark.parametrize(("one", "other"), [("alice", "bob"), ("127.0.0.1", "127.0.0.2")])
def test_one_client_does_not_take_the_groups_of_all(guarded, one, other):
    refused = 'headrace_kafka_group_refused_total{reason="policy_violation"}'
    before = guarded.metrics(**basic("alice:cart")).get(refused, 0)

    def joins(raw, number):
        body = join_request(f"{one}-{number}", session_ms=600_000)
        return raw.call(apis.JOIN_GROUP, body).error_code

    with opened(guarded, one) as raw, opened(guarded, other) as neighbour:
        codes = {joins(raw, number) for number in range(limits.GROUPS_OWNED_MAX)}
        assert codes == {ErrorCode.MEMBER_ID_REQUIRED}
        assert joins(raw, "more") == ErrorCode.POLICY_VIOLATION
        with opened(guarded, one) as again:
            assert joins(again, "more") == ErrorCode.POLICY_VIOLATION
        assert joins(neighbour, "more") == ErrorCode.MEMBER_ID_REQUIRED
    assert guarded.metrics(**basic("alice:cart"))[refused] == before + 2


@pytest.mark.slow
@pytest.mark.parametrize(("one", "other"), [("alice", "bob"), ("127.0.0.1", "127.0.0.2")])
def test_one_client_does_not_take_the_commits_of_all(guarded, one, other):
    text, partitions = "x" * limits.OFFSET_METADATA_BYTES_MAX, 64
    enough = limits.OFFSETS_METADATA_OWNED_BYTES_MAX // len(text) // partitions
    body = {"name": f"of-{one}", "partitions": partitions}
    assert guarded.call("POST", "/api/v1/streams", body, **basic("alice:cart"))[0] == 201
    places = {(body["name"], each): (1, text) for each in range(partitions)}
    (first, *_) = places
    with opened(guarded, one) as raw, opened(guarded, other) as neighbour:
        for number in range(enough):
            assert set(commit(raw, f"{one}-kept-{number}", places)) == {OK}
        assert commit(raw, f"{one}-kept-more", {first: (1, "x")}) == [FULL]
        assert commit(neighbour, f"{one}-kept-more", {first: (1, "x")}) == [OK]
