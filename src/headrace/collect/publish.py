"""The collector's loop: messages to a broker until each is acknowledged.

Owns clocks, pauses and connections coming and going. Order and repetition are decided by
`Window`, bytes and sockets by `Link`.
"""

from __future__ import annotations

import random
import socket
import time
from typing import TYPE_CHECKING, Final

from headrace import job_limits
from headrace.collect.link import ALREADY_STORED, Link, Origin
from headrace.collect.window import Counts, Window
from headrace.errors import PublishError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headrace.client import Login
    from headrace.collect.messages import Message, Pause
    from headrace.model import Address

WAITING: Final = "waiting for the broker"
"""How `on_progress` names an outage; the reason follows."""

_PROGRESS_S: Final = 0.1
_IDLE_S_MAX: Final = 1.0
_BURST: Final = 64
"""Publishes between two looks at the socket: acknowledgements are read while more is sent."""

_FOR_A_TIME: Final = frozenset({0x80, 0x97})
"""PUBACK codes after which the same message may be stored later: unspecified error (a draining
node, a failing disk) and quota exceeded (MQTT 5.0 3.4.2.1)."""

_LAG_S_MAX: Final = 0.1
"""What a limited rate makes up for after a late wake-up; an outage is not made up for."""


class Publisher:
    """Publishes messages at QoS 1, over as many connections as it takes. One use.

    Args:
        broker: where the MQTT door is.
        origin: names this run; see `Origin`.
        login: user and password, where the broker asks for them.
        rate: readings a second at most; None is as fast as it goes.
        on_acknowledged: called with the sequence and the readings of each acknowledged message.
        on_progress: called some times a second with the counts and what is being done.
    """

    def __init__(
        self,
        broker: Address,
        origin: Origin,
        *,
        login: Login | None = None,
        rate: float | None = None,
        on_acknowledged: Callable[[int, int], None] | None = None,
        on_progress: Callable[[Counts, str], None] | None = None,
    ) -> None:
        self._broker = broker
        self._origin = origin
        self._login = login
        self._pace = Pace(rate)
        self._on_acknowledged = on_acknowledged
        self._on_progress = on_progress
        self._progress_at = 0.0
        self._pauses = _Pauses()
        self._refusals = 0
        self._hold_until = 0.0
        self._stopping = self._cut = False
        self._flush_until: float | None = None
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_writer.settimeout(0.0)

    def stop(self) -> None:
        """Takes no more input; `run` then ends once all is acknowledged.

        It waits `job_limits.COLLECT_FLUSH_SECONDS` for that. For a signal handler or another
        thread.
        """
        self._stopping = self._cut = True
        self.wake()

    def finish(self) -> None:
        """The input ends by itself, and soon; `run` waits for it no longer than `stop` lets it.

        For a signal handler or another thread.
        """
        self._stopping = True
        self.wake()

    def wake(self) -> None:
        """The input may have something now. For any thread."""
        try:
            self._wake_writer.send(b"\0")
        except OSError:  # full of wake-ups, or `run` has ended: either way nothing to wake
            return

    def run(self, messages: Iterator[Message | Pause]) -> Counts:
        """Publishes `messages`; returns once all is acknowledged, or stopped.

        A pause among them is nothing for now: there is more when it is over, or `wake` tells.

        Raises:
            PublishError: no broker was ever reached, or it refuses for good.
        """
        window = Window(messages, job_limits.COLLECT_WINDOW)
        reached = False
        give_up = time.monotonic() + job_limits.COLLECT_START_SECONDS
        with self._wake_reader, self._wake_writer:
            while not self._finished(window):
                try:
                    with Link(self._broker, self._origin, self._wake_reader, self._login) as link:
                        reached = True
                        self._serve(link, window)
                except OSError as fault:
                    if not reached and time.monotonic() >= give_up:
                        raise PublishError(
                            f"no broker answers at {self._broker} ({fault}); "
                            "start `headrace serve`, or name another with --mqtt"
                        ) from None
                    window.disconnected()
                    self._report(window, f"{WAITING} at {self._broker}: {fault}")
                    self._pause(self._pauses.next())
        self._report(window, "done")
        return window.counts

    def _serve(self, link: Link, window: Window) -> None:
        """One connection, until all is done or it is lost."""
        window.size_max = min(job_limits.COLLECT_WINDOW, link.receive_max)
        while not self._finished(window):
            now = time.monotonic()
            sent = self._send(link, window, now)
            link.wait(0.0 if sent == _BURST or window.done else self._patience(window, now))
            self._settle(link, window)
            link.check()
            if now >= self._progress_at:
                self._progress_at = now + _PROGRESS_S
                self._report(window, "publishing")

    def _send(self, link: Link, window: Window, now: float) -> int:
        """Sends a burst at most; how many messages it was."""
        if now < self._hold_until:
            return 0
        for sent in range(_BURST):
            if self._pace.due_in(now) > 0.0:
                return sent
            entry = window.take()
            if entry is None:
                return sent
            topic, payload, readings = entry.message
            window.sent(link.send(topic, payload, entry.sequence), entry)
            self._pace.spend(readings, now)
        return _BURST

    def _settle(self, link: Link, window: Window) -> None:
        refused = acknowledged = False
        for packet_id, code, reason in link.settled:
            if code < 0x80:
                entry = window.acknowledged(packet_id, repeat=reason == ALREADY_STORED)
                acknowledged = True
                if entry is not None and self._on_acknowledged is not None:
                    self._on_acknowledged(entry.sequence, entry.message.readings)
            elif code in _FOR_A_TIME:
                window.refused(packet_id)
                refused = True
            else:
                raise PublishError(self._refusal(reason))
        link.settled.clear()
        if acknowledged:
            self._refusals = 0
            self._pauses.reset()
        elif refused:
            self._refusals += 1
            if self._refusals > job_limits.COLLECT_REFUSALS_MAX:
                raise PublishError(self._refusal("again and again"))
            self._hold_until = time.monotonic() + self._pauses.next()

    def _refusal(self, reason: str) -> str:
        remedy = (
            f"; a newer collector publishes as {self._origin.source}: "
            "stop it, or name this one with --source"
            if reason == "stale epoch"
            else ""
        )
        return f"the broker at {self._broker} refuses to store: {reason}{remedy}"

    def _patience(self, window: Window, now: float) -> float:
        """How long there is nothing to do but listen."""
        due = max(self._hold_until - now, self._pace.due_in(now), window.pause_s)
        return min(due, _IDLE_S_MAX) if due > 0.0 else _IDLE_S_MAX

    def _finished(self, window: Window) -> bool:
        if self._cut:
            window.end_input()
        if self._stopping and self._flush_until is None:
            self._flush_until = time.monotonic() + job_limits.COLLECT_FLUSH_SECONDS
        overdue = self._flush_until is not None and time.monotonic() >= self._flush_until
        return window.done or overdue

    def _report(self, window: Window, doing: str) -> None:
        if self._on_progress is not None:
            self._on_progress(window.counts, doing)

    def _pause(self, seconds: float) -> None:
        """Waits, or until `stop`; that the input has more is no reason to try again sooner."""
        deadline, before = time.monotonic() + seconds, self._stopping
        while self._stopping == before and (left := deadline - time.monotonic()) > 0.0:
            self._wake_reader.settimeout(left)
            try:
                self._wake_reader.recv(4096)
            except TimeoutError:
                return


class Pace:
    """A limit in readings a second; None is none."""

    __slots__ = ("_due", "_rate")

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._due = 0.0

    def due_in(self, now: float) -> float:
        """Seconds until the next message may go; 0.0 or less: now."""
        return self._due - now if self._rate is not None else 0.0

    def spend(self, readings: int, now: float) -> None:
        """A message of `readings` went at `now`."""
        if self._rate is not None:
            self._due = max(self._due, now - _LAG_S_MAX) + readings / self._rate


class _Pauses:
    """Pauses that double up to a bound, each shortened at random by up to half."""

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next = job_limits.COLLECT_BACKOFF_SECONDS_MIN

    def next(self) -> float:
        pause = self._next * random.uniform(0.5, 1.0)  # noqa: S311 (spreads load)
        self._next = min(self._next * 2, job_limits.COLLECT_BACKOFF_SECONDS_MAX)
        return pause

    def reset(self) -> None:
        self._next = job_limits.COLLECT_BACKOFF_SECONDS_MIN
