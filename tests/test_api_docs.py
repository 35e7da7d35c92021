"""docs/api.md does what it says."""

import sys
from pathlib import Path

import pytest

from conftest import SMALL_JOURNAL
from headrace.pipeline.api.routes import Routes
from shellblocks import ROOT, run_blocks

PAGE = ROOT / "docs" / "api.md"

EXPECTED = [
    (),
    ('"status": "ready"', '"id": "GPU-1"', '"next": "'),
    (
        '"timestamp": "2030-01-01T00:00:00Z"',
        '"source": "gpu_intervals"',
        "a + is written %2B in a URL",
    ),
    ('"last_value": 79', '"kind": "xid"', '"open": {"xid": 1}'),
]


@pytest.mark.slow
def test_every_command_does_what_the_page_says(tmp_path: Path) -> None:
    make = f"from apiserver import day; from pathlib import Path; day(Path('{tmp_path}/tables'))"
    folders = f"{ROOT / 'src'}:{ROOT / 'tests'}"
    before = f'PYTHONPATH={folders} {sys.executable} -c "{make}"'
    run_blocks(PAGE, "test_api_docs", EXPECTED, tmp_path, before=before, **SMALL_JOURNAL)


def test_the_page_has_every_route_and_parameter() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for route in Routes(None).all():
        section = page.partition(f"## `GET {route.path}`\n")[2].partition("\n## ")[0]
        assert section, route.path
        for name in route.asked.model_fields:
            assert f"`{name}`" in (page if name == "next" else section) or name == "next", name
