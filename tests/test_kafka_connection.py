"""One Kafka connection between a link that records and a door that answers when it is told to."""

import asyncio
from struct import pack

from headrace import limits
from headrace.node.kafka.connection import HangUp, KafkaConnection
from headrace.wire.kafka import messages as m
from kafkaends import Door, Link, finish, joining, metadata, request, settle

LARGE = m.ProduceTopic(name="t", partitions=[m.ProducePartition(index=0, records=bytes(1000))])


async def test_produce_requests_overlap_and_are_answered_in_order(door, link, connection):
    connection.received(request(1) + request(2) + request(3))
    await settle()
    assert list(door.work) == [1, 2, 3]
    await finish(door, 3, 2)
    assert link.answered == []
    await finish(door, 1)
    assert link.answered == [1, 2, 3]


async def test_other_requests_begin_when_all_before_them_have_ended(door, link, connection):
    connection.received(request(1) + metadata(2) + metadata(3) + request(4) + request(5))
    await settle()
    assert list(door.work) == [1]
    await finish(door, 1)
    assert list(door.work) == [1, 2]
    await finish(door, 2)
    await finish(door, 3)
    assert list(door.work) == [1, 2, 3, 4, 5]
    await finish(door, 5, 4)
    assert link.answered == [1, 2, 3, 4, 5]


async def test_produce_requests_behind_another_keep_their_order_if_the_pipeline_is_full(
    door, connection
):
    last = limits.KAFKA_PIPELINE_MAX + 4
    connection.received(metadata(0) + b"".join(request(n) for n in range(1, last + 1)))
    await settle()
    assert len(connection._pipeline) == limits.KAFKA_BEHIND_MAX
    await finish(door, 0)
    assert len(connection._pipeline) == limits.KAFKA_PIPELINE_MAX
    await finish(door, *list(door.work)[1:])
    assert list(door.work) == list(range(last + 1))


async def test_produce_requests_keep_their_order_if_they_come_as_one_before_them_ends(
    door, connection
):
    connection.received(metadata(0) + request(1))
    await settle()
    door.work[0].set_result(None)
    for number in range(2, 9):  # in each iteration of the loop until 1 begins, and beyond
        await asyncio.sleep(0)
        connection.received(request(number))
    await settle()
    assert list(door.work) == list(range(9))
    await finish(door, *range(1, 9))


async def test_the_pipeline_is_bounded_and_goes_on(door, link, connection):
    count = limits.KAFKA_PIPELINE_MAX
    connection.received(b"".join(request(n) for n in range(count + 5)))
    await settle()
    assert len(door.work) == count
    assert not link.reading
    await finish(door, *range(count))
    assert link.reading
    assert link.answered == list(range(count))
    assert len(door.work) == count + 5


async def test_a_full_transport_stops_new_requests(door, link, connection):
    connection.received(metadata(1))
    await settle()
    connection.writable(ready=False)
    await finish(door, 1)
    connection.received(metadata(2))
    await settle()
    assert list(door.work) == [1]
    assert not link.reading
    connection.writable(ready=True)
    await settle()
    assert link.reading
    await finish(door, 2)
    assert link.answered == [1, 2]


async def test_closing_cancels_what_waits(door, link, connection):
    connection.received(metadata(1) + metadata(2))
    await settle()
    connection.closed()
    await settle()
    assert door.work[1].cancelled()
    assert list(door.work) == [1], "and the second is not begun"
    assert link.answered == []
    assert door.memory.held_bytes == 0


async def test_closing_cancels_no_batch_that_came_whole(door, link, connection):
    connection.received(metadata(1) + request(2) + request(3) + metadata(4))
    await settle()
    connection.closed()
    await settle()
    assert door.work[1].cancelled()
    assert sorted(door.work) == [1, 2, 3], "and nobody waits for the metadata"
    await finish(door, 2, 3)
    assert link.answered == []


async def test_a_malformed_request_ends_it_and_later_ones_are_not_read(door, link, connection):
    connection.received(pack(">i", -1) + request(1))
    connection.received(request(2))
    await settle()
    assert not link.open
    assert door.hung_up == {"malformed": 1}
    assert door.work == {}


async def test_a_handler_may_hang_up(door, link, connection):
    connection.received(request(1))
    await settle()
    door.work[1].set_exception(HangUp("produce", "why"))
    await settle()
    assert not link.open
    assert door.hung_up == {"produce": 1}


async def test_a_bug_costs_one_connection(door, link, connection, caplog):
    connection.received(request(1))
    await settle()
    door.work[1].set_exception(RuntimeError("planted"))
    await settle()
    assert not link.open
    assert door.hung_up == {"bug": 1}
    assert "planted" in caplog.text


async def test_memory_of_unfinished_requests_is_bounded(door, link, connection, monkeypatch):
    monkeypatch.setattr(limits, "KAFKA_BUFFERED_BYTES_MAX", 1000)
    busy_link = Link()
    busy = KafkaConnection(door, busy_link)
    busy.received(request(1))
    await settle()
    connection.received(pack(">i", 5000) + bytes(900))
    assert link.open
    busy.received(request(2) + pack(">i", 5000) + bytes(200))
    assert busy_link.open
    assert not busy_link.reading, "its own work will make room"
    connection.received(bytes(100))
    assert (link.open, link.reading) == (True, True), "little may come in any case"
    monkeypatch.setattr(limits, "KAFKA_PART_BYTES", 500)
    connection.received(bytes(100))
    assert (link.open, link.reading) == (True, False), "the work of others will make room"
    third_link = Link()
    third = KafkaConnection(door, third_link)
    third.received(request(3))
    await settle()
    assert not third_link.reading
    await finish(door, 3)
    assert third_link.reading, "it holds nothing"
    third.closed()
    await finish(door, 1)
    await finish(door, 2)
    connection.closed()
    assert busy_link.open
    assert busy_link.reading
    busy.closed()
    await settle()


async def test_who_is_read_no_further_for_others_goes_on_when_they_are_done(
    door, link, connection, monkeypatch
):
    monkeypatch.setattr(limits, "KAFKA_BUFFERED_BYTES_MAX", 1000)
    monkeypatch.setattr(limits, "KAFKA_PART_BYTES", 500)
    busy = KafkaConnection(door, Link())
    busy.received(request(1, body=m.ProduceRequest(acks=1, timeout_ms=1, topics=[LARGE])))
    await settle()
    whole = request(2, body=m.ProduceRequest(acks=1, timeout_ms=1, topics=[LARGE]))
    connection.received(whole[:600])
    assert not link.reading
    await finish(door, 1)
    assert link.reading
    connection.received(whole[600:])
    await settle()
    await finish(door, 2)
    assert (link.open, link.answered) == (True, [2])
    busy.closed()


async def test_the_oldest_beginning_of_a_request_gives_way(link, monkeypatch):
    monkeypatch.setattr(limits, "KAFKA_PARTS_BYTES_MAX", 1000)
    monkeypatch.setattr(limits, "KAFKA_PART_BYTES", 100)
    door = Door()
    part = pack(">i", 5000) + bytes(400)
    links = [Link(), link, Link()]
    connections = [KafkaConnection(door, each) for each in links]
    for connection in connections:
        connection.received(part)
    assert [each.open for each in links] == [False, True, True]
    assert door.hung_up == {"memory": 1}
    for connection in connections:
        connection.closed()
    assert (door.memory.held_bytes, door.memory.parts.total_bytes) == (0, 0)


async def test_of_many_small_beginnings_the_oldest_gives_way(link, monkeypatch):
    monkeypatch.setattr(limits, "KAFKA_PARTS_BYTES_MAX", 1000)
    door = Door()
    links = [Link(), link, Link()]
    connections = [KafkaConnection(door, each) for each in links]
    for connection in connections:
        connection.received(pack(">i", 5000) + bytes(396))
    assert [each.open for each in links] == [False, True, True]
    assert door.hung_up == {"memory": 1}
    for connection in connections:
        connection.closed()
    assert (door.memory.held_bytes, door.memory.parts.total_bytes) == (0, 0)


async def test_behind_a_request_that_waits_little_is_read(door, link, connection, monkeypatch):
    monkeypatch.setattr(limits, "KAFKA_PART_BYTES", 500)
    whole = request(2, body=m.ProduceRequest(acks=1, timeout_ms=1, topics=[LARGE]))
    hurried = []
    connection.received(joining(1))
    connection.hurry = lambda: hurried.append(True)
    await settle()
    connection.received(whole[:500])
    assert (link.reading, hurried) == (True, [])
    connection.received(whole[500:501])
    assert (link.reading, hurried) == (False, [True])
    await finish(door, 1)
    assert link.reading
    connection.received(whole[501:])
    await settle()
    await finish(door, 2)
    assert link.answered == [1, 2]


async def test_what_waits_behind_a_request_is_work_once_that_has_ended(door, connection):
    whole = [request(1), joining(2), request(3), request(4), joining(5), joining(6)]
    sizes = [len(each) for each in whole]
    connection.received(b"".join(whole))
    await settle()
    assert door.memory.work_bytes == sum(sizes[:2]), "a batch ends in any case"
    await finish(door, 1)
    assert door.memory.work_bytes == sizes[1]
    await finish(door, 2)
    assert door.memory.work_bytes == sum(sizes[2:5])
    await finish(door, 3)
    assert door.memory.work_bytes == sum(sizes[3:5])
    await finish(door, 4)
    await finish(door, 5)
    assert door.memory.work_bytes == door.memory.held_bytes == sizes[5]


async def test_behind_a_request_that_ends_by_itself_all_is_read(
    door, link, connection, monkeypatch
):
    monkeypatch.setattr(limits, "KAFKA_PART_BYTES", 500)
    body = m.ProduceRequest(acks=1, timeout_ms=1, topics=[LARGE])
    whole, next_one = request(3, body=body), request(4, body=body)
    connection.received(request(1) + metadata(2) + whole + next_one[:600])
    await settle()
    assert (link.reading, door.memory.parts.total_bytes) == (True, 0), "no beginning"
    elements_bytes = 2 * limits.KAFKA_ELEMENT_BYTES
    assert door.memory.work_bytes == len(request(1) + metadata(2) + whole) + elements_bytes
    connection.received(next_one[600:] + joining(5) + whole[:600])
    assert (link.reading, door.memory.parts.total_bytes) == (False, 600), "which may wait"
    await finish(door, 1)
    await finish(door, 2)
    await finish(door, 3, 4)
    assert (link.answered, list(door.work)) == ([1, 2, 3, 4], [1, 2, 3, 4, 5])


async def test_behind_a_request_whose_client_does_not_read_little_is_read(
    door, link, connection, monkeypatch
):
    monkeypatch.setattr(limits, "KAFKA_PART_BYTES", 500)
    whole = request(3, body=m.ProduceRequest(acks=1, timeout_ms=1, topics=[LARGE]))
    connection.received(metadata(1) + metadata(2) + whole[:600])
    await settle()
    connection.writable(False)  # noqa: FBT003 - the port's one flag
    await finish(door, 1)
    assert list(door.work) == [1], "the second waits until its client reads"
    assert (link.reading, door.memory.parts.total_bytes) == (False, 600)
    connection.writable(True)  # noqa: FBT003
    await settle()
    assert (link.reading, door.memory.parts.total_bytes) == (True, 0)
    assert door.memory.work_bytes == len(metadata(2))
    await finish(door, 2)


async def test_the_oldest_that_holds_much_behind_a_request_that_waits_gives_way(monkeypatch):
    monkeypatch.setattr(limits, "KAFKA_PART_BYTES", 500)
    monkeypatch.setattr(limits, "KAFKA_PARTS_BYTES_MAX", 1500)
    door = Door()
    whole = request(2, body=m.ProduceRequest(acks=1, timeout_ms=1, topics=[LARGE]))
    links = [Link() for _ in range(3)]
    connections = [KafkaConnection(door, each) for each in links]
    connections[0].received(whole + joining(1))
    assert door.memory.parts.total_bytes == 0, "a batch before it is in work"
    for each in connections:
        each.received(joining(1) + whole[:600])
    assert [each.open for each in links] == [False, True, True]
    assert door.hung_up == {"memory": 1}
    for each in connections:
        each.closed()
    await settle()
    await finish(door, 2)
    assert (door.memory.held_bytes, door.memory.work_bytes) == (0, 0)


async def test_who_reads_nothing_for_long_is_ended(door, link, connection):
    connection.received(metadata(1) + metadata(2))
    await settle()
    connection.writable(False)  # noqa: FBT003 - the port's one flag
    await finish(door, 1)
    for _ in range(2):
        assert link.open
        connection._idle.cancel()
        connection._look()
    assert (link.open, door.hung_up) == (False, {"slow": 1})


async def test_batches_wait_while_too_many_wait_for_the_disk(door, link, connection):
    door.congested = True
    connection.received(metadata(1) + request(2) + request(3) + metadata(4))
    await settle()
    await finish(door, 1)
    assert list(door.work) == [1], "only produce requests wait, and keep their place"
    assert not link.reading
    assert door.waiting == {connection}
    door.congested = False
    connection.advance()
    await settle()
    assert list(door.work) == [1, 2, 3]
    assert link.reading
    await finish(door, 2, 3)
    await finish(door, 4)
    assert link.answered == [1, 2, 3, 4]
    door.congested = True
    connection.received(request(5))
    connection.closed()
    assert door.waiting == set()


async def test_a_connection_whose_request_is_in_work_is_not_idle(door, link, connection):
    connection.received(metadata(1))
    await settle()
    connection._look()  # which forgets the request's bytes
    connection._look()
    assert link.open
    await finish(door, 1)
    connection._look()
    assert not link.open
    assert door.hung_up == {"idle": 1}


async def test_a_connection_beyond_a_quota_is_not_read_and_not_idle(door, link, connection):
    door.throttle_ms = 3_600_000
    connection.received(request(1) + metadata(2))
    await settle()
    connection.received(metadata(3))
    assert not link.reading
    await finish(door, 1)
    await finish(door, 2)
    assert link.answered == [1, 2], "what was begun is answered"
    assert list(door.work) == [1, 2]
    connection._look()
    connection._look()
    assert link.open
    door.throttle_ms = 0
    connection._muted.cancel()
    connection._unmute()
    await settle()
    assert link.reading
    await finish(door, 3)
    assert link.answered == [1, 2, 3]
