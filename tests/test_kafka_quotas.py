"""Quotas of Kafka clients: the machine in virtual time, then a node and clients beyond them."""

import asyncio
import signal

import aiokafka
import confluent_kafka
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import headrace, wait_for
from headrace import limits
from headrace.kernel.quotas import NAME_CHARS_MAX, Quota, Quotas, Rate
from headrace.wire.kafka import apis
from headrace.wire.kafka import messages as m
from headrace.wire.kafka.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from kafkaraw import RawConnection, batch, values
from test_access import ADMIN, basic, put_users

# --- the machine ---------------------------------------------------------------------------------

EACH_USER = Quota(users=("*",), produced=1000)


def test_a_second_is_granted_and_debt_is_waited_for():
    quotas = Quotas([EACH_USER])
    assert quotas.charge("ann", "c", Rate.PRODUCED, 1000, 0) == 0
    assert quotas.charge("ann", "c", Rate.PRODUCED, 500, 0) == 500
    assert quotas.charge("ann", "c", Rate.PRODUCED, 500, 1000) == 0, (
        "the debt is paid, half is left"
    )
    assert quotas.charge("ann", "c", Rate.PRODUCED, 1, 1000) == 1
    assert quotas.charge("ann", "c", Rate.FETCHED, 10**9, 1000) == 0, "another rate has no bound"
    assert quotas.charge("ann", "c", Rate.PRODUCED, 1100, 10**6) == 100, (
        "a long pause saves no more"
    )


def test_no_wait_is_longer_than_clients_wait_and_the_rest_stays():
    quotas = Quotas([EACH_USER])
    most = limits.KAFKA_THROTTLE_MS_MAX
    assert quotas.charge("ann", "", Rate.PRODUCED, 1_000_000, 0) == most
    assert quotas.charge("ann", "", Rate.PRODUCED, 0, most) == most
    assert quotas.charge("ann", "", Rate.PRODUCED, 0, 999_000) == 0


def test_who_is_named_the_same_shares_and_nobody_else():
    quotas = Quotas(
        [
            Quota(users=("ann",), clients=("batch-*",), produced=10),
            Quota(clients=("free",), produced=10**9),
            Quota(users=("a*",), produced=100),
            Quota(clients=("*",), produced=1000),
        ]
    )

    def charge(user, client, amount):
        return quotas.charge(user, client, Rate.PRODUCED, amount, 0)

    assert charge("ann", "batch-1", 11) == 100
    assert charge("ann", "batch-2", 10) == 0, "another client id, so another bucket"
    assert charge("ann", "free", 10_000) == 0
    assert charge("ann", "x", 60) == 0
    assert charge("ann", "y", 60) == 200, "a user's own, whatever the client id"
    assert charge("adam", "y", 60) == 0
    assert charge("bob", "y", 600) == 0
    assert charge("", "y", 600) == 200, "a client id's own, whoever it is"


def test_other_quotas_hold_at_once_and_what_stays_knows_what_was_used():
    stays = Quota(clients=("a",), requests=1)
    quotas = Quotas([stays, Quota(clients=("b",), requests=1)])
    for client in "ab":
        assert quotas.charge("", client, Rate.REQUESTS, 1, 0) == 0
    quotas.configure([stays, Quota(clients=("b",), requests=2)])
    assert quotas.charge("", "a", Rate.REQUESTS, 1, 0) == 1000
    assert quotas.charge("", "b", Rate.REQUESTS, 2, 0) == 0
    quotas.configure([])
    assert quotas.charge("", "a", Rate.REQUESTS, 1, 0) == 0
    assert len(quotas) == 0


def test_client_ids_that_come_and_go_take_no_memory(monkeypatch):
    monkeypatch.setattr(limits, "KAFKA_QUOTA_BUCKETS_MAX", 10)
    quotas = Quotas([Quota(clients=("*",), requests=10)])
    for number in range(1000):
        quotas.charge("", f"c{number}", Rate.REQUESTS, 1, number * 1000)
        assert len(quotas) <= 10
    for number in range(1000):
        quotas.charge("", f"d{number}", Rate.REQUESTS, 100, 10**6)
        assert len(quotas) <= 10


def test_a_client_id_of_any_length_is_known_by_few_letters():
    quotas = Quotas([Quota(clients=("*",), requests=10)])
    long = "x" * 30_000
    waits = [quotas.charge("", long + "a", Rate.REQUESTS, 1, 0) for _ in range(11)]
    assert waits == [0] * 10 + [100]
    assert quotas.charge("", long + "b", Rate.REQUESTS, 1, 0) == 0
    assert {len(key.client) for key in quotas._buckets} == {NAME_CHARS_MAX}


@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 3000)), max_size=50))
def test_whoever_waits_as_told_gets_no_more_than_the_rate(asked):
    quotas, now_ms, taken = Quotas([EACH_USER]), 0, 0
    for amount, pause_ms in asked:
        throttle_ms = quotas.charge("ann", "", Rate.PRODUCED, amount, now_ms)
        taken += amount
        assert taken <= 1000 + (now_ms + throttle_ms) * 1000 / 1000, (
            "the rate, and a second's grant"
        )
        now_ms += throttle_ms + pause_ms


# --- the door ------------------------------------------------------------------------------------

BOUNDED = """
[[kafka.quotas]]
clients = ["bytes"]
producer_byte_rate = "100kB"
consumer_byte_rate = "100kB"

[[kafka.quotas]]
clients = ["many"]
request_rate = 2
"""


@pytest.fixture
def bounded(start_node, tmp_path):
    file = tmp_path / "headrace.toml"
    file.write_text(BOUNDED)
    node = start_node("--config", str(file))
    node.create_stream("s")
    return node


def throttled(node):
    return {
        rate: node.metrics()[f'headrace_kafka_throttled_total{{reason="{rate}"}}'] for rate in Rate
    }


@pytest.mark.setting("kafka.quotas")
@pytest.mark.slow
def test_who_asks_for_more_is_told_and_not_read_meanwhile(bounded):
    with RawConnection(bounded, "bytes") as one, RawConnection(bounded) as other:
        asked = m.ProducePartition(index=0, records=batch(b"x" * 150_000))
        body = m.ProduceRequest(
            acks=-1, timeout_ms=30_000, topics=[m.ProduceTopic(name="s", partitions=[asked])]
        )
        assert 0 < one.call(apis.PRODUCE, body).throttle_time_ms <= 600
        assert other.call(apis.PRODUCE, body).throttle_time_ms == 0, "nobody else waits"
        # It is read again when its time is up, and what came meanwhile is not lost.
        sent = [one.send(apis.PRODUCE, body) for _ in range(3)]
        answers = [one.receive(each) for each in sent]
        assert all(each.throttle_time_ms > 0 for each in answers)
        assert bounded.ends("s") == [5]
        fetched = one.receive(one.send_fetch("s", {0: 0}))
        assert len(values(fetched.topics[0].partitions[0].records)) == 5
        assert fetched.throttle_time_ms > 0
    counts = throttled(bounded)
    assert (counts[Rate.PRODUCED], counts[Rate.FETCHED], counts[Rate.REQUESTS]) == (4, 1, 0)
    seconds = bounded.metrics()['headrace_kafka_throttled_seconds_total{reason="produced"}']
    assert seconds >= 2, "each is half a second beyond what a full bucket holds"


@pytest.mark.slow
def test_requests_are_bounded_and_a_reload_changes_by_how_much(bounded, tmp_path):
    with RawConnection(bounded, "many") as one:

        def most(count):
            sent = [one.send(apis.METADATA, m.MetadataRequest(topics=[])) for _ in range(count)]
            return max(one.receive(each).throttle_time_ms for each in sent)

        assert most(8) > 0
        (tmp_path / "headrace.toml").write_text(BOUNDED.replace("= 2\n", "= 1000000\n"))
        bounded.process.send_signal(signal.SIGHUP)
        wait_for(lambda: "reloaded: kafka.quotas" in bounded.log.read_text())
        assert most(200) == 0


@pytest.mark.slow
def test_a_user_has_one_quota_on_all_connections(start_node, tmp_path):
    put_users(tmp_path / "data", {ADMIN: ["admin"], "bob:cart": []})
    file = tmp_path / "headrace.toml"
    file.write_text('[[kafka.quotas]]\nusers = ["bob"]\nrequest_rate = 1\n')
    node = start_node("--config", str(file))

    def most(client_id, login):
        """The longest wait that one more connection is told of, in four requests."""
        with RawConnection(node, client_id) as raw:
            raw.call(apis.SASL_HANDSHAKE, SaslHandshakeRequest(mechanism="PLAIN"))
            raw.call(apis.SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=login))
            asked = m.MetadataRequest(topics=[])
            sent = [raw.send(apis.METADATA, asked) for _ in range(4)]
            return max(raw.receive(each).throttle_time_ms for each in sent)

    bob = b"\0bob\0cart"
    assert most("one", bob) > 0
    assert most("two", bob) > 0
    assert most("one", b"\0ann\0horse") == 0
    counted = 'headrace_kafka_throttled_total{reason="requests"}'
    _, told = node.call("GET", "/metrics", **basic(ADMIN))
    assert f"{counted} 0.0" not in told
    assert counted in told


@pytest.mark.slow
def test_a_new_connection_owes_what_the_one_before_did(bounded):
    for rate in (Rate.PRODUCED, Rate.FETCHED):
        before = throttled(bounded)[rate]
        for _ in range(3):
            with RawConnection(bounded, "bytes") as one:
                if rate is Rate.PRODUCED:
                    assert one.produce("s", batch(b"x" * 150_000)).error_code == 0
                else:
                    one.fetch("s", {0: 0})
        held = throttled(bounded)[rate] - before
        assert held > 3, "each is told that it was beyond the rate, and all but the first waited"


@pytest.mark.slow
def test_who_has_not_logged_in_holds_up_nobody_who_does(start_node, tmp_path):
    put_users(tmp_path / "data", {ADMIN: ["admin"]})
    file = tmp_path / "headrace.toml"
    file.write_text(
        '[[kafka.quotas]]\nclients = ["*"]\nrequest_rate = 1\nproducer_byte_rate = "1kB"\n'
    )
    node = start_node("--config", str(file))
    with RawConnection(node) as nobody:
        asked = [nobody.send(apis.API_VERSIONS, m.ApiVersionsRequest()) for _ in range(50)]
        assert max(nobody.receive(each).throttle_time_ms for each in asked) == 0
        nobody.send_produce("s", batch(b"x" * 100_000))
        assert nobody.is_closed()
    with RawConnection(node) as raw:
        raw.call(apis.SASL_HANDSHAKE, SaslHandshakeRequest(mechanism="PLAIN"))
        raw.call(apis.SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=b"\0ann\0horse"))
        sent = [raw.send(apis.API_VERSIONS, m.ApiVersionsRequest()) for _ in range(2)]
        answered = [raw.receive(each).throttle_time_ms for each in sent]
        assert answered[0] == 0, "nothing was asked before"
        assert answered[1] > 0, "who has logged in is bounded in this, too"


@pytest.mark.slow
def test_a_producer_without_acks_is_held_as_well(bounded):
    with RawConnection(bounded, "bytes") as one:
        for _ in range(2):
            one.send_produce("s", batch(b"x" * 150_000), acks=0)
        wait_for(lambda: bounded.ends("s") == [2])
    assert throttled(bounded)[Rate.PRODUCED] == 2


@pytest.mark.shows("confluent-kafka", "quotas")
@pytest.mark.shows("aiokafka", "quotas")
@pytest.mark.clients
@pytest.mark.slow
async def test_clients_obey_and_lose_nothing(bounded):
    told = []
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bounded.servers,
            "client.id": "bytes",
            "throttle_cb": told.append,
            "batch.size": 40_000,
        }
    )
    for _ in range(500):
        producer.produce("s", b"x" * 1000)
        producer.poll(0)
    assert await asyncio.to_thread(producer.flush, 60) == 0
    assert told, "librdkafka heard that it asks for too much"
    consumer = aiokafka.AIOKafkaConsumer(
        "s", bootstrap_servers=bounded.servers, client_id="bytes", auto_offset_reset="earliest"
    )
    async with consumer, asyncio.timeout(60):
        got = [await consumer.getone() for _ in range(500)]
    assert [each.offset for each in got] == list(range(500))


@pytest.mark.parametrize(
    ("quota", "why"),
    [
        ('users = ["ann"]', "producer_byte_rate, consumer_byte_rate and request_rate"),
        ("request_rate = 1", "names users or clients"),
        ('clients = ["c"]\nrequest_rate = "many"', "must be a whole number"),
        ('clients = ["c"]\nproducer_rate = 1', "did you mean"),
    ],
)
def test_a_quota_that_bounds_nothing_is_refused(tmp_path, quota, why):
    file = tmp_path / "headrace.toml"
    file.write_text(f"[[kafka.quotas]]\n{quota}\n")
    done = headrace("config", "check", "--config", str(file))
    assert done.returncode == 2
    assert why in done.stderr
    assert f"{file}:" in done.stderr
