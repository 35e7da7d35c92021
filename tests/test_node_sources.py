"""What a node knows of MQTT sources whose messages it stored: kept before these go."""

import pytest

from headrace import limits
from headrace.errors import StorageError, UnavailableError
from headrace.kernel.catalog import Change
from headrace.native import Store, build_batch
from nodes import HeldStore, definition, publish, running, settle


def sources(data, stream, partition):
    """What an orderly start would know of a partition's sources."""
    store = Store.open(str(data))
    incarnation = definition(data, stream).incarnation
    found = store.last_sources(store.open_log(stream, partition, incarnation, 0))
    store.close()
    return found


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


async def test_what_a_damaged_snapshot_told_is_kept_again_before_a_trim(tmp_path):
    a = Change(filters=["a"])
    for sequence in (1, 2):
        async with running(tmp_path, a=a) as (node, _):
            await publish(node, "a", sequence)
    older, newest = sorted((tmp_path / "streams" / "a" / "0").glob("*.sources"))
    newest.write_bytes(bytes(older.stat().st_size))
    async with running(tmp_path, a=a) as (node, _):
        await node._broker.trim(node._broker.partition("a", 0), 2, "test")
    assert sources(tmp_path, "a", 0) == [("s", 1, 2)]


async def test_a_trim_to_where_a_partition_begins_already_does_nothing(tmp_path):
    async with running(tmp_path, a=Change(filters=["a"])) as (node, store):
        await publish(node, "a", 1)
        partition = node._broker.partition("a", 0)
        await node._broker.trim(partition, 1, "test")
        await publish(node, "a", 2)
        store.keeps_sources = False
        await node._broker.trim(partition, 1, "test")
        assert partition.start_offset == 1


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


async def test_a_start_that_fails_forgets_no_sources(tmp_path, monkeypatch):
    two = Change(partitions=2, filters=["#"])
    async with running(tmp_path, a=two) as (node, _):
        for number in range(10):
            await publish(node, f"topic/{number}", number)
    known = [sources(tmp_path, "a", index) for index in range(2)]
    assert all(known)

    def refuse(_store, _log):
        raise StorageError("sources: planted")

    with monkeypatch.context() as planted:
        planted.setattr(HeldStore, "last_sources", refuse, raising=False)
        with pytest.raises(UnavailableError, match="sources"):
            async with running(tmp_path, a=two):
                pass
    assert [sources(tmp_path, "a", index) for index in range(2)] == known
