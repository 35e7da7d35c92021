"""What a node says of itself below `$SYS/broker`: topics and payloads as mosquitto has them.

Pure. Owns names, forms and moving averages. Must not know who publishes them. Says only what has
changed since it was last asked, so that a quiet node is quiet here too.

Source: mosquitto(8), "Broker Status". Left out is what headrace has not (bridges, the heap).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PREFIX: Final = "$SYS/broker/"

MINUTES: Final = (1, 5, 15)
"""Over which loads are averaged, like those of `uptime`."""

GAUGES: Final = {
    "clients/total": ("mqtt_sessions",),
    "clients/disconnected": ("mqtt_sessions_away",),
    "clients/inactive": ("mqtt_sessions_away",),
    "clients/expired": ("mqtt_sessions_expired_total",),
    "messages/received": ("mqtt_packets_received_total",),
    "messages/sent": ("mqtt_packets_sent_total",),
    "publish/messages/received": ("mqtt_messages_received_total",),
    "publish/messages/sent": ("mqtt_messages_delivered_total", "mqtt_messages_sent_again_total"),
    "publish/bytes/received": ("mqtt_payload_bytes_received_total",),
    "publish/bytes/sent": ("mqtt_payload_bytes_sent_total",),
    "bytes/received": ("mqtt_bytes_received_total",),
    "bytes/sent": ("mqtt_bytes_sent_total",),
    "subscriptions/count": ("mqtt_subscriptions",),
    "shared_subscriptions/count": ("mqtt_shared_members",),
    "retained messages/count": ("mqtt_retained_messages",),
    "store/messages/count": (
        "mqtt_retained_messages",
        "mqtt_outbound_queued_messages",
        "mqtt_outbound_in_flight",
        "mqtt_shared_queued_messages",
    ),
    "store/messages/bytes": ("mqtt_retained_bytes", "mqtt_queued_bytes"),
}
"""Topics, and the figures of the switchboard whose sum each tells."""

LOADS: Final = {
    "load/messages/received": "messages/received",
    "load/messages/sent": "messages/sent",
    "load/publish/received": "publish/messages/received",
    "load/publish/sent": "publish/messages/sent",
    "load/publish/dropped": "publish/messages/dropped",
    "load/bytes/received": "bytes/received",
    "load/bytes/sent": "bytes/sent",
}
"""Topics of what comes in a minute, and the topics whose growth that is."""

DROPPED: Final = "mqtt_messages_dropped_total"
SOCKETS: Final = "mqtt_connections_opened_total"
CONNECTS: Final = "mqtt_connects_total"


class Announcements:
    """What is to be said, from one time to the next.

    Args:
        version: of the software, as `headrace version 1.2.3`.
        mono_ms: when the node started.
    """

    def __init__(self, version: str, mono_ms: int) -> None:
        self._version = version
        self._started_ms = mono_ms
        self._asked_ms = mono_ms
        self._clients_max = 0
        self._before: dict[str, int] = {}
        self._loads: dict[tuple[str, int], float] = {}
        self._said: dict[str, bytes] = {}

    def due(self, figures: Mapping[str, int], mono_ms: int) -> list[tuple[str, bytes]]:
        """Topics and payloads that are not what they were when it was asked before.

        `figures` are those of `Switchboard.statistics`.
        """
        counts = self._counts(figures)
        uptime_s = (mono_ms - self._started_ms) // 1000
        said = {
            "version": self._version,
            "uptime": f"{uptime_s} seconds",
            **{topic: str(count) for topic, count in counts.items() if topic in _TOLD},
            **dict(self._averages(counts, mono_ms - self._asked_ms)),
        }
        self._before, self._asked_ms = counts, mono_ms
        payloads = {PREFIX + topic: text.encode() for topic, text in said.items()}
        changed = [each for each in payloads.items() if self._said.get(each[0]) != each[1]]
        self._said = payloads
        return changed

    def _counts(self, figures: Mapping[str, int]) -> dict[str, int]:
        counts = {topic: sum(figures[name] for name in names) for topic, names in GAUGES.items()}
        connected = counts["clients/total"] - counts["clients/disconnected"]
        self._clients_max = max(self._clients_max, counts["clients/total"])
        dropped = sum(value for name, value in figures.items() if name.startswith(DROPPED))
        return {
            **counts,
            "clients/connected": connected,
            "clients/active": connected,
            "clients/maximum": self._clients_max,
            "publish/messages/dropped": dropped,
            "load/sockets": figures[SOCKETS],
            "load/connections": figures[CONNECTS],
        }

    def _averages(self, counts: Mapping[str, int], elapsed_ms: int) -> Iterator[tuple[str, str]]:
        """Of each load, its exponentially weighted mean in a minute."""
        for load, topic in (*LOADS.items(), *((each, each) for each in _COUNTED_FOR_LOADS)):
            grown = counts[topic] - self._before.get(topic, 0)
            for minutes in MINUTES:
                mean = self._loads.get((load, minutes), 0.0)
                if elapsed_ms > 0:
                    in_a_minute = grown * 60_000 / elapsed_ms
                    weight = math.exp(-elapsed_ms / (minutes * 60_000))
                    mean = in_a_minute + weight * (mean - in_a_minute)
                self._loads[load, minutes] = mean
                yield f"{load}/{minutes}min", f"{mean:.2f}"


_COUNTED_FOR_LOADS: Final = ("load/sockets", "load/connections")

_TOLD: Final = frozenset(GAUGES) | {
    "clients/connected",
    "clients/active",
    "clients/maximum",
    "publish/messages/dropped",
}
