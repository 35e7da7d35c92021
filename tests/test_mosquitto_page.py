"""docs/mosquitto.md: its commands as they stand, and its names as the hints have them."""

import re
from pathlib import Path

import pytest

from conftest import SMALL_JOURNAL
from headrace.config import load, mosquitto
from headrace.errors import ConfigError
from shellblocks import ROOT, run_blocks

PAGE = ROOT / mosquitto.PAGE

EXPECTED = [
    (
        "mosquitto.conf: is a mosquitto.conf; docs/mosquitto.md says",
        "[limits] max_queued_messages: unknown; what mosquitto calls so is limits.session_messages",
        '"status": "ready"',
    ),
    ("added ann", "added meter-1", "headrace_access_rules 3.0"),
    (
        "Warning: Publish 1 failed: Not authorized.",
        "field/meter-1/power 250",
        "All subscription requests were denied.",
    ),
]


def test_every_command_does_what_the_page_says(tmp_path: Path) -> None:
    run_blocks(PAGE, "test_mosquitto_page", EXPECTED, tmp_path, **SMALL_JOURNAL)


def test_the_page_and_the_hints_have_the_same_names() -> None:
    rows = re.findall(r"^\| (`[a-z_`, ]+) \| (`[a-z_.`, ]+) \|", PAGE.read_text(), re.MULTILINE)
    pairs = set()
    for theirs, ours in rows:
        names, settings = (re.findall(r"`([^`]+)`", cell) for cell in (theirs, ours))
        settings = settings if len(settings) == len(names) else settings * len(names)
        pairs |= set(zip(names, settings, strict=True))
    assert pairs == set(mosquitto.SETTINGS.items())


def test_every_setting_that_a_hint_names_is_one() -> None:
    settings = load()
    for ours in mosquitto.SETTINGS.values():
        table, _, name = ours.partition(".")
        assert name in type(getattr(settings, table)).model_fields


@pytest.mark.parametrize("text", ["a b", "# port\n[mqtt]\nbind = ", "bind 1883"])
def test_what_is_no_mosquitto_conf_either_is_told_as_toml(tmp_path: Path, text: str) -> None:
    file = tmp_path / "headrace.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match="is not TOML"):
        load(file)
