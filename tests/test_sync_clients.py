"""headrace.sync against a real node."""

import asyncio
import functools
import gc
import inspect
import os
import signal
import sys
import threading
import time
from contextlib import contextmanager

import pytest

import headrace
from headrace import TopicPartition, sync
from headrace.client import ClientError, DeadlineError, RequestError
from headrace.errors import ConfigError

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def node(shared):
    return shared


def reader(node, topics=(), **settings):
    settings = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 50, **settings}
    return sync.Consumer(node.servers, topics, **settings)


def test_records_go_there_and_back(node, stream):
    with sync.Producer(node.servers) as producer:
        assert producer.partitions_for(stream) == 3
        assert producer.send(stream, b"a", key=b"k", partition=0).offset == 0
        futures = [producer.send_nowait(stream, b"%d" % n, partition=1) for n in range(500)]
        assert [future.result(30).offset for future in futures] == list(range(500))
        places = producer.send_batch(stream, [b"x", b"y"], partition=2)
        assert [place.offset for place in places] == [0, 1]
    with reader(node, stream, group_id=f"g-{stream}") as consumer:
        found = []
        for record in consumer:
            found.append(record)
            if len(found) == 503:
                break
    assert [r.value for r in found if r.partition == 1] == [b"%d" % n for n in range(500)]
    with reader(node, group_id=f"g-{stream}") as consumer:
        consumer.assign([TopicPartition(stream, p) for p in range(3)])
        assert {p.partition: kept.offset for p, kept in consumer.committed().items()} == {
            0: 1, 1: 500, 2: 2
        }  # fmt: skip


def test_a_record_whose_handler_failed_comes_again(node, stream):
    group = f"g-{stream}"
    with sync.Producer(node.servers) as producer:
        producer.send_batch(stream, [b"%d" % n for n in range(5)], partition=0)

    def handle():
        with reader(node, stream, group_id=group) as consumer:
            for record in consumer:
                1 / (3 - record.offset)

    with pytest.raises(ZeroDivisionError):
        handle()
    with reader(node, stream, group_id=group) as consumer:
        assert consumer.getone().offset == 3
        consumer.commit()
        assert consumer.committed()[TopicPartition(stream, 0)].offset == 4


def test_seeks_pauses_offsets_and_arrow(node, stream):
    with sync.Producer(node.servers) as producer:
        producer.send_batch(stream, [b"%d" % n for n in range(10)], partition=0)
    place = TopicPartition(stream, 0)
    with reader(node) as consumer:
        consumer.assign([place])
        assert consumer.assignment() == {place}
        assert consumer.getone().offset == 0
        consumer.seek(place, 5)
        assert consumer.position(place) == 5
        assert consumer.get_arrow(max_records=2)["offset"].to_pylist() == [5, 6]
        consumer.pause(place)
        assert consumer.paused() == {place}
        assert consumer.getmany(timeout_ms=20) == {}
        consumer.resume(place)
        assert [r.offset for r in consumer.getmany(max_records=2)[place]] == [7, 8]
        consumer.seek_to_beginning()
        assert consumer.getone().offset == 0
        consumer.seek_to_end(place)
        assert consumer.get_arrow(timeout_ms=1) is None
        assert (consumer.beginning_offsets([place]), consumer.end_offsets([place])) == (
            {place: 0}, {place: 10}
        )  # fmt: skip
        assert consumer.offsets_for_times({place: 0})[place].offset == 0
        assert consumer.highwater(place) == 10
        consumer.unsubscribe()
        assert consumer.assignment() == set()


def test_errors_are_those_of_the_async_clients(node, stream):
    with sync.Producer(node.servers, max_request_size=1000) as producer:
        with pytest.raises(TypeError, match="value must be bytes"):
            producer.send(stream, "text")
        future = producer.send_nowait(stream, b"x" * 2000)
        assert isinstance(future.exception(30), RequestError)
    with pytest.raises(RuntimeError, match="the Producer is not open"):
        producer.send(stream, b"late")
    with pytest.raises(RuntimeError, match="the Producer is not open"):
        producer.send_nowait(stream, b"late")
    threads = threading.active_count()
    with pytest.raises(DeadlineError):
        sync.Admin("127.0.0.1:1", default_api_timeout_ms=50).start()
    assert threading.active_count() == threads


def test_a_second_start_is_refused_and_breaks_nothing(node, stream):
    with sync.Producer(node.servers) as producer:
        with pytest.raises(RuntimeError, match="started once"):
            producer.start()
        assert producer.send_batch(stream, [b"a"], partition=0)[0].offset == 0
    with pytest.raises(RuntimeError, match="started once"):
        producer.start()


def test_many_threads_send_through_one_producer(node, stream):
    with sync.Producer(node.servers, buffer_memory=20_000) as producer:

        def send(first):
            for n in range(first, first + 300):
                producer.send_nowait(stream, b"%d" % n, partition=first // 300 % 3)

        threads = [threading.Thread(target=send, args=(n * 300,)) for n in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        producer.flush()
    assert node.ends(stream) == [300, 300, 300]


def test_all_ways_to_send_keep_the_order_of_their_thread(node, stream):
    """Also where some of them wait for room."""
    with sync.Producer(node.servers, buffer_memory=5_000, linger_ms=50) as producer:
        for n in range(0, 300, 150):
            for each in range(n, n + 148):
                producer.send_nowait(stream, b"%d" % each, partition=0)
            producer.send(stream, b"%d" % (n + 148), partition=0)
            for _ in range(130):
                producer.send_nowait(stream, b"", partition=0)
            producer.send_batch(stream, [b"%d" % (n + 149)], partition=0)
    with reader(node) as consumer:
        consumer.assign([TopicPartition(stream, 0)])
        values = [consumer.getone().value for _ in range(560)]
    assert [value for value in values if value] == [b"%d" % n for n in range(300)]
    assert values[149:279] == [b""] * 130


def test_a_record_may_be_cancelled_before_it_is_sent(node, stream):
    with sync.Producer(node.servers) as producer:
        may_go_on = threading.Event()
        producer._loop.call_soon_threadsafe(may_go_on.wait)
        futures = [producer.send_nowait(stream, value, partition=0) for value in (b"a", "b", b"c")]
        assert futures[0].cancel()
        assert futures[1].cancel()
        may_go_on.set()
        assert futures[2].result(30).offset == 0


@contextmanager
def interrupted(client, coroutine):
    """Presses Ctrl-C once the client's thread is at work on something, and this one waits."""

    def is_waited_for():
        tasks = asyncio.all_tasks(client._loop)
        here = sys._current_frames()[threading.main_thread().ident]
        is_begun = any(task.get_coro().__name__ == coroutine for task in tasks)
        return is_begun and here.f_code.co_name == "wait"

    def press():
        until = time.monotonic() + 30
        while time.monotonic() < until and not is_waited_for():
            pass
        os.kill(os.getpid(), signal.SIGINT)

    signal.signal(signal.SIGINT, signal.default_int_handler)  # who runs the tests may ignore it
    thread = threading.Thread(target=press)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        yield
    thread.join()


def test_an_interrupted_wait_takes_nothing(node, stream):
    with reader(node, stream) as consumer, sync.Producer(node.servers) as producer:
        with interrupted(consumer, "getone"):
            consumer.getone()
        producer.send(stream, b"a")
        assert consumer.getone().value == b"a"


def test_an_interrupted_close_tells_what_was_not_sent(start_node):
    node = start_node()
    node.create_stream("s")
    threads = threading.active_count()
    producer = sync.Producer(node.servers, buffer_memory=2_000)
    producer.start()
    producer.send("s", b"a")
    node.kill()
    futures = [producer.send_nowait("s", b"x" * 100) for _ in range(50)]
    with interrupted(producer, "_end"):
        producer.close()
    assert all(isinstance(future.exception(0), ClientError) for future in futures)
    assert threading.active_count() == threads


def test_admin(node):
    with sync.Admin(node.servers) as admin:
        admin.create_topic("sync-made", partitions=1)
        admin.create_partitions("sync-made", 2)
        assert admin.topics()["sync-made"] == 2
        assert len(admin.describe_topic("sync-made").partitions) == 2
        admin.alter_configs("sync-made", {"retention.ms": "5000"})
        assert admin.configs("sync-made")["retention.ms"].value == "5000"
        place = TopicPartition("sync-made", 0)
        assert admin.delete_records({place: 0}) == {place: 0}
        admin.alter_group_offsets("sync-g", {place: 0})
        assert admin.groups()["sync-g"] == ""
        assert admin.describe_group("sync-g").state == "Empty"
        assert admin.reset_group_offsets("sync-g", ["sync-made"], "latest")[place] == 0
        assert admin.group_offsets("sync-g")[place].offset == 0
        admin.delete_group_offsets("sync-g", [place])
        admin.delete_group("sync-g")
        admin.delete_topic("sync-made")


@pytest.mark.parametrize("name", sync.__all__)
def test_the_facade_is_whole(name):
    def public(cls):
        return {
            each: [*inspect.signature(method).parameters]
            for each, method in inspect.getmembers(cls, inspect.isfunction)
            if not each.startswith("_")
        }

    theirs, ours = public(getattr(headrace, name)), public(getattr(sync, name))
    inner = {"ready", "read", "done", "next_held"}  # of the async world alone
    assert theirs.keys() - ours.keys() - inner == set()
    assert ours.keys() <= theirs.keys()
    for method, parameters in ours.items():
        assert parameters == theirs[method], method


@pytest.mark.parametrize(
    "client", [sync.Producer, sync.Consumer, sync.Admin, functools.partial(sync.Queue, "jobs")]
)
def test_a_client_that_never_opens_holds_nothing_open(client):
    """Warnings are errors, and an event loop that nobody closes warns when it goes."""
    with pytest.raises(ConfigError):
        client(retry_backoff_ms="soon")
    client()
    gc.collect()
