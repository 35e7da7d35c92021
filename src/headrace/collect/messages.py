"""Readings as MQTT messages: topics and JSON payloads of the telemetry on the wire.

Owns the two shapes. Narrow is one message per reading; wide is one message per GPU (uuid and MIG
id) and event time. Reads no clock: the time of collection is passed in.
"""

from __future__ import annotations

import json
import math
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace import job_limits
from headrace.collect.instants import format_instant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from headrace.collect.readings import Reading

_FORBIDDEN: Final = dict.fromkeys((*map(ord, "/+#"), *range(0x20), *range(0x7F, 0xA0)), "_")
"""What parts levels or stands for them, and control characters, at which brokers end a connection
(MQTT 5.0 1.5.4)."""

_NUMBER: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_INTEGER: Final = re.compile(r"[+-]?\d{1,100}", re.ASCII)

_encode: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


class Message(NamedTuple):
    """What is published at once."""

    topic: str
    payload: bytes
    readings: int
    """Readings in it; 1 in the narrow shape."""


class Pause(NamedTuple):
    """What an input that goes on gives where it has no message now."""

    seconds: float = math.inf
    """Until it has one, if `Publisher.wake` does not tell of one before."""


def topic_level(text: str) -> str:
    """`text` as one level of a topic: `/ + #` and control characters become `_`.

    So does an empty level. A level is cut to `job_limits.TOPIC_LEVEL_BYTES_MAX` bytes of UTF-8;
    payloads hold the whole text.
    """
    level = text.translate(_FORBIDDEN) or "_"
    if len(level) * 4 <= job_limits.TOPIC_LEVEL_BYTES_MAX:
        return level
    return level.encode()[: job_limits.TOPIC_LEVEL_BYTES_MAX].decode(errors="ignore")


def number(raw: str) -> float | None:
    """The finite number that `raw` spells in ASCII, whole numbers exactly, or None."""
    text = raw.strip()
    if _INTEGER.fullmatch(text):
        return int(text)
    if _NUMBER.fullmatch(text) and math.isfinite(value := float(text)):
        return value
    return None


def narrow(readings: Iterable[Reading], now_us: Callable[[], int]) -> Iterator[Message]:
    """One message per reading, on `dcgm/{host}/{uuid}/{metric}`."""
    for reading in readings:
        payload = {
            "timestamp": reading.timestamp,
            "metric_name": reading.metric,
            "gpu_id": reading.uuid,
            "device": reading.device,
            "hostname": reading.host,
            "value": number(reading.raw),
            "raw": reading.raw,
            "labels": reading.labels,
            "event_time": reading.event_time,
            "ingest_time": format_instant(now_us()),
        }
        topic = _topic(reading.host, reading.uuid, reading.metric)
        yield Message(topic, _encode(payload).encode(), 1)


def wide(readings: Iterable[Reading], now_us: Callable[[], int]) -> Iterator[Message]:
    """One message per GPU and event time, on `dcgm/{host}/{uuid}`.

    A GPU's message ends where its next reading has another event time, other labels, or a metric
    that the message holds already, so that no reading replaces another, and where its values would
    be longer than `job_limits.WIDE_TEXT_LENGTH_MAX`. Messages leave in the order
    of their ends; at the end of the input, and at `job_limits.WIDE_MESSAGES_OPEN_MAX`, the longest
    open goes first.
    """
    open_groups: dict[tuple[str, ...], _Group] = {}
    for reading in readings:
        series = (reading.host, reading.uuid, reading.device, reading.labels.get("GPU_I_ID", ""))
        group = open_groups.get(series)
        if group is not None and not group.takes(reading):
            yield open_groups.pop(series).message(now_us())
            group = None
        if group is None:
            if len(open_groups) == job_limits.WIDE_MESSAGES_OPEN_MAX:
                yield open_groups.pop(next(iter(open_groups))).message(now_us())
            group = open_groups[series] = _Group(reading)
        group.add(reading)
    for group in open_groups.values():
        yield group.message(now_us())


@lru_cache(maxsize=8192)
def _topic(*levels: str) -> str:
    return "/".join(("dcgm", *map(topic_level, levels)))


class _Group:
    """Readings of one GPU at one instant."""

    __slots__ = ("_first", "_labels", "_length", "_metrics")

    def __init__(self, first: Reading) -> None:
        self._first = first
        self._labels = first.labels
        self._length = 0
        self._metrics: dict[str, str] = {}

    def takes(self, reading: Reading) -> bool:
        return (
            reading.timestamp == self._first.timestamp
            and reading.metric not in self._metrics
            and reading.labels == self._labels
            and self._length + len(reading.raw) <= job_limits.WIDE_TEXT_LENGTH_MAX
        )

    def add(self, reading: Reading) -> None:
        self._metrics[reading.metric] = reading.raw
        self._length += len(reading.metric) + len(reading.raw)

    def message(self, now_us: int) -> Message:
        first = self._first
        payload = {
            "timestamp": first.timestamp,
            "gpu_id": first.uuid,
            "device": first.device,
            "hostname": first.host,
            "metrics": self._metrics,
            "labels": self._labels,
            "event_time": first.event_time,
            "ingest_time": format_instant(now_us),
        }
        return Message(
            _topic(first.host, first.uuid), _encode(payload).encode(), len(self._metrics)
        )
