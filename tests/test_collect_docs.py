"""The commands of docs/collect.md are typed as they stand."""

from pathlib import Path

import pytest

from conftest import SMALL_JOURNAL
from exporterpages import SMALL
from shellblocks import ROOT, run_blocks

pytestmark = pytest.mark.slow

EXPECTED = [
    (),
    ("300 of 300 readings acknowledged in 300 messages", '"acknowledged": 300'),
    (
        "2 of 2 readings acknowledged in 2 messages",
        "1 page",
        '"acknowledged": 2, "messages": 1',
        '"scrapes": {"pages": 1, "failed": 0,',
        "gpu-telemetry",
    ),
    ("no NVIDIA driver here", "install it; in a container"),
]

EXPORTER = """\
from http.server import BaseHTTPRequestHandler, HTTPServer

class Exporter(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/metrics" else 404)
        self.end_headers()
        self.wfile.write(open("page").read().encode())

HTTPServer(("127.0.0.1", 9400), Exporter).serve_forever()
"""


def test_every_command_does_what_the_page_says(tmp_path: Path) -> None:
    (tmp_path / "page").write_text(SMALL, encoding="utf-8")
    (tmp_path / "exporter.py").write_text(EXPORTER, encoding="utf-8")
    run_blocks(
        ROOT / "docs" / "collect.md", "test_collect_docs", EXPECTED, tmp_path,
        before="python exporter.py 2>exporter.log &", **SMALL_JOURNAL,
    )  # fmt: skip
