"""The manifest: whole versions or none, in one text, and no file that a reader still needs goes."""

import errno
import json
import os
import shutil
import stat

import pytest

from headrace.job_limits import MANIFESTS_KEPT
from headrace.pipeline import manifest as manifests
from headrace.pipeline.manifest import Manifest, TableFile, Totals, VersionExistsError
from headrace.spark.errors import PipelineError


def file(name, batch, table="readings", **more):
    return TableFile(table=table, path=name, rows=1, bytes=3, batch=batch, schema=1, **more)


def grow(root, before, *, replaced=(), counted=None):
    """Commits one more version with one file of its own."""
    batch = before.batch + 1
    added = file(f"batch={batch}/a.parquet", batch)
    (root / f"batch={batch}").mkdir()
    (root / added.path).write_bytes(b"abc")
    after = (
        before.next(batch=batch, query="q", buckets=1, interval_seconds=1.0)
        .with_files([added], replaced)
        .with_readings(
            counted or Totals(1, 1, 1), {"s": {"0": batch + 1}}, {"s": {"0": 10 - batch}}
        )
    )
    manifests.commit(root, after)
    return after


def test_a_folder_without_a_manifest_holds_nothing(tmp_path):
    assert manifests.newest(tmp_path) == Manifest()
    assert manifests.newest(tmp_path / "absent").batch == -1


def test_what_is_written_is_read(tmp_path):
    first = grow(tmp_path, Manifest(), counted=Totals(2, 3, 1, 1, 1, {"blank": 1}))
    second = grow(tmp_path, first, counted=Totals(1, 1, 0, 1, 0, {"blank": 1}))
    assert manifests.newest(tmp_path) == second
    assert manifests.load(tmp_path, 0) == first
    assert second.totals == Totals(3, 4, 1, 2, 1, {"blank": 2})
    assert second.totals.balanced
    assert second.offsets == {"s": {"0": 2}}
    assert second.newest_us == {"s": {"0": 10}}, "an older batch moves no clock back"
    assert (tmp_path / "_manifest" / f"{1:020d}.json").read_text() == second.dumps()


def test_a_reading_that_ended_nowhere_or_twice_is_noticed():
    assert not Totals(readings=3, rows=1, quarantined=1).balanced
    assert not Totals(readings=1, rows=1, duplicates=1).balanced


def test_two_writers_cannot_commit_one_version(tmp_path):
    before = grow(tmp_path, Manifest())
    again = before.next(batch=1, query="q", buckets=1, interval_seconds=1.0)
    manifests.commit(tmp_path, again)
    with pytest.raises(PipelineError, match="another query writes these tables"):
        manifests.commit(tmp_path, again)
    assert not list((tmp_path / "_manifest").glob("*.draft"))


def test_two_writers_of_one_moment_commit_one_of_them(tmp_path, monkeypatch):
    before = grow(tmp_path, Manifest())
    first, second = (
        before.next(batch=1, query=query, buckets=1, interval_seconds=1.0) for query in "ab"
    )
    link = os.link

    def late(draft, path):
        monkeypatch.setattr(os, "link", link)
        manifests.commit(tmp_path, second)
        link(draft, path)

    monkeypatch.setattr(os, "link", late)
    with pytest.raises(VersionExistsError):
        manifests.commit(tmp_path, first)
    assert manifests.newest(tmp_path) == second
    assert not list((tmp_path / "_manifest").glob("*.draft"))


def test_a_manifest_whose_name_may_not_last_is_none(tmp_path, monkeypatch):
    """Else the batch would count as committed when it comes again, and nobody would sync it."""
    before = grow(tmp_path, Manifest())
    sync = os.fsync

    def failing(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        sync(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", failing)
        with pytest.raises(OSError, match="Input/output error"):
            grow(tmp_path, before)
    assert manifests.newest(tmp_path) == before
    shutil.rmtree(tmp_path / "batch=1")  # as the batch begins when it comes again
    after = grow(tmp_path, before)
    assert manifests.newest(tmp_path) == after


@pytest.mark.parametrize(
    "text",
    [
        "", "{}", "[]", '{"format": 4}', '{"format": 3}', "\x00", "[" * 100_000,
        json.dumps(json.loads(Manifest().dumps()) | {"files": [1]}),
        json.dumps(json.loads(Manifest().dumps()) | {"pending": []}),
    ],
)  # fmt: skip
def test_a_damaged_manifest_is_named_with_its_remedy(tmp_path, text):
    grow(tmp_path, Manifest())
    path = tmp_path / "_manifest" / f"{0:020d}.json"
    path.write_text(text)
    with pytest.raises(PipelineError, match=r"not a readable manifest .*; restore it") as error:
        manifests.newest(tmp_path)
    assert str(path) in str(error.value)


def test_what_a_crash_leaves_is_no_version(tmp_path):
    first = grow(tmp_path, Manifest())
    folder = tmp_path / "_manifest"
    (folder / f"{1:020d}.draft").write_text("{")
    (folder / "note.json").write_text("{}")
    assert manifests.newest(tmp_path) == first


def test_replaced_files_go_when_no_kept_version_lists_them(tmp_path):
    before = grow(tmp_path, Manifest())
    replaced = before.files[0]
    at = grow(tmp_path, before, replaced=[replaced.path])
    assert replaced not in at.files
    for _ in range(MANIFESTS_KEPT - 1):
        at = grow(tmp_path, at)
        manifests.prune(tmp_path, at.version)
    assert (tmp_path / replaced.path).exists(), "version 0 is still kept"
    at = grow(tmp_path, at)
    manifests.prune(tmp_path, at.version)
    assert not (tmp_path / replaced.path).exists()
    assert sorted(int(p.stem) for p in (tmp_path / "_manifest").glob("*.json")) == list(
        range(at.version - MANIFESTS_KEPT, at.version + 1)
    )
    assert all((tmp_path / kept.path).exists() for kept in at.files)


@pytest.mark.parametrize("work", ["prune", "sweep"])
def test_versions_that_another_writer_prunes_meanwhile_are_no_fault(tmp_path, monkeypatch, work):
    at = Manifest()
    for _ in range(MANIFESTS_KEPT + 4):
        at = grow(tmp_path, at)
    load = manifests.load

    def racing(folder, version):
        if version == 1:
            monkeypatch.setattr(manifests, "load", load)
            manifests.prune(tmp_path, at.version)
        return load(folder, version)

    monkeypatch.setattr(manifests, "load", racing)
    {"prune": lambda: manifests.prune(tmp_path, at.version),
     "sweep": lambda: manifests.sweep(tmp_path)}[work]()  # fmt: skip
    assert manifests.load is load, "the other was there"
    assert len(list((tmp_path / "_manifest").glob("*.json"))) == MANIFESTS_KEPT + 1
    assert all((tmp_path / kept.path).exists() for kept in at.files)


def test_time_ranges_prune():
    held = file("a", 0, min_time_us=10, max_time_us=20)
    assert held.overlaps(20, 21)
    assert held.overlaps(0, 11)
    assert not held.overlaps(21, 30)
    assert not held.overlaps(0, 10)
    assert not file("a", 0).overlaps(0, 2**62)


def test_the_text_is_stable(tmp_path):
    at = grow(tmp_path, Manifest())
    assert Manifest.loads(at.dumps()).dumps() == at.dumps()
    assert list(json.loads(at.dumps())) == sorted(json.loads(at.dumps()))
