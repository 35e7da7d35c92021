"""`headrace pipeline`: its page as it stands, and what it refuses."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from buckets import Tables
from conftest import SMALL_JOURNAL, environment, soaked
from frames import at, metric
from shellblocks import ROOT, run_blocks

PAGE = ROOT / "docs" / "pipeline.md"

EXPECTED = [
    (),
    ("readings acknowledged in", "gpu_minutes", "version 0: readings"),
    ("gpu_minutes", "version 0: readings", "thermal", "1.000"),
    ("thermal gpu-node-", "hours of GPUs"),
    ("by model", "by pod", "page: fleet.html"),
    ("deleted 0 that nothing lists",),
    ("gpu_hours", "version 1: readings"),
    ("deleted 0 that nothing lists", "kwh"),
    ("starts of Spark use it",),
]


@pytest.mark.slow
@pytest.mark.spark
def test_every_command_does_what_the_page_says(tmp_path: Path) -> None:
    run_blocks(PAGE, "test_pipeline_command", EXPECTED, tmp_path, **SMALL_JOURNAL)


def pipeline(*args, code):
    """Runs the command; what it printed on stdout, and on stderr."""
    ran = subprocess.run(
        [sys.executable, "-m", "headrace", "pipeline", *map(str, args)],
        env=environment(), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ran.returncode == code, ran.stderr
    return ran.stdout, ran.stderr


FOLDERS = ("--tables", "t", "--checkpoint", "c")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("run",), "Missing option '--tables'"),
        (("run", *FOLDERS, "--kafka", "nowhere"), "--kafka"),
        (("run", *FOLDERS, "--rule", "xid"), "must be KIND.SETTING=NUMBER"),
        (("run", *FOLDERS, "--rule", "xid.window=1"), "xid has no setting 'window'; there are"),
        (("run", *FOLDERS, "--rule", "heat.window_s=1"), "no rule 'heat'; there are"),
        (("run", *FOLDERS, "--price", "H200"), "or default=2.5; got 'H200'"),
        (("run", *FOLDERS, "--price", "H200=nan"), "must be MODEL=PRICE"),
        (("run", *FOLDERS, "--energy-price", "inf"), "--energy-price"),
        (("run", *FOLDERS, "--energy-price", "nan"), "--energy-price"),
        (
            ("run", *FOLDERS, "--spark-conf", "spark.jars"),
            "must be KEY=VALUE with a key of Spark's",
        ),
        (("run", *FOLDERS, "--spark-conf", "jars=a.jar"), "such as spark.jars.packages="),
        (("backfill", "--tables", "t", "--spark-conf", "=1"), "--spark-conf"),
        (("run", *FOLDERS[:3], "s3://b/c?region=x"), "set AWS_ENDPOINT_URL, AWS_REGION"),
        (("run", *FOLDERS[:3], "s5://b/c"), "name a folder, or a URI such as s3://"),
        (("run", *FOLDERS, "--interval", "10"), "a duration with its unit"),
        (("status", "--tables", "absent"), "absent: no such folder"),
        (("score", "--tables", "absent", "--truth", "none"), "none: No such file or directory"),
    ],
)
def test_what_is_wrong_is_said_in_few_lines(tmp_path, monkeypatch, args, says):
    monkeypatch.chdir(tmp_path)
    out, err = pipeline(*args, code=2)
    assert out == ""
    assert says in err
    assert len(err.strip().splitlines()) <= 3
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def nine_hours(tmp_path_factory):
    """A folder of tables, and what it holds; for copies."""
    root = tmp_path_factory.mktemp("hours") / "t"
    tables = Tables(root, buckets=1)
    for hour in range(9):
        codes = [0, 79]
        story = [
            metric("DCGM_FI_DEV_XID_ERRORS", code, hour * 3600 + n * 15)
            for n, code in enumerate(codes)
        ]
        held = tables.write(story)
    return root, held


@pytest.mark.parametrize("damage", [lambda file: file.write_bytes(b"torn"), Path.unlink])
@pytest.mark.parametrize(
    ("command", "table"),
    [
        (("status",), "detections"),
        (("score", "--truth", "truth.jsonl"), "detections"),
        (("compact",), "readings"),
        soaked(("backfill",), "readings"),
    ],
)
def test_tables_that_are_damaged_are_said_in_few_lines(
    tmp_path, monkeypatch, nine_hours, command, table, damage
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "truth.jsonl").write_text("")
    root, held = nine_hours
    shutil.copytree(root, tmp_path / "t")
    damage(tmp_path / "t" / held.of(table)[0].path)
    out, err = pipeline(*command, "--tables", "t", code=1)
    assert (out, "Traceback" in err) == ("", False)
    assert len(err.strip().splitlines()) <= 3, err


def test_status_says_of_how_many_gpus_nothing_counts(tmp_path):
    """Three scrapes in an hour, none within the staleness of another."""
    tables = Tables(tmp_path, now="ingest_time")
    scrapes = [
        (second, f"GPU-{gpu}")
        for gpu, apart in enumerate((149, 151, 400, 1700, 1900))
        for second in range(0, 3600, apart)
    ]
    tables.write(
        [metric("DCGM_FI_DEV_GPU_UTIL", 50, n, gpu_id=uuid) for n, uuid in sorted(scrapes)]
    )
    ahead = 10 * 365 * 86_400  # one clock that is wrong hides none of them
    tables.write([metric("DCGM_FI_DEV_GPU_UTIL", 50, ahead, gpu_id="GPU-9", ingest_time=at(ahead))])
    tables.finish()
    out, _ = pipeline("status", "--tables", tmp_path, code=0)
    assert "GPUs scraped too rarely: 3. No time" in out


def test_status_and_score_read_the_tables_alone(tmp_path):
    tables = Tables(tmp_path / "tables")
    codes = [0, 0, 79, 79]
    story = [metric("DCGM_FI_DEV_XID_ERRORS", code, n * 15) for n, code in enumerate(codes)]
    tables.write(story)
    out, _ = pipeline("status", "--tables", tmp_path / "tables", "--json", code=0)
    said = json.loads(out)
    assert (said["version"], said["tables"]["readings"]["rows"]) == (0, 4)
    assert (said["open"], said["scraped_too_rarely"]) == ({"xid": 1}, 0)
    truth = {"kind": "xid", "uuid": "GPU-1", "start": at(30), "end": at(60)}
    (tmp_path / "truth.jsonl").write_text(json.dumps(truth) + "\n")
    args = ("--tables", tmp_path / "tables", "--truth", tmp_path / "truth.jsonl")
    out, _ = pipeline("score", *args, "--json", code=0)
    assert json.loads(out)["xid"] == {
        "faults": 1, "found": 1, "recall": 1.0, "detections": 1, "right": 1, "precision": 1.0,
    }  # fmt: skip
    (tmp_path / "truth.jsonl").write_text("no fault\n")
    _, err = pipeline("score", *args, code=2)
    assert "line 1 of the truth is no fault" in err
