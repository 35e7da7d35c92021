"""SASL at the Kafka door, and rules of streams, with the clients that people use."""

import asyncio
import signal
import subprocess

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic
from kafka import KafkaProducer

from conftest import RunningNode, wait_for
from headrace.wire.kafka import admin as of_admin
from headrace.wire.kafka import apis
from headrace.wire.kafka import groups as g
from headrace.wire.kafka import members as of
from headrace.wire.kafka import messages as m
from headrace.wire.kafka.errors import ErrorCode
from headrace.wire.kafka.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from kafkaraw import RawConnection, batch
from test_access import ADMIN, basic, put_users

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]

RULES = """
[[access.rules]]
allow = ["all"]
roles = ["admin"]
[[access.rules]]
allow = ["read", "write"]
users = ["bob"]
streams = ["bob-*"]
[[access.rules]]
allow = ["read"]
streams = ["open"]
[[access.rules]]
allow = ["describe"]
streams = ["seen"]
"""

pytestmark = [pytest.mark.clients, pytest.mark.slow]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kafka")
    put_users(folder / "data", {ADMIN: ["admin"], "bob:cart": []})
    rules = folder / "headrace.toml"
    rules.write_text(RULES)
    node = RunningNode(folder / "data", "--config", str(rules))
    for name in ("bob-1", "open", "seen", "closed"):
        assert node.call("POST", "/api/v1/streams", {"name": name}, **basic(ADMIN))[0] == 201
    yield node
    node.close()


def settings(node, who: str, mechanism: str = "PLAIN") -> dict[str, str]:
    name, _, password = who.partition(":")
    return {
        "bootstrap.servers": node.servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": name,
        "sasl.password": password,
    }


def produced(node, who: str, topic: str, mechanism: str = "PLAIN") -> str:
    """What became of a record: the name of the error, or nothing."""
    ends = []
    producer = Producer(settings(node, who, mechanism) | {"message.timeout.ms": "60000"})
    producer.produce(topic, b"x", on_delivery=lambda error, _: ends.append(error))
    assert producer.flush(60) == 0
    return ends[0].name() if ends[0] else ""


@pytest.mark.shows("confluent-kafka", "PLAIN SCRAM-SHA-256 SCRAM-SHA-512")
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_confluent_kafka_is_let_in_by_each_mechanism(guarded, mechanism):
    assert produced(guarded, "bob:cart", "bob-1", mechanism) == ""


@pytest.mark.shows("kcat", "PLAIN SCRAM-SHA-256 SCRAM-SHA-512")
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kcat_is_let_in_by_each_mechanism(guarded, mechanism):
    known = settings(guarded, "bob:cart", mechanism)
    options = [part for name, value in known.items() for part in ("-X", f"{name}={value}")]
    done = subprocess.run(
        ["kcat", *options, "-P", "-t", "bob-1"],
        capture_output=True, check=False, input="x\n", text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.shows("kafka-python", "PLAIN SCRAM-SHA-256 SCRAM-SHA-512")
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_is_let_in_by_each_mechanism(guarded, mechanism):
    producer = KafkaProducer(
        bootstrap_servers=guarded.servers,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_plain_username="bob",
        sasl_plain_password="cart",
    )
    assert producer.send("bob-1", b"x").get(30).offset >= 0
    producer.close()


@pytest.mark.shows("aiokafka", "PLAIN SCRAM-SHA-256 SCRAM-SHA-512")
@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_aiokafka_is_let_in_by_each_mechanism(guarded, mechanism):
    producer = AIOKafkaProducer(
        bootstrap_servers=guarded.servers,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_plain_username="bob",
        sasl_plain_password="cart",
    )
    async with asyncio.timeout(60), producer:
        assert (await producer.send_and_wait("bob-1", b"x")).offset >= 0


def test_the_node_s_own_streams_are_for_admins_alone(tmp_path):
    put_users(tmp_path / "data", {ADMIN: ["admin"], "bob:cart": []})
    rules = tmp_path / "headrace.toml"
    rules.write_text('[[access.rules]]\nallow = ["all"]\n')
    node = RunningNode(tmp_path / "data", "--config", str(rules))

    def seen(login):
        with RawConnection(node) as raw:
            raw.call(apis.SASL_HANDSHAKE, SaslHandshakeRequest(mechanism="PLAIN"))
            raw.call(apis.SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=login))
            everything = raw.call(apis.METADATA, m.MetadataRequest(topics=None)).topics
            listed = {each.name for each in everything}
            fetched = raw.fetch("__mqtt", {0: 0}, max_wait_ms=0)[0].error_code
            configs = of_admin.DescribeConfigsResource(resource_type=2, resource_name="__mqtt")
            asked = of_admin.DescribeConfigsRequest(resources=[configs])
            told = raw.call(apis.DESCRIBE_CONFIGS, asked).results[0].error_code
            return "__mqtt" in listed, fetched, told

    try:
        denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert seen(b"\0ann\0horse") == (True, 0, 0)
        assert seen(b"\0bob\0cart") == (False, denied, denied)
    finally:
        node.close()


def test_rules_say_which_streams_may_be_written_and_read(guarded):
    denied = "TOPIC_AUTHORIZATION_FAILED"
    assert produced(guarded, ADMIN, "closed") == ""
    assert produced(guarded, ADMIN, "open") == ""
    assert produced(guarded, "bob:cart", "closed") == denied
    assert produced(guarded, "bob:cart", "open") == denied
    consumer = Consumer(
        settings(guarded, "bob:cart") | {"group.id": "g", "auto.offset.reset": "earliest"}
    )
    try:
        for topic, wanted in (("open", None), ("seen", KafkaError.TOPIC_AUTHORIZATION_FAILED)):
            consumer.assign([TopicPartition(topic, 0, 0)])
            message = consumer.poll(30)
            error = message.error()
            assert (error and error.code()) == wanted, topic
    finally:
        consumer.close()


def test_who_may_not_describe_a_stream_does_not_learn_that_it_is_there(guarded):
    for who, seen in (("bob:cart", {"bob-1", "open", "seen"}), (ADMIN, {"bob-1", "closed"})):
        listed = set(AdminClient(settings(guarded, who)).list_topics(timeout=30).topics)
        assert (listed == seen) if who != ADMIN else (listed > seen)
    client = AdminClient(settings(guarded, "bob:cart"))
    for topic in ("closed", "none", "open", "bob-2"):
        error = client.list_topics(topic, timeout=30).topics[topic].error
        code = KafkaError.TOPIC_AUTHORIZATION_FAILED
        expected = {"open": None, "bob-2": KafkaError.UNKNOWN_TOPIC_OR_PART}.get(topic, code)
        assert (error and error.code()) == expected, topic
        (future,) = client.describe_configs([ConfigResource("topic", topic)]).values()
        error = future.exception(30)
        assert (error and error.args[0].code()) == expected, topic


def commit(node, who: str, group: str) -> None:
    """Commits an offset of `open`, and asks for it."""
    consumer = Consumer(settings(node, who) | {"group.id": group})
    place = TopicPartition("open", 0, 0)
    consumer.commit(offsets=[place], asynchronous=False)
    (found,) = consumer.committed([place], timeout=30)
    assert found.offset == 0
    consumer.close()


def refusal(node, who: str, group: str) -> int:
    """What a consumer is told whose group is not its user's."""
    consumer = Consumer(settings(node, who) | {"group.id": group})
    try:
        return consumer.poll(30).error().code()
    finally:
        consumer.close()


def of_members(group):
    """What members of a group ask, of one that does not know them, and one OffsetDelete."""
    joins = of.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=1,
        member_id="x",
        protocol_type="consumer",
        protocols=[],
    )
    who = {"group_id": group, "generation_id": 1, "member_id": "x"}
    return [
        (apis.JOIN_GROUP, joins),
        (apis.SYNC_GROUP, of.SyncGroupRequest(**who, assignments=[])),
        (apis.HEARTBEAT, of.HeartbeatRequest(**who)),
        (apis.LEAVE_GROUP, of.LeaveGroupRequest(group_id=group, member_id="x"), 2),
        (apis.OFFSET_DELETE, of.OffsetDeleteRequest(group_id=group, topics=[])),
    ]


def test_a_consumer_group_is_for_who_may_read_in_it(start_node, tmp_path):
    put_users(tmp_path / "data", {ADMIN: ["admin"], "bob:cart": []})
    file = tmp_path / "headrace.toml"
    file.write_text(RULES)
    node = start_node("--config", str(file))
    assert node.call("POST", "/api/v1/streams", {"name": "open"}, **basic(ADMIN))[0] == 201
    commit(node, "bob:cart", "any")  # as no rule names groups
    own = '[[access.rules]]\nallow = ["read"]\ngroups = ["{username}-*"]\n'
    file.write_text(RULES + own)
    node.process.send_signal(signal.SIGHUP)
    wait_for(lambda: "reloaded: access.rules" in node.log.read_text())
    commit(node, "bob:cart", "bob-1")
    commit(node, ADMIN, "any")
    assert refusal(node, "bob:cart", "any") == KafkaError.GROUP_AUTHORIZATION_FAILED
    with RawConnection(node) as raw:
        raw.call(apis.SASL_HANDSHAKE, SaslHandshakeRequest(mechanism="PLAIN"))
        raw.call(apis.SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=b"\0bob\0cart"))
        topics = [g.OffsetFetchTopic(name="open", partition_indexes=[0])]
        answer = raw.call(apis.OFFSET_FETCH, g.OffsetFetchRequest(group_id="any", topics=topics))
        assert answer.error_code == 30
        assert answer.topics[0].partitions[0].error_code == 30
        part = g.OffsetCommitPartition(partition_index=0, committed_offset=0)
        request = g.OffsetCommitRequest(
            group_id="any", topics=[g.OffsetCommitTopic(name="open", partitions=[part])]
        )
        answer = raw.call(apis.OFFSET_COMMIT, request)
        assert answer.topics[0].partitions[0].error_code == 30
        answer = raw.call(apis.FIND_COORDINATOR, g.FindCoordinatorRequest(key="any"))
        assert answer.error_code == 30
        assert [raw.call(*each).error_code for each in of_members("any")] == [30] * 5
        answer = raw.call(apis.DESCRIBE_GROUPS, of.DescribeGroupsRequest(groups=["any", "bob-1"]))
        codes = {each.group_id: each.error_code for each in answer.groups}
        assert codes == {"any": 30, "bob-1": 0}
        listed = raw.call(apis.LIST_GROUPS, of.ListGroupsRequest()).groups
        assert [each.group_id for each in listed] == ["bob-1"]
        answer = raw.call(apis.DELETE_GROUPS, of.DeleteGroupsRequest(groups_names=["bob-1"]))
        assert [each.error_code for each in answer.results] == [30], "that needs the role admin"
        allowed = [raw.call(*each).error_code for each in of_members("bob-1")]
        assert 30 not in allowed
        admin = AdminClient(settings(node, ADMIN))
        assert admin.delete_consumer_groups(["bob-1"])["bob-1"].result(30) is None
    _, told = node.call("GET", "/metrics", **basic(ADMIN))
    assert 'headrace_kafka_denied_total{reason="group",request="OffsetCommit"} 1.0' in told


def test_changing_streams_needs_the_role_admin(guarded):
    for who, code in ((ADMIN, None), ("bob:cart", KafkaError.TOPIC_AUTHORIZATION_FAILED)):
        client = AdminClient(settings(guarded, who))
        name = f"made-by-{who[:3]}"
        for future in (
            client.create_topics([NewTopic(name, 1, 1)])[name],
            client.delete_topics([name])[name],
        ):
            error = future.exception(30)
            assert (error and error.args[0].code()) == code, who


@pytest.mark.parametrize(
    ("who", "topic", "cluster"),
    [
        (ADMIN, {"bob-1": "read write create delete alter describe", "open": "read write"}, True),
        ("bob:cart", {"bob-1": "read write describe", "open": "read describe"}, False),
    ],
)
def test_a_client_learns_what_it_may_do(guarded, who, topic, cluster):
    with RawConnection(guarded) as raw:
        name, _, password = who.partition(":")
        login = b"\0%s\0%s" % (name.encode(), password.encode())
        raw.call(apis.SASL_HANDSHAKE, SaslHandshakeRequest(mechanism="PLAIN"))
        raw.call(apis.SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=login))
        asked = m.MetadataRequest(
            topics=[m.MetadataRequestTopic(name=name) for name in (*topic, "closed")],
            include_topic_authorized_operations=True,
            include_cluster_authorized_operations=True,
        )
        answer = raw.call(apis.METADATA, asked)
        bits = {"read": 3, "write": 4, "create": 5, "delete": 6, "alter": 7, "describe": 8}
        for each in answer.topics:
            if each.name in topic:
                told = {
                    word
                    for word, bit in bits.items()
                    if each.topic_authorized_operations >> bit & 1
                }
                assert told >= set(topic[each.name].split())
                assert ("delete" in told) == cluster
                assert ("write" in told) == ("write" in topic[each.name])
            else:
                assert (each.error_code == 29) == (not cluster)
        assert bool(answer.cluster_authorized_operations & 1 << bits["create"]) == cluster
        part = m.EpochPartition(partition=0, leader_epoch=0)
        ends = m.OffsetForLeaderEpochRequest(
            topics=[m.EpochTopic(topic=name, partitions=[part]) for name in ("open", "closed")]
        )
        topics = raw.call(apis.OFFSET_FOR_LEADER_EPOCH, ends).topics
        codes = {each.topic: each.partitions[0].error_code for each in topics}
        assert codes == {"open": 0, "closed": 0 if cluster else 29}
        grow = of_admin.CreatePartitionsRequest(
            topics=[of_admin.CreatePartitionsTopic(name="bob-1", count=2)],
            timeout_ms=1,
            validate_only=True,
        )
        (result,) = raw.call(apis.CREATE_PARTITIONS, grow).results
        assert result.error_code == (0 if cluster else 29)
        folders = raw.call(apis.DESCRIBE_LOG_DIRS, of_admin.DescribeLogDirsRequest(topics=None))
        assert len(folders.results) == cluster


def test_nothing_is_answered_before_a_client_is_known(guarded):
    with RawConnection(guarded) as raw:
        answer = raw.call(apis.API_VERSIONS, m.ApiVersionsRequest(), 0)
        assert answer.error_code == 0
        raw.send(apis.METADATA, m.MetadataRequest(topics=None))
        assert raw.socket.recv(1) == b""
    with RawConnection(guarded) as raw:
        topic = m.ProduceTopic(
            name="bob-1", partitions=[m.ProducePartition(index=0, records=batch(b"x"))]
        )
        raw.send(apis.PRODUCE, m.ProduceRequest(acks=0, timeout_ms=1, topics=[topic]))
        assert raw.socket.recv(1) == b""
    text = guarded.call("GET", "/metrics", **basic(ADMIN))[1]
    assert 'headrace_access_refused_total{door="kafka",reason="anonymous"} 2.0' in text


@pytest.mark.parametrize("first", [b"", b"n,,n=bob", b"p=x,,n=bob,r=abc", b"\xff"])
def test_an_exchange_that_was_refused_begins_anew(guarded, first):
    with RawConnection(guarded) as raw:

        def ask(message):
            answer = raw.call(apis.SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=message))
            return answer.error_code, answer.error_message

        handshake = SaslHandshakeRequest(mechanism="SCRAM-SHA-256")
        raw.call(apis.SASL_HANDSHAKE, handshake)
        assert ask(first)[0] == ErrorCode.SASL_AUTHENTICATION_FAILED
        refusal = ErrorCode.SASL_AUTHENTICATION_FAILED, "SaslHandshake comes first"
        assert ask(b"c=biws,r=abc,p=AAAA") == refusal
        raw.call(apis.SASL_HANDSHAKE, handshake)
        assert ask(b"n,,n=bob,r=abc") == (0, None)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_last_one_a_wrong_password_lets_nobody_in(guarded, mechanism):
    """Last, for the client tries again and again, and its address must wait then."""
    refused = AdminClient(settings(guarded, "bob:no", mechanism) | {"error_cb": lambda _: None})
    with pytest.raises(KafkaException):
        refused.list_topics(timeout=2)
