"""The commands of docs/groups.md are typed as they stand."""

from pathlib import Path

import pytest

from conftest import SMALL_JOURNAL
from shellblocks import ROOT, run_blocks

pytestmark = [pytest.mark.clients, pytest.mark.slow]

EXPECTED = [
    (),
    ("20.5\n", "21.0\n", "21.5\n"),
    ("billing   Empty ", "group billing: Empty, generation ", '"committed": 3, "end": 3, "lag": 0'),
    ("committed   to", "20.5\n", '"executed": true', '"committed": 3, "to": 2'),
    ("deleted billing\n", '{"groups": [], "complete": true}'),
]


def test_every_command_does_what_the_page_says(tmp_path: Path) -> None:
    run_blocks(ROOT / "docs" / "groups.md", "test_groups_docs", EXPECTED, tmp_path, **SMALL_JOURNAL)
