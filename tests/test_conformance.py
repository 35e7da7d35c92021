"""Every normative statement of MQTT is held by a test, or has its reason, and the pages say so."""

import conformance
import pytest

from conftest import ROOT


def test_no_statement_is_missing_and_none_is_unknown():
    _, wrong = conformance.pages()
    assert wrong == []


def test_the_pages_are_those_of_the_tests():
    written, _ = conformance.pages()
    for name, text in written.items():
        page = ROOT / "docs" / "conformance" / name
        assert page.read_text(encoding="utf-8") == text, "run `make docs`"


def test_the_map_says_what_is_wrong_with_it(tmp_path, monkeypatch):
    version = conformance.Version(["1.0-1", "1.0-2", "1.0-3"], {"1.0-3": "for clients"})
    held = [conformance.Held(each, "test", tmp_path) for each in ("1.0-1", "1.0-3", "2.0-1")]
    assert len(list(conformance.faults("5.0", version, held))) == 3
    file = tmp_path / "a.rs"
    monkeypatch.setattr(conformance, "ROOT", tmp_path)
    file.write_text("/// Holds 5.0: 1.0-1, 1.0-2.\n/// Holds 3.1.1: 1.0-1.\n#[test]\nfn a() {}\n")
    found = [(version, each.statement, each.test) for version, each in conformance.held_in(file)]
    assert found == [("5.0", "1.0-1", "a"), ("5.0", "1.0-2", "a"), ("3.1.1", "1.0-1", "a")]
    file.write_text("// nothing\n/// Holds 5.0: 1.0-1.\nconst A: u8 = 0;\n")
    with pytest.raises(SystemExit, match="no test follows"):
        list(conformance.held_in(file))
