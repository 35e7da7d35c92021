"""Streams of a node, as they are told of."""

from dataclasses import dataclass

from headrace.model import StreamDefinition
from headrace.settings import Settings


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """One partition: records in `[start, end)`, bytes on disk."""

    partition: int
    start: int
    end: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class StreamReport:
    """A stream, what holds for what it leaves open, and where its partitions stand."""

    definition: StreamDefinition
    defaults: Settings
    partitions: tuple[PartitionReport, ...]
