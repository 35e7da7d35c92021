"""One bit of a file beside the logs of a real node, stopped or killed, that is another than it was:
`headrace log verify` names the file, or a start makes it again and has lost nothing."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import kafka
import pytest

from conftest import RunningNode, headrace, soaked
from headrace.adapters.files import FileDefinitions
from headrace.cli.log.folder import Wanted, opened
from headrace.errors import DefinitionError
from headrace.native import Store
from pahoclient import Client
from storelog import all_bytes

pytestmark = pytest.mark.slow

RECORDS = 300
EPOCHS = "leader-epoch-checkpoint"
JOURNAL_BYTES = 4 << 20
"""As nodes of tests have it."""
ALL = Wanted()


def fill(node: RunningNode, stream: str) -> None:
    """Leaves every kind of side file: of producers, sources, states, and several segments."""
    node.create_stream(stream, partitions=2, settings={"segment.bytes": "64KiB"})
    with kafka.KafkaProducer(bootstrap_servers=node.servers, enable_idempotence=True) as producer:
        for index in range(RECORDS):
            producer.send(stream, b"%d %s" % (index, b"x" * 500), partition=0)
    kept = kafka.TopicPartition(stream, 0)
    with kafka.KafkaConsumer(bootstrap_servers=node.servers, group_id=f"g-{stream}") as consumer:
        consumer.assign([kept])
        consumer.commit({kept: kafka.OffsetAndMetadata(7, "", -1)})
    with Client(node) as client:
        for index in range(4):
            client.paho.publish(f"kept/{stream}/{index}", b"v", 1, retain=True).wait_for_publish(30)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory) -> Path:
    data = tmp_path_factory.mktemp("stopped") / "data"
    node = RunningNode(data)
    fill(node, "first")
    node.close()
    return data


@pytest.fixture(scope="module")
def killed(stopped, tmp_path_factory) -> Path:
    """What `stopped` holds, and what came to it in a life that was cut short."""
    data = tmp_path_factory.mktemp("killed") / "data"
    shutil.copytree(stopped, data)
    node = RunningNode(data)
    fill(node, "second")
    node.kill()
    node.close()
    return data


@pytest.fixture(params=[soaked("stopped"), "killed"])
def data(request, tmp_path) -> Path:
    copy = tmp_path / "data"
    shutil.copytree(request.getfixturevalue(request.param), copy)
    return copy


def named(data: Path, wanted: Wanted = ALL) -> set[str]:
    """The files that `headrace log verify` names."""
    try:
        with opened(data, wanted) as folder:
            found = folder.folder.verify(folder.incarnations, *wanted)
            return {each[1] for each in found} | {file for file, _ in folder.misfits(wanted)}
    except DefinitionError as error:
        return {str(error).split(" ", 1)[0].removeprefix(f"{data}/")}


def flips(path: Path) -> Iterator[str]:
    """The file with one bit changed, each bit in turn, and then as it was."""
    stored = path.read_bytes()
    for place in range(8 * len(stored)):
        flipped = bytearray(stored)
        flipped[place // 8] ^= 1 << place % 8
        path.write_bytes(flipped)
        yield f"{path}, byte {place // 8}, bit {place % 8}"
    path.write_bytes(stored)


def checkpoints(data: Path) -> list[Path]:
    """One of a partition with records and of one without, for each stream."""
    found: list[Path] = []
    for stream in sorted((data / "streams").iterdir()):
        files = sorted(stream.glob(f"*/{EPOCHS}"))
        sizes = {
            bool(sum(log.stat().st_size for log in each.parent.glob("*.log"))): each
            for each in files
        }
        found += sizes.values()
    return found


def is_of_crash(data: Path) -> bool:
    with opened(data, ALL) as folder:
        return "clean checkpoint" not in folder.folder.journal()[-1][3]


def test_every_bit_of_an_epoch_checkpoint_is_named_or_made_again(data):
    assert named(data) == set()
    crashed, silent = is_of_crash(data), 0
    paths = checkpoints(data)
    assert len(paths) >= (8 if crashed else 7)
    for path in paths:
        stream, partition = path.parts[-3:-1]
        for place in flips(path):
            found = named(data, Wanted(stream, int(partition)))
            if crashed and stream == "second":
                # Made in the life that was cut short: nobody knows whether the disk ever had it.
                assert found == set(), place
                silent += 1
            else:
                assert found == {str(path.relative_to(data))}, place
    assert (silent > 0) == crashed


def test_a_start_makes_an_epoch_checkpoint_again_and_loses_nothing(data, tmp_path):
    before = served(data, tmp_path / "sound")
    stored = (data / "streams/first/0" / EPOCHS).read_bytes()
    for place in range(8 * len(stored)):
        flipped = bytearray(stored)
        flipped[place // 8] ^= 1 << place % 8
        damaged = tmp_path / f"damaged-{place}"
        shutil.copytree(data, damaged)
        paths = list(damaged.glob(f"streams/*/*/{EPOCHS}"))
        for path in paths:
            assert path.read_bytes() == stored
            path.write_bytes(flipped)
        assert served(damaged, damaged) == before
        assert {path.read_bytes() for path in paths} == {stored}
        assert named(damaged) == set()
        shutil.rmtree(damaged)


def served(data: Path, copy: Path) -> dict[tuple[str, int], bytes]:
    """Every record that a start gives out."""
    if copy != data:
        shutil.copytree(data, copy)
    held = {}
    store = Store.open(str(copy), journal_bytes=JOURNAL_BYTES)
    for each in FileDefinitions(copy).load():
        for partition in range(each.partitions):
            log = store.open_log(each.name, partition, each.incarnation, 0)
            held[each.name, partition] = all_bytes(store, log, 1 << 20)
    store.close()
    return held


KINDS = ("index", "timeindex", "producers", "sources", "state", "json")


@pytest.mark.parametrize("kind", KINDS)
def test_every_bit_of_another_side_file_is_named(data, kind):
    paths = [*data.glob(f"streams/first/**/*.{kind}"), *data.glob(f"streams/*/*/*.{kind}")]
    path = min(paths, key=lambda path: ("first" not in path.parts, path))  # of an old segment
    partition = path.parent.name
    wanted = Wanted(
        path.relative_to(data).parts[1], int(partition) if partition.isdigit() else None
    )
    for place in flips(path):
        found = named(data, wanted)
        either = {path, path.with_suffix(".index")} if kind == "timeindex" else {path}
        assert found & {str(each.relative_to(data)) for each in either}, place
    assert named(data) == set()


def test_a_node_that_starts_over_flipped_states_and_checkpoints_has_lost_nothing(data, start_node):
    paths = [*data.glob("streams/*/*/*.state"), *data.glob(f"streams/*/*/{EPOCHS}")]
    assert len({path.suffix for path in paths}) == 2
    for path in paths:
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
    told = headrace("log", "verify", "--data", str(data))
    assert told.returncode == 1
    for path in paths:
        is_young = "second" in path.parts  # a start makes it anew
        assert is_young or f"damaged: {path.relative_to(data)}, byte 0: " in told.stdout
    assert "headrace log repair" in told.stdout
    node = start_node(data=data)
    assert node.ends("first") == [RECORDS, 0]
    _, answer = node.call("GET", "/api/v1/groups/g-first")
    assert [each["committed"] for each in answer["partitions"]] == [7]
    _, answer = node.call("GET", "/api/v1/retained")
    topics = {each["topic"] for each in answer["messages"]}
    assert topics >= {f"kept/first/{index}" for index in range(4)}


def test_repair_makes_what_verify_named(data):
    for kind in (EPOCHS, "*.state"):
        for path in data.glob(f"streams/__*/*/{kind}"):
            content = bytearray(path.read_bytes())
            content[-1] ^= 1
            path.write_bytes(content)
    repaired = headrace("log", "repair", "--data", str(data))
    assert repaired.returncode == 0, repaired.stderr
    assert f"{EPOCHS} is written anew" in repaired.stdout
    assert ".state goes; the next start reads the records instead" in repaired.stdout
    assert named(data) == set()


def test_a_definition_that_a_person_has_changed_needs_no_checksum(stopped, tmp_path, start_node):
    data = tmp_path / "data"
    shutil.copytree(stopped, data)
    path = data / "streams/first/stream.json"
    changed = path.read_text().replace('"partitions": 2', '"partitions": 3')
    path.write_text(changed)
    told = headrace("log", "verify", "--data", str(data))
    assert told.returncode == 1
    assert f"{path} is damaged (checksum: " in told.stderr
    assert "take the line out if you changed the file" in told.stderr
    lines = changed.splitlines(keepends=True)
    assert '"checksum"' in lines[-2]
    path.write_text("".join(lines[:-2]).rstrip().rstrip(",") + "\n}\n")
    assert named(data) == set()
    assert start_node(data=data).ends("first") == [RECORDS, 0, 0]
