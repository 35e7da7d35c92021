"""Samples in Prometheus' text format: prefix `headrace_`, counters end in `_total`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from headrace.ports import Histogram, Sample

PREFIX = "headrace_"
METRICS_TYPE = "text/plain; version=1.0.0; charset=utf-8"


class Exporter:
    """Renders what a process counts, and what it uses, on request."""

    def __init__(
        self,
        samples: Callable[[], Iterable[Sample]],
        histograms: Callable[[], Iterable[Histogram]],
    ) -> None:
        self._samples = samples
        self._histograms = histograms
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(namespace="headrace", registry=self._registry)

    def collect(self) -> Iterator[Metric]:
        """All metric families; called by the registry."""
        yield from _families(self._samples())
        yield from _distributions(self._histograms())

    def render(self) -> bytes:
        """The exposition text."""
        return generate_latest(self._registry)


def _families(samples: Iterable[Sample]) -> Iterable[Metric]:
    families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
    for sample in samples:
        family = families.get(sample.name)
        if family is None:
            kind = CounterMetricFamily if sample.name.endswith("_total") else GaugeMetricFamily
            labels = [name for name, _ in sample.labels]
            family = kind(PREFIX + sample.name, sample.help, labels=labels)
            families[sample.name] = family
        family.add_metric([value for _, value in sample.labels], sample.value)
    return families.values()


def _distributions(histograms: Iterable[Histogram]) -> Iterable[Metric]:
    families: dict[str, HistogramMetricFamily] = {}
    for each in histograms:
        family = families.get(each.name)
        if family is None:
            labels = [name for name, _ in each.labels]
            family = HistogramMetricFamily(PREFIX + each.name, each.help, labels=labels)
            families[each.name] = family
        family.add_metric([value for _, value in each.labels], each.buckets, each.sum)
    return families.values()
