"""Simulated fleets for tests, and their readings by GPU."""

from functools import cache
from pathlib import Path

import headrace
from headrace.collect import CsvFile
from headrace.simulate import Fleet, Settings, pools

TRACE = Path(headrace.__file__).parent / "data" / "h200-1hz.csv.gz"
START_US = 1_767_571_200_000_000  # 2026-01-05T00:00:00Z
SECOND_US = 1_000_000
HOUR_US = 3600 * SECOND_US


@cache
def loads():
    return pools(CsvFile(TRACE))


def fleet(gpus=16, hours=2.0, **more):
    more = {"interval_us": 15 * SECOND_US} | more
    return Fleet(Settings(gpus, START_US, round(hours * HOUR_US), **more), loads())


class Seen:
    """One scrape, with its values as numbers."""

    __slots__ = ("at_us", "host", "labels", "values")

    def __init__(self, scrape):
        self.at_us = scrape.event_us
        self.host = scrape.host
        self.labels = scrape.labels
        self.values = {name: float(raw) for name, raw in scrape.metrics.items()}

    def __getattr__(self, name):
        """`dev_power_usage` is the field of that name."""
        return self.values[f"DCGM_FI_{name.upper()}"]

    @property
    def pod(self):
        return self.labels.get("pod", "")

    @property
    def job(self):
        return self.pod.rpartition("-")[0]


def by_gpu(simulated):
    """Each scrape once, by GPU and in the order of time."""
    found = {}
    for scrape in simulated.scrapes():
        found.setdefault(scrape.uuid, {})[scrape.event_us] = Seen(scrape)
    return {uuid: [seen[at] for at in sorted(seen)] for uuid, seen in found.items()}
