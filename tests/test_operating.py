"""The commands of docs/operating.md are typed as they stand."""

import re
import runpy
from pathlib import Path

import pytest

from conftest import SMALL_JOURNAL
from headrace.config.reference import settings
from headrace.wire.kafka.errors import ErrorCode
from shellblocks import ROOT, run_blocks

pytestmark = pytest.mark.slow

METRICS = runpy.run_path(str(ROOT / "tools" / "metrics.py"))
EXPECTED = [
    (),
    ("retention.ms = 90d",),
    ("cleanup.policy = compact",),
    ("flush.ms = 200ms",),
    ("a node can start with it", "messages_per_second = 1000", "# headrace.toml:2"),
    ('"stored": 1', "value 21.5", "nothing is damaged"),
    (
        "damaged: streams/readings/0/00000000000000000000.log, byte 0, offset 0: ",
        "(offset 0 cannot be read)",
        "exit code 1",
    ),
    ("offsets would be lost: 1", "copies are in data/repair/", "nothing is damaged"),
]


def test_every_command_does_what_the_page_says(tmp_path: Path) -> None:
    document = ROOT / "docs" / "operating.md"
    run_blocks(document, "test_operating", EXPECTED, tmp_path, **SMALL_JOURNAL)


def test_the_table_of_bounds_names_what_there_is() -> None:
    page = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
    rows = page.partition("| bound | setting |")[2].partition("\n\n")[0].splitlines()[2:]
    assert len(rows) > 20
    known = {f"{table}.{key}" for table, key, _ in settings()}
    metrics = {each.name for each in METRICS["metrics"]()}
    counted = (ROOT / "crates/headrace-core/src/switchboard/counters.rs").read_text()
    for page_of in ("doors.md", "frame.md", "http.md"):
        counted += (ROOT / "docs" / page_of).read_text(encoding="utf-8")
    counted += " ".join(f"`{code.name.lower()}`" for code in ErrorCode)
    for row in rows:
        _, _, setting, gauge, _, counters, _ = row.split("|")
        assert re.findall("`(.*?)`", setting)[0] in known
        assert set(re.findall("`(.*?)`", gauge)) <= metrics
        names = re.findall("`(.*?)`", counters)
        totals = {name for name in names if name.endswith("_total")}
        assert totals <= metrics
        for reason in set(names) - totals:
            assert f'reason=\\"{reason}\\"' in counted or f"`{reason}`" in counted, reason
