"""Queues of a node in this process: asked too early, while they go, and over a disk that waits."""

import asyncio

import pytest

from headrace import limits
from headrace.errors import ConfigError, UnavailableError, UnknownGroupError, UnknownStreamError
from headrace.kernel.catalog import Change
from headrace.kernel.positions import TIME, Base, Start, parse
from headrace.ports import Peek, Pull, Settlement
from nodes import HeldStore, node_on, running, settle

QUEUE = Change(queue={})
PULL = Pull("g", None, 10, 0, None)
PEEK = Peek(None, None, None, None, 10, settled=False)


@pytest.fixture(autouse=True)
def _hasty(monkeypatch):
    monkeypatch.setattr(limits, "DRAIN_SECONDS", 0.1)


async def enqueue(node, count):
    for _ in range(count):
        await node.publish("$queue/jobs", b"x", 1, [])


async def test_nobody_takes_of_a_queue_whose_groups_are_not_restored(tmp_path):
    async with running(tmp_path, keeps_sessions=True, jobs=QUEUE) as (node, _):
        await enqueue(node, 2)
        first, _ = await node.queues().pull("jobs", PULL)
        asked = Settlement("g", None, "ack", [f"0:{first.offset}:{first.attempt}"], None, None)
        assert await node.queues().settle("jobs", asked) == ["settled"]
    node = node_on(HeldStore(tmp_path), tmp_path, keeps_sessions=True, jobs=QUEUE)
    opening = asyncio.create_task(node.open())
    try:
        while node.reason != "sessions are opening":  # noqa: ASYNC110 - nobody tells of it
            await asyncio.sleep(0)
        with pytest.raises(UnavailableError, match="sessions are opening"):
            node.queues()
        (told,) = node.queues(only_told=True).reports()
        assert told.groups == ()
        await opening
        assert [each.offset for each in await node.queues().pull("jobs", PULL)] == [1]
    finally:
        await node.close()


@pytest.mark.parametrize("begin", [
    lambda queues: queues.peek("jobs", PEEK),
    lambda queues: queues.seek("jobs", None, Start(Base.TIME)),
])  # fmt: skip
async def test_what_is_asked_of_a_queue_that_goes_meanwhile_finds_none(tmp_path, begin):
    async with running(tmp_path, jobs=QUEUE) as (node, _):
        await enqueue(node, 3)
        asked = asyncio.create_task(begin(node.queues()))
        await asyncio.sleep(0)
        assert not asked.done()
        await node.delete_stream("jobs")
        with pytest.raises(UnknownStreamError):
            await asked


async def test_a_file_is_told_which_stored_setting_it_contradicts(tmp_path):
    async with running(tmp_path, jobs=QUEUE) as (node, _):
        change = Change(queue={"priorities": "on"}, settings={"segment.bytes": "1MiB"})
        await node.alter_stream("jobs", change)
    asked = Change(queue={"order": "key"}, settings={"retention.ms": "1d"})
    node = node_on(HeldStore(tmp_path), tmp_path, jobs=asked)
    try:
        with pytest.raises(ConfigError) as caught:
            await node.open()
    finally:
        await node.close()
    assert str(caught.value).endswith(
        "; priorities=on is stored and not in the file: write it there, or start without "
        "[queues.jobs] and say: headrace queues alter jobs --unset priorities"
    )


async def test_a_group_is_deleted_once_that_is_durable(tmp_path):
    async with running(tmp_path, keeps_sessions=True, jobs=QUEUE) as (node, store):
        await enqueue(node, 1)
        await node.queues().pull("jobs", PULL)
        await node.queues().seek("jobs", "g", parse([(TIME, "0")]))
        with pytest.raises(UnknownGroupError):
            await node.queues().forget_group("jobs", "h")
        store.held = True
        deleting = asyncio.create_task(node.queues().forget_group("jobs", "g"))
        await settle()
        assert not deleting.done()
        store.held = False
        store.submit()
        await deleting
        assert node.queues().report("jobs").groups == ()
