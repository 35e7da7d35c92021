"""The commands of docs/simulate.md are typed as they stand."""

import re
from pathlib import Path

import pytest

from conftest import SMALL_JOURNAL
from headrace.simulate import Kind
from headrace.simulate.faults import _DRAWS, _TEXTS
from shellblocks import ROOT, run_blocks

PAGE = ROOT / "docs" / "simulate.md"

EXPECTED = [
    (),
    ("readings acknowledged in", '{"fault": 1, "kind": "', "gpu-telemetry"),
    (
        "readings of 8 GPUs with 0 faults in fleet.csv.gz",
        '"file": "faults.csv"',
        '"gpus": 16, "faults": 6, "start": "2026-01-05T00:00:00.000000Z"',
        "readings acknowledged in",
    ),
]


@pytest.mark.slow
def test_every_command_does_what_the_page_says(tmp_path: Path) -> None:
    run_blocks(PAGE, "test_simulate_docs", EXPECTED, tmp_path, **SMALL_JOURNAL)


def test_the_table_has_every_kind_and_variant() -> None:
    rows = re.findall(r"^\| `(\w+)` \|.*\|(.*)\|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert [kind for kind, _ in rows] == list(Kind) == list(_DRAWS)
    parameters = dict(rows)
    for kind, _, variant in (key.partition("/") for key in _TEXTS):
        assert not variant or f"`{variant}`" in parameters[kind]
