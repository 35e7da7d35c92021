"""A sync beside the log that fails: the kernel tells of it once, so the node writes no more."""

import asyncio
import errno
import os
from pathlib import Path

import pytest

from conftest import wait_for
from headrace.errors import LostWritesError, UnavailableError
from headrace.kernel.acls import Operation, Pattern, Permission, Resource, checked
from headrace.kernel.catalog import Change
from headrace.ports import NodeState
from nodes import running

TWO = Change(partitions=2)
ACL = checked(
    Resource.TOPIC, Pattern.LITERAL, "a", "User:ann", "*", Operation.READ, Permission.ALLOW
)


@pytest.fixture
def fail_syncs(monkeypatch):
    """Has syncs of one file fail, or of all; until it is called again with None."""
    sync = os.fsync

    def fail(path: Path | None) -> None:
        def failing(descriptor):
            if Path(f"/proc/self/fd/{descriptor}").readlink() == path:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            sync(descriptor)

        monkeypatch.setattr(os, "fsync", failing)

    return fail


@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("streams/a/stream.json.tmp", lambda node: node.alter_stream("a", TWO)),
        ("streams/a", lambda node: node.alter_stream("a", TWO)),
        ("streams/b", lambda node: node.create_stream("b", TWO)),
        ("streams", lambda node: node.create_stream("b", TWO)),
        (".", lambda node: node.create_stream("b", TWO)),
        ("users.json.tmp", lambda node: node.gate.add("ann", b"a long password", ["admin"])),
        ("acls.json.tmp", lambda node: node.gate.change_acls(lambda acls: acls | {ACL})),
    ],
)
async def test_a_sync_that_fails_beside_the_log_ends_all_writing(
    tmp_path, fail_syncs, what, change
):
    async with running(tmp_path, a=Change(filters=["a"])) as (node, store):
        await node.publish("a", b"before", 1, [])
        fail_syncs(tmp_path / what)
        with pytest.raises(LostWritesError, match="failed: Input/output error; check the disk"):
            await change(node)
        fail_syncs(None)  # who tries again would be told that all is well
        await asyncio.to_thread(wait_for, lambda: node.state is NodeState.FAILED)
        assert node.reason == store.failed()
        assert node.reason.startswith(f"syncing {tmp_path / what} failed")
        with pytest.raises(UnavailableError, match="restart"):
            await node.publish("a", b"after", 1, [])
        for refused in (
            change,
            lambda node: node.create_stream("c", TWO),
            lambda node: node.gate.add("bea", None, []),
        ):
            with pytest.raises(UnavailableError, match="restart"):
                await refused(node)
        assert not (tmp_path / "streams" / "c").exists()
        store.held = True  # it cannot be closed in order
    async with running(tmp_path) as (node, _):
        assert sum(each.end for each in node.stream("a").partitions) == 1
        await node.publish("a", b"after", 1, [])
        await node.create_stream("c", TWO)
