"""headrace.Producer against real nodes."""

import asyncio
import socket
import ssl

import confluent_kafka
import pytest

import headrace
from headrace.client import (
    BufferFullError,
    ConnectionLostError,
    DeadlineError,
    FetchClient,
    Login,
    RequestError,
    UnknownStreamError,
)
from headrace.client.config import CODECS
from headrace.errors import ConfigError
from headrace.native import batch_headers, decode_records
from headrace.wire.kafka.errors import ErrorCode
from secure import client_context
from test_access import ADMIN, put_users

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def node(shared):
    return shared


def stored(node, stream, partition=0):
    """Records of a partition: offset, timestamp, key, value, headers."""
    rows, offset = [], 0
    with FetchClient(node.servers, timeout_s=30) as client:
        end = client.latest_offsets(stream)[partition]
        while offset < end:
            columns = decode_records(
                client.fetch(stream, partition, offset, 1 << 20, 0), offset, end, 1 << 20
            )
            rows += columns.rows()
            offset = columns.next_offset
    return rows


async def test_a_record_is_acknowledged_with_its_place(node, stream):
    async with headrace.Producer(node.servers, client_id="test") as producer:
        first = await producer.send(stream, b"a", key=b"k", partition=1, timestamp_ms=5)
        assert first == (stream, 1, 0, 5)
        headers = [("h", b"1"), ("none", None)]
        second = await producer.send(stream, None, key=b"k", partition=1, headers=headers)
        assert (second.topic, second.partition, second.offset) == (stream, 1, 1)
        assert await producer.partitions_for(stream) == 3
    assert stored(node, stream, 1) == [
        (0, 5, b"k", b"a", []),
        (1, second.timestamp, b"k", None, headers),
    ]


async def test_keys_go_where_kafkas_own_clients_send_them(node, stream):
    keys = [b"key-%d" % n for n in range(50)]
    async with headrace.Producer(node.servers) as producer:
        futures = [producer.send_nowait(stream, b"", key=key) for key in keys]
        ours = [(await future).partition for future in futures]
    theirs = {}
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": node.servers, "partitioner": "murmur2_random"}
    )
    for key in keys:
        producer.produce(
            stream, b"", key, on_delivery=lambda _, m: theirs.update({m.key(): m.partition()})
        )
    assert producer.flush(30) == 0
    assert ours == [theirs[key] for key in keys]
    assert set(ours) == {0, 1, 2}


@pytest.mark.parametrize(
    ("partitioner", "spread"),
    [("round_robin", [2, 2, 2]), (lambda *_: 2, [0, 0, 6]), ("sticky", [0, 0, 6])],
    ids=["round_robin", "own", "sticky"],
)
async def test_partitioners(node, stream, partitioner, spread):
    async with headrace.Producer(node.servers, partitioner=partitioner) as producer:
        await producer.partitions_for(stream)
        futures = [producer.send_nowait(stream, b"", key=b"k") for _ in range(6)]
        places = [(await future).partition for future in futures]
    assert sorted(places.count(partition) for partition in range(3)) == sorted(spread)


async def test_the_sticky_partition_changes_with_the_batch(node, stream):
    async with headrace.Producer(node.servers) as producer:
        places = [(await producer.send(stream, b"")).partition for _ in range(6)]
    assert sorted(places) == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("codec", CODECS)
async def test_codecs(node, stream, codec):
    values = [b"%d" % n * 50 for n in range(100)]
    async with headrace.Producer(node.servers, compression_type=codec) as producer:
        places = await producer.send_batch(stream, values, partition=0)
    assert [place.offset for place in places] == list(range(100))
    with FetchClient(node.servers) as client:
        ((_, _, _, count, _, used, producer_of, _, _),), _ = batch_headers(
            client.fetch(stream, 0, 0, 1 << 20, 0)
        )
    assert (count, used) == (100, codec)
    assert producer_of[0] >= 0
    assert producer_of[2] == 0
    assert [value for _, _, _, value, _ in stored(node, stream)] == values


async def test_settings_that_cannot_be_are_refused_in_one_line():
    for settings, told in [
        ({"linger_mss": 5}, "did you mean linger_ms"),
        ({"batch.size": 5}, "did you mean batch_size"),
        ({"batch_size": 0}, "batch_size must be a whole number from 1"),
        ({"compression_type": "brotli"}, "compression_type must be one of none, gzip"),
        ({"acks": 2}, "acks must be 'all', 1 or 0"),
        ({"acks": 1, "enable_idempotence": True}, "enable_idempotence needs acks 'all'"),
        ({"enable_idempotence": True, "max_in_flight_requests_per_connection": 6}, "at most 5"),
        ({"delivery_timeout_ms": 5}, "less than linger_ms and request_timeout_ms"),
        ({"partitioner": "crc"}, "partitioner must be one of murmur2, round_robin, sticky"),
        ({"compression_type": len}, "compression_type must be one of none, gzip"),
        ({"acks": []}, "acks must be 'all', 1 or 0"),
        ({"acks": True}, "acks must be 'all', 1 or 0"),
        ({"enable_idempotence": "no"}, "enable_idempotence must be True or False; got 'no'"),
        ({"client_id": 5}, "client_id must be text; got 5"),
        ({"login": ("ann", "horse")}, "login must be a headrace.Login"),
        ({"ssl_context": True}, "ssl_context must be an ssl.SSLContext; got True"),
        ({"key_serializer": "json"}, "key_serializer must be a function; got 'json'"),
    ]:
        with pytest.raises(ConfigError, match=told):
            headrace.Producer("127.0.0.1:9092", **settings)
    for nowhere in ("somewhere", "", []):
        with pytest.raises(ConfigError, match=r"^bootstrap_servers .* such as 127.0.0.1:9092"):
            headrace.Producer(nowhere)
    with pytest.raises(ConfigError, match="bootstrap_servers must be HOST:PORT, or a list"):
        headrace.Producer(["127.0.0.1:9092", 5])
    with pytest.raises(ConfigError, match="a login is the text"):
        Login("ann", None)


async def test_what_is_no_record_is_refused_at_once(node, stream):
    async with headrace.Producer(node.servers) as producer:
        await producer.send(stream, bytearray(b"a"))
        for record in ({"value": "text"}, {"key": 5}, {"headers": [("a", "b")]}):
            with pytest.raises(TypeError, match="bytes"):
                producer.send_nowait(stream, **record)
        with pytest.raises(ValueError, match="has partitions 0 to 2, not 3"):
            producer.send_nowait(stream, b"", partition=3)
        with pytest.raises(RequestError, match="more than max_request_size"):
            producer.send_nowait(stream, b"x" * (1 << 20))
    with pytest.raises(RuntimeError, match="async with"):
        producer.send_nowait(stream, b"late")
    with pytest.raises(RuntimeError, match="was closed"):
        await producer.partitions_for("another")
    with pytest.raises(RuntimeError, match="started once"):
        await producer.start()


@pytest.mark.parametrize(
    ("record", "error"),
    [
        ({"partition": "1"}, TypeError),
        ({"partition": -1}, ValueError),
        ({"partition": 9}, ValueError),
        ({"timestamp_ms": 1.5}, TypeError),
        ({"timestamp_ms": -5}, ValueError),
        ({"headers": [["a", b"1"]]}, TypeError),
        ({"headers": {"ab": "1"}}, TypeError),
        ({"headers": [("\ud800", b"1")]}, ValueError),
        ({"topic": 5}, TypeError),
        ({"topic": b"rooms"}, TypeError),
        ({"topic": "x" * 250}, ValueError),
        ({"topic": "\ud800"}, ValueError),
    ],
)
async def test_a_record_that_cannot_be_keeps_no_other_from_its_stream(node, stream, record, error):
    """Neither as the first of its stream, whose partitions are not known yet, nor later."""
    async with headrace.Producer(node.servers) as producer:
        for offset in range(2):
            with pytest.raises(error):
                await producer.send(**({"topic": stream, "value": b"bad"} | record))
            assert (await producer.send(stream, b"good", partition=0)).offset == offset


@pytest.mark.parametrize(
    ("choose", "error"),
    [
        (lambda *asked: asked[2], ValueError),
        (lambda *_: None, TypeError),
        (lambda _stream, _key: 0, TypeError),
        (lambda *_: 1 // 0, ZeroDivisionError),
    ],
)
async def test_a_partitioner_that_fails_is_told_to_who_sends(node, stream, choose, error):
    async with headrace.Producer(node.servers, partitioner=choose) as producer:
        for _ in range(2):
            with pytest.raises(error):
                await producer.send(stream, b"bad")
        assert (await producer.send(stream, b"good", partition=0)).offset == 0


async def test_headers_may_be_a_dict_or_come_one_by_one(node, stream):
    async with headrace.Producer(node.servers) as producer:
        await producer.send(stream, b"", partition=0, headers={"ab": b"1", "c": None})
        await producer.send(stream, b"", partition=0, headers=((name, b"1") for name in "ab"))
    assert [headers for *_, headers in stored(node, stream)] == [
        [("ab", b"1"), ("c", None)],
        [("a", b"1"), ("b", b"1")],
    ]


async def test_a_batch_with_too_few_keys_sends_nothing(node, stream):
    async with headrace.Producer(node.servers) as producer:
        with pytest.raises(ValueError, match="a key for each value; got 1, 2"):
            await producer.send_batch(stream, [b"a", b"b"], keys=[b"k"], partition=0)
    assert stored(node, stream) == []


async def test_serializers_make_bytes(node, stream):
    async with headrace.Producer(
        node.servers, key_serializer=str.encode, value_serializer=lambda n: b"%d" % n
    ) as producer:
        place = await producer.send(stream, 21, key="k")
    assert stored(node, stream, place.partition)[0][2:4] == (b"k", b"21")


async def test_an_unknown_stream_is_an_error_where_none_is_created(start_node):
    node = start_node(HEADRACE_KAFKA__AUTO_CREATE_STREAMS="false")
    async with headrace.Producer(node.servers, retry_backoff_ms=1) as producer:
        with pytest.raises(UnknownStreamError, match="headrace streams create") as unknown:
            await producer.send("nowhere", b"")
        assert unknown.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        node.create_stream("later")
        assert (await producer.send("later", b"")).offset == 0


async def test_a_stream_is_created_by_its_first_record(node):
    async with headrace.Producer(node.servers) as producer:
        place = await producer.send("made-by-a-producer", b"a")
    assert place[:3] == ("made-by-a-producer", 0, 0)


async def test_a_batch_too_large_for_its_stream_is_split(node, stream):
    smaller = {"settings": {"max.message.bytes": 1000}}
    assert node.call("PATCH", f"/api/v1/streams/{stream}", smaller)[0] == 200
    async with headrace.Producer(node.servers) as producer:
        values = [b"%03d" % n * 30 for n in range(40)]
        places = await producer.send_batch(stream, values, partition=0)
        assert [place.offset for place in places] == list(range(40))
        with pytest.raises(RequestError, match="MESSAGE_TOO_LARGE"):
            await producer.send(stream, b"x" * 2000)
        assert (await producer.send(stream, b"x", partition=0)).offset == 40
    assert [row[3] for row in stored(node, stream)][:40] == values


async def test_nothing_is_lost_or_stored_twice_over_kills_of_the_node(start_node):
    node = start_node()
    node.create_stream("s", partitions=2)
    async with headrace.Producer(node.servers, batch_size=300, retry_backoff_ms=10) as producer:
        futures = []
        for _ in range(3):
            for n in range(len(futures), len(futures) + 500):
                futures.append(producer.send_nowait("s", b"%d" % n, partition=n % 2))
                if n % 50 == 0:
                    await asyncio.sleep(0)
            await asyncio.to_thread(node.kill)
            node = await asyncio.to_thread(start_node.again, node)
        places = await asyncio.gather(*futures)
    for partition in range(2):
        rows = stored(node, "s", partition)
        assert [row[3] for row in rows] == [b"%d" % n for n in range(partition, 1500, 2)]
        assert [row[0] for row in rows] == [p.offset for p in places if p.partition == partition]


async def test_a_silent_broker_is_given_up():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        servers = f"127.0.0.1:{silent.getsockname()[1]}"
        producer = headrace.Producer(servers, default_api_timeout_ms=300, request_timeout_ms=100)
        with pytest.raises(DeadlineError):
            await producer.start()


@pytest.mark.parametrize("door", ["mqtt", "http", "frame", "kafka"])
async def test_a_door_that_is_not_the_right_one_is_told(node, door):
    """No traceback, and no wait beyond the deadline: of the frame door nothing ever comes."""
    context = ssl.create_default_context() if door == "kafka" else None
    producer = headrace.Producer(
        f"127.0.0.1:{getattr(node, door)}", ssl_context=context, default_api_timeout_ms=300
    )
    told = {
        "mqtt": "does it speak Kafka's protocol there, and without TLS",
        "http": "answered what cannot be read",
        "frame": r"no answer within 0\.3 s",
        "kafka": "does it speak TLS there",
    }
    with pytest.raises(DeadlineError, match=told[door]):
        await producer.start()


async def test_what_is_not_stored_in_time_fails(start_node):
    node = start_node()
    node.create_stream("s")
    async with headrace.Producer(
        node.servers, delivery_timeout_ms=4000, request_timeout_ms=2000
    ) as producer:
        await producer.send("s", b"a")
        node.kill()
        with pytest.raises(DeadlineError, match=r"not stored within delivery_timeout_ms, 4 s"):
            await producer.send("s", b"b")


async def test_a_full_buffer_refuses_or_waits(node, stream):
    async with headrace.Producer(node.servers, buffer_memory=2000, linger_ms=10) as producer:
        futures = [producer.send_nowait(stream, b"x" * 100) for _ in range(16)]
        with pytest.raises(BufferFullError):
            producer.send_nowait(stream, b"x" * 100)
        for _ in range(50):
            await producer.ready()
            futures.append(producer.send_nowait(stream, b"x" * 100))
        await producer.flush()
        assert all(future.done() and future.exception() is None for future in futures)


async def test_many_that_send_at_once_wait_for_their_turn(node, stream):
    async with headrace.Producer(node.servers, buffer_memory=2000) as producer:
        sent = [producer.send(stream, b"%d" % n * 10, partition=0) for n in range(500)]
        places = await asyncio.gather(*sent)
    assert [place.offset for place in places] == list(range(500))


async def test_who_finds_no_room_in_time_is_told(start_node):
    node = start_node()
    node.create_stream("s")
    async with headrace.Producer(
        node.servers, buffer_memory=200, max_block_ms=50, delivery_timeout_ms=900,
        request_timeout_ms=200,
    ) as producer:  # fmt: skip
        await producer.send("s", b"a")
        await asyncio.to_thread(node.kill)
        first = producer.send_nowait("s", b"x" * 100)
        with pytest.raises(BufferFullError, match=r"no room within max_block_ms, 0\.05 s"):
            await producer.send("s", b"x" * 100)
        await asyncio.wait([first])
        assert isinstance(first.exception(), DeadlineError)


async def test_acks_of_zero_are_sent_and_not_waited_for(node, stream):
    async with headrace.Producer(node.servers, acks=0) as producer:
        assert (await producer.send(stream, b"a", partition=0)).offset == -1
        await producer.send(stream, b"b", partition=0)
    with FetchClient(node.servers) as client:
        seen = b""
        while seen.count(b"\x02b") < 1:
            seen = client.fetch(stream, 0, 0, 1 << 20, 100)
    assert [row[3] for row in stored(node, stream)] == [b"a", b"b"]


async def test_a_user_proves_who_it_is(tmp_path, start_node):
    put_users(tmp_path / "data", {ADMIN: ["admin"], "bob:cart": []})
    node = start_node(data=tmp_path / "data")
    async with headrace.Producer(node.servers, login=Login("ann", "horse")) as producer:
        assert (await producer.send("gpu-telemetry", b"a")).offset == 0
    with pytest.raises(RequestError, match="authentication"):
        await headrace.Producer(node.servers, login=Login("ann", "wrong")).start()
    silent = headrace.Producer(node.servers, default_api_timeout_ms=300)
    with pytest.raises(DeadlineError, match="does it ask for a user and a password"):
        await silent.start()


async def test_a_producer_speaks_tls(start_node, server, authority):
    certificate, key = server
    node = start_node(
        HEADRACE_KAFKA__TLS_CERTIFICATE=str(certificate), HEADRACE_KAFKA__TLS_KEY=str(key)
    )
    context = client_context(authority)
    async with headrace.Producer(f"localhost:{node.kafka}", ssl_context=context) as producer:
        assert (await producer.send("gpu-telemetry", b"a")).offset == 0
    stranger = headrace.Producer(node.servers, ssl_context=ssl.create_default_context())
    with pytest.raises(RequestError, match=r"certificate|self-signed"):
        await stranger.start()


async def test_what_waits_at_the_close_is_sent(node, stream):
    producer = headrace.Producer(node.servers, linger_ms=60_000, delivery_timeout_ms=120_000)
    await producer.start()
    future = producer.send_nowait(stream, b"a")
    await producer.close()
    assert (await future).offset == 0
    await producer.close()


async def test_a_close_that_is_interrupted_tells_what_was_under_way(node, stream):
    producer = headrace.Producer(node.servers)
    await producer.start()
    await producer.send(stream, b"a")
    future = producer.send_nowait(stream, b"b" * 100_000)
    closing = asyncio.ensure_future(producer.close())
    for _ in range(2):  # turns of the loop: it is sent, and no answer can be there
        await asyncio.sleep(0)
    assert any(producer._accumulator._under_way.values())
    closing.cancel()
    await asyncio.wait([closing])
    assert isinstance(future.exception(), ConnectionLostError)


async def test_a_closed_cluster_fails_what_waits(start_node):
    node = start_node()
    producer = headrace.Producer(node.servers, delivery_timeout_ms=500, request_timeout_ms=200)
    await producer.start()
    await producer.partitions_for("gpu-telemetry")
    node.kill()
    future = producer.send_nowait("gpu-telemetry", b"a")
    await producer.close()
    assert isinstance(future.exception(), ConnectionLostError | DeadlineError)
