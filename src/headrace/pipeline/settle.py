"""Finds what is stored twice, what contradicts, and what is late.

Owns the three rules that look beyond one reading:

- duplicate: same UUID, MIG slice, metric, event time and raw text as one before it, be that a
  usable reading or a quarantined one; the first by partition and offset stays;
- conflict: same key, another value than a usable one before it;
- late: older, by more than the watermark, than the newest event time before it in its partition.

"Before" is log order, and what earlier micro-batches committed comes before this one. So the
verdicts depend on the log alone, not on where micro-batches were cut, as long as the readings of a
GPU are in one partition, as the stream's key sees to. Where two partitions hold the same reading,
which of the two is the duplicate follows from the cuts, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from headrace.pipeline import duck
from headrace.pipeline.schemas import DUPLICATES, QUARANTINE, READINGS

if TYPE_CHECKING:
    from collections.abc import Mapping

KEY: Final = ("uuid", "gpu_i_id", "metric", "event_time")

COMMITTED: Final = pa.schema(
    [
        ("uuid", pa.string()),
        ("gpu_i_id", pa.string()),
        ("metric", pa.string()),
        ("event_time", pa.timestamp("us", "UTC")),
        ("raw", pa.string()),
        ("value", pa.float64()),
    ]
)
"""What is to be known of earlier rows of `readings` and `quarantine`."""

_LOG_ORDER: Final = ("topic", "partition", "offset", "item")

_PLACE: Final = ", ".join(KEY)
_BEFORE: Final = (
    f"PARTITION BY {_PLACE} ORDER BY place ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"
)

# Few readings share their key with another: only those are compared.
_JUDGED: Final = f"""
    WITH mine AS (
        SELECT place, {_PLACE}, raw, value, hash({_PLACE}) AS key
        FROM readings
        WHERE uuid IS NOT NULL AND event_time IS NOT NULL AND metric IS NOT NULL
    ), earlier AS (
        SELECT -1 AS place, {_PLACE}, raw, value, hash({_PLACE}) AS key FROM committed
    ), shared AS (
        SELECT key FROM (SELECT key FROM mine UNION ALL SELECT key FROM earlier)
        GROUP BY key HAVING count(*) > 1
    ), compared AS (
        SELECT
            place,
            coalesce(
                min(value) OVER ({_BEFORE}) != value OR max(value) OVER ({_BEFORE}) != value,
                false
            ) AS conflict,
            row_number() OVER (PARTITION BY {_PLACE}, raw ORDER BY place) > 1 AS repeated
        FROM (FROM mine UNION ALL FROM earlier) SEMI JOIN shared USING (key)
    )
    SELECT
        CASE WHEN coalesce(repeated, false) THEN '{DUPLICATES}'
             WHEN reason IS NOT NULL THEN '{QUARANTINE}' ELSE '{READINGS}' END AS ends,
        coalesce(conflict, false) AS conflict,
        reason IS NULL AND coalesce(
            epoch_us(event_time) < greatest(epoch_us(newest_time), known.newest_us) - $watermark_us,
            false
        ) AS late
    FROM readings
    LEFT JOIN compared USING (place)
    LEFT JOIN known ON known.topic = readings.topic AND known.partition = readings.partition
    ORDER BY place"""


def settle(
    readings: pa.Table,
    committed: pa.Table,
    newest_us: Mapping[str, Mapping[str, int]],
    watermark_seconds: float,
) -> pa.Table:
    """Puts `readings` into log order and adds `ends` (a table), `conflict` and `late`.

    Args:
        readings: of one micro-batch, all of the GPUs in question.
        committed: rows of `readings` and `quarantine` from earlier micro-batches (`COMMITTED`), at
            least those within the event times of `readings`.
        newest_us: newest event time before this micro-batch, by stream and partition.
        watermark_seconds: how far behind the newest event time a reading is still in time.
    """
    ordered = readings.sort_by([(column, "ascending") for column in _LOG_ORDER])
    places = pa.array(range(ordered.num_rows), pa.int64())
    known = [
        {"topic": topic, "partition": int(partition), "newest_us": value}
        for topic, partitions in newest_us.items()
        for partition, value in partitions.items()
    ]
    schema = pa.schema(
        [("topic", pa.string()), ("partition", pa.int32()), ("newest_us", pa.int64())]
    )
    names = [*KEY, "topic", "partition", "reason", "newest_time", "raw", "value"]
    judged = duck.query(
        _JUDGED.replace("$watermark_us", str(round(watermark_seconds * 1_000_000))),
        readings=ordered.select(names).append_column("place", places),
        committed=committed,
        known=pa.Table.from_pylist(known, schema),
    )
    for name in judged.column_names:
        ordered = ordered.append_column(name, judged[name])
    return ordered
