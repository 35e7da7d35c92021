"""The log of MQTT sessions as a node fills it, on real files whose disk stands still or refuses.

Which round has what is tested in Rust (`crates/headrace-core/tests/switchboard/kept.rs`, and random
lives in `devices.rs`); here is what the node makes of it. A store that is held loses what it was
not told to commit, as a kill would.
"""

import asyncio
from contextlib import ExitStack

import pytest

from conftest import soaked, wait_for
from device import Device
from headrace import limits
from headrace.errors import StorageFullError
from nodes import HeldStore, running
from rawclient import RawConnection, varint

KEPT_BYTES = 40_000
KEPT = 30
"""So that a checkpoint takes several rounds of a mebibyte."""

CHURN_BYTES = 200_000
WINDOW = 10


@pytest.fixture(autouse=True)
def _hasty(monkeypatch):
    """A partition soon becomes long, and nobody waits for a disk that stands still."""
    monkeypatch.setattr(limits, "SESSION_CHECKPOINT_BYTES", 100_000)
    monkeypatch.setattr(limits, "DRAIN_SECONDS", 0.1)


class CheckpointStore(HeldStore):
    """Stands still so many commits after a checkpoint has begun."""

    def __init__(self, path, commits):
        super().__init__(path)
        self._commits = commits
        self._left = None

    def roll(self, log, wall_ms):
        self._store.roll(log, wall_ms)
        if self._left is None:
            self._left = self._commits

    def submit(self):
        if self._left is not None:
            self.held |= self._left == 0
            self._left -= 1
        super().submit()


def sessions(node):
    return node._parts.switchboard.statistics()["mqtt_sessions"]


def port(node):
    return node.listeners["mqtt"].address.port


@pytest.mark.parametrize("at", [(0, 3, 6), soaked(range(8))], ids=str)
async def test_a_node_may_end_at_any_commit_of_a_checkpoint(tmp_path, at):
    """What waits is there once, whatever of a checkpoint had become durable."""
    away, here, publisher = Device("away"), Device("here"), Device("publisher")
    wanted = []

    def publish(topic, size):
        wanted.append(f"{topic} {len(wanted)} ".ljust(size, "x"))
        publisher.publish(2, topic, wanted[-1])

    def begin(at):
        away.connect(at)
        away.subscribe("kept")
        here.connect(at)
        here.subscribe("churn")
        wait_for(lambda: away.is_subscribed and here.is_subscribed)
        away.hang_up()

    def live(at, store):
        here.connect(at)
        publisher.connect(at)
        publish("kept", KEPT_BYTES)
        while not store.held:
            publish("churn", CHURN_BYTES)
            wait_for(lambda: store.held or len(publisher.sent) < WINDOW)

    def end(at):
        for device in (away, here, publisher):
            device.connect(at)
        wait_for(lambda: not publisher.sent and len(away.taken) + len(here.taken) >= len(wanted))
        for device in (away, here, publisher):
            device.hang_up()

    async with running(tmp_path, keeps_sessions=True) as (node, _):
        await asyncio.to_thread(begin, port(node))
        here.hang_up()
    for commits in at:
        store = CheckpointStore(tmp_path, commits)
        async with running(tmp_path, store=store, keeps_sessions=True) as (node, _):
            await asyncio.to_thread(live, port(node), store)
    async with running(tmp_path, keeps_sessions=True) as (node, _):
        await asyncio.to_thread(end, port(node))
    assert away.taken == [text for text in wanted if text.startswith("kept")]
    assert here.taken == [text for text in wanted if text.startswith("churn")]


class RefusingStore(HeldStore):
    """Has no room for one append to the log of sessions, and stands still after that round."""

    def __init__(self, path):
        super().__init__(path)
        self._of_sessions = set()
        self.refused = 0

    def open_logs(self, stream, *arguments):
        logs = super().open_logs(stream, *arguments)
        if stream == "__mqtt":
            self._of_sessions.update(logs)
        return logs

    def append(self, log, *arguments):
        if log in self._of_sessions and not self.refused:
            self.refused += 1
            asyncio.get_running_loop().call_soon(self._hold)
            raise StorageFullError("planted")
        return super().append(log, *arguments)

    def _hold(self):
        self.held = True


async def test_what_follows_a_refused_append_is_not_written(tmp_path):
    """Though there is room for it by then: a round counts whole, or not at all."""
    store = RefusingStore(tmp_path)
    with ExitStack() as stack:
        async with running(tmp_path, store=store, keeps_sessions=True) as (node, _):
            clients = [stack.enter_context(RawConnection(port(node))) for _ in range(20)]
            listener = node.listeners["mqtt"]
            await asyncio.to_thread(wait_for, lambda: listener.connections == len(clients))
            for number, client in enumerate(clients):  # the loop stands still: one round for all
                body = b"\x00\x04MQTT\x04\x00\x00\x00\x00\x02" + f"{number:02}".encode()
                client.socket.sendall(b"\x10" + varint(len(body)) + body)
            for client in clients:
                connack = await asyncio.to_thread(client.read, 4)
                assert connack == b"\x20\x02\x00\x03", "server unavailable"
    assert store.refused == 1
    async with running(tmp_path, keeps_sessions=True) as (node, _):
        assert sessions(node) == 0
