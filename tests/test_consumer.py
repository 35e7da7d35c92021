"""headrace.Consumer against real nodes: partitions assigned by hand, or all of a stream."""

import asyncio

import pytest

import headrace
from headrace import TopicPartition
from headrace.client import (
    OffsetAndMetadata,
    OffsetAndTimestamp,
    OffsetOutOfRangeError,
    UnknownStreamError,
)
from headrace.client.config import CODECS
from headrace.errors import ConfigError
from headrace.native import build_batch
from kafkaraw import RawConnection, batch

pytestmark = pytest.mark.slow

STAMP = 1_700_000_000_000


@pytest.fixture(scope="module")
def node(shared):
    return shared


def fill(node, stream, count, partition=0, first=0, step_ms=1000):
    with RawConnection(node) as raw:
        for n in range(first, first + count):
            made = batch(b"%d" % n, timestamp=STAMP + n * step_ms)
            assert raw.produce(stream, made, partition).error_code == 0


def reader(node, topics=(), **settings):
    settings = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 50, **settings}
    return headrace.Consumer(node.servers, topics, **settings)


async def read(consumer, count):
    """Values of the next records, by partition."""
    found = {}
    for _ in range(count):
        record = await consumer.getone()
        found.setdefault(record.partition, []).append(record.value)
    return found


async def test_all_of_a_stream_is_read_record_by_record(node, stream):
    for partition in range(3):
        fill(node, stream, 4, partition)
    headers = [("h", b"1"), ("none", None)]
    async with headrace.Producer(node.servers) as producer:
        await producer.send(stream, None, key=b"k", partition=2, timestamp_ms=5, headers=headers)
    async with reader(node, stream) as consumer:
        found = []
        async for record in consumer:
            found.append(record)
            if len(found) == 13:
                break
    for partition in range(2):
        assert [r.value for r in found if r.partition == partition] == [b"0", b"1", b"2", b"3"]
    assert [r for r in found if r.partition == 2][-1] == (stream, 2, 4, 5, b"k", None, headers)


async def test_new_records_are_waited_for(node, stream):
    async with reader(node, stream) as consumer:
        waiting = asyncio.ensure_future(consumer.getone())
        assert await consumer.getmany(timeout_ms=1) == {}
        await asyncio.to_thread(fill, node, stream, 1)
        assert (await waiting).value == b"0"


async def test_lists_are_bounded_and_partitions_take_turns(node, stream):
    for partition in range(3):
        fill(node, stream, 10, partition)
    async with reader(node, stream, max_poll_records=7) as consumer:
        seen, rounds = {}, 0
        while sum(map(len, seen.values())) < 30:
            many = await consumer.getmany()
            assert 1 <= sum(map(len, many.values())) <= 7
            for place, records in many.items():
                seen.setdefault(place.partition, []).extend(r.offset for r in records)
            rounds += 1
        assert seen == {partition: list(range(10)) for partition in range(3)}
        many = await consumer.getmany(timeout_ms=0)
        assert many == {}
        place = TopicPartition(stream, 1)
        assert await consumer.position(place) == 10
        assert consumer.highwater(place) == 10
        with pytest.raises(ValueError, match="max_records must be 1 or more"):
            await consumer.getmany(max_records=0)


async def test_arrow_batches_hold_what_lists_hold(node, stream):
    fill(node, stream, 10)
    place = TopicPartition(stream, 0)
    async with reader(node) as consumer:
        consumer.assign([place])
        first = await consumer.getone()
        rows = await consumer.get_arrow(max_records=4)
        rows.validate(full=True)
        assert first.value == b"0"
        assert rows["value"].to_pylist() == [b"1", b"2", b"3", b"4"]
        assert rows["offset"].to_pylist() == [1, 2, 3, 4]
        assert rows["topic"].to_pylist() == [stream] * 4
        assert await consumer.position(place) == 5
        rest = []
        while len(rest) < 5:
            rest += (await consumer.get_arrow())["value"].to_pylist()
        assert rest == [b"5", b"6", b"7", b"8", b"9"]
        assert await consumer.get_arrow(timeout_ms=1) is None


@pytest.mark.parametrize("codec", CODECS)
async def test_codecs(node, stream, codec):
    values = [b"%d" % n * 50 for n in range(100)]
    made = build_batch([(None, value, (), STAMP) for value in values], codec)
    with RawConnection(node) as raw:
        assert raw.produce(stream, made).error_code == 0
    async with reader(node, stream) as consumer:
        assert [(await consumer.getone()).value for _ in values] == values


async def test_seek_and_pause(node, stream):
    fill(node, stream, 10)
    fill(node, stream, 10, 1)
    zero, one = TopicPartition(stream, 0), TopicPartition(stream, 1)
    async with reader(node) as consumer:
        consumer.assign([zero, one])
        assert consumer.assignment() == {zero, one}
        consumer.pause(one)
        assert consumer.paused() == {one}
        assert await read(consumer, 4) == {0: [b"0", b"1", b"2", b"3"]}
        consumer.seek(zero, 1)
        assert await read(consumer, 2) == {0: [b"1", b"2"]}
        consumer.pause(zero)
        assert await consumer.getmany(timeout_ms=100) == {}
        consumer.resume(one)
        assert await read(consumer, 10) == {1: [b"%d" % n for n in range(10)]}
        consumer.resume(zero)
        assert await read(consumer, 1) == {0: [b"3"]}, "a pause skips nothing"
        await consumer.seek_to_end(zero)
        assert await consumer.position(zero) == 10
        await consumer.seek_to_beginning()
        found = await read(consumer, 20)
        assert found == {p: [b"%d" % n for n in range(10)] for p in (0, 1)}
        with pytest.raises(ValueError, match="is not assigned"):
            consumer.seek(TopicPartition(stream, 2), 0)
        with pytest.raises(ValueError, match="0 or more"):
            consumer.seek(zero, -1)


async def test_nothing_waits_for_a_fetch_that_waits_for_records(node, stream):
    """A broker may hold a fetch for five minutes here, and every one of these would wait."""
    fill(node, stream, 3)
    fill(node, stream, 3, 1)
    zero, one = TopicPartition(stream, 0), TopicPartition(stream, 1)
    async with reader(node, fetch_max_wait_ms=300_000) as consumer, asyncio.timeout(200):
        consumer.assign([zero])
        assert await read(consumer, 3) == {0: [b"0", b"1", b"2"]}
        for _ in range(3):
            assert await consumer.getmany(timeout_ms=50) == {}
            waiting = asyncio.ensure_future(consumer.getone())
            consumer.seek(zero, 2)
            assert (await waiting).offset == 2
        assert await consumer.getmany(timeout_ms=50) == {}
        consumer.assign([zero, one])
        assert await read(consumer, 3) == {1: [b"0", b"1", b"2"]}
        assert await consumer.getmany(timeout_ms=50) == {}
        consumer.pause(one)
        consumer.seek(zero, 0)
        assert await read(consumer, 3) == {0: [b"0", b"1", b"2"]}


async def test_the_coordinator_is_asked_for_once(node, stream):
    name = 'headrace_kafka_requests_total{request="FindCoordinator"}'
    place = TopicPartition(stream, 0)
    before = node.metrics().get(name, 0)
    async with reader(node, group_id=stream, enable_auto_commit=False) as consumer:
        consumer.assign([place])
        assert await consumer.position(place) == 0
        for offset in range(20):
            await consumer.commit({place: offset})
        assert (await consumer.committed())[place].offset == 19
    assert node.metrics()[name] == before + 1


async def test_read_committed_reads_all_where_there_are_no_transactions(node, stream):
    fill(node, stream, 3)
    place = TopicPartition(stream, 0)
    async with reader(node, isolation_level="read_committed") as consumer:
        consumer.assign([place])
        assert await read(consumer, 3) == {0: [b"0", b"1", b"2"]}
        assert await consumer.end_offsets([place]) == {place: 3}


async def test_offsets_by_time_and_ends(node, stream):
    fill(node, stream, 10)
    zero, one = TopicPartition(stream, 0), TopicPartition(stream, 1)
    async with reader(node) as consumer:
        assert await consumer.offsets_for_times({zero: STAMP + 3500, one: 0}) == {
            zero: OffsetAndTimestamp(4, STAMP + 4000),
            one: None,
        }
        assert await consumer.beginning_offsets([zero, one]) == {zero: 0, one: 0}
        assert await consumer.end_offsets([zero, one]) == {zero: 10, one: 0}
        with pytest.raises(UnknownStreamError):
            await consumer.end_offsets([TopicPartition(stream, 9)])


async def test_where_to_begin(node, stream):
    fill(node, stream, 3)
    place = TopicPartition(stream, 0)
    async with reader(node, auto_offset_reset="latest") as consumer:
        consumer.assign([place])
        assert await consumer.position(place) == 3
    async with reader(node, auto_offset_reset="none") as consumer:
        consumer.assign([place])
        with pytest.raises(OffsetOutOfRangeError, match="auto_offset_reset is none"):
            await consumer.getone()
        consumer.seek(place, 9)
        with pytest.raises(OffsetOutOfRangeError, match=f"{stream}/0 at 9"):
            await consumer.getone()
        consumer.seek(place, 2)
        assert (await consumer.getone()).value == b"2"
    async with reader(node) as consumer:
        consumer.assign([place])
        consumer.seek(place, 9)
        assert (await consumer.getone()).value == b"0", "out of range begins anew"


async def test_commits_of_a_group_without_members(node, stream):
    fill(node, stream, 10)
    place = TopicPartition(stream, 0)
    settings = {"group_id": f"g-{stream}", "enable_auto_commit": False}
    async with reader(node, **settings) as consumer:
        consumer.assign([place])
        assert await consumer.committed() == {}
        await read(consumer, 4)
        await consumer.commit()
        assert await consumer.committed(place) == {place: OffsetAndMetadata(4)}
        await consumer.commit({place: OffsetAndMetadata(2, "a note")})
    async with reader(node, **settings) as consumer:
        consumer.assign([place])
        assert await read(consumer, 1) == {0: [b"2"]}
        assert await consumer.committed() == {place: OffsetAndMetadata(2, "a note")}
        await consumer.commit({place: 99})
    async with reader(node, **settings) as consumer:
        consumer.assign([place])
        assert await read(consumer, 1) == {0: [b"0"]}, "what was committed is no longer there"
    async with reader(node) as consumer:
        with pytest.raises(ValueError, match="no group_id"):
            await consumer.commit()


async def test_what_a_failed_handler_had_is_not_committed(node, stream):
    fill(node, stream, 10)
    place = TopicPartition(stream, 0)
    group = f"g-{stream}"

    async def handle():
        async with reader(node, group_id=group) as consumer:
            consumer.assign([place])
            async for record in consumer:
                1 / (3 - record.offset)

    with pytest.raises(ZeroDivisionError):
        await handle()
    async with reader(node, group_id=group) as consumer:
        consumer.assign([place])
        assert (await consumer.getone()).offset == 3
    async with reader(node, group_id=group) as consumer:
        assert await consumer.committed(place) == {place: OffsetAndMetadata(4)}


async def test_handed_out_records_are_committed_as_time_goes(node, stream):
    fill(node, stream, 5)
    place = TopicPartition(stream, 0)
    async with reader(
        node, group_id=f"g-{stream}", auto_commit_interval_ms=1, max_poll_records=1
    ) as consumer:
        consumer.assign([place])
        await read(consumer, 3)
        while not (kept := await consumer.committed(place)) or kept[place].offset < 3:
            await consumer.getmany(timeout_ms=1)


async def test_a_pattern_and_new_partitions(node):
    for name in ("pat-one", "pat-two", "other"):
        node.create_stream(name)
    fill(node, "pat-one", 1)
    fill(node, "pat-two", 1)
    fill(node, "other", 1)
    consumer = reader(node, metadata_max_age_ms=50)
    consumer.subscribe(pattern="pat-.*")
    async with consumer:
        assert {(await consumer.getone()).topic for _ in range(2)} == {"pat-one", "pat-two"}
        assert node.call("PATCH", "/api/v1/streams/pat-one", {"partitions": 2})[0] == 200
        fill(node, "pat-one", 1, 1)
        while not (many := await consumer.getmany(timeout_ms=20)):
            pass
        assert list(many) == [TopicPartition("pat-one", 1)]
        consumer.unsubscribe()
        assert consumer.assignment() == set()
    with pytest.raises(ValueError, match="streams, or a pattern"):
        consumer.subscribe()


async def test_unknown_streams_are_errors(start_node):
    node = start_node(HEADRACE_KAFKA__AUTO_CREATE_STREAMS="false")
    async with reader(node, "nowhere") as consumer:
        with pytest.raises(UnknownStreamError, match="headrace streams create"):
            await consumer.getone()
        consumer.assign([TopicPartition("gpu-telemetry", 99)])
        with pytest.raises(UnknownStreamError):
            await consumer.getone()


async def test_settings_that_cannot_be_are_refused_in_one_line():
    for settings, told in [
        ({"auto_offset_reset": "first"}, "auto_offset_reset must be one of earliest"),
        ({"max_poll_record": 5}, "did you mean max_poll_records"),
        ({"partition_assignment_strategy": "range"}, "must be a list of range"),
        ({"partition_assignment_strategy": ["best"]}, "got 'best'"),
        ({"heartbeat_interval_ms": 45_000}, "must be less than session_timeout_ms"),
        ({"group_instance_id": "a"}, "needs a group_id"),
        ({"group_id": 5}, "group_id must be text that is not empty; got 5"),
        ({"group_id": ""}, "group_id must be text that is not empty"),
        ({"enable_auto_commit": "false"}, "enable_auto_commit must be True or False"),
        ({"value_deserializer": "json"}, "value_deserializer must be a function"),
        ({"partition_assignment_strategy": 5}, "must be a list of range"),
    ]:
        with pytest.raises(ConfigError, match=told):
            headrace.Consumer("127.0.0.1:9092", **settings)


async def test_deserializers(node, stream):
    fill(node, stream, 2)
    async with reader(node, stream, value_deserializer=int) as consumer:
        assert [(await consumer.getone()).value for _ in range(2)] == [0, 1]


async def test_what_no_deserializer_reads_is_told_and_loses_nothing_else(node, stream):
    with RawConnection(node) as raw:
        for value in (b"0", b"1", b"no number", b"3"):
            raw.produce(stream, batch(value))
    place = TopicPartition(stream, 0)
    settings = {"value_deserializer": int, "group_id": f"g-{stream}"}
    async with reader(node, **settings) as consumer:
        consumer.assign([place])
        assert [record.value for record in (await consumer.getmany())[place]] == [0, 1]
        with pytest.raises(ValueError, match="no number") as told:
            await consumer.getmany()
        assert told.value.__notes__ == [f"{place} at 2: seek beyond it to go on"]
    async with reader(node, **settings) as consumer:
        consumer.assign([place])
        for _ in range(2):
            with pytest.raises(ValueError, match="no number"):
                await consumer.getone()
        consumer.seek(place, 1)
        assert (await consumer.getone()).value == 1
        with pytest.raises(ValueError, match="no number"):
            await consumer.getone()
        consumer.seek(place, 3)
        assert (await consumer.getone()).value == 3


async def test_records_one_by_one_are_committed_as_they_are_done(node, stream):
    """Also while the next ones are there already, and where the wait for one is cancelled."""
    fill(node, stream, 5)
    place = TopicPartition(stream, 0)
    async with reader(node, group_id=f"g-{stream}", auto_commit_interval_ms=1) as consumer:
        consumer.assign([place])
        await consumer.getone()
        while not (kept := await consumer.committed(place)):
            consumer.seek(place, 0)
            await read(consumer, 2)
        assert kept[place].offset < 5
        await read(consumer, 5 - await consumer.position(place))

    async def wait_for_more():
        async with reader(node, group_id=f"g-{stream}") as consumer:
            consumer.assign([place])
            consumer.seek(place, 4)
            await consumer.getone()
            async with asyncio.timeout(0.05):
                await consumer.getone()

    with pytest.raises(TimeoutError):
        await wait_for_more()
    async with reader(node, group_id=f"g-{stream}") as consumer:
        assert await consumer.committed(place) == {place: OffsetAndMetadata(5)}


async def test_a_timeout_holds_while_no_broker_answers(start_node):
    node = start_node()
    node.create_stream("s")
    async with reader(node, "s", metadata_max_age_ms=1, retry_backoff_ms=10) as consumer:
        assert await consumer.getmany(timeout_ms=200) == {}
        await asyncio.to_thread(node.kill)
        async with asyncio.timeout(30):  # of default_api_timeout_ms, 60 s
            assert await consumer.getmany(timeout_ms=50) == {}
        node = await asyncio.to_thread(start_node.again, node)
        await asyncio.to_thread(fill, node, "s", 1)
        assert (await consumer.getone()).value == b"0"


async def test_reading_goes_on_through_kills_of_the_node(start_node):
    node = start_node()
    node.create_stream("s", partitions=2)
    values = []
    async with reader(node, "s", retry_backoff_ms=10) as consumer:
        for n in range(0, 60, 20):
            await asyncio.to_thread(fill, node, "s", 20, n // 20 % 2, n)
            values += [(await consumer.getone()).value for _ in range(20)]
            await asyncio.to_thread(node.kill)
            node = await asyncio.to_thread(start_node.again, node)
    assert values == [b"%d" % n for n in range(60)]


async def test_much_that_waits_is_not_fetched(node, stream):
    values = [b"%d" % n * 5000 for n in range(40)]
    with RawConnection(node) as raw:
        for value in values:
            raw.produce(stream, batch(value))
    async with reader(
        node,
        stream,
        queued_max_bytes=30_000,
        max_partition_fetch_bytes=20_000,
        fetch_max_bytes=20_000,
    ) as consumer:
        first = await consumer.getone()
        for _ in range(20):
            await asyncio.sleep(0.005)
        held = consumer._fetcher.part(TopicPartition(stream, 0)).held_bytes
        assert 0 < held < 60_000
        rest = [(await consumer.getone()).value for _ in range(39)]
    assert [first.value, *rest] == values


async def test_what_is_no_partition_stream_or_offset_is_refused_at_once(node, stream):
    """Beside, what was read is read on."""
    zero = TopicPartition(stream, 0)
    async with headrace.Producer(node.servers) as producer:
        await producer.send(stream, b"a", partition=0)
    settings = {"group_id": f"{stream}-odd", "auto_offset_reset": "earliest"}
    async with headrace.Consumer(node.servers, **settings) as consumer:
        consumer.assign([(stream, 0)])
        for error, call in [
            (TypeError, lambda: consumer.assign(zero)),
            (TypeError, lambda: consumer.assign([(stream, "0")])),
            (TypeError, lambda: consumer.assign([(5, 0)])),
            (TypeError, lambda: consumer.subscribe([stream, 5])),
            (TypeError, lambda: consumer.subscribe(stream, listener=print)),
            (ValueError, lambda: consumer.subscribe(pattern="[")),
            (TypeError, lambda: consumer.seek(zero, 0.5)),
        ]:
            with pytest.raises(error):
                call()
        for error, offsets in [
            (ValueError, {zero: -1}),
            (TypeError, {zero: 0.5}),
            (TypeError, {stream: 1}),
        ]:
            with pytest.raises(error):
                await consumer.commit(offsets)
        assert (await consumer.getone()).value == b"a"


@pytest.mark.parametrize("is_started", [True, False])
async def test_what_is_closed_stays_closed(node, stream, is_started):
    """Else a late call would connect anew, and nobody would end that connection."""
    place = TopicPartition(stream, 0)
    consumer = headrace.Consumer(node.servers, group_id=f"{stream}-late")
    if is_started:
        await consumer.start()
        with pytest.raises(RuntimeError, match="started once"):
            await consumer.start()
    assert await consumer.end_offsets([place]) == {place: 0}
    await consumer.close()
    for call in (
        lambda: consumer.commit({place: 1}),
        consumer.committed,
        lambda: consumer.end_offsets([place]),
    ):
        with pytest.raises(RuntimeError, match="was closed"):
            await call()


async def test_an_admin_client_that_is_closed_stays_closed(node, stream):
    async with headrace.Admin(node.servers) as admin:
        assert stream in await admin.topics()
    with pytest.raises(RuntimeError, match="was closed"):
        await admin.topics()
