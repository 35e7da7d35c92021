"""A node's parts in this process, on a real store: what no client from outside can time."""

import asyncio
import shutil
from collections import Counter
from contextlib import asynccontextmanager, suppress

import pytest

from conftest import wait_for
from gates import open_gate
from headrace import limits
from headrace.adapters.clock import SystemClock
from headrace.adapters.files import FileDefinitions
from headrace.adapters.listener import Listener
from headrace.adapters.sockets import bind
from headrace.errors import (
    DefinitionError,
    MessageTooLargeError,
    RecordsTooLargeError,
    StorageError,
    StorageFullError,
    UnavailableError,
    UnknownStreamError,
)
from headrace.kernel.budget import DescriptorBudget
from headrace.kernel.catalog import Change
from headrace.model import Address
from headrace.native import Store, Switchboard, build_batch
from headrace.node.kafka import KafkaDoor, KafkaSettings
from headrace.node.lifetime import Node, Parts
from headrace.ports import NodeState
from headrace.wire.kafka import apis, groups
from headrace.wire.kafka import messages as m
from headrace.wire.kafka.errors import ErrorCode
from headrace.wire.kafka.frames import Request, encode_request

BATCH = build_batch([(None, b"value", [], 0)])


class HeldStore:
    """A store whose disk can be made to stand still, and which then dies without a close."""

    def __init__(self, path):
        self._store = Store.open(str(path), journal_bytes=limits.JOURNAL_BYTES_MIN)
        self.held = False
        self.fault = None
        self.refuses_logs = False
        self.keeps_sources = True

    def __getattr__(self, name):
        return getattr(self._store, name)

    def append(self, *arguments):
        if self.fault is not None:
            raise self.fault
        return self._store.append(*arguments)

    def open_log(self, stream, partition, *arguments):
        if self.refuses_logs and partition > 0:
            raise StorageError("planted")
        return self._store.open_log(stream, partition, *arguments)

    def refresh_sources(self, log, *, around_damage=False):
        if not self.keeps_sources:
            raise StorageError("planted")
        self._store.refresh_sources(log, around_damage=around_damage)

    def submit(self):
        if not self.held:
            self._store.submit()

    def close(self):
        if self.held:
            del self._store  # as a kill would: nothing more is written
        else:
            self._store.close()


def node_on(store, data, **streams):
    switchboard = Switchboard((0, 0))
    return Node(
        "test",
        Parts(
            clock=SystemClock(),
            definitions=FileDefinitions(data),
            switchboard=switchboard,
            gate=open_gate(data, switchboard),
            open_store=lambda: store,
            listen=lambda _, door, admits: Listener.open(
                bind(Address("127.0.0.1", 0)), door, admits
            ),
            budget=DescriptorBudget(1000),
            declared=streams,
        ),
    )


@asynccontextmanager
async def running(data, **streams):
    """A node with these streams; its store."""
    store = HeldStore(data)
    node = node_on(store, data, **streams)
    try:
        await node.open()
        yield node, store
    finally:
        await node.close()


def publish(node, topic, sequence):
    properties = [("source", "s"), ("epoch", "1"), ("sequence", str(sequence))]
    return asyncio.ensure_future(node.publish(topic, b"value", 1, properties))


def definition(data, stream):
    """What the disk says of a stream."""
    (found,) = (each for each in FileDefinitions(data).load() if each.name == stream)
    return found


def sources(data, stream, partition):
    """What an orderly start would know of a partition's sources."""
    store = Store.open(str(data))
    incarnation = definition(data, stream).incarnation
    found = store.last_sources(store.open_log(stream, partition, incarnation, 0))
    store.close()
    return found


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


async def _creates(node, data):
    (data / "streams" / "b").mkdir()
    (data / "streams" / "b" / "0").touch()  # where its partition is to be
    await node.create_stream("b", Change())


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


@pytest.mark.parametrize("meets", [_rolls, _creates, _deletes, _syncs_in_the_background])
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


async def test_a_definition_that_cannot_be_served_is_damaged(tmp_path):
    async with running(tmp_path, a=Change()):
        pass
    path = tmp_path / "streams" / "a" / "stream.json"
    path.write_text(path.read_text().replace('"topic"', '"level:0"'))
    with pytest.raises(DefinitionError, match=r"of 'a' is damaged .* level is a number from 1"):
        async with running(tmp_path):
            pass


async def test_sources_of_messages_that_never_became_durable_are_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "DRAIN_SECONDS", 0.1)
    async with running(tmp_path, a=Change(filters=["a"])) as (node, store):
        await publish(node, "a", 1)
        store.held = True
        never = publish(node, "a", 2)
        await settle()
        assert store.statistics()["queued_bytes"] > 0
    never.cancel()
    assert sources(tmp_path, "a", 0) == [("s", 1, 1)]


async def test_a_source_is_known_after_a_kill_though_its_messages_are_trimmed(tmp_path):
    async with running(tmp_path, a=Change(filters=["a"])) as (node, store):
        await publish(node, "a", 1)
        partition = node._broker.partition("a", 0)
        partition.roll(0)
        await node.publish("a", b"later", 1, [])
        await node._broker.trim(partition, 1, "test")
        assert [each.base_offset for each in partition.segments] == [1]
        store.held = True
    assert sources(tmp_path, "a", 0) == [("s", 1, 1)]


async def test_what_a_kafka_client_copies_is_no_publishers_word(tmp_path):
    copied = [("mqtt.topic", b"a"), ("source", b"s"), ("epoch", b"9"), ("sequence", b"9")]
    async with running(tmp_path, a=Change(filters=["a"])) as (node, store):
        await publish(node, "a", 1)
        await node._broker.partition("a", 0).append(build_batch([(None, b"v", copied, 0)]), 0)
        store.held = True
    assert sources(tmp_path, "a", 0) == [("s", 1, 1)]
    async with running(tmp_path, a=Change(filters=["a"])) as (node, _):
        assert (await publish(node, "a", 2)).stored == 1


async def test_the_bound_of_a_batch_holds_for_publishes_and_changes_live(tmp_path):
    async with running(tmp_path, a=Change(filters=["a"])) as (node, _):
        for bytes_max, stored in ((50, 0), (5000, 1), (50, 0)):
            await node.alter_stream("a", Change(settings={"max.message.bytes": bytes_max}))
            if stored:
                assert (await node.publish("a", b"value", 1, [])).stored == stored
            else:
                with pytest.raises(MessageTooLargeError, match=r"max\.message\.bytes"):
                    await node.publish("a", b"value", 1, [])


async def test_sources_that_could_not_be_kept_hold_up_a_trim_and_are_tried_again(tmp_path):
    async with running(tmp_path, a=Change(filters=["a"])) as (node, store):
        await publish(node, "a", 1)
        partition = node._broker.partition("a", 0)
        partition.roll(0)
        await node.publish("a", b"later", 1, [])
        store.keeps_sources = False
        for _ in range(2):
            with pytest.raises(UnavailableError, match="planted"):
                await node._broker.trim(partition, 1, "test")
        assert partition.start_offset == 0
        store.keeps_sources = True
        await node._broker.trim(partition, 1, "test")
        assert partition.unkept_bytes == 0
        store.held = True
    assert sources(tmp_path, "a", 0) == [("s", 1, 1)]


async def test_sources_on_their_way_to_the_disk_are_kept_the_next_time(tmp_path):
    async with running(tmp_path, a=Change(filters=["a"])) as (node, store):
        await publish(node, "a", 1)
        partition = node._broker.partition("a", 0)
        store.held = True
        second = publish(node, "a", 2)
        await settle()
        await node._broker._sources.keep(partition)
        store.held = False
        store.submit()
        await second
        partition.roll(0)
        await node.publish("a", b"later", 1, [])
        await node._broker.trim(partition, 2, "test")
        store.held = True
    assert sources(tmp_path, "a", 0) == [("s", 1, 2)]


async def test_damage_among_records_does_not_keep_them_for_ever(tmp_path, caplog):
    async with running(tmp_path, a=Change(filters=["a"])) as (node, store):
        await publish(node, "a", 1)
        partition = node._broker.partition("a", 0)
        partition.roll(0)
        await node.publish("a", b"later", 1, [])
        with (tmp_path / "streams" / "a" / "0" / f"{0:020}.log").open("r+b") as segment:
            segment.seek(16)
            segment.write(b"\0")  # the format of its first batch
        await node._broker.trim(partition, 1, "test")
        assert partition.start_offset == 1
        assert "damaged" in caplog.text
        await publish(node, "a", 2)
        await node._broker._sources.keep(partition)
        store.held = True
    assert sources(tmp_path, "a", 0) == [("s", 1, 2)]


async def test_a_start_that_fails_forgets_no_sources(tmp_path):
    two = Change(partitions=2, filters=["#"])
    async with running(tmp_path, a=two) as (node, _):
        for number in range(10):
            await publish(node, f"topic/{number}", number)
    known = [sources(tmp_path, "a", index) for index in range(2)]
    assert all(known)
    (kept,) = (tmp_path / "streams" / "a" / "0").glob("*.sources")
    aside = tmp_path / "aside"
    kept.rename(aside)
    kept.mkdir()  # cannot be read
    with pytest.raises(UnavailableError, match="sources"):
        async with running(tmp_path, a=two):
            pass
    kept.rmdir()
    aside.rename(kept)
    assert [sources(tmp_path, "a", index) for index in range(2)] == known


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


class Client:
    """The far end of a Kafka connection, as the door sees it."""

    peer = "192.0.2.1:1"
    host, identity = "192.0.2.1", None
    local = Address("192.0.2.2", 9092)

    def __init__(self):
        self.answered = asyncio.Event()
        self.reading = True

    def write(self, _):
        self.answered.set()

    def pause(self):
        self.reading = False

    def resume(self):
        self.reading = True


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
        assert door.held_bytes == 0


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


async def settle():
    """Lets everything run that can."""
    for _ in range(10):
        await asyncio.sleep(0)


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
