"""Members of groups at the Kafka door, request by request: who joins, who is fenced, what lasts."""

from contextlib import ExitStack

import pytest

from conftest import RunningNode, wait_for
from headrace.wire.kafka import admin, apis
from headrace.wire.kafka import groups as g
from headrace.wire.kafka import members as m
from headrace.wire.kafka.codec import encode
from headrace.wire.kafka.errors import ErrorCode
from kafkaraw import RawConnection

pytestmark = pytest.mark.slow

AT_ONCE = {"HEADRACE_KAFKA__GROUP_INITIAL_REBALANCE_DELAY": "0s"}
SAID = encode(m.ConsumerSubscription(version=0, topics=["s"]))


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    node = RunningNode(tmp_path_factory.mktemp("members") / "data", **AT_ONCE)
    node.create_stream("s", partitions=2)
    yield node
    node.close()


@pytest.fixture
def group(request):
    return request.node.name


def join_request(group, member="", instance=None, session_ms=10_000, protocols=("range",), **more):
    return m.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=more.pop("rebalance_ms", 20_000),
        member_id=member,
        group_instance_id=instance,
        protocol_type=more.pop("kind", "consumer"),
        protocols=[m.JoinGroupProtocol(name=name, metadata=SAID) for name in protocols],
    )


def join(raw, group, version=None, **more):
    """Joins, with the id that a new member is given first."""
    body = join_request(group, **more)
    answer = raw.call(apis.JOIN_GROUP, body, version)
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        body.member_id = answer.member_id
        answer = raw.call(apis.JOIN_GROUP, body, version)
    return answer


def sync(raw, group, joined, assignments=None, instance=None, version=None):
    return raw.call(
        apis.SYNC_GROUP,
        m.SyncGroupRequest(
            group_id=group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id=instance,
            assignments=[
                m.SyncGroupAssignment(member_id=member, assignment=assignment)
                for member, assignment in (assignments or {}).items()
            ],
        ),
        version,
    )


def alone(raw, group, assignment=b"all", **more):
    """A group of one member that has its assignment; how it joined."""
    joined = join(raw, group, **more)
    assert joined.error_code == 0
    synced = sync(raw, group, joined, {joined.member_id: assignment}, more.get("instance"))
    assert (synced.error_code, synced.assignment) == (0, assignment)
    return joined


def heartbeat(raw, group, joined, instance=None, version=None, generation=None):
    body = m.HeartbeatRequest(
        group_id=group,
        generation_id=joined.generation_id if generation is None else generation,
        member_id=joined.member_id,
        group_instance_id=instance,
    )
    return raw.call(apis.HEARTBEAT, body, version).error_code


def commit(raw, group, joined=None, instance=None, offset=1, version=None):
    partition = g.OffsetCommitPartition(partition_index=0, committed_offset=offset)
    body = g.OffsetCommitRequest(
        group_id=group,
        generation_id=-1 if joined is None else joined.generation_id,
        member_id="" if joined is None else joined.member_id,
        group_instance_id=instance,
        topics=[g.OffsetCommitTopic(name="s", partitions=[partition])],
    )
    return raw.call(apis.OFFSET_COMMIT, body, version).topics[0].partitions[0].error_code


def committed(raw, group):
    asked = [g.OffsetFetchTopic(name="s", partition_indexes=[0])]
    answer = raw.call(apis.OFFSET_FETCH, g.OffsetFetchRequest(group_id=group, topics=asked))
    return answer.topics[0].partitions[0].committed_offset


def leave(raw, group, *who, version=None):
    body = m.LeaveGroupRequest(
        group_id=group,
        member_id=who[0][0],
        members=[m.LeaveGroupMember(member_id=i, group_instance_id=n) for i, n in who],
    )
    answer = raw.call(apis.LEAVE_GROUP, body, version)
    return answer.error_code, [each.error_code for each in answer.members]


def described(raw, group):
    body = m.DescribeGroupsRequest(groups=[group])
    return raw.call(apis.DESCRIBE_GROUPS, body).groups[0]


# --- one member ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
def test_every_version_joins_syncs_beats_and_leaves(raw, group, version):
    joined = join(raw, group, version)
    assert (joined.error_code, joined.generation_id, joined.protocol_name) == (0, 1, "range")
    assert joined.leader == joined.member_id
    assert [each.metadata for each in joined.members] == [SAID]
    older = min(version, 3)
    assert sync(raw, group, joined, {joined.member_id: b"x"}, version=older).assignment == b"x"
    assert heartbeat(raw, group, joined, version=older) == 0
    assert commit(raw, group, joined) == 0
    code, codes = leave(raw, group, (joined.member_id, None), version=older)
    assert code == 0
    assert codes == ([0] if older == 3 else [])
    assert described(raw, group).group_state == "Empty"


def test_from_version_4_on_a_member_must_come_back_with_its_id(raw, group):
    asked = raw.call(apis.JOIN_GROUP, join_request(group), 4)
    assert asked.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert asked.member_id.startswith("raw-")
    assert described(raw, group).members == []
    unknown = raw.call(apis.JOIN_GROUP, join_request(group, member="nobody"))
    assert unknown.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    joined = raw.call(apis.JOIN_GROUP, join_request(group, member=asked.member_id), 4)
    assert (joined.error_code, joined.member_id) == (0, asked.member_id)


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"session_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"kind": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_who_may_not_join_hears_why(raw, group, more, code):
    assert join(raw, group, **more).error_code == code
    assert described(raw, group).group_state == "Dead"


def test_a_group_without_a_name_has_no_members(raw):
    assert join(raw, "").error_code == ErrorCode.INVALID_GROUP_ID
    assert heartbeat(raw, "", m.JoinGroupResponse(members=[])) == ErrorCode.INVALID_GROUP_ID


def test_a_member_says_too_much(raw, group):
    large = join_request(group)
    large.protocols[0].metadata = b"x" * (1 << 20)
    large.group_instance_id = "i"
    assert raw.call(apis.JOIN_GROUP, large).error_code == ErrorCode.POLICY_VIOLATION


def test_other_protocols_do_not_join(node, raw, group):
    alone(raw, group)
    with RawConnection(node) as other:
        for more in ({"protocols": ("sticky",)}, {"kind": "connect"}):
            assert join(other, group, **more).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


# --- several members -----------------------------------------------------------------------------


def test_a_second_member_begins_a_generation_of_both(node, raw, group):
    first = alone(raw, group, protocols=("sticky", "range"))
    with RawConnection(node) as other:
        asked = other.call(apis.JOIN_GROUP, join_request(group, protocols=("range", "sticky")))
        waiting = other.send(
            apis.JOIN_GROUP,
            join_request(group, member=asked.member_id, protocols=("range", "sticky")),
        )
        wait_for(lambda: heartbeat(raw, group, first) == ErrorCode.REBALANCE_IN_PROGRESS)
        assert commit(raw, group, first) == 0, "what was read before is kept"
        again = join(raw, group, member=first.member_id, protocols=("sticky", "range"))
        second = other.receive(waiting)
        assert again.generation_id == second.generation_id == 2
        assert again.leader == second.leader == first.member_id
        assert {each.member_id for each in again.members} == {first.member_id, second.member_id}
        assert second.members == []
        assert commit(raw, group, again) == ErrorCode.REBALANCE_IN_PROGRESS
        assert heartbeat(raw, group, again, generation=1) == ErrorCode.ILLEGAL_GENERATION
        pending = other.send(
            apis.SYNC_GROUP,
            m.SyncGroupRequest(
                group_id=group, generation_id=2, member_id=second.member_id, assignments=[]
            ),
        )
        shared_out = {first.member_id: b"one", second.member_id: b"two"}
        assert sync(raw, group, again, shared_out).assignment == b"one"
        assert other.receive(pending).assignment == b"two"
        assert commit(raw, group, first) == ErrorCode.ILLEGAL_GENERATION
        assert commit(raw, group) == ErrorCode.UNKNOWN_MEMBER_ID, "only members commit"


def test_who_waits_in_a_join_holds_up_its_own_connection_and_no_other(node, raw, group):
    first = alone(raw, group)
    with RawConnection(node) as other:
        asked = other.call(apis.JOIN_GROUP, join_request(group))
        waiting = other.send(apis.JOIN_GROUP, join_request(group, member=asked.member_id))
        behind = other.send(apis.LIST_GROUPS, m.ListGroupsRequest())
        wait_for(lambda: heartbeat(raw, group, first) == ErrorCode.REBALANCE_IN_PROGRESS)
        assert leave(raw, group, (first.member_id, None)) == (0, [0])
        assert other.receive(waiting).error_code == 0, "answers keep the order of requests"
        assert group in {each.group_id for each in other.receive(behind).groups}


def test_a_client_that_hangs_up_while_it_waits_is_no_member(node, raw, group):
    first = alone(raw, group)
    with RawConnection(node) as other:
        other.send(apis.JOIN_GROUP, join_request(group), 3)  # which has no id yet
        wait_for(lambda: heartbeat(raw, group, first) == ErrorCode.REBALANCE_IN_PROGRESS)
    wait_for(lambda: len(described(raw, group).members) == 1)
    assert join(raw, group, member=first.member_id).generation_id == 2


def test_a_member_that_is_silent_is_no_longer_one(start_node):
    node = start_node(**AT_ONCE, HEADRACE_KAFKA__GROUP_MIN_SESSION_TIMEOUT="1s")
    node.create_stream("s")
    with RawConnection(node) as raw:
        joined = alone(raw, "g", session_ms=1000)
        wait_for(lambda: described(raw, "g").group_state == "Empty")
        assert heartbeat(raw, "g", joined) == ErrorCode.UNKNOWN_MEMBER_ID
        assert commit(raw, "g", joined) == ErrorCode.UNKNOWN_MEMBER_ID


def test_members_leave_by_their_ids_or_by_their_instances(raw, group):
    joined = alone(raw, group, instance="i")
    assert leave(raw, group, ("wrong", "i"), ("", "none"), ("nobody", None)) == (
        0,
        [
            ErrorCode.FENCED_INSTANCE_ID,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.UNKNOWN_MEMBER_ID,
        ],
    )
    assert heartbeat(raw, group, joined, "i") == 0
    assert leave(raw, group, ("", "i")) == (0, [0])
    assert heartbeat(raw, group, joined, "i") == ErrorCode.UNKNOWN_MEMBER_ID


# --- static members ------------------------------------------------------------------------------


def test_a_static_member_that_comes_back_reads_on_without_a_rebalance(node, raw, group):
    first = alone(raw, group, instance="i")
    with RawConnection(node) as other:
        again = join(other, group, instance="i")
        assert (again.error_code, again.generation_id) == (0, first.generation_id)
        assert again.member_id != first.member_id
        assert again.leader != again.member_id, "nothing is shared out anew"
        assert sync(other, group, again, instance="i").assignment == b"all"
        assert heartbeat(other, group, again, "i") == 0
        for code in (
            heartbeat(raw, group, first, "i"),
            commit(raw, group, first, "i"),
            sync(raw, group, first, instance="i").error_code,
            join(raw, group, member=first.member_id, instance="i").error_code,
        ):
            assert code == ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_that_wants_something_else_begins_a_generation(raw, group):
    first = alone(raw, group, instance="i")
    other = join_request(group, instance="i")
    other.protocols[0].metadata = encode(m.ConsumerSubscription(version=0, topics=["t"]))
    again = raw.call(apis.JOIN_GROUP, other)
    assert again.generation_id == first.generation_id + 1
    assert again.leader == again.member_id


# --- what lasts ----------------------------------------------------------------------------------


def test_members_go_on_after_the_node_was_killed(start_node):
    node = start_node(**AT_ONCE)
    node.create_stream("s")
    with RawConnection(node) as raw:
        member = alone(raw, "g", b"one", instance="i")
        old = alone(raw, "h", b"two")
        assert commit(raw, "g", member, "i", offset=7) == 0
        new = join(raw, "h", member=old.member_id)
        assert sync(raw, "h", new, {new.member_id: b"more"}).error_code == 0
    node.kill()
    node = start_node.again(node, **AT_ONCE)
    with RawConnection(node) as raw:
        assert heartbeat(raw, "g", member, "i") == 0
        assert committed(raw, "g") == 7
        assert commit(raw, "g", member, "i", offset=8) == 0
        assert sync(raw, "g", member, instance="i").assignment == b"one"
        assert commit(raw, "h", old) == ErrorCode.ILLEGAL_GENERATION, "fenced stays fenced"
        assert sync(raw, "h", new).assignment == b"more"
        again = join(raw, "g", instance="i")
        assert again.generation_id == member.generation_id, "no rebalance"
        assert heartbeat(raw, "g", member, "i") == ErrorCode.FENCED_INSTANCE_ID
    assert node.stop() == 0
    node = start_node.again(node, **AT_ONCE)  # now from the states beside the log
    with RawConnection(node) as raw:
        assert heartbeat(raw, "g", again, "i") == 0
        assert heartbeat(raw, "h", new) == 0
        assert committed(raw, "g") == 8


@pytest.mark.setting("kafka.offsets_retention")
def test_offsets_outlive_the_last_member_for_a_time(start_node):
    node = start_node(**AT_ONCE, HEADRACE_KAFKA__OFFSETS_RETENTION="1s")
    node.create_stream("s")
    with RawConnection(node) as raw:
        member = alone(raw, "members", b"", protocols=("range",))
        assert commit(raw, "members", member) == 0
        assert commit(raw, "nobody") == 0
        wait_for(lambda: committed(raw, "nobody") == -1)
        assert heartbeat(raw, "members", member) == 0
        assert committed(raw, "members") == 1, "it has a member"
        leave(raw, "members", (member.member_id, None))
        wait_for(lambda: described(raw, "members").group_state == "Dead")
        assert committed(raw, "members") == -1
        assert node.metrics()["headrace_kafka_expired_offsets_total"] == 2
    node.kill()
    node = start_node.again(node)
    with RawConnection(node) as raw:
        assert raw.call(apis.LIST_GROUPS, m.ListGroupsRequest()).groups == []


@pytest.mark.setting(
    "kafka.group_min_session_timeout", "kafka.group_max_session_timeout", "kafka.group_max_size"
)
def test_bounds_of_groups_are_settings(start_node):
    node = start_node(
        **AT_ONCE,
        HEADRACE_KAFKA__GROUP_MIN_SESSION_TIMEOUT="1s",
        HEADRACE_KAFKA__GROUP_MAX_SESSION_TIMEOUT="20s",
        HEADRACE_KAFKA__GROUP_MAX_SIZE="1",
    )
    with RawConnection(node) as raw:
        for session_ms in (999, 20_001):
            answer = join(raw, "g", session_ms=session_ms)
            assert answer.error_code == ErrorCode.INVALID_SESSION_TIMEOUT
        alone(raw, "g", session_ms=20_000)
        with RawConnection(node) as other:
            answer = join(other, "g", session_ms=1000)
            assert answer.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    refused = 'headrace_kafka_group_refused_total{reason="group_max_size_reached"}'
    assert node.metrics()[refused] == 1


def test_bounds_of_groups_change_live(start_node, tmp_path):
    file = tmp_path / "headrace.toml"
    file.write_text('[kafka]\ngroup_max_size = 1\ngroup_initial_rebalance_delay = "0s"\n')
    node = start_node("--config", str(file))
    with RawConnection(node) as raw, RawConnection(node) as other:
        member = alone(raw, "g")
        assert join(other, "g").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
        file.write_text("[kafka]\ngroup_max_size = 2\n")
        status, answer = node.call("POST", "/api/v1/config/reload")
        assert (status, set(answer["changed"])) == (
            200, {"kafka.group_max_size", "kafka.group_initial_rebalance_delay"}
        )  # fmt: skip
        asked = other.call(apis.JOIN_GROUP, join_request("g"))
        waiting = other.send(apis.JOIN_GROUP, join_request("g", member=asked.member_id))
        wait_for(lambda: heartbeat(raw, "g", member) == ErrorCode.REBALANCE_IN_PROGRESS)
        assert join(raw, "g", member=member.member_id).generation_id == 2
        assert other.receive(waiting).generation_id == 2


@pytest.mark.setting("kafka.group_initial_rebalance_delay")
def test_a_first_generation_waits_for_those_who_start_together(start_node):
    node = start_node(HEADRACE_KAFKA__GROUP_INITIAL_REBALANCE_DELAY="2s")
    with ExitStack() as stack:
        raws = [stack.enter_context(RawConnection(node)) for _ in range(3)]
        sent = [raw.send(apis.JOIN_GROUP, join_request("g"), 3) for raw in raws]
        joined = [raw.receive(each) for raw, each in zip(raws, sent, strict=True)]
        assert {each.generation_id for each in joined} == {1}
        assert sorted(len(each.members) for each in joined) == [0, 0, 3]


# --- who looks and who deletes -------------------------------------------------------------------


def test_groups_are_listed_and_described(raw, group):
    joined = alone(raw, group, b"what it reads")
    commit(raw, "only-offsets")
    for version in range(3):
        listed = raw.call(apis.LIST_GROUPS, m.ListGroupsRequest(), version).groups
        kinds = {each.group_id: each.protocol_type for each in listed}
        assert (kinds[group], kinds["only-offsets"]) == ("consumer", "")
    for version in range(5):
        names = [group, "only-offsets", "none"]
        body = m.DescribeGroupsRequest(groups=names)
        one, offsets, none = raw.call(apis.DESCRIBE_GROUPS, body, version).groups
        assert (one.group_state, one.protocol_data) == ("Stable", "range")
        (member,) = one.members
        assert (member.member_id, member.client_id, member.client_host) == (
            joined.member_id, "raw", "/127.0.0.1",
        )  # fmt: skip
        assert (member.member_metadata, member.member_assignment) == (SAID, b"what it reads")
        assert (offsets.group_state, none.group_state) == ("Empty", "Dead")


def test_what_a_request_names_again_is_answered_once(raw, group):
    alone(raw, group, b"x" * 100_000)
    commit(raw, f"{group}-offsets")
    asked = m.DescribeGroupsRequest(groups=[group] * 19_000)
    (one,) = raw.call(apis.DESCRIBE_GROUPS, asked).groups
    assert len(one.members[0].member_assignment) == 100_000
    topic = g.OffsetFetchTopic(name="s", partition_indexes=[0] * 2_000)
    asked = g.OffsetFetchRequest(group_id=f"{group}-offsets", topics=[topic])
    (topic,) = raw.call(apis.OFFSET_FETCH, asked).topics
    assert [each.committed_offset for each in topic.partitions] == [1]
    asked = m.DeleteGroupsRequest(groups_names=[group] * 19_000)
    (deleted,) = raw.call(apis.DELETE_GROUPS, asked).results
    assert deleted.error_code == ErrorCode.NON_EMPTY_GROUP
    resource = admin.DescribeConfigsResource(resource_type=2, resource_name="s")
    asked = admin.DescribeConfigsRequest(resources=[resource] * 19_000)
    assert len(raw.call(apis.DESCRIBE_CONFIGS, asked).results) == 1


def test_a_group_with_members_is_not_deleted(raw, group):
    joined = alone(raw, group)
    commit(raw, group, joined)

    def delete(*names, version=1):
        body = m.DeleteGroupsRequest(groups_names=list(names))
        return [each.error_code for each in raw.call(apis.DELETE_GROUPS, body, version).results]

    assert delete(group, "none", version=0) == [
        ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND
    ]  # fmt: skip
    leave(raw, group, (joined.member_id, None))
    assert delete(group) == [0]
    assert delete(group) == [ErrorCode.GROUP_ID_NOT_FOUND]
    assert committed(raw, group) == -1
    assert described(raw, group).group_state == "Dead"


def test_offsets_are_deleted_but_those_that_members_read(node, raw, group):
    node.create_stream(f"other-{group}")

    def delete(name, *partitions):
        asked = [m.OffsetDeletePartition(partition_index=each) for each in partitions]
        topics = [m.OffsetDeleteTopic(name=name, partitions=asked)]
        answer = raw.call(apis.OFFSET_DELETE, m.OffsetDeleteRequest(group_id=group, topics=topics))
        codes = [each.error_code for topic in answer.topics for each in topic.partitions]
        return answer.error_code or codes

    assert delete("s", 0) == ErrorCode.GROUP_ID_NOT_FOUND
    joined = alone(raw, group)
    assert commit(raw, group, joined) == 0
    assert delete("s", 0) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]
    assert delete("s", 9) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert delete(f"other-{group}", 0) == [0]
    leave(raw, group, (joined.member_id, None))
    assert delete("s", 0) == [0]
    assert committed(raw, group) == -1
