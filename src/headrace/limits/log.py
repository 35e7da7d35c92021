"""Bounds of the log: journal, segments, retention, compaction, reads."""

from typing import Final

from headrace.limits.units import DAY_MS, GIB, KIB, MIB

JOURNAL_BYTES: Final = 64 * MIB
"""Journal of one node: half a second of appends at 128 MB/s before segments must be synced."""

JOURNAL_BYTES_MIN: Final = MIB

JOURNAL_BYTES_CEILING: Final = 16 * GIB

SEGMENT_BYTES: Final = GIB
"""Segment file, Kafka's default (`segment.bytes`)."""

SEGMENT_BYTES_MIN: Final = 64 * KIB

SEGMENT_BYTES_CEILING: Final = 2 * GIB - 1
"""Index entries hold positions of 31 bits, as Kafka's do."""

SEGMENT_MS: Final = 7 * DAY_MS
"""Age of a segment, Kafka's default (`segment.ms`)."""

SEGMENT_INDEX_BYTES: Final = 10 * MIB
"""Index of a segment, Kafka's default (`segment.index.bytes`)."""

SEGMENT_INDEX_BYTES_MIN: Final = 24
"""One entry of each index and the last of the time index (`headrace-core::log::settings`)."""

RETENTION_MS: Final = 7 * DAY_MS
"""Kafka's default (`log.retention.hours`): a disk that nobody watches does not fill in silence."""

RETENTION_CHECK_MS: Final = 300_000
"""How often retention is asked for, Kafka's default (`log.retention.check.interval.ms`)."""

COMPACTION_BYTES_PER_SECOND: Final = 100 * MIB
"""Read and written by compaction (setting `log.compaction_bytes_per_second`): half of what a plain
disk gives, so that appends go on beside it. Kafka's own (`log.cleaner.io.max.bytes.per.second`) is
no bound."""

COMPACTION_BYTES_PER_SECOND_MIN: Final = 64 * KIB

RETENTION_FIRST_MS: Final = 30_000
"""From the start of a node to the first time, Kafka's own (`LogManager.InitialTaskDelayMs`)."""

DELETE_RETENTION_MS: Final = DAY_MS
"""Kafka's default (`delete.retention.ms`): a reader that starts at the beginning has a day to see
the tombstone of what it has seen."""

FLUSH_MS: Final = 1000
"""Default of `flush.ms` under `fsync = "interval"`; Kafka's own is for ever."""

INDEX_INTERVAL_BYTES: Final = 4 * KIB
"""Log bytes between index entries, Kafka's default (`index.interval.bytes`)."""

DIRECT_WRITE_BYTES: Final = MIB
"""Run of batches that goes straight to its segment: beyond it, writing twice costs more than a
second fdatasync, which on a growing file waits for the file system's journal too (ADR 0003)."""

RESERVE_BYTES: Final = 256 * MIB
"""What is left of a disk when appends are refused: a journal file and the indexes of open segments
fit in, and what other programs write until the disk is looked at again, each second."""

RESERVE_BYTES_CEILING: Final = 1024 * GIB
"""More than that is a disk of another's."""

DIRECT_WRITE_BYTES_MIN: Final = 4 * KIB
"""A page: what precedes the first page boundary goes through the journal in any case."""

DAMAGED_PLACES_MAX: Final = 1_000
"""Damaged places of logs that a node remembers to have named: about 300 KB. Where there are more,
`headrace log verify` has the list."""

READS_MAX: Final = 10_000
"""Reads that may wait for the disk; further ones are refused. A connection waits for one
at a time once half as many wait, so that only thousands that all read old records ever meet it."""
