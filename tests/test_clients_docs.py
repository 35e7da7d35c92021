"""The commands of docs/clients.md are typed as they stand."""

from pathlib import Path

import pytest

from conftest import SMALL_JOURNAL
from shellblocks import ROOT, run_blocks

pytestmark = pytest.mark.slow

EXPECTED = [
    (),
    ('{"published": 2, "acknowledged": 2, "seconds": ',),
    ("rooms/7/door open", "rooms/7/door at QoS 0: open", '"topic": "rooms/7/door"'),
    ("a\nb\nc\n",),
    ("worker", "away", "waiting 1,", "jobs/#", "deleted worker"),
    ("reads $stream/meters/#: 2 records behind, in 1 partition", "position"),
    ("rooms/7/door", "open", "deleted 1", "\n0\n"),
    ('PUBLISH  rooms/7/temperature  id 1  QoS 1  28 B  "22"', "no_match"),
]


def test_every_command_does_what_the_page_says(tmp_path: Path) -> None:
    run_blocks(
        ROOT / "docs" / "clients.md", "test_clients_docs", EXPECTED, tmp_path, **SMALL_JOURNAL
    )
