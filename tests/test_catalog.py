"""The catalog and its files: what a stream may be, and that a definition survives."""

import errno
import json
import os

import pytest

from headrace import limits
from headrace.adapters import files as definitions
from headrace.adapters.files import FileDefinitions
from headrace.errors import (
    DefinitionError,
    InvalidStreamError,
    StreamExistsError,
    StreamLimitError,
    UnavailableError,
    UnknownStreamError,
)
from headrace.kernel.budget import DescriptorBudget
from headrace.kernel.catalog import Catalog, Change
from headrace.model import HeldLog, StreamDefinition
from headrace.settings import DEFAULTS, NOT_SERVED, SETTINGS, Settings

WALL_MS = 1_700_000_000_000


@pytest.fixture
def catalog():
    return Catalog()


def created(catalog, name, **change):
    definition = catalog.create(name, Change(**change), WALL_MS)
    catalog.put(definition)
    return definition


def test_a_judged_stream_is_not_held_until_it_is_put(catalog):
    definition = catalog.create("a", Change(), WALL_MS)
    assert "a" not in catalog
    catalog.put(definition)
    assert catalog.get("a") == definition
    assert (definition.partitions, definition.filters, definition.key) == (1, (), "topic")


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "...", "_one", "-"])
def test_names(catalog, name):
    assert catalog.create(name, Change(), WALL_MS).name == name


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a/b", "a b", "ä", "a\n", "__a", "a\0"])
def test_what_is_no_name(catalog, name):
    with pytest.raises(InvalidStreamError) as caught:
        catalog.create(name, Change(), WALL_MS)
    assert caught.value.kafka_code == 17


def test_a_name_is_taken_once(catalog):
    created(catalog, "a")
    with pytest.raises(StreamExistsError):
        catalog.create("a", Change(), WALL_MS)


def test_ids_and_incarnations_never_recur(catalog):
    first = created(catalog, "a")
    catalog.remove("a")
    second = created(catalog, "a")
    assert second.id > first.id


@pytest.mark.parametrize("partitions", [0, -1, 1025])
def test_partitions_are_bounded(catalog, partitions):
    with pytest.raises(InvalidStreamError, match="partitions must be from 1 to 1024") as caught:
        catalog.create("a", Change(partitions=partitions), WALL_MS)
    assert caught.value.kafka_code == 37


def test_partitions_grow_and_never_shrink(catalog):
    created(catalog, "a", partitions=2)
    assert catalog.alter("a", Change(partitions=4)).partitions == 4
    with pytest.raises(InvalidStreamError, match="never shrink"):
        catalog.alter("a", Change(partitions=1))


def test_the_nodes_limits_hold():
    catalog = Catalog(streams_max=2, partitions_max=5)
    created(catalog, "a", partitions=3)
    with pytest.raises(StreamLimitError, match=r"limits\.partitions"):
        catalog.create("b", Change(partitions=3), WALL_MS)
    with pytest.raises(StreamLimitError, match=r"limits\.partitions"):
        catalog.alter("a", Change(partitions=6))
    created(catalog, "b", partitions=2)
    with pytest.raises(StreamLimitError, match=r"limits\.streams"):
        catalog.create("c", Change(), WALL_MS)


def test_the_nodes_own_streams_need_neither_room_nor_defaults_of_users():
    catalog = Catalog(
        streams_max=1, partitions_max=1, defaults=Settings(delete_retention_ms=1, fsync="os")
    )
    created(catalog, "a")
    own = catalog.create("__own", Change(partitions=16), WALL_MS, internal=True)
    catalog.put(own)
    assert catalog.settings(own) == DEFAULTS
    catalog.remove("a")
    assert catalog.settings(created(catalog, "b")) == catalog.defaults


def test_alter_changes_what_is_named_and_nothing_else(catalog):
    created(catalog, "a", filters=["x/#"], key="level:2", settings={"max.message.bytes": 100})
    altered = catalog.alter("a", Change(filters=["y", "y", "z"]))
    assert altered.filters == ("y", "z")
    assert (altered.key, altered.settings) == ("level:2", {"max.message.bytes": 100})
    assert catalog.alter("a", Change(settings={"max.message.bytes": None})).settings == {}


def test_what_is_not_there_is_not_altered(catalog):
    with pytest.raises(UnknownStreamError):
        catalog.alter("a", Change())


@pytest.mark.parametrize(
    "topic_filter", ["", "a/#/b", "a#", "a+/b", "a\0b", "x" * 65_536, "$share/g/a"]
)
def test_filters_are_mqtts(catalog, topic_filter):
    with pytest.raises(InvalidStreamError, match="stream 'a'"):
        catalog.create("a", Change(filters=[topic_filter]), WALL_MS)


@pytest.mark.parametrize("topic_filter", ["$SYS/#", "$SYS/broker/uptime", "$", "$queue/a"])
def test_filters_that_never_match_are_refused(catalog, topic_filter):
    with pytest.raises(InvalidStreamError, match="never matches"):
        catalog.create("a", Change(filters=["x", topic_filter]), WALL_MS)
    catalog.put(definition("a", filters=(topic_filter,)))
    assert catalog.alter("a", Change(key="level:1")).filters == (topic_filter,), "it was there"
    with pytest.raises(InvalidStreamError, match="never matches"):
        catalog.alter("a", Change(filters=[topic_filter]))


@pytest.mark.parametrize("key", ["level:0", "level:x", "level", "property:", "colour", "TOPIC"])
def test_keys_are_topic_level_or_property(catalog, key):
    with pytest.raises(InvalidStreamError, match="stream 'a'"):
        catalog.create("a", Change(filters=["x"], key=key), WALL_MS)


@pytest.mark.parametrize("key", ["topic", "level:1", "level:12", "property:host"])
def test_key_rules(catalog, key):
    assert catalog.create("a", Change(key=key), WALL_MS).key == key


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"max.mesage.bytes": 1}, "did you mean 'max.message.bytes'"),
        ({"retention_ms": 1}, "did you mean 'retention.ms'"),
        ({"max.message.bytes": "huge"}, "setting 'max.message.bytes' must be a size"),
        ({"max.message.bytes": 0}, "must be from 1 to 67108864; got 0"),
        ({"max.message.bytes": -1}, "must be from 1 to"),
        ({"retention.ms": -2}, "must be from 0 to .*, or -1 for no limit; got -2"),
        ({"retention.ms": "7 weeks"}, 'must be a duration with its unit, such as "30s"'),
        ({"retention.records": "7d"}, "must be a whole number"),
        ({"segment.bytes": "1KiB"}, "must be from 65536 to 2147483647; got '1KiB'"),
        ({"cleanup.policy": "shred"}, "must be one of compact, delete, or several with commas"),
        ({"cleanup.policy": ""}, "must be one of compact, delete"),
        ({"compression.type": "brotli"}, "must be one of producer, uncompressed, gzip, snappy"),
        ({"fsync": "never"}, "must be one of commit, interval, os; got 'never'"),
        ({"min.cleanable.dirty.ratio": "1.1"}, "must be from 0 to 1"),
        ({"min.cleanable.dirty.ratio": "nan"}, "must be from 0 to 1"),
        ({"min.cleanable.dirty.ratio": "half"}, "must be a number, such as 0.5"),
        ({"min.insync.replicas": 2}, "'min.insync.replicas' is Kafka's and not served here"),
        (
            {"min.compaction.lag.ms": 2, "max.compaction.lag.ms": 1},
            r"max\.compaction\.lag\.ms \(1\) must not be less than min\.compaction\.lag\.ms \(2\)",
        ),
    ],
)
def test_a_setting_that_cannot_be_is_refused(catalog, settings, error):
    with pytest.raises(InvalidStreamError, match=error) as caught:
        catalog.create("a", Change(settings=settings), WALL_MS)
    assert caught.value.kafka_code == 40


@pytest.mark.parametrize(
    ("name", "written", "value"),
    [
        ("max.message.bytes", "2MiB", 2 << 20),
        ("max.message.bytes", "1000", 1000),
        ("retention.ms", "7d", 604_800_000),
        ("retention.ms", "604800000", 604_800_000),
        ("retention.ms", " -1 ", -1),
        ("retention.bytes", "1TiB", 1 << 40),
        ("retention.records", "0", 0),
        ("segment.ms", 1, 1),
        ("max.compaction.lag.ms", "9223372036854775807", 2**63 - 1),
        ("cleanup.policy", "delete, compact", "compact,delete"),
        ("cleanup.policy", "delete,delete", "delete"),
        ("compression.type", "none", "uncompressed"),
        ("min.cleanable.dirty.ratio", "0.25", 0.25),
        ("min.cleanable.dirty.ratio", 1, 1.0),
    ],
)
def test_settings_are_read_as_people_and_kafka_write_them(catalog, name, written, value):
    definition = catalog.create("a", Change(settings={name: written}), WALL_MS)
    assert definition.settings == {name: value}
    assert catalog.settings(definition).of(name) == value


def test_the_nodes_defaults_hold_where_a_stream_says_nothing():
    catalog = Catalog(defaults=Settings(retention_ms=5, fsync="os"))
    settings = catalog.settings(catalog.create("a", Change(settings={"fsync": "commit"}), WALL_MS))
    assert (settings.retention_ms, settings.fsync) == (5, "commit")
    with pytest.raises(InvalidStreamError, match="must not be less"):
        Catalog(defaults=Settings(min_compaction_lag_ms=9)).create(
            "a", Change(settings={"max.compaction.lag.ms": 8}), WALL_MS
        )


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
def test_every_default_is_one_that_may_be_set(setting):
    assert setting.read(setting.default) == setting.default
    assert setting.read(str(setting.default)) == setting.default
    assert DEFAULTS.of(setting.name) == setting.default


def test_no_setting_is_both_served_and_not():
    assert not SETTINGS.keys() & NOT_SERVED


def definition(name, **parts):
    return StreamDefinition(name, 7, 3, **parts)


def test_definitions_survive(tmp_path):
    files = FileDefinitions(tmp_path)
    assert files.load() == []
    stored = definition("b", filters=("x/#", "y"), key="level:2", settings={"max.message.bytes": 9})
    files.save(stored)
    files.save(definition("a"))
    a, b = FileDefinitions(tmp_path).load()
    assert (a.name, a.id) == ("a", 7)
    assert (b.filters, b.key, b.settings, b.incarnation) == (
        stored.filters,
        "level:2",
        stored.settings,
        7,
    )


def test_what_a_crash_left_of_a_creation_is_removed(tmp_path):
    files = FileDefinitions(tmp_path)
    folder = tmp_path / "streams" / "a"
    folder.mkdir(parents=True)
    (folder / "stream.json.tmp").write_text('{"name')
    assert files.load() == []
    assert not folder.exists()


def test_a_definition_that_cannot_be_written_says_where_and_what_to_do(tmp_path):
    files = FileDefinitions(tmp_path)
    (tmp_path / "streams" / "a" / "stream.json.tmp").mkdir(parents=True)
    with pytest.raises(UnavailableError, match=r"a/stream\.json cannot be written: .*; check the"):
        files.save(definition("a"))


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (errno.EMFILE, "raise the limit of open files"),
        (errno.EACCES, "give this user access to it"),
        (errno.EROFS, "mount the file system writable"),
        (errno.ENOSPC, "free space there"),
        (errno.EIO, "check the disk and its mount"),
    ],
)
def test_a_refused_definition_is_not_found_later(tmp_path, monkeypatch, error, what):
    """However far it had come, and what can be done about it is said."""
    sync_folder = definitions.sync_folder

    def refusing(path):
        if path.name in {"a", "b"}:  # the last step
            raise OSError(error, os.strerror(error))
        sync_folder(path)

    files = FileDefinitions(tmp_path)
    files.save(definition("a"))
    monkeypatch.setattr(definitions, "sync_folder", refusing)
    for refused in (definition("a", settings={"retention.ms": 1}), definition("b")):
        with pytest.raises(UnavailableError, match=what):
            files.save(refused)
    assert [(each.name, dict(each.settings)) for each in files.load()] == [("a", {})]


def test_a_crash_while_altering_leaves_the_old_definition(tmp_path):
    files = FileDefinitions(tmp_path)
    files.save(definition("a"))
    (tmp_path / "streams" / "a" / "stream.json.tmp").write_text('{"name')
    assert [each.partitions for each in files.load()] == [3]


def test_data_without_a_definition_is_never_touched(tmp_path):
    partition = tmp_path / "streams" / "a" / "0"
    partition.mkdir(parents=True)
    with pytest.raises(DefinitionError, match=r"holds data but no stream\.json; restore"):
        FileDefinitions(tmp_path).load()
    assert partition.is_dir()


def test_what_is_not_of_a_stream_is_named_and_left(tmp_path):
    folder = tmp_path / "streams" / "a"
    folder.mkdir(parents=True)
    (folder / "notes").write_text("")
    with pytest.raises(DefinitionError, match=r"/streams/a holds data but no stream\.json"):
        FileDefinitions(tmp_path).load()
    (folder / "notes").rename(tmp_path / "streams" / "Notes")
    with pytest.raises(DefinitionError, match="/streams/Notes is no stream's folder; move it away"):
        FileDefinitions(tmp_path).load()


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"name": "a"}', "\0" * 9000])
def test_a_damaged_definition_is_named(tmp_path, text):
    files = FileDefinitions(tmp_path)
    files.save(definition("a"))
    path = tmp_path / "streams" / "a" / "stream.json"
    path.write_text(text)
    with pytest.raises(DefinitionError) as caught:
        files.load()
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < len(str(path)) + 200


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("partitions", 0),
        ("partitions", "1"),
        ("incarnation", -1),
        ("filters", "a"),
        ("settings", {"max.message.bytes": []}),
        ("colour", "red"),
    ],
)
def test_a_definition_of_wrong_types_is_damaged(tmp_path, field, value):
    files = FileDefinitions(tmp_path)
    files.save(definition("a"))
    path = tmp_path / "streams" / "a" / "stream.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: value}))
    with pytest.raises(DefinitionError, match=rf"stream\.json is damaged \({field}"):
        files.load()


def test_a_folder_has_its_streams_name(tmp_path):
    files = FileDefinitions(tmp_path)
    files.save(definition("a"))
    path = tmp_path / "streams" / "a" / "stream.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"name": "b"}))
    with pytest.raises(DefinitionError, match="defines 'b'"):
        files.load()


def held(stream="a", *, partition, incarnation=7, has_past=True):
    return HeldLog(stream, partition, incarnation, has_past)


@pytest.mark.parametrize(
    ("logs", "why"),
    [
        ([held(partition=0, incarnation=6)], "it says incarnation 7, and its partitions are of 6"),
        ([held(partition=3)], "it says 3 partitions, and there are records in 4"),
        ([held(partition=2), held("b", partition=9, incarnation=1)], None),
        ([held(partition=3, has_past=False)], None),  # a crash came between log and definition
    ],
)
def test_a_definition_that_would_hide_records_is_refused(catalog, logs, why):
    if why is None:
        catalog.check(definition("a"), logs)
        return
    with pytest.raises(InvalidStreamError, match=why):
        catalog.check(definition("a"), logs)


def test_two_streams_of_one_incarnation_are_refused(catalog):
    """Sessions that are kept know a stream by it, and would read the other."""
    catalog.put(definition("a"))
    catalog.check(definition("a"), [])
    with pytest.raises(InvalidStreamError, match="incarnation 7, as that of 'a' does"):
        catalog.check(definition("b"), [])


def test_connections_and_partitions_share_the_descriptors():
    budget = DescriptorBudget(descriptors=20_000)
    assert budget.partitions_max == 3500
    assert budget.connections_max(3500 + limits.INTERNAL_PARTITIONS) > 5000
    assert budget.connections_max(12) == 20_000 - 256 - 48
    assert DescriptorBudget(1024).partitions_max == 144 - limits.INTERNAL_PARTITIONS
    assert DescriptorBudget(300).partitions_max == 0
    assert DescriptorBudget(100).connections_max(0) == 0
    assert DescriptorBudget(20_000, connections_setting=50).connections_max(1) == 50
    assert "descriptors: 20000, of which 19696 for connections" in budget.describe(12)
