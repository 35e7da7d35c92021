"""A node in this process, made of its parts on a real store, and the far end of a connection."""

import asyncio
import sys
from contextlib import asynccontextmanager

from conftest import wait_for
from gates import open_gate
from headrace import limits
from headrace.adapters.clock import SystemClock
from headrace.adapters.files import FileDefinitions
from headrace.adapters.listener import Listener
from headrace.adapters.sockets import bind
from headrace.errors import StorageError
from headrace.kernel.budget import DescriptorBudget
from headrace.model import Address
from headrace.native import Store, Switchboard
from headrace.node.lifetime import Node, Parts


class HeldStore:
    """A store whose disk can be made to stand still, and which then dies without a close."""

    def __init__(self, path):
        self._store = Store.open(str(path), journal_bytes=limits.JOURNAL_BYTES_MIN)
        self.held = False
        self.fault = None
        self.refuses_logs = False
        self.keeps_sources = True

    def __getattr__(self, name):
        return getattr(self._store, name)

    def append(self, *arguments):
        if self.fault is not None:
            raise self.fault
        return self._store.append(*arguments)

    def open_logs(self, stream, first, count, *arguments):
        if self.refuses_logs and first + count > 1:
            raise StorageError("planted")
        return self._store.open_logs(stream, first, count, *arguments)

    def refresh_sources(self, log, *, around_damage=False):
        if not self.keeps_sources:
            raise StorageError("planted")
        self._store.refresh_sources(log, around_damage=around_damage)

    def submit(self):
        if not self.held:
            self._store.submit()

    def close(self):
        if self.held:
            # As a kill would: nothing more is written. The thread that has called it last may hold
            # it a moment longer than its answer.
            store = self.__dict__.pop("_store")
            wait_for(lambda: sys.getrefcount(store) <= 2)
        else:
            self._store.close()


def node_on(store, data, *, keeps_sessions=False, **streams):
    switchboard = Switchboard((0, 0))
    return Node(
        "test",
        Parts(
            clock=SystemClock(),
            definitions=FileDefinitions(data),
            switchboard=switchboard,
            gate=open_gate(data, switchboard),
            open_store=lambda: store,
            listen=lambda _, door, admits: Listener.open(
                bind(Address("127.0.0.1", 0)), door, admits
            ),
            budget=DescriptorBudget(1000),
            keeps_sessions=keeps_sessions,
            declared=streams,
        ),
    )


@asynccontextmanager
async def running(data, *, store=None, keeps_sessions=False, **streams):
    """A node with these streams; its store."""
    store = HeldStore(data) if store is None else store
    node = node_on(store, data, keeps_sessions=keeps_sessions, **streams)
    try:
        await node.open()
        yield node, store
    finally:
        await node.close()


def publish(node, topic, sequence):
    properties = [("source", "s"), ("epoch", "1"), ("sequence", str(sequence))]
    return asyncio.ensure_future(node.publish(topic, b"value", 1, properties))


def definition(data, stream):
    """What the disk says of a stream."""
    (found,) = (each for each in FileDefinitions(data).load() if each.name == stream)
    return found


async def settle():
    """Lets everything run that can."""
    for _ in range(10):
        await asyncio.sleep(0)


class Client:
    """The far end of a Kafka connection, as the door sees it."""

    peer = "192.0.2.1:1"
    host, identity, secure = "192.0.2.1", None, False
    local = Address("192.0.2.2", 9092)

    def __init__(self):
        self.answered = asyncio.Event()
        self.sent = []
        self.reading = self.is_open = True

    def write(self, data):
        self.sent.append(data)
        self.answered.set()

    def write_all(self, pieces):
        self.write(b"".join(pieces))

    def pause(self):
        self.reading = False

    def resume(self):
        self.reading = True

    def close(self):
        self.is_open = False
