"""The commands of docs/access.md are typed as they stand."""

from pathlib import Path

import pytest

from conftest import SMALL_JOURNAL
from shellblocks import ROOT, run_blocks

pytestmark = pytest.mark.slow

EXPECTED = [
    ("added ann", "added meter-1", '"status": "ready"'),
    (
        "ann       password    admin",
        "bob       password    -",
        "Connection error: Connection Refused: bad user name or password.",
        "Metadata for all topics",
        "removed bob",
    ),
    ("headrace_access_rules 4.0",),
    (
        "allowed: rule 2 (headrace.toml:5)",
        "denied: no rule is about it, and access.no_match is deny",
        "allowed: rule 1 (headrace.toml:1)",
    ),
]


def test_every_command_does_what_the_page_says(tmp_path: Path) -> None:
    run_blocks(ROOT / "docs" / "access.md", "test_access_docs", EXPECTED, tmp_path, **SMALL_JOURNAL)
