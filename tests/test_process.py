"""What a process is seen to do: its threads, and how late its event loop comes."""

import asyncio
import time

from headrace.adapters import process
from headrace.adapters.process import BOUNDS_SECONDS, LoopLag


def test_a_loop_that_is_held_up_is_seen_to_be():
    async def held_up():
        lag = LoopLag()
        time.sleep(0.35)  # noqa: ASYNC251 - this is what it is to see
        await asyncio.sleep(0)  # the loop collects what is due
        await asyncio.sleep(0)  # and has called it
        lag.stop()
        return next(lag.histograms())

    seen = asyncio.run(held_up())
    assert [bound for bound, _ in seen.buckets] == [*map(str, BOUNDS_SECONDS), "+Inf"]
    counts = dict(seen.buckets)
    assert (counts["0.1"], counts["+Inf"]) == (0, 1)
    assert seen.sum >= 0.25


def test_threads_are_counted():
    (threads,) = process.samples()
    assert threads.value >= 1
