"""headrace.Queue and headrace.sync.Queue against a real node."""

import asyncio
import itertools
import ssl
import threading

import pytest

from conftest import wait_for
from headrace import Login, Queue, sync
from headrace.client import (
    ClientError,
    ConnectionLostError,
    DeadlineError,
    QueueError,
    TooLateError,
    UnknownQueueError,
)
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
            {"priority": 10}, {"ttl": 2**32}, {"ttl": 1e12}, {"delay": float("nan")},
        ):  # fmt: skip
            with pytest.raises(ValueError, match="got"):
                await queue.put(b"x", **wrong)
        with pytest.raises(QueueError, match=r"larger than max\.message\.bytes"):
            await queue.put(b"x" * 2000, ttl=2**32 - 1)  # a time that MQTT can say
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


async def test_one_topic_that_is_too_deep_ends_no_other_put(node):
    async with of(node, make(node)) as queue:
        deep = [queue.put(b"x", routing="/".join("a" * levels)) for levels in (126, 127)]
        *stored, refused = await asyncio.gather(
            *(queue.put(b"x") for _ in range(20)), *deep, return_exceptions=True
        )
        assert stored == [None] * 21
        assert isinstance(refused, ValueError)
        assert "128 levels" in str(refused)


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
