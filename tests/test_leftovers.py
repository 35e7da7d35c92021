"""Files that cannot be removed: nothing needs them any more, so everything else goes on."""

import array
import fcntl
import os

import pytest

from conftest import wait_for
from storelog import files

pytestmark = pytest.mark.slow

PAYLOAD = "x" * 9000
FS_IOC_GETFLAGS, FS_IOC_SETFLAGS, FS_IMMUTABLE_FL = 0x80086601, 0x40086602, 0x10
SETTINGS = {"HEADRACE_LOG__RESERVE_BYTES": "0", "HEADRACE_LOG__RETENTION_CHECK": "100ms"}


@pytest.fixture
def immutable():
    """Makes a file one that even the superuser cannot remove, or else its folder; until the end."""
    held = []

    def mutable():
        while held:
            file = held.pop()  # it may have another name by now
            set_immutable(file, is_so=False)
            os.close(file)

    def change(path):
        file = os.open(path, os.O_RDONLY)
        try:
            set_immutable(file, is_so=True)
        except OSError as error:
            os.close(file)
            pytest.skip(f"no immutable files on this file system, or not for this user: {error}")
        held.append(file)
        return mutable

    yield change
    mutable()


def set_immutable(file, *, is_so):
    """Sets or clears `chattr +i` (ioctl_iflags(2))."""
    flags = array.array("l", [0])
    fcntl.ioctl(file, FS_IOC_GETFLAGS, flags)
    flags[0] = flags[0] | FS_IMMUTABLE_FL if is_so else flags[0] & ~FS_IMMUTABLE_FL
    fcntl.ioctl(file, FS_IOC_SETFLAGS, flags)


def create(node, name):
    node.create_stream(name, partitions=1, filters=[f"{name}/#"], settings={"segment.bytes": 65536})


def publish(node, stream="t", count=20):
    for _ in range(count):
        body = {"topic": f"{stream}/a", "payload": PAYLOAD}
        assert node.call("POST", "/api/v1/publish", body) == (200, {"stored": 1})


def leftovers(node) -> float:
    return node.metrics()["headrace_log_leftovers"]


def test_a_segment_that_cannot_be_removed_stops_neither_a_trim_nor_a_start(start_node, immutable):
    node = start_node(**SETTINGS)
    create(node, "t")
    publish(node)
    oldest = node.data / "streams/t/0/00000000000000000000.log"
    mutable = immutable(oldest)
    node.call("PATCH", "/api/v1/streams/t", {"settings": {"retention.bytes": 70_000}})
    publish(node)
    wait_for(lambda: leftovers(node) == 1)
    publish(node)
    create(node, "other")
    wait_for(lambda: f"removing {oldest} failed" in node.log.read_text())
    assert node.stop() == 0

    node = start_node.again(node, **SETTINGS)
    publish(node)
    wait_for(lambda: leftovers(node) == 1)
    assert node.stop() == 0

    mutable()
    node = start_node.again(node, **SETTINGS)
    publish(node)
    wait_for(lambda: not oldest.exists())
    assert leftovers(node) == 0


def test_a_file_that_cannot_be_removed_stops_neither_a_deletion_nor_a_start(start_node, immutable):
    node = start_node(**SETTINGS)
    create(node, "t")
    create(node, "other")
    foreign = node.data / "streams/t/0/foreign"
    foreign.write_text("")
    mutable = immutable(foreign)
    assert node.call("DELETE", "/api/v1/streams/t")[0] == 200
    assert leftovers(node) == 1
    publish(node, "other")
    create(node, "t")
    publish(node)
    node.kill()

    node = start_node.again(node, **SETTINGS)
    wait_for(lambda: leftovers(node) == 1)
    publish(node)
    assert node.stop() == 0

    mutable()
    node = start_node.again(node, **SETTINGS)
    publish(node)
    assert files(node.data / "trash", "*") == []
    assert leftovers(node) == 0
