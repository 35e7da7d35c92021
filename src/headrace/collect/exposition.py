"""Pages of metrics in Prometheus' text format become `Reading` objects, each text as read.

Owns the format's lines and what the generations of dcgm-exporter call a GPU's labels. Judges no
value. A line that is no sample is a reading, too, with the line as its raw text: what is unusable
is quarantined by the pipeline, where it can be counted and looked at. What is left out is samples
that are no GPU's (`go_goroutines`), and they are counted.

`prometheus_client` reads such pages as well, but keeps numbers instead of texts, and refuses a
page for one bad line.

Source: "Exposition formats", text-based format 0.0.4; seconds as timestamps from OpenMetrics 1.0.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace import job_limits
from headrace.collect.instants import format_instant, parse_instant
from headrace.collect.labels import parse_labels
from headrace.collect.readings import Reading
from headrace.errors import ScrapeError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_NAME: Final = r"[a-zA-Z_:][a-zA-Z0-9_:]*+"
_SAMPLE: Final = re.compile(
    rf"""({_NAME})[ \t]*+(?:\{{((?:[^"}}]|"(?:[^"\\]|\\.)*+")*+)\}})?+[ \t]*+((?!\{{).*)""",
    re.DOTALL,
)
_TORN: Final = re.compile(rf"({_NAME})[ \t]*+\{{(.*)", re.DOTALL)
_NUMBER: Final = r"[+-]?(?:\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|inf(?:inity)?|nan)"
_VALUE: Final = re.compile(rf"({_NUMBER})(?:[ \t]+(-?\d+(?:\.\d+)?))?", re.ASCII | re.IGNORECASE)
"""A value and, where it has one, the sample's own timestamp."""
_SECONDS: Final = re.compile(r"(\d{9,11})\.(\d+)", re.ASCII)

_UUIDS: Final = ("UUID", "uuid", "gpu_uuid")
_HOSTS: Final = ("hostname", "Hostname")
_DEVICES: Final = ("device",)
_RENAMED: Final = {
    "modelName": "model_name",
    "DCGM_FI_DRIVER_VERSION": "driver_version",
    "pod_name": "pod",
    "pod_namespace": "namespace",
    "container_name": "container",
}
"""Labels of one generation, and the message's names of them. NVLink rows have `model_name`
already; exporters 1.x wrote the three of Kubernetes so."""

_EXPORTED: Final = ("pod", "namespace", "container")
"""Prometheus renames such a label of a sample to `exported_…` where its scrape target has one of
that name: the renamed one is the GPU's, the other the exporter's own."""

_OURS: Final = "DCGM_"
"""Begins the name of each metric of dcgm-exporter, old names and new ones."""


class Scrape(NamedTuple):
    """A page, and where and when it was read."""

    text: str
    instance: str
    """`host:port` of the exporter."""
    host: str
    """Name of the machine, for samples that name none."""
    begun_us: int
    """When it was asked for: the event time of samples without a timestamp."""
    read_us: int
    """When it was there."""


@dataclass(slots=True)
class Page:
    """What a page holds.

    Attributes:
        readings: in the order of the page; those of lines that are no samples among them.
        unparsed: how many of them are such lines; `unparsed_line` is the first.
        left_out: samples that are no GPU's; `left_out_name` is the first's name.
    """

    readings: list[Reading] = field(default_factory=list)
    unparsed: int = 0
    unparsed_line: str = ""
    left_out: int = 0
    left_out_name: str = ""

    @property
    def samples(self) -> int:
        """Lines that follow the format; 0 where the page is none of metrics."""
        return len(self.readings) - self.unparsed + self.left_out


class _Series(NamedTuple):
    uuid: str
    device: str
    host: str
    labels: Mapping[str, str]


def read_page(scrape: Scrape) -> Page:
    """Readings of a page, those of one GPU and set of labels together.

    Raises:
        ScrapeError: there are more than `job_limits.EXPORTER_READINGS_MAX`.
    """
    page = Page()
    reader = _Reader(scrape)
    for line in _lines(scrape.text):
        reader.read(line, page)
        if len(page.readings) > job_limits.EXPORTER_READINGS_MAX:
            raise ScrapeError(
                f"the page has more than {job_limits.EXPORTER_READINGS_MAX:,} lines to publish; "
                "ask for less of it",
                reason="too_large",
            )
    # Stable: `wide` then makes one message of each series, and not one at each change of labels.
    page.readings.sort(key=lambda reading: reader.places[id(reading.labels)])
    return page


def _lines(text: str) -> Iterator[str]:
    """Lines but for blank ones and comments."""
    for line in text.removeprefix("\ufeff").split("\n"):
        stripped = line.strip(" \t\r")
        if stripped and not stripped.startswith("#"):
            yield stripped


class _Reader:
    """Lines of one page; label texts that repeat are read once."""

    __slots__ = ("_by_text", "_now", "_scrape", "places")

    def __init__(self, scrape: Scrape) -> None:
        self._scrape = scrape
        self._now = format_instant(scrape.begun_us)
        self._by_text: dict[str, _Series] = {}
        self.places: dict[int, int] = {}
        """By the identity of a series' labels: its place in the page."""

    def read(self, line: str, page: Page) -> None:
        if len(line) > job_limits.EXPOSITION_LINE_LENGTH_MAX:
            self._unparsed(line, page)
            return
        sample = _SAMPLE.fullmatch(line)
        if sample is None:
            self._unparsed(line, page)
            return
        name, labels, rest = sample.groups()
        value = _VALUE.fullmatch(rest)
        series = self._series(labels or "")
        if (series.uuid or name.startswith(_OURS)) and (labels or rest):
            raw, stamp = (rest, None) if value is None else value.groups()
            page.readings.append(self._reading(name, raw, stamp, series))
        elif value is not None:
            page.left_out_name = page.left_out_name or name
            page.left_out += 1
        else:
            self._unparsed(line, page)

    def _reading(self, name: str, raw: str, stamp: str | None, series: _Series) -> Reading:
        uuid, device, host, labels = series
        if stamp is None:
            timestamp, event_us = self._now, self._scrape.begun_us
            return Reading(timestamp, event_us, name, uuid, device, host, raw, labels)
        return Reading(stamp, _instant(stamp), name, uuid, device, host, raw, labels)

    def _unparsed(self, line: str, page: Page) -> None:
        """A reading that has the line as its value, and what can be known of its series."""
        longest = job_limits.EXPOSITION_LINE_LENGTH_MAX
        page.unparsed_line = page.unparsed_line or line[:longest]
        page.unparsed += 1
        raw = line[:longest]
        torn = _TORN.fullmatch(raw)
        name, labels = torn.groups() if torn is not None else ("", "")
        series = self._series(labels)
        if len(line) > longest:
            cut = dict(series.labels) | {"cut_from_characters": str(len(line))}
            series = self._placed(series._replace(labels=cut))
        page.readings.append(self._reading(name, raw, None, series))

    def _series(self, text: str) -> _Series:
        series = self._by_text.get(text)
        if series is None:
            series = self._by_text[text] = self._placed(_series(text, self._scrape))
        return series

    def _placed(self, series: _Series) -> _Series:
        self.places[id(series.labels)] = len(self.places)
        return series


def _series(text: str, scrape: Scrape) -> _Series:
    """What labels say, under the message's names.

    What a field says is left out of the labels; a label that contradicts it stays, for which of
    the two is right is for the reader. An empty label is an absent one (Prometheus, "Data model").
    """
    labels = {name: value for name, value in parse_labels(text).items() if value}
    uuid, device = _taken(labels, _UUIDS), _taken(labels, _DEVICES)
    host = _taken(labels, _HOSTS) or scrape.host
    labels.pop("__name__", None)
    for name in _EXPORTED:
        if (exported := labels.pop(f"exported_{name}", "")) and (own := labels.pop(name, "")):
            labels.setdefault(f"exporter_{name}", own)
        if exported:
            labels[name] = exported
    for old, new in _RENAMED.items():
        if old in labels and labels.get(new, labels[old]) == labels[old]:
            labels[new] = labels.pop(old)
    labels.setdefault("instance", scrape.instance)
    return _Series(uuid, device, host, labels)


def _taken(labels: dict[str, str], names: tuple[str, ...]) -> str:
    """The first of these labels; all that say the same are taken out."""
    found = next((labels[name] for name in names if name in labels), "")
    for name in names:
        if labels.get(name) == found:
            del labels[name]
    return found


def _instant(stamp: str) -> int | None:
    """Microseconds of a sample's timestamp, in whole milliseconds or in seconds, or None."""
    seconds = _SECONDS.fullmatch(stamp)
    if seconds is None:
        return parse_instant(stamp)
    return int(seconds[1]) * 1_000_000 + int(seconds[2][:6].ljust(6, "0"))
