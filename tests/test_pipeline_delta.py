"""Tables as Delta Lake tables: a reader of Delta sees the rows that the manifest lists, always."""

import json
import os
import shutil
import time
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql.types import StructType

from buckets import Tables
from conftest import headrace
from frames import at, metric, wide
from headrace import job_limits
from headrace.pipeline import delta as logs
from headrace.pipeline import manifest as manifests
from headrace.pipeline import mirror, tables
from headrace.pipeline.compact import compact
from headrace.pipeline.folder import Folder
from headrace.pipeline.schemas import SCHEMAS, arrow_schema
from headrace.spark.errors import PipelineError
from test_pipeline_evolution import LATER, made_old

UTIL, POWER, XID = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_XID_ERRORS"


def sent(minute, second=0):
    """Three GPUs: values, one that is none, one that repeats, and a fault now and then."""
    messages = [
        wide({UTIL: str(minute % 100), POWER: "100", XID: "79" if minute % 60 > 30 else "0"},
             gpu_id=f"GPU-{gpu}", event_time=at(minute * 60 + second),
             labels={"gpu": "0", "pod": "train-0", "namespace": "ml", "modelName": "H200"})
        for gpu in range(3)
    ]  # fmt: skip
    return [*messages, messages[0], metric("DCGM_FI_DEV_GPU_TEMP", "N/A", minute * 60 + second)]


def delta(root, table):
    return DeltaTable(str(root / table))


def texts(rows):
    return sorted(map(str, rows.to_pylist()))


def agree(root):
    """Whether all tables have the same rows by their Delta logs as by the manifest."""
    held = tables.manifest(root)
    for table in SCHEMAS:
        read = delta(root, table)
        expected = texts(tables.open_arrow(root, table).to_table())
        assert texts(read.to_pyarrow_table()) == expected, table
        assert sorted(read.file_uris()) == sorted(str(root / file.path) for file in held.of(table))
    return True


def commits(root, table="readings"):
    return sorted((root / table / "_delta_log").glob("*.json"))


def actions(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def of_kind(path, kind):
    return [action[kind] for action in actions(path) if kind in action]


def test_all_tables_are_the_same_by_delta_after_each_write(tmp_path):
    written = Tables(tmp_path, format="delta")
    for minute in (0, 1, 40, 90, 91, 2, 200, 39):  # some come late, and rewrite what was there
        written.write(sent(minute))
        assert agree(tmp_path)
    written.finish()
    assert agree(tmp_path)
    rows = tables.manifest(tmp_path)
    assert all(rows.of(table) for table in SCHEMAS), "else little is shown"
    for table in SCHEMAS:
        assert delta(tmp_path, table).to_pyarrow_table().schema.names == arrow_schema(table).names


def test_engines_read_values_as_they_are(tmp_path):
    Tables(tmp_path, format="delta").write(sent(7))
    asked = QueryBuilder().register("readings", delta(tmp_path, "readings"))
    [row] = pa.table(
        asked.execute(
            "SELECT count(*) AS n, max(event_time) AS at, max(value) AS value FROM readings "
            "WHERE event_time >= '1990-01-01T00:00:00Z' AND metric = 'DCGM_FI_DEV_POWER_USAGE'"
        ).read_all()
    ).to_pylist()
    assert (row["n"], row["at"], row["value"]) == (3, Tables.instant(at(420)), 100.0)
    assert delta(tmp_path, "readings").protocol().min_reader_version == 1
    assert delta(tmp_path, "readings").schema().fields[0].metadata["comment"].startswith("stream")


def test_statistics_let_readers_pass_over_files(tmp_path):
    written = Tables(tmp_path, buckets=1, format="delta")
    for start in (0, 12_000):
        written.write([metric(UTIL, 1, start + 0.0004), metric(UTIL, 2, start + 1.0004)])
    found = pa.table(delta(tmp_path, "readings").get_add_actions(flatten=True)).to_pylist()
    ranges = sorted((each["min.event_time"], each["max.event_time"]) for each in found)
    for (low, high), start in zip(ranges, (0, 12_000), strict=True):
        assert low == Tables.instant(at(start)), "a whole millisecond, outwards"
        assert high == Tables.instant(at(start + 1.001))
    assert [each["num_records"] for each in found] == [2, 2]


def test_what_only_moves_rows_is_no_change_of_data(tmp_path):
    written = Tables(tmp_path, buckets=1, format="delta")
    for minute in range(0, 240, 40):
        written.write(sent(minute))
    before = len(commits(tmp_path))
    rows = texts(written.arrow("readings"))
    compact(tmp_path, lambda _: None, "delta")
    assert agree(tmp_path)
    assert texts(written.arrow("readings")) == rows
    [merged] = commits(tmp_path)[before:]
    moved = of_kind(merged, "add") + of_kind(merged, "remove")
    assert len(of_kind(merged, "remove")) > 1
    assert not any(each["dataChange"] for each in moved)
    assert of_kind(merged, "commitInfo")[0]["operation"] == "OPTIMIZE"


@pytest.mark.slow
def test_who_follows_a_table_sees_each_row_once(tmp_path):
    written = Tables(tmp_path, buckets=1, format="delta")
    for minute in (*range(0, 440, 40), 3, 4):
        written.write(sent(minute))
    added = [add for commit in commits(tmp_path) for add in of_kind(commit, "add")]
    assert any(not add["dataChange"] for add in added), "small files were merged on the way"
    rows = [json.loads(add["stats"])["numRecords"] for add in added if add["dataChange"]]
    assert sum(rows) == written.arrow("readings").num_rows
    gone = [each for commit in commits(tmp_path) for each in of_kind(commit, "remove")]
    assert not any(each["dataChange"] for each in gone), "nothing that was read is taken back"


def test_a_version_that_changes_nothing_of_a_table_writes_nothing(tmp_path):
    written = Tables(tmp_path, format="delta")
    written.write(sent(0))
    before = {table: len(commits(tmp_path, table)) for table in SCHEMAS}
    mirror.begin(tmp_path, "delta")
    held = tables.manifest(tmp_path)
    mirror.Mirror(Folder.at(tmp_path)).follow(held)
    mirror.Mirror(Folder.at(tmp_path)).follow(held)
    assert {table: len(commits(tmp_path, table)) for table in SCHEMAS} == before
    txn = delta(tmp_path, "readings").transaction_version("q")
    assert txn == held.version


@pytest.mark.parametrize("done", [0, 1, 4, 7, 8])
def test_a_crash_between_manifest_and_delta_heals(tmp_path, monkeypatch, done):
    """After `done` of the commits that follow the manifest."""
    written = Tables(tmp_path, format="delta")
    written.write(sent(0))
    create, left = Folder.create, [1 + done]

    def killed(folder, name, text):
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        create(folder, name, text)

    with monkeypatch.context() as patched:
        patched.setattr(Folder, "create", killed)
        try:
            written.write(sent(1))
        except KeyboardInterrupt:
            assert done < 8
    assert tables.manifest(tmp_path).batch == 1
    if done % 2:
        Tables(tmp_path, format="delta")
    else:
        again = Tables(tmp_path, format="delta")
        again._sent = 10
        again.write(sent(2))
    assert agree(tmp_path)


@pytest.mark.slow
def test_two_writers_come_to_the_same_log(tmp_path):
    """As a compaction beside a pipeline: each has its own idea of where the logs end."""
    written = Tables(tmp_path, format="delta")
    written.write(sent(0))
    mirrors = [mirror.Mirror(Folder.at(tmp_path)) for _ in range(2)]
    for each in mirrors:
        each.follow(tables.manifest(tmp_path))
    for turn, minute in enumerate((40, 80, 120, 41)):
        mirror._mirrors[str(tmp_path)] = mirrors[turn % 2]
        written.write(sent(minute))
        assert agree(tmp_path)
    older = tables.manifest(tmp_path, 1)
    before = len(commits(tmp_path))
    for each in mirrors:
        each.follow(older)
    assert len(commits(tmp_path)) == before, "what is newer stays"


def test_tables_that_exist_are_mirrored_whole(tmp_path):
    written = Tables(tmp_path)
    for minute in (0, 40, 80):
        written.write(sent(minute))
    assert not (tmp_path / "readings" / "_delta_log").exists()
    mirror.begin(tmp_path, "delta")
    assert agree(tmp_path)
    assert len(commits(tmp_path)) == 1


def test_a_log_that_would_go_stale_is_refused(tmp_path):
    Tables(tmp_path, format="delta").write(sent(0))
    with pytest.raises(
        PipelineError, match=r"give --format delta, or delete the folder _delta_log"
    ):
        compact(tmp_path, lambda _: None)
    done = headrace("pipeline", "compact", "--tables", str(tmp_path))
    assert done.returncode == 1
    assert "give --format delta" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    done = headrace("pipeline", "compact", "--tables", str(tmp_path), "--format", "delta")
    assert done.returncode == 0, done.stderr
    assert agree(tmp_path)


def test_columns_of_a_later_release_are_new_in_the_log(tmp_path, monkeypatch):
    held = Tables(tmp_path).write(sent(0))
    made_old(tmp_path)
    sizes = {file: (tmp_path / file.path).stat().st_size for file in held.files}
    files = tuple(replace(file, bytes=size) for file, size in sizes.items())
    manifests.commit(tmp_path, replace(held.next_version(), files=files))
    with monkeypatch.context() as patched:
        before = {
            table: StructType([column for column in schema if column.name != LATER[table]])
            for table, schema in SCHEMAS.items()
        }
        patched.setattr(logs, "SCHEMAS", before)
        mirror.begin(tmp_path, "delta")
        assert LATER["readings"] not in delta(tmp_path, "readings").to_pyarrow_table().schema.names
    later = Tables(tmp_path, format="delta")
    later._sent = 5
    later.write(sent(1))
    assert agree(tmp_path)
    [described] = of_kind(commits(tmp_path)[1], "metaData")
    assert described["id"] == of_kind(commits(tmp_path)[0], "metaData")[0]["id"]
    # A release that does not know the column leaves it where it is.
    count = len(commits(tmp_path))
    with monkeypatch.context() as patched:
        patched.setattr(logs, "SCHEMAS", before)
        mirror.begin(tmp_path, "delta")
    assert len(commits(tmp_path)) == count


@pytest.mark.slow
@pytest.mark.soak
def test_a_log_stays_short(tmp_path, monkeypatch):
    monkeypatch.setattr(job_limits, "PIPELINE_DELTA_CHECKPOINT_COMMITS", 5)
    now_ns, long_ago = time.time_ns(), time.time() - 7200
    monkeypatch.setattr(mirror.time, "time_ns", lambda: now_ns - 7_200_000_000_000)
    written = Tables(tmp_path, buckets=1, format="delta")
    for minute in range(13):
        written.write(sent(minute))
        for path in (tmp_path / "readings" / "_delta_log").iterdir():
            os.utime(path, (long_ago, long_ago))
        assert agree(tmp_path)
    left = {path.name for path in (tmp_path / "readings" / "_delta_log").iterdir()}
    assert left == {
        "_last_checkpoint", f"{9:020d}.checkpoint.parquet",
        *(f"{version:020d}.json" for version in range(9, 13)),
    }  # fmt: skip
    again = Tables(tmp_path, buckets=1, format="delta")
    assert len(commits(tmp_path)) == 4, "what a checkpoint says is known"
    again._sent = 65
    again.write(sent(13))
    assert agree(tmp_path)
    kept = pq.read_table(tmp_path / "gpu_minutes" / "_delta_log" / f"{9:020d}.checkpoint.parquet")
    assert not any(kept["remove"].to_pylist()), "nobody needs to know any more what was removed"


@pytest.mark.soak
@pytest.mark.slow
def test_files_stay_for_a_long_query(tmp_path):
    written = Tables(tmp_path, buckets=1, format="delta")
    written.write(sent(0))
    slow = delta(tmp_path, "gpu_minutes")
    rows = slow.to_pyarrow_table()
    for second in range(1, job_limits.MANIFESTS_KEPT + 3):
        written.write(sent(0, second))
    assert texts(slow.to_pyarrow_table()) == texts(rows)
    assert set(slow.file_uris()) - set(delta(tmp_path, "gpu_minutes").file_uris())


def test_a_log_that_is_damaged_is_named_with_its_remedy(tmp_path):
    Tables(tmp_path, format="delta").write(sent(0))
    log = tmp_path / "jobs" / "_delta_log"
    commits(tmp_path, "jobs")[0].write_text("{")
    with pytest.raises(
        PipelineError, match=r"not a usable Delta log .*; delete that folder"
    ) as why:
        mirror.begin(tmp_path, "delta")
    assert str(log) in str(why.value)
    assert len(str(why.value).splitlines()) == 1
    shutil.rmtree(log)
    mirror.begin(tmp_path, "delta")
    assert agree(tmp_path)


def test_files_outside_the_folder_of_their_table_are_refused(tmp_path):
    held = Tables(tmp_path).write(sent(0))
    [first, *others] = held.files
    (tmp_path / "batch=0").mkdir()
    (tmp_path / first.path).rename(tmp_path / "batch=0" / "old.parquet")
    moved = replace(first, path="batch=0/old.parquet")
    manifests.commit(tmp_path, replace(held.next_version(), files=(moved, *others)))
    with pytest.raises(PipelineError, match=r"batch=0/old.parquet, which an earlier release wrote"):
        mirror.begin(tmp_path, "delta")


def test_without_the_package_the_remedy_is_one_line(tmp_path):
    """As where only `headrace[spark]` is installed."""
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as util\n"
        "find = util.find_spec\n"
        "util.find_spec = lambda name, *more: None if name == 'deltalake' else find(name, *more)\n"
    )
    Tables(tmp_path / "t").write(sent(0))
    path = os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", "")))
    folders = ("--tables", str(tmp_path / "t"), "--format", "delta")
    for command in (("run", "--checkpoint", str(tmp_path / "c")), ("backfill",), ("compact",)):
        done = headrace("pipeline", *command, *folders, PYTHONPATH=path)
        assert done.returncode == 2, done.stderr
        assert done.stderr.splitlines() == [
            "headrace: the format delta needs deltalake: pip install 'headrace[delta]'"
        ]
    assert not (tmp_path / "c").exists()
