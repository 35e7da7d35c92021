"""One Kafka connection whose requests are long, or many: what is read and begun when."""

import asyncio

from headrace import limits
from headrace.node.kafka.connection import KafkaConnection
from headrace.node.kafka.pace import turns
from headrace.node.turns import Turns
from headrace.wire.kafka import apis
from headrace.wire.kafka import messages as m
from kafkaends import Link, finish, metadata, naming, request, settle


async def test_long_requests_are_read_while_those_in_work_hold_little(door, monkeypatch):
    few = limits.KAFKA_ELEMENTS_FEW + 1
    monkeypatch.setattr(limits, "KAFKA_WORK_BYTES_MAX", few * limits.KAFKA_ELEMENT_BYTES)
    connections = [KafkaConnection(door, Link()) for _ in range(4)]
    hurried = []
    with door.memory.waits(lambda: hurried.append(True)):
        for number, each in enumerate(connections):
            each.received(naming(number, few))
        await settle()
        assert list(door.work) == [0], "it holds as much as all may"
        assert hurried == [True]
    for number in range(4):
        await finish(door, number)
    assert list(door.work) == [0, 1, 2, 3]
    for each in connections:
        each.closed()
    assert (door.memory.held_bytes, door.memory.work_bytes) == (0, 0)


async def test_a_long_request_behind_another_is_read_when_that_has_ended(door, link, connection):
    connection.received(metadata(1))
    turns().take()  # as others would
    connection.received(naming(2, limits.KAFKA_ELEMENTS_FEW + 1))
    await settle()
    assert door.memory.held_bytes < limits.KAFKA_ELEMENTS_FEW * limits.KAFKA_ELEMENT_BYTES
    await finish(door, 1)
    await finish(door, 2)
    assert link.answered == [1, 2]


async def test_a_long_batch_that_came_whole_is_stored_though_its_client_has_left(door, connection):
    topics = [m.ProduceTopic(name="t", partitions=[])] * (limits.KAFKA_ELEMENTS_AT_ONCE + 1)
    connection.received(request(1, body=m.ProduceRequest(acks=0, timeout_ms=1, topics=topics)))
    decoding = connection._decoding
    connection.closed()
    await decoding
    await settle()
    assert list(door.work) == [1]
    await finish(door, 1)
    assert (door.memory.held_bytes, door.memory.work_bytes) == (0, 0)


async def test_what_a_request_is_in_memory_counts(door, link, connection, monkeypatch):
    """Elements that take two bytes on the wire, and many times that when they have been read."""
    monkeypatch.setattr(limits, "KAFKA_BUFFERED_BYTES_MAX", 500 * limits.KAFKA_ELEMENT_BYTES)
    many = m.MetadataRequest(topics=[m.MetadataRequestTopic(name="")] * 300)
    connection.received(b"".join(request(n, apis.METADATA, many) for n in range(10)))
    await settle()
    assert list(door.work) == [0], "the second has been read, and is beyond the bound"
    assert not link.reading
    await finish(door, 0)
    assert list(door.work) == [0, 1]
    for number in range(1, 10):
        await finish(door, number)
    assert link.answered == list(range(10))
    assert link.reading
    assert door.memory.held_bytes == 0


async def test_a_request_that_names_much_is_read_beside_the_loop_and_keeps_its_place(
    door, link, connection
):
    connection.received(naming(1, limits.KAFKA_ELEMENTS_AT_ONCE + 1) + metadata(2))
    assert (connection._decoding is not None, link.reading) == (True, False)
    await connection._decoding
    await settle()
    assert list(door.work) == [1]
    assert door.memory.held_bytes > limits.KAFKA_ELEMENTS_AT_ONCE * limits.KAFKA_ELEMENT_BYTES
    door.work[1].set_result(None)
    await next(iter(connection._pipeline))  # its answer is written beside the loop
    await settle()
    await finish(door, 2)
    assert (link.answered, link.reading) == ([1, 2], True)
    connection.received(naming(3, door.elements_max + 1))
    await connection._decoding
    assert (link.open, door.hung_up) == (False, {"malformed": 1})


async def test_requests_that_name_much_are_read_and_begun_in_turns_and_others_at_once(door):
    long = limits.KAFKA_ELEMENTS_FEW + 1
    connections = [KafkaConnection(door, Link()) for _ in range(4)]
    for number, each in enumerate(connections[:3]):
        each.received(naming(number, long))
    connections[3].received(naming(3, 1))
    assert [each._decoding is not None for each in connections] == [False, True, True, False]
    await asyncio.sleep(0)
    assert list(door.work) == [3], "who names little waits for nobody"
    begun = []
    while len(door.work) < 4:
        await asyncio.sleep(0)
        begun.append(len(door.work))
    assert begun == sorted(begun)
    assert set(begun) == {1, 2, 3, 4}, "one at a time"
    assert list(door.work) == [3, 0, 1, 2]
    for each in connections:
        each.closed()
    await settle()


async def test_produce_requests_take_their_places_in_order_though_one_waits_for_its_turn(
    door, connection
):
    topics = [m.ProduceTopic(name="t", partitions=[])] * (limits.KAFKA_ELEMENTS_FEW + 1)
    long = m.ProduceRequest(acks=1, timeout_ms=1, topics=topics)
    turns().take()  # somebody else has this one
    connection.received(request(1, body=long) + request(2))
    await settle()
    assert list(door.work) == [1, 2]
    await finish(door, 1, 2)


async def test_who_leaves_while_a_request_is_read_holds_nothing(door, connection):
    connection.received(naming(1, limits.KAFKA_ELEMENTS_AT_ONCE + 1))
    connection.closed()
    await settle()
    assert (door.memory.held_bytes, door.work) == (0, {})


async def test_an_iteration_begins_few_requests_of_all_connections_beside_the_first_of_a_read(
    door, monkeypatch
):
    monkeypatch.setattr(limits, "KAFKA_BEGUN_IN_TURN", 1)
    door.beginnings = Turns(5)
    links = [Link() for _ in range(6)]
    connections = [KafkaConnection(door, link) for link in links]
    for number, each in enumerate(connections):
        each.received(b"".join(request(100 * number + n) for n in range(20)))
    begun = [len(each._pipeline) for each in connections]
    assert begun == [6, 1, 1, 1, 1, 1]
    assert not any(link.reading for link in links)
    while min(begun) < 20:
        await asyncio.sleep(0)
        before, begun = begun, [len(each._pipeline) for each in connections]
        assert sum(begun) - sum(before) <= 5
        assert max(begun[1:]) - min(begun[1:]) <= 1, "one after the other"
    assert all(link.reading for link in links)
    while len(door.work) < 120:
        await settle()
    for first in range(0, 600, 100):
        of_one = [each for each in door.work if first <= each < first + 100]
        assert of_one == list(range(first, first + 20))
    for each in connections:
        each.closed()
    await finish(door, *door.work)
    assert (door.memory.held_bytes, door.memory.work_bytes) == (0, 0)


async def test_the_first_request_that_a_read_brings_waits_for_no_turn(door, link, connection):
    door.beginnings = Turns(1)
    door.beginnings.take()  # somebody else has it
    connection.received(request(1)[:-1])
    connection.received(request(1)[-1:] + request(2))
    assert (len(connection._pipeline), link.reading) == (1, False)
    await settle()
    assert (list(door.work), link.reading) == ([1, 2], True)


async def test_batches_that_came_whole_are_begun_in_turns_though_their_client_has_left(
    door, link, connection
):
    door.beginnings = Turns(1)
    came = b"".join(metadata(10 * n) + request(10 * n + 1) + request(10 * n + 2) for n in range(9))
    connection.received(came + request(100)[:-1])
    await settle()
    assert list(door.work) == [0]
    connection.closed()
    await settle()
    assert door.work.pop(0).cancelled()
    batches = [10 * n + each for n in range(9) for each in (1, 2)]
    assert list(door.work) == batches, "and no metadata"
    assert door.memory.held_bytes > 0
    await finish(door, *batches)
    assert (door.memory.held_bytes, link.answered) == (0, [])


async def test_a_turn_is_for_few_requests(door, link, connection, monkeypatch):
    monkeypatch.setattr(limits, "KAFKA_BEGUN_IN_TURN", 3)
    door.beginnings = Turns(1)
    connection.received(b"".join(request(n) for n in range(20)))
    assert len(connection._pipeline) == 4, "the first, and those of a turn"
    while not link.reading:
        before = len(connection._pipeline)
        await asyncio.sleep(0)
        assert len(connection._pipeline) - before in {0, 3, 1}
    assert len(connection._pipeline) == 20
    await settle()
    await finish(door, *range(20))


async def test_of_a_client_that_has_left_no_more_is_begun_than_it_may_have_in_work(
    door, connection, monkeypatch
):
    monkeypatch.setattr(limits, "KAFKA_PIPELINE_MAX", 10)
    connection.received(b"".join(request(n) for n in range(4)))
    await settle()
    connection.received(metadata(4) + b"".join(request(n) for n in range(5, 30)))
    assert len(connection._pipeline) == limits.KAFKA_BEHIND_MAX
    connection.closed()
    await settle()
    assert list(door.work) == [0, 1, 2, 3, 5, 6, 7, 8, 9], "and room for 4, which stores nothing"
    await finish(door, *door.work)
    assert (len(door.work), door.memory.held_bytes) == (9, 0)


async def test_a_long_request_that_waits_for_the_transport_loses_no_batch_of_who_leaves(door):
    topics = [m.ProduceTopic(name="t", partitions=[])] * (limits.KAFKA_ELEMENTS_FEW + 1)
    long = m.ProduceRequest(acks=0, timeout_ms=1, topics=topics)
    first = {
        1: request(1, body=long),
        2: naming(2, limits.KAFKA_ELEMENTS_FEW + 1),
        3: request(3, body=long),
    }
    connections = {number: KafkaConnection(door, Link()) for number in first}
    for number, connection in connections.items():
        turns().take()  # as others would
        connection.received(first[number] + request(10 + number))
        connection.writable(False)  # noqa: FBT003 - the port's one flag
        await settle()
        assert (connection._next is not None, door.work) == (True, {})
    for number in (1, 2):
        connections[number].closed()
        await settle()
    assert list(door.work) == [1, 11, 12], "and no metadata"
    door.congested = True
    connections[3].closed()
    await settle()
    assert list(door.work) == [1, 11, 12], "nothing waits for the disk"
    await finish(door, 1, 11, 12)
    assert (door.memory.held_bytes, door.memory.work_bytes, door.waiting) == (0, 0, set())


async def test_of_a_client_that_has_left_nothing_waits_for_the_disk(door, connection, monkeypatch):
    monkeypatch.setattr(limits, "KAFKA_BEGUN_IN_TURN", 1)
    door.beginnings = Turns(1)
    connection.received(request(1) + request(2) + request(3))
    connection.closed()
    door.congested = True
    await settle()
    assert (list(door.work), door.waiting) == ([1, 2], set())
    await finish(door, 1, 2)
    assert door.memory.held_bytes == 0
