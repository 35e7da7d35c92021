"""Scrapes as the CSV of DCGM readings that `headrace collect csv` reads.

Owns the columns and their text. A scrape that is read back is the same readings again.
"""

from __future__ import annotations

import csv
from io import StringIO
from typing import TYPE_CHECKING, Final

from headrace.collect.instants import format_instant

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from headrace.simulate.fleet import Scrape

COLUMNS: Final = (
    "timestamp", "metric_name", "gpu_id", "device", "uuid", "modelName", "Hostname", "container",
    "pod", "namespace", "value", "labels_raw",
)  # fmt: skip


def csv_lines(scrapes: Iterable[Scrape]) -> Iterator[str]:
    """The header, then the lines of one scrape at a time."""
    yield ",".join(COLUMNS) + "\n"
    for scrape in scrapes:
        text = StringIO()
        csv.writer(text, lineterminator="\n").writerows(_rows(scrape))
        yield text.getvalue()


def _rows(scrape: Scrape) -> Iterator[tuple[str, ...]]:
    labels = scrape.labels
    gpu, model = labels["gpu"], labels["model_name"]
    job = tuple(labels.get(name, "") for name in ("container", "pod", "namespace"))
    timestamp = format_instant(scrape.event_us)
    raw = f'DCGM_FI_DRIVER_VERSION="{labels["driver_version"]}"'
    for metric, value in scrape.metrics.items():
        yield (
            timestamp, metric, gpu, scrape.device, scrape.uuid, model, scrape.host, *job, value,
            raw,
        )  # fmt: skip
