"""The reference of the tables is what the schemas say now."""

import runpy

from conftest import ROOT


def test_the_reference_of_the_tables_is_current():
    render = runpy.run_path(str(ROOT / "tools" / "tables.py"))["render"]
    written = (ROOT / "docs" / "tables.md").read_text(encoding="utf-8")
    assert written == render(), "run `make docs`"
