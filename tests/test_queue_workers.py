"""Functions that work on messages of a queue, against a real node."""

import asyncio

import pytest

from headrace import Reject, sync
from headrace.client.queues import consumption, worker
from test_queue_python import (
    WAIT,
    group,
    in_time,  # noqa: F401 - a fixture
    make,
    of,
    until,
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def node(shared):
    return shared


async def test_a_worker_settles_by_what_its_function_does(node):
    name = make(node)
    seen = []

    async def work(message):
        seen.append((message.payload, message.attempt))
        if message.payload == b"fails" and message.attempt == 1:
            raise ValueError("not yet")
        if message.payload == b"hopeless":
            raise Reject("never")
        if message.payload == b"own" and message.attempt == 1:
            await message.nack(delay=0)
        if len(seen) == 6:
            queue.stop()

    async with of(node, name) as queue:
        for payload in (b"works", b"fails", b"hopeless", b"own"):
            await queue.put(payload)
        async with asyncio.timeout(WAIT):
            await queue.work(work, group="g")
    assert sorted(seen) == [
        (b"fails", 1), (b"fails", 2), (b"hopeless", 1), (b"own", 1), (b"own", 2), (b"works", 1)
    ]  # fmt: skip
    await until(lambda: group(node, name)["depth"] == 0)
    told = group(node, name)
    assert (told["settled"], told["dead"], told["failed"]) == (3, 1, 2)


async def test_what_cannot_work_settles_nothing(node):
    name = make(node)

    async def yields(message):
        yield message

    async with of(node, name) as queue:
        await queue.put(b"x")
        for wrong in (None, 5, yields):
            with pytest.raises(TypeError, match="work calls a function"):
                await queue.work(wrong, group="g")
        with pytest.raises(TypeError, match="async"):
            await queue.work(print, group="g")

    async def works(message):
        await message.ack()

    def of_works(message):
        return works(message)

    def in_threads():
        with sync.Queue(name, f"127.0.0.1:{node.mqtt}") as queue:
            for wrong in (None, works, (each for each in ())):
                with pytest.raises(TypeError, match="work calls a function"):
                    queue.work(wrong, group="g")
            with pytest.raises(TypeError, match="is async"):
                queue.work(of_works, group="g")

    await asyncio.to_thread(in_threads)
    await until(lambda: group(node, name)["in_flight"] == 0)
    told = group(node, name)
    assert (told["settled"], told["failed"], told["depth"]) == (0, 0, 1)


async def test_whatever_a_function_raises_is_a_reason_that_every_client_can_read(node):
    name = make(node, retry_attempts=1)
    raised = [ValueError("bad record:\n  line 2\x1b\uffff"), asyncio.CancelledError("gave up")]

    async def work(message):
        raise raised[message.offset]

    async with of(node, name) as queue:
        for _ in raised:
            await queue.put(b"x")
        async with queue.consume(group="g"):
            pass
        working = asyncio.create_task(queue.work(work, group="g"))
        await until(lambda: group(node, name)["dead"] == 2)
        queue.stop()
        await working
    async with of(node, f"{name}.dlq") as letters, letters.consume(group="g") as messages:
        given = [await anext(messages) for _ in raised]
        assert [each.properties["reason-detail"] for each in given] == [
            "ValueError: bad record: line 2??", "CancelledError: gave up",
        ]  # fmt: skip
        for wrong in (1e12, -1, float("nan")):
            with pytest.raises(ValueError, match="from 0 to"):
                await given[0].nack(wrong)
            with pytest.raises(ValueError, match="from 0 to"):
                await given[0].extend(wrong)
        with pytest.raises(TypeError, match="number of seconds"):
            await given[0].nack("1s")
        with pytest.raises(ValueError, match="from 0 to 31536000;"):
            await given[0].extend(366 * 86_400)
        assert not given[0].is_settled
        for each in given:
            await each.ack()


async def test_so_many_run_at_a_time_and_no_more(node):
    name = make(node)
    running, most, done = 0, 0, 0

    async def work(_message):
        nonlocal running, most, done
        running += 1
        most = max(most, running)
        if running == 5:
            full.set()
        await full.wait()
        running -= 1
        done += 1
        if done == 40:
            queue.stop()

    full = asyncio.Event()
    async with of(node, name) as queue:
        await asyncio.gather(*(queue.put(b"%d" % number) for number in range(40)))
        async with asyncio.timeout(WAIT):
            await queue.work(work, group="g", concurrency=5, prefetch=20)
    assert (most, done) == (5, 40)
    assert group(node, name)["settled"] == 40


async def test_long_work_keeps_its_message(node, monkeypatch):
    """And what waits for it; another group shows that deadlines do pass."""
    monkeypatch.setattr(consumption, "RENEW_S", 0.02)
    monkeypatch.setattr(worker, "LOOK_S", 0.02)
    name = make(node, ack_deadline_ms="300ms")
    seen = []

    async def work(message):
        seen.append(message.attempt)
        if len(seen) == 1:
            for _ in range(4):
                await anext(witness)
        else:
            queue.stop()

    async with of(node, name) as queue, queue.consume(group="witness") as witness:
        await queue.put(b"long")
        await queue.put(b"waits")
        async with asyncio.timeout(WAIT):
            await queue.work(work, group="g")
    assert seen == [1, 1]
    assert (group(node, name)["settled"], group(node, name)["failed"]) == (2, 0)


@pytest.mark.parametrize("way", ["stop", "cancel", "close"])
async def test_an_end_in_order(node, way):
    name = make(node)
    begun, may_end = asyncio.Event(), asyncio.Event()
    finished = []

    async def work(message):
        begun.set()
        await may_end.wait()
        finished.append(message.payload)

    queue = of(node, name)
    for payload in (b"one", b"two", b"three"):
        await queue.put(payload)
    working = asyncio.create_task(queue.work(work, group="g", prefetch=3))
    await begun.wait()
    if way == "close":
        closing = asyncio.create_task(queue.close())
    elif way == "stop":
        queue.stop()
    else:
        working.cancel()
    await asyncio.sleep(0)
    assert not working.done()
    may_end.set()
    await asyncio.wait((working,))
    assert working.cancelled() == (way == "cancel")
    assert finished == [b"one"]
    told = group(node, name)
    assert (told["depth"], told["in_flight"], told["settled"], told["failed"]) == (2, 0, 1, 0)
    if way == "close":
        await closing
    await queue.close()


async def test_who_is_cancelled_twice_gives_back_what_runs(node):
    name = make(node)
    begun, never = asyncio.Event(), asyncio.Event()

    async def work(_message):
        begun.set()
        await never.wait()

    async with of(node, name) as queue:
        await queue.put(b"one")
        working = asyncio.create_task(queue.work(work, group="g"))
        await begun.wait()
        working.cancel()
        await asyncio.sleep(0)
        working.cancel()
        await asyncio.wait((working,))
        assert working.cancelled()
    told = group(node, name)
    assert (told["depth"], told["in_flight"], told["failed"]) == (1, 0, 0)


async def test_a_worker_and_a_producer_outlive_the_node(start_node):
    """Which is killed amid both: nothing is lost, and what was put is there once."""
    node = start_node()
    name = make(node)
    done, some, gate = [], asyncio.Event(), asyncio.Event()

    async def work(message):
        if len(done) == 20:
            some.set()
            await gate.wait()
        done.append(message.offset)

    async def put(queue):
        for number in range(300):
            await queue.put(b"%d" % number)

    async with of(node, name) as queue, of(node, name) as other:
        working = asyncio.create_task(queue.work(work, group="g", concurrency=3))
        putting = [asyncio.create_task(put(other)) for _ in range(3)]
        await some.wait()
        await asyncio.to_thread(node.kill)
        gate.set()
        again = await asyncio.to_thread(start_node.again, node)
        async with asyncio.timeout(WAIT):
            await asyncio.gather(*putting)
            await until(lambda: again.ends(name) == [900])
            await until(lambda: group(again, name)["depth"] == 0)
        queue.stop()
        await working
    assert set(done) == set(range(900))
