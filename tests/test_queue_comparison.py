"""The table of queues beside those of other brokers: headrace's column is what happens."""

import json
import re
import subprocess
import sys

import pytest

from conftest import ROOT, environment, soaked

SCRIPT = ROOT / "benchmarks" / "peers" / "queues.py"
PAGE = ROOT / "docs" / "queues-compared.md"
RUN_SECONDS = 240

pytestmark = pytest.mark.slow


def page():
    """Facts of headrace's column by the name of the row."""
    rows = [line.split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    head, _, *body = rows
    (column,) = (at for at, name in enumerate(head) if name.startswith("headrace "))
    return {row[0].removeprefix("| "): re.match(r"\*\*(.*?)\*\*", row[column])[1] for row in body}


@pytest.mark.parametrize("rows", [["nack-delay", "bound", "pull", "mqtt-3.1.1"], soaked([])])
def test_the_page_says_what_is_measured(rows):
    """A few rows, and all of them where there is time."""
    asked = ["--rows", ",".join(rows)] if rows else []
    ran = subprocess.run(
        [sys.executable, str(SCRIPT), "headrace", "--json", *asked],
        capture_output=True,
        check=False,
        env=environment(),
        text=True,
        timeout=RUN_SECONDS,
    )
    assert ran.returncode == 0, ran.stderr
    cells = json.loads(ran.stdout)["cells"]["headrace"]
    titles = {row: cell["title"] for row, cell in cells.items()}
    written = page()
    assert {row: written[title] for row, title in titles.items()} == {
        row: cell["fact"] for row, cell in cells.items()
    }
    if not rows:
        assert list(titles.values()) == list(written)
