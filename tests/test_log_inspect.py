"""Verify and repair of a stopped store, on real files: what is damaged is told, and what can be
read is served again."""

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import StorageCorruptError, StorageError
from headrace.native import Folder, Store, batch_headers, decode_records
from storelog import SMALL, Appender, all_bytes, batch, opened, produced

STREAM = "gpu"
INCARNATIONS = {STREAM: 1}
FOLDER = f"streams/{STREAM}/0"


def values(store: Store, log: int) -> dict[int, bytes]:
    """Every record that can be read, by offset."""
    rows = decode_records(all_bytes(store, log), 0, 2**62, 1 << 30).rows()
    return {offset: value for offset, _, _, value, _ in rows}


def fill(store: Store, records: int, size: int = 300) -> int:
    """Appends batches of one or two records, some from producers and MQTT sources."""
    log = store.open_log(STREAM, 0, 1, 0)
    appender = Appender(store)
    for at in range(records):
        value = b"%d " % at + b"x" * size
        if at % 10 == 3:
            appender.queue(log, produced(7, 0, at // 10, value))
        elif at % 10 == 4:
            appender.queue(log, batch(value, b"second", source=("s", 1, at)))
        else:
            appender.queue(log, batch(value, timestamp=1000 + at))
        if at % 7 == 0:
            appender.flush()
    appender.flush()
    return log


def abandoned(path: Path, records: int) -> dict[int, bytes]:
    """Leaves a folder that no one closed, and returns what was acknowledged.

    A copy of a folder in use would not do: it is of no one moment.
    """
    store = Store.open(str(path), **SMALL)
    held = values(store, fill(store, records))
    del store
    return held


@pytest.fixture(scope="module")
def pristine(tmp_path_factory) -> tuple[Path, dict[int, bytes]]:
    """A folder of several segments, closed in order, and what it holds."""
    data = tmp_path_factory.mktemp("pristine") / "data"
    with opened(data) as store:
        log = fill(store, 600)
        store.save_sources(log, [("s", 1, 594)])
        held = values(store, log)
    assert len(list((data / FOLDER).glob("*.log"))) >= 3
    return data, held


@pytest.fixture
def data(pristine, tmp_path) -> Path:
    copy = tmp_path / "data"
    shutil.copytree(pristine[0], copy)
    return copy


def look(data: Path, **options) -> Folder:
    return Folder.open(str(data), journal_bytes=SMALL["journal_bytes"], **options)


def findings(data: Path, *args):
    folder = look(data)
    try:
        return folder.verify(INCARNATIONS, *args)
    finally:
        folder.close()


def repair(data: Path, **consent: bool):
    folder = look(data, repairs=True)
    try:
        planned = folder.repair(INCARNATIONS, dry=True, **consent)
        done = folder.repair(INCARNATIONS, **consent)
        assert done == planned, "what was announced is what is done"
        return done
    finally:
        folder.close()


def served(data: Path) -> tuple[dict[int, bytes], tuple[int, int]]:
    """What a start serves."""
    with opened(data) as store:
        log = store.open_log(STREAM, 0, 1, 0)
        held = values(store, log)
        bounds = store.bounds(log)
        Appender(store).append(log, batch(b"goes on"))
        assert store.bounds(log)[1] == bounds[1] + 1
    return held, bounds


def flip(path: Path, at: int, mask: int = 0x10) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= mask
    path.write_bytes(content)


def files(data: Path, kind: str) -> list[Path]:
    return sorted((data / FOLDER).glob(f"*.{kind}"))


def test_a_sound_folder_is_left_as_it_is(pristine, data):
    before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    seen = []
    assert findings(data, STREAM, 0, seen.append) == []
    assert sum(seen) == sum(path.stat().st_size for path in files(data, "log"))
    assert repair(data) == []
    before[data / "headrace.lock"] = (data / "headrace.lock").read_bytes()
    assert {path: path.read_bytes() for path in data.rglob("*") if path.is_file()} == before
    assert served(data)[0] == pristine[1]


def test_what_a_crash_leaves_is_sound(tmp_path):
    data, crashed = tmp_path / "data", tmp_path / "crashed"
    held = abandoned(data, 300)
    shutil.copytree(data, crashed)
    assert findings(crashed) == []
    folder = look(crashed)
    assert folder.logs(INCARNATIONS)[0][:4] == (STREAM, 0, 1, 0)
    folder.close()
    for path in (crashed / FOLDER).glob("*.log"):  # as if its last pages had not been written
        with path.open("r+b") as file:
            file.truncate(path.stat().st_size // 4096 * 4096)
    active = files(crashed, "log")[-1]
    with active.open("ab") as file:
        file.write(b"torn")
    assert [each for each in findings(crashed) if each[1].endswith(active.name)] == []
    assert served(data)[0] == held


def test_a_running_node_keeps_its_folder(data):
    with opened(data), pytest.raises(StorageError, match="is in use by process"):
        look(data)


def test_what_is_no_data_folder_is_named(tmp_path):
    with pytest.raises(StorageError, match="is no data folder"):
        look(tmp_path)
    with pytest.raises(StorageError, match="cannot be opened"):
        look(tmp_path / "missing")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["index", "timeindex", "producers", "sources"])
def test_a_flip_in_a_side_file_is_told_and_mended_without_loss(pristine, data, kind):
    for path in files(data, kind):
        size = path.stat().st_size
        for at in {0, size // 2, size - 1} if size else ():
            original = path.read_bytes()
            flip(path, at)
            found = findings(data)
            assert found, f"{path.name} byte {at}"
            assert {(each[0], each[5]) for each in found} == {("side", None)}
            assert Path(found[0][1]).stem == path.stem
            path.write_bytes(original)
    victim = next(path for path in files(data, kind) if path.stat().st_size)
    flip(victim, 0)
    assert repair(data)
    assert findings(data) == []
    assert served(data)[0] == pristine[1]


def test_a_lost_index_is_built_anew(pristine, data):
    files(data, "index")[0].unlink()
    files(data, "timeindex")[1].unlink()
    (data / FOLDER / "leader-epoch-checkpoint").write_text("0\n0\n")
    assert {each[0] for each in findings(data)} == {"side"}
    repair(data)
    assert findings(data) == []
    for kind in ("index", "timeindex"):
        closed = files(data, kind)[:2]
        originals = [pristine[0] / FOLDER / path.name for path in closed]
        assert [path.read_bytes() for path in closed] == [path.read_bytes() for path in originals]


@pytest.mark.parametrize("at", [0, 7, 12, 15])
def test_a_stamp_is_written_anew(pristine, data, at):
    segment = files(data, "log")[0]
    position, first = batch_headers(segment.read_bytes())[0][5][:2]
    flip(segment, position + at, 1)
    (found,) = findings(data)
    assert found[0] == "side"
    assert found[1:4] == (f"{FOLDER}/{segment.name}", position, first)
    repair(data)
    assert segment.read_bytes() == (pristine[0] / FOLDER / segment.name).read_bytes()


def test_damaged_records_are_named_and_only_dropped_on_demand(pristine, data):
    segment = files(data, "log")[1]
    rows = batch_headers(segment.read_bytes())[0]
    position, first, last = rows[4][:3]
    flip(segment, position + 70)
    (found,) = findings(data)
    assert found[:4] == ("records", f"{FOLDER}/{segment.name}", position, first)
    assert found[5] == (first, last + 1)
    folder = look(data)
    with pytest.raises(StorageCorruptError, match=rf"{segment.name} is damaged at byte {position}"):
        folder.repair(INCARNATIONS, dry=True)
    folder.close()
    actions = repair(data, drop_damaged=True)
    assert [(each[2], each[3]) for each in actions if each[2]] == [((first, last + 1), True)]
    assert findings(data) == []
    held, bounds = served(data)
    kept = {offset: value for offset, value in pristine[1].items() if not first <= offset <= last}
    assert held == kept
    assert bounds[1] == max(pristine[1]) + 1


def test_a_missing_segment_costs_its_records_and_no_others(pristine, data):
    gone, after = files(data, "log")[1:3]
    first, following = int(gone.stem), int(after.stem)
    gone.unlink()
    (found,) = [each for each in findings(data) if each[0] == "records"]
    assert found[4] == "the segment is missing"
    assert found[5] == (first, following)
    repair(data, drop_damaged=True)
    assert findings(data) == []
    assert served(data)[0] == {
        offset: value for offset, value in pristine[1].items() if not first <= offset < following
    }


def test_the_end_of_a_log_that_is_lost_is_never_used_again(pristine, data):
    active = files(data, "log")[-1]
    with active.open("r+b") as file:
        file.truncate(10)
    assert {each[0] for each in findings(data)} >= {"records"}
    repair(data, drop_damaged=True)
    held, bounds = served(data)
    assert bounds[1] == max(pristine[1]) + 1
    assert held == {key: value for key, value in pristine[1].items() if key < int(active.stem)}


@pytest.mark.parametrize("damage", ["gone", "one file", "header", "round"])
def test_a_lost_journal_is_told_and_made_anew_on_demand(pristine, data, damage):
    journal = data / "journal"
    if damage == "gone":
        shutil.rmtree(journal)
    else:
        (newest,) = journal.glob("*.journal")
        if damage == "one file":
            newest.write_bytes(newest.read_bytes()[:5000])
        elif damage == "header":
            flip(newest, 20)
        else:
            flip(newest, 4096 + 30)
    assert "journal" in {each[0] for each in findings(data)}
    repair(data, rebuild_journal=True)
    assert findings(data) == []
    assert served(data)[0] == pristine[1]


def test_a_torn_batch_whose_header_is_whole_had_offsets(pristine, data):
    shutil.rmtree(data / "journal")
    active = files(data, "log")[-1]
    for path in [*files(data, "producers"), *files(data, "sources")]:
        if int(path.stem) > int(active.stem):
            path.unlink()
    end = max(pristine[1]) + 1
    first = batch_headers(active.read_bytes())[0][-1][1]
    with active.open("r+b") as file:
        file.truncate(active.stat().st_size - 5)
    (found,) = [each for each in findings(data) if each[0] == "records"]
    assert found[5] == (first, end)
    assert lost_by(repair(data, rebuild_journal=True, drop_damaged=True)) == end - first
    assert served(data)[1][1] == end


def test_a_batch_whose_header_is_torn_had_no_offsets_that_anything_tells_of(data):
    shutil.rmtree(data / "journal")
    for path in [*files(data, "producers"), *files(data, "sources")]:
        path.unlink()
    active = files(data, "log")[-1]
    position, first = batch_headers(active.read_bytes())[0][-1][:2]
    with active.open("r+b") as file:
        file.truncate(position + 20)
    assert lost_by(repair(data, rebuild_journal=True)) == 0
    assert served(data)[1][1] == first


def test_a_store_whose_journal_is_gone_says_so(data):
    shutil.rmtree(data / "journal")
    with opened(data) as store, pytest.raises(StorageError) as caught:
        store.open_log(STREAM, 0, 1, 0)
    assert "the journal does not know" in str(caught.value)
    assert "headrace log repair --rebuild-journal" in str(caught.value)


def within(segment: Path, start: int, end: int) -> set[int]:
    """Offsets whose batches have a byte in `[start, end)`."""
    rows, size = batch_headers(segment.read_bytes())
    ends = [*(row[0] for row in rows[1:]), size]
    return {
        offset
        for row, batch_end in zip(rows, ends, strict=True)
        if row[0] < end and start < batch_end
        for offset in range(row[1], row[2] + 1)
    }


@pytest.fixture(scope="module")
def crashed(tmp_path_factory) -> tuple[Path, dict[int, bytes]]:
    """A folder as a killed process leaves it, and what was acknowledged."""
    data = tmp_path_factory.mktemp("crashed") / "data"
    return data, abandoned(data, 600)


def spoil(chance: random.Random, path: Path) -> tuple[int, int]:
    """Damages a stretch of a file; where."""
    content = path.read_bytes()
    start = chance.randrange(len(content))
    kind = chance.choice(["flip", "garble", "zero", "cut"])
    end = min(start + chance.choice([1, 10, 3000]), len(content))
    if kind == "cut":
        path.write_bytes(content[:start])
        return start, len(content)
    fresh = {
        "flip": bytes(byte ^ 0x41 for byte in content[start:end]),
        "garble": chance.randbytes(end - start),
        "zero": bytes(end - start),
    }[kind]
    path.write_bytes(content[:start] + fresh + content[end:])
    return start, end


@pytest.mark.parametrize("folder", ["pristine", "crashed"])
@settings(max_examples=40)
@given(seed=st.integers(0, 2**32))
def test_after_any_damage_what_is_readable_is_served(request, tmp_path_factory, folder, seed):
    original, held = request.getfixturevalue(folder)
    chance = random.Random(seed)
    data = tmp_path_factory.mktemp("damaged") / "data"
    shutil.copytree(original, data)
    segments = [path for path in files(data, "log") if path.stat().st_size]
    touched: set[int] = set()
    for _ in range(chance.randint(1, 4)):
        path = chance.choice(segments)
        if path.stat().st_size:
            touched |= within(original / FOLDER / path.name, *spoil(chance, path))
    found = findings(data)
    if folder == "pristine":  # else the journal may hold what was spoilt
        assert bool(found) == any(
            path.read_bytes() != (original / FOLDER / path.name).read_bytes() for path in segments
        )
    repair(data, drop_damaged=True)
    assert findings(data) == []
    got, bounds = served(data)
    assert bounds[1] == max(held) + 1
    assert got.keys() >= held.keys() - touched, "only what was touched may be lost"
    assert all(held[offset] == value for offset, value in got.items())
    lost = held.keys() - got.keys()
    assert lost <= {offset for each in found if each[5] for offset in range(*each[5])}, "and told"
    shutil.rmtree(data)


def test_who_looks_shares_the_folder_and_changes_nothing_there(data):
    (data / "headrace.lock").unlink()
    (data / "streams" / "empty").mkdir()
    before = sorted(data.rglob("*"))
    command = [sys.executable, "-m", "headrace", "log"]
    folder = look(data)
    for what in (["verify"], ["dump"], ["repair", "--dry-run"]):
        done = subprocess.run(
            [*command, *what, "--data", data], capture_output=True, text=True, check=False
        )
        assert "in use" not in done.stderr
    with pytest.raises(StorageError, match="is in use by another process"):
        look(data, repairs=True)
    folder.close()
    assert sorted(data.rglob("*")) == before


@pytest.mark.parametrize("gone", ["", "/0"], ids=["stream", "partition"])
def test_a_folder_that_is_gone_is_made_again_and_its_records_are_lost(data, gone):
    path = data / "streams" / f"{STREAM}{gone}"
    end = max(served_offsets(data)) + 1
    shutil.rmtree(path)
    assert [each for each in findings(data) if each[0] == "records"]
    with pytest.raises(StorageCorruptError):
        repair(data)
    assert lost_by(repair(data, drop_damaged=True)) == end
    held, bounds = served(data)
    assert (held, bounds[1]) == ({}, end)
    assert findings(data) == []


def test_a_stream_without_folder_and_definition_can_be_forgotten(data):
    shutil.rmtree(data / "streams" / STREAM)
    folder = look(data, repairs=True)
    with pytest.raises(StorageCorruptError, match="--drop-damaged forgets it"):
        folder.repair({}, dry=True)
    assert [each[1] for each in folder.repair({}, drop_damaged=True)] == [
        "is forgotten: the stream's folder and its definition are gone"
    ]
    assert folder.repair({}) == []
    folder.close()
    with opened(data) as store:
        store.open_log(STREAM, 0, 2, 0)


def test_repair_does_not_call_a_folder_without_its_journal_sound(data):
    shutil.rmtree(data / "journal")
    with pytest.raises(StorageCorruptError, match="--rebuild-journal makes them known"):
        repair(data)
    assert repair(data, rebuild_journal=True)
    assert findings(data) == []


def served_offsets(data: Path) -> dict[int, bytes]:
    """What is there, without a start."""
    with opened(data) as store:
        return values(store, store.open_log(STREAM, 0, 1, 0))


def lost_by(actions) -> int:
    return sum(lost[1] - lost[0] for _, _, lost, _ in actions if lost is not None)


GROWN = """
import sys
from pathlib import Path
from headrace.native import Folder, Store
data, small = sys.argv[1], {small}
folder = Folder.open(data, repairs=True)
print(len(folder.verify({incarnations})))
folder.repair({incarnations}, drop_damaged=True, rebuild_journal=True)
folder.close()
store = Store.open(data, **small)
print(store.bounds(store.open_log({stream!r}, 0, 1, 0))[1])
del store
status = Path("/proc/self/status").read_text()
print(int(status.partition("VmHWM:")[2].split()[0]))
"""


@pytest.mark.parametrize(
    "victim", ["side", "journal", pytest.param("tail", marks=pytest.mark.slow)]
)
def test_what_has_grown_beyond_all_bounds_is_not_read_whole(pristine, data, victim):
    """Sparse files, larger than any that a node makes."""
    grown = {
        "side": [files(data, kind)[0] for kind in ("index", "timeindex", "producers", "sources")],
        "journal": list((data / "journal").glob("*.journal")),
        "tail": files(data, "log")[-1:],
    }[victim]
    if victim == "tail":  # as a crash leaves it: nobody knows where the log ends
        shutil.rmtree(data / "journal")
    for path in grown:
        os.truncate(path, (1 if victim == "tail" else 20) << 30)
    code = GROWN.format(small=SMALL, incarnations=INCARNATIONS, stream=STREAM)
    ran = subprocess.run(
        [sys.executable, "-c", code, data], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    findings, end, peak_kib = map(int, ran.stdout.split())
    assert findings >= 1
    assert end == max(pristine[1]) + 1
    assert peak_kib < 150 << 10


def test_many_partitions_are_looked_at_and_repaired_with_few_descriptors(tmp_path):
    data = tmp_path / "data"
    with opened(data) as store:
        for partition in range(80):
            log = store.open_log(STREAM, partition, 1, 0)
            Appender(store).append(log, batch(b"x"))
    shutil.rmtree(data / "journal")
    code = (
        "import resource, sys; from headrace.native import Folder;"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40));"
        "folder = Folder.open(sys.argv[1], repairs=True);"
        f"found = len(folder.verify({INCARNATIONS}));"
        f"folder.repair({INCARNATIONS}, rebuild_journal=True);"
        f"print(found, len(folder.verify({INCARNATIONS})))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, data], capture_output=True, text=True, check=False
    )
    assert (ran.stdout, ran.stderr) == ("80 0\n", "")


def test_a_start_after_a_kill_needs_few_descriptors_for_many_partitions(tmp_path):
    data = tmp_path / "data"
    store = Store.open(str(data))
    for log in store.open_logs(STREAM, 0, 80, 1, 0):
        Appender(store).append(log, batch(b"x"))
    del store
    code = (
        "import resource, sys; from headrace.native import Store;"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40));"
        "store = Store.open(sys.argv[1]);"
        f"logs = store.open_logs('{STREAM}', 0, 80, 1, 0);"
        "print(sum(store.bounds(log)[1] for log in logs), store.recovery.clean)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, data], capture_output=True, text=True, check=False
    )
    assert (ran.stdout, ran.stderr) == ("80 False\n", "")
