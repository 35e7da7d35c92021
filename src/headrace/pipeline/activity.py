"""When a stream of telemetry goes on, and when all of it is silent.

A pure part. A GPU has vanished when nothing comes of it while others report. Where nobody reports,
as while a broker or a network is down, the time that goes by says nothing of a single GPU: it
counts up to the staleness, for which a GPU may be silent anyway, and no further.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa


class Activity:
    """The time for which a stream went on, until the end of the newest interval that was seen.

    Args:
        staleness_us: longest time between two scrapes of a GPU that still reports, in microseconds.
        seen_us: end of the newest interval; 0 before the first.
        paused_us: time until then that does not count.
    """

    def __init__(self, staleness_us: int, seen_us: int = 0, paused_us: int = 0) -> None:
        self._staleness_us = staleness_us
        self.seen_us = seen_us
        self.paused_us = paused_us
        self._before_us = paused_us  # the first of the pauses below
        self._ends: list[int] = []
        self._sums: list[int] = []

    def saw(self, starts: pa.ChunkedArray, ends: pa.ChunkedArray) -> None:
        """Takes note of intervals of any GPUs, in any order; of what is older it knows already.

        The pauses between them are known until the next call.
        """
        self._before_us, self._ends, self._sums = self.paused_us, [], []
        if not len(starts):
            return
        first, last = starts.to_numpy(), ends.to_numpy()
        order = np.argsort(first, kind="stable")
        first, last = first[order], last[order]
        reached = np.maximum.accumulate(np.maximum(last, self.seen_us))
        before = np.concatenate(([self.seen_us or first[0]], reached[:-1]))
        over = first - before - self._staleness_us
        places = np.flatnonzero(over > 0)
        self._ends = first[places].tolist()
        self._sums = list(accumulate(over[places].tolist()))
        self.seen_us = int(reached[-1])
        self.paused_us = self._before_us + (self._sums[-1] if self._sums else 0)

    def at(self, time_us: int) -> int:
        """The time that counts, until an instant at which an interval began or ended.

        It has no zero of its own: two of them may be compared.
        """
        place = bisect_right(self._ends, time_us)
        paused_us = self._before_us + (self._sums[place - 1] if place else 0)
        return min(time_us, self.seen_us) - paused_us
