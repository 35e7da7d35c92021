"""A node's parts in this process, on a real store: what no client from outside can time."""

import asyncio
import json
import shutil
from collections import Counter
from contextlib import suppress

import pytest

from conftest import wait_for
from headrace import limits
from headrace.adapters.clock import SystemClock
from headrace.adapters.files import FileDefinitions
from headrace.errors import (
    DefinitionError,
    MessageTooLargeError,
    RecordsTooLargeError,
    StorageError,
    StorageFullError,
    UnavailableError,
    UnknownStreamError,
)
from headrace.kernel.catalog import Change
from headrace.native import build_batch
from headrace.node.kafka import KafkaDoor, KafkaSettings
from headrace.ports import NodeState
from headrace.wire.kafka import apis, groups
from headrace.wire.kafka import messages as m
from headrace.wire.kafka.errors import ErrorCode
from headrace.wire.kafka.frames import Request, encode_request
from nodes import Client, definition, publish, running, settle

BATCH = build_batch([(None, b"value", [], 0)])


async def test_deleting_a_stream_under_load_fails_its_appends_and_not_the_node(tmp_path):
    async with running(tmp_path, a=Change(), b=Change(filters=["b"])) as (node, store):
        await node.publish("b", b"value", 1, [])  # the flusher has nothing left to do
        partition = node._broker.partition("a", 0)
        lost = partition.append(BATCH, 0)
        store.delete_stream("a")  # before the append was handed to the flusher
        with pytest.raises(UnavailableError, match="stream a was deleted"):
            await lost
        await node.delete_stream("a")
        assert node.state is NodeState.READY
        assert (await node.publish("b", b"value", 1, [])).stored == 1


async def test_who_holds_a_partition_of_a_deleted_stream_hears_of_it(tmp_path):
    async with running(tmp_path, a=Change()) as (node, _):
        partition = node._broker.partition("a", 0)
        await node.delete_stream("a")
        assert not partition.is_served
        for ask in (
            lambda: partition.bounds,
            lambda: partition.segments,
            lambda: partition.size_bytes,
            lambda: partition.roll(0),
            lambda: partition.forget_silent(0),
        ):
            with pytest.raises(UnknownStreamError, match="'a' was deleted"):
                ask()
        with pytest.raises(UnknownStreamError, match="'a' was deleted"):
            await partition.offset_for_time(0)
        with pytest.raises(UnknownStreamError):
            await node._broker.trim(partition, 0, "test")


async def test_who_waits_wakes_for_a_deletion_that_the_disk_refuses(tmp_path):
    async with running(tmp_path, a=Change()) as (node, store):
        woken = asyncio.Event()
        node._broker.partition("a", 0).watch(woken.set)
        await _deletes(node, tmp_path)
        assert woken.is_set()
        store.held = True


async def test_a_fault_that_loses_effects_fails_the_node(tmp_path, caplog):
    async with running(tmp_path, a=Change(filters=["a"])) as (node, store):
        store.fault = ValueError("planted")
        lost = publish(node, "a", 1)
        await settle()
        assert node.state is NodeState.FAILED
        assert node.reason == "a fault of the node: ValueError('planted')"
        with pytest.raises(UnavailableError, match="planted"):
            await node.publish("a", b"value", 1, [])
        lost.cancel()
    assert "Traceback" in caplog.text


async def _rolls(node, data):
    (data / "streams" / "a" / "0" / f"{1:020}.log").mkdir()  # where its next segment is to be
    node._broker.partition("a", 0).roll(0)


async def _deletes(node, data):
    shutil.rmtree(data / "trash")
    (data / "trash").touch()
    with pytest.raises(UnavailableError, match="renaming"):
        await node.delete_stream("a")


async def _syncs_in_the_background(node, data):
    partition = node._broker.partition("a", 0)
    partition.roll(0)
    await node.publish("a", b"value", 1, [])
    (data / "streams" / "a" / "0").rename(data / "aside")  # cannot be synced any more
    with suppress(StorageError):  # it may be told of it, too
        await asyncio.to_thread(node._store.trim, partition.log, 1)  # its files go after a sync


@pytest.mark.parametrize("meets", [_rolls, _deletes, _syncs_in_the_background])
async def test_a_store_that_fails_is_told_of_whoever_met_it(tmp_path, caplog, meets):
    async with running(tmp_path, a=Change(filters=["a"])) as (node, store):
        await node.publish("a", b"value", 1, [])
        await meets(node, tmp_path)
        await asyncio.to_thread(wait_for, lambda: node.state is NodeState.FAILED)
        assert node.reason == store.failed()
        told = f"the node has failed, nothing more is accepted: {node.reason}"
        assert caplog.messages.count(told) == 1
        with pytest.raises(UnavailableError, match="restart"):
            await node.publish("a", b"value", 1, [])
        store.held = True  # it cannot be closed in order


async def test_a_stream_that_could_not_be_made_whole_leaves_nothing(tmp_path):
    two = Change(partitions=2)
    async with running(tmp_path) as (node, store):
        store.refuses_logs = True
        with pytest.raises(UnavailableError, match="planted"):
            await node.create_stream("a", two)
        with pytest.raises(UnknownStreamError):
            node.stream("a")
        assert "a" not in {each.name for each in FileDefinitions(tmp_path).load()}
        await node.create_stream("a", Change())
        with pytest.raises(UnavailableError, match="planted"):
            await node.alter_stream("a", two)
        assert node.stream("a").definition.partitions == 1
        assert definition(tmp_path, "a").partitions == 1
        store.refuses_logs = False
        await node.alter_stream("a", two)
        assert len(node.stream("a").partitions) == 2


async def test_a_partition_that_the_disk_refuses_is_none_and_the_node_goes_on(tmp_path):
    async with running(tmp_path, a=Change(filters=["a"])) as (node, store):
        in_its_place = tmp_path / "streams" / "b" / "1"
        in_its_place.parent.mkdir()
        in_its_place.touch()
        with pytest.raises(UnavailableError, match=r"creating .*/streams/b/1/"):
            await node.create_stream("b", Change(partitions=2))
        with pytest.raises(UnknownStreamError):
            node.stream("b")
        await node.create_stream("b", Change())
        in_its_place.touch()
        with pytest.raises(UnavailableError, match=r"creating .*/streams/b/1/"):
            await node.alter_stream("b", Change(partitions=2))
        await node.publish("a", b"value", 1, [])
        assert (node.state, store.failed()) == (NodeState.READY, None)
        in_its_place.unlink()
        await node.alter_stream("b", Change(partitions=2))
        assert len(node.stream("b").partitions) == 2


async def test_a_definition_that_cannot_be_served_is_damaged(tmp_path):
    async with running(tmp_path, a=Change()):
        pass
    path = tmp_path / "streams" / "a" / "stream.json"
    changed = json.loads(path.read_text()) | {"key": "level:0", "checksum": None}
    path.write_text(json.dumps(changed))
    with pytest.raises(DefinitionError, match=r"of 'a' is damaged .* level is a number from 1"):
        async with running(tmp_path):
            pass


async def test_the_bound_of_a_batch_holds_for_publishes_and_changes_live(tmp_path):
    async with running(tmp_path, a=Change(filters=["a"])) as (node, _):
        for bytes_max, stored in ((50, 0), (5000, 1), (50, 0)):
            await node.alter_stream("a", Change(settings={"max.message.bytes": bytes_max}))
            if stored:
                assert (await node.publish("a", b"value", 1, [])).stored == stored
            else:
                with pytest.raises(MessageTooLargeError, match=r"max\.message\.bytes"):
                    await node.publish("a", b"value", 1, [])


async def test_publishes_of_requesters_that_do_not_wait_are_bounded(tmp_path):
    async with running(tmp_path, a=Change(filters=["a"])) as (node, store):
        store.held = True
        waiting = [publish(node, "a", number) for number in range(limits.HTTP_PUBLISHES_MAX)]
        await settle()
        for each in waiting[:10]:
            each.cancel()
        with pytest.raises(UnavailableError, match="too many messages wait"):
            await publish(node, "a", 1000)
        store.held = False
        store.submit()
        assert {(await each).stored for each in waiting[10:]} == {1}
        assert (await publish(node, "a", 1000)).stored == 1


async def test_batches_of_kafka_clients_that_do_not_wait_are_bounded(tmp_path):
    batch = build_batch([(None, bytes(10_000), [], 0)])
    each = m.ProducePartition(index=0, records=batch)
    topics = [m.ProduceTopic(name="a", partitions=[each])]
    body = m.ProduceRequest(acks=-1, timeout_ms=0, topics=topics)
    request = encode_request(apis.PRODUCE, apis.PRODUCE.last, 1, "c", body)
    async with running(tmp_path, a=Change()) as (node, store):
        door = KafkaDoor(node._broker, KafkaSettings(undurable_bytes=100_000), node.gate)
        store.held = True
        for _ in range(10):  # each gives up at once, leaves, and comes back
            client = Client()
            connection = door(client)
            for _ in range(10):
                connection.received(request)
                await settle()
            connection.closed()
        assert store.statistics()["queued_bytes"] == door.undurable_bytes == 10 * len(batch)

        client = Client()
        connection = door(client)
        connection.received(request)
        assert not client.reading
        store.held = False
        store.submit()
        await asyncio.wait_for(client.answered.wait(), 30)
        assert client.reading
        connection.closed()
        assert door.memory.held_bytes == 0


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (StorageFullError("planted"), ErrorCode.NOT_COORDINATOR),
        (StorageError("planted"), ErrorCode.NOT_COORDINATOR),
        (RecordsTooLargeError("planted"), ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (UnknownStreamError("planted"), ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
async def test_what_coordinators_cannot_store_has_codes_that_clients_know(tmp_path, fault, code):
    partitions = [groups.OffsetCommitPartition(partition_index=0, committed_offset=1)]
    topics = [groups.OffsetCommitTopic(name="a", partitions=partitions)]
    body = groups.OffsetCommitRequest(group_id="g", topics=topics)
    async with running(tmp_path, a=Change()) as (node, store):
        door = KafkaDoor(node._broker, KafkaSettings(), node.gate)

        async def ask(api, body):
            return await door.answer(door(Client()), Request(api, api.last, 1, "c", body))

        async def commit():
            answer = await ask(apis.OFFSET_COMMIT, body)
            return answer.topics[0].partitions[0].error_code

        async def init():
            return (await ask(apis.INIT_PRODUCER_ID, m.InitProducerIdRequest())).error_code

        store.refuses_logs = True  # so the internal stream cannot be created
        assert await commit() == ErrorCode.NOT_COORDINATOR
        store.refuses_logs = False
        store.fault = fault
        assert await commit() == code
        assert await init() == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        store.fault = None
        assert await commit() == await init() == ErrorCode.NONE


async def test_a_stream_has_no_id_of_a_deleted_one_though_the_clock_stands_behind(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(SystemClock, "wall_ms", lambda _: 1_000)  # as after each boot
    ids = []
    for _ in range(2):
        async with running(tmp_path) as (node, _):
            ids.append((await node._broker.create_stream("a")).id)
            await node._broker.delete_stream("a")
    assert ids[0] != ids[1]


async def test_who_waits_wakes_once_for_a_commit(tmp_path):
    async with running(tmp_path, a=Change(partitions=2)) as (node, _store):
        one, other = (node._broker.partition("a", index) for index in range(2))
        woken = Counter()
        for partition in (one, other):
            partition.watch(lambda partition=partition: woken.update([partition]))
        appended = [one.append(BATCH, 0) for _ in range(20)] + [other.append(BATCH, 0)]
        await asyncio.gather(*appended)
        assert woken == {one: 1, other: 1}
        await one.append(BATCH, 0)
        assert woken == {one: 2, other: 1}
        for _ in range(3):
            await settle()
        assert woken == {one: 2, other: 1}, "and not while nothing happens"


async def test_a_reader_that_is_cancelled_leaves_nothing_behind(tmp_path):
    async with running(tmp_path, a=Change()) as (node, _store):
        partition = node._broker.partition("a", 0)
        await partition.append(BATCH, 0)
        reading = asyncio.ensure_future(partition.offset_for_time(0))
        await asyncio.sleep(0)  # it has begun, and no end of it was looked for
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert await partition.offset_for_time(0) is not None
        assert node._broker.runner._reads == {}
