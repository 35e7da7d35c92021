"""FetchClient against a real node: what the Spark source asks, and what it lives through."""

import pickle
import socket
import threading

import confluent_kafka
import pytest

from headrace import native
from headrace.client import (
    ConnectionLostError,
    DeadlineError,
    FetchClient,
    OffsetOutOfRangeError,
    RequestError,
    UnknownStreamError,
)
from headrace.errors import ConfigError
from headrace.wire.kafka.errors import ErrorCode
from kafkaraw import RawConnection, batch, values

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def node(shared):
    """Thirty numbers in three partitions, a second apart."""
    shared.create_stream("numbers", partitions=3)
    with RawConnection(shared) as raw:
        for n in range(30):
            stamp = 1_700_000_000_000 + n * 1000
            assert raw.produce("numbers", batch(b"%d" % n, timestamp=stamp), n % 3).error_code == 0
    return shared


@pytest.fixture
def client(node):
    with FetchClient(node.servers, timeout_s=30) as client:
        yield client


@pytest.fixture
def closed_port():
    """A port on which nobody listens, held for the test."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def test_streams_by_pattern(node, client):
    node.create_stream("other-1", partitions=2)
    client.commit_offsets("any", {("numbers", 0): 1})  # makes an internal stream
    assert client.streams("num.*") == {"numbers": 3}
    assert client.streams("numbe") == {}, "the whole name must match"
    assert client.streams() == {"gpu-telemetry": 12, "numbers": 3, "other-1": 2}
    assert client.partitions("numbers") == 3


def test_offsets(client):
    assert client.earliest_offsets("numbers") == {0: 0, 1: 0, 2: 0}
    assert client.latest_offsets("numbers") == {0: 10, 1: 10, 2: 10}
    assert client.offsets_for_time("numbers", 0) == {0: 0, 1: 0, 2: 0}
    assert client.offsets_for_time("numbers", 1_700_000_004_000) == {0: 2, 1: 1, 2: 1}
    assert client.offsets_for_time("numbers", 1_700_000_028_500) == {0: None, 1: None, 2: 9}


def test_new_partitions_are_seen(node, client):
    node.create_stream("growing", partitions=1)
    assert client.latest_offsets("growing") == {0: 0}
    status, _ = node.call("PATCH", "/api/v1/streams/growing", {"partitions": 2})
    assert status == 200
    assert client.latest_offsets("growing") == {0: 0, 1: 0}
    assert client.partitions("growing") == 2


def test_fetch_gives_raw_batches(client):
    records = client.fetch("numbers", 1, 4, 1 << 20, 0)
    columns = native.decode_records(records, 4, 10, 1000)
    assert [value for _, _, _, value, _ in columns.rows()] == [b"%d" % n for n in range(13, 30, 3)]
    assert columns.next_offset == 10
    assert client.fetch("numbers", 1, 10, 1 << 20, 1) == b""


def test_a_batch_larger_than_asked_for_comes_whole(client):
    assert values(client.fetch("numbers", 0, 0, 1, 0)) == [b"0"]


def test_fetch_waits_for_records(node, client):
    node.create_stream("later")
    assert client.fetch("later", 0, 0, 1 << 20, 0) == b""
    got = []
    thread = threading.Thread(
        target=lambda: got.append(client.fetch("later", 0, 0, 1 << 20, 60_000))
    )
    thread.start()
    with RawConnection(node) as raw:
        raw.produce("later", batch(b"x"))
    thread.join(30)
    assert values(got[0]) == [b"x"]


def test_errors_have_codes(client):
    with pytest.raises(OffsetOutOfRangeError, match=r"numbers/0 at 11") as caught:
        client.fetch("numbers", 0, 11, 1, 0)
    assert (caught.value.code, caught.value.retriable) == (ErrorCode.OFFSET_OUT_OF_RANGE, False)
    for call in (
        lambda: client.partitions("nowhere"),
        lambda: client.latest_offsets("nowhere"),
        lambda: client.fetch("nowhere", 0, 0, 1, 0),
        lambda: client.fetch("numbers", 3, 0, 1, 0),
        lambda: client.commit_offsets("g", {("numbers", 3): 0}),
    ):
        with pytest.raises(UnknownStreamError) as unknown:
            call()
        assert unknown.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(RequestError) as refused:
        client.commit_offsets("", {("numbers", 0): 0})
    assert refused.value.code is ErrorCode.INVALID_GROUP_ID
    again = pickle.loads(pickle.dumps(unknown.value))
    assert (type(again), str(again), again.code) == (
        UnknownStreamError, str(unknown.value), unknown.value.code
    )  # fmt: skip


def test_the_client_does_not_create_what_it_asks_for(client):
    with pytest.raises(UnknownStreamError):
        client.partitions("typo")
    assert "typo" not in client.streams()


def test_commit_and_committed(client):
    client.commit_offsets("spark", {("numbers", 0): 3, ("numbers", 2): 4})
    assert client.committed_offsets("spark") == {("numbers", 0): 3, ("numbers", 2): 4}
    assert client.committed_offsets("nobody") == {}


def test_a_client_travels_without_its_sockets(client):
    assert client.partitions("numbers") == 3
    with pickle.loads(pickle.dumps(client)) as copy:
        assert copy.latest_offsets("numbers") == client.latest_offsets("numbers")


def test_one_bootstrap_broker_that_lives_is_enough(node, closed_port):
    with FetchClient(f"127.0.0.1:{closed_port}, {node.servers}", timeout_s=30) as client:
        assert client.partitions("numbers") == 3


def test_an_unreachable_broker_is_given_up_at_the_deadline(closed_port):
    client = FetchClient(f"127.0.0.1:{closed_port}", timeout_s=0.3)
    with pytest.raises(DeadlineError, match=r"gave up after 0\.3 s: .*is not reached") as caught:
        client.partitions("numbers")
    assert isinstance(caught.value.__cause__, ConnectionLostError)
    assert caught.value.retriable


def test_a_silent_broker_is_given_up_at_the_deadline():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = FetchClient(f"127.0.0.1:{silent.getsockname()[1]}", timeout_s=0.5)
        with pytest.raises(DeadlineError, match=r"no answer within 0\.5 s"):
            client.partitions("numbers")


def test_a_broker_that_talks_nonsense_is_an_error():
    def answer_with_garbage():
        peer, _ = server.accept()
        with peer:
            peer.recv(1000)
            peer.sendall(b"\x7f\xff\xff\xff")

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=answer_with_garbage)
        thread.start()
        client = FetchClient(f"127.0.0.1:{server.getsockname()[1]}", timeout_s=0.5)
        with pytest.raises(DeadlineError):
            client.partitions("numbers")
        thread.join(30)


@pytest.mark.parametrize("servers", ["", "host", "host:port", "a:1,,b:2"])
def test_malformed_servers_are_refused(servers):
    with pytest.raises(ConfigError, match=r"HOST:PORT|port from 0"):
        FetchClient(servers)


def test_leaders_are_followed_in_a_cluster_of_another_make():
    """librdkafka's own mock of Kafka: three brokers that share the partitions out."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": "replaced by the mock", "test.mock.num.brokers": 3, "log_level": 0}
    )
    names = [f"t{n}" for n in range(8)]
    places, leaders = [], set()
    for name in names:
        known = producer.list_topics(name, timeout=30)
        for partition, state in known.topics[name].partitions.items():
            places.append((name, partition))
            leaders.add(state.leader)
            producer.produce(name, name.encode(), partition=partition)
    assert len(leaders) > 1, "one broker alone would prove nothing"
    assert producer.flush(30) == 0
    first = known.brokers[min(known.brokers)]
    with FetchClient(f"{first.host}:{first.port}", timeout_s=30) as client:
        assert list(client.streams()) == names
        for name, partition in places:
            assert client.latest_offsets(name)[partition] == 1
            assert client.earliest_offsets(name)[partition] == 0
            assert values(client.fetch(name, partition, 0, 1 << 20, 1000)) == [name.encode()]
        with pytest.raises(OffsetOutOfRangeError):
            client.fetch("t0", 0, 99, 1 << 20, 0)
        client.commit_offsets("g", {("t0", 0): 1})


def test_reading_goes_on_through_restarts_of_the_broker(start_node):
    node = start_node()
    node.create_stream("s")
    wanted, got = [b"%d" % n for n in range(60)], []
    with FetchClient(node.servers, timeout_s=60) as client:
        for n in range(0, 60, 20):
            with RawConnection(node) as raw:
                for value in wanted[n : n + 20]:
                    raw.produce("s", batch(value))
            got += values(client.fetch("s", 0, len(got), 200, 0))
            node.kill()
            node = start_node.again(node)
            while len(got) < n + 20:
                got += values(client.fetch("s", 0, len(got), 200, 0))
        assert client.latest_offsets("s") == {0: 60}
    assert got == wanted
