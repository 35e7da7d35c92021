"""The README's commands are typed as they stand."""

from pathlib import Path

import pytest

from shellblocks import ROOT, run_blocks

EXPECTED = [
    (),
    ("rooms[", "7: 21.5"),
    ("rooms", "headrace_mqtt_messages"),
    ("300",),
    ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_POWER_USAGE"),
]


@pytest.mark.spark
def test_every_command_of_the_readme_does_what_it_says(tmp_path: Path) -> None:
    """With the journal, the Java and the authorities that a user has; other pages have less."""
    run_blocks(ROOT / "README.md", "test_readme", EXPECTED, tmp_path, quick=False)
