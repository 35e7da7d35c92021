"""Which small files become one, so that there are few, however many micro-batches there were.

A pure part. Owns two ways of growing. Files whose rows may lie anywhere (`readings`) are merged
with others of about their size: a row is written again once for each eightfold. Files that hold a
stretch of time alone (`gpu_intervals`) are merged into longer stretches, twelve in one, once all
of that time is settled. Only what is *cold* is merged: files that new readings hardly touch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace import job_limits

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from headrace.pipeline.manifest import TableFile

FEW: Final = 8
"""Files of about one size that become one; fewer are left alone."""

_LONGER: Final = 12
"""Stretches of time in one of the next length: minutes, twelve minutes, two hours, a day."""

_LONGEST_US: Final = 24 * 3600 * 1_000_000
"""A stretch that long or longer is long enough."""

_SMALLEST_BYTES: Final = 64 * 1024


def alike(
    files: Iterable[TableFile], cold_us: int, fewest: int, ahead_us: int | None = None
) -> list[list[TableFile]]:
    """Groups of files of about one size, each of `fewest` files at least.

    Args:
        files: of one table and bucket; none holds a stretch of time alone.
        cold_us: files that reach beyond it are left alone, in microseconds since the epoch.
        fewest: `FEW`; less merges all that can be merged, whatever the sizes.
        ahead_us: files that lie behind it as a whole, as those of a host whose clock is ahead, are
            merged with each other. None: they are left alone.
    """
    by_tier: dict[tuple[bool, int], list[TableFile]] = {}
    for file in sorted(files, key=lambda file: (file.min_time_us or 0, file.path)):
        is_cold = file.max_time_us is None or file.max_time_us < cold_us
        is_ahead = ahead_us is not None and (file.min_time_us or 0) > ahead_us
        if (is_cold or is_ahead) and file.bytes < job_limits.PIPELINE_MERGED_BYTES_MAX // 2:
            tier = 0 if fewest < FEW else _tier(file.bytes)
            by_tier.setdefault((is_ahead, tier), []).append(file)
    found = [group for tier in by_tier.values() for group in _packed(tier)]
    return [group for group in found if len(group) >= fewest]


def _tier(size: int) -> int:
    tier = 0
    while size >= _SMALLEST_BYTES:
        size //= FEW
        tier += 1
    return tier


def _packed(files: Iterable[TableFile]) -> Iterator[list[TableFile]]:
    """Neighbours, together not larger than one file may be."""
    group: list[TableFile] = []
    size = 0
    for file in files:
        if group and size + file.bytes > job_limits.PIPELINE_MERGED_BYTES_MAX:
            yield group
            group, size = [], 0
        group.append(file)
        size += file.bytes
    if group:
        yield group


def longer(
    files: Iterable[TableFile], shortest_us: int, cold_us: int
) -> list[tuple[tuple[int, int], list[TableFile]]]:
    """Stretches of time that become one file each, and the files in them.

    Args:
        files: of one table and bucket, each with its stretch of time (`chunk`).
        shortest_us: length of the stretch that files begin with, in microseconds.
        cold_us: stretches that reach beyond it are left alone, in microseconds since the epoch.
    """
    found: list[tuple[tuple[int, int], list[TableFile]]] = []
    left = list(files)
    sizes = [shortest_us]
    while sizes[-1] < _LONGEST_US:
        sizes.append(sizes[-1] * _LONGER)
    for size in reversed(sizes[1:]):
        windows: dict[int, list[TableFile]] = {}
        for file in left:
            start, end = _stretch(file)
            if end - start < size:
                windows.setdefault(start - start % size, []).append(file)
        for start, group in windows.items():
            is_cold = start + size <= cold_us
            fits = sum(file.bytes for file in group) <= job_limits.PIPELINE_MERGED_BYTES_MAX
            if len(group) > 1 and is_cold and fits:
                found.append(((start, start + size), group))
                left = [file for file in left if file not in group]
    return found


def _stretch(file: TableFile) -> tuple[int, int]:
    assert file.chunk is not None, f"{file.path} holds no stretch of time alone"
    return file.chunk
