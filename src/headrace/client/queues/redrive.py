"""Sends the dead letters of a queue back to it.

Owns which letters are sent, what a letter is as a message of its queue, and when there is nothing
left to send: what dies meanwhile is for a later redrive, or one would not end whose letters die
again. A letter is acknowledged once its message is durable; one that is sent again, for its
acknowledgement did not arrive, is known to the queue by its `dedup-id`. Letters that are passed
over are held open to the end and then given back, which counts as no failure.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from headrace.client.errors import ClientError, ConnectionLostError, QueueError, TooLateError
from headrace.client.mqtt_properties import handed_on, user_properties
from headrace.client.queues.messages import BELOW, DEDUP_ID
from headrace.client.queues.sender import Sender
from headrace.client.queues.worker import LEASE_S, RENEW_S
from headrace.queue_settings import DEAD_LETTERS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from headrace.client.queues.consumption import Consumption
    from headrace.client.queues.messages import Delivered, Message
    from headrace.client.queues.queue import Queue

log = logging.getLogger(__name__)

GROUP: Final = "redrive"
"""Which group of the dead letters has sent them."""

REASONS: Final = ("rejected", "attempts", "total_time", "expired", "depth")
"""Why a message dies, as its letter says."""

WINDOW: Final = 500
"""Letters that one connection may have open: so many payloads are in memory at most."""

MEMBERS_MAX: Final = 100
"""Connections; each but the last holds a window of letters that were passed over."""

PASSED_MAX: Final = WINDOW * MEMBERS_MAX

LOOK_S: Final = 0.1
"""Between two looks at what is left."""

STILL_LOOKS_MAX: Final = 50
"""Looks that find that what is left does not come, 5 s: it is delayed, or behind what is held in an
order, or the queue is paused, or the node is away."""

KNOWN_MAX: Final = 32_768
"""Ids by which letters of one message are counted as repeats: as many as a partition knows."""

SOURCE_TOPIC: Final = "x-source-topic"

_ID_BYTES_MAX: Final = 255
"""Of a `dedup-id`; a longer one is none."""

_TOO_LARGE: Final = (0x95, 0x97)

_OF_DEATH: Final = frozenset(
    {"reason", "reason-detail", "attempts", "died", "x-source-queue", "x-source-message",
     "x-source-topic", "x-source-group", "x-source-enqueued", "message-id", "group-id",
     "group-filter", "queue", "partition", "offset", "sequence", "attempt", "first-enqueued",
     "dedup-id"}
)  # fmt: skip
"""User properties that a message does not take back with it: of its death, of the delivery of its
letter, and of its publisher the one that would have it taken for a repeat."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which letters are sent: of these reasons, all where there are none, and of this group."""

    reasons: frozenset[str] = frozenset()
    group: str | None = None

    def takes(self, letter: Delivered, group: str | None) -> bool:
        """Whether a letter is sent; `group` is the one that the message was dead to."""
        is_of_reason = not self.reasons or letter.properties.get("reason") in self.reasons
        return is_of_reason and self.group in (None, group)


@dataclass(slots=True)
class Pace:
    """So many in a second at most; None: as fast as they go."""

    rate: float | None
    _next_s: float = 0.0

    def wait_s(self, now_s: float) -> float:
        """How long the next one has to wait; its place is taken."""
        if self.rate is None:
            return 0.0
        at_s = max(self._next_s, now_s)
        self._next_s = at_s + 1 / self.rate
        return at_s - now_s


@dataclass(frozen=True, slots=True)
class Owed:
    """What the group of redrives is owed: in all, delivered, and of that to this one.

    `left` is what it is owed of those letters that were there when the redrive began, and `rival`
    the client of another one that came before; None: there is none.
    """

    left: int
    depth: int
    in_flight: int
    ours: int
    rival: str | None


def topic_of(queue: str, source: str | None) -> str | None:
    """Where a message is published to, by its letter's `x-source-topic`.

    What was published elsewhere has that topic behind the queue's name, as it was delivered with,
    so that groups with a filter get it. None: nobody may publish there.
    """
    whole, routing = f"{BELOW}{queue}", source or ""
    for own in (whole, whole + DEAD_LETTERS):  # a letter that was put there by hand has the latter
        if routing == own or routing.startswith(f"{own}/"):
            routing = routing[len(own) + 1 :]
            break
    if "/$" in f"/{routing}":
        return None
    return f"{whole}/{routing}" if routing else whole


def pairs_of(letter: Message) -> list[tuple[str, str]]:
    """The user properties that a letter came with."""
    pairs: list[tuple[str, str]] = getattr(letter.hold.told, "UserProperty", [])
    return pairs


def own_of(pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Of the user properties of a letter those of the message, in their order."""
    return [pair for pair in pairs if pair[0] not in _OF_DEATH]


def dead_to(pairs: list[tuple[str, str]]) -> str | None:
    """The group that a message was dead to."""
    return dict(pairs).get("x-source-group")


def dedup_id(queue: str, letter: Delivered) -> str:
    """By which a queue knows that it has a letter's message already.

    Letters of one message, which was dead to several groups or died again after a `seek`, have the
    same; what was sent back is another message. A letter that somebody put there by hand stands for
    itself. The times tell messages and letters of a queue from those of one that was deleted.
    """
    told = letter.properties
    source, since = told.get("x-source-message"), told.get("x-source-enqueued")
    if told.get("x-source-queue") == queue and source and since:
        text = f"{queue}:{source}:redrive:{since}"
    else:
        place = f"{letter.partition}:{letter.offset}"
        text = f"{queue}{DEAD_LETTERS}:{place}:redrive:{letter.first_enqueued}"
    return text if len(text) <= _ID_BYTES_MAX else hashlib.sha256(text.encode()).hexdigest()


@dataclass(slots=True)
class Counts:
    """What became of letters.

    Attributes:
        done: whose messages are in the queue.
        repeats: of those, of which another letter had sent the message before, in this redrive.
        passed: by partition and offset, those that were not chosen, or were refused.
        refused: of those, how many cannot be sent, for their size or their topic.
        why: the first reason.
        is_still: what was left has not come.
    """

    done: int = 0
    repeats: int = 0
    passed: set[tuple[int, int]] = field(default_factory=set)
    refused: int = 0
    why: str = ""
    is_still: bool = False


class Redrive:
    """One redrive: `run` it, once.

    Args:
        queue: by name.
        dead: the queue of its dead letters; what `look` counts as ours goes by its `client_id`.
        chosen: letters to be sent.
        pace: how fast.
        limit: how many at most, 1 or more; None: all.
        ends: of each partition, the offset behind the last letter that was there before.
        look: asks what the group is owed; None: nobody can say now.
    """

    def __init__(
        self,
        queue: str,
        dead: Queue,
        chosen: Chosen,
        pace: Pace,
        limit: int | None,
        ends: Sequence[int],
        look: Callable[[], Awaitable[Owed | None]],
    ) -> None:
        self.counts = Counts()
        self._queue = queue
        self._dead = dead
        self._chosen = chosen
        self._pace = pace
        self._left = limit
        self._ends = ends
        self._look = look
        self._sender = Sender(dead.config)
        self._members: list[Consumption] = []
        self._sending: set[asyncio.Task[None]] = set()
        self._unsure: set[tuple[int, int]] = set()
        self._later: set[tuple[int, int]] = set()
        self._known: dict[str, None] = {}
        self._over = asyncio.Event()
        self._failure: BaseException | None = None

    def stop(self) -> None:
        """Sends nothing more; `run` returns once what is under way is done."""
        self._over.set()
        for each in self._members:
            each.stop()

    async def run(self) -> None:
        """Sends letters until none is left that is chosen.

        Raises:
            ClientError: a broker refuses, or is not reached; `counts` tells what was done before.
        """
        tending = asyncio.create_task(self._tend())
        tending.add_done_callback(self._tended)
        try:
            async with contextlib.AsyncExitStack() as members:
                try:
                    await self._consume(members)
                except ClientError as error:  # letters are given back as if nothing had been
                    self._fail(error)
                if self._sending:
                    await asyncio.wait(self._sending)
        finally:
            tending.cancel()
            await asyncio.wait((tending,))
            await self._sender.close()
        if self._failure is not None:
            raise self._failure

    async def _consume(self, members: contextlib.AsyncExitStack) -> None:
        """Has one member after the other, each as long as it has room."""
        while not self._over.is_set():
            if len(self._members) == MEMBERS_MAX:
                self.counts.is_still = True
                return
            messages = self._dead.consume(group=GROUP, prefetch=WINDOW)
            try:
                await members.enter_async_context(messages)
            except QueueError:
                if not self._members:
                    raise
                self.counts.is_still = True  # it takes one consumer, which holds what it may
                return
            self._members.append(messages)
            if len(self._members) == 1:
                await self._be_alone()
            await self._take(messages)

    async def _be_alone(self) -> None:
        """Refuses to send beside another redrive.

        Each would hold letters that are the other's, and take what that has sent for its own.

        Raises:
            QueueError: another came first.
        """
        owed = await self._look()
        if owed is not None and owed.rival is not None:
            raise QueueError(
                f"client {owed.rival} sends letters of {self._dead.name} back already; there is "
                "one redrive at a time: try again when that is over"
            )

    async def _take(self, messages: Consumption) -> None:
        """Until the member has no more room, or nothing more is to be sent."""
        room = WINDOW
        async for letter in messages:
            if not self._takes(letter):
                room -= 1
                if not room:
                    return
                continue
            await self._wait_turn()
            if self._over.is_set():
                return
            task = asyncio.create_task(self._send(letter))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)
            if self._left is not None:
                self._left -= 1
                if not self._left:
                    self.stop()

    def _takes(self, letter: Message) -> bool:
        """Whether a letter is sent; others are passed over."""
        place = (letter.partition, letter.offset)
        if letter.partition >= len(self._ends) or letter.offset >= self._ends[letter.partition]:
            self._later.add(place)
            return False
        if not self._chosen.takes(letter, dead_to(pairs_of(letter))):
            self.counts.passed.add(place)
            return False
        source = letter.properties.get(SOURCE_TOPIC)
        if topic_of(self._queue, source) is None:
            self._refuse(place, f"topic {source} has a level that begins with $: it stays")
            return False
        return True

    def _refuse(self, place: tuple[int, int], why: str) -> None:
        self.counts.refused += place not in self.counts.passed
        self.counts.why = self.counts.why or why
        self.counts.passed.add(place)

    async def _wait_turn(self) -> None:
        wait_s = self._pace.wait_s(asyncio.get_running_loop().time())
        if wait_s > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), wait_s)

    async def _send(self, letter: Message) -> None:
        place = (letter.partition, letter.offset)
        pairs = pairs_of(letter)
        told = letter.hold.told
        properties = b"" if told is None else handed_on(told)
        known = dedup_id(self._queue, letter)
        properties += user_properties((*own_of(pairs), (DEDUP_ID, known)))
        topic = topic_of(self._queue, letter.properties.get(SOURCE_TOPIC))
        assert topic is not None, "it was looked at"
        try:
            await self._sender.put(topic, letter.payload, properties, is_ours=False)
        except QueueError as error:
            if error.retriable or error.reason_code not in _TOO_LARGE:
                return self._fail(error)
            return self._refuse(place, str(error))
        except ClientError as error:
            return self._fail(error)
        if place not in self._unsure:
            self.counts.done += 1
            self.counts.repeats += self._is_repeat(known)
        try:
            await letter.ack()
        except (TooLateError, ConnectionLostError) as error:
            self._unsure.add(place)  # it comes again, and its message is known
            log.info("%s", error)
        except ClientError as error:
            self._fail(error)

        return None

    def _is_repeat(self, known: str) -> bool:
        """Whether a letter before it had this id, of as many as a partition knows."""
        is_repeat = known in self._known
        self._known[known] = None
        if len(self._known) > KNOWN_MAX:
            del self._known[next(iter(self._known))]
        return is_repeat

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or error
        self.stop()

    async def _tend(self) -> None:
        """Keeps what is open from coming again, and ends the redrive when nothing is left."""
        before: object = None
        still = 0
        while True:
            await asyncio.sleep(LOOK_S)
            for each in self._members:
                await each.extend(LEASE_S, RENEW_S)
            if self._sending or not self._members:
                continue
            owed, passed = await self._look(), len(self.counts.passed)
            if self._sending:
                continue
            if owed is not None and owed.left <= passed:
                return self.stop()
            passed += len(self._later)
            if owed is not None and owed.ours == passed and owed.depth == owed.in_flight:
                return self.stop()
            is_coming = owed is not None and owed.ours > passed
            state = (owed, passed, self.counts.done)
            still = 0 if is_coming or state != before else still + 1
            before = state
            if still == STILL_LOOKS_MAX:
                self.counts.is_still = True
                return self.stop()

    def _tended(self, tending: asyncio.Task[None]) -> None:
        if not tending.cancelled() and (error := tending.exception()) is not None:
            self._fail(error)
