"""SASL at the Kafka door, and rules of streams, with the clients that people use."""

import asyncio

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaProducer

from conftest import RunningNode
from headrace.wire.kafka import apis
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
"""

pytestmark = pytest.mark.clients


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kafka")
    put_users(folder / "data", {ADMIN: ["admin"], "bob:cart": []})
    rules = folder / "headrace.toml"
    rules.write_text(RULES)
    node = RunningNode(folder / "data", "--config", str(rules))
    for name in ("bob-1", "open", "closed"):
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


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_confluent_kafka_is_let_in_by_each_mechanism(guarded, mechanism):
    assert produced(guarded, "bob:cart", "bob-1", mechanism) == ""


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
        for topic, wanted in (("open", None), ("closed", KafkaError.TOPIC_AUTHORIZATION_FAILED)):
            consumer.assign([TopicPartition(topic, 0, 0)])
            message = consumer.poll(30)
            error = message.error()
            assert (error and error.code()) == wanted, topic
    finally:
        consumer.close()


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
