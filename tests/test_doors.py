"""The commands of docs/doors.md are typed as they stand."""

from pathlib import Path

from conftest import SMALL_JOURNAL
from shellblocks import ROOT, run_blocks

EXPECTED = [
    ("ready: mqtt 127.0.0.1:1883, mqtts 127.0.0.1:8883, ws 127.0.0.1:8083, wss 127.0.0.1:8084",),
    ("readings",),
    (),
    ("srw-rw---- mqtt.sock",),
    ('headrace_connections_refused_total{door="mqtts",reason="no_tls"} 1.0',),
]


def test_every_command_does_what_the_page_says(tmp_path: Path) -> None:
    run_blocks(ROOT / "docs" / "doors.md", "test_doors", EXPECTED, tmp_path, **SMALL_JOURNAL)
