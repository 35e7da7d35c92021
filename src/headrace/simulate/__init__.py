"""A fleet of GPUs that does not exist: its telemetry, and the truth about its faults.

From seed to readings: `published` has every number with its source, `trace` real samples by load,
`jobs` and `loads` what runs where and how, `faults` what goes wrong, `device`, `effects` and `gpu`
what a scrape of one GPU then reads, `fleet` all of them in the order of arrival, `table` a file
of it, `wire` its messages. All are pure; nothing here reads a clock. Rules that look for faults
share nothing with it.
"""

from headrace.simulate.faults import Fault, Kind
from headrace.simulate.fleet import Fleet, Scrape, Settings
from headrace.simulate.table import csv_lines
from headrace.simulate.trace import pools
from headrace.simulate.wire import in_time, messages

__all__ = [
    "Fault",
    "Fleet",
    "Kind",
    "Scrape",
    "Settings",
    "csv_lines",
    "in_time",
    "messages",
    "pools",
]
