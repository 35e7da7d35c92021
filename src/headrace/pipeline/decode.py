"""Messages to readings as text: one row for each reading, nothing judged yet.

Owns the payloads of "Telemetry on the wire" (narrow, wide, and the original document's JSON) and
where host, GPU, MIG slice and Kubernetes context are found in them. A message always gives at
least one row: one that holds no reading gives a row without a metric, so that it can be counted.

Expressions are written as SQL: one text crosses to the JVM, where a tree of Python calls would
cross node by node, for each micro-batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PAYLOAD: Final = (
    "timestamp string, event_time string, ingest_time string, metric_name string, gpu_id string, "
    "device string, hostname string, value string, raw string, metrics map<string, string>, "
    "labels map<string, string>, namespace string, pod string, container string"
)
"""All text: a value is typed later, from the text as it was read."""

_ITEMS: Final = """
    CASE WHEN size(p.metrics) > 0
    THEN transform(map_entries(p.metrics), e -> named_struct('metric', e.key, 'raw', e.value))
    ELSE array(named_struct('metric', p.metric_name, 'raw', coalesce(p.raw, btrim(p.value, '"'))))
    END"""
"""The readings of a message: its `metrics`, else its one `metric_name`; never empty. (A bare NaN,
which is no JSON, comes out of Spark in quotes.)"""


def _first(*candidates: str) -> str:
    """The first candidate that is neither null nor empty, without the blanks around it."""
    texts = ", ".join(f"nullif(trim({candidate}), '')" for candidate in candidates)
    return f"coalesce({texts})"


def _context(name: str, legacy: str) -> str:
    """Kubernetes context.

    Prometheus renames the exporter's label to `exported_…` where its own target has one of that
    name, so the renamed one is the GPU's.
    """
    found = _first(
        f"p.{name}", f"labels['exported_{name}']", f"labels['{name}']", f"labels['{legacy}']"
    )
    return f"coalesce({found}, '')"


def _header(name: str) -> str:
    return f"cast(get(filter(headers, h -> h.key = '{name}'), 0).value AS string)"


_UUID: Final = _first(
    r"CASE WHEN NOT p.gpu_id RLIKE r'^\s*\d+\s*$' THEN p.gpu_id END",
    "labels['UUID']", "labels['uuid']", "labels['gpu_uuid']",
)  # fmt: skip
"""`gpu_id`, unless it is only an index on its host, as exporters have it."""

_INDEX: Final = _first(
    "labels['gpu']",
    r"regexp_extract(p.gpu_id, r'^\s*(\d{1,4})\s*$', 1)",
    r"regexp_extract(p.device, r'^nvidia(\d{1,4})$', 1)",
)

_METRIC: Final = "nullif(trim(reading.metric), '')"

_COLUMNS: Final = {
    "event_time_text": _first("p.event_time", "p.timestamp"),
    "ingest_time_text": "p.ingest_time",
    "metric_text": _METRIC,
    "raw": "reading.raw",
    "uuid": _UUID,
    "host": _first("p.hostname", "labels['hostname']", "labels['Hostname']"),
    "device": _first("p.device", "labels['device']"),
    "gpu_index": f"try_cast({_INDEX} AS int)",
    "gpu_i_id": "coalesce(trim(labels['GPU_I_ID']), '')",
    "gpu_i_profile": "coalesce(trim(labels['GPU_I_PROFILE']), '')",
    "model": _first("labels['model_name']", "labels['modelName']"),
    "driver": _first("labels['driver_version']", "labels['DCGM_FI_DRIVER_VERSION']"),
    "namespace": _context("namespace", "pod_namespace"),
    "pod": _context("pod", "pod_name"),
    "container": _context("container", "container_name"),
    "labels": "labels",
    "source": _header("source"),
    "source_epoch": f"try_cast({_header('epoch')} AS bigint)",
    "source_sequence": f"try_cast({_header('sequence')} AS bigint)",
    "payload": f"CASE WHEN {_METRIC} IS NULL THEN value END",
}


def decode(messages: DataFrame) -> DataFrame:
    """Readings of `messages` (columns of `format("headrace")`) as text.

    Returns:
        `topic, partition, offset, item, stored_time` and the payload's texts. Where the message
        holds no reading, `metric_text` is null and `payload` is the message.
    """
    return (
        messages.selectExpr("*", f"from_json(cast(value AS string), '{_PAYLOAD}') AS p")
        .selectExpr("*", "coalesce(p.labels, map()) AS labels")
        .selectExpr("*", f"posexplode({_ITEMS}) AS (item, reading)")
        .selectExpr(
            "topic", "partition", "offset", "item", "timestamp AS stored_time",
            *(f"{expression} AS {name}" for name, expression in _COLUMNS.items()),
        )
    )  # fmt: skip
