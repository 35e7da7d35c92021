"""What clients of a door leave unread is bounded, and what is read for them comes in turns."""

import asyncio
import gc
import json

from headrace.kernel.catalog import Change
from headrace.kernel.holdings import Holdings
from headrace.native import FrameOutflow, build_batch
from headrace.node.frame import FrameDoor, FrameSettings
from headrace.node.kafka import KafkaDoor, KafkaSettings
from headrace.wire.kafka import apis
from headrace.wire.kafka import messages as m
from headrace.wire.kafka.frames import encode_request
from nodes import Client, running, settle

SIZE_BYTES = 100_000
BATCH = build_batch([(None, bytes(SIZE_BYTES), [], 1)])


class Stalled(Client):
    """The far end of a connection that takes nothing."""

    def __init__(self, door):
        super().__init__()
        self.connection = door(self)

    def write(self, data):
        super().write(data)
        if len(data) > 10_000:
            self.connection.writable(False)  # noqa: FBT003 - the port's one flag

    def abort(self):
        self.is_open = False
        self.connection.closed()


async def test_kafka_responses_that_nobody_reads(tmp_path):
    part = m.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [m.FetchTopic(topic="a", partitions=[part])]
    body = m.FetchRequest(topics=topics, max_wait_ms=0, min_bytes=1, max_bytes=1 << 20)
    request = encode_request(apis.FETCH, apis.FETCH.last, 1, "c", body)
    async with running(tmp_path, a=Change()) as (node, _):
        await node._broker.partition("a", 0).append(BATCH, 1)
        door = KafkaDoor(node._broker, KafkaSettings(), node.gate)
        door.unread = Holdings(3 * len(BATCH))

        async def fetches(client):
            client.answered.clear()
            client.connection.received(request)
            await asyncio.wait_for(client.answered.wait(), 30)

        first, second, third = (Stalled(door) for _ in range(3))
        await fetches(first)
        await fetches(second)
        assert door.unread.total_bytes > 2 * len(BATCH)
        first.connection.writable(True)  # noqa: FBT003 - the port's one flag
        await fetches(first)
        assert (first.is_open, second.is_open) == (True, True)
        await fetches(third)
        assert (first.is_open, second.is_open, third.is_open) == (True, False, True)
        assert door.hung_up["slow"] == 1
        for client in (first, third):
            client.connection.closed()
        assert door.unread.total_bytes == 0


async def test_frames_that_nobody_reads(tmp_path):
    line = json.dumps({"stream": "a", "mode": "consume", "offset": 0}).encode() + b"\n"
    async with running(tmp_path, a=Change()) as (node, _):
        await node._broker.partition("a", 0).append(BATCH, 1)
        door = FrameDoor(node._broker, FrameSettings(), node.gate)
        door.unread = Holdings(3 * len(BATCH))

        async def consumes():
            client = Stalled(door)
            client.connection.received(line)
            while not client.sent or len(client.sent[-1]) < SIZE_BYTES:
                client.answered.clear()
                await asyncio.wait_for(client.answered.wait(), 30)
            return client

        first, second = await consumes(), await consumes()
        assert door.unread.total_bytes > 2 * len(BATCH) - 1_000
        third = await consumes()
        fourth = await consumes()
        assert [each.is_open for each in (first, second, third, fourth)].count(False) == 1
        assert not first.is_open
        assert door.refused["memory"] == 1
        for client in (second, third, fourth):
            client.connection.closed()
        assert (door.unread.total_bytes, door.consumers) == (0, 0)


async def test_consumers_read_and_send_in_turns(tmp_path):
    line = json.dumps({"stream": "a", "mode": "consume", "offset": 0}).encode() + b"\n"
    async with running(tmp_path, a=Change()) as (node, _):
        for _ in range(3):
            await node._broker.partition("a", 0).append(BATCH, 1)
        door = FrameDoor(node._broker, FrameSettings(), node.gate)
        clients = [Client() for _ in range(20)]
        connections = [door(client) for client in clients]
        for connection in connections:
            connection.received(line)

        def written():
            return sum(len(data) > SIZE_BYTES for client in clients for data in client.sent)

        before, most = 0, 0
        async with asyncio.timeout(30):
            while before < 3 * len(clients):
                await asyncio.sleep(0)
                most, before = max(most, written() - before), written()
        assert most == 1, "in an iteration of the loop, however many wait"
        for connection in connections:
            connection.closed()
        assert (door.held_bytes, door.consumers) == (0, 0)


async def test_what_was_read_for_a_consumer_goes_with_it(tmp_path):
    line = json.dumps({"stream": "a", "mode": "consume", "offset": 0}).encode() + b"\n"
    async with running(tmp_path, a=Change()) as (node, _):
        batch = build_batch([(None, bytes(20_000), [], 1)] * 20)
        await node._broker.partition("a", 0).append(batch, 1)
        client = Stalled(FrameDoor(node._broker, FrameSettings(), node.gate))
        gc.collect()
        gc.disable()  # it must not be what collects garbage, which does not count bytes
        try:
            client.connection.received(line)
            await settle()
            assert any(isinstance(each, FrameOutflow) for each in gc.get_objects())
            client.connection._then.end_slow()
            await settle()
            assert not any(isinstance(each, FrameOutflow) for each in gc.get_objects())
        finally:
            gc.enable()
