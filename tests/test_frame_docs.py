"""The client of docs/frame.md runs as it stands, and is as short as it is said to be."""

import re
from pathlib import Path

import pytest

from conftest import SMALL_JOURNAL
from headrace.wire.kafka.errors import ErrorCode
from shellblocks import ROOT, blocks_of, run_blocks

PAGE = ROOT / "docs" / "frame.md"
LINES_MAX = 40

EXPECTED = [
    (),
    ("alarms",),
    (
        "stored and read 1000",
        "[Errno 10] frame 1000: length 1195725856 exceeds 1180611",
    ),
    ('{"ok": true, "stream": "alarms"', "00000001000000000000000000000000", "door open"),
]


@pytest.mark.slow
def test_every_program_does_what_the_page_says(tmp_path: Path) -> None:
    run_blocks(PAGE, "test_frame_docs", EXPECTED, tmp_path, **SMALL_JOURNAL)


def test_the_client_is_short() -> None:
    (client,) = (b for b in blocks_of(PAGE, "test_frame_docs") if b["language"] == "python")
    code = client["code"].partition("\n\n\nproducer")[0].splitlines()
    assert len([line for line in code if line.strip()]) <= LINES_MAX


def test_the_table_of_endings_has_codes_of_kafkas() -> None:
    rows = re.findall(r"^\| ([-\d, ]+) \|.*\| `", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    codes = {int(code) for row in rows for code in row.split(",")}
    assert len(codes) > 12
    assert codes <= set(ErrorCode)
