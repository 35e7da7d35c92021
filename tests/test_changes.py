"""A change of what lasts is made whole, also where whoever asked for it leaves meanwhile."""

import asyncio

import pytest

from conftest import wait_for
from headrace.node.changes import Changes
from headrace.wire.kafka import admin, apis
from headrace.wire.kafka.errors import ErrorCode
from kafkaraw import RawConnection, batch

PARTITIONS = 500
"""Enough to see that they are being made."""


def creating(name):
    topics = [admin.CreateTopic(name=name, num_partitions=PARTITIONS, replication_factor=1)]
    return admin.CreateTopicsRequest(topics=topics, timeout_ms=10_000)


def growing(name):
    topics = [admin.CreatePartitionsTopic(name=name, count=PARTITIONS, assignments=None)]
    return admin.CreatePartitionsRequest(topics=topics, timeout_ms=10_000)


def test_a_stream_is_created_although_its_client_leaves_meanwhile(broker):
    with RawConnection(broker) as leaving:
        leaving.send(apis.CREATE_TOPICS, creating("s"))
        wait_for((broker.data / "streams/s/stream.json").exists)
    with RawConnection(broker) as other:
        (result,) = other.call(apis.CREATE_TOPICS, creating("s")).topics
        assert result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS, result.error_message
        assert other.produce("s", batch(b"x"), partition=PARTITIONS - 1).base_offset == 0


def test_a_stream_grows_although_its_client_leaves_meanwhile(broker):
    broker.create_stream("s", partitions=1)
    definition = broker.data / "streams/s/stream.json"
    before = definition.read_bytes()
    with RawConnection(broker) as leaving:
        leaving.send(apis.CREATE_PARTITIONS, growing("s"))
        wait_for(lambda: definition.read_bytes() != before)
    wait_for(lambda: len(broker.ends("s")) == PARTITIONS)
    with RawConnection(broker) as other:
        assert other.produce("s", batch(b"x"), partition=PARTITIONS - 1).base_offset == 0


class Disk:
    """Calls that wait until a test lets them go on."""

    def __init__(self):
        self.done = []
        self.room = asyncio.Event()

    def call(self, name, error=None):
        async def change():
            self.done.append(f"{name} begins")
            await self.room.wait()
            if error is not None:
                raise error
            self.done.append(f"{name} ends")
            return name

        return change


async def begun(changes, change):
    """A task that waits for a change which is under way, or for its turn."""
    task = asyncio.create_task(changes.make(change))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return task


async def test_a_change_that_has_begun_ends_and_the_next_waits_for_it():
    changes, disk = Changes(), Disk()
    first = await begun(changes, disk.call("first"))
    second = await begun(changes, disk.call("second"))
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert disk.done == ["first begins"]
    disk.room.set()
    assert await second == "second"
    assert disk.done == ["first begins", "first ends", "second begins", "second ends"]


async def test_who_leaves_before_its_turn_has_changed_nothing():
    changes, disk = Changes(), Disk()
    first = await begun(changes, disk.call("first"))
    second = await begun(changes, disk.call("second"))
    second.cancel()
    disk.room.set()
    assert await first == "first"
    await changes.quiet()
    assert disk.done == ["first begins", "first ends"]


async def test_a_change_that_fails_is_told_to_whoever_waits_and_logged_where_nobody_does(caplog):
    changes, disk = Changes(), Disk()
    first = await begun(changes, disk.call("first", OSError("no room")))
    first.cancel()
    second = await begun(changes, disk.call("second", OSError("no room either")))
    disk.room.set()
    with pytest.raises(OSError, match="no room either"):
        await second
    await changes.quiet()

    (line,) = caplog.messages
    assert line.endswith("failed: no room")
