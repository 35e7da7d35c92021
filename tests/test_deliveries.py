"""What `send_nowait` gives is awaited and asked like a future, and costs less than one."""

import asyncio
import gc

import pytest

import headrace
from headrace.client import RequestError
from headrace.native import BatchBuilder, Delivery, decode_records

LARGE = b"x" * 400


@pytest.fixture(name="node", scope="module")
def _node(shared):
    return shared


async def test_asyncio_takes_it_for_a_future(node, stream):
    async with headrace.Producer(node.servers) as producer:
        await producer.partitions_for(stream)
        sent = [producer.send_nowait(stream, b"%d" % n, partition=0) for n in range(6)]
        assert all(isinstance(each, Delivery) and asyncio.isfuture(each) for each in sent)
        assert not sent[0].done()
        with pytest.raises(asyncio.InvalidStateError):
            sent[0].exception()
        first, second = await asyncio.gather(*sent[:2])
        assert (first.offset, second.offset) == (0, 1)
        assert (await asyncio.wait_for(sent[2], 10)).offset == 2
        assert (await asyncio.shield(sent[3])).offset == 3
        done, pending = await asyncio.wait(sent)
        assert (done, pending) == (set(sent), set())
        assert {(await each).offset for each in asyncio.as_completed(sent[4:])} == {4, 5}
        assert [each.result().offset for each in sent] == list(range(6))
        assert {each.exception() for each in sent} == {None}
        assert sent[0].get_loop() is asyncio.get_running_loop()


async def test_a_callback_gets_it_and_may_be_taken_back(node, stream):
    called = asyncio.Queue()
    async with headrace.Producer(node.servers) as producer:
        await producer.partitions_for(stream)
        sent = producer.send_nowait(stream, b"a")
        unwanted = called.put_nowait
        sent.add_done_callback(unwanted)
        assert sent.remove_done_callback(unwanted) == 1
        sent.add_done_callback(lambda of: called.put_nowait((of, of.result().offset)))
        assert await called.get() == (sent, 0)
        assert called.empty()


async def test_to_cancel_it_does_not_take_the_record_back(node, stream):
    async with headrace.Producer(node.servers) as producer:
        await producer.partitions_for(stream)
        sent = producer.send_nowait(stream, b"a", partition=0)
        waiting = asyncio.ensure_future(asyncio.wait_for(sent, 10))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert sent.done()
        assert sent.cancelled()
        with pytest.raises(asyncio.CancelledError):
            sent.result()
        assert (await producer.send(stream, b"b", partition=0)).offset == 1


async def test_each_finds_its_record_when_a_batch_was_split(node):
    node.create_stream("split", settings={"max.message.bytes": 1000})
    async with headrace.Producer(node.servers) as producer:
        await producer.partitions_for("split")
        sent = [producer.send_nowait("split", LARGE) for _ in range(9)]
        waiting = asyncio.gather(*sent[1::2])
        await producer.flush()
        assert [each.result().offset for each in sent] == list(range(9))
        assert [each.offset for each in await waiting] == [1, 3, 5, 7]


async def test_a_failure_that_nobody_asked_about_is_told_once(node):
    node.create_stream("small", settings={"max.message.bytes": 300})
    told = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    async with headrace.Producer(node.servers) as producer:
        await producer.partitions_for("small")
        asked = producer.send_nowait("small", LARGE)
        await producer.flush()
        assert isinstance(asked.exception(), RequestError)
        with pytest.raises(RequestError):
            asked.result()
        del asked
        producer.send_nowait("small", LARGE)
        await producer.flush()
    gc.collect()
    (context,) = told
    assert isinstance(context["exception"], RequestError)
    assert "nobody asked" in context["message"]


def test_a_builder_encodes_what_it_holds_as_often_as_it_is_asked():
    builder = BatchBuilder()
    records = [(b"k", b"v%d" % n, [("h", b"x"), ("n", None)], 1000 + n) for n in range(5)]
    owner = object()
    for record in records:
        builder.push(owner, *record)
    with pytest.raises(ValueError, match="codec must be one of"):
        builder.encode("lzma", (-1, -1, -1))
    with pytest.raises(ValueError, match="at least one record"):
        BatchBuilder().encode("none", (-1, -1, -1))
    second = builder.split(2)
    assert (len(builder), len(second)) == (2, 3)
    assert memoryview(second.timestamps()).cast("q").tolist() == [1002, 1003, 1004]
    assert builder.size_bytes == len(builder.encode("none", (-1, -1, -1)))
    builder.push(owner, None, None, (), 7)
    rows = [*rows_of(builder, "none"), *rows_of(second, "lz4")]
    expected = [*records[:2], (None, None, [], 7), *records[2:]]
    assert rows == expected


def rows_of(builder, codec):
    data = builder.encode(codec, (-1, -1, -1))
    rows = decode_records(data, 0, 100, 100).rows()
    return [(key, value, headers, time) for _, time, key, value, headers in rows]
