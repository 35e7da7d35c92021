"""Small files become few, without a change of any row, however late readings come."""

import json
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buckets import Tables
from conftest import headrace
from frames import at, wide
from headrace.job_limits import MANIFESTS_KEPT, PIPELINE_MERGED_BYTES_MAX
from headrace.pipeline import manifest as manifests
from headrace.pipeline import merge, tables
from headrace.pipeline.compact import compact
from headrace.pipeline.folder import Folder
from headrace.pipeline.manifest import TableFile
from headrace.pipeline.schemas import SCHEMAS

MINUTE_US = 60_000_000


def file(name, size=1000, first=0, last=0, chunk=None):
    return TableFile(
        "readings", str(name), 1, size, 0, 1, min_time_us=first, max_time_us=last, chunk=chunk
    )


def names(groups):
    return [[each.path for each in group] for group in groups]


def test_eight_of_a_size_become_one():
    small = [file(n, first=n, last=n) for n in range(8)]
    large = [file(f"l{n}", size=100_000, first=n, last=n) for n in range(7)]
    assert names(merge.alike([*large, *small], 100, merge.FEW)) == [[str(n) for n in range(8)]]
    assert merge.alike([*large, *small[:7]], 100, merge.FEW) == []
    assert names(merge.alike([*large[:1], *small[:2]], 100, 2)) == [["0", "l0", "1"]]


def test_what_new_readings_touch_is_left_alone():
    files = [file(n, first=n, last=n) for n in range(12)]
    assert names(merge.alike(files, 9, merge.FEW)) == [[str(n) for n in range(9)]]
    assert merge.alike(files, 7, merge.FEW) == []


def test_what_lies_ahead_as_a_whole_is_merged_with_its_like():
    near, far = [file(f"n{n}", first=90, last=n) for n in range(91, 99)], range(1000, 1008)
    ahead = [file(n, first=n, last=n) for n in far]
    assert names(merge.alike([*near, *ahead], 90, merge.FEW, 100)) == [[str(n) for n in far]]
    assert merge.alike([*near, *ahead], 90, merge.FEW) == []


def test_no_file_grows_beyond_its_bound():
    size = PIPELINE_MERGED_BYTES_MAX // 5
    files = [file(n, size, first=n, last=n) for n in range(23)]
    groups = merge.alike(files, 100, 2)
    assert [len(group) for group in groups] == [5, 5, 5, 5, 3]
    whole = [file(n, PIPELINE_MERGED_BYTES_MAX // 2, first=n, last=n) for n in range(9)]
    assert merge.alike(whole, 100, 2) == [], "large enough"


def chunked(starts, length=MINUTE_US, size=1000):
    return [file(n, size, chunk=(n * length, (n + 1) * length)) for n in starts]


def test_settled_stretches_become_longer_ones():
    files = chunked(range(30))
    [(one, first), (two, second)] = merge.longer(files, MINUTE_US, 29 * MINUTE_US)
    assert {one, two} == {(0, 12 * MINUTE_US), (12 * MINUTE_US, 24 * MINUTE_US)}
    assert len(first) == len(second) == 12
    assert merge.longer(files, MINUTE_US, 11 * MINUTE_US) == []
    assert merge.longer(chunked([3]), MINUTE_US, 2**60) == [], "one file is one file already"
    large = chunked(range(12), size=PIPELINE_MERGED_BYTES_MAX // 10)
    assert merge.longer(large, MINUTE_US, 2**60) == []


@given(st.sets(st.integers(-500, 500)), st.integers(-600 * MINUTE_US, 600 * MINUTE_US))
def test_stretches_lie_in_one_another(starts, cold_us):
    """Whatever is merged when: no two files ever hold the same time."""
    files = chunked(sorted(starts))
    for reach in (cold_us, 2**60):
        for (start, end), group in merge.longer(files, MINUTE_US, reach):
            assert end <= reach
            assert all(start <= each.chunk[0] < each.chunk[1] <= end for each in group)
            files = [each for each in files if each not in group]
            assert not any(each.chunk[0] < end and each.chunk[1] > start for each in files)
            files.append(file(f"{start}-{end}", chunk=(start, end)))
    held = [range(*(edge // MINUTE_US for edge in each.chunk)) for each in files]
    assert all(sum(start in each for each in held) == 1 for start in starts)


def sent(minute, second=0):
    """A scrape of two GPUs."""
    return [
        wide(
            {"DCGM_FI_DEV_GPU_UTIL": str(minute % 100), "DCGM_FI_DEV_POWER_USAGE": "100",
             "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": str(minute * 6_000_000)},
            gpu_id=f"GPU-{n}", event_time=at(minute * 60 + second),
        )
        for n in range(2)
    ]  # fmt: skip


def everything(root):
    """All rows of all tables, in an order of their own."""
    return {
        name: sorted(map(str, tables.open_arrow(root, name).to_table().to_pylist()))
        for name in SCHEMAS
    }


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The same readings in some sixty micro-batches, and in one."""
    root = tmp_path_factory.mktemp("tables")
    many, ordered = Tables(root / "many", buckets=1), Tables(root / "ordered", buckets=1)
    late = [sent(20, 30), sent(45, 30)]
    batches = [sent(minute) for minute in range(0, 240, 4)] + late
    for batch in batches:
        many.write(batch)
    many.finish()
    ordered.write([message for batch in batches for message in batch])
    return many, ordered


@pytest.mark.soak
def test_a_pipeline_merges_as_it_goes(folders):
    many, ordered = folders
    assert everything(many.root) == everything(ordered.root)
    held = tables.manifest(many.root)
    for table, files in (("readings", 20), ("gpu_intervals", 20), ("gpu_minutes", 16)):
        assert len(held.of(table)) < files, table
    listed = {each.path for each in held.files} | {held.watch}
    kept = [tables.manifest(many.root, held.version - back) for back in range(MANIFESTS_KEPT + 1)]
    listed |= {each.path for one in kept for each in one.files} | {one.watch for one in kept}
    listed |= {path for one in kept[:-1] for path in one.removed}
    assert {name for name in Folder.at(many.root).all_names() if "=" in name} == listed


@pytest.mark.soak
def test_the_command_merges_the_rest(folders):
    many, ordered = folders
    orphan = many.root / "readings" / "batch=3" / "0-dead.parquet"
    orphan.parent.mkdir(exist_ok=True)
    orphan.write_bytes(b"torn")
    coming = many.root / "readings" / "batch=9999" / "0-alive.parquet"
    coming.parent.mkdir()
    coming.write_bytes(b"of a micro-batch that is being written")
    done = headrace("pipeline", "compact", "--tables", str(many.root), "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["files_after"] < said["files_before"]
    assert (said["deleted"], orphan.exists(), coming.exists()) == (1, False, True)
    assert "bucket 1 of 1" in done.stderr
    assert everything(many.root) == everything(ordered.root)
    again = json.loads(headrace("pipeline", "compact", "--tables", str(many.root), "--json").stdout)
    assert again["files_after"] == again["files_before"] == said["files_after"]
    # And what comes late still changes what was merged.
    many.write(sent(21, 30))
    many.finish()
    ordered.write(sent(21, 30))
    ordered.finish()
    assert everything(many.root) == everything(ordered.root)


@pytest.mark.soak
def test_a_pipeline_that_commits_meanwhile_wins_nothing_and_loses_nothing(tmp_path, monkeypatch):
    written = Tables(tmp_path, buckets=1)
    for minute in range(0, 400, 20):
        written.write(sent(minute))
    commit, raced = manifests.commit, []

    def racing(folder, after):
        if not raced:
            raced.append(True)
            monkeypatch.setattr(manifests, "commit", commit)
            written.write(sent(400))
        commit(folder, after)

    monkeypatch.setattr(manifests, "commit", racing)
    before = tables.manifest(tmp_path)
    compact(tmp_path, lambda _: None)
    after = tables.manifest(tmp_path)
    assert raced
    assert after.batch == before.batch + 1
    assert len(after.files) < len(before.files)
    plain = Tables(tmp_path / "plain", buckets=1)
    for minute in range(0, 401, 20):
        plain.write(sent(minute))
    assert everything(tmp_path) == everything(tmp_path / "plain")


def test_what_waits_is_made_when_its_time_has_come(tmp_path):
    written = Tables(tmp_path, derives=lambda before: before.clock_us - before.derived_us > 10**7)
    first = written.write(sent(0))
    assert first.of("gpu_intervals"), "the first micro-batch shows what becomes of it"
    later = [written.write(sent(0, second)) for second in (2, 4)]
    assert [each.of("gpu_intervals") == first.of("gpu_intervals") for each in later] == [True] * 2
    assert later[-1].pending
    assert tables.open_arrow(tmp_path, "readings").count_rows() == 18
    written.finish()
    done = tables.manifest(tmp_path)
    assert not done.pending
    whole = Tables(tmp_path / "whole")
    whole.write([*sent(0), *sent(0, 2), *sent(0, 4)])
    assert everything(tmp_path) == everything(tmp_path / "whole")
    assert timedelta(0) < written.instant(at(4)) - written.instant(at(0))


def test_compact_of_nothing_is_one_line(tmp_path):
    done = headrace("pipeline", "compact", "--tables", str(tmp_path / "absent"))
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) <= 3
