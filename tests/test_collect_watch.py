"""What is said of an exporter over its rounds, and what waits for a broker."""

import math

from exporterpages import CAPITAL, EXPORTERS_OWN
from headrace import job_limits
from headrace.collect import Pause, narrow
from headrace.collect.exporter import Watch
from headrace.collect.exposition import Scrape, read_page
from headrace.collect.feed import Batch, Feed
from headrace.collect.scrape import Target
from headrace.errors import ScrapeError

URL = "http://node-7:9400/metrics"


def page(text):
    return read_page(Scrape(text, "node-7:9400", "node-7", 1_900_000_000_000_000, 0))


class Rounds:
    """An exporter, watched each 15 s."""

    def __init__(self):
        self.now = 0.0
        self.watch = Watch(Target.parse(URL), 15.0, lambda: self.now)

    def answers(self, text):
        self.now += 15.0
        return self.watch.answered(page(text))

    def fails(self, reason, text):
        self.now += 15.0
        return self.watch.failed(ScrapeError(text, reason=reason))


def test_a_page_that_stands_still_is_said_once_and_that_it_moves():
    rounds = Rounds()
    said = [rounds.answers(CAPITAL) for _ in range(40)]
    assert [bool(lines) for lines in said] == [False] * 8 + [True] + [False] * 31
    assert "has been the same to the bit for 2 min" in said[8][0]
    assert said[8][0].startswith(URL)
    (end,) = rounds.answers(CAPITAL.replace("212.5", "213.5"))
    assert "the page moves again, after 8 min" in end


def test_what_the_exporter_says_of_itself_does_not_make_a_page_move():
    rounds = Rounds()
    said = [
        line
        for turn in range(20)
        for line in rounds.answers(f"{CAPITAL}go_goroutines {turn}\n")
        if "same to the bit" in line
    ]
    assert len(said) == 1


def test_an_outage_is_a_line_for_each_reason_and_one_for_its_end():
    rounds = Rounds()
    rounds.answers(CAPITAL)
    said = [rounds.fails("timeout", "hangs"), rounds.fails("unreachable", "is gone")]
    said += [rounds.fails("timeout", "hangs"), rounds.fails("unreachable", "is gone")]
    assert said == [
        [f"{URL}: hangs; asked again every 15 s"],
        [f"{URL}: is gone; asked again every 15 s"],
        [],
        [],
    ]
    assert rounds.answers(CAPITAL) == [
        f"{URL}: answers again, after 60 s and 4 scrapes without a page"
    ]


def test_a_page_without_gpus_says_what_it_has():
    rounds = Rounds()
    assert "such as go_goroutines" in rounds.answers(EXPORTERS_OWN)[0]
    assert rounds.answers("") == []
    (end,) = rounds.answers(CAPITAL)
    assert "has metrics of GPUs again, after 30 s" in end


def test_a_feed_says_when_it_is_full_and_loses_nothing():
    woken = []
    feed = Feed(narrow, lambda: woken.append(feed.readings))
    readings = page(CAPITAL).readings
    batches = 0
    while feed.has_room:
        feed.put(Batch(readings, 1_900_000_000_000_000 + batches, 1 << 20))
        batches += 1
    assert batches == job_limits.COLLECT_BACKLOG_BYTES >> 20
    assert woken == [2 * (n + 1) for n in range(batches)]
    messages = feed.messages()
    taken = [next(messages) for _ in range(3)]
    assert feed.has_room
    feed.close()
    taken += messages
    assert len(taken) == feed.readings == 2 * batches
    assert b"2030-03-17T17:46:40.000063Z" in taken[-1].payload


def test_a_feed_without_anything_waits_and_then_ends():
    feed = Feed(narrow, lambda: None)
    messages = feed.messages()
    assert next(messages) == Pause(math.inf), "until it is woken"
    feed.put(Batch(page(CAPITAL).readings, 0, 1))
    feed.close()
    assert len(list(messages)) == 2
