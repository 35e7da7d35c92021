"""The commands of docs/operating.md are typed as they stand."""

from pathlib import Path

from conftest import SMALL_JOURNAL
from shellblocks import ROOT, run_blocks

EXPECTED = [
    (),
    ("retention.ms = 7776000000",),
    ("cleanup.policy = compact",),
    ("flush.ms = 200",),
    ("a node can start with it", "messages_per_second = 1000", "# headrace.toml:2"),
    ('"stored": 1', "value 21.5", "nothing is damaged"),
    (
        "damaged: streams/readings/0/00000000000000000000.log, byte 0, offset 0: ",
        "offsets 0 to 0 cannot be read",
        "exit code 1",
    ),
    ("offsets would be lost: 1", "copies are in data/repair/", "nothing is damaged"),
]


def test_every_command_does_what_the_page_says(tmp_path: Path) -> None:
    document = ROOT / "docs" / "operating.md"
    run_blocks(document, "test_operating", EXPECTED, tmp_path, **SMALL_JOURNAL)
