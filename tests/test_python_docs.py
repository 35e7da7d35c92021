"""The programs of docs/python.md run as they stand, and its tables are whole."""

import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from conftest import SMALL_JOURNAL, environment
from headrace.client.config import (
    ClientConfig,
    Config,
    ConsumerConfig,
    ProducerConfig,
    QueueConfig,
)
from shellblocks import ROOT, run_blocks

PAGE = ROOT / "docs" / "python.md"

EXPECTED = [
    (),
    ("'rooms': 3", "rooms 0 0", "b'room-7' b'21.5'"),
    ("stored 10000 in partition 0", "MESSAGE_TOO_LARGE False"),
    ("rows 10001 binary", "read to the end: True"),
    ("assigned 3", "records 100", "committed 100", "latest 10001"),
    ("offset ", "b'room-8' b'22.0'", "b'room-8' b'22.5'"),
    ("queue mailing", "queue sent"),
    (
        "0:0:1 b'mail' fr",
        "b'nonsense' no such work",
        "done b'flaky' at attempt 2",
    ),
    ("[b'sent mail', b'sent nonsense', b'sent flaky']",),
    ("customer-8 b'invoice'",),
]


@pytest.mark.slow
def test_every_program_does_what_the_page_says(tmp_path: Path) -> None:
    run_blocks(PAGE, "test_python_docs", EXPECTED, tmp_path, **SMALL_JOURNAL)


def test_the_tables_name_every_setting_with_its_default():
    rows = re.findall(r"^\| `(\w+)` \| `(.*)` \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)

    def own(config, parent):
        return [
            (each.name, repr(each.default))
            for each in fields(config)[len(fields(parent)) if parent else 0 :]
        ]

    assert rows == [
        *own(Config, None),
        *own(QueueConfig, Config),
        *own(ClientConfig, Config),
        *own(ProducerConfig, ClientConfig),
        *own(ConsumerConfig, ClientConfig),
    ]


def test_what_the_page_names_is_there_without_another_import():
    page = PAGE.read_text(encoding="utf-8")
    named = set(re.findall(r"\bheadrace((?:\.\w+)+)", page))
    assert ".client.ProducerConfig" in named
    wanted = {each.split(".")[1] for each in named}
    uses = [f"headrace{each}" for each in sorted(named)]
    for use in [*uses, f"assert {wanted} <= set(dir(headrace))"]:  # each in a program of its own
        subprocess.run([sys.executable, "-c", f"import headrace; {use}"], check=True,
                       env=environment())  # fmt: skip
