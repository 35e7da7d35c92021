"""Generated references are what the code says now."""

import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_the_configuration_reference_is_current() -> None:
    render = runpy.run_path(str(ROOT / "tools" / "configuration.py"))["render"]
    written = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert written == render(), "run `make docs`"


def test_the_table_of_kafka_clients_is_current() -> None:
    render = runpy.run_path(str(ROOT / "tools" / "kafka_clients.py"))["render"]
    written = (ROOT / "docs" / "kafka-clients.md").read_text(encoding="utf-8")
    assert written == render(), "run `make docs`"


def test_the_page_of_benchmarks_is_that_of_the_result_that_was_kept() -> None:
    kept, page = (ROOT / "docs" / f"benchmarks.{kind}" for kind in ("json", "md"))
    render = runpy.run_path(str(ROOT / "tools" / "benchmarks.py"))["render"]
    assert page.read_text(encoding="utf-8") == render(kept), "run `make docs`"
