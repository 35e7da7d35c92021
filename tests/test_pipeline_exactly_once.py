"""The pipeline against a real node, killed where it hurts: each reading ends in one table, once."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT, environment, headrace
from frames import from_csv, metric
from headrace import TopicPartition
from headrace.native import build_batch
from headrace.pipeline import Options, run, tables
from headrace.spark.errors import PipelineError
from headrace.sync import Admin
from kafkaraw import RawConnection
from processes import kill_all

TRACE = ROOT / "src/headrace/data/h200-1hz.csv.gz"
STREAM = "gpu-telemetry"
SENT = 31 * 40
"""Forty scrapes of the trace, the second with a NaN."""

PER_BATCH = 31 * 14
REPEATED = 50

DRIVER = """
import sys
from pathlib import Path
from headrace.pipeline import Options, manifest, run
from headrace.spark import session

def reach(place):
    print(place, flush=True)
    assert sys.stdin.readline(), "the test has gone"

commit = manifest.commit
def announced(root, after):
    reach(f"written {after.batch}")
    commit(root, after)
    reach(f"committed {after.batch}")
manifest.commit = announced

servers, root, per_batch = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
spark = session("driver", cores=2, short_run=True, log_file=root / "spark.log")
run(spark, servers, "gpu-telemetry", root / "tables", root / "checkpoint",
    options=Options(interval_s=1, now="event_time", messages_per_batch=per_batch))
"""

pytestmark = pytest.mark.spark


def produce(node, payloads):
    """Appends messages as they are, to partitions in turn, so that batches mix them."""
    with RawConnection(node) as raw:
        for partition in range(3):
            mine = payloads[partition::3]
            records = [(b"k", payload, [], 1_900_000_000_000) for payload in mine]
            assert raw.produce(STREAM, build_batch(records), partition).error_code == 0


class Driver:
    """A pipeline in a process of its own, which stops at each place until it is told to go on."""

    def __init__(self, node, root):
        self.process = subprocess.Popen(
            [sys.executable, "-c", DRIVER, node.servers, str(root), str(PER_BATCH)],
            env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def until(self, place):
        """Lets it go on to `place`."""
        while (reached := self.process.stdout.readline().strip()) != place:
            assert reached, f"it ended before it was {place!r}"
            self.process.stdin.write("\n")
            self.process.stdin.flush()

    def kill(self):
        """SIGKILL for the driver, its JVM and all that they started."""
        kill_all(self.process.pid)
        self.close()

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(60)


def ended(root):
    """Messages by the table in which they ended."""
    return {
        table: sorted(
            (row["partition"], row["offset"])
            for row in tables.open_arrow(root, table)
            .to_table(columns=["partition", "offset"])
            .to_pylist()
        )
        for table in ("readings", "quarantine", "duplicates")
    }


@pytest.mark.soak
def test_kills_lose_and_double_nothing(spark, broker, tmp_path):
    payloads = from_csv(TRACE)[:SENT]
    produce(broker, payloads + payloads[:REPEATED])
    root = tmp_path / "tables"
    for place in ("written 0", "committed 1"):
        driver = Driver(broker, tmp_path)
        driver.until(place)
        driver.kill()
    totals = run(
        spark, broker.servers, STREAM, root, tmp_path / "checkpoint",
        options=Options(interval_s=1, now="event_time", messages_per_batch=PER_BATCH),
    )  # fmt: skip
    assert (totals.messages, totals.readings) == (SENT + REPEATED, SENT + REPEATED)
    assert (totals.rows, totals.quarantined, totals.duplicates) == (SENT - 1, 1, REPEATED)
    where = ended(root)
    everywhere = sorted(message for messages in where.values() for message in messages)
    ends = broker.ends(STREAM)
    assert everywhere == [(p, n) for p in range(3) for n in range(ends[p])]
    assert {table: len(messages) for table, messages in where.items()} == {
        "readings": SENT - 1, "quarantine": 1, "duplicates": REPEATED,
    }  # fmt: skip
    rows = tables.open_arrow(root, "gpu_intervals").to_table().to_pylist()
    starts = [row["interval_start"] for row in rows]
    assert len(set(starts)) == len(starts)
    assert sum(row["samples"] for row in rows) == 40
    assert sum(row["readings"] for row in rows) == SENT - 1


@pytest.mark.soak
def test_files_of_another_attempt_stay_until_their_micro_batch_is_committed(
    spark, broker, tmp_path
):
    """They may be those of another driver, which is about to commit them."""
    produce(broker, from_csv(TRACE)[:31])
    root = tmp_path / "tables"
    other = root / "readings" / "batch=0" / "0-other-0.parquet"
    other.parent.mkdir(parents=True)
    other.write_bytes(b"of another")
    seen = []
    run(
        spark, broker.servers, STREAM, root, tmp_path / "checkpoint",
        options=Options(interval_s=1, now="event_time"),
        on_commit=lambda after: seen.append((after.version, other.exists())),
    )  # fmt: skip
    assert seen[0] == (-1, True)
    assert not other.exists(), "nobody can commit them now"
    assert tables.open_arrow(root, "readings").count_rows() == 31


def test_tables_belong_to_one_checkpoint(spark, broker, tmp_path):
    produce(broker, from_csv(TRACE)[:31])
    seen = []
    totals = run(
        spark, broker.servers, STREAM, tmp_path / "tables", tmp_path / "checkpoint",
        options=Options(now="event_time"), on_progress=seen.append,
    )  # fmt: skip
    assert totals.balanced
    assert [progress.totals for progress in seen] == [totals]
    assert sum(seen[0].offsets[STREAM].values()) == 31
    again = run(
        spark, broker.servers, STREAM, tmp_path / "tables", tmp_path / "checkpoint",
        options=Options(now="event_time"),
    )  # fmt: skip
    assert again == totals
    with pytest.raises(PipelineError, match="not written with the checkpoint"):
        run(spark, broker.servers, STREAM, tmp_path / "tables", tmp_path / "another")
    with pytest.raises(PipelineError, match="or empty folders for both"):
        run(spark, broker.servers, STREAM, tmp_path / "lost", tmp_path / "checkpoint")
    produce(broker, from_csv(TRACE)[31:62])
    with pytest.raises(PipelineError, match="intervals of 10 s: keep that"):
        run(
            spark, broker.servers, STREAM, tmp_path / "tables", tmp_path / "checkpoint",
            options=Options(interval_s=5),
        )  # fmt: skip


def test_a_copy_of_yesterday_is_refused(spark, broker, tmp_path):
    """Tables behind their checkpoint lack readings; in front of it, they would leave some out."""
    here = {name: tmp_path / name for name in ("tables", "checkpoint")}

    def ran():
        options = Options(now="event_time")
        return run(spark, broker.servers, STREAM, here["tables"], here["checkpoint"],
                   options=options)  # fmt: skip

    def swapped(name):
        """Yesterday's in place of today's, and back."""
        for old, new in ((name, "aside"), (f"old-{name}", name), ("aside", f"old-{name}")):
            (tmp_path / old).rename(tmp_path / new)

    payloads = from_csv(TRACE)
    produce(broker, payloads[:31])
    ran()
    for name, folder in here.items():
        shutil.copytree(folder, tmp_path / f"old-{name}")
    produce(broker, payloads[31:93])
    assert ran().messages == 93
    swapped("checkpoint")
    with pytest.raises(PipelineError, match=r"ends with micro-batch 0, the tables in .* with 1"):
        ran()
    swapped("checkpoint")
    swapped("tables")
    with pytest.raises(PipelineError, match=r"end with micro-batch 0, the checkpoint in .* with 1"):
        ran()
    for folder in ("commits", "offsets"):  # as the message says
        (here["checkpoint"] / folder / "1").unlink()
    assert ran().messages == 93


@pytest.mark.soak  # in CI tests/test_spark_recovery.py shows the same of the source
@pytest.mark.setting("pipeline.fail_on_data_loss")
def test_what_retention_took_ends_the_pipeline_or_is_passed_over(spark, broker, tmp_path):
    payloads, folders = from_csv(TRACE), (tmp_path / "tables", tmp_path / "checkpoint")
    produce(broker, payloads[:30])
    run(spark, broker.servers, STREAM, *folders, options=Options(now="event_time"))
    produce(broker, payloads[30:60])
    with Admin(broker.servers) as admin:
        admin.delete_records({TopicPartition(STREAM, 0): 15})
    with pytest.raises(PipelineError, match=r"records 10 to 14 are gone, the log starts at 15"):
        run(spark, broker.servers, STREAM, *folders, options=Options(now="event_time"))
    ran = headrace(
        "pipeline", "run", "--once", "--replay", "--kafka", broker.servers,
        "--tables", str(folders[0]), "--checkpoint", str(folders[1]), "--json", timeout=240,
        HEADRACE_PIPELINE__FAIL_ON_DATA_LOSS="false",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["messages"] == 55


def test_a_crash_amid_the_first_offsets_keeps_no_pipeline_from_its_start(spark, broker, tmp_path):
    """Spark writes them under another name, and begins only where there is no file at all."""
    produce(broker, [metric("DCGM_FI_DEV_GPU_UTIL", 50, n) for n in range(9)])
    offsets = tmp_path / "checkpoint" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / ".0.3f0e.tmp").write_text("v1\n{")
    (offsets / "..0.3f0e.tmp.crc").write_bytes(b"crc")
    told = run(
        spark, broker.servers, STREAM, tmp_path / "tables", tmp_path / "checkpoint",
        options=Options(now="event_time"),
    )  # fmt: skip
    assert told.rows == 9
    assert [each.name for each in offsets.iterdir() if "3f0e" in each.name] == []


def test_an_unknown_stream_is_one_line(spark, broker, tmp_path):
    with pytest.raises(PipelineError) as error:
        run(spark, broker.servers, "absent", tmp_path / "tables", tmp_path / "checkpoint")
    assert "absent" in str(error.value)
    assert "\n" not in str(error.value)
    assert not Path(tmp_path / "tables").exists()
