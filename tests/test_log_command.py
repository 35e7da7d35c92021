"""`headrace log`, as an operator uses it: a node is stopped, looked at, damaged, repaired."""

import errno
import json
import os
import shutil
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import kafka
import pytest
from confluent_kafka import Consumer, TopicPartition

from conftest import RunningNode, environment, headrace
from headrace.cli.log.repair import PAGE_BYTES, copy_readable

pytestmark = pytest.mark.slow

RECORDS = 300


def fill(node) -> None:
    node.create_stream("readings", partitions=2, settings={"segment.bytes": "64KiB"})
    with kafka.KafkaProducer(bootstrap_servers=node.servers, batch_size=3000) as producer:
        for index in range(RECORDS):
            value = b"%d %s" % (index, b"x" * 500)
            producer.send("readings", value, b"key-%d" % index, partition=0, timestamp_ms=1000)
        producer.send("readings", b"\xff\x00", None, [("h", b"1")], 1, 2000)


@pytest.fixture(scope="module")
def pristine(tmp_path_factory) -> Path:
    data = tmp_path_factory.mktemp("log") / "data"
    node = RunningNode(data)
    fill(node)
    node.close()
    return data


@pytest.fixture
def data(pristine, tmp_path) -> Path:
    copy = tmp_path / "data"
    shutil.copytree(pristine, copy)
    return copy


def run(data, command, *arguments, code=0):
    """Standard output of one command."""
    ended = headrace("log", command, "--data", str(data), *arguments)
    assert ended.returncode == code, ended.stderr
    return ended.stdout if code in {0, 1} and ended.stdout else ended.stderr


def rows(data, *arguments):
    return [json.loads(line) for line in run(data, "dump", *arguments, "--json").splitlines()]


def segments(data) -> list[Path]:
    return sorted((data / "streams/readings/0").glob("*.log"))


def damage(data) -> Path:
    """Spoils a record of the second segment."""
    victim = segments(data)[1]
    content = bytearray(victim.read_bytes())
    content[200] ^= 1
    victim.write_bytes(content)
    return victim


slow = partial(pytest.param, marks=pytest.mark.slow)


def serve(data):
    """Of a node that does not start."""
    doors = ("--mqtt", "127.0.0.1:0", "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0")
    return headrace("serve", "--data", str(data), *doors)


def test_dump_goes_from_logs_to_records(data):
    held = rows(data)
    of_readings = [row for row in held if row["log"] == "readings/0"]
    assert [row["segment"] for row in of_readings] == [int(each.stem) for each in segments(data)]
    assert all(row["bytes"] == row["on_disk"] for row in held)
    batches = rows(data, "readings/0")
    assert batches[0]["offset"] == 0
    assert batches[-1]["last"] == RECORDS - 1
    assert sum(batch["records"] for batch in batches) == RECORDS
    assert rows(data, "readings/1", "--records") == [
        {
            "log": "readings/1",
            "offset": 0,
            "time": "1970-01-01T00:00:02.000Z",
            "key": None,
            "value": "b'\\xff\\x00'",
            "headers": [["h", "1"]],
        }
    ]
    some = rows(data, "readings/0", "--records", "--offset", "100", "--limit", "3")
    assert [row["key"] for row in some] == ["key-100", "key-101", "key-102"]
    assert "key key-299" in run(data, "dump", "readings", "--records", "--offset", "299")


def test_dump_reads_an_index_that_has_grown_as_it_shows_it(data):
    whole = rows(data, "readings/0", "--index")
    first = segments(data)[0].with_suffix(".index")
    os.truncate(first, 1 << 40)  # more than any memory; it takes no room
    command = [sys.executable, "-m", "headrace", "log", "dump", "--data", str(data)]
    arguments = ["readings/0", "--index", "--json"]
    with subprocess.Popen(
        [*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as dumping:
        shown = [json.loads(dumping.stdout.readline()) for _ in range(10_000)]
        dumping.kill()
    entries = [row for row in whole if row.get("segment") == int(first.stem) and "position" in row]
    assert shown[: len(entries)] == entries
    assert shown[-1]["position"] == 0


def test_dump_shows_indexes_snapshots_and_the_journal(data):
    index = rows(data, "readings/0", "--index")
    assert any("position" in row for row in index)
    assert any("timeindex" in row for row in index)
    assert any("producer" in row["entry"] for row in rows(data, "--snapshots"))
    assert "clean checkpoint" in rows(data, "--journal")[-1]["entry"]


@pytest.mark.slow
def test_what_compaction_has_rewritten_is_shown_and_checked_like_the_rest(tmp_path):
    node = RunningNode(tmp_path / "data", HEADRACE_LOG__RETENTION_CHECK="10ms")
    settings = {"segment.bytes": "64KiB", "cleanup.policy": "compact"}
    node.create_stream("state", settings=settings)
    with kafka.KafkaProducer(bootstrap_servers=node.servers, batch_size=3000) as producer:
        for index in range(1000):
            producer.send("state", b"%d %s" % (index, b"x" * 500), b"key-%d" % (index % 7))
    deadline = time.monotonic() + 30
    dirty = 'headrace_log_dirty_ratio{partition="0",stream="state"}'
    while (seen := node.metrics())["headrace_log_compactions_total"] == 0 or seen[dirty] > 0:
        assert time.monotonic() < deadline
    node.close()
    assert run(node.data, "verify") == "nothing is damaged\n"
    keys = [row["key"] for row in rows(node.data, "state/0", "--records")]
    assert 7 <= len(keys) < 1000
    assert rows(node.data, "state/0", "--index")
    compacted = (node.data / "streams/state/0").glob("*.*.log")
    victim = max(compacted, key=lambda path: path.stat().st_size)
    content = bytearray(victim.read_bytes())
    content[100] ^= 1
    victim.write_bytes(content)
    assert victim.name in run(node.data, "verify", code=1)
    run(node.data, "repair", "--drop-damaged")
    assert run(node.data, "verify") == "nothing is damaged\n"
    again = RunningNode(node.data)
    assert again.ends("state") == [1000]
    again.close()


def test_a_sound_folder_verifies(data):
    assert run(data, "verify") == "nothing is damaged\n"
    assert json.loads(run(data, "verify", "--json")) == {"sound": True, "damage": []}
    assert run(data, "repair") == "nothing to repair\n"


def test_damage_is_named_repaired_on_demand_and_the_rest_is_served(data):
    victim = damage(data)
    spoilt = victim.read_bytes()
    told = run(data, "verify", code=1)
    name = f"streams/readings/0/{victim.name}"
    first = int(victim.stem)
    assert f"damaged: {name}, byte 0, offset {first}: " in told
    assert "--drop-damaged --dry-run" in told
    (found,) = json.loads(run(data, "verify", "readings/0", "--json", code=1))["damage"]
    assert (found["file"], found["position"], found["offset"]) == (name, 0, first)
    assert run(data, "verify", "readings/1") == "nothing is damaged\n"
    refused = run(data, "repair", code=1)
    assert f"{name} is damaged at byte 0" in refused
    lost = found["lost"]
    count = lost["to"] - lost["from"] + 1
    dry = run(data, "repair", "--drop-damaged", "--dry-run")
    assert f"offsets {lost['from']} to {lost['to']} are lost" in dry
    assert victim.read_bytes() == spoilt
    report = json.loads(run(data, "repair", "--drop-damaged", "--json"))
    assert report["offsets_lost"] == count
    assert (Path(report["copies"]) / name).read_bytes() == spoilt
    assert run(data, "verify") == "nothing is damaged\n"
    node = RunningNode(data)
    try:
        assert sorted(read(node)) == [
            index for index in range(RECORDS) if not lost["from"] <= index <= lost["to"]
        ]
        assert node.ends("readings")[0] == RECORDS
    finally:
        node.close()


def test_one_partition_is_repaired_and_the_others_stay_as_they_are(data):
    first = damage(data)
    (second,) = (data / "streams/readings/1").glob("*.log")
    spoilt = bytearray(second.read_bytes())
    spoilt[70] ^= 1
    second.write_bytes(spoilt)
    refused = run(data, "repair", "readings/0", "--drop-damaged", code=1)
    assert f"readings/1/{second.name} is damaged at byte 0" in refused, "no start would accept it"
    report = json.loads(run(data, "repair", "readings/1", "--drop-damaged", "--json"))
    assert [each["file"] for each in report["actions"]] == [f"streams/readings/1/{second.name}"]
    assert {each["file"] for each in found_damage(data)} == {f"streams/readings/0/{first.name}"}
    report = json.loads(run(data, "repair", "readings", "--drop-damaged", "--json"))
    assert report["offsets_lost"] > 0
    assert found_damage(data) == []


def found_damage(data):
    ended = headrace("log", "verify", "--data", str(data), "--json")
    return json.loads(ended.stdout)["damage"]


def read(node) -> list[int]:
    """The number in each record, as librdkafka and kafka-python read them alike."""
    consumer = Consumer({"bootstrap.servers": node.servers, "group.id": "g"})
    consumer.assign([TopicPartition("readings", 0, 0)])
    got: list[bytes] = []
    while not got or not got[-1].startswith(b"299 "):
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        got.append(message.value())
    consumer.close()
    place = kafka.TopicPartition("readings", 0)
    with kafka.KafkaConsumer(bootstrap_servers=node.servers, group_id=None) as other:
        other.assign([place])
        other.seek_to_beginning(place)
        assert [next(other).value for _ in got] == got
    return [int(value.split(b" ")[0]) for value in got]


def test_a_lost_journal_is_named_and_made_anew_on_demand(data, start_node):
    shutil.rmtree(data / "journal")
    refused = serve(data)
    assert refused.returncode == 1
    assert "the journal does not know" in refused.stderr
    assert "the disk refused" not in refused.stderr
    assert "--rebuild-journal" in run(data, "verify", code=1)
    run(data, "repair", "--rebuild-journal")
    assert run(data, "verify") == "nothing is damaged\n"
    assert start_node(data=data).ends("readings") == [RECORDS, 1]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"partitions": 1}, "it says 1 partitions, and there are records in 2"),
        slow({"incarnation": 5}, "it says incarnation 5, and its partitions are of"),
        slow({"settings": {"segment.bytes": 1}}, "segment.bytes"),
        slow({"settings": {"colour": "red"}}, "colour"),
        slow({"key": "bad"}, "key"),
    ],
)
def test_a_definition_that_no_node_starts_with_is_named_by_each_command(data, change, why):
    path = data / "streams/readings/stream.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"checksum": None} | change))
    refused = serve(data)
    assert refused.returncode == 1
    told = run(data, "verify", code=1)
    assert "damaged: streams/readings/stream.json, byte 0: " in told
    kept = run(data, "repair", code=1)
    assert f"nothing was repaired, for {path} is damaged (" in kept
    for text in (refused.stderr, told, kept):
        assert why in text
        assert "from a copy" in text


def test_without_its_journal_a_log_ends_where_other_files_say_that_it_was(data, start_node):
    shutil.rmtree(data / "journal")
    refused = run(data, "repair", code=1)
    assert "--rebuild-journal makes them known" in refused
    segments(data)[-1].unlink()  # a snapshot still says where it ended
    assert "--drop-damaged --rebuild-journal" in run(data, "verify", code=1)
    run(data, "repair", "--rebuild-journal", code=1)
    with segments(data)[-1].open("r+b") as last:
        last.truncate(last.seek(0, os.SEEK_END) - 5)
    torn = rows(data, "readings/0")[-2]["last"] + 1
    done = run(data, "repair", "--rebuild-journal", "--drop-damaged")
    assert f"offsets {torn} to {RECORDS - 1} are lost" in done
    assert f"offsets lost: at least {RECORDS - torn}; copies are in" in done
    assert run(data, "verify") == "nothing is damaged\n"
    assert start_node(data=data).ends("readings") == [RECORDS, 1]


@pytest.mark.parametrize("command", ["dump", "verify", "repair"])
def test_a_running_node_is_not_looked_into(broker, command):
    refused = run(broker.data, command, code=1)
    assert f"in use by process {broker.process.pid}: stop it" in refused


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (["verify"], 2, "Missing option '--data'"),
        (
            ["verify", "--data", "DATA", "none"],
            2,
            "no stream 'none' in this folder; known: ",
        ),
        (["repair", "--data", "DATA", "reading"], 2, "did you mean 'readings'?"),
        (
            ["repair", "--data", "DATA", "readings", "--rebuild-journal"],
            2,
            "concerns every log: the journal is one",
        ),
        (["verify", "--data", "DATA", "readings/2"], 2, "'readings' has partitions 0 to 1"),
        (["verify", "--data", "DATA", "readings/x"], 2, "a partition is a number"),
        (["dump", "--data", "/usr"], 2, "--data /usr: it is no node's, "),
        (["verify", "--data", "/does/not/exist"], 2, "--data /does/not/exist: no such folder"),
    ],
)
def test_wrong_use_is_explained(data, arguments, code, error):
    ended = headrace("log", *(str(data) if each == "DATA" else each for each in arguments))
    assert ended.returncode == code
    assert error in ended.stderr


def test_copies_that_cannot_be_kept_leave_everything_as_it_was(data):
    damage(data)
    (data / "repair").touch()  # where they would be
    before = {each: each.read_bytes() for each in segments(data)}
    ended = headrace("log", "repair", "--data", str(data), "--drop-damaged")
    assert ended.returncode == 1
    assert "nothing was repaired, for no copies can be kept" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
    assert {each: each.read_bytes() for each in segments(data)} == before


@pytest.mark.parametrize("command", ["dump", "verify"])
def test_output_that_cannot_be_written_is_told_of(data, command):
    with Path("/dev/full").open("w") as full:
        arguments = [sys.executable, "-m", "headrace", "log", command, "--data", str(data)]
        ended = subprocess.run(
            arguments,
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
            env=environment(),
            text=True,
        )
    assert ended.returncode == 1
    assert ended.stderr == "headrace: the output: No space left on device; free space there\n"


def test_a_copy_leaves_out_what_the_disk_does_not_give_back(tmp_path, monkeypatch):
    source, target = tmp_path / "damaged.log", tmp_path / "copy.log"
    pages = [bytes([at]) * PAGE_BYTES for at in range(1, 4)]
    source.write_bytes(b"".join(pages) + b"tail")
    pread = os.pread

    def failing(fd: int, length: int, position: int) -> bytes:
        if position == PAGE_BYTES:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return pread(fd, length, position)

    monkeypatch.setattr(os, "pread", failing)
    copy_readable(source, target)
    assert target.read_bytes() == pages[0] + bytes(PAGE_BYTES) + pages[2] + b"tail"
