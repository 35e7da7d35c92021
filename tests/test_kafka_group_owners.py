"""One client has a share of what groups may take of a node, and others go on."""

import pytest

from conftest import RunningNode
from groupworld import World, delete, leave, settle, ticket
from headrace import limits
from headrace.kernel.groups.events import Append, Configured, GroupSettings, Now, Replayed, Stored
from headrace.kernel.groups.owners import owner_of
from headrace.wire.kafka import apis
from headrace.wire.kafka.errors import ErrorCode
from headrace.wire.kafka.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from kafkaraw import RawConnection
from test_access import basic, put_users
from test_kafka_group_bounds import ask
from test_kafka_members import join_request

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
                again.groups.handle(Replayed(record), Now(0, 0))
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
