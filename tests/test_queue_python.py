"""headrace.Queue and headrace.sync.Queue against a real node."""

import asyncio
import itertools
import ssl
import threading

import pytest

from conftest import wait_for
from headrace import Login, Queue, Reject, sync
from headrace.client import (
    ClientError,
    ConnectionLostError,
    DeadlineError,
    QueueError,
    TooLateError,
    UnknownQueueError,
)
from headrace.client.queues import consumption, worker
from headrace.errors import ConfigError
from secure import client_context, port, secure_settings
from test_access import ADMIN, basic, put_users

pytestmark = pytest.mark.slow

WAIT = 30
QUEUES = "/api/v1/queues"
names = (f"jobs-{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def node(shared):
    return shared


def make(node, partitions=1, **settings):
    """A fresh queue whose failures come again at once, but for `settings`."""
    name = next(names)
    own = {"retry.backoff.ms": 0, **{key.replace("_", "."): settings[key] for key in settings}}
    status, queue = node.call(
        "POST", QUEUES, {"name": name, "partitions": partitions, "settings": own}
    )
    assert status == 201, queue
    return name


def of(node, name, **settings):
    settings = {"retry_backoff_ms": 10, "retry_backoff_max_ms": 50, **settings}
    return Queue(name, f"127.0.0.1:{node.mqtt}", **settings)


def group(node, name, which="g"):
    _, queue = node.call("GET", f"{QUEUES}/{name}")
    (found,) = (each for each in queue["groups"] if each["group"] == which)
    return found


async def until(condition):
    await asyncio.to_thread(wait_for, condition, WAIT)


@pytest.fixture(autouse=True)
async def in_time():
    yield
    if others := asyncio.all_tasks() - {
        asyncio.current_task()
    }:  # a thread that dials ends by itself
        await asyncio.wait(others, timeout=WAIT)
    assert len(asyncio.all_tasks()) == 1, "something goes on"


async def test_a_message_says_when_it_comes_and_before_what_and_that_it_is_one(node):
    name = make(node, priorities="on")
    async with of(node, name) as queue:
        await queue.put(b"last", delay=0.2, priority=9)
        for _ in range(2):
            await queue.put(b"second", dedup_id="a")
        await queue.put(b"first", priority=5)
        async with queue.consume(group="g", prefetch=1) as messages:
            given = []
            for _ in range(3):
                message = await anext(messages)
                given.append(message.payload)
                await message.ack()
    assert given == [b"first", b"second", b"last"]


async def test_a_message_arrives_as_it_was_put(node):
    name = make(node, partitions=3)
    async with of(node, name) as queue:
        await queue.put(
            b"one", key="order-7", routing="eu/3", properties={"unit": "W", "n": "ü"}, ttl=60
        )
        async with queue.consume(group="g", prefetch=1) as messages:
            message = await anext(messages)
            assert (message.payload, message.topic) == (b"one", f"$queue/{name}/eu/3")
            assert (message.key, message.properties["unit"]) == ("order-7", "W")
            assert message.properties.keys() == {"unit", "n", "x-source-topic"}
            assert message.message_id == f"{message.partition}:{message.offset}:{message.attempt}"
            assert (message.offset, message.attempt, message.group) == (0, 1, "g")
            assert message.first_enqueued > 1_700_000_000_000
            assert not message.is_settled
            await message.ack()
            assert message.is_settled
            assert "hold" not in repr(message)
    assert group(node, name)["depth"] == 0
    with pytest.raises(RuntimeError, match="closed"):
        await queue.put(b"late")


async def test_what_fails_comes_again_and_what_is_rejected_is_dead(node):
    name = make(node)
    async with of(node, name) as queue, of(node, f"{name}.dlq") as dead:
        await queue.put(b"bad", key="k")
        async with queue.consume(group="g") as messages:
            await (await anext(messages)).nack()
            await (await anext(messages)).nack(delay=0.01, reason="no luck")
            message = await anext(messages)
            assert message.attempt == 3
            await message.reject("it is hopeless")
        await until(lambda: node.call("GET", f"{QUEUES}/{name}.dlq")[0] == 200)
        async with dead.consume(group="undertaker") as messages:
            letter = await anext(messages)
            assert (letter.payload, letter.key) == (b"bad", "k")
            assert letter.properties["reason"] == "rejected"
            assert letter.properties["reason-detail"] == "it is hopeless"
            await letter.ack()


async def test_who_is_late_is_told(node):
    name = make(node, ack_deadline_ms="300ms")
    async with of(node, name) as queue, queue.consume(group="g") as messages:
        await queue.put(b"one")
        first = await anext(messages)
        second = await anext(messages)
        assert (first.attempt, second.attempt) == (1, 2)
        late = [first.ack(), first.nack(), first.reject(), first.extend()]
        *late, done = await asyncio.gather(*late, second.ack(), return_exceptions=True)
        assert done is None
        for error in late:
            assert type(error) is TooLateError
            assert "0:0:1" in str(error)
            assert (error.reason_code, error.retriable) == (0x83, False)
        await queue.put(b"two")
        other = await anext(messages)
        again = [second.ack(), second.nack(), other.ack()]
        *again, done = await asyncio.gather(*again, return_exceptions=True)
        assert (again[0], type(again[1]), done) == (None, TooLateError, None)


async def test_a_longer_deadline_holds(node):
    name = make(node, ack_deadline_ms="200ms")
    async with of(node, name) as queue, queue.consume(group="g") as messages:
        await queue.put(b"long")
        await queue.put(b"short")
        long = await anext(messages)
        await long.extend(60)
        assert [(await anext(messages)).payload for _ in range(3)] == [b"short"] * 3
        await long.ack()


async def test_refusals_are_typed(node):
    async with of(node, "no-such-queue") as queue:
        with pytest.raises(UnknownQueueError, match="headrace queues create") as caught:
            await queue.put(b"x")
        assert (caught.value.reason_code, caught.value.retriable) == (0x90, False)
        with pytest.raises(UnknownQueueError, match="no queue is named no-such-queue"):
            async with queue.consume():
                pass
        with pytest.raises(UnknownQueueError):
            await queue.work(print)
    async with of(node, make(node, depth_max_messages=1)) as queue:
        await queue.put(b"x")
        with pytest.raises(QueueError, match=r"depth\.max") as caught:
            await queue.put(b"x")
        assert (caught.value.reason_code, caught.value.retriable) == (0x97, True)
    async with of(node, make(node, max_message_bytes="1KiB")) as queue:
        with pytest.raises(QueueError, match=r"larger than max\.message\.bytes") as caught:
            await queue.put(b"x" * 2000)
        assert (caught.value.reason_code, caught.value.retriable) == (0x97, False)
        with pytest.raises(QueueError, match=r"mqtt\.packet_bytes") as caught:
            await queue.put(b"x" * 300_000_000)
        assert caught.value.reason_code == 0x95
        for wrong in (
            {"ttl": 0}, {"routing": "a/+"}, {"routing": "a/$ack"}, {"key": "\0"}, {"delay": -1},
            {"priority": 10}, {"ttl": 1e12}, {"delay": float("nan")},
        ):  # fmt: skip
            with pytest.raises(ValueError, match="got"):
                await queue.put(b"x", **wrong)
        for wrong in (
            {"key": b"k"}, {"properties": {"n": 1}}, {"delay": "5s"}, {"ttl": "5s"},
            {"priority": True}, {"priority": 3.0},
        ):  # fmt: skip
            with pytest.raises(TypeError, match=r"text|number"):
                await queue.put(b"x", **wrong)
        for wrong in ({"group": 5}, {"routing": b"eu"}):
            with pytest.raises(TypeError, match="text"):
                queue.consume(**wrong)
        with pytest.raises(ValueError, match="prefetch"):
            queue.consume(prefetch=0)
    with pytest.raises(ConfigError, match="mqtt must be HOST:PORT"):
        Queue("jobs", "nowhere")
    with pytest.raises(ConfigError, match="a queue's name"):
        Queue("a/b")
    with pytest.raises(ConfigError, match="a queue's name"):
        Queue(None)
    async with Queue(
        "jobs", "127.0.0.1:1", default_api_timeout_ms=1000, retry_backoff_ms=5
    ) as queue:
        with pytest.raises(DeadlineError, match=r"not sent within 1 s: .*refused") as caught:
            await queue.put(b"x")
        assert isinstance(caught.value.__cause__, ConnectionLostError)
        with pytest.raises(DeadlineError, match="no broker answers"):
            async with queue.consume():
                pass


async def test_groups_and_members_and_routing(node):
    name = make(node)
    async with of(node, name, client_id="default") as queue:
        for place in ("eu/1", "us/1", "eu/2"):
            await queue.put(place.encode(), routing=place)
        async with queue.consume() as all_, queue.consume(group="g", routing="eu/+") as some:
            assert [(await anext(all_)).payload for _ in range(3)] == [b"eu/1", b"us/1", b"eu/2"]
            assert [(await anext(some)).payload for _ in range(2)] == [b"eu/1", b"eu/2"]
        async with (
            queue.consume(group="h", prefetch=1) as one, queue.consume(group="h", prefetch=1) as two
        ):  # fmt: skip
            first, second = await anext(one), await anext(two)
            assert {first.payload, second.payload} == {b"eu/1", b"us/1"}
    assert {each["group"] for each in node.call("GET", f"{QUEUES}/{name}")[1]["groups"]} >= {
        "default", "h"
    }  # fmt: skip


async def test_a_block_that_fails_has_failed_what_it_was_given(node):
    name = make(node, retry_attempts=1)
    async with of(node, name) as queue:
        await queue.put(b"one")
        await queue.put(b"two")

        async def fail():
            async with queue.consume(group="g", prefetch=2) as messages:
                async for message in messages:
                    1 / message.offset

        with pytest.raises(ZeroDivisionError):
            await fail()
        await until(lambda: node.call("GET", f"{QUEUES}/{name}.dlq")[0] == 200)
        async with of(node, f"{name}.dlq") as dead, dead.consume(group="g") as letters:
            letter = await anext(letters)
            assert letter.properties["reason-detail"].startswith("ZeroDivisionError: ")
        async with queue.consume(group="g") as messages:
            message = await anext(messages)
            assert (message.payload, group(node, name)["failed"]) == (b"two", 1)


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
        assert not given[0].is_settled
        for each in given:
            await each.ack()


async def test_one_topic_that_is_too_deep_ends_no_other_put(node):
    async with of(node, make(node)) as queue:
        deep = [queue.put(b"x", routing="/".join("a" * levels)) for levels in (126, 127)]
        *stored, refused = await asyncio.gather(
            *(queue.put(b"x") for _ in range(20)), *deep, return_exceptions=True
        )
        assert stored == [None] * 21
        assert isinstance(refused, ValueError)
        assert "128 levels" in str(refused)


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


async def test_what_a_broken_connection_brought_cannot_be_settled(start_node):
    node = start_node()
    name = make(node)
    async with of(node, name) as queue, queue.consume(group="g") as messages:
        await queue.put(b"one")
        first = await anext(messages)
        await asyncio.to_thread(node.kill)
        with pytest.raises((TooLateError, ConnectionLostError)):
            await first.ack()
        await asyncio.to_thread(start_node.again, node)
        second = await anext(messages)
        assert (second.payload, second.offset) == (b"one", 0)
        with pytest.raises(TooLateError, match="is gone"):
            await first.ack()
        await second.ack()


async def test_a_queue_that_is_deleted_ends_the_iteration(node):
    name = make(node)
    async with of(node, name) as queue, queue.consume(group="g") as messages:
        waiting = asyncio.create_task(anext(messages))
        await asyncio.to_thread(node.call, "DELETE", f"{QUEUES}/{name}")
        with pytest.raises(UnknownQueueError):
            await queue.put(b"late")
        with pytest.raises(UnknownQueueError):
            await waiting


async def test_login_and_tls(tmp_path, start_node, server, authority):
    rules = tmp_path / "rules.toml"
    rules.write_text('[[access.rules]]\nallow = ["all"]\nusers = ["ann"]\n')
    put_users(tmp_path / "data", {ADMIN: ["admin"], "bob:cart": []})
    node = start_node("--config", str(rules), **secure_settings(server))
    _, made = node.call("POST", QUEUES, {"name": "jobs"}, **basic(ADMIN))
    assert made["name"] == "jobs"
    there = f"localhost:{port(node, 'mqtts')}"
    settings = {"mqtt": there, "ssl_context": client_context(authority)}
    name, password = ADMIN.split(":")
    async with Queue("jobs", login=Login(name, password), **settings) as queue:
        for number in range(100):
            await queue.put(b"%d" % number * 1000)
        async with queue.consume(group="g", prefetch=100) as messages:
            for number in range(100):
                message = await anext(messages)
                assert message.payload == b"%d" % number * 1000
                await message.ack()
    async with Queue("jobs", login=Login("bob", "cart"), **settings) as queue:
        with pytest.raises(QueueError, match="not authorized") as caught:
            await queue.put(b"x")
        assert (caught.value.reason_code, caught.value.code.name) == (
            0x87, "TOPIC_AUTHORIZATION_FAILED"
        )  # fmt: skip
        with pytest.raises(QueueError, match="not authorized"):
            await queue.work(print)
    async with Queue("jobs", login=Login("bob", "wrong"), **settings) as queue:
        with pytest.raises(QueueError, match="bad user name or password"):
            await queue.put(b"x")
    async with Queue("jobs", there, ssl_context=ssl.create_default_context()) as queue:
        with pytest.raises(QueueError, match="load its authority into the ssl_context"):
            await queue.put(b"x")


def test_without_asyncio(node):
    name = make(node)
    seen = []

    def work(message):
        seen.append(message.payload)
        if message.payload == b"4":
            queue.stop()

    with sync.Queue(name, f"127.0.0.1:{node.mqtt}") as queue:
        for number in range(5):
            queue.put(b"%d" % number, key="k", properties={"n": str(number)})
        with queue.consume(group="g", prefetch=2) as messages:
            for message in messages:
                assert not message.is_settled
                if message.attempt == 1 and message.offset == 0:
                    message.nack()
                elif message.offset == 1:
                    message.reject("it is odd")
                else:
                    message.ack()
                if message.offset == 2:
                    break
        queue.work(work, group="g", concurrency=1)
        assert seen[-2:] == [b"3", b"4"]
        with pytest.raises(ClientError):
            message.extend(30)
    with pytest.raises(RuntimeError, match="the Queue is not open"):
        queue.put(b"late")
    assert not [each for each in threading.enumerate() if each.name.startswith("headrace")]
