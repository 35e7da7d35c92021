"""Alerts: which detections open and end from one version of the tables to the next.

A pure part. An alert is a detection that is no mere information, under the topic
`alerts/{kind}/{host}/{uuid}`; of several slices of one GPU the first that opened. Owns what is
said of it, and that each change is decided once: it is part of the version that made it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal

from headrace.collect.messages import topic_level

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

TOPICS: Final = "alerts"
State = Literal["open", "resolved", "withdrawn"]
"""Withdrawn: readings that came late say that there was nothing."""

_SAID: Final = (
    "id", "kind", "severity", "uuid", "gpu_i_id", "host", "gpu_index", "model", "namespace", "pod",
    "container", "text", "evidence",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Change:
    """An alert that opened or ended.

    Attributes:
        topic: of the alert.
        state: what became of it.
        payload: what is said of it, JSON.
    """

    topic: str
    state: State
    payload: str


def topic_of(row: Mapping[str, Any]) -> str:
    """The topic of a detection."""
    levels = (topic_level(row[name] or "") for name in ("kind", "host", "uuid"))
    return "/".join((TOPICS, *levels))


def changed(
    known: Mapping[str, str], rows: Iterable[Mapping[str, Any]], query: str
) -> tuple[dict[str, str], list[Change]]:
    """The alerts that are open now, and what has changed.

    Args:
        known: payloads of the alerts that were open before, by topic.
        rows: detections of `watch` that are open, and those that ended since.
        query: id of the streaming query, by which a broker's alerts are told apart.
    """
    held = [row for row in rows if row["severity"] != "info"]
    ended = {row["id"]: row for row in held if row["end_us"] is not None}
    begun: dict[str, Mapping[str, Any]] = {}
    for row in sorted(held, key=lambda row: (row["start_us"], row["id"])):
        if row["end_us"] is None:
            begun.setdefault(topic_of(row), row)
    changes: list[Change] = []
    for topic, payload in known.items():
        said = json.loads(payload)
        end = ended.get(said["id"])
        if end is None and topic not in begun:
            end = _moved(said, ended.values())
        if end is not None:
            changes.append(Change(topic, "resolved", _payload(end, "resolved", query)))
        elif topic not in begun:
            text = json.dumps(said | {"state": "withdrawn"}, sort_keys=True)
            changes.append(Change(topic, "withdrawn", text))
    over = {change.topic for change in changes}
    still: dict[str, str] = {}
    for topic, row in begun.items():
        if topic in known and topic not in over:
            still[topic] = known[topic]
        else:
            still[topic] = _payload(row, "open", query)
            changes.append(Change(topic, "open", still[topic]))
    return still, changes


def _moved(said: Mapping[str, Any], ended: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The detection that an alert was about, where readings that came late have moved its start."""
    since_us = datetime.fromisoformat(said["start"]).timestamp() * 1e6
    return max(
        (
            row
            for row in ended
            if all(row[name] == said[name] for name in ("kind", "uuid", "gpu_i_id"))
            and row["end_us"] > since_us
        ),
        key=lambda row: row["end_us"],
        default=None,
    )


def _payload(row: Mapping[str, Any], state: State, query: str) -> str:
    said = {name: row[name] for name in _SAID}
    instants = {name: _instant(row[f"{name}_us"]) for name in ("start", "end")}
    return json.dumps({"state": state, "query": query, **said, **instants}, sort_keys=True)


def _instant(time_us: int | None) -> str | None:
    if time_us is None:
        return None
    return datetime.fromtimestamp(time_us / 1e6, UTC).isoformat(timespec="milliseconds")


def missed(
    alerts: Mapping[str, str], retained: Mapping[str, str] | None, changes: Sequence[Change]
) -> list[Change]:
    """What is still to be published after a run that ended before it had said all.

    Args:
        alerts: payloads of the alerts that are open, by topic.
        retained: payloads that the broker holds of this query, by topic; None where it tells
            nobody: then all that is open is said, and all that ended last.
        changes: those of the last version that made any.
    """
    ends = {change.topic: change for change in changes if change.state != "open"}
    if retained is None:
        opened = (Change(topic, "open", payload) for topic, payload in alerts.items())
        return [*ends.values(), *opened]
    said = {topic: json.loads(payload) for topic, payload in retained.items()}
    found: list[Change] = []
    for topic in retained:
        if topic in alerts and said[topic]["id"] == json.loads(alerts[topic])["id"]:
            continue
        gone = json.dumps(said[topic] | {"state": "resolved"}, sort_keys=True)
        found.append(ends.get(topic, Change(topic, "resolved", gone)))
    found += [
        Change(topic, "open", payload)
        for topic, payload in alerts.items()
        if said.get(topic, {}).get("id") != json.loads(payload)["id"]
    ]
    return found
