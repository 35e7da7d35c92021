"""What a queue may be: its settings, beside those of its stream, and its definition on disk."""

import json

import pytest

from headrace import queue_settings
from headrace.adapters.files import FileDefinitions
from headrace.errors import DefinitionError, InvalidStreamError, UnknownStreamError
from headrace.kernel.catalog import Catalog, Change
from headrace.model import StreamDefinition
from headrace.queue_settings import OF_DEAD_LETTERS, QUEUE_DEFAULTS, QueueSettings
from headrace.settings import DEFAULTS, SETTINGS, Settings

WALL_MS = 1_700_000_000_000


@pytest.fixture
def catalog():
    return Catalog()


def created(catalog, name="jobs", **change):
    definition = catalog.create(name, Change(**({"queue": {}} | change)), WALL_MS)
    catalog.put(definition)
    return definition


def test_a_stream_is_no_queue_unless_it_is_said(catalog):
    assert created(catalog, "plain", queue=None).queue is None
    queue = created(catalog)
    assert (queue.queue, queue.key, queue.partitions) == ({}, "property:partition-key", 1)
    assert created(catalog, "other", key="level:2").key == "level:2"


def test_settings_of_a_queue_are_read_with_units(catalog):
    queue = created(catalog, queue={"ack.deadline.ms": "2m", "retry.attempts": "3", "order": "key"})
    assert queue.queue == {"ack.deadline.ms": 120_000, "retry.attempts": 3, "order": "key"}
    held = QueueSettings.of_queue(queue.queue)
    assert (held.ack_deadline_ms, held.retry_attempts, held.prefetch) == (120_000, 3, 100)


def test_alter_changes_what_is_named_and_nothing_else(catalog):
    created(catalog, queue={"prefetch": 5, "order": "key"}, settings={"segment.bytes": "1MiB"})
    altered = catalog.alter("jobs", Change(queue={"prefetch": None, "read.ahead": 7}))
    assert altered.queue == {"order": "key", "read.ahead": 7}
    assert altered.settings == {"segment.bytes": 1 << 20}
    assert catalog.alter("jobs", Change(filters=["a/#"])).queue == {"prefetch": 5, "order": "key"}


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"prefetch": 0}, "setting 'prefetch' must be from 1 to 65535; got 0"),
        ({"prefetch": 65_536}, "from 1 to 65535"),
        ({"retry.attempts": 0}, "or -1 for no limit; got 0"),
        ({"message.ttl.ms": 0}, "or -1 for no limit; got 0"),
        ({"retry.total.ms": 0}, "or -1 for no limit; got 0"),
        ({"ack.deadline.ms": -1}, "setting 'ack.deadline.ms' must be from 1 to"),
        ({"ack.deadline.ms": "soon"}, "must be a duration with its unit"),
        ({"retry.backoff.multiplier": 0.5}, "must be from 1 to 100; got 0.5"),
        ({"retry.backoff.jitter": "nan"}, "must be from 0 to 1; got 'nan'"),
        ({"order": "fifo"}, "must be one of none, key, strict; got 'fifo'"),
        ({"dead.letters": "yes"}, "must be one of on, off; got 'yes'"),
        ({"ack.deadlin.ms": 1}, "no queue setting 'ack.deadlin.ms'; did you mean 'ack.deadline.ms"),
        ({"retention.mz": 1}, "did you mean 'retention.ms'"),
        ({"retry.backoff.ms": "10m"}, "retry.backoff.max.ms (300000) must not be less than"),
    ],
)
def test_what_no_queue_can_be(catalog, settings, why):
    with pytest.raises(InvalidStreamError) as caught:
        created(catalog, queue=settings)
    assert why in str(caught.value)


def test_a_setting_is_said_once(catalog):
    said = {"max_queue_depth": 5, "depth.max.messages": 7}
    why = "says twice 'depth.max.messages': max_queue_depth and depth.max.messages are it"
    with pytest.raises(InvalidStreamError, match=why):
        created(catalog, queue=said)
    created(catalog)
    with pytest.raises(InvalidStreamError, match=why):
        catalog.alter("jobs", Change(queue=said | {"depth.max.messages": None}))


def test_dead_letters_are_a_queue(catalog):
    created(catalog, "y.dlq", queue=None)
    with pytest.raises(InvalidStreamError, match=r"'y\.dlq', which is a stream and no queue"):
        created(catalog, "y")
    created(catalog, "y", queue={"dead.letters": "off"})
    with pytest.raises(InvalidStreamError, match=r"choose another name, or dead\.letters off"):
        catalog.alter("y", Change(queue={"dead.letters": None}))
    created(catalog)
    with pytest.raises(InvalidStreamError, match="in the place of the dead letters of a queue"):
        created(catalog, "jobs.dlq", queue=None)
    created(catalog, "jobs.dlq")


def test_strict_order_is_of_one_partition(catalog):
    for change in (
        Change(partitions=2, queue={"order": "strict"}),
        Change(partitions=2, queue={"order": "strict"}, key="topic"),
    ):
        with pytest.raises(InvalidStreamError, match="order strict is of one partition, and there"):
            catalog.create("jobs", change, WALL_MS)
    created(catalog, queue={"order": "strict"})
    with pytest.raises(InvalidStreamError, match="choose order key"):
        catalog.alter("jobs", Change(partitions=2))
    created(catalog, "many", partitions=2)
    with pytest.raises(InvalidStreamError, match="choose order key"):
        catalog.alter("many", Change(queue={"order": "strict"}))


def test_a_queue_is_not_compacted_whatever_the_node_says():
    catalog = Catalog(defaults=Settings(cleanup_policy="compact", retention_ms=5, fsync="os"))
    queue = created(catalog)
    held = catalog.settings(queue)
    assert (held.cleanup_policy, held.retention_ms, held.fsync) == ("delete", -1, "os")
    assert catalog.settings(created(catalog, "plain", queue=None)).retention_ms == 5
    with pytest.raises(InvalidStreamError, match="a queue is not compacted"):
        catalog.alter("jobs", Change(settings={"cleanup.policy": "compact"}))
    altered = catalog.alter("jobs", Change(settings={"retention.ms": "1d"}))
    assert catalog.settings(altered).retention_ms == 86_400_000


def test_a_stream_does_not_become_a_queue(catalog):
    created(catalog, queue=None)
    with pytest.raises(InvalidStreamError, match="is no queue and does not become one; choose"):
        catalog.alter("jobs", Change(queue={}))
    with pytest.raises(UnknownStreamError, match="'jobs' is a stream and no queue"):
        catalog.get_queue("jobs")
    with pytest.raises(UnknownStreamError, match="no queue is named 'other'"):
        catalog.get_queue("other")


def test_the_dead_letters_of_a_queue_have_room_for_their_name(catalog):
    created(catalog, "x" * 245)
    with pytest.raises(InvalidStreamError, match="at most 245 characters"):
        created(catalog, "x" * 246)
    created(catalog, "x" * 249, queue={"dead.letters": "off"})
    assert created(catalog, "x" * 245 + ".dlq", queue=OF_DEAD_LETTERS).queue == OF_DEAD_LETTERS


def test_settings_are_split_by_whose_they_are():
    both = {"prefetch": 1, "retention.ms": None, "flush.messages": 2, "nothing": 3}
    of_queue, of_stream = queue_settings.split(both)
    assert of_queue == {"prefetch": 1, "nothing": 3}
    assert of_stream == {"retention.ms": None, "flush.messages": 2}
    for name, why in (("flush.messages", "Kafka's and not served"), ("nothing", "no queue")):
        with pytest.raises(ValueError, match=why):
            queue_settings.find_either(name)
    assert queue_settings.find_either("retention.ms") is SETTINGS["retention.ms"]


def test_the_defaults_agree_with_each_other():
    assert queue_settings.contradiction(QUEUE_DEFAULTS, DEFAULTS, 1) is None


def test_a_queue_survives_and_a_stream_is_written_as_it_was(tmp_path):
    files = FileDefinitions(tmp_path)
    queue = StreamDefinition("jobs", 7, 3, queue={"prefetch": 5, "order": "key"})
    plain = StreamDefinition("plain", 8, 1)
    files.save(queue)
    files.save(plain)
    assert FileDefinitions(tmp_path).load() == [queue, plain]
    text = (tmp_path / "streams" / "plain" / "stream.json").read_text()
    assert list(json.loads(text)) == [
        "name", "incarnation", "partitions", "filters", "key", "settings", "checksum",
    ]  # fmt: skip


def test_the_checksum_is_of_the_queue_too(tmp_path):
    files = FileDefinitions(tmp_path)
    files.save(StreamDefinition("jobs", 7, 3, queue={"prefetch": 5}))
    path = tmp_path / "streams" / "jobs" / "stream.json"
    path.write_text(path.read_text().replace('"prefetch": 5', '"prefetch": 7'))
    with pytest.raises(DefinitionError, match=r"damaged \(checksum"):
        files.load()


@pytest.mark.parametrize("queue", [{"prefetch": 0}, {"retention.ms": 1}, {"x": 1}])
def test_a_queue_on_a_disk_is_judged(catalog, queue):
    with pytest.raises(InvalidStreamError):
        catalog.check(StreamDefinition("jobs", 7, 3, queue=queue), [])
    catalog.check(StreamDefinition("jobs", 7, 3, queue={"prefetch": 1}), [])
