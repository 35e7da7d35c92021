"""The commands of docs/streams.md are typed as they stand."""

from pathlib import Path

import pytest

from conftest import SMALL_JOURNAL
from shellblocks import ROOT, run_blocks

pytestmark = pytest.mark.slow

EXPECTED = [
    (),
    (
        "sensors/7/power 250 mqtt.topic=sensors/7/power,mqtt.content-type=text/plain,unit=W",
        "sensors/8/power 300",
    ),
    (
        "$stream/readings/sensors/7/power 250\n$stream/readings/sensors/8/power 300",
        "$stream/readings/sensors/7/power text/plain",
        "stream-offset",
    ),
    (
        "can be read from offset",
        "no stream is named 'reading'",
        "(0x9e); $share/workers/$stream/readings/#: a stream is not shared",
    ),
]


def test_every_command_does_what_the_page_says(tmp_path: Path) -> None:
    run_blocks(
        ROOT / "docs" / "streams.md", "test_streams_docs", EXPECTED, tmp_path, **SMALL_JOURNAL
    )
