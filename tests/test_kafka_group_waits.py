"""Members that wait hold what their group counts, and nothing of what requests may hold."""

import asyncio

from headrace.kernel.groups.events import GroupSettings
from headrace.node.kafka import KafkaDoor, KafkaSettings
from headrace.wire.kafka import apis
from headrace.wire.kafka import members as m
from headrace.wire.kafka.frames import decode_response, encode_request
from headrace.wire.kafka.messages import MetadataRequest, MetadataRequestTopic
from nodes import Client, running, settle

LARGE = bytes(200_000)
NAMES = MetadataRequest(topics=[MetadataRequestTopic(name="t")])


class MemberClient(Client):
    """A client that asks for one thing at a time."""

    def __init__(self, door):
        super().__init__()
        self.connection = door(self)

    def send(self, api, body):
        self.answered.clear()
        self.connection.received(encode_request(api, api.last, 1, "c", body))

    async def receive(self, api):
        await asyncio.wait_for(self.answered.wait(), 30)
        return decode_response(api, api.last, 1, self.sent.pop()[4:])

    async def call(self, api, body):
        self.send(api, body)
        return await self.receive(api)


def joins(member="", metadata=b""):
    return m.JoinGroupRequest(
        group_id="g",
        session_timeout_ms=1_800_000,
        rebalance_timeout_ms=1_800_000,
        member_id=member,
        protocol_type="consumer",
        protocols=[m.JoinGroupProtocol(name="range", metadata=metadata)],
    )


def syncs(joined, **assignments):
    return m.SyncGroupRequest(
        group_id="g",
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=[
            m.SyncGroupAssignment(member_id=name, assignment=said)
            for name, said in assignments.items()
        ],
    )


async def test_members_that_wait_hold_nothing_of_what_all_requests_may(memory_folder):
    settings = KafkaSettings(groups=GroupSettings(initial_delay_ms=0))
    async with running(memory_folder) as (node, _):
        door = await KafkaDoor.open(node._broker, settings, node.gate)
        leader, other = MemberClient(door), MemberClient(door)

        async def waits(client):
            """What requests hold while a client has no answer."""
            await settle()
            assert not client.answered.is_set()
            return door.memory.held_bytes, door.memory.work_bytes

        ids = {}
        for client in (leader, other):
            ids[client] = (await client.call(apis.JOIN_GROUP, joins())).member_id
        await leader.call(apis.JOIN_GROUP, joins(ids[leader]))
        other.send(apis.JOIN_GROUP, joins(ids[other], LARGE))
        assert await waits(other) == (0, 0)
        assert door.coordinator.groups._held_bytes.total > len(LARGE)
        led = await leader.call(apis.JOIN_GROUP, joins(ids[leader]))
        followed = await other.receive(apis.JOIN_GROUP)
        assert led.leader == led.member_id != followed.member_id
        assert [len(each.metadata) for each in led.members] == [0, len(LARGE)]

        other.send(apis.SYNC_GROUP, syncs(followed, x=LARGE))
        assert await waits(other) == (0, 0)
        shares = {led.member_id: b"a", followed.member_id: LARGE}
        assert (await leader.call(apis.SYNC_GROUP, syncs(led, **shares))).assignment == b"a"
        assert (await other.receive(apis.SYNC_GROUP)).assignment == LARGE

        other.send(apis.JOIN_GROUP, joins(ids[other], LARGE[1:]))
        assert await waits(other) == (0, 0)
        other.connection.received(encode_request(apis.METADATA, apis.METADATA.last, 2, "c", NAMES))
        held_bytes, work_bytes = await waits(other)
        assert (held_bytes > 0, work_bytes) == (True, 0), "what is behind it is no work, either"
        for client in (leader, other):
            client.connection.closed()
        assert await waits(other) == (0, 0)
