"""Finds what is stored twice, what contradicts, and what is late.

Owns the three rules that look beyond one reading:

- duplicate: same UUID, MIG slice, metric, event time and raw text as one before it, be that a
  usable reading or a quarantined one; the first by partition and offset stays;
- conflict: same key, another value than a usable one before it;
- late: older, by more than the watermark, than the newest event time before it in its partition.

"Before" is log order, and what earlier micro-batches committed comes before this one. So the
verdicts depend on the log alone, not on where micro-batches were cut.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.pipeline.schemas import DUPLICATES, QUARANTINE, READINGS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

KEY: Final = ("uuid", "gpu_i_id", "metric", "event_time")


def settle(
    readings: DataFrame,
    committed: DataFrame | None,
    newest_us: Mapping[str, Mapping[str, int]],
    watermark_seconds: float,
) -> DataFrame:
    """Adds `table`, `conflict` and `late` to cleaned readings of one micro-batch.

    Args:
        readings: what `clean` gives.
        committed: rows of `readings` and `quarantine` from earlier micro-batches with the columns
            `KEY`, `raw` and `value`, at least those within the event times of `readings`; None
            where there are none.
        newest_us: newest event time before this micro-batch, by stream and partition.
        watermark_seconds: how far behind the newest event time a reading is still in time.
    """
    rows = _late(readings, newest_us, watermark_seconds).selectExpr("*", "false AS committed")
    if committed is not None:
        earlier = committed.selectExpr(*KEY, "raw", "value", "true AS committed")
        rows = rows.unionByName(earlier, allowMissingColumns=True)
    return (
        rows.selectExpr("*", f"{_DIFFERS} AS conflict", f"{_NTH_OF_RAW} AS nth_of_raw")
        .filter("NOT committed")
        .selectExpr("* EXCEPT (committed, nth_of_raw)", f"{_TABLE} AS table")
    )


_HOLE: Final = "uuid IS NULL OR event_time IS NULL OR metric IS NULL"
_LONE: Final = f"CASE WHEN {_HOLE} THEN concat_ws('/', topic, partition, offset, item) END"
"""Sets each row apart whose key has a hole in it: it repeats no other."""

_PARTITION: Final = f"PARTITION BY {', '.join(KEY)}, {_LONE}"
_ORDER: Final = "ORDER BY committed DESC, topic, partition, offset, item"
_BEFORE: Final = f"{_PARTITION} {_ORDER} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"

_DIFFERS: Final = (
    f"coalesce(min(value) OVER ({_BEFORE}) != value OR max(value) OVER ({_BEFORE}) != value, false)"
)
_NTH_OF_RAW: Final = f"row_number() OVER ({_PARTITION}, raw {_ORDER})"

_TABLE: Final = (
    f"CASE WHEN nth_of_raw > 1 THEN '{DUPLICATES}' "
    f"WHEN reason IS NOT NULL THEN '{QUARANTINE}' ELSE '{READINGS}' END"
)


def _late(
    readings: DataFrame, newest_us: Mapping[str, Mapping[str, int]], watermark_seconds: float
) -> DataFrame:
    """Adds `late`.

    Quarantined event times move no clock: one that is wrong would make all that follows late.
    """
    newest = (
        "greatest(max(CASE WHEN reason IS NULL THEN unix_micros(event_time) END) OVER "
        "(PARTITION BY topic, partition ORDER BY offset, item "
        f"ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), {_known(newest_us)})"
    )
    watermark_us = round(watermark_seconds * 1_000_000)
    late = f"reason IS NULL AND unix_micros(event_time) < {newest} - {watermark_us}"
    return readings.selectExpr("*", f"coalesce({late}, false) AS late")


def _known(newest_us: Mapping[str, Mapping[str, int]]) -> str:
    """SQL for the newest event time of a row's partition before this micro-batch."""
    known = [
        f"WHEN topic = '{topic}' AND partition = {partition} THEN {value}L"
        for topic, partitions in newest_us.items()
        for partition, value in partitions.items()
    ]
    return f"CASE {' '.join(known)} END" if known else "cast(null AS bigint)"
