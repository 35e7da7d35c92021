"""Changes of streams that do not fit: each is refused whole, and however often it is asked for,
nothing of it stays."""

import resource
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from headrace import limits

TIMES = 5


def descriptors(pid) -> dict[int, str]:
    """What a process has open."""
    found = {}
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            found[int(each.name)] = str(each.readlink())
    return found


def kept(node):
    """All that a change could leave: files and folders, logs, descriptors."""
    metrics = node.metrics()
    streams = node.data / "streams"
    return (
        sorted(str(path) for path in [*streams.rglob("*"), *(node.data / "trash").rglob("*")]),
        metrics["headrace_log_logs"],
        metrics["headrace_log_open_files"],
        sorted(path for path in descriptors(node.process.pid).values() if str(streams) in path),
    )


class Admin:
    """Kafka's admin client, as far as streams go."""

    def __init__(self, node):
        self._client = AdminClient({"bootstrap.servers": node.servers})

    def create(self, name, partitions) -> None:
        asked = [NewTopic(name, partitions, 1)]
        self._client.create_topics(asked)[name].result(30)

    def grow(self, name, partitions) -> None:
        asked = [NewPartitions(name, partitions)]
        self._client.create_partitions(asked)[name].result(30)


def refused(node, ask, code, why, *, before=lambda: None):
    """A change that is refused again and again for this reason, and keeps nothing."""
    at_first = kept(node)
    for _ in range(TIMES):
        before()
        with pytest.raises(KafkaException) as caught:
            ask()
        error = caught.value.args[0]
        assert (error.code(), why in error.str()) == (code, True), error.str()
    assert kept(node) == at_first


def test_a_change_that_does_not_fit_leaves_nothing_and_a_smaller_one_fits(start_node):
    node = start_node(HEADRACE_LOG__JOURNAL_BYTES=str(limits.JOURNAL_BYTES_MIN))
    admin = Admin(node)
    admin.create("old", 1)
    grow, create = (lambda: admin.grow("old", 40)), (lambda: admin.create("new", 40))

    for ask in (lambda: admin.grow("old", 1000), lambda: admin.create("new", 1000)):
        refused(node, ask, KafkaError.POLICY_VIOLATION, "raise log.journal_bytes")

    pid = node.process.pid
    limit = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    spare = 80 + limits.PARTITION_DESCRIPTORS * (node.metrics()["headrace_log_logs"] + 10)
    fewer = max(len(descriptors(pid)) + int(spare), max(descriptors(pid)) + 1)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (fewer, limit[1]))
    for ask in (grow, create):
        refused(node, ask, KafkaError.KAFKA_STORAGE_ERROR, "raise the limit of open files")
    resource.prlimit(pid, resource.RLIMIT_NOFILE, limit)

    # What nobody can foresee: something stands where the 31st partition is to be made.
    in_its_place = node.data / "streams" / "old" / "30"
    in_its_place.touch()
    refused(node, grow, KafkaError.KAFKA_STORAGE_ERROR, "streams/old/30/")

    def stand_in_the_way():
        (node.data / "streams" / "new").mkdir()
        (node.data / "streams" / "new" / "30").touch()

    refused(
        node, create, KafkaError.KAFKA_STORAGE_ERROR, "streams/new/30/", before=stand_in_the_way
    )

    admin.grow("old", 20)
    admin.create("new", 20)
    in_its_place.unlink()
    node.kill()
    node = start_node.again(node, HEADRACE_LOG__JOURNAL_BYTES=str(limits.JOURNAL_BYTES_MIN))
    assert (len(node.ends("old")), len(node.ends("new"))) == (20, 20)
    for name in ("old", "new"):
        folders = {path.name for path in (node.data / "streams" / name).iterdir()}
        assert folders == {"stream.json", *(str(index) for index in range(20))}
    assert list((node.data / "trash").iterdir()) == []
