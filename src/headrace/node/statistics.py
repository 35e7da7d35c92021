"""What a node counts, read out of its parts as samples. Decides names and texts only."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from headrace import limits
from headrace.node.meanings import HELP
from headrace.ports import Histogram, NodeState, Sample

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from headrace.kernel.damage import FailedReads
    from headrace.native import Switchboard
    from headrace.node.broker import Broker
    from headrace.ports import Listener, Store

APPEND_SECONDS: Final = "append_seconds"
"""The store's histogram, told flat like everything else: buckets, count and sum."""

_LABELLED: Final = re.compile(r'(\w+)\{(\w+)="([^"]*)"\}')


def of_node(name: str, state: NodeState, listeners: Mapping[str, Listener]) -> Iterator[Sample]:
    """The node itself and its doors."""
    for each in NodeState:
        yield Sample(
            "node_state",
            float(each is state),
            "1 for the state that the node is in.",
            (("node", name), ("state", each.value)),
        )
    for door, listener in listeners.items():
        label = (("door", door),)
        yield Sample("connections", listener.connections, "Open connections.", label)
        for reason, count in listener.refused.items():
            yield Sample(
                "connections_refused_total",
                count,
                "Connections that did not reach their door, or failed below it.",
                (*label, ("reason", reason)),
            )


def of_switchboard(switchboard: Switchboard) -> Iterator[Sample]:
    """The data plane of MQTT, under its own names."""
    for name, value in switchboard.statistics().items():
        yield _sample("", name, value)


def of_store(store: Store) -> Iterator[Sample]:
    """The journal and the segments, with the prefix `log_`."""
    for name, value in store.statistics().items():
        if not name.startswith(APPEND_SECONDS):
            yield _sample("log_", name, value)


def of_failed_reads(failed: FailedReads) -> Iterator[Sample]:
    """Counts by reason, and places."""
    for reason, count in failed.counts.items():
        yield Sample(
            "log_reads_failed_total",
            count,
            "Reads of a log that failed: it is damaged there, or its storage fails.",
            (("reason", reason),),
        )
    yield Sample(
        "log_damaged_places",
        len(failed.places),
        "Damaged places that readers have met since the start; the log names each.",
    )


def histograms(store: Store) -> Iterator[Histogram]:
    """How long appends took."""
    values = store.statistics()
    buckets = [
        (match[3], value)
        for name, value in values.items()
        if (match := _LABELLED.fullmatch(name)) and match[1] == f"{APPEND_SECONDS}_bucket"
    ]
    yield Histogram(
        "log_append_seconds",
        "Time from queueing an append until it is durable.",
        tuple(sorted(buckets, key=lambda bucket: float(bucket[0]))),
        values[f"{APPEND_SECONDS}_sum"],
    )


def of_streams(broker: Broker) -> Iterator[Sample]:
    """Where each partition stands."""
    for stream in broker.catalog.streams():
        for report in broker.report(stream.name).partitions:
            label = (("stream", stream.name), ("partition", str(report.partition)))
            yield Sample("stream_start_offset", report.start, "First offset kept.", label)
            yield Sample("stream_end_offset", report.end, "Offset after the last durable.", label)
            yield Sample("stream_size_bytes", report.size_bytes, "Bytes of segments.", label)


def of_stream_readers(broker: Broker, switchboard: Switchboard) -> Iterator[Sample]:
    """How far MQTT clients are behind in the streams that they read.

    By stream, not by client: there may be a million of those, and they choose their names. And the
    one that is furthest behind, not all of them together: it is the first that retention takes
    records from, and a sum would grow with each client that comes. Apart for those that are away,
    as that they fall behind is what their sessions are for; of a connected one it says that it is
    too slow. `headrace sessions show` tells which it is.
    """
    read = set(switchboard.streams_read())
    names: dict[int, str] = {
        each.id: each.name for each in broker.catalog.streams() if each.id in read
    }
    bounds = {
        stream: [each.bounds for each in broker.partitions(name)] for stream, name in names.items()
    }
    lags, left_out = switchboard.stream_lags(bounds, limits.STREAM_LAG_STEPS_MAX)
    for stream, by_state in lags.items():
        for state, lag in zip(("connected", "away"), by_state, strict=True):
            label = (("stream", names[stream]), ("state", state))
            yield Sample(
                "mqtt_stream_lag_records",
                lag,
                "Records not sent to the MQTT subscription that is furthest behind.",
                label,
            )
    yield Sample(
        "mqtt_stream_lags_left_out",
        left_out,
        "Subscriptions to streams whose lag is left out, as there are too many.",
    )


def of_retention(broker: Broker) -> Iterator[Sample]:
    """What was let go, and why."""
    for reason, trimmed in broker.trimmed.items():
        label = (("reason", reason),)
        yield Sample("log_trimmed_records_total", trimmed.records, "Records let go.", label)
        yield Sample("log_trimmed_bytes_total", trimmed.bytes, "Bytes of segments let go.", label)


def _sample(prefix: str, name: str, value: float) -> Sample:
    match = _LABELLED.fullmatch(name)
    labels = () if match is None else ((match[2], match[3]),)
    name = prefix + (name if match is None else match[1])
    return Sample(name, value, HELP.get(name, ""), labels)
