"""`headrace demo`: the whole path on every kind of input, from any folder."""

import csv
import gzip
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from conftest import environment

DATA = Path(__file__).parent / "data"
SHIPPED = Path(__file__).parent.parent / "src/headrace/data"
GAPS = SHIPPED / "h200-1hz-gaps.csv.gz"
TABLES = [
    "readings", "quarantine", "duplicates", "gpu_intervals", "gpu_minutes", "gpu_hours", "jobs",
    "detections",
]  # fmt: skip


def run(cwd, *args, code=0):
    """Runs the demo in `cwd`; what it printed on stdout, and on stderr."""
    ran = subprocess.run(
        [sys.executable, "-m", "headrace", "demo", *args],
        cwd=cwd,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    print(ran.stderr)
    assert ran.returncode == code, ran.stdout + ran.stderr
    return ran.stdout, ran.stderr


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def numbers(result):
    terms = ("published", "resent", "stored", "rows", "quarantined", "duplicates")
    return tuple(result[term] for term in terms)


def table(result, name):
    return pq.read_table(result["tables"][name])


# --- good input ---------------------------------------------------------------------------------


@pytest.mark.spark
def test_the_shipped_trace_ends_with_the_line(tmp_path):
    out, _ = run(tmp_path)
    lines = out.strip().splitlines()
    assert lines[-1] == (
        "published 7068 + resent 0 = stored 7068 = rows 7067 + quarantined 1 + duplicates 0"
    )
    for load in ("gemm-bf16-0", "copy-hbm-0", "pcie-h2d-d2h-0", "train-0", "idle"):
        assert any(load in line for line in lines), load
    assert any("not_a_number" in line for line in lines)
    [folder] = (tmp_path / "headrace-demo").iterdir()
    assert (folder / "chart.png").read_bytes().startswith(b"\x89PNG")
    assert names(tmp_path) == ["headrace-demo"], "nothing is left beside the folder"

    result = json.loads((folder / "report.json").read_text())
    assert list(result["tables"]) == TABLES
    loads = {(load["pod"]): load for load in result["loads"]}
    assert loads["gemm-bf16-0"]["seconds"] == pytest.approx(45, abs=2)
    assert loads["gemm-bf16-0"]["mean_power_watts"] == pytest.approx(689, abs=5)
    assert loads["gemm-bf16-0"]["energy_joules"] == pytest.approx(45 * 689, rel=0.05)
    assert loads["pcie-h2d-d2h-0"]["mean_sm_active_ratio"] == pytest.approx(0.0, abs=0.01)
    assert loads["pcie-h2d-d2h-0"]["mean_gpu_util_percent"] > 75
    assert sum(load["seconds"] for load in result["loads"]) == pytest.approx(227, abs=3)
    faults = {(each["kind"], each["pod"]) for each in result["detections"]}
    assert faults - {("power_cap", load) for load in loads} == {
        ("idle_allocated", "train-stalled-0"), ("fake_busy", "pcie-h2d-d2h-0"),
    }  # fmt: skip
    assert any("idle_allocated" in line for line in lines)


@pytest.mark.spark
@pytest.mark.soak
def test_the_gaps_trace_has_84_readings_without_a_number(tmp_path):
    out, _ = run(tmp_path, "--json", "--input", str(GAPS))
    result = json.loads(out)
    assert numbers(result) == (7037, 0, 7037, 6953, 84, 0)
    assert result["reasons"] == {"not_a_number": 84}
    assert table(result, "quarantine").num_rows == 84


@pytest.mark.spark
@pytest.mark.soak
def test_a_fleet_snapshot_in_wide_messages(tmp_path):
    out, _ = run(tmp_path, "--json", "--wide", "--input", str(DATA / "dcgm_snapshot.csv"))
    result = json.loads(out)
    assert numbers(result) == (300, 0, 300, 300, 0, 0)
    readings = table(result, "readings")
    assert len(readings["uuid"].unique()) == 15
    places = {tuple(row.values()) for row in readings.select(["partition", "offset"]).to_pylist()}
    assert len(places) < 300, "a message holds several readings"


@pytest.mark.spark
@pytest.mark.soak  # in CI tests/test_dcgm_readings.py decodes the same rows
def test_each_faulty_row_ends_in_its_table(tmp_path):
    with (DATA / "dcgm_bad.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    wanted = Counter(row["table"] for row in rows)
    out, err = run(
        tmp_path, "--json", "--input", str(DATA / "dcgm_bad.csv"), "--data", str(tmp_path / "d")
    )
    result = json.loads(out)
    assert result["data"] == str(tmp_path / "d")
    assert numbers(result) == (
        len(rows), 0, len(rows),
        wanted["readings"], wanted["quarantine"], wanted["duplicates"],
    )  # fmt: skip
    assert result["reasons"] == Counter(
        row["expected"] for row in rows if row["table"] == "quarantine"
    )
    assert "Traceback" not in err


@pytest.mark.spark
@pytest.mark.soak
def test_a_header_alone_is_all_zeros(tmp_path):
    file = tmp_path / "empty.csv.gz"
    file.write_bytes(gzip.compress((DATA / "dcgm_bad.csv").read_bytes().partition(b"\n")[0]))
    out, _ = run(tmp_path, "--json", "--input", str(file))
    result = json.loads(out)
    assert numbers(result) == (0, 0, 0, 0, 0, 0)
    assert (result["loads"], result["chart"]) == ([], None)
    assert all(table(result, name).num_rows == 0 for name in TABLES)


# --- input and folders that are refused before anything starts ----------------------------------


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "no such file"),
        (b"", "no first line"),
        (b"a,b\n1,2\n", "no CSV of GPU readings"),
        (bytes(range(256)) * 20, "no CSV of GPU readings"),
        (GAPS.read_bytes()[:10_000], "ends too soon"),
    ],
)
def test_unreadable_input_exits_2_and_leaves_nothing(tmp_path, content, says):
    file = tmp_path / "input.csv"
    if content is not None:
        file.write_bytes(content)
    before = names(tmp_path)
    out, err = run(tmp_path, "--input", str(file), code=2)
    assert out == ""
    assert says in err
    assert len(err.strip().splitlines()) <= 3
    assert names(tmp_path) == before


def test_a_folder_that_holds_something_is_refused_and_kept(tmp_path):
    kept = tmp_path / "earlier" / "report.json"
    kept.parent.mkdir()
    kept.write_text("{}")
    out, err = run(tmp_path, "--json", "--data", str(kept.parent), code=2)
    assert out == ""
    assert "holds report.json" in err
    assert "--data" in err
    assert len(err.strip().splitlines()) <= 3
    assert kept.read_text() == "{}"
    assert names(kept.parent) == ["report.json"]


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    _, err = run(tmp_path, "--data", str(tmp_path / "file" / "below"), code=2)
    assert "cannot be used" in err


@pytest.mark.parametrize(
    "args", [["--gpus", "0"], ["--gpus", "100001"], ["--gpus", "x"], ["--nonsense"], ["extra"]]
)
def test_wrong_use_exits_2(tmp_path, args):
    out, err = run(tmp_path, *args, code=2)
    assert out == ""
    assert "headrace demo --help" in err
    assert names(tmp_path) == []
