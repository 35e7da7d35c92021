"""The program of docs/spark.md runs as it stands, and its table has every option."""

import re
from pathlib import Path

import pytest

from conftest import SMALL_JOURNAL
from headrace.spark.options import _NAMES
from headrace.spark.payload import PAYLOADS
from headrace.spark.rows import _TYPES
from shellblocks import ROOT, run_blocks

PAGE = ROOT / "docs" / "spark.md"

EXPECTED = [
    (),
    ("2 messages", 'None None b\'{"celsius": "warm"}\'', "21.5 2030-01-01 00:00:00 b''"),
]


@pytest.mark.slow
@pytest.mark.spark
def test_the_program_does_what_the_page_says(tmp_path: Path) -> None:
    run_blocks(PAGE, "test_spark_docs", EXPECTED, tmp_path, **SMALL_JOURNAL)


def test_the_tables_have_every_option_payload_and_column():
    text = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.*?`) \|", text, re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`([\w-]+)`", row)]
    assert set(named) == {*_NAMES, *PAYLOADS, "payload", *_TYPES}
