"""The commands of docs/queues.md, and those of the README about queues, are typed as they stand."""

from pathlib import Path

import pytest

from conftest import SMALL_JOURNAL
from shellblocks import READY, ROOT, run_blocks

pytestmark = pytest.mark.slow

EXPECTED = [
    (),
    ("queue jobs", "uploads/#"),
    (
        "$queue/jobs/eu attempt 1 resize 7.png",
        "$queue/jobs/us attempt 1 resize 8.png",
        "$queue/jobs/us attempt 2 resize 8.png",
        "$queue/jobs/uploads/9 attempt 1 resize 9.png",
        "[0, 0, 0, 0]",
    ),
    (
        "resize 7.png\nresize 8.png\nresize 9.png\nresize 7.png\n",
        "group fw, takes eu/#: 1 delivery, 0 of them again; 1 settled",
        "group archive: 3 deliveries, 0 of them again; 3 settled",
        "group resizers: 4 deliveries, 1 of them again; 3 settled, 1 failed, 0 dead",
    ),
    ("cannot resize cat.gif",),
    ('{"enqueued": 1}', '"payload": "resize 7.png"', '"result": "settled"'),
    ('"payload": "resize 7.png"', '"payload": "resize 10.png"', '"message_id": "0:4:1", "result"'),
    ("$queue/jobs.dlq/$queue/jobs: resize cat.gif, ", "reason:rejected", "reason-detail:no gifs"),
    ('"payload": "resize cat.gif"', '"result": "settled"', "no dead letters: jobs.dlq has nothing"),
    ("0  resize 7.png\n1 8 resize 8.png\n2  resize 9.png\n", "4 10 resize 10.png\n"),
    ("available          0   8     $queue/jobs/us", "resize 8.png"),
]
OF_README = [("resize 7.png\n", "group workers: 1 delivery, 0 of them again; 1 settled")]


def test_every_command_does_what_the_page_says(tmp_path: Path) -> None:
    run_blocks(ROOT / "docs" / "queues.md", "test_queues_docs", EXPECTED, tmp_path, **SMALL_JOURNAL)


def test_the_queue_of_the_readme(tmp_path: Path) -> None:
    before = f"headrace serve --data ./telemetry &\n{READY}"
    run_blocks(
        ROOT / "README.md", "test_queues_docs", OF_README, tmp_path, before=before, **SMALL_JOURNAL
    )
