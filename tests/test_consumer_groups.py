"""Groups of headrace.Consumer against real nodes, alone and beside another client library."""

import asyncio
import contextlib
import time

import confluent_kafka
import pytest

import headrace
from headrace import TopicPartition
from headrace.client import RequestError
from headrace.client.config import ASSIGNORS
from headrace.wire.kafka.errors import ErrorCode
from kafkaraw import RawConnection, batch

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def node(shared):
    return shared


def fill(node, stream, numbers):
    with RawConnection(node) as raw:
        for n in numbers:
            assert raw.produce(stream, batch(b"%d" % n), n % 3).error_code == 0


def member(node, stream, **settings):
    quick = {
        "group_id": f"g-{stream}",
        "auto_offset_reset": "earliest",
        "fetch_max_wait_ms": 50,
        "heartbeat_interval_ms": 50,
        "session_timeout_ms": 6_000,
        "retry_backoff_ms": 10,
    }
    return headrace.Consumer(node.servers, stream, **quick | settings)


async def until(condition, *consumers, into=None):
    """Keeps consumers asking for records until something holds."""
    while not condition():
        for consumer in consumers:
            for records in (await consumer.getmany(timeout_ms=10)).values():
                if into is not None:
                    into.extend(record.value for record in records)


def numbers(values):
    return sorted(int(value) for value in values)


@pytest.mark.parametrize("strategy", ASSIGNORS)
async def test_members_share_and_hand_over(node, stream, strategy):
    fill(node, stream, range(30))
    got = []
    settings = {"partition_assignment_strategy": [strategy], "max_poll_records": 3}
    first = member(node, stream, **settings)
    async with first:
        await until(lambda: len(got) >= 9, first, into=got)
        assert len(first.assignment()) == 3
        async with member(node, stream, **settings) as second:
            await until(
                lambda: (
                    len(first.assignment()) + len(second.assignment()) == 3
                    and second.assignment()
                    and first.assignment()
                ),
                first,
                second,
                into=got,
            )
            assert not first.assignment() & second.assignment()
            await until(lambda: len(set(got)) == 30, first, second, into=got)
        await until(lambda: len(first.assignment()) == 3, first, into=got)
        await asyncio.to_thread(fill, node, stream, range(30, 40))
        await until(lambda: len(set(got)) == 40, first, into=got)
    assert numbers(got) == list(range(40)), "nothing came twice, for every hand-over was orderly"


async def test_cooperative_members_go_on_with_what_they_keep(node, stream):
    told = []

    class Listener(headrace.RebalanceListener):
        async def on_partitions_assigned(self, partitions):
            told.append(("assigned", len(partitions)))

        async def on_partitions_revoked(self, partitions):
            told.append(("revoked", len(partitions)))

    settings = {"partition_assignment_strategy": ["cooperative-sticky"]}
    first = member(node, stream, **settings)
    first.subscribe(stream, listener=Listener())
    async with first, member(node, stream, **settings) as second:
        await until(lambda: len(first.assignment()) == 3, first)
        kept = first.assignment()
        await until(second.assignment, first, second)
        assert first.assignment() < kept
    assert told[:3] == [("assigned", 3), ("revoked", 1), ("assigned", 0)]
    assert told[-1] == ("revoked", len(first.assignment()))


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
async def test_members_of_two_makes_share_one_group(node, stream, strategy):
    group = f"g-{stream}"
    theirs = confluent_kafka.Consumer(
        {
            "bootstrap.servers": node.servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": strategy,
            "heartbeat.interval.ms": 100,
            "session.timeout.ms": 6000,
        }
    )
    got, seen = [], []

    def poll():
        message = theirs.poll(0.01)
        if message is not None and message.error() is None:
            seen.append(message.value())

    async def both(condition, *ours):
        while not condition():
            await asyncio.to_thread(poll)
            for consumer in ours:
                for records in (await consumer.getmany(timeout_ms=10)).values():
                    got.extend(record.value for record in records)

    settings = {"partition_assignment_strategy": [strategy]}
    try:
        theirs.subscribe([stream])
        await both(lambda: len(theirs.assignment()) == 3)
        async with member(node, stream, **settings) as ours:  # they lead
            await both(lambda: ours.assignment() and len(theirs.assignment()) < 3, ours)
            places = {(p.topic, p.partition) for p in theirs.assignment()}
            assert not places & ours.assignment()
            async with member(node, stream, **settings) as third:
                await both(
                    lambda: third.assignment() and len(theirs.assignment()) == 1, ours, third
                )
                await asyncio.to_thread(fill, node, stream, range(30))
                await both(lambda: len(set(got + seen)) == 30, ours, third)
                await asyncio.to_thread(theirs.close)  # one of ours leads now
                theirs = confluent_kafka.Consumer(
                    {
                        "bootstrap.servers": node.servers,
                        "group.id": group,
                        "partition.assignment.strategy": strategy,
                        "heartbeat.interval.ms": 100,
                    }
                )
                theirs.subscribe([stream])
                await both(lambda: len(theirs.assignment()) == 1, ours, third)
                assert len(ours.assignment()) == len(third.assignment()) == 1
        assert numbers(set(got + seen)) == list(range(30))
    finally:
        await asyncio.to_thread(theirs.close)


async def test_a_handler_that_blocks_the_loop_stays_a_member(node, stream):
    fill(node, stream, range(3))
    async with member(node, stream, session_timeout_ms=6_000) as consumer:
        record = await consumer.getone()
        beats = node.metrics()['headrace_kafka_requests_total{request="Heartbeat"}']
        start = time.monotonic()
        while node.metrics()['headrace_kafka_requests_total{request="Heartbeat"}'] < beats + 5:
            assert time.monotonic() < start + 30, "this loop never lets the event loop run"
        await consumer.commit()
        assert record.value in {b"0", b"1", b"2"}


async def test_a_handler_that_takes_too_long_loses_its_partitions(node, stream):
    fill(node, stream, range(3))
    lost = []

    class Listener(headrace.RebalanceListener):
        async def on_partitions_lost(self, partitions):
            lost.extend(partitions)

    slow = member(node, stream, max_poll_interval_ms=300)
    slow.subscribe(stream, listener=Listener())
    async with slow, member(node, stream) as other:
        await slow.getone()
        await until(lambda: len(other.assignment()) == 3, other)  # slow asks for nothing meanwhile
        with pytest.raises(RequestError) as late:
            await slow.commit()
        assert late.value.code in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION}
        await until(lambda: slow.assignment() and len(other.assignment()) < 3, slow, other)
        assert len(lost) == 3


class Slow(headrace.RebalanceListener):
    """Takes its time to give up, or fails to."""

    def __init__(self, error=None):
        self.may_go_on = asyncio.Event()
        self.is_called = asyncio.Event()
        self.lost = []
        self.error = error

    async def on_partitions_revoked(self, _):
        self.is_called.set()
        if self.error is not None:
            raise self.error
        await self.may_go_on.wait()

    async def on_partitions_lost(self, partitions):
        self.lost += partitions


PATIENT = {"session_timeout_ms": 120_000}
"""What a member forgets to say is not mended by its session's end."""


async def test_who_asks_for_one_record_after_the_other_is_not_stuck(node, stream):
    """Although all of them were fetched at once."""
    fill(node, stream, range(0, 600, 3))
    listener = Slow()
    listener.may_go_on.set()
    consumer = member(node, stream, max_poll_interval_ms=500, **PATIENT)
    consumer.subscribe(stream, listener=listener)
    async with consumer:
        await consumer.getone()
        since, handed_out = time.monotonic(), 1
        while time.monotonic() < since + 1.5:
            await consumer.getone()
            handed_out += 1
            await asyncio.sleep(0.05)
        assert handed_out < 200, "they were all there"
        await consumer.commit()
    assert listener.lost == []


async def test_partitions_are_given_up_between_two_records(node, stream):
    """Although all of them were fetched at once."""
    fill(node, stream, range(0, 6_000, 3))
    async with member(node, stream, **PATIENT) as first, member(node, stream) as other:
        await first.getone()
        joining = asyncio.ensure_future(until(other.assignment, other))
        handed_out = 1
        while not joining.done():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.05):
                    await first.getone()
                    handed_out += 1
            await asyncio.sleep(0.01)
        assert handed_out < 500, "a call fetched no more at once"
        await joining


async def test_a_cancelled_wait_does_not_keep_partitions_from_others(node, stream):
    listener = Slow()
    consumer = member(node, stream, **PATIENT)
    consumer.subscribe(stream, listener=listener)
    async with consumer:
        await until(lambda: len(consumer.assignment()) == 3, consumer)
        async with member(node, stream) as other:
            sharing = asyncio.ensure_future(until(other.assignment, other))
            waiting = asyncio.ensure_future(consumer.getone())
            await listener.is_called.wait()
            waiting.cancel()
            await asyncio.wait([waiting])
            listener.may_go_on.set()
            await until(sharing.done, consumer)
        assert consumer.assignment()


async def test_what_a_listener_raises_reaches_the_program_and_not_the_group(node, stream):
    consumer = member(node, stream, **PATIENT)
    consumer.subscribe(stream, listener=Slow(RuntimeError("it cannot")))
    await consumer.start()
    await until(lambda: len(consumer.assignment()) == 3, consumer)
    async with member(node, stream) as other:
        sharing = asyncio.ensure_future(until(other.assignment, other))
        with pytest.raises(RuntimeError, match="it cannot"):
            await until(sharing.done, consumer)
        # It has something to give up again, however late it hears of its share.
        await until(lambda: sharing.done() and consumer.assignment(), consumer)
    with pytest.raises(RuntimeError, match="it cannot"):
        await consumer.close()
    async with headrace.Admin(node.servers) as admin:
        assert (await admin.describe_group(f"g-{stream}")).state == "Empty", "it left, all the same"


async def test_a_static_member_comes_back_to_what_it_had(node, stream):
    settings = {"group_instance_id": "one", "session_timeout_ms": 30_000}
    other = member(node, stream, group_instance_id="two")
    async with other:
        async with member(node, stream, **settings) as first:
            await until(lambda: len(first.assignment()) == 1 or len(other.assignment()) == 1,
                        first, other)  # fmt: skip
            await until(lambda: len(first.assignment()) + len(other.assignment()) == 3,
                        first, other)  # fmt: skip
            had = first.assignment()
            assert had
        kept = other.assignment()
        async with member(node, stream, **settings) as again:
            await until(again.assignment, again, other)
            assert (again.assignment(), other.assignment()) == (had, kept)
            async with member(node, stream, **settings) as twin:
                with pytest.raises(RequestError) as fenced:
                    await until(lambda: False, again, twin, other)
                assert fenced.value.code is ErrorCode.FENCED_INSTANCE_ID


async def test_members_go_on_through_a_kill_of_the_node(start_node):
    node = start_node()
    node.create_stream("s", partitions=3)
    got = []
    settings = {"auto_commit_interval_ms": 50}
    async with member(node, "s", **settings) as one, member(node, "s", **settings) as two:
        await asyncio.to_thread(fill, node, "s", range(30))
        await until(lambda: len(set(got)) == 30, one, two, into=got)
        await asyncio.to_thread(node.kill)
        node = await asyncio.to_thread(start_node.again, node)
        await asyncio.to_thread(fill, node, "s", range(30, 60))
        await until(lambda: len(set(got)) == 60, one, two, into=got)
        await until(lambda: len(one.assignment()) + len(two.assignment()) == 3, one, two)


async def test_new_partitions_are_shared_out(node):
    node.create_stream("grows", partitions=1)
    settings = {"metadata_max_age_ms": 100}
    async with member(node, "grows", **settings) as one, member(node, "grows", **settings) as two:
        await until(lambda: one.assignment() or two.assignment(), one, two)
        assert node.call("PATCH", "/api/v1/streams/grows", {"partitions": 2})[0] == 200
        await until(lambda: one.assignment() and two.assignment(), one, two)


async def test_what_a_group_refuses_is_told(node, stream):
    async with member(node, stream, partition_assignment_strategy=["range"]) as first:
        await until(first.assignment, first)
        async with member(node, stream, partition_assignment_strategy=["sticky"]) as second:
            with pytest.raises(RequestError) as refused:
                await second.getone()
            assert refused.value.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        async with member(node, stream, session_timeout_ms=2**31 - 1) as third:
            with pytest.raises(RequestError) as refused:
                await third.getone()
            assert refused.value.code is ErrorCode.INVALID_SESSION_TIMEOUT


async def test_to_assign_by_hand_leaves_the_group(node, stream):
    async with member(node, stream) as first, member(node, stream) as second:
        await until(lambda: first.assignment() and second.assignment(), first, second)
        first.assign([TopicPartition(stream, 0)])
        await until(lambda: len(second.assignment()) == 3, second)
        assert first.assignment() == {TopicPartition(stream, 0)}
