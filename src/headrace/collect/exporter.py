"""Exporters asked round after round: pages to batches, and what is wrong to lines of a log.

Owns the rounds, and what is said and counted of each exporter. A page is had by `scrape` and read
by `exposition`. Everything here runs on one event loop.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import time
from collections import Counter
from typing import TYPE_CHECKING, Final

from headrace import job_limits
from headrace.collect.background import rounds
from headrace.collect.conditions import Condition
from headrace.collect.exposition import Scrape, read_page
from headrace.collect.feed import Batch
from headrace.errors import ScrapeError
from headrace.text import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.collect.exposition import Page
    from headrace.collect.feed import Feed
    from headrace.collect.scrape import Scraper, Target

_MEMORY_PER_TEXT: Final = 2
"""What readings hold of memory, to the characters of their page."""
_READING_BYTES: Final = 300
"""And at least."""
_STALE_ROUNDS_MIN: Final = 4
_SERVED_ROUNDS: Final = 3
"""Rounds for which a GPU is taken to be at the exporter that served it last."""
_SHOWN: Final = 80
"""Characters of a line of a page that are shown."""


class Exporters:
    """Asks exporters and feeds what they say.

    Args:
        targets: the exporters.
        scraper: has their pages.
        feed: takes the readings.
        interval_s: from the beginning of a scrape to that of the next; None asks each once.
        say: prints a line for a person.
    """

    def __init__(
        self,
        targets: Sequence[Target],
        scraper: Scraper,
        feed: Feed,
        *,
        interval_s: float | None,
        say: Callable[[str], None],
    ) -> None:
        self._scraper = scraper
        self._feed = feed
        self._interval_s = interval_s
        self._say = say
        self._at_once = asyncio.Semaphore(job_limits.EXPORTER_SCRAPES_MAX)
        self._watches = [Watch(target, interval_s) for target in targets]
        self._served: dict[str, tuple[Watch, float]] = {}
        self.counts = Counter[str]()

    async def run(self) -> None:
        """Returns after one scrape of each where there is no interval, else never."""
        async with asyncio.TaskGroup() as tasks:
            for watch in self._watches:
                tasks.create_task(self._ask_on(watch))

    async def _ask_on(self, watch: Watch) -> None:
        async for missed in rounds(self._interval_s):
            self.counts["skipped"] += missed
            if self._interval_s is None or self._feed.has_room:
                await self._ask(watch)
                self._tell(watch.room())
            else:
                self.counts["skipped"] += 1
                self._tell(watch.full())

    async def _ask(self, watch: Watch) -> None:
        target = watch.target
        async with self._at_once:
            begun_us = time.time_ns() // 1000
            try:
                text = await self._scraper.page(target)
                scrape = Scrape(
                    text, target.instance, target.url.host or "", begun_us, time.time_ns() // 1000
                )
                page = read_page(scrape)
                _check(page, text)
            except ScrapeError as fault:
                self.counts["failed"] += 1
                self.counts[f"failed_{fault.reason}"] += 1
                self._tell(watch.failed(fault))
                return
        self.counts["scrapes"] += 1
        self.counts["unparsed"] += page.unparsed
        self.counts["left_out"] += page.left_out
        self._tell(watch.answered(page))
        self._tell(watch.shared(self._also_served(watch, page)))
        if page.readings:
            size_bytes = max(_MEMORY_PER_TEXT * len(text), _READING_BYTES * len(page.readings))
            self._feed.put(Batch(page.readings, scrape.read_us, size_bytes))

    def _also_served(self, watch: Watch, page: Page) -> str | None:
        """Another exporter that serves a GPU of this page, with that GPU."""
        found = None
        now = time.monotonic()
        expired = -math.inf if self._interval_s is None else now - _SERVED_ROUNDS * self._interval_s
        if len(self._served) > job_limits.REPLAY_GPUS_MAX:
            self._served.clear()
        for uuid in {reading.uuid for reading in page.readings if reading.uuid}:
            other, at = self._served.get(uuid, (watch, now))
            if other is watch or at < expired:
                self._served[uuid] = watch, now
            else:
                found = f"{other.target.url} as well, such as {uuid[:_SHOWN]}"
        return found

    def _tell(self, lines: Sequence[str]) -> None:
        for line in lines:
            self._say(line)


def _check(page: Page, text: str) -> None:
    if not page.samples and page.unparsed:
        begins = text.lstrip()[:_SHOWN]
        raise ScrapeError(
            f"the page is none of metrics; it begins with {begins!r}: is the URL that of the "
            "exporter's metrics?",
            reason="not_metrics",
        )


class Watch:
    """What is said of one exporter: begins and ends, pure but for the clock's reading."""

    def __init__(
        self,
        target: Target,
        interval_s: float | None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.target = target
        self._interval_s = interval_s
        self._now = now
        self._failing, self._full, self._bare = Condition(), Condition(), Condition()
        self._unparsed, self._left_out, self._shared = Condition(), Condition(), Condition()
        self._stale = Condition()
        self._digest = b""
        self._same_since = 0.0
        self._same_rounds = 0

    def failed(self, fault: ScrapeError) -> list[str]:
        """A scrape that gave no page."""
        if not self._failing.seen(fault.reason, self._now()):
            return []
        again = "" if self._interval_s is None else f"; asked again every {self._interval_s:g} s"
        return [f"{self.target.url}: {fault}{again}"]

    def answered(self, page: Page) -> list[str]:
        """A page came."""
        times = self._failing.times
        lines = self._ended(
            self._failing,
            f"answers again, after {{}} and {counted(times, 'scrape')} without a page",
        )
        lines += self._state(
            self._bare, None if page.readings else "bare",
            "the page has no metric of a GPU" + (
                f", but of others, such as {page.left_out_name[:_SHOWN]}" if page.left_out else ""
            ) + "; does the exporter see a GPU, and is the URL the right one?",
            "has metrics of GPUs again, after {}",
        )  # fmt: skip
        lines += self._state(
            self._unparsed, "unparsed" if page.unparsed else None,
            f"{counted(page.unparsed, 'line')} of the page cannot be read as a sample, such as "
            f"{page.unparsed_line[:_SHOWN]!r}; published as they are, for the quarantine",
            "every line is a sample again, after {}",
        )  # fmt: skip
        if page.readings and page.left_out and self._left_out.seen("left_out", self._now()):
            lines.append(
                f"{self.target.url}: {counted(page.left_out, 'sample')} of the page are of no GPU, "
                f"such as {page.left_out_name[:_SHOWN]}; not published, each time"
            )
        return lines + self._staleness(page)

    def shared(self, other: str | None) -> list[str]:
        """Whether another exporter serves the same GPU."""
        return self._state(
            self._shared, other and "shared",
            f"serves GPUs that are at {other}; each of their values is stored twice: leave one out",
            "serves no GPU of another exporter any more, after {}",
        )  # fmt: skip

    def full(self) -> list[str]:
        """No scrape was made, for what was read before is still here."""
        return self._state(
            self._full, "full",
            f"not asked while {job_limits.COLLECT_BACKLOG_BYTES >> 20} MiB wait for the broker",
            "",
        )  # fmt: skip

    def room(self) -> list[str]:
        """There was room for a scrape."""
        return self._ended(self._full, "asked again, after {} without room")

    def _staleness(self, page: Page) -> list[str]:
        now = self._now()
        values = "\n".join(f"{each.metric} {each.uuid} {each.raw}" for each in page.readings)
        digest = hashlib.blake2b(values.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if digest != self._digest:
            self._digest, self._same_since, self._same_rounds = digest, now, 0
        self._same_rounds += 1
        same_s = now - self._same_since
        is_stale = (
            page.readings
            and self._same_rounds > _STALE_ROUNDS_MIN
            and same_s >= job_limits.EXPORTER_STALE_SECONDS
        )
        return self._state(
            self._stale, "stale" if is_stale else None,
            f"the page has been the same to the bit for {_duration(same_s)}; published on, but "
            "look whether the exporter still reads its GPUs",
            "the page moves again, after {}",
        )  # fmt: skip

    def _state(self, condition: Condition, kind: str | None, begins: str, ends: str) -> list[str]:
        if kind is None:
            return self._ended(condition, ends)
        if condition.seen(kind, self._now()):
            return [f"{self.target.url}: {begins}"]
        return []

    def _ended(self, condition: Condition, text: str) -> list[str]:
        seconds = condition.absent(self._now())
        if seconds is None:
            return []
        return [f"{self.target.url}: {text.format(_duration(seconds))}"]


def _duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 7200 else f"{whole // 3600} h {whole % 3600 // 60} min"
