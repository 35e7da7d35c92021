"""The ends of a Kafka connection: a link that records, a door that answers when it is told to."""

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from struct import unpack_from

from headrace import limits
from headrace.kernel.holdings import Holdings
from headrace.model import Address
from headrace.node.kafka.connection import KafkaConnection
from headrace.node.kafka.door import KafkaSettings
from headrace.node.kafka.memory import Memory
from headrace.node.turns import Turns
from headrace.wire.kafka import apis, members
from headrace.wire.kafka import messages as m
from headrace.wire.kafka.frames import encode_request

METADATA = m.MetadataRequest(topics=[])
PRODUCE = m.ProduceRequest(acks=1, timeout_ms=1, topics=[])
JOIN = members.JoinGroupRequest(
    group_id="g", session_timeout_ms=1, member_id="", protocol_type="consumer", protocols=[]
)
ANSWERS = {
    apis.JOIN_GROUP: members.JoinGroupResponse(members=[]),
    apis.METADATA: m.MetadataResponse(brokers=[], topics=[]),
    apis.PRODUCE: m.ProduceResponse(topics=[]),
}


class Link:
    peer = "192.0.2.1:1"
    host = "192.0.2.1"
    identity, secure = None, False
    local = Address("192.0.2.2", 9092)

    def __init__(self):
        self.answered = []  # correlation ids
        self.reading = True
        self.open = True

    def write(self, data):
        self.answered.append(unpack_from(">i", data, 4)[0])

    def write_all(self, pieces):
        self.write(b"".join(pieces))

    def pause(self):
        self.reading = False

    def resume(self):
        self.reading = True

    def close(self):
        self.open = False

    abort = close


class Door:
    """Answers a request when its future in `work` is done."""

    def __init__(self):
        self.memory = Memory()
        self.beginnings = Turns(limits.KAFKA_TURNS_AT_ONCE)
        self.congested = False
        self.waiting = set()
        self.hung_up = Counter()
        self.unread = Holdings(1 << 20)
        self.work = {}
        self.settings = KafkaSettings(idle_ms=100)
        self.throttle_ms = 0
        self.scribe = None  # the loop's own threads
        self.elements_max = 2 * limits.KAFKA_ELEMENTS_AT_ONCE

    def owed(self, *_):
        return 0

    def charge(self, *_):
        return self.throttle_ms

    async def answer(self, connection, request):
        connection.appended()
        self.work[request.correlation_id] = asyncio.get_running_loop().create_future()
        await self.work[request.correlation_id]
        return ANSWERS[request.api]


@asynccontextmanager
async def connected(door, link):
    """A connection, which leaves nothing behind once all its requests have ended."""
    connection = KafkaConnection(door, link)
    yield connection
    connection.closed()
    while waiting := [each for each in door.work.values() if not each.done()]:
        waiting[0].set_result(None)
        await settle()
    await settle()
    assert (door.memory.held_bytes, door.memory.work_bytes) == (0, 0)


async def settle():
    """Lets everything run that can."""
    for _ in range(50):
        await asyncio.sleep(0)


def request(number, api=apis.PRODUCE, body=PRODUCE):
    return encode_request(api, api.last, number, "c", body)


def metadata(number):
    return request(number, apis.METADATA, METADATA)


def joining(number):
    """One that waits for other clients, as far as a connection knows."""
    return request(number, apis.JOIN_GROUP, JOIN)


def naming(number, topics):
    body = m.MetadataRequest(topics=[m.MetadataRequestTopic(name="t")] * topics)
    return request(number, apis.METADATA, body)


async def finish(door, *numbers):
    for number in numbers:
        door.work[number].set_result(None)
    await settle()
