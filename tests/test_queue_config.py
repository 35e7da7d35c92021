"""Queues that a configuration declares."""

import json

import pytest

from conftest import headrace
from headrace import queue_settings
from headrace.config import load, read
from headrace.config.changes import changes
from headrace.config.reference import json_schema
from headrace.kernel.catalog import Catalog, Change
from headrace.queue_settings import QUEUE_SETTINGS
from headrace.settings import SETTINGS

TEXT = """
[log]
retention_ms = "1d"

[queues.jobs]
partitions = 4
filters = ["work/#"]
order = "key"
ack.deadline.ms = "2m"
retry.backoff.ms = "2s"
retry.backoff.max.ms = "10m"
"segment.bytes" = "1MiB"

[streams.plain]
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "headrace.toml"
    path.write_text(TEXT)
    return path


def test_a_queue_is_declared_with_its_settings_and_those_of_its_stream(file):
    queue = load(file).queues["jobs"]
    assert (queue.partitions, queue.filters, queue.key) == (4, ("work/#",), None)
    assert queue.settings == {
        "order": "key",
        "ack.deadline.ms": 120_000,
        "retry.backoff.ms": 2_000,
        "retry.backoff.max.ms": 600_000,
        "segment.bytes": 1 << 20,
    }


def test_it_changes_live(file):
    before = load(file)
    file.write_text(TEXT.replace('"2m"', '"3m"'))
    found = changes(before, load(file))
    assert [each.name for each in found.live] == ["queues.jobs"]
    assert found.restart == ()
    assert found.config == load(file)


def test_show_is_a_file_itself(file, tmp_path):
    shown = headrace("config", "show", "--config", str(file))
    assert shown.returncode == 0, shown.stderr
    assert '"ack.deadline.ms" = "2m"' in shown.stdout
    assert f"# {file}:9" in shown.stdout
    again = tmp_path / "again.toml"
    again.write_text(shown.stdout)
    assert load(again).queues == load(file).queues


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ('order = "strict"\npartitions = 2', 1, "[queues.a]: queue 'a': order strict is of one"),
        ('cleanup.policy = "compact"', 1, "[queues.a]: queue 'a': a queue is not compacted"),
        ('key = "colour"', 1, "[queues.a]: stream 'a': "),
        ('max_queue_depth = 1\n"depth.max.messages" = 2', 1, "[queues.a]: says twice 'depth.max."),
        ("[queues.a.dlq]", 2, "[queues.a] dlq: unknown; known: ack.deadline.ms"),
        (
            "[queues.a.dlq]\npartitions = 1",
            3,
            '[queues.a] dlq.partitions: a name with dots stands in quotes: [queues."a.dlq"]',
        ),
        ("retry.attempts = 0", 2, "[queues.a] retry.attempts: must be from 1 to 2147483647, or -1"),
    ],
)
def test_check_says_what_cannot_be(tmp_path, text, line, why):
    file = tmp_path / "headrace.toml"
    file.write_text(f"[queues.a]\n{text}\n")
    done = headrace("config", "check", "--config", str(file))
    assert done.returncode == 2
    assert f"{file}:{line}: {why}" in done.stderr


def test_a_time_of_retention_without_its_unit_is_doubted(file):
    file.write_text("[queues.a]\nretention.ms = 60\n")
    (doubt,) = read(file).doubts
    assert doubt.startswith(f"{file}:2: [queues.a] retention.ms: 60 is taken as milliseconds")


def test_the_schema_has_all_settings_of_a_queue():
    properties = json_schema()["$defs"]["QueueTable"]["properties"]
    assert properties.keys() == {"partitions", "filters", "key", *QUEUE_SETTINGS, *SETTINGS}
    assert properties["order"]["enum"] == ["none", "key", "strict"]
    assert json.dumps(properties)


def test_settings_are_read_by_people():
    assert queue_settings.read("ack.deadline.ms", 30_000) == "30s"
    assert queue_settings.read("retry.attempts", -1) == "unlimited"
    assert queue_settings.read("retry.attempts", 3) == "3"


def test_settings_of_the_original_design_have_its_names(file):
    names = ("max_queue_depth = 9", 'message_ttl = "1h"', "batch_size = 5", "ring_buffer_size = 7")
    file.write_text("[queues.jobs]\n" + "\n".join(names))
    queue = load(file).queues["jobs"]
    definition = Catalog().create("jobs", Change(queue=queue.settings), 1)
    assert definition.queue == {
        "depth.max.messages": 9,
        "message.ttl.ms": 3_600_000,
        "batch.size": 5,
        "read.ahead": 7,
    }


def test_those_that_need_a_cluster_say_so(file):
    file.write_text("[queues.jobs]\nreplication_factor = 3")
    result = headrace("config", "check", "--config", str(file))
    assert result.returncode == 2
    assert "needs a cluster, and this is one node" in result.stderr
