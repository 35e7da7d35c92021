"""Has the switchboard say below `$SYS/broker` how the node is, at intervals.

Performs what `kernel.announcements` decides. Each round costs what a scrape of `/metrics` does.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from headrace.kernel.announcements import Announcements

if TYPE_CHECKING:
    from headrace.native import Switchboard
    from headrace.node.runner import Runner
    from headrace.ports import Clock


class Announcing:
    """The rounds of one node.

    Args:
        interval_ms: between two of them; 0 for none.
    """

    def __init__(
        self, version: str, interval_ms: int, clock: Clock, switchboard: Switchboard, runner: Runner
    ) -> None:
        self._interval_ms = interval_ms
        self._clock = clock
        self._switchboard = switchboard
        self._runner = runner
        self._announcements = Announcements(version, clock.mono_ms())
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begins, with a round at once."""
        if self._interval_ms:
            self._round()

    def set_interval(self, interval_ms: int) -> None:
        """Goes on at another interval."""
        self.stop()
        self._interval_ms = interval_ms
        self.start()

    def stop(self) -> None:
        """Says nothing more; what was said stays."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _round(self) -> None:
        mono_ms, wall_ms = self._clock.now()
        for topic, payload in self._announcements.due(self._switchboard.statistics(), mono_ms):
            self._switchboard.announce(topic, payload, mono_ms, wall_ms)
        self._runner.wake()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._interval_ms / 1000, self._round)
